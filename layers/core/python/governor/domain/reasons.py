"""Reasons as data: a code and its numbers. One function turns them into words, and everything that explains uses it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReasonCode(StrEnum):
    """Every reason the Governor knows for doing something or leaving it."""

    # why a level stands as it does
    BELOW_WARN = "below-warn"
    WARN_REACHED = "warn-reached"
    STOP_REACHED = "stop-reached"
    # why a run holds
    MODE_OFF = "mode-off"
    MODE_OBSERVE = "mode-observe"
    PAUSED = "paused"
    PAUSE_UNREADABLE = "pause-unreadable"
    BUDGET_UNKNOWN = "budget-unknown"
    SETTINGS_UNKNOWN = "settings-unknown"
    PERIOD_JUST_CHANGED = "period-just-changed"
    GRACE = "grace"
    THRESHOLD_EDITED = "threshold-edited"
    SPEND_JUMPED = "spend-jumped"
    SPEND_FELL = "spend-fell"
    # why an instance is taken or spared
    WITHIN_REACH = "within-reach"
    NOT_MANAGED = "not-managed"
    CRITICAL = "critical"
    TAG_NOT_EXACT = "tag-not-exact"
    OUT_OF_SCOPE_FAMILY = "family-out-of-scope"
    KIND_NOT_HANDLED = "kind-not-handled"
    NOT_RUNNING = "not-running"
    STARTED_AFTER_OUR_STOP = "started-after-our-stop"
    JUST_LAUNCHED = "just-launched"
    OVER_MAX_STOP_PERCENT = "over-max-stop-percent"
    NEXT_RUN = "next-run"
    STOP_UNDERWAY = "stop-underway"
    WITHHELD_LATELY = "withheld-lately"
    CHANGED_SINCE = "changed-since"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code, and the figures or names that go with it, in a stable order."""

    code: ReasonCode
    facts: tuple[tuple[str, str], ...] = ()

    def fact(self, name: str) -> str:
        """Value of a fact, or an empty text."""
        return dict(self.facts).get(name, "")


def because(code: ReasonCode, **facts: object) -> Reason:
    """Build a reason; figures are kept as the text that will be shown."""
    return Reason(code, tuple((name, str(value)) for name, value in sorted(facts.items())))


_WORDS: dict[ReasonCode, str] = {
    ReasonCode.BELOW_WARN: "spend is {percent} % of the limit, below the warning at {warn_percent} %",
    ReasonCode.WARN_REACHED: "spend is {percent} % of the limit, at or above the warning at {warn_percent} %",
    ReasonCode.STOP_REACHED: "spend is {percent} % of the limit, at or above the stop at {stop_percent} %",
    ReasonCode.MODE_OFF: "the area budget is switched off (budget/mode)",
    ReasonCode.MODE_OBSERVE: "the area budget only observes (budget/mode); nothing is changed",
    ReasonCode.PAUSED: "the Governor is paused{until}{why}",
    ReasonCode.PAUSE_UNREADABLE: "the pause cannot be read ({why}), which counts as paused",
    ReasonCode.BUDGET_UNKNOWN: "the budget could not be read ({why}); the last plan is kept and nothing is stopped",
    ReasonCode.SETTINGS_UNKNOWN: "there is no valid snapshot of the settings yet ({why})",
    ReasonCode.PERIOD_JUST_CHANGED: (
        "a new month began and AWS Budgets reports {actual_usd} USD, more than this month can have cost so far "
        "({believable_usd} USD; the last month ended at {last_usd} USD); that figure counts as unknown"
    ),
    ReasonCode.GRACE: "the notice went out; stopping begins at {due}",
    ReasonCode.THRESHOLD_EDITED: "{names} was edited at {at} by {by}; held until {due} so that a slip can be undone",
    ReasonCode.SPEND_JUMPED: (
        "spend jumped by {jump_usd} USD, more than the fleet can burn ({believable_usd} USD); held until {due}"
    ),
    ReasonCode.SPEND_FELL: (
        "AWS Budgets reports {actual_usd} USD after {last_usd} USD in the same month; a figure that falls counts as "
        "unknown until {due}"
    ),
    ReasonCode.WITHIN_REACH: "managed, {criticality}, family {family} in scope, running",
    ReasonCode.NOT_MANAGED: "not managed by this stage (tag missing)",
    ReasonCode.CRITICAL: "critical{finding}",
    ReasonCode.TAG_NOT_EXACT: "tags are readable but not written exactly ({finding}), so IAM would refuse",
    ReasonCode.OUT_OF_SCOPE_FAMILY: "family {family} is not in budget/stop-families",
    ReasonCode.KIND_NOT_HANDLED: "{kind}{owner}: not yet handled by this version, left alone",
    ReasonCode.NOT_RUNNING: "is {state}, not running",
    ReasonCode.STARTED_AFTER_OUR_STOP: "was started by a person after our stop; left alone",
    ReasonCode.JUST_LAUNCHED: "launched after the level was reached; stops at {due}",
    ReasonCode.OVER_MAX_STOP_PERCENT: (
        "budget/max-stop-percent allows {allowed} of {base} instances; the rest needs a person"
    ),
    ReasonCode.NEXT_RUN: "more than budget/max-stops-per-run; follows in the next run",
    ReasonCode.STOP_UNDERWAY: "EC2 accepted its stop; it has not been seen stopped yet",
    ReasonCode.WITHHELD_LATELY: "left running at the last moment ({what}); looked at again after {due}",
    ReasonCode.CHANGED_SINCE: "changed between the decision and the call ({what}); left alone",
    ReasonCode.GONE: "is no longer there, or could not be read again",
}


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


def words(reason: Reason) -> str:
    """A reason in words for an operator."""
    return _WORDS[reason.code].format_map(_Blank(reason.facts))
