"""send_messages: what the functions wrote into the outbox leaves here, to people, to chat and to the bus."""

from __future__ import annotations

from typing import Any

from governor.ports import Outbound
from governor.shell.environment import SendMessagesEnvironment, read_environment
from governor.shell.outbox import send_all
from governor.shell.telemetry import Telemetry
from governor.shell.wiring import outbound


def handler(event: dict[str, Any], context: object, deps: Outbound | None = None) -> dict[str, Any]:
    """One batch of the table's stream; names the first record that could not be sent, which comes again."""
    environment = read_environment(SendMessagesEnvironment)
    telemetry = Telemetry("send_messages", environment.stage)
    report = send_all(event.get("Records", ()), deps or outbound(environment))
    if report.failed_at is not None:
        telemetry.logger.error("a record could not be sent", extra={"sent": report.sent, "error": report.error})
        return {"batchItemFailures": [{"itemIdentifier": report.failed_at}]}
    telemetry.logger.info("sent", extra={"sent": report.sent})
    telemetry.complete()
    return {"batchItemFailures": []}
