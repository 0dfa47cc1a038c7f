"""One run of confirm_actions: see what became of stops and starts, tell it, and take the next steps of the way back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict

from governor.domain.controls import Controls, parse_controls
from governor.domain.decisions import Message
from governor.domain.eligibility import IN_SERVICE, STANDBY
from governor.domain.fleet import Group, Instance, InstanceState
from governor.domain.groups import GroupHold
from governor.domain.ledger import (
    ENDED_STATUSES,
    FIRST_BACKOFF,
    NOT_OUT_OF_STANDBY,
    RETURNING_STATUSES,
    StopEntry,
    StopStatus,
    start_failed,
)
from governor.domain.outcomes import OutcomeScene, follow_entries, tell_outcomes
from governor.domain.settings import Settings
from governor.domain.start_messages import may_be_key, sizes_not_put_back, start_refused, start_withheld
from governor.domain.starts import GroupSize, StartScene, StartSteps, next_steps
from governor.ports import (
    CallAnswer,
    ControlTexts,
    Fleet,
    Key,
    Lease,
    Record,
    RecordStore,
    StartActions,
    StopAnswer,
    UnreadableError,
    Write,
)
from governor.shell import records
from governor.shell.budget_guard import load_ledger
from governor.shell.events import Trigger, moment_of_run
from governor.shell.runs import commit_all, find_unsent, take_lease
from governor.shell.settings import load_snapshot

FUNCTION = "confirm_actions"
STATE_KEY = Key(f"run#{FUNCTION}", "state")

ROUNDS = 6
"""Steps that follow each other at once (running, out of standby, MinSize back) are taken in one run, up to so many."""

ROUND_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ConfirmDeps:
    """What a run needs from the outside."""

    stage: str
    home_region: str
    budget_name: str
    store: RecordStore
    fleet: Fleet
    actions: StartActions
    controls: ControlTexts
    clock: Callable[[], datetime]
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class ConfirmReport:
    """What a run did, for logs and metrics."""

    watched: int = 0
    moved: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    pause_unreadable: bool = False


class _RunState(BaseModel):
    model_config = ConfigDict(defer_build=True)

    decided_at: AwareDatetime
    trigger: str = ""


@dataclass(slots=True)
class _Account:
    """What happened in the rounds of one run."""

    moved: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    pause_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """What every step of one run has in common."""

    deps: ConfirmDeps
    lease: Lease
    settings: Settings
    other_reasons: Mapping[str, frozenset[str]]
    now: datetime
    account: _Account

    @property
    def scene(self) -> OutcomeScene:
        deps, grace = self.deps, self.settings.budget.manual_start_grace_hours
        return OutcomeScene(deps.stage, deps.home_region, deps.budget_name, self.now, grace)

    def read_controls(self) -> Controls:
        """What people hold, read uncached."""
        controls = parse_controls(self.deps.controls.read(), self.now)
        self.account.pause_unreadable = self.account.pause_unreadable or not controls.pause.readable
        return controls

    def commit(
        self, entries: Sequence[StopEntry], messages: Sequence[Message] = (), holds: Sequence[GroupHold] = ()
    ) -> None:
        """Store entries and holds with what is told of them, under the fence."""
        if not entries and not holds and not messages:
            return
        unsent = find_unsent(self.deps.store, messages, self.deps.stage, self.now)
        self.account.messages += [message.key for message, _ in unsent]
        writes = [Write(records.ledger_record(entry)) for entry in entries]
        writes += [Write(records.group_hold_record(replace(hold, updated_at=self.now))) for hold in holds]
        commit_all(self.deps.store, writes, unsent, self.lease)


def load_run(store: RecordStore) -> tuple[datetime, str] | None:
    """When the function last ran, and the event that woke it."""
    record = store.get(STATE_KEY)
    if record is None:
        return None
    state = _RunState.model_validate(record.body)
    return state.decided_at, state.trigger


def run(deps: ConfirmDeps, trigger: Trigger) -> ConfirmReport:
    """One whole run. Raises LeaseHeldError or ConflictError when another run is at work: the event is to be retried."""
    lease = take_lease(deps.store, trigger.name, lambda: max(deps.clock(), trigger.at), deps.sleep)
    now = moment_of_run(trigger, load_run(deps.store))
    account = _Account()
    ledger, others = load_ledger(deps.store)
    holds = _load_holds(deps.store)
    watched = _watched(ledger, holds)
    settings = load_snapshot(deps.store) if watched or holds else None
    if settings is not None:
        _take_rounds(_Run(deps, lease, settings.settings, others, now, account), ledger, holds)
    state = _RunState(decided_at=now, trigger=trigger.name)
    sequence = now.isoformat(timespec="microseconds")
    heartbeat = Record(STATE_KEY, state.model_dump(mode="json"), outbox="run", sequence=sequence)
    deps.store.commit([Write(heartbeat, "newer")], lease)
    deps.store.release_lease(lease)
    return ConfirmReport(
        watched=len(watched),
        moved=tuple(account.moved),
        started=tuple(account.started),
        failed=tuple(account.failed),
        given_up=tuple(account.given_up),
        messages=tuple(account.messages),
        pause_unreadable=account.pause_unreadable,
    )


def _load_holds(store: RecordStore) -> tuple[GroupHold, ...]:
    holds = (records.group_hold_of(record) for record in store.query(records.GROUP_HOLDS))
    return tuple(hold for hold in holds if hold.open)


def _watched(ledger: Sequence[StopEntry], holds: Sequence[GroupHold]) -> tuple[StopEntry, ...]:
    """Entries of which something is still to be seen; of members that we put into standby, while we hold the group."""
    held = {(hold.region, hold.name) for hold in holds}
    ended = ENDED_STATUSES | {StopStatus.WITHHELD}
    return tuple(e for e in ledger if e.status not in ended or (e.standby_by_us and (e.region, e.group) in held))


def _take_rounds(run: _Run, ledger: tuple[StopEntry, ...], holds: tuple[GroupHold, ...]) -> None:
    """Look, follow and act until nothing follows at once any more."""
    for attempt in range(ROUNDS):
        if attempt:
            run.deps.sleep(ROUND_PAUSE_SECONDS)
        ledger, holds, goes_on = _round(run, ledger, holds)
        if not goes_on:
            break


def _round(
    run: _Run, ledger: tuple[StopEntry, ...], holds: tuple[GroupHold, ...]
) -> tuple[tuple[StopEntry, ...], tuple[GroupHold, ...], bool]:
    """One look and what follows from it: the ledger and the holds afterwards, and whether more follows at once."""
    watched = _watched(ledger, holds)
    seen, groups, unknown = _look(run.deps.fleet, watched, holds)
    regions = tuple(sorted({entry.region for entry in watched} - unknown))
    followed = follow_entries(watched, seen, unknown, regions, run.settings.restore, run.now)
    after = _replaced(ledger, followed)
    steps = StartSteps()
    if holds or any(entry.status in RETURNING_STATUSES for entry in after):
        controls = run.read_controls()
        budget, restore = run.settings.budget, run.settings.restore
        scene = StartScene(after, holds, seen, groups, run.other_reasons, controls, budget.mode, restore, unknown)
        steps = next_steps(scene, run.now)
    before_withdrawal = after
    after = _replaced(after, [*steps.returned, *(entry for entry, _ in steps.withdrawn)])
    messages = [
        *tell_outcomes(ledger, after, run.scene),
        *_tell_withdrawn(run, before_withdrawal, steps),
        *(sizes_not_put_back(run.scene, hold, what) for hold, what in steps.changed_groups),
        *_tell_blocked(run, after),
    ]
    _note(run.account, ledger, after)
    changed = [new for old, new in zip(ledger, after, strict=True) if old != new]
    run.commit(changed, messages, steps.closed)
    closed = {(hold.region, hold.name) for hold in steps.closed}
    open_holds = tuple(hold for hold in holds if (hold.region, hold.name) not in closed)
    after, acted = _act(run, steps, after)
    leaving = any(
        e.status is StopStatus.STARTING and e.standby_by_us and _runs_outside_service(seen.get(e.instance_id))
        for e in after
    )
    return after, open_holds, acted or leaving


def _runs_outside_service(instance: Instance | None) -> bool:
    """True on the way from standby into service, which takes seconds."""
    return (
        instance is not None
        and instance.state is InstanceState.RUNNING
        and instance.member_state not in (STANDBY, IN_SERVICE, "")
    )


def _replaced(entries: tuple[StopEntry, ...], changed: Sequence[StopEntry]) -> tuple[StopEntry, ...]:
    by_key = {(e.instance_id, e.launched_at): e for e in changed}
    return tuple(by_key.get((e.instance_id, e.launched_at), e) for e in entries)


def _look(
    fleet: Fleet, watched: Sequence[StopEntry], holds: Sequence[GroupHold]
) -> tuple[dict[str, Instance], dict[tuple[str, str], Group], frozenset[str]]:
    """The instances and groups of what is watched; a Region that cannot be read is unknown."""
    names = {(e.region, e.group) for e in watched if e.group} | {(h.region, h.name) for h in holds}
    seen: dict[str, Instance] = {}
    groups: dict[tuple[str, str], Group] = {}
    unknown: set[str] = set()
    for region in sorted({e.region for e in watched} | {region for region, _ in names}):
        ids = sorted({e.instance_id for e in watched if e.region == region})
        wanted = sorted(name for of, name in names if of == region)
        try:
            found = fleet.look_again(region, ids, protection=False) if ids else {}
            found_groups = fleet.look_at_groups(region, wanted) if wanted else {}
        except UnreadableError:
            unknown.add(region)
            continue
        seen.update(found)
        groups.update({(region, name): group for name, group in found_groups.items()})
    return seen, groups, frozenset(unknown)


def _note(account: _Account, before: Sequence[StopEntry], after: Sequence[StopEntry]) -> None:
    for old, new in zip(before, after, strict=True):
        if old.status is new.status:
            continue
        account.moved.append(f"{new.instance_id}:{new.status.value}")
        if new.status is StopStatus.GAVE_UP:
            account.given_up.append(new.instance_id)
        elif new.status is StopStatus.RESTORING:
            account.failed.append(new.instance_id)


def _tell_withdrawn(run: _Run, ledger: Sequence[StopEntry], steps: StartSteps) -> list[Message]:
    asked = {(e.instance_id, e.launched_at): e for e in ledger}
    return [
        start_withheld(run.scene, asked[(entry.instance_id, entry.launched_at)], why) for entry, why in steps.withdrawn
    ]


def _tell_blocked(run: _Run, entries: Sequence[StopEntry]) -> list[Message]:
    """What keeps those on their way from coming back. Told from the state, so that a crash does not swallow it."""
    told = []
    for entry in entries:
        failed = entry.status is StopStatus.RESTORING and entry.start_tries > 0 and entry.detail != ""
        stays = entry.status is StopStatus.STARTING and entry.detail.startswith(NOT_OUT_OF_STANDBY)
        if failed or stays:
            asks = failed and may_be_key(entry.detail)
            keys = run.deps.actions.volume_keys(entry.region, entry.instance_id) if asks else ()
            told.append(start_refused(run.scene, entry, keys))
    return told


# --- The steps --------------------------------------------------------------------------------------------------------


def _act(run: _Run, steps: StartSteps, ledger: tuple[StopEntry, ...]) -> tuple[tuple[StopEntry, ...], bool]:
    """Take the steps, each intent stored before its call, each answer after it; also whether AWS accepted any."""
    moved: list[StopEntry] = []
    acted = False
    for region in sorted({entry.region for entry in steps.starts}):
        answered, accepted = _start(run, region, [e for e in steps.starts if e.region == region])
        moved += answered
        acted = acted or accepted
    for region, group in sorted({(entry.region, entry.group) for entry in steps.exits}):
        leaving = [e for e in steps.exits if (e.region, e.group) == (region, group)]
        answered, accepted = _leave_standby(run, region, group, leaving)
        moved += answered
        acted = acted or accepted
    for size in steps.sizes:
        answered, accepted = _put_back(run, size)
        moved += answered
        acted = acted or accepted
    return _replaced(ledger, moved), acted


def _intended(entry: StopEntry, now: datetime) -> StopEntry:
    """The same with one try more, whose answer is not known; a run that was cut off and retried is the same try."""
    again = entry.start_tried_at == now
    tries = entry.start_tries + (not again)
    return replace(entry, start_tries=tries, start_tried_at=now, next_start_at=None, detail="", updated_at=now)


def _answered(entry: StopEntry, answer: StopAnswer | CallAnswer, now: datetime) -> StopEntry:
    if not answer.accepted:
        return start_failed(entry, answer.error, now)
    return replace(
        entry, status=StopStatus.STARTING, detail="", next_start_at=None, start_accepted_at=now, updated_at=now
    )


def _start(run: _Run, region: str, entries: Sequence[StopEntry]) -> tuple[list[StopEntry], bool]:
    """Start machines of one Region, with the controls read again just before."""
    if run.read_controls().pause.active:
        return [], False
    intended = [_intended(entry, run.now) for entry in entries]
    run.commit(intended)
    answers = {a.instance_id: a for a in run.deps.actions.start(region, [e.instance_id for e in intended])}
    moved = [_answered(entry, answers[entry.instance_id], run.now) for entry in intended]
    return _noted(run, moved)


def _noted(run: _Run, moved: list[StopEntry]) -> tuple[list[StopEntry], bool]:
    """Store what AWS answered to starts, and tell what it refused."""
    run.commit(moved, _tell_blocked(run, moved))
    started = [entry.instance_id for entry in moved if entry.status is StopStatus.STARTING]
    run.account.started += started
    run.account.failed += [entry.instance_id for entry in moved if entry.status is not StopStatus.STARTING]
    return moved, bool(started)


def _leave_standby(run: _Run, region: str, group: str, entries: Sequence[StopEntry]) -> tuple[list[StopEntry], bool]:
    """Members that run go back into service. The call may be repeated, so no intent is stored for it."""
    answers = {a.instance_id: a for a in run.deps.actions.exit_standby(region, group, [e.instance_id for e in entries])}
    refused = [
        replace(
            entry,
            detail=f"{NOT_OUT_OF_STANDBY}: {answers[entry.instance_id].error}",
            next_start_at=run.now + FIRST_BACKOFF,
            updated_at=run.now,
        )
        for entry in entries
        if not answers[entry.instance_id].accepted
    ]
    run.account.failed += [entry.instance_id for entry in refused]
    kept = [entry for entry in refused if entry.status in RETURNING_STATUSES]
    run.commit(kept, [start_refused(run.scene, entry, ()) for entry in refused])
    return kept, any(answer.accepted for answer in answers.values())


def _put_back(run: _Run, size: GroupSize) -> tuple[list[StopEntry], bool]:
    """Give a group a size back, with the places that come back by it."""
    hold = size.hold
    if size.places and run.read_controls().pause.active:
        return [], False
    intended = [_intended(entry, run.now) for entry in size.places]
    run.commit(intended)
    answer = run.deps.actions.set_group_size(hold.region, hold.name, min_size=size.min_size, desired=size.desired)
    if size.places:
        return _noted(run, [_answered(entry, answer, run.now) for entry in intended])
    if not answer.accepted:
        run.account.failed.append(hold.name)
        run.commit([], [sizes_not_put_back(run.scene, hold, f"AWS refused it ({answer.error})")])
    return [], answer.accepted
