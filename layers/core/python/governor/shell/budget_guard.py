"""One run of the budget guard: gather, decide, record, apply. Every step may be cut off and run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from governor.domain import budget_messages
from governor.domain.budget import GuardPlan, decide
from governor.domain.budget_checkpoints import answered
from governor.domain.budget_notice import objection_to
from governor.domain.budget_snapshot import (
    FUNCTION,
    LEDGER_REASON,
    BudgetSnapshot,
    Checkpoint,
    GuardState,
    RestoreRequest,
)
from governor.domain.controls import parse_controls
from governor.domain.decisions import Message, RunCheckpoint, Verdict
from governor.domain.fleet import FleetSnapshot, Instance
from governor.domain.groups import GroupHold
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.outcomes import OutcomeScene, tell_answers
from governor.domain.prices import PriceCatalogue
from governor.domain.reasons import ReasonCode, words
from governor.ports import (
    Budgets,
    Commands,
    ControlTexts,
    Fleet,
    FleetActions,
    Key,
    Lease,
    RecordStore,
    UnreadableError,
    Write,
)
from governor.shell import records
from governor.shell.events import Trigger, moment_of_run
from governor.shell.runs import commit_all, find_unsent, take_lease
from governor.shell.settings import SettingsSnapshot, load_snapshot
from governor.shell.stops import StopDeps, apply_stops

STATE_KEY = Key(f"run#{FUNCTION}", "state")

RESTORE_SOURCE = "governor.restore"
"""Source of the event by which a person asks for machines back."""

FOLLOWING = frozenset({ReasonCode.NEXT_RUN, ReasonCode.NEXT_WAVE})
"""Why one that is to go does not go in this run."""

PROTECTION_ROUNDS = 4
"""Stop protection is asked for victims and those that follow them; a protected one makes room for the next."""


@dataclass(frozen=True, slots=True)
class GuardDeps:
    """What a run needs from the outside."""

    stage: str
    home_region: str
    account_id: str
    budget_name: str
    store: RecordStore
    fleet: Fleet
    actions: FleetActions
    commands: Commands
    budgets: Budgets
    controls: ControlTexts
    prices: PriceCatalogue
    clock: Callable[[], datetime]
    counted_families: frozenset[str] | None = None
    checkpoint_documents: frozenset[str] = frozenset()
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did, for logs, metrics, and the person who asked for machines back."""

    decision_id: str
    level: str
    holds: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    restores: tuple[str, ...] = ()
    refused: tuple[Mapping[str, str], ...] = ()
    pause_unreadable: bool = False
    odd_notices: int = 0


def load_state(store: RecordStore) -> GuardState | None:
    """What the guard remembers of its last run."""
    record = store.get(STATE_KEY)
    return None if record is None else records.guard_state_of(record)


def load_ledger(store: RecordStore) -> tuple[tuple[StopEntry, ...], Mapping[str, frozenset[str]]]:
    """The budget guard's entries of the stop ledger, and the reasons of others by instance, as long as they stand."""
    entries = [records.entry_of(record) for record in store.query(records.LEDGER)]
    others: dict[str, set[str]] = {}
    for entry in entries:
        if entry.reason != LEDGER_REASON and entry.status not in records.CLOSED_STATUSES:
            others.setdefault(entry.instance_id, set()).add(entry.reason)
    mine = tuple(entry for entry in entries if entry.reason == LEDGER_REASON)
    return mine, {instance_id: frozenset(reasons) for instance_id, reasons in sorted(others.items())}


def request_of(trigger: Trigger) -> RestoreRequest | None:
    """What a person asks back, or None for every other event. Odd parts of it ask for nothing."""
    if trigger.source != RESTORE_SOURCE:
        return None
    detail = trigger.detail
    listed = detail.get("instances")
    ids = tuple(str(one) for one in listed) if isinstance(listed, list) else ()
    by = str(detail.get("by") or "")
    # Who asks is always a person here; anything that is no ARN is named as one, so that it is never taken for ours.
    asked_by = by if by.startswith("arn:") else f"arn:unknown:{by or 'somebody'}"
    return RestoreRequest(asked_by, ids, str(detail.get("decision_id") or ""), detail.get("all") is True)


def gather(
    deps: GuardDeps,
    settings: SettingsSnapshot,
    state: GuardState | None,
    now: datetime,
    request: RestoreRequest | None = None,
) -> BudgetSnapshot:
    """Look at everything the decision needs. Reads only."""
    ledger, others = load_ledger(deps.store)
    holds = tuple(records.group_hold_of(record) for record in deps.store.query(records.GROUP_HOLDS))
    return BudgetSnapshot(
        stage=deps.stage,
        home_region=deps.home_region,
        fleet=_with_held_groups(deps.fleet, deps.fleet.observe(), holds),
        budget=deps.budgets.read(),
        prices=deps.prices,
        controls=parse_controls(deps.controls.read(), now),
        settings_version=settings.version,
        ledger=ledger,
        state=state,
        edits=settings.edits,
        counted_families=deps.counted_families,
        holds=holds,
        other_reasons=others,
        checkpoints=_look_at_checkpoints(deps, now),
        checkpoint_documents=deps.checkpoint_documents,
        restore_settings=settings.settings.restore,
        digest_settings=settings.settings.digest,
        request=request,
    )


def _with_held_groups(fleet: Fleet, seen: FleetSnapshot, holds: Sequence[GroupHold]) -> FleetSnapshot:
    """Groups that we hold are looked at even where they hold no instance any more; unreadable ones stay missing."""
    known = {(group.region, group.name) for group in seen.groups}
    missing: dict[str, list[str]] = {}
    for hold in holds:
        if hold.open and (hold.region, hold.name) not in known:
            missing.setdefault(hold.region, []).append(hold.name)
    found = list(seen.groups)
    for region, names in sorted(missing.items()):
        try:
            found.extend(fleet.look_at_groups(region, names).values())
        except UnreadableError:
            continue
    return replace(seen, groups=tuple(found))


def _look_at_checkpoints(deps: GuardDeps, now: datetime) -> tuple[Checkpoint, ...]:
    """Checkpoints of the last hours, with what SSM says of those that were still running."""
    found = []
    for record in deps.store.query(records.CHECKPOINTS):
        checkpoint = records.checkpoint_of(record)
        if checkpoint.status == "pending" and checkpoint.command_id and now - checkpoint.sent_at < timedelta(hours=2):
            said = deps.commands.outcome(checkpoint.region, checkpoint.instance_id, checkpoint.command_id)
            checkpoint = answered(checkpoint, said.status, said.detail)
        found.append(checkpoint)
    return tuple(found)


def look_and_decide(
    fleet: Fleet, snapshot: BudgetSnapshot, settings: SettingsSnapshot, now: datetime
) -> tuple[BudgetSnapshot, GuardPlan]:
    """Decide, with the stop protection of those that are to go read first: EC2 tells it one by one."""
    budget = settings.settings.budget
    plan = decide(snapshot, budget, now)
    for _ in range(PROTECTION_ROUNDS):
        by_id = {instance.instance_id: instance for instance in snapshot.fleet.instances}
        unasked = [
            by_id[v.instance_id]
            for v in plan.decision.verdicts
            if (v.verdict is Verdict.STOP or v.reason.code in FOLLOWING) and plan.decision.level in ("warn", "stop")
            if by_id[v.instance_id].stop_protected is None
        ]
        if not unasked:
            break
        known = _protection_of(fleet, unasked)
        instances = tuple(replace(i, stop_protected=known.get(i.instance_id, i.stop_protected)) for i in by_id.values())
        snapshot = replace(snapshot, fleet=replace(snapshot.fleet, instances=instances))
        plan = decide(snapshot, budget, now)
        if all(value is None for value in known.values()):
            break
    return snapshot, plan


def _protection_of(fleet: Fleet, instances: Sequence[Instance]) -> dict[str, bool | None]:
    known: dict[str, bool | None] = {}
    for region in sorted({instance.region for instance in instances}):
        known |= fleet.read_protection(region, [i.instance_id for i in instances if i.region == region])
    return known


def run(deps: GuardDeps, trigger: Trigger) -> RunReport:
    """One whole run. Raises LeaseHeldError or ConflictError when another run is at work: the event is to be retried."""
    lease = take_lease(deps.store, trigger.name, lambda: max(deps.clock(), trigger.at), deps.sleep)
    state = load_state(deps.store)
    now = moment_of_run(trigger, (state.decided_at, state.trigger) if state else None)
    odd = _odd_notices(deps, trigger, now)
    settings = load_snapshot(deps.store)
    if settings is None:
        commit_all(deps.store, [], find_unsent(deps.store, odd, deps.stage, now), lease)
        deps.store.release_lease(lease)
        return RunReport("", "unknown", holds=(ReasonCode.SETTINGS_UNKNOWN.value,), odd_notices=len(odd))
    seen = gather(deps, settings, state, now, request_of(trigger))
    snapshot, plan = look_and_decide(deps.fleet, seen, settings, now)
    plan = replace(plan, state=replace(plan.state, trigger=trigger.name))
    messages = _record(deps, plan, snapshot, state, odd, lease)
    _run_checkpoints(deps, plan, lease)
    stops = StopDeps(deps.fleet, deps.actions, deps.controls, deps.sleep)
    entries = apply_stops(stops, plan, settings.settings.budget, now)
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
        restores=tuple(restore.instance_id for restore in plan.decision.restores),
        refused=tuple(
            {"instance_id": v.instance_id, "code": v.reason.code.value, "why": words(v.reason)} for v in plan.refused
        ),
        pause_unreadable=not snapshot.controls.pause.readable,
        odd_notices=len(odd),
    )


def _odd_notices(deps: GuardDeps, trigger: Trigger, now: datetime) -> tuple[Message, ...]:
    odd = []
    for notice in trigger.notices:
        why = objection_to(notice, deps.account_id, deps.budget_name)
        if why is not None:
            odd.append(budget_messages.odd_notice(deps.stage, deps.home_region, notice.text, why, now))
    return tuple(odd)


def _record(
    deps: GuardDeps,
    plan: GuardPlan,
    snapshot: BudgetSnapshot,
    before: GuardState | None,
    odd: Sequence[Message],
    lease: Lease,
) -> tuple[str, ...]:
    """Store what was decided, before anything is done: messages, ledger, groups, decision, memory."""
    decision = plan.decision
    now = decision.decided_at
    unsent = find_unsent(deps.store, (*decision.messages, *odd), deps.stage, now)
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
    holds = [Write(records.group_hold_record(hold)) for hold in plan.holds]
    running = [
        Write(records.checkpoint_record(checkpoint))
        for checkpoint in snapshot.checkpoints
        if checkpoint.status != "pending" and now - checkpoint.sent_at < timedelta(hours=2)
    ]
    # What people gave and groups were comes before the ledger's intents, the memory of this run last.
    commit_all(deps.store, [*holds, *ledger, *running, *writes], unsent, lease)
    return tuple(message.key for message, _ in unsent)


def _run_checkpoints(deps: GuardDeps, plan: GuardPlan, lease: Lease) -> None:
    """Start the documents that save work. Each is stored before it is sent, so that a retry does not send it again."""
    now = plan.decision.decided_at
    for run_checkpoint in plan.decision.checkpoints:
        wanted = _checkpoint(run_checkpoint, now)
        record = records.checkpoint_record(wanted)
        if record.key in deps.store.present([record.key]):
            continue
        deps.store.commit([Write(record)], lease)
        command_id, error = deps.commands.send(
            wanted.region, wanted.instance_id, wanted.document, f"GPU Governor {deps.stage}: before a budget stop"
        )
        sent = replace(wanted, command_id=command_id) if command_id else answered(wanted, "failed", error)
        deps.store.commit([Write(records.checkpoint_record(sent))], lease)


def _checkpoint(wanted: RunCheckpoint, now: datetime) -> Checkpoint:
    return Checkpoint(wanted.instance_id, wanted.region, wanted.launched_at, wanted.document, sent_at=now)


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
    scene = OutcomeScene(
        deps.stage,
        deps.home_region,
        snapshot.budget.name,
        plan.decision.decided_at,
        settings.settings.budget.manual_start_grace_hours,
    )
    told = tell_answers(tuple(entries), scene)
    unsent = find_unsent(deps.store, told, deps.stage, plan.decision.decided_at)
    commit_all(deps.store, [Write(records.ledger_record(entry)) for entry in entries], unsent, lease)
    return tuple(message.key for message, _ in unsent)
