"""The steps of the way back, each from what is seen: start, out of standby, sizes back. Pure, and safe to repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from governor.domain.controls import Controls
from governor.domain.decisions import StopMethod
from governor.domain.eligibility import STANDBY
from governor.domain.fleet import Group, Instance, InstanceState
from governor.domain.groups import GroupHold, held_members, lowered_members
from governor.domain.ledger import ENDED_STATUSES, RETURNING_STATUSES, START_PATIENCE, StopEntry, StopStatus
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.restorable import (
    RestoreView,
    objection_to_start,
    order_of_return,
    restorable_entries,
    withdrawn,
)
from governor.domain.settings import Mode, RestoreSettings

STANDING = frozenset({STANDBY, "EnteringStandby"})

STOP_RETRIES = timedelta(hours=1)
"""A stop that failed is tried again every run, so its group's MinSize is left low for a while."""

_STOPPED_BY_US = frozenset(
    {StopStatus.ACCEPTED, StopStatus.STOPPED, StopStatus.RESTORING, StopStatus.STARTING, StopStatus.GAVE_UP}
)


@dataclass(frozen=True, slots=True)
class StartScene:
    """What is seen of everything that is on its way back: instances by id, groups by (Region, name)."""

    ledger: tuple[StopEntry, ...]
    holds: tuple[GroupHold, ...]
    seen: Mapping[str, Instance]
    groups: Mapping[tuple[str, str], Group]
    other_reasons: Mapping[str, frozenset[str]]
    controls: Controls
    mode: Mode
    restore: RestoreSettings
    unknown_regions: frozenset[str] = field(default_factory=frozenset)

    @property
    def view(self) -> RestoreView:
        """The same for the rule of the way back."""
        return RestoreView(self.groups, self.holds, self.ledger, self.other_reasons)


@dataclass(frozen=True, slots=True)
class GroupSize:
    """Sizes that a group gets back; None stays. `places` are the entries whose place comes back with it."""

    hold: GroupHold
    min_size: int | None = None
    desired: int | None = None
    places: tuple[StopEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class StartSteps:
    """What is to be done now, and what became clear while looking.

    `returned` are places of a group that are seen given back; `withdrawn` entries that may not come back any more, with
    why; `closed` holds that are over; `changed_groups` holds whose sizes somebody else changed, and what.
    """

    starts: tuple[StopEntry, ...] = ()
    exits: tuple[StopEntry, ...] = ()
    sizes: tuple[GroupSize, ...] = ()
    returned: tuple[StopEntry, ...] = ()
    withdrawn: tuple[tuple[StopEntry, Reason], ...] = ()
    closed: tuple[GroupHold, ...] = ()
    changed_groups: tuple[tuple[GroupHold, str], ...] = ()


@dataclass(slots=True)
class _Steps:
    """The steps as they are found."""

    room: int
    starts: list[StopEntry] = field(default_factory=list)
    exits: list[StopEntry] = field(default_factory=list)
    sizes: list[GroupSize] = field(default_factory=list)
    returned: list[StopEntry] = field(default_factory=list)
    withdrawn: list[tuple[StopEntry, Reason]] = field(default_factory=list)
    closed: list[GroupHold] = field(default_factory=list)
    changed: list[tuple[GroupHold, str]] = field(default_factory=list)

    def take(self) -> bool:
        """Take a place among the starts of this run, if one is left."""
        self.room -= 1
        return self.room >= 0


def next_steps(scene: StartScene, now: datetime) -> StartSteps:
    """The steps that are due. While paused nothing is changed.

    For a member: start, seen running, out of standby, in service; its group's MinSize comes back last. A stopped member
    is never taken out of standby, since its group would replace it. What was begun for a group is finished in any mode.
    """
    if scene.controls.pause.active:
        return StartSteps()
    under_way = sum(e.status is StopStatus.STARTING and not e.left_in_standby for e in scene.ledger)
    steps = _Steps(room=max(0, scene.restore.max_starts_per_run - under_way))
    returning = [e for e in scene.ledger if e.status in RETURNING_STATUSES and e.region not in scene.unknown_regions]
    returning.sort(key=lambda e: (e.restore_asked_at or e.updated_at, order_of_return(e)))
    for entry in returning:
        if entry.method != StopMethod.LOWER.value:
            _step_of_instance(entry, scene, steps, now)
    lowered = [e for e in returning if e.method == StopMethod.LOWER.value]
    for region, name in sorted({(e.region, e.group) for e in lowered}):
        _step_of_places([e for e in lowered if (e.region, e.group) == (region, name)], scene, steps, now)
    steps.exits += _forgotten_in_standby(scene)
    busy = {(size.hold.region, size.hold.name) for size in steps.sizes}
    for hold in scene.holds:
        if hold.open and hold.region not in scene.unknown_regions and (hold.region, hold.name) not in busy:
            _step_of_hold(hold, scene, steps, now)
    return StartSteps(
        tuple(steps.starts),
        tuple(steps.exits),
        tuple(steps.sizes),
        tuple(steps.returned),
        tuple(steps.withdrawn),
        tuple(steps.closed),
        tuple(steps.changed),
    )


def _is_due(entry: StopEntry, now: datetime) -> bool:
    return entry.next_start_at is None or entry.next_start_at <= now


def _tried_lately(entry: StopEntry, now: datetime) -> bool:
    """True where a call whose answer was lost may still have its effect."""
    return entry.start_tried_at is not None and now - entry.start_tried_at < START_PATIENCE


def objection_of_mode(entry: StopEntry, mode: Mode) -> Reason | None:
    """While switched off nothing is started; while observing only what a person asked for."""
    if mode is Mode.OFF:
        return because(ReasonCode.MODE_OFF)
    if mode is Mode.OBSERVE and not entry.restore_asked_by.startswith("arn:"):
        return because(ReasonCode.MODE_OBSERVE)
    return None


def _step_of_instance(entry: StopEntry, scene: StartScene, steps: _Steps, now: datetime) -> None:
    instance = scene.seen.get(entry.instance_id)
    if instance is None or not _is_due(entry, now):
        return
    if instance.state is InstanceState.RUNNING:
        if entry.standby_by_us and instance.member_state == STANDBY:
            steps.exits.append(entry)
        return
    startable = entry.status is StopStatus.RESTORING and instance.state is InstanceState.STOPPED
    if not startable or entry.left_in_standby:
        return
    objection = objection_of_mode(entry, scene.mode) or objection_to_start(entry, instance, scene.view)
    if objection is not None:
        if not _tried_lately(entry, now):
            steps.withdrawn.append((withdrawn(entry, f"not started: {objection.code.value}", now), objection))
    elif steps.take():
        steps.starts.append(entry)


def _step_of_places(entries: Sequence[StopEntry], scene: StartScene, steps: _Steps, now: datetime) -> None:
    """Members that we took out of one group: its desired capacity is raised by as many, and it launches others."""
    key = (entries[0].region, entries[0].group)
    group = scene.groups.get(key)
    hold = next((h for h in scene.holds if h.open and (h.region, h.name) == key), None)
    waiting = [e for e in entries if e.status is StopStatus.RESTORING]
    if group is not None and hold is not None:
        expected = hold.desired_before - held_members(scene.ledger, hold, group)
        accepted = [e for e in entries if e.status is StopStatus.STARTING]
        tried = [e for e in waiting if e.start_tried_at is not None]
        if accepted:
            passed = all(now - (e.start_accepted_at or now) >= START_PATIENCE for e in accepted)
            steps.returned += [_place_back(e, now) for e in accepted if passed or group.desired == expected]
            return
        if tried and group.desired == expected + len(tried):
            # The answer to our call was lost, its effect was not.
            steps.returned += [_place_back(e, now) for e in tried]
            return
    chosen = []
    for entry in waiting:
        if not _is_due(entry, now):
            continue
        objection = objection_of_mode(entry, scene.mode) or objection_to_start(entry, None, scene.view)
        if objection is not None:
            if not _tried_lately(entry, now):
                steps.withdrawn.append((withdrawn(entry, f"not started: {objection.code.value}", now), objection))
        elif steps.take():
            chosen.append(entry)
    if chosen and group is not None and hold is not None:
        steps.sizes.append(GroupSize(hold, desired=group.desired + len(chosen), places=tuple(chosen)))


def _place_back(entry: StopEntry, now: datetime) -> StopEntry:
    detail = "its place was given back; the group launches another machine"
    return replace(
        entry, status=StopStatus.RESTORED, detail=detail, restored_at=now, next_start_at=None, updated_at=now
    )


def _forgotten_in_standby(scene: StartScene) -> list[StopEntry]:
    """Members that run in our standby although their story has ended: somebody started one, so its group takes it."""
    if scene.mode is Mode.OFF:
        return []
    held = {(hold.region, hold.name) for hold in scene.holds if hold.open}
    return [
        entry
        for entry in restorable_entries(scene.ledger)
        if entry.standby_by_us and entry.status in ENDED_STATUSES and (entry.region, entry.group) in held
        if _runs_in_standby(scene.seen.get(entry.instance_id), entry.group)
    ]


def _runs_in_standby(instance: Instance | None, group: str) -> bool:
    return (
        instance is not None
        and instance.state is InstanceState.RUNNING
        and instance.member_state == STANDBY
        and instance.owner == group
    )


def _step_of_hold(hold: GroupHold, scene: StartScene, steps: _Steps, now: datetime) -> None:
    """MinSize comes back once nothing of ours is held in the group, if nobody changed it; then the hold is over."""
    group = scene.groups.get((hold.region, hold.name))
    if group is None:
        steps.closed.append(replace(hold, open=False))  # the group is gone: there is nothing to put back
        return
    if _is_holding(scene.ledger, hold, group, now):
        return
    if group.min_size == hold.min_before:
        steps.closed.append(replace(hold, open=False))
    elif not hold.min_set <= group.min_size <= hold.min_before:
        steps.changed.append((hold, f"somebody set MinSize to {group.min_size}, we left {hold.min_set}"))
    elif group.desired < hold.min_before:
        what = f"the desired capacity is {group.desired} now, so that MinSize would start machines that nobody stopped"
        steps.changed.append((hold, what))
    else:
        steps.sizes.append(GroupSize(hold, min_size=hold.min_before))


def _is_holding(ledger: Sequence[StopEntry], hold: GroupHold, group: Group, now: datetime) -> bool:
    """True while a member of the group is stopped by us, in our standby or on its way."""
    lowered = lowered_members(ledger, hold, group)
    for entry in ledger:
        if (entry.region, entry.group) != (hold.region, hold.name):
            continue
        if entry.instance_id in lowered:
            return True
        if entry.standby_by_us and group.state_of(entry.instance_id) in STANDING:
            return True
        if entry.standby_by_us and entry.status in _STOPPED_BY_US and not entry.left_in_standby:
            return True
        if entry.status in (StopStatus.INTENDED, StopStatus.FAILED) and now - entry.updated_at < STOP_RETRIES:
            return True
    return False
