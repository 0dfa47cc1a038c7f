"""What may come back at all: stopped by us, unchanged since, held by no other reason. Asked again before each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from governor.domain.decisions import StopMethod
from governor.domain.eligibility import STANDBY
from governor.domain.fleet import SCARCE_FAMILIES, Group, Instance, InstanceState
from governor.domain.groups import GroupHold, change_by_others, held_members, lowered_members
from governor.domain.ledger import RETURNING_STATUSES, StopEntry, StopStatus
from governor.domain.outcomes import is_terminating
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.tags import Criticality

WAITING_STATUSES = (StopStatus.INTENDED, StopStatus.FAILED, StopStatus.WITHHELD, StopStatus.GAVE_UP)
"""A member that was not stopped, or whose group did not take it back, may have been left in our standby."""


def restorable_entries(ledger: Iterable[StopEntry]) -> list[StopEntry]:
    """The newest entry of each instance that is stopped by us, or left in our standby."""
    newest: dict[str, StopEntry] = {}
    for entry in ledger:
        before = newest.get(entry.instance_id)
        if before is None or entry.launched_at > before.launched_at:
            newest[entry.instance_id] = entry
    return [entry for _, entry in sorted(newest.items())]


@dataclass(frozen=True, slots=True)
class RestoreView:
    """What the rule of the way back needs beside the entry and its instance."""

    groups: Mapping[tuple[str, str], Group]
    holds: tuple[GroupHold, ...]
    ledger: Sequence[StopEntry]
    other_reasons: Mapping[str, frozenset[str]]


def objection_to_restore(entry: StopEntry, seen: Instance | None, view: RestoreView) -> Reason | None:
    """Why what we stopped may not be started again, or None."""
    if entry.status in RETURNING_STATUSES:
        return because(ReasonCode.RESTORE_UNDERWAY)
    return objection_to_start(entry, seen, view)


def objection_to_start(entry: StopEntry, seen: Instance | None, view: RestoreView) -> Reason | None:
    """The same for one that is on its way back already: read again just before the call."""
    if entry.method == StopMethod.LOWER.value:
        return _objection_to_place(entry, view)
    returning = entry.status in RETURNING_STATUSES
    waits = returning or entry.status in WAITING_STATUSES
    stopped = returning or entry.status in (StopStatus.STOPPED, StopStatus.GAVE_UP)
    if is_terminating(entry):
        return because(ReasonCode.WAS_TERMINATED)
    if not (stopped or (waits and entry.standby_by_us)):
        return because(ReasonCode.NOT_STOPPED_BY_US, status=entry.status.value)
    if seen is None:
        return because(ReasonCode.FLEET_UNREADABLE)
    if not entry.is_same_launch(seen):
        return because(ReasonCode.CHANGED_SINCE, what="launched again")
    standing = waits and entry.standby_by_us and seen.member_state == STANDBY and seen.state is InstanceState.RUNNING
    if entry.left_in_standby and not standing:
        return because(ReasonCode.NOT_STOPPED_BY_US, status="not running in our standby")
    if not standing and seen.state is not InstanceState.STOPPED:
        code = ReasonCode.ALREADY_RUNNING if seen.state is InstanceState.RUNNING else ReasonCode.NOT_YET_STOPPED
        return because(code, state=seen.state.value)
    if entry.instance_type and seen.instance_type != entry.instance_type:
        return because(ReasonCode.CHANGED_SINCE, what=f"its type is {seen.instance_type} now")
    if not seen.governance.managed:
        return because(ReasonCode.NOT_MANAGED)
    if not seen.governance.stoppable:
        finding = ", ".join(seen.governance.findings) or "critical now, which no function may start or stop"
        return because(ReasonCode.TAG_NOT_EXACT, finding=finding)
    others = view.other_reasons.get(entry.instance_id)
    if others:
        return because(ReasonCode.OTHER_REASON_LEFT, reasons=", ".join(sorted(others)))
    return _objection_of_group(entry, seen, view) if entry.group else None


def _objection_to_place(entry: StopEntry, view: RestoreView) -> Reason | None:
    """A member that was taken out does not come back itself: its group gets the place back."""
    if entry.status not in (StopStatus.TERMINATED, StopStatus.GAVE_UP, *RETURNING_STATUSES):
        return because(ReasonCode.NOT_STOPPED_BY_US, status=entry.status.value)
    group = view.groups.get((entry.region, entry.group))
    if group is None:
        return because(ReasonCode.GROUP_UNKNOWN, group=entry.group)
    hold = next((h for h in view.holds if h.open and (h.region, h.name) == (entry.region, entry.group)), None)
    if hold is None or entry.instance_id not in lowered_members(view.ledger, hold, group):
        return because(ReasonCode.CHANGED_SINCE, what="the place was given back already")
    if not group.governance.stoppable:
        return because(ReasonCode.GROUP_NOT_MANAGED, group=entry.group)
    found = change_by_others(hold, group, held_members(view.ledger, hold, group))
    return because(ReasonCode.GROUP_CHANGED, group=entry.group, what=found) if found else None


def _objection_of_group(entry: StopEntry, seen: Instance, view: RestoreView) -> Reason | None:
    group = view.groups.get((entry.region, entry.group))
    if group is None or seen.owner != entry.group:
        return because(ReasonCode.GROUP_UNKNOWN, group=entry.group)
    if entry.standby_by_us and (seen.member_state or group.state_of(entry.instance_id)) != STANDBY:
        return because(ReasonCode.CHANGED_SINCE, what="no longer in standby")
    for hold in view.holds:
        if hold.open and (hold.region, hold.name) == (entry.region, entry.group):
            found = change_by_others(hold, group, held_members(view.ledger, hold, group))
            if found:
                return because(ReasonCode.GROUP_CHANGED, group=entry.group, what=found)
    return None


def is_ours_stopped(entry: StopEntry) -> bool:
    """True for what we stopped, and for a place of a group that we took out."""
    lowered = entry.method == StopMethod.LOWER.value and entry.status is StopStatus.TERMINATED
    return entry.status is StopStatus.STOPPED or lowered


def withdrawn(entry: StopEntry, why: str, now: datetime) -> StopEntry:
    """What was to be started is not, and is again what it was before it was asked for."""
    lowered = entry.method == StopMethod.LOWER.value
    return replace(
        entry,
        status=StopStatus.TERMINATED if lowered else StopStatus.STOPPED,
        detail=why,
        restore_asked_at=None,
        restore_asked_by="",
        next_start_at=None,
        updated_at=now,
    )


def rank_of_return(entry: StopEntry) -> int:
    """0 for what comes back first, 1 for preemptible ones."""
    return 1 if entry.criticality == Criticality.PREEMPTIBLE.value else 0


def order_of_return(entry: StopEntry) -> tuple[int, bool, float, str, str]:
    """Most critical first, then what may soon not come back, then the dearest (what people miss most), then by id."""
    family = entry.instance_type.partition(".")[0]
    return (
        rank_of_return(entry),
        family not in SCARCE_FAMILIES,
        -(entry.usd_per_hour or 0.0),
        entry.region,
        entry.instance_id,
    )
