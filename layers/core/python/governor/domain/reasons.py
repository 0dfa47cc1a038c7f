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
    STOP_PREEMPTIBLE_REACHED = "stop-preemptible-reached"
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
    JUST_LAUNCHED = "just-launched"
    OVER_MAX_STOP_PERCENT = "over-max-stop-percent"
    NEXT_RUN = "next-run"
    STOP_UNDERWAY = "stop-underway"
    WITHHELD_LATELY = "withheld-lately"
    CHANGED_SINCE = "changed-since"
    GONE = "gone"
    # kinds of instances, and why the stop of one is of no use or not ours
    OWNED_ELSEWHERE = "owned-elsewhere"
    SAVES_NOTHING = "saves-nothing"
    SAVES_TOO_LITTLE = "saves-too-little"
    STOP_PROTECTED = "stop-protected"
    PROTECTION_UNKNOWN = "protection-unknown"
    CANNOT_STOP = "cannot-stop"
    SPOT_ONE_TIME = "spot-one-time"
    SPOT_UNKNOWN = "spot-unknown"
    GROUP_UNKNOWN = "group-unknown"
    GROUP_CRITICAL = "group-critical"
    GROUP_NOT_MANAGED = "group-not-managed"
    GROUP_SCALES_ITSELF = "group-scales-itself"
    GROUP_REPORT = "group-report"
    GROUP_CHANGED = "group-changed"
    MEMBER_NOT_IN_SERVICE = "member-not-in-service"
    OUT_OF_SCOPE_TAGS = "tags-out-of-scope"
    NOT_YET = "not-yet"
    ENOUGH = "enough"
    NEXT_WAVE = "next-wave"
    # people overrule
    KEPT = "kept"
    KEEP_UNREADABLE = "keep-unreadable"
    OVERRIDDEN = "overridden"
    OVERRIDE_UNREADABLE = "override-unreadable"
    MANUAL_START_GRACE = "manual-start-grace"
    # notes on a victim
    MAY_NOT_COME_BACK = "may-not-come-back"
    CHECKPOINT_DONE = "checkpoint-done"
    CHECKPOINT_FAILED = "checkpoint-failed"
    CHECKPOINT_RUNNING = "checkpoint-running"
    CHECKPOINT_PLANNED = "checkpoint-planned"
    CHECKPOINT_NO_GRACE = "checkpoint-no-grace"
    TERMINATES = "terminates"
    # the way back
    RESTORABLE = "restorable"
    NOT_STOPPED_BY_US = "not-stopped-by-us"
    WAS_TERMINATED = "was-terminated"
    OTHER_REASON_LEFT = "other-reason-left"
    RESTORED_THIS_PERIOD = "restored-this-period"
    PAST_LIMIT = "past-limit"
    RESTORE_COST_UNKNOWN = "restore-cost-unknown"
    BEHIND_MORE_CRITICAL = "behind-more-critical"
    ALREADY_RUNNING = "already-running"
    NOT_YET_STOPPED = "not-yet-stopped"
    RESTORE_UNDERWAY = "restore-underway"
    FLEET_UNREADABLE = "fleet-unreadable"


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
    ReasonCode.STOP_PREEMPTIBLE_REACHED: (
        "spend is {percent} % of the limit, at or above the stop of preemptible instances at {stop_percent} %"
    ),
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
    ReasonCode.GRACE: "the grace lasts; stopping begins at {due}",
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
    ReasonCode.JUST_LAUNCHED: "launched after the level was reached; stops at {due}",
    ReasonCode.OVER_MAX_STOP_PERCENT: (
        "budget/max-stop-percent allows {allowed} of {base} instances; the rest needs a person"
    ),
    ReasonCode.NEXT_RUN: "more than budget/max-stops-per-run; follows in the next run",
    ReasonCode.STOP_UNDERWAY: "EC2 accepted its stop; it has not been seen stopped yet",
    ReasonCode.WITHHELD_LATELY: "left running at the last moment ({what}); looked at again after {due}",
    ReasonCode.CHANGED_SINCE: "changed between the decision and the call ({what}); left alone",
    ReasonCode.GONE: "is no longer there, or could not be read again",
    ReasonCode.OWNED_ELSEWHERE: "belongs to {owner}, which would replace it; lower it there",
    ReasonCode.SAVES_NOTHING: "stopping it saves nothing: {why}",
    ReasonCode.SAVES_TOO_LITTLE: (
        "stopping it saves {usd} USD to the end of the month, less than budget/min-saving-usd ({least})"
    ),
    ReasonCode.STOP_PROTECTED: "has stop protection, which the Governor never clears",
    ReasonCode.PROTECTION_UNKNOWN: "its stop protection could not be read; left alone",
    ReasonCode.CANNOT_STOP: "cannot be stopped: {why}",
    ReasonCode.SPOT_ONE_TIME: "one-time spot cannot be stopped; budget/terminate-one-time-spot is off",
    ReasonCode.SPOT_UNKNOWN: "its spot request could not be read or cannot be stopped ({why}); left alone",
    ReasonCode.GROUP_UNKNOWN: "its Auto Scaling group {group} could not be read; left alone",
    ReasonCode.GROUP_CRITICAL: (
        "its Auto Scaling group {group} holds a member that is critical, or does not say that it is not ({who})"
    ),
    ReasonCode.GROUP_NOT_MANAGED: (
        "its Auto Scaling group {group} is not tagged exactly as managed and not critical, so IAM would refuse"
    ),
    ReasonCode.GROUP_SCALES_ITSELF: (
        "its Auto Scaling group {group} would start it again ({what}); adopt it with --suspend, or act there"
    ),
    ReasonCode.GROUP_REPORT: "member of the Auto Scaling group {group}; budget/group-action is report",
    ReasonCode.GROUP_CHANGED: "somebody changed the Auto Scaling group {group} since we did ({what}); held, not fought",
    ReasonCode.MEMBER_NOT_IN_SERVICE: "is {state} in its Auto Scaling group {group}; looked at again in the next run",
    ReasonCode.OUT_OF_SCOPE_TAGS: "has none of the tags in budget/stop-tags",
    ReasonCode.NOT_YET: "{criticality} instances are stopped at {stop_percent} % of the limit, not yet",
    ReasonCode.ENOUGH: "not needed: without it the forecast stays within the limit (budget/stop-policy is enough)",
    ReasonCode.NEXT_WAVE: "more than budget/wave-percent after a hold; follows in the next wave",
    ReasonCode.KEPT: "kept{until}{why}",
    ReasonCode.KEEP_UNREADABLE: "kept, because its keep cannot be read ({why})",
    ReasonCode.OVERRIDDEN: "overridden for {scope}{until}{up_to}{why}",
    ReasonCode.OVERRIDE_UNREADABLE: "an override cannot be read ({why}), which holds the whole budget",
    ReasonCode.MANUAL_START_GRACE: "was started by {who} after our stop; left alone until {due}",
    ReasonCode.MAY_NOT_COME_BACK: "{family} is scarce: it may not come back",
    ReasonCode.CHECKPOINT_DONE: "its work was saved by {document}",
    ReasonCode.CHECKPOINT_FAILED: "its checkpoint {document} failed ({why}), so it goes last",
    ReasonCode.CHECKPOINT_RUNNING: "its checkpoint {document} is running",
    ReasonCode.CHECKPOINT_PLANNED: "its checkpoint {document} runs before the stop",
    ReasonCode.CHECKPOINT_NO_GRACE: "its checkpoint {document} is not run, because budget/grace-minutes is 0",
    ReasonCode.TERMINATES: "it is terminated, which cannot be undone: {why}",
    ReasonCode.RESTORABLE: "stopped by the Governor at {stopped} and unchanged since",
    ReasonCode.NOT_STOPPED_BY_US: "was not stopped by the Governor, or something else became of it since ({status})",
    ReasonCode.WAS_TERMINATED: "was terminated by the Governor, not stopped; it cannot come back",
    ReasonCode.OTHER_REASON_LEFT: "is also stopped for another reason ({reasons})",
    ReasonCode.RESTORED_THIS_PERIOD: "was started again once this month already; a person may do it again",
    ReasonCode.PAST_LIMIT: "with it the month would end at {usd} USD, above the limit of {limit} USD",
    ReasonCode.RESTORE_COST_UNKNOWN: "what the month would cost with it is unknown (limit {limit} USD)",
    ReasonCode.BEHIND_MORE_CRITICAL: "{instance_id} is more critical and does not fit under the limit yet",
    ReasonCode.ALREADY_RUNNING: "runs already",
    ReasonCode.NOT_YET_STOPPED: "is still {state}",
    ReasonCode.RESTORE_UNDERWAY: "is being started already",
    ReasonCode.FLEET_UNREADABLE: "its Region or its state cannot be read now",
}


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


def words(reason: Reason) -> str:
    """A reason in words for an operator."""
    return _WORDS[reason.code].format_map(_Blank(reason.facts))
