"""Which figure of AWS Budgets is believed, which level it means, and what holds a stop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from governor.domain.budget_snapshot import BudgetReading, BudgetSnapshot, GuardState, UnknownBudget
from governor.domain.eligibility import overridden, paused
from governor.domain.ledger import StopStatus
from governor.domain.meter import BILLING_LAG_HOURS, MeterReading, period_of, period_start
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.settings import BudgetSettings, Mode, to_text

OUTAGE_PATIENCE = timedelta(minutes=15)
"""What cannot be read for so long is told; three runs, so that one throttled call wakes nobody."""

NEW_MONTH_DOUBT = timedelta(hours=36)
"""So long after the turn of a month a figure may still be the old month's (data is up to 24 h late, then rounding)."""

NOTICE_HOLDS = timedelta(hours=24)
"""So long a notice that was given before the crossing counts as the grace (AWS Budgets is up to 24 h late)."""

JUMP_PATIENCE = timedelta(hours=1)
"""So long after an edit or a jump the stops come in waves."""

CONTROL_INTERVAL = timedelta(minutes=5)
"""The guard runs at least this often."""

FALL_RATIO = 0.5

FALL_DOUBT = timedelta(hours=24)
"""A figure that falls below half within a month (the budget was replaced or updated) is not believed for a day."""

JUMP_SHARE_OF_LIMIT = 0.05

JUMP_BURN_FACTOR = 1.5
"""A new reading is believed at once up to 1.5 times what the fleet burns in the billing lag, plus 5 % of the limit."""


@dataclass(frozen=True, slots=True)
class Level:
    """`below`, `warn`, `stop` or `unknown`, the share of the limit in percent (None: unknown), and why.

    At `stop`, `scope` says who is to be stopped: `preemptible` instances alone, or `all` that are not critical.
    """

    name: str
    percent: float | None
    reasons: tuple[Reason, ...]
    scope: str = ""


def advance_state(snapshot: BudgetSnapshot, settings: BudgetSettings, meter: MeterReading, now: datetime) -> GuardState:
    """What is remembered after this run, and which figure of AWS Budgets is believed (`actual_usd`).

    Worked example of a new month: November ended at 960 USD. On 1 December at 00:10 the budget still says 959.99; ten
    minutes of the fleet cannot have cost that, so the figure is unknown. At 09:00 it says 31, which nine hours can
    have cost: believed. If 959.99 comes back at 09:05, it is unknown again. What is still unbelievable after 36 hours
    is believed, and held as a jump.
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
        known = last.actual_usd is not None
        last = replace(
            GuardState(period, now, new_month=True),
            last_period_actual_usd=last.actual_usd if known else last.last_period_actual_usd,
            last_period=last.period if known else last.last_period,
            paused_since=last.paused_since,
            pause_unread_since=last.pause_unread_since,
            unknown_since=last.unknown_since,
            running_since=last.running_since or last.decided_at,
            observing_since=last.observing_since,
            digests=last.digests,
        )
    state = replace(last, decided_at=now, blind_regions=blind)
    if actual is None:
        return replace(state, unknown_since=state.unknown_since or now)
    state = replace(state, unknown_since=None)
    if state.new_month:
        believable = _believable_in_new_month(snapshot, settings, meter, now)
        within = now - period_start(now) < NEW_MONTH_DOUBT
        if within and (actual > believable or _is_last_months(actual, state, settings)):
            return replace(state, doubted=True)
        if actual > believable:
            state = replace(state, jump_at=now, jump_usd=actual, believable_usd=believable)
        state = replace(state, doubted=False, new_month=within)
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
        believable = _believable_usd(snapshot, settings, meter, now, hours)
        jump = actual - before
        if jump > believable:
            state = replace(state, jump_at=now, jump_usd=jump, believable_usd=believable)
        state = replace(state, actual_usd=actual, actual_moved_at=now)
    return state


def _is_last_months(actual: float, state: GuardState, settings: BudgetSettings) -> bool:
    """True for exactly the figure at which the last month ended, unless it is next to nothing."""
    last = state.last_period_actual_usd
    return last is not None and abs(actual - last) < 0.005 and actual > JUMP_SHARE_OF_LIMIT * settings.limit_usd


def _believable_in_new_month(
    snapshot: BudgetSnapshot, settings: BudgetSettings, meter: MeterReading, now: datetime
) -> float:
    """The most that this month can have cost so far, USD."""
    return _believable_usd(snapshot, settings, meter, now, (now - period_start(now)).total_seconds() / 3600)


def _believable_usd(
    snapshot: BudgetSnapshot, settings: BudgetSettings, meter: MeterReading, now: datetime, hours: float
) -> float:
    """The most that the fleet, with what was stopped lately, can have cost in `hours`, USD."""
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


def advance_level(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    state: GuardState,
    level: Level,
    meter: MeterReading,
    now: datetime,
) -> GuardState:
    """Since when the stop level stands armed and not paused, and since when a pause holds it.

    A figure that is unknown for a moment, or a pause that cannot be read for a moment, changes neither; what lasts
    begins anew, with a notice and its grace.
    """
    pause = snapshot.controls.pause
    unread = (state.pause_unread_since or now) if not pause.readable else None
    state = replace(state, pause_unread_since=unread)
    if pause.active and pause.readable:
        paused = (state.paused_since or now) if level.name == "stop" else state.paused_since
        return replace(state, stop_reached_at=None, paused_since=paused)
    if pause.readable:
        state = replace(state, paused_since=None)
    if level.name == "unknown":
        lasting = state.unknown_since is not None and now - state.unknown_since >= OUTAGE_PATIENCE
        return replace(state, stop_reached_at=None) if lasting or state.doubted or state.fell_at else state
    if level.name != "stop" or settings.mode is not Mode.ENFORCE:
        return replace(state, stop_reached_at=None, stop_scope="")
    if unread is not None and now - unread >= OUTAGE_PATIENCE:
        return replace(state, stop_reached_at=None)
    if snapshot.controls.override_of_budget(now, spent_usd(state, meter)) is not None:
        return replace(state, stop_reached_at=None, noticed_at=None)
    if state.stop_reached_at is not None and state.stop_scope == "preemptible" and level.scope == "all":
        # The standard ones have had no notice yet.
        return replace(state, stop_reached_at=now, stop_scope=level.scope)
    # A notice that went out before the crossing has begun the grace already.
    noticed = state.noticed_at if state.noticed_at and now - state.noticed_at < NOTICE_HOLDS else None
    return replace(state, stop_reached_at=state.stop_reached_at or noticed or now, stop_scope=level.scope)


def spent_usd(state: GuardState, meter: MeterReading) -> float | None:
    """The month's spend as far as it is known: the larger of the believed figure and what runs must have cost."""
    return None if state.actual_usd is None else max(state.actual_usd, meter.spent_at_least_usd)


def predict_crossing(
    settings: BudgetSettings, state: GuardState, level: Level, meter: MeterReading, now: datetime
) -> datetime | None:
    """When the run rate brings the spend to the stop level, where that is within the grace; None otherwise.

    Worked example: 900 USD were reported at 08:00, the fleet burns 20 USD an hour, the stop level is 950 USD. At 10:25
    some 948.33 USD are spent; 950 are reached at 10:30, so with a grace of 5 minutes the notice goes out now.
    """
    rate = meter.run_rate_usd_per_hour
    known = spent_usd(state, meter)
    if level.name not in ("below", "warn") or known is None or rate <= 0 or settings.grace_minutes == 0:
        return None
    moved = state.actual_moved_at or now
    hours = min((now - moved).total_seconds() / 3600, BILLING_LAG_HOURS)
    estimate = max(known, (state.actual_usd or 0.0) + rate * hours)
    target = min(settings.stop_percent, settings.stop_preemptible_at_percent) / 100 * settings.limit_usd
    ahead = timedelta(hours=max(0.0, target - estimate) / rate)
    within = timedelta(minutes=settings.grace_minutes) + CONTROL_INTERVAL
    return now + ahead if ahead <= within else None


def advance_notice(
    snapshot: BudgetSnapshot, settings: BudgetSettings, state: GuardState, crossing: datetime | None, now: datetime
) -> GuardState:
    """Since when a crossing is predicted while the guard is armed and nothing holds it."""
    pause = snapshot.controls.pause
    if crossing is None or settings.mode is not Mode.ENFORCE or pause.active:
        return state if state.stop_reached_at is not None else replace(state, noticed_at=None)
    return replace(state, noticed_at=state.noticed_at or now)


def threshold_key(settings: BudgetSettings) -> str:
    """Names a stop level: its percent and the limit; another value of either is another level."""
    return f"{to_text(settings.stop_percent)}% of {to_text(settings.limit_usd)}"


def level_of(
    snapshot: BudgetSnapshot, settings: BudgetSettings, state: GuardState, meter: MeterReading, now: datetime
) -> Level:
    """The level that the believed figure means."""
    budget = snapshot.budget
    if isinstance(budget, UnknownBudget):
        return Level("unknown", None, (because(ReasonCode.BUDGET_UNKNOWN, why=budget.why),))
    if state.doubted:
        reason = because(
            ReasonCode.PERIOD_JUST_CHANGED,
            actual_usd=f"{budget.actual_usd:.2f}",
            believable_usd=f"{_believable_in_new_month(snapshot, settings, meter, now):.2f}",
            last_usd="unknown" if state.last_period_actual_usd is None else f"{state.last_period_actual_usd:.2f}",
        )
        return Level("unknown", None, (reason,))
    if state.fell_at is not None:
        reason = because(
            ReasonCode.SPEND_FELL,
            actual_usd=f"{budget.actual_usd:.2f}",
            last_usd=f"{state.actual_usd or 0.0:.2f}",
            due=clock_text(state.fell_at + FALL_DOUBT),
        )
        return Level("unknown", None, (reason,))
    percent = budget.actual_usd / settings.limit_usd * 100
    shown = f"{percent:.1f}"
    if percent >= settings.stop_percent:
        stop = because(ReasonCode.STOP_REACHED, percent=shown, stop_percent=to_text(settings.stop_percent))
        return Level("stop", percent, (stop,), scope="all")
    early = settings.stop_preemptible_at_percent
    if percent >= early:
        stop = because(ReasonCode.STOP_PREEMPTIBLE_REACHED, percent=shown, stop_percent=to_text(early))
        return Level("stop", percent, (stop,), scope="preemptible")
    if percent >= settings.warn_percent:
        warn = because(ReasonCode.WARN_REACHED, percent=shown, warn_percent=to_text(settings.warn_percent))
        return Level("warn", percent, (warn,))
    below = because(ReasonCode.BELOW_WARN, percent=shown, warn_percent=to_text(settings.warn_percent))
    return Level("below", percent, (below,))


def holds_of(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    state: GuardState,
    level: Level,
    meter: MeterReading,
    now: datetime,
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
        holds.append(because(ReasonCode.GRACE, due=clock_text(due)))
    for edit in snapshot.edits:
        until = edit.at + confirm
        if now < until:
            facts = {"names": edit.name, "at": clock_text(edit.at), "by": edit.by, "due": clock_text(until)}
            holds.append(because(ReasonCode.THRESHOLD_EDITED, **facts))
            due = max(due, until)
    if state.jump_at is not None and now < state.jump_at + confirm:
        until = state.jump_at + confirm
        holds.append(
            because(
                ReasonCode.SPEND_JUMPED,
                jump_usd=f"{state.jump_usd:.2f}",
                believable_usd=f"{state.believable_usd:.2f}",
                due=clock_text(until),
            )
        )
        due = max(due, until)
    if settings.mode is Mode.OBSERVE:
        return (because(ReasonCode.MODE_OBSERVE),), due
    override = snapshot.controls.override_of_budget(now, spent_usd(state, meter))
    if override is not None:
        holds.insert(0, overridden(override))
    pause = snapshot.controls.pause
    if pause.active:
        holds.insert(0, paused(pause))
    return tuple(holds), due


def clock_text(moment: datetime) -> str:
    """A moment as people read it: to the minute, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
