"""check_settings: the only reader of the tree of settings; one valid snapshot, or the last good one and a message."""

from __future__ import annotations

from typing import Any

from governor.shell.environment import CheckSettingsEnvironment, read_environment
from governor.shell.events import read_trigger
from governor.shell.settings import CheckDeps, check_deps, check_tree
from governor.shell.telemetry import Metric, Telemetry


def handler(event: Any, context: object, deps: CheckDeps | None = None) -> dict[str, Any]:
    """One run; the answer says what was found. Raises where the event must be delivered again."""
    deps = deps or check_deps(read_environment(CheckSettingsEnvironment))
    telemetry = Telemetry("check_settings", deps.place.stage)
    trigger = read_trigger(event, deps.clock)
    outcome = check_tree(deps, trigger.at)
    answer = {
        "version": outcome.version,
        "changes": [change.sentence for change in outcome.changes],
        "rejected": outcome.rejected,
        "unreadable": outcome.unreadable,
        "skipped": outcome.skipped,
    }
    log = telemetry.logger.warning if outcome.unreadable or outcome.rejected else telemetry.logger.info
    log("checked the settings", extra={"trigger": trigger.source, "at": trigger.at.isoformat(), "report": answer})
    metrics: dict[Metric, float] = {}
    if outcome.unreadable is not None:
        metrics[Metric.SETTINGS_UNREADABLE] = int(bool(outcome.unreadable))
    if outcome.rejected is not None:
        metrics[Metric.SETTINGS_REJECTED] = int(outcome.rejected)
    telemetry.complete(metrics)
    return answer
