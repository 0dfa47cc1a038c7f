"""guard_budget: warn at one share of the month's limit, stop what is not critical at another."""

from __future__ import annotations

import dataclasses
from typing import Any

from governor.shell import budget_guard
from governor.shell.budget_guard import GuardDeps
from governor.shell.environment import GuardBudgetEnvironment, read_environment
from governor.shell.events import read_trigger
from governor.shell.telemetry import Metric, Telemetry
from governor.shell.wiring import guard_deps


def handler(event: Any, context: object, deps: GuardDeps | None = None) -> dict[str, Any]:
    """One run; the answer says what was done. Raises where the event must be delivered again."""
    deps = deps or guard_deps(read_environment(GuardBudgetEnvironment))
    telemetry = Telemetry("guard_budget", deps.stage)
    trigger = read_trigger(event, deps.clock)
    report = budget_guard.run(deps, trigger)
    answer = dataclasses.asdict(report)
    telemetry.logger.info("guarded the budget", extra={"trigger": trigger.source, "report": answer})
    telemetry.complete(
        {
            Metric.STOP_FAILURES: len(report.failed),
            Metric.PAUSE_UNREADABLE: int(report.pause_unreadable),
            Metric.UNREADABLE_BUDGET_NOTICE: report.odd_notices,
        }
    )
    return answer
