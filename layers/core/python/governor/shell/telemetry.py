"""What a function says about itself: a structured log, and metrics written into it (CloudWatch embedded metrics)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

NAMESPACE = "GpuGovernor"


class Metric(StrEnum):
    """Metrics that alarms and the dashboard know; all are counts."""

    RUN_COMPLETED = "RunCompleted"
    SETTINGS_REJECTED = "SettingsRejected"
    SETTINGS_UNREADABLE = "SettingsUnreadable"
    PAUSE_UNREADABLE = "PauseUnreadable"
    STOP_FAILURES = "StopFailures"
    START_FAILURES = "StartFailures"
    STARTS_GIVEN_UP = "StartsGivenUp"
    UNREADABLE_BUDGET_NOTICE = "UnreadableBudgetNotice"


class Telemetry:
    """Log and metrics of one function in one stage. Holds nothing from one run to the next."""

    def __init__(self, service: str, stage: str) -> None:
        self.service = service
        self.stage = stage
        self.logger: logging.Logger | Logger = Logger(service=service, stage=stage)

    def complete(self, metrics: Mapping[Metric, float] | None = None) -> None:
        """Write RunCompleted = 1 and `metrics` in one line. Called once, as the last thing of a run that worked."""
        line = EphemeralMetrics(namespace=NAMESPACE, service=self.service)
        line.add_dimension(name="stage", value=self.stage)
        for name, value in {**(metrics or {}), Metric.RUN_COMPLETED: 1}.items():
            line.add_metric(name=name.value, unit=MetricUnit.Count, value=value)
        line.flush_metrics()
