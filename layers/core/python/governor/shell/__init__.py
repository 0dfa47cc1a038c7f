"""Between the handlers and the rest: events, environment, settings, records, applying a decision, telemetry."""
