"""confirm_actions: has each stop and start reached its final state, and what comes next on the way back."""

from __future__ import annotations

import dataclasses
from typing import Any

from governor.shell import confirm_actions
from governor.shell.confirm_actions import ConfirmDeps
from governor.shell.environment import ConfirmActionsEnvironment, read_environment
from governor.shell.events import read_trigger
from governor.shell.telemetry import Metric, Telemetry
from governor.shell.wiring import confirm_deps


def handler(event: Any, context: object, deps: ConfirmDeps | None = None) -> dict[str, Any]:
    """One run; the answer says what was done. Raises where the event must be delivered again."""
    deps = deps or confirm_deps(read_environment(ConfirmActionsEnvironment))
    telemetry = Telemetry("confirm_actions", deps.stage)
    trigger = read_trigger(event, deps.clock)
    report = confirm_actions.run(deps, trigger)
    answer = dataclasses.asdict(report)
    telemetry.logger.info("confirmed actions", extra={"trigger": trigger.source, "report": answer})
    telemetry.complete(
        {
            Metric.START_FAILURES: len(report.failed),
            Metric.STARTS_GIVEN_UP: len(report.given_up),
            Metric.PAUSE_UNREADABLE: int(report.pause_unreadable),
        }
    )
    return answer
