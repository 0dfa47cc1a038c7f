"""The way back: which of the machines that we stopped are started again, by whom asked, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from governor.domain.budget_level import threshold_key
from governor.domain.budget_snapshot import LEDGER_REASON, BudgetReading, BudgetSnapshot, RestoreRequest
from governor.domain.budget_victims import surroundings_of
from governor.domain.decisions import Message, Money, RestoreInstance
from governor.domain.eligibility import groups_by_key, objection_to, paused
from governor.domain.fleet import Instance
from governor.domain.ledger import RETURNING_STATUSES, START_PATIENCE, StopEntry, StopStatus
from governor.domain.meter import hours_left, period_of
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.restorable import (
    RestoreView,
    is_ours_stopped,
    objection_to_restore,
    order_of_return,
    rank_of_return,
    restorable_entries,
    withdrawn,
)
from governor.domain.restore_messages import RestoreScene, propose_restore, restoring
from governor.domain.settings import BudgetSettings, Mode, RestoreAtPeriod, to_text
from governor.domain.tags import Criticality

BY_PERIOD = "period "
BY_LIMIT = "limit"
BY_STANDBY = "standby"
"""A member that was put into standby and never stopped goes back into service."""

PASSING = frozenset({ReasonCode.FLEET_UNREADABLE, ReasonCode.NOT_YET_STOPPED, ReasonCode.RESTORE_UNDERWAY})
"""Objections that end by themselves, so that nobody is told of them alone."""


@dataclass(frozen=True, slots=True)
class RestoreVerdict:
    """One instance that we stopped: whether it can be started again now, and why or why not."""

    instance_id: str
    region: str
    instance_type: str
    restorable: bool
    reason: Reason
    usd_per_hour: float | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What is started again; `entries` are the ledger entries that now say so."""

    restores: tuple[RestoreInstance, ...] = ()
    entries: tuple[StopEntry, ...] = ()
    verdicts: tuple[RestoreVerdict, ...] = ()
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class _View:
    """What every step of planning looks at."""

    snapshot: BudgetSnapshot
    settings: BudgetSettings
    ledger: Sequence[StopEntry]
    level: str
    money: Money
    decision_id: str
    now: datetime
    seen: Mapping[str, Instance]

    @property
    def scene(self) -> RestoreScene:
        budget = self.snapshot.budget
        return RestoreScene(
            stage=self.snapshot.stage,
            home_region=self.snapshot.home_region,
            budget_name=budget.name,
            now=self.now,
            level=self.level,
            money=self.money,
            actual_usd=budget.actual_usd if isinstance(budget, BudgetReading) else None,
            manual_start_grace_hours=self.settings.manual_start_grace_hours,
            returning_usd_per_hour=sum(e.usd_per_hour or 0.0 for e in _returning(self.ledger)),
        )

    def objection(self, entry: StopEntry) -> Reason | None:
        """Why an entry may not come back at all."""
        snapshot = self.snapshot
        around = RestoreView(groups_by_key(snapshot.fleet.groups), snapshot.holds, self.ledger, snapshot.other_reasons)
        return objection_to_restore(entry, self.seen.get(entry.instance_id), around)


def withdraw_restores(ledger: Iterable[StopEntry], now: datetime) -> tuple[StopEntry, ...]:
    """The stop level is back: starts that we wanted by ourselves and that EC2 has not accepted are given up.

    One that was tried a moment ago may be on its way without our having seen it, so it is followed instead.
    """
    return tuple(
        withdrawn(entry, "the stop level came back before it was started", now)
        if entry.status is StopStatus.RESTORING
        and _asked_by_us(entry)
        and not entry.left_in_standby
        and (entry.start_tried_at is None or now - entry.start_tried_at >= START_PATIENCE)
        else entry
        for entry in ledger
    )


def _asked_by_us(entry: StopEntry) -> bool:
    return entry.restore_asked_by == BY_LIMIT or entry.restore_asked_by.startswith(BY_PERIOD)


def plan_restore(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    ledger: Sequence[StopEntry],
    level: str,
    money: Money,
    decision_id: str,
    now: datetime,
) -> RestorePlan:
    """What comes back now: what a person asks for, else what the policy allows. Pure and total.

    By itself only what another rule than today's has stopped (another month, another limit or percentage), below the
    stop level, with the guard armed and not paused, once a month, while the upper forecast stays within the limit.
    A retry of the run that decided it says the same again.
    """
    seen = {instance.instance_id: instance for instance in snapshot.fleet.instances}
    view = _View(snapshot, settings, ledger, level, money, decision_id, now, seen)
    if snapshot.request is not None:
        return _on_request(view, snapshot.request)
    if settings.mode is not Mode.ENFORCE or snapshot.controls.pause.active:
        return RestorePlan()
    if level not in ("below", "warn"):
        return _start(view, [(entry, BY_STANDBY) for entry in _spared_in_standby(view)], ())
    return _by_policy(view)


# --- A person asks ----------------------------------------------------------------------------------------------------


def _on_request(view: _View, request: RestoreRequest) -> RestorePlan:
    """Exactly what was asked for, whatever the level and the forecast: people overrule. Refusals say why."""
    entries = {entry.instance_id: entry for entry in restorable_entries(view.ledger)}
    held = _held_by_people(view)
    verdicts: list[RestoreVerdict] = []
    chosen: list[StopEntry] = []
    for name in _wanted(view, request, entries):
        entry = entries.get(name)
        if entry is None:
            verdicts.append(_unknown_verdict(name))
            continue
        accepted_before = entry.restore_decision_id == view.decision_id
        reason = None if accepted_before else view.objection(entry) or held
        verdicts.append(_verdict(entry, reason))
        if reason is None and not accepted_before:
            chosen.append(entry)
    chosen.sort(key=order_of_return)
    return _start(view, [(entry, request.asked_by) for entry in chosen], tuple(verdicts))


def _wanted(view: _View, request: RestoreRequest, entries: Mapping[str, StopEntry]) -> list[str]:
    """Ids that a request means, or the name of a decision of which nothing is known."""
    if request.everything:
        return [
            instance_id
            for instance_id, entry in entries.items()
            if is_ours_stopped(entry)
            or entry.status is StopStatus.GAVE_UP
            or entry.restore_decision_id == view.decision_id
            or view.objection(entry) is None
        ]
    if request.decision_id:
        found = [i for i, entry in entries.items() if entry.decision_id == request.decision_id]
        return found or [request.decision_id]
    return list(dict.fromkeys(request.instances))


def _held_by_people(view: _View) -> Reason | None:
    """What holds even a person's request: the area is off, or everything is paused."""
    if view.settings.mode is Mode.OFF:
        return because(ReasonCode.MODE_OFF)
    pause = view.snapshot.controls.pause
    return paused(pause) if pause.active else None


# --- The policy -------------------------------------------------------------------------------------------------------


def _by_policy(view: _View) -> RestorePlan:
    entries = [e for e in restorable_entries(view.ledger) if e.reason == LEDGER_REASON]
    standing = [e for e in entries if e.left_in_standby and view.objection(e) is None]
    rule_now = f"{period_of(view.now)} stop at {threshold_key(view.settings)}"
    due = [e for e in entries if is_ours_stopped(e) and e.rule != rule_now]
    fitting, verdicts = _judge(view, sorted(due, key=order_of_return))
    by_itself, proposed = _share(fitting, view.settings.restore_at_period)
    room = view.snapshot.restore_settings.max_starts_per_run - len(_returning(view.ledger))
    starting = [(e, _asked_by(e, view.now)) for e in by_itself[: max(0, room)]]
    plan = _start(view, [*((e, BY_STANDBY) for e in standing), *starting], tuple(verdicts))
    return replace(plan, messages=(*plan.messages, *_tell_rest(view, proposed, verdicts, by_itself)))


def _spared_in_standby(view: _View) -> list[StopEntry]:
    """At the stop level: members in our standby that are not to be stopped any more, such as one that is kept."""
    around = surroundings_of(view.snapshot, view.settings, view.now, None)
    found = []
    for entry in restorable_entries(view.ledger):
        instance = view.seen.get(entry.instance_id)
        if not entry.left_in_standby or instance is None or view.objection(entry) is not None:
            continue
        why = objection_to(instance, around)
        # Whether an override still holds depends on the spend, which the decision about the stop knows better.
        if why is not None and why.code is not ReasonCode.OVERRIDDEN:
            found.append(entry)
    return found


def _judge(view: _View, due: Sequence[StopEntry]) -> tuple[list[StopEntry], list[RestoreVerdict]]:
    """(Those that fit under the limit one after the other, a verdict for each).

    What does not fit is passed over for others as critical as it is, and for none that is less so: a preemptible one
    would use up the money that a standard one waits for.
    """
    again = _restored_in(view.ledger, period_of(view.now))
    rate = sum(e.usd_per_hour or 0.0 for e in _returning(view.ledger))
    fitting: list[StopEntry] = []
    verdicts: list[RestoreVerdict] = []
    ahead: StopEntry | None = None
    for entry in due:
        reason = view.objection(entry)
        if reason is None and entry.instance_id in again:
            reason = because(ReasonCode.RESTORED_THIS_PERIOD)
        if reason is None and ahead is not None and rank_of_return(entry) > rank_of_return(ahead):
            reason = because(ReasonCode.BEHIND_MORE_CRITICAL, instance_id=ahead.instance_id)
        if reason is None:
            reason = _past_limit(view, entry, rate)
            if reason is not None and reason.code is ReasonCode.PAST_LIMIT:
                ahead = ahead or entry
        verdicts.append(_verdict(entry, reason))
        if reason is None:
            fitting.append(entry)
            rate += entry.usd_per_hour or 0.0
    return fitting, verdicts


def _past_limit(view: _View, entry: StopEntry, rate: float) -> Reason | None:
    """Why an instance would break the limit; an unknown forecast or price brings nothing back by itself.

    Worked example: a forecast of at most 600 USD, 100 hours left, 2 USD/h on their way back and 1 USD/h for this one
    make 900 USD, which a limit of 900 allows.
    """
    forecast, limit = view.money.forecast_high_usd, view.settings.limit_usd
    if forecast is None or entry.usd_per_hour is None:
        return because(ReasonCode.RESTORE_COST_UNKNOWN, limit=to_text(limit))
    end = forecast + (rate + entry.usd_per_hour) * hours_left(view.now)
    return None if end <= limit else because(ReasonCode.PAST_LIMIT, usd=f"{end:.2f}", limit=to_text(limit))


def _share(fitting: list[StopEntry], policy: RestoreAtPeriod) -> tuple[list[StopEntry], list[StopEntry]]:
    """(Started by itself, only proposed)."""
    if policy is RestoreAtPeriod.ALL:
        return fitting, []
    if policy is RestoreAtPeriod.CRITICAL_FIRST:
        standard = [e for e in fitting if e.criticality != Criticality.PREEMPTIBLE.value]
        return standard, [e for e in fitting if e not in standard]
    return [], fitting


def _tell_rest(
    view: _View,
    proposed: Sequence[StopEntry],
    verdicts: Sequence[RestoreVerdict],
    by_itself: Sequence[StopEntry],
) -> tuple[Message, ...]:
    """One message a month and limit about what does not come back by itself: one command for what fits, why not."""
    refused = tuple(v for v in verdicts if not v.restorable)
    if not proposed and all(v.reason.code in PASSING for v in refused):
        return ()
    settings = view.settings
    startable = {e.instance_id for e in restorable_entries(view.ledger) if view.objection(e) is None}
    fact = "restore-proposed" if proposed else "restore-refused"
    told = propose_restore(
        view.scene,
        key_parts=(period_of(view.now), fact, to_text(settings.limit_usd), to_text(settings.stop_percent)),
        proposed=tuple(proposed),
        refused=tuple(
            (f"{v.instance_id} {v.name}".strip(), v.instance_type, v.region, v.reason, v.usd_per_hour) for v in refused
        ),
        by_itself=len(by_itself),
        # `--all` is offered only where it starts these and no others.
        everything=startable == {e.instance_id for e in proposed},
    )
    return (told,)


def _returning(ledger: Iterable[StopEntry]) -> list[StopEntry]:
    """On the way back, so not in the run rate yet."""
    return [e for e in ledger if e.status in RETURNING_STATUSES and not e.left_in_standby]


def _restored_in(ledger: Iterable[StopEntry], period: str) -> frozenset[str]:
    """Instances that came back by themselves in a period: once is enough, or they would swing."""
    return frozenset(
        e.instance_id
        for e in ledger
        if e.restore_asked_at is not None and period_of(e.restore_asked_at) == period and _asked_by_us(e)
    )


def _asked_by(entry: StopEntry, now: datetime) -> str:
    """A stop of this month comes back because the limit was raised, an older one because the month is new."""
    period = period_of(now)
    return BY_LIMIT if entry.rule.partition(" ")[0] == period else BY_PERIOD + period


# --- What is written --------------------------------------------------------------------------------------------------


def _start(view: _View, chosen: Sequence[tuple[StopEntry, str]], verdicts: tuple[RestoreVerdict, ...]) -> RestorePlan:
    """Ask for the start of each entry; what this very decision asked for before a crash is named again."""
    entries = tuple(
        replace(
            entry,
            status=StopStatus.RESTORING,
            detail="",
            restore_asked_at=view.now,
            restore_asked_by=asked_by,
            restore_decision_id=view.decision_id,
            start_tries=0,
            next_start_at=None,
            start_accepted_at=None,
            updated_at=view.now,
        )
        for entry, asked_by in chosen
    )
    before = tuple(e for e in view.ledger if e.restore_decision_id == view.decision_id)
    asked = tuple(sorted((*entries, *before), key=order_of_return))
    restores = tuple(
        RestoreInstance(e.instance_id, e.region, e.launched_at, e.restore_asked_by, e.usd_per_hour, e.group)
        for e in asked
    )
    started = tuple(e for e in asked if not e.left_in_standby)
    told = (restoring(view.scene, view.decision_id, started),) if started else ()
    return RestorePlan(restores, entries, verdicts, told)


def _verdict(entry: StopEntry, reason: Reason | None) -> RestoreVerdict:
    good = because(ReasonCode.RESTORABLE, stopped=f"{entry.accepted_at or entry.updated_at:%Y-%m-%d %H:%M} UTC")
    return RestoreVerdict(
        entry.instance_id,
        entry.region,
        entry.instance_type,
        reason is None,
        reason or good,
        entry.usd_per_hour,
        entry.name,
    )


def _unknown_verdict(name: str) -> RestoreVerdict:
    reason = because(ReasonCode.NOT_STOPPED_BY_US, status="not in the stop ledger")
    return RestoreVerdict(name, "", "", False, reason, None)
