"""The budget guard's decision: warn at one share of the month's limit, stop what is not critical at another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from governor.domain import budget_messages
from governor.domain.decisions import Decision, InstanceVerdict, Message, Money, StopInstance, Verdict
from governor.domain.fleet import FleetSnapshot, Instance, InstanceKind, InstanceState
from governor.domain.guard import StopLimits, share_of
from governor.domain.ledger import StopEntry, StopStatus, follow_up
from governor.domain.meter import (
    BILLING_LAG_HOURS,
    MeterReading,
    hours_left,
    is_billed,
    period_of,
    period_start,
    read_meter,
)
from governor.domain.pause import Pause
from governor.domain.prices import PriceCatalogue
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.settings import BudgetSettings, Mode, to_text
from governor.domain.tags import Criticality, TagFinding

FUNCTION = "guard_budget"
LEDGER_REASON = "budget"

NEW_MONTH_DOUBT = timedelta(hours=36)
"""So long after the turn of a month a figure may still be the old month's (data is up to 24 h late, then rounding)."""

FALL_RATIO = 0.5
FALL_DOUBT = timedelta(hours=24)
"""A figure that falls below half within a month (the budget was replaced or updated) is not believed for a day."""

OUTAGE_PATIENCE = timedelta(minutes=15)
"""What cannot be read for so long is told; three runs, so that one throttled call wakes nobody."""

WITHHELD_REST = timedelta(hours=1)
"""A machine that was left at the last moment for what it is (protected, changed) is looked at again after this."""

JUMP_SHARE_OF_LIMIT = 0.05
JUMP_BURN_FACTOR = 1.5
"""A new reading is believed at once up to 1.5 times what the fleet burns in the billing lag, plus 5 % of the limit."""


@dataclass(frozen=True, slots=True)
class BudgetReading:
    """What AWS Budgets says: USD of the period so far, its own limit and forecast. Hours behind the spend."""

    name: str
    actual_usd: float
    aws_limit_usd: float | None
    aws_forecast_usd: float | None = None


@dataclass(frozen=True, slots=True)
class UnknownBudget:
    """The budget could not be read, or holds something we do not understand."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class ThresholdEdit:
    """A setting that moves the stop level was changed by somebody."""

    name: str
    at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class GuardState:
    """What the guard remembers from one run to the next."""

    period: str
    decided_at: datetime
    actual_usd: float | None = None
    actual_moved_at: datetime | None = None
    last_period_actual_usd: float | None = None
    threshold: str = ""
    stop_reached_at: datetime | None = None
    """Since when the level has been reached with the guard armed and not paused: grace counts from here."""
    paused_since: datetime | None = None
    unknown_since: datetime | None = None
    fell_at: datetime | None = None
    blind_regions: tuple[tuple[str, datetime], ...] = ()
    """Regions that cannot be read, each with the first run that could not."""
    jump_at: datetime | None = None
    jump_usd: float = 0.0
    believable_usd: float = 0.0
    fingerprint: str = ""
    trigger: str = ""
    """Name of the event of the last run, by which a retry of it is known."""


@dataclass(frozen=True, slots=True)
class BudgetSnapshot:
    """Everything the guard looks at, gathered before it decides."""

    stage: str
    home_region: str
    fleet: FleetSnapshot
    budget: BudgetReading | UnknownBudget
    prices: PriceCatalogue
    pause: Pause
    settings_version: int
    ledger: tuple[StopEntry, ...] = ()
    state: GuardState | None = None
    edits: tuple[ThresholdEdit, ...] = ()
    counted_families: frozenset[str] | None = None
    """Families that the AWS budget counts; the meter counts the same ones (None: all)."""


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


@dataclass(frozen=True, slots=True)
class _Level:
    name: str
    percent: float | None
    reasons: tuple[Reason, ...]


def decide(snapshot: BudgetSnapshot, settings: BudgetSettings, now: datetime) -> GuardPlan:
    """Compare the month's spend with the thresholds and say what is to be stopped and told. Pure and total.

    `now` is aware UTC and not before `snapshot.state.decided_at`. Unknown data never stops anything.
    """
    ledger = _follow_ledger(snapshot, now)
    counted = snapshot.counted_families
    metered = tuple(i for i in snapshot.fleet.instances if counted is None or i.family in counted)
    meter = read_meter(metered, snapshot.prices, now)
    state = _advance_state(snapshot, settings, meter, now)
    level = _level_of(snapshot, settings, state, meter, now)
    state = _advance_level(snapshot, settings, state, level, now)

    verdicts, limits = _judge(snapshot, settings, ledger, state, now)
    money = _money(snapshot, settings, meter, verdicts, level, now)
    holds, due = _holds(snapshot, settings, state, level, now)
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
    fresh = {stop.instance_id for stop in stops if not _told_before(known.get((stop.instance_id, stop.launched_at)))}
    decision = replace(
        decision, messages=_messages(snapshot, settings, state, decision, ledger, frozenset(fresh), due, now)
    )
    before = {(entry.instance_id, entry.launched_at): entry for entry in snapshot.ledger}
    merged = {(entry.instance_id, entry.launched_at): entry for entry in (*ledger, *intended)}
    changed = tuple(entry for key, entry in sorted(merged.items()) if before.get(key) != entry)
    state = replace(state, fingerprint=_fingerprint(decision))
    return GuardPlan(decision, state, changed, limits, intended)


def _told_before(entry: StopEntry | None) -> bool:
    """True where people know of this stop. One that a pause withheld is told again when it goes on."""
    if entry is None:
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


def _advance_state(
    snapshot: BudgetSnapshot, settings: BudgetSettings, meter: MeterReading, now: datetime
) -> GuardState:
    """What is remembered after this run, and which figure of AWS Budgets is believed (`actual_usd`).

    Worked example of a new month: November ended at 960 USD. On 1 December at 00:10 the budget still says 959.99; ten
    minutes of the fleet cannot have cost that, so the figure is unknown. At 09:00 it says 31, which nine hours can
    have cost: believed. If it never becomes believable, it is believed after 36 hours, and held as a jump.
    """
    period = period_of(now)
    last = snapshot.state
    actual = snapshot.budget.actual_usd if isinstance(snapshot.budget, BudgetReading) else None
    blind = _blind_regions(snapshot, now)
    if last is None:
        unknown_since = now if actual is None else None
        moved = now if actual is not None else None
        return GuardState(period, now, actual, moved, unknown_since=unknown_since, blind_regions=blind)
    if last.period != period:
        carried = last.actual_usd if last.actual_usd is not None else last.last_period_actual_usd
        last = replace(
            GuardState(period, now, last_period_actual_usd=carried),
            paused_since=last.paused_since,
            unknown_since=last.unknown_since,
        )
    state = replace(last, decided_at=now, blind_regions=blind)
    if actual is None:
        return replace(state, unknown_since=state.unknown_since or now)
    state = replace(state, unknown_since=None)
    if state.last_period_actual_usd is not None:
        believable = _believable_in_new_month(snapshot, settings, meter, now)
        in_doubt = actual > believable
        if in_doubt and now - period_start(now) < NEW_MONTH_DOUBT:
            return state
        state = replace(state, last_period_actual_usd=None, actual_usd=actual, actual_moved_at=now)
        if in_doubt:
            state = replace(state, jump_at=now, jump_usd=actual, believable_usd=believable)
        return state
    before = state.actual_usd
    if before is None:
        return replace(state, actual_usd=actual, actual_moved_at=now)
    if actual < FALL_RATIO * before and before - actual > JUMP_SHARE_OF_LIMIT * settings.limit_usd:
        fell_at = state.fell_at or now
        if now - fell_at < FALL_DOUBT:
            return replace(state, fell_at=fell_at)
    state = replace(state, fell_at=None)
    if actual != before:
        since = state.actual_moved_at or now
        hours = max((now - since).total_seconds() / 3600, BILLING_LAG_HOURS)
        burn = meter.run_rate_usd_per_hour + _lately_stopped_rate(snapshot, now)
        believable = JUMP_BURN_FACTOR * burn * hours + JUMP_SHARE_OF_LIMIT * settings.limit_usd
        jump = actual - before
        if jump > believable:
            state = replace(state, jump_at=now, jump_usd=jump, believable_usd=believable)
        state = replace(state, actual_usd=actual, actual_moved_at=now)
    return state


def _believable_in_new_month(
    snapshot: BudgetSnapshot, settings: BudgetSettings, meter: MeterReading, now: datetime
) -> float:
    """The most that this month can have cost so far, USD."""
    hours = (now - period_start(now)).total_seconds() / 3600
    burn = meter.run_rate_usd_per_hour + _lately_stopped_rate(snapshot, now)
    return JUMP_BURN_FACTOR * burn * hours + JUMP_SHARE_OF_LIMIT * settings.limit_usd


def _lately_stopped_rate(snapshot: BudgetSnapshot, now: datetime) -> float:
    """USD per hour of machines that ran within the billing lag and no longer do, each once."""
    stopped = (StopStatus.ACCEPTED, StopStatus.STOPPED)
    horizon = now - timedelta(hours=BILLING_LAG_HOURS)
    rates = {
        entry.instance_id: entry.usd_per_hour or 0.0
        for entry in snapshot.ledger
        if entry.status in stopped and entry.updated_at >= horizon
    }
    return sum(rates.values())


def _blind_regions(snapshot: BudgetSnapshot, now: datetime) -> tuple[tuple[str, datetime], ...]:
    since = dict(snapshot.state.blind_regions) if snapshot.state is not None else {}
    return tuple((unknown.region, since.get(unknown.region, now)) for unknown in snapshot.fleet.unknown_regions)


def _advance_level(
    snapshot: BudgetSnapshot, settings: BudgetSettings, state: GuardState, level: _Level, now: datetime
) -> GuardState:
    """Since when the stop level stands armed, and since when a pause holds it. An unknown level changes neither."""
    if level.name == "unknown":
        return state
    if level.name != "stop" or settings.mode is Mode.OFF:
        return replace(state, stop_reached_at=None, threshold="", paused_since=None)
    if snapshot.pause.active:
        return replace(state, stop_reached_at=None, threshold="", paused_since=state.paused_since or now)
    state = replace(state, paused_since=None)
    if settings.mode is not Mode.ENFORCE:
        return replace(state, stop_reached_at=None, threshold="")
    return replace(state, stop_reached_at=state.stop_reached_at or now, threshold=_threshold_key(settings))


def _threshold_key(settings: BudgetSettings) -> str:
    return f"{to_text(settings.stop_percent)}% of {to_text(settings.limit_usd)}"


def _level_of(
    snapshot: BudgetSnapshot, settings: BudgetSettings, state: GuardState, meter: MeterReading, now: datetime
) -> _Level:
    budget = snapshot.budget
    if isinstance(budget, UnknownBudget):
        return _Level("unknown", None, (because(ReasonCode.BUDGET_UNKNOWN, why=budget.why),))
    if state.last_period_actual_usd is not None:
        reason = because(
            ReasonCode.PERIOD_JUST_CHANGED,
            actual_usd=f"{budget.actual_usd:.2f}",
            believable_usd=f"{_believable_in_new_month(snapshot, settings, meter, now):.2f}",
            last_usd=f"{state.last_period_actual_usd:.2f}",
        )
        return _Level("unknown", None, (reason,))
    if state.fell_at is not None:
        reason = because(
            ReasonCode.SPEND_FELL,
            actual_usd=f"{budget.actual_usd:.2f}",
            last_usd=f"{state.actual_usd or 0.0:.2f}",
            due=_clock(state.fell_at + FALL_DOUBT),
        )
        return _Level("unknown", None, (reason,))
    percent = budget.actual_usd / settings.limit_usd * 100
    shown = f"{percent:.1f}"
    if percent >= settings.stop_percent:
        stop = because(ReasonCode.STOP_REACHED, percent=shown, stop_percent=to_text(settings.stop_percent))
        return _Level("stop", percent, (stop,))
    if percent >= settings.warn_percent:
        warn = because(ReasonCode.WARN_REACHED, percent=shown, warn_percent=to_text(settings.warn_percent))
        return _Level("warn", percent, (warn,))
    below = because(ReasonCode.BELOW_WARN, percent=shown, warn_percent=to_text(settings.warn_percent))
    return _Level("below", percent, (below,))


def _holds(
    snapshot: BudgetSnapshot, settings: BudgetSettings, state: GuardState, level: _Level, now: datetime
) -> tuple[tuple[Reason, ...], datetime | None]:
    """Why stops do not happen now, and when they would begin (None where no time can be given)."""
    if settings.mode is Mode.OFF:
        return (because(ReasonCode.MODE_OFF),), None
    if level.name != "stop":
        return (), None
    holds: list[Reason] = []
    reached = state.stop_reached_at or now
    confirm = timedelta(minutes=settings.confirm_minutes)
    due = reached + timedelta(minutes=settings.grace_minutes)
    if now < due:
        holds.append(because(ReasonCode.GRACE, due=_clock(due)))
    for edit in snapshot.edits:
        until = edit.at + confirm
        if now < until:
            facts = {"names": edit.name, "at": _clock(edit.at), "by": edit.by, "due": _clock(until)}
            holds.append(because(ReasonCode.THRESHOLD_EDITED, **facts))
            due = max(due, until)
    if state.jump_at is not None and now < state.jump_at + confirm:
        until = state.jump_at + confirm
        holds.append(
            because(
                ReasonCode.SPEND_JUMPED,
                jump_usd=f"{state.jump_usd:.2f}",
                believable_usd=f"{state.believable_usd:.2f}",
                due=_clock(until),
            )
        )
        due = max(due, until)
    if settings.mode is Mode.OBSERVE:
        return (because(ReasonCode.MODE_OBSERVE),), due
    pause = snapshot.pause
    if pause.active and not pause.readable:
        holds.insert(0, because(ReasonCode.PAUSE_UNREADABLE, why=pause.reason))
    elif pause.active:
        until_text = f" until {_clock(pause.until)}" if pause.until else ""
        why = f": {pause.reason}" if pause.reason else ""
        holds.insert(0, because(ReasonCode.PAUSED, until=until_text, why=why))
    return tuple(holds), due


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _judge(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    ledger: tuple[StopEntry, ...],
    state: GuardState,
    now: datetime,
) -> tuple[tuple[InstanceVerdict, ...], StopLimits]:
    """A verdict for every GPU instance: victims first, in the order of least regret, then the spared ones."""
    candidates: list[Instance] = []
    spared: list[tuple[Instance, Reason]] = []
    begin = period_start(now)
    restarted = {e.instance_id for e in ledger if e.status is StopStatus.RESTARTED and e.updated_at >= begin}
    tried = {(entry.instance_id, entry.launched_at): entry for entry in ledger}
    grace = timedelta(minutes=settings.grace_minutes)
    for instance in snapshot.fleet.instances:
        reason = _spare_reason(instance, settings, restarted)
        earlier = tried.get((instance.instance_id, instance.launched_at)) if instance.launched_at else None
        if reason is None and earlier is not None:
            reason = _rest_reason(earlier, now)
        reached = state.stop_reached_at
        if reason is None and reached is not None and instance.launched_at is not None:
            due = instance.launched_at + grace
            if instance.launched_at > reached and now < due:
                reason = because(ReasonCode.JUST_LAUNCHED, due=_clock(due))
        if reason is None:
            candidates.append(instance)
        else:
            spared.append((instance, reason))
    # What failed before goes last, so that machines that refuse do not keep the others from their turn.
    troubled = {key for key, e in tried.items() if e.status in (StopStatus.FAILED, StopStatus.WITHHELD)}
    candidates.sort(key=lambda i: ((i.instance_id, i.launched_at) in troubled, _regret(i, snapshot.prices)))

    ours = [
        entry
        for entry in ledger
        if entry.status in (StopStatus.ACCEPTED, StopStatus.STOPPED) and entry.decided_at >= begin
    ]
    not_critical = [i for i in snapshot.fleet.instances if i.governance.stoppable and i.state is InstanceState.RUNNING]
    base = len(not_critical) + len(ours)
    limits = StopLimits(
        max_count=settings.max_stops_per_run,
        max_total=share_of(settings.max_stop_percent, base),
        already_stopped=len(ours),
    )
    room = max(0, limits.max_total - limits.already_stopped)
    verdicts = []
    for place, instance in enumerate(candidates):
        if place >= room:
            reason = because(ReasonCode.OVER_MAX_STOP_PERCENT, allowed=limits.max_total, base=base)
            verdicts.append(_verdict(instance, Verdict.SPARE, reason, snapshot.prices))
        elif place >= limits.max_count:
            verdicts.append(_verdict(instance, Verdict.SPARE, because(ReasonCode.NEXT_RUN), snapshot.prices))
        else:
            facts = {"criticality": instance.governance.criticality.value, "family": instance.family}
            reason = because(ReasonCode.WITHIN_REACH, **facts)
            verdicts.append(_verdict(instance, Verdict.STOP, reason, snapshot.prices))
    spared.sort(key=lambda pair: (pair[0].region, pair[0].instance_id))
    verdicts.extend(_verdict(instance, Verdict.SPARE, reason, snapshot.prices) for instance, reason in spared)
    return tuple(verdicts), limits


def _spare_reason(instance: Instance, settings: BudgetSettings, restarted: set[str]) -> Reason | None:
    """Why an instance is not a victim, or None. The first reason that applies, most important first."""
    governance = instance.governance
    if not governance.managed:
        return because(ReasonCode.NOT_MANAGED)
    if governance.criticality is Criticality.CRITICAL:
        unread = [f for f in governance.findings if f is not TagFinding.MANAGED_NOT_EXACT]
        finding = f" ({', '.join(unread)})" if unread else ""
        return because(ReasonCode.CRITICAL, finding=finding)
    if instance.state is not InstanceState.RUNNING:
        return because(ReasonCode.NOT_RUNNING, state=instance.state.value)
    if instance.family not in settings.stop_families:
        return because(ReasonCode.OUT_OF_SCOPE_FAMILY, family=instance.family)
    if not governance.exact:
        return because(ReasonCode.TAG_NOT_EXACT, finding=", ".join(governance.findings))
    if instance.kind is not InstanceKind.PLAIN:
        owner = f" of {instance.owner}" if instance.owner else ""
        return because(ReasonCode.KIND_NOT_HANDLED, kind=instance.kind.value, owner=owner)
    if instance.launched_at is None:
        return because(ReasonCode.NOT_RUNNING, state="of unknown launch time")
    if instance.instance_id in restarted:
        return because(ReasonCode.STARTED_AFTER_OUR_STOP)
    return None


def _rest_reason(entry: StopEntry, now: datetime) -> Reason | None:
    """Why an instance whose stop was tried is not tried again now, or None."""
    if entry.status is StopStatus.ACCEPTED:
        return because(ReasonCode.STOP_UNDERWAY)
    lasting = (
        ReasonCode.KIND_NOT_HANDLED,
        ReasonCode.NOT_MANAGED,
        ReasonCode.CRITICAL,
        ReasonCode.TAG_NOT_EXACT,
    )
    due = entry.updated_at + WITHHELD_REST
    if entry.status is StopStatus.WITHHELD and entry.withheld_code in lasting and now < due:
        return because(ReasonCode.WITHHELD_LATELY, what=entry.detail, due=_clock(due))
    return None


def _regret(instance: Instance, prices: PriceCatalogue) -> tuple[int, bool, float, float, str, str]:
    """Least regret first: preemptible, types that come back, youngest (least work lost), dearest, then by id.

    Worked example: a preemptible g4dn of ten minutes goes before a preemptible g4dn of three days, both go before a
    preemptible p4d (its slot may be lost), and all of them before anything standard.
    """
    price = prices.price_of(instance.instance_type)
    launched = instance.launched_at.timestamp() if instance.launched_at else 0.0
    return (
        0 if instance.governance.criticality is Criticality.PREEMPTIBLE else 1,
        instance.scarce,
        -launched,
        -(price.usd_per_hour if price else 0.0),
        instance.region,
        instance.instance_id,
    )


def _verdict(instance: Instance, verdict: Verdict, reason: Reason, prices: PriceCatalogue) -> InstanceVerdict:
    price = prices.price_of(instance.instance_type)
    loses: tuple[str, ...] = ("contents of its local NVMe disks and its memory",)
    if instance.scarce:
        loses = (*loses, "its slot: this type is scarce and may not start again soon")
    return InstanceVerdict(
        instance_id=instance.instance_id,
        region=instance.region,
        instance_type=instance.instance_type,
        verdict=verdict,
        reason=reason,
        usd_per_hour=price.usd_per_hour if price and is_billed(instance) else (0.0 if price else None),
        launched_at=instance.launched_at,
        name=instance.name,
        project=instance.governance.project,
        pool=instance.governance.pool,
        loses=loses if verdict is Verdict.STOP else (),
    )


def _money(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    meter: MeterReading,
    verdicts: tuple[InstanceVerdict, ...],
    level: _Level,
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
    actual = snapshot.budget.actual_usd if level.percent is not None else None  # type: ignore[union-attr]
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
        rule=f"{period} stop at {_threshold_key(settings)}",
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
    if earlier is not None and earlier.open:
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
        if not decision.stops and not _ever_stopped(ledger, now):
            told.append(budget_messages.nothing_to_stop(scene))
    elif decision.level == "stop":
        if ReasonCode.MODE_OBSERVE in codes:
            told.append(budget_messages.would_stop(scene))
        elif state.paused_since is not None:
            told.append(budget_messages.held_by_pause(scene, state.paused_since, readable=snapshot.pause.readable))
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


def _ever_stopped(ledger: tuple[StopEntry, ...], now: datetime) -> bool:
    return any(entry.decided_at >= period_start(now) for entry in ledger)


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
        if moved and not under_way and any(e.status is StopStatus.STOPPED for e in entries):
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
