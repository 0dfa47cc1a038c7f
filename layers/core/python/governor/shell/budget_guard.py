"""One run of the budget guard: gather, decide, record, apply. Every step may be cut off and run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from governor.domain import budget_messages
from governor.domain.budget import GuardPlan, decide
from governor.domain.budget_notice import objection_to
from governor.domain.budget_snapshot import FUNCTION, BudgetSnapshot, GuardState
from governor.domain.decisions import Decision, Message, StopInstance
from governor.domain.fleet import Instance
from governor.domain.guard import StopLimits, permit_stops
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.pause import parse_pause
from governor.domain.prices import PriceCatalogue
from governor.domain.reasons import ReasonCode, words
from governor.ports import (
    Budgets,
    Fleet,
    Key,
    Lease,
    LeaseHeldError,
    PauseSwitch,
    Record,
    RecordStore,
    UnreadableError,
    Write,
)
from governor.shell import records
from governor.shell.events import Trigger
from governor.shell.settings import SettingsSnapshot, load_snapshot

LEASE_SECONDS = 330
"""Longer than the function may run (300 s), so that nobody acts beside a run that is still at work."""

LEASE_TRIES = 15
LEASE_PAUSE_SECONDS = 2.0
"""AWS Budgets sends a notice for each step it crosses, all at once: the later runs wait for the first."""

COMMIT_RECORDS = 90
STATE_KEY = Key(f"run#{FUNCTION}", "state")


@dataclass(frozen=True, slots=True)
class GuardDeps:
    """What a run needs from the outside."""

    stage: str
    home_region: str
    account_id: str
    budget_name: str
    store: RecordStore
    fleet: Fleet
    budgets: Budgets
    pause: PauseSwitch
    prices: PriceCatalogue
    clock: Callable[[], datetime]
    counted_families: frozenset[str] | None = None
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did, for logs and metrics."""

    decision_id: str
    level: str
    holds: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    pause_unreadable: bool = False
    odd_notices: int = 0


def moment_of(trigger: Trigger, state: GuardState | None) -> datetime:
    """The `now` of a run: the event's moment.

    A retry of the event of the last run has the moment of that run, so that it ends in the same records. Any other
    event that is not newer than the last run only wakes, just after that run.
    """
    if state is None or trigger.at > state.decided_at:
        return trigger.at
    if trigger.name == state.trigger:
        return state.decided_at
    return state.decided_at + timedelta(microseconds=1)


def load_state(store: RecordStore) -> GuardState | None:
    """What the guard remembers of its last run."""
    record = store.get(STATE_KEY)
    return None if record is None else records.guard_state_of(record)


def load_ledger(store: RecordStore) -> tuple[StopEntry, ...]:
    """Every entry of the stop ledger that the budget guard made."""
    entries = (records.entry_of(record) for record in store.query(records.LEDGER))
    return tuple(entry for entry in entries if entry.reason == "budget")


def gather(deps: GuardDeps, settings: SettingsSnapshot, state: GuardState | None, now: datetime) -> BudgetSnapshot:
    """Look at everything the decision needs. Reads only."""
    return BudgetSnapshot(
        stage=deps.stage,
        home_region=deps.home_region,
        fleet=deps.fleet.observe(),
        budget=deps.budgets.read(),
        prices=deps.prices,
        pause=parse_pause(deps.pause.read_text(), now),
        settings_version=settings.version,
        ledger=load_ledger(deps.store),
        state=state,
        edits=settings.edits,
        counted_families=deps.counted_families,
    )


def run(deps: GuardDeps, trigger: Trigger) -> RunReport:
    """One whole run. Raises LeaseHeldError or ConflictError when another run is at work: the event is to be retried."""
    lease = _take_lease(deps, trigger)
    state = load_state(deps.store)
    now = moment_of(trigger, state)
    odd = _odd_notices(deps, trigger, now)
    settings = load_snapshot(deps.store)
    if settings is None:
        _commit(deps, [], _unsent(deps, odd, now), lease)
        deps.store.release_lease(lease)
        return RunReport("", "unknown", holds=(ReasonCode.SETTINGS_UNKNOWN.value,), odd_notices=len(odd))
    snapshot = gather(deps, settings, state, now)
    plan = decide(snapshot, settings.settings.budget, now)
    plan = replace(plan, state=replace(plan.state, trigger=trigger.name))
    messages = _record(deps, plan, state, odd, lease)
    entries = _apply(deps, plan, now)
    told = _record_outcomes(deps, plan, snapshot, settings, entries, lease)
    deps.store.release_lease(lease)

    def ids(status: StopStatus) -> tuple[str, ...]:
        return tuple(entry.instance_id for entry in entries if entry.status is status)

    return RunReport(
        decision_id=plan.decision.decision_id,
        level=plan.decision.level,
        holds=tuple(hold.code.value for hold in plan.decision.holds),
        stopped=ids(StopStatus.ACCEPTED),
        failed=ids(StopStatus.FAILED),
        withheld=ids(StopStatus.WITHHELD),
        messages=(*messages, *told),
        pause_unreadable=not snapshot.pause.readable,
        odd_notices=len(odd),
    )


def _take_lease(deps: GuardDeps, trigger: Trigger) -> Lease:
    """Take the lease, waiting for another run to end. Raises LeaseHeldError where it does not within half a minute."""
    for attempt in range(1, LEASE_TRIES + 1):
        moment = max(deps.clock(), trigger.at)
        try:
            return deps.store.take_lease(FUNCTION, trigger.name, moment, LEASE_SECONDS)
        except LeaseHeldError:
            if attempt == LEASE_TRIES:
                raise
            deps.sleep(LEASE_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _odd_notices(deps: GuardDeps, trigger: Trigger, now: datetime) -> tuple[Message, ...]:
    odd = []
    for notice in trigger.notices:
        why = objection_to(notice, deps.account_id, deps.budget_name)
        if why is not None:
            odd.append(budget_messages.odd_notice(deps.stage, deps.home_region, notice.text, why, now))
    return tuple(odd)


def _unsent(deps: GuardDeps, messages: Iterable[Message], now: datetime) -> list[tuple[Message, tuple[Record, ...]]]:
    """Messages whose fact has not been told yet, with their records."""
    built = {message.key: (message, records.message_records(message, deps.stage, now)) for message in messages}
    keys = [record.key for _, found in built.values() for record in found]
    present = deps.store.present(keys) if keys else frozenset()
    return [(message, found) for message, found in built.values() if found[0].key not in present]


def _record(
    deps: GuardDeps, plan: GuardPlan, before: GuardState | None, odd: Sequence[Message], lease: Lease
) -> tuple[str, ...]:
    """Store what was decided, before anything is done: messages, ledger, decision, memory."""
    decision = plan.decision
    now = decision.decided_at
    unsent = _unsent(deps, (*decision.messages, *odd), now)
    state = plan.state
    writes: list[Write] = []
    news = before is None or before.fingerprint != state.fingerprint or bool(unsent)
    stored, event = records.decision_records(decision, deps.stage)
    if news and stored.key in deps.store.present([stored.key]):
        news = False
        state = replace(state, fingerprint=before.fingerprint if before else "")
    if news:
        deps.store.put_all(tuple(records.index_records(decision)))
        writes = [Write(stored, "absent"), Write(event, "absent")]
    writes.append(Write(records.guard_state_record(FUNCTION, state), "newer"))
    ledger = [Write(records.ledger_record(entry)) for entry in plan.ledger]
    _commit(deps, [*ledger, *writes], unsent, lease)
    return tuple(message.key for message, _ in unsent)


def _commit(
    deps: GuardDeps,
    writes: Sequence[Write],
    unsent: Sequence[tuple[Message, tuple[Record, ...]]],
    lease: Lease,
) -> None:
    """All in one transaction where it fits; else messages first, so that no fact is stored that nobody was told."""
    ordered = [Write(record, "absent") for _, found in unsent for record in found] + list(writes)
    for start in range(0, len(ordered), COMMIT_RECORDS):
        deps.store.commit(ordered[start : start + COMMIT_RECORDS], lease)


def _apply(deps: GuardDeps, plan: GuardPlan, now: datetime) -> tuple[StopEntry, ...]:
    """Stop what was decided, Region by Region, each batch past the guard with the pause and the facts read again."""
    entries = {entry.instance_id: entry for entry in plan.intended}
    done: list[StopEntry] = []
    limits = plan.limits
    for region in sorted({stop.region for stop in plan.decision.stops}):
        stops = [stop for stop in plan.decision.stops if stop.region == region]
        moved = [
            replace(
                entries[stop.instance_id],
                status=status,
                detail=detail,
                withheld_code=code,
                accepted_at=now if status is StopStatus.ACCEPTED else entries[stop.instance_id].accepted_at,
                updated_at=now,
            )
            for stop, status, detail, code in _stop_batch(deps, plan.decision, stops, limits, now)
        ]
        accepted = sum(entry.status is StopStatus.ACCEPTED for entry in moved)
        limits = replace(
            limits, max_count=limits.max_count - accepted, already_stopped=limits.already_stopped + accepted
        )
        done.extend(moved)
    return tuple(done)


def _stop_batch(
    deps: GuardDeps, decision: Decision, stops: Sequence[StopInstance], limits: StopLimits, now: datetime
) -> list[tuple[StopInstance, StopStatus, str, str]]:
    """What became of each stop: status, detail, and the code of the reason where the guard withheld it."""
    region = stops[0].region
    facts: Mapping[str, Instance]
    try:
        facts = deps.fleet.look_again(region, [stop.instance_id for stop in stops])
    except UnreadableError as error:
        detail = f"the facts could not be read again: {error}"
        return [(stop, StopStatus.WITHHELD, detail, "unreadable") for stop in stops]
    pause = parse_pause(deps.pause.read_text(), now)
    permit = permit_stops(stops, facts, mode=decision.mode, pause=pause, limits=limits)
    results = [(stop, StopStatus.WITHHELD, words(reason), reason.code.value) for stop, reason in permit.refused]
    if permit.allowed:
        answers = {
            answer.instance_id: answer
            for answer in deps.fleet.stop(region, [stop.instance_id for stop in permit.allowed])
        }
        for stop in permit.allowed:
            answer = answers[stop.instance_id]
            if answer.accepted:
                results.append((stop, StopStatus.ACCEPTED, "", ""))
            else:
                results.append((stop, StopStatus.FAILED, answer.error, ""))
    return results


def _record_outcomes(
    deps: GuardDeps,
    plan: GuardPlan,
    snapshot: BudgetSnapshot,
    settings: SettingsSnapshot,
    entries: Sequence[StopEntry],
    lease: Lease,
) -> tuple[str, ...]:
    """Store what EC2 answered, and tell people of what did not work."""
    if not entries:
        return ()
    scene = budget_messages.Scene(
        stage=deps.stage,
        home_region=deps.home_region,
        budget_name=snapshot.budget.name,
        period=plan.state.period,
        settings=settings.settings.budget,
        decision=plan.decision,
    )
    told = budget_messages.stops_failed(scene, tuple(e for e in entries if e.status is StopStatus.FAILED))
    withheld = tuple(entry for entry in entries if entry.status is StopStatus.WITHHELD)
    if withheld:
        told.append(budget_messages.stops_withheld(scene, withheld))
    unsent = _unsent(deps, told, plan.decision.decided_at)
    _commit(deps, [Write(records.ledger_record(entry)) for entry in entries], unsent, lease)
    return tuple(message.key for message, _ in unsent)
