"""The budget guard's decision: warn at one share of the month's limit, stop what is not critical at another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from governor.domain import budget_messages
from governor.domain.budget_level import (
    JUMP_SHARE_OF_LIMIT,
    OUTAGE_PATIENCE,
    Level,
    advance_level,
    advance_state,
    holds_of,
    level_of,
    threshold_key,
)
from governor.domain.budget_snapshot import (
    FUNCTION,
    LEDGER_REASON,
    BudgetReading,
    BudgetSnapshot,
    GuardState,
    UnknownBudget,
)
from governor.domain.budget_victims import judge
from governor.domain.decisions import Decision, InstanceVerdict, Message, Money, StopInstance, Verdict
from governor.domain.guard import StopLimits
from governor.domain.ledger import StopEntry, StopStatus, follow_up
from governor.domain.meter import (
    BILLING_LAG_HOURS,
    MeterReading,
    hours_left,
    period_start,
    read_meter,
)
from governor.domain.reasons import ReasonCode
from governor.domain.settings import BudgetSettings, Mode

PERCENT_STEP = 25
WIDE_STEPS_FROM = 200
WIDE_PERCENT_STEP = 100
"""While nothing is within reach, people are told again at each such share of the limit; above twice it, less often."""


@dataclass(frozen=True, slots=True)
class GuardPlan:
    """A decision with what must be remembered: the new state, the ledger entries that changed, the call limits.

    `intended` holds one entry for each stop of the decision, in its order.
    """

    decision: Decision
    state: GuardState
    ledger: tuple[StopEntry, ...]
    limits: StopLimits
    intended: tuple[StopEntry, ...] = ()


def decide(snapshot: BudgetSnapshot, settings: BudgetSettings, now: datetime) -> GuardPlan:
    """Compare the month's spend with the thresholds and say what is to be stopped and told. Pure and total.

    `now` is aware UTC and not before `snapshot.state.decided_at`. Unknown data never stops anything.
    """
    ledger = _follow_ledger(snapshot, now)
    counted = snapshot.counted_families
    metered = tuple(i for i in snapshot.fleet.instances if counted is None or i.family in counted)
    meter = read_meter(metered, snapshot.prices, now)
    state = advance_state(snapshot, settings, meter, now)
    level = level_of(snapshot, settings, state, meter, now)
    state = advance_level(snapshot, settings, state, level, now)

    verdicts, limits = judge(snapshot, settings, ledger, state, now)
    money = _money(snapshot, settings, meter, verdicts, level, now)
    holds, due = holds_of(snapshot, settings, state, level, now)
    would_stop = tuple(v for v in verdicts if v.verdict is Verdict.STOP) if level.name == "stop" else ()
    stops: tuple[StopInstance, ...] = ()
    if would_stop and not holds:
        stops = tuple(_stop_action(v, settings, state.period) for v in would_stop if v.launched_at is not None)
    decision = Decision(
        function=FUNCTION,
        decided_at=now,
        settings_version=snapshot.settings_version,
        mode=settings.mode,
        level=level.name,
        reasons=level.reasons,
        holds=holds,
        verdicts=verdicts,
        stops=stops,
        money=money,
    )
    known = {(entry.instance_id, entry.launched_at): entry for entry in ledger}
    intended = tuple(_intend(stop, decision, known, verdicts) for stop in stops)
    begin = period_start(now)
    fresh = {s.instance_id for s in stops if not _told_before(known.get((s.instance_id, s.launched_at)), begin)}
    decision = replace(
        decision, messages=_messages(snapshot, settings, state, decision, ledger, frozenset(fresh), due, now)
    )
    before = {(entry.instance_id, entry.launched_at): entry for entry in snapshot.ledger}
    merged = {(entry.instance_id, entry.launched_at): entry for entry in (*ledger, *intended)}
    changed = tuple(entry for key, entry in sorted(merged.items()) if before.get(key) != entry)
    state = replace(state, fingerprint=_fingerprint(decision))
    return GuardPlan(decision, state, changed, limits, intended)


def _told_before(entry: StopEntry | None, begin: datetime) -> bool:
    """True where people know of this stop, in this month. One that a pause withheld is told again when it goes on."""
    if entry is None or entry.decided_at < begin:
        return False
    paused = entry.withheld_code in (ReasonCode.PAUSED, ReasonCode.PAUSE_UNREADABLE)
    return entry.open or (entry.status is StopStatus.WITHHELD and not paused)


def _follow_ledger(snapshot: BudgetSnapshot, now: datetime) -> tuple[StopEntry, ...]:
    seen = {instance.instance_id: instance for instance in snapshot.fleet.instances}
    unknown = {unknown.region for unknown in snapshot.fleet.unknown_regions}
    looked_at = snapshot.fleet.regions
    followed = []
    for entry in snapshot.ledger:
        instance = seen.get(entry.instance_id)
        unseen = entry.region in unknown or (looked_at and entry.region not in looked_at)
        blind = instance is None and unseen
        ended = entry.status in (StopStatus.GONE, StopStatus.RESTARTED)
        decided_now = entry.decided_at == now  # a retry of the run that decided it; the outcome is for later runs
        followed.append(entry if blind or ended or decided_now else follow_up(entry, instance, now))
    return tuple(followed)


def _money(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    meter: MeterReading,
    verdicts: tuple[InstanceVerdict, ...],
    level: Level,
    now: datetime,
) -> Money:
    waiting = (ReasonCode.NEXT_RUN, ReasonCode.JUST_LAUNCHED)
    reach = sum(v.usd_per_hour or 0.0 for v in verdicts if v.verdict is Verdict.STOP or v.reason.code in waiting)
    in_scope = {i.instance_id for i in snapshot.fleet.instances if i.family in settings.stop_families}
    untagged = sum(
        v.usd_per_hour or 0.0
        for v in verdicts
        if v.instance_id in in_scope and v.reason.code in (ReasonCode.NOT_MANAGED, ReasonCode.TAG_NOT_EXACT)
    )
    saves = sum(v.usd_per_hour or 0.0 for v in verdicts if v.verdict is Verdict.STOP)
    budget = snapshot.budget
    actual = budget.actual_usd if isinstance(budget, BudgetReading) and level.percent is not None else None
    low = high = None
    if actual is not None:
        now_low = max(actual, meter.spent_at_least_usd)
        ahead = meter.run_rate_usd_per_hour * hours_left(now)
        behind = meter.run_rate_usd_per_hour * min(BILLING_LAG_HOURS, (now - period_start(now)).total_seconds() / 3600)
        low, high = now_low + ahead, max(now_low, actual + behind) + ahead
    return Money(
        limit_usd=settings.limit_usd,
        actual_usd=actual,
        percent=level.percent,
        run_rate_usd_per_hour=meter.run_rate_usd_per_hour,
        spent_at_least_usd=meter.spent_at_least_usd,
        forecast_low_usd=low,
        forecast_high_usd=high,
        reachable_usd_per_hour=reach,
        untagged_usd_per_hour=untagged,
        saves_usd_per_hour=saves,
        prices_dated=f"{snapshot.prices.region}, {snapshot.prices.dated}",
        unpriced=meter.unpriced,
    )


def _stop_action(verdict: InstanceVerdict, settings: BudgetSettings, period: str) -> StopInstance:
    assert verdict.launched_at is not None
    return StopInstance(
        instance_id=verdict.instance_id,
        region=verdict.region,
        launched_at=verdict.launched_at,
        ledger_reason=LEDGER_REASON,
        rule=f"{period} stop at {threshold_key(settings)}",
        usd_per_hour=verdict.usd_per_hour,
    )


def _intend(
    stop: StopInstance,
    decision: Decision,
    known: dict[tuple[str, datetime], StopEntry],
    verdicts: tuple[InstanceVerdict, ...],
) -> StopEntry:
    """The ledger entry of a stop. An open one of an earlier try is kept, so that it is told only once."""
    earlier = known.get((stop.instance_id, stop.launched_at))
    if earlier is not None and earlier.open and earlier.decided_at >= period_start(decision.decided_at):
        return replace(earlier, status=StopStatus.INTENDED)
    types = {v.instance_id: v.instance_type for v in verdicts}
    return StopEntry(
        instance_id=stop.instance_id,
        region=stop.region,
        reason=stop.ledger_reason,
        launched_at=stop.launched_at,
        rule=stop.rule,
        decided_at=decision.decided_at,
        decision_id=decision.decision_id,
        status=StopStatus.INTENDED,
        updated_at=decision.decided_at,
        instance_type=types.get(stop.instance_id, ""),
        usd_per_hour=stop.usd_per_hour,
    )


def _messages(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    state: GuardState,
    decision: Decision,
    ledger: tuple[StopEntry, ...],
    fresh: frozenset[str],
    due: datetime | None,
    now: datetime,
) -> tuple[Message, ...]:
    """One message per new fact. Keys make a fact that was told stay told."""
    scene = budget_messages.Scene(
        stage=snapshot.stage,
        home_region=snapshot.home_region,
        budget_name=snapshot.budget.name,
        period=state.period,
        settings=settings,
        decision=decision,
        unknown_regions=snapshot.fleet.unknown_regions,
        due=due,
        aws_limit_usd=snapshot.budget.aws_limit_usd if isinstance(snapshot.budget, BudgetReading) else None,
    )
    told = _outcome_messages(snapshot, scene, ledger)
    if settings.mode is Mode.OFF:
        return tuple(told)
    would_stop = any(v.verdict is Verdict.STOP for v in decision.verdicts)
    codes = {hold.code for hold in decision.holds}
    if decision.level == "unknown":
        told.extend(_unknown_messages(snapshot, scene, state, now))
    elif decision.level == "warn":
        told.append(budget_messages.warn_reached(scene))
    elif decision.level == "stop" and not would_stop:
        told.extend(_messages_without_victims(scene, ledger, now))
    elif decision.level == "stop":
        if ReasonCode.MODE_OBSERVE in codes:
            told.append(budget_messages.would_stop(scene))
        elif ReasonCode.PAUSED in codes:
            told.append(budget_messages.held_by_pause(scene, state.paused_since or now, readable=True))
        elif ReasonCode.PAUSE_UNREADABLE in codes:
            since = state.pause_unread_since or now
            if now - since >= OUTAGE_PATIENCE:
                told.append(budget_messages.held_by_pause(scene, since, readable=False))
        elif decision.holds:
            told.append(budget_messages.stop_notice(scene))
        elif fresh:
            told.append(budget_messages.stopping(scene, fresh))
    over = any(v.reason.code is ReasonCode.OVER_MAX_STOP_PERCENT for v in decision.verdicts)
    if decision.level == "stop" and over and not decision.holds:
        told.append(budget_messages.over_limit(scene))
    told.extend(
        budget_messages.region_blind(scene, region, since)
        for region, since in state.blind_regions
        if now - since >= OUTAGE_PATIENCE
    )
    if _bill_is_far_behind(scene.money, settings, now):
        told.append(budget_messages.bill_far_behind(scene))
    if scene.aws_limit_usd is not None and abs(scene.aws_limit_usd - settings.limit_usd) >= 0.01:
        told.append(budget_messages.limits_differ(scene))
    return tuple(told)


def _unknown_messages(
    snapshot: BudgetSnapshot, scene: budget_messages.Scene, state: GuardState, now: datetime
) -> list[Message]:
    """An unknown figure is told when it lasts: an outage after 15 minutes, a new month's doubt after a day."""
    if isinstance(snapshot.budget, UnknownBudget):
        since = state.unknown_since or now
        return [budget_messages.budget_unknown(scene, since)] if now - since >= OUTAGE_PATIENCE else []
    if state.fell_at is not None:
        return [budget_messages.figure_in_doubt(scene, state.fell_at)]
    if now - period_start(now) >= timedelta(hours=BILLING_LAG_HOURS):
        return [budget_messages.figure_in_doubt(scene, period_start(now))]
    return []


def _bill_is_far_behind(money: Money, settings: BudgetSettings, now: datetime) -> bool:
    """True where what runs must have cost far more than AWS Budgets says, its lag allowed for twice.

    Then the budget most likely does not count what it should (a filter that matches nothing reads as zero).
    """
    if money.actual_usd is None or now - period_start(now) < 2 * timedelta(hours=BILLING_LAG_HOURS):
        return False
    known_by_now = money.spent_at_least_usd - 2 * BILLING_LAG_HOURS * money.run_rate_usd_per_hour
    return known_by_now > 2 * money.actual_usd + JUMP_SHARE_OF_LIMIT * settings.limit_usd


def _messages_without_victims(
    scene: budget_messages.Scene, ledger: tuple[StopEntry, ...], now: datetime
) -> list[Message]:
    """At the stop level with nobody to stop now: what is still to come, or that only people can act.

    After our own stops the latter is told at each further quarter of the limit, since what is left goes on.
    """
    codes = {verdict.reason.code for verdict in scene.decision.verdicts}
    if ReasonCode.JUST_LAUNCHED in codes:
        return [budget_messages.launched_above(scene)]
    if ReasonCode.STOP_UNDERWAY in codes or scene.money.run_rate_usd_per_hour <= 0:
        return []
    percent = scene.money.percent or 0.0
    width = PERCENT_STEP if percent < WIDE_STEPS_FROM else WIDE_PERCENT_STEP
    step = int(percent // width * width)
    tried = any(entry.decided_at >= period_start(now) for entry in ledger)
    if tried and step <= scene.settings.stop_percent:
        return []
    return [budget_messages.nothing_to_stop(scene, step)]


def _outcome_messages(
    snapshot: BudgetSnapshot, scene: budget_messages.Scene, ledger: tuple[StopEntry, ...]
) -> list[Message]:
    """A message for each stop decision whose every stop has now ended, and for each restart by a person."""
    before = {(entry.instance_id, entry.launched_at): entry.status for entry in snapshot.ledger}
    told: list[Message] = []
    by_decision: dict[str, list[StopEntry]] = {}
    for entry in ledger:
        by_decision.setdefault(entry.decision_id, []).append(entry)
    for decision_id, entries in sorted(by_decision.items()):
        moved = [e for e in entries if before.get((e.instance_id, e.launched_at)) is not e.status]
        under_way = any(e.status in (StopStatus.INTENDED, StopStatus.ACCEPTED) for e in entries)
        ended = [e for e in moved if before.get((e.instance_id, e.launched_at)) is not StopStatus.STOPPED]
        if ended and not under_way and any(e.status is StopStatus.STOPPED for e in entries):
            told.append(budget_messages.stops_seen(scene, decision_id, tuple(entries)))
        told.extend(budget_messages.started_again(scene, e) for e in moved if e.status is StopStatus.RESTARTED)
        failed = tuple(e for e in moved if e.status is StopStatus.FAILED)
        told.extend(budget_messages.stops_failed(scene, failed))
    return told


def _fingerprint(decision: Decision) -> str:
    """Short digest of what a decision says, so that the same thing is recorded once and not every five minutes."""
    said = [
        decision.mode.value,
        decision.level,
        str(decision.settings_version),
        *[hold.code.value for hold in decision.holds],
        *[f"{v.instance_id}{v.verdict.value}{v.reason.code.value}" for v in decision.verdicts],
    ]
    return hashlib.sha256("|".join(said).encode()).hexdigest()[:16]
