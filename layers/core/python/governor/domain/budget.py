"""The budget guard's decision: warn at one share of the month's limit, stop what is not critical at another."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from governor.domain import budget_messages
from governor.domain.budget_level import (
    JUMP_SHARE_OF_LIMIT,
    OUTAGE_PATIENCE,
    Level,
    advance_level,
    advance_notice,
    advance_state,
    holds_of,
    level_of,
    predict_crossing,
    spent_usd,
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
from governor.domain.budget_victims import OUT_OF_REACH_FOR_NOW, Judgement, Need, judge
from governor.domain.decisions import Decision, InstanceVerdict, Message, Money, StopInstance, StopMethod, Verdict
from governor.domain.digest import advance_digests
from governor.domain.eligibility import STANDBY, groups_by_key
from governor.domain.fleet import Instance, InstanceKind
from governor.domain.groups import GroupHold
from governor.domain.guard import StopLimits
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.meter import (
    BILLING_LAG_HOURS,
    MeterReading,
    hours_left,
    period_start,
    read_meter,
)
from governor.domain.outcomes import OutcomeScene, follow_ledger, tell_outcomes
from governor.domain.reasons import Reason, ReasonCode
from governor.domain.restore import RestoreVerdict, plan_restore, withdraw_restores
from governor.domain.settings import BudgetSettings, Mode

PERCENT_STEP = 25
WIDE_STEPS_FROM = 200
WIDE_PERCENT_STEP = 100
"""While nothing is within reach, people are told again at each such share of the limit; above twice it, less often."""


@dataclass(frozen=True, slots=True)
class GuardPlan:
    """A decision with what must be remembered: the new state, the ledger entries that changed, the call limits.

    `intended` holds one entry for each stop of the decision, in its order; `holds` the groups of which something is
    about to be changed, with their sizes before; `refused` what a person asked back and does not get, with why.
    """

    decision: Decision
    state: GuardState
    ledger: tuple[StopEntry, ...]
    limits: StopLimits
    intended: tuple[StopEntry, ...] = ()
    holds: tuple[GroupHold, ...] = ()
    refused: tuple[RestoreVerdict, ...] = ()
    spent_usd: float | None = None


def decide(snapshot: BudgetSnapshot, settings: BudgetSettings, now: datetime) -> GuardPlan:
    """Compare the month's spend with the thresholds and say what is to be stopped, started and told. Pure and total.

    `now` is aware UTC and not before `snapshot.state.decided_at`. Unknown data never stops anything.
    """
    ledger = follow_ledger(snapshot.ledger, snapshot.fleet, snapshot.restore_settings, now)
    counted = snapshot.counted_families
    metered = tuple(i for i in snapshot.fleet.instances if counted is None or i.family in counted)
    meter = read_meter(metered, snapshot.prices, now)
    state = advance_state(snapshot, settings, meter, now)
    level = level_of(snapshot, settings, state, meter, now)
    state = advance_level(snapshot, settings, state, level, meter, now)
    crossing = predict_crossing(settings, state, level, meter, now)
    state = advance_notice(snapshot, settings, state, crossing, now)
    holds, due = holds_of(snapshot, settings, state, level, meter, now)
    if level.name == "stop":
        ledger = withdraw_restores(ledger, now)

    spent = spent_usd(state, meter)
    money = _money(snapshot, settings, meter, level, now)
    over = None if money.forecast_high_usd is None else money.forecast_high_usd - settings.limit_usd
    notice = state.noticed_at is not None and settings.mode is Mode.ENFORCE
    need = Need(level, over, held=bool(holds) or level.name != "stop", due=due, spent_usd=spent, notice=notice)
    judged = judge(snapshot, settings, ledger, state, now, need)
    money = _with_reach(money, settings, judged.verdicts, snapshot)
    by_id = {instance.instance_id: instance for instance in snapshot.fleet.instances}
    would_stop = tuple(v for v in judged.verdicts if v.verdict is Verdict.STOP) if level.name == "stop" else ()
    stops: tuple[StopInstance, ...] = ()
    if would_stop and not holds:
        stops = tuple(
            _stop_action(v, by_id[v.instance_id], settings, state.period) for v in would_stop if v.launched_at
        )
    may_run = settings.mode is Mode.ENFORCE and not _forbids_checkpoints(holds)
    decision = Decision(
        function=FUNCTION,
        decided_at=now,
        settings_version=snapshot.settings_version,
        mode=settings.mode,
        level=level.name,
        reasons=level.reasons,
        holds=holds,
        verdicts=judged.verdicts,
        stops=stops,
        money=money,
        checkpoints=judged.checkpoints if may_run and (level.name == "stop" or notice) else (),
    )
    back = plan_restore(snapshot, settings, ledger, level.name, money, decision.decision_id, now)
    decision = replace(decision, restores=back.restores)
    known = {(entry.instance_id, entry.launched_at): entry for entry in ledger}
    standing = {e.instance_id for e in ledger if e.standby_by_us}
    intended = tuple(_intend(stop, by_id[stop.instance_id], decision, known, standing) for stop in stops)
    begin = period_start(now)
    fresh = {s.instance_id for s in stops if not _told_before(known.get((s.instance_id, s.launched_at)), begin)}
    told = _messages(snapshot, settings, state, decision, judged, ledger, frozenset(fresh), due, crossing, now)
    state, digests = advance_digests(snapshot, settings, state, decision, ledger, now)
    decision = replace(decision, messages=(*told, *back.messages, *digests))
    before = {(entry.instance_id, entry.launched_at): entry for entry in snapshot.ledger}
    merged = {(entry.instance_id, entry.launched_at): entry for entry in (*ledger, *back.entries, *intended)}
    changed = tuple(entry for key, entry in sorted(merged.items()) if before.get(key) != entry)
    state = replace(state, fingerprint=_fingerprint(decision))
    return GuardPlan(
        decision,
        state,
        changed,
        judged.limits,
        intended,
        _holds_to_be(snapshot, decision),
        tuple(v for v in back.verdicts if not v.restorable) if snapshot.request is not None else (),
        spent,
    )


def _forbids_checkpoints(holds: tuple[Reason, ...]) -> bool:
    """True where a person or an unreadable pause holds the stops: then nothing is run on the machines either."""
    waiting = (ReasonCode.GRACE, ReasonCode.THRESHOLD_EDITED, ReasonCode.SPEND_JUMPED)
    return any(hold.code not in waiting for hold in holds)


def _holds_to_be(snapshot: BudgetSnapshot, decision: Decision) -> tuple[GroupHold, ...]:
    """For each group that a stop touches, its sizes before our first change and what we are about to set."""
    groups = groups_by_key(snapshot.fleet.groups)
    holds = {(hold.region, hold.name): hold for hold in snapshot.holds if hold.open}
    shrinking = (StopMethod.STANDBY_AND_STOP, StopMethod.LOWER)
    leaving = Counter((s.region, s.group) for s in decision.stops if s.method in shrinking)
    changed = []
    for key, number in sorted(leaving.items()):
        group = groups.get(key)
        if group is None:
            continue
        target = max(0, group.desired - number)
        hold = holds.get(key)
        if hold is None:
            hold = GroupHold(
                name=group.name,
                region=group.region,
                min_before=group.min_size,
                desired_before=group.desired,
                min_set=min(group.min_size, target),
                desired_expected=target,
                held_since=decision.decided_at,
                updated_at=decision.decided_at,
                decision_id=decision.decision_id,
            )
        else:
            least = min(hold.min_set, target)
            hold = replace(hold, min_set=least, desired_expected=target, updated_at=decision.decided_at)
        changed.append(hold)
    return tuple(changed)


def _told_before(entry: StopEntry | None, begin: datetime) -> bool:
    """True where people know of this stop, in this month. One that a pause withheld is told again when it goes on."""
    if entry is None or entry.decided_at < begin:
        return False
    paused = entry.withheld_code in (ReasonCode.PAUSED, ReasonCode.PAUSE_UNREADABLE)
    return entry.open or (entry.status is StopStatus.WITHHELD and not paused)


def _money(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    meter: MeterReading,
    level: Level,
    now: datetime,
) -> Money:
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
        reachable_usd_per_hour=0.0,
        untagged_usd_per_hour=0.0,
        saves_usd_per_hour=0.0,
        prices_dated=f"{snapshot.prices.region}, {snapshot.prices.dated}",
        unpriced=meter.unpriced,
    )


def _with_reach(
    money: Money, settings: BudgetSettings, verdicts: tuple[InstanceVerdict, ...], snapshot: BudgetSnapshot
) -> Money:
    """What can be stopped, what cannot for want of a tag, and what this decision saves, USD per hour."""
    in_scope = {i.instance_id for i in snapshot.fleet.instances if i.family in settings.stop_families}
    untagged = (ReasonCode.NOT_MANAGED, ReasonCode.TAG_NOT_EXACT)
    stopped = [v for v in verdicts if v.verdict is Verdict.STOP]
    soon = [v for v in verdicts if v.reason.code in OUT_OF_REACH_FOR_NOW]
    missing = [v for v in verdicts if v.instance_id in in_scope and v.reason.code in untagged]

    def rate(of: list[InstanceVerdict]) -> float:
        return sum(v.usd_per_hour or 0.0 for v in of)

    return replace(
        money,
        reachable_usd_per_hour=rate(stopped) + rate(soon),
        untagged_usd_per_hour=rate(missing),
        saves_usd_per_hour=rate(stopped),
    )


def _stop_action(verdict: InstanceVerdict, instance: Instance, settings: BudgetSettings, period: str) -> StopInstance:
    assert verdict.launched_at is not None
    return StopInstance(
        instance_id=verdict.instance_id,
        region=verdict.region,
        launched_at=verdict.launched_at,
        ledger_reason=LEDGER_REASON,
        rule=f"{period} stop at {threshold_key(settings)}",
        usd_per_hour=verdict.usd_per_hour,
        method=verdict.method or StopMethod.STOP,
        group=instance.owner if instance.kind is InstanceKind.GROUP_MEMBER else "",
        spot_request_id=instance.spot.request_id if instance.spot else "",
    )


def _intend(
    stop: StopInstance,
    instance: Instance,
    decision: Decision,
    known: dict[tuple[str, datetime], StopEntry],
    standing: set[str],
) -> StopEntry:
    """The ledger entry of a stop. An open one of an earlier try is kept, so that it is told only once."""
    earlier = known.get((stop.instance_id, stop.launched_at))
    if earlier is not None and earlier.open and earlier.decided_at >= period_start(decision.decided_at):
        return replace(earlier, status=StopStatus.INTENDED)
    # A person may have started it in our standby: it is still we who put it there.
    ours = instance.member_state == STANDBY and stop.instance_id in standing
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
        instance_type=instance.instance_type,
        usd_per_hour=stop.usd_per_hour,
        method=stop.method.value,
        group=stop.group,
        standby_by_us=ours or stop.method is StopMethod.STANDBY_AND_STOP,
        criticality=instance.governance.criticality.value,
        name=instance.name,
        project=instance.governance.project,
    )


def _messages(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    state: GuardState,
    decision: Decision,
    judged: Judgement,
    ledger: tuple[StopEntry, ...],
    fresh: frozenset[str],
    due: datetime | None,
    crossing: datetime | None,
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
    outcome = OutcomeScene(
        snapshot.stage, snapshot.home_region, snapshot.budget.name, now, settings.manual_start_grace_hours
    )
    told = list(tell_outcomes(snapshot.ledger, ledger, outcome))
    if settings.mode is Mode.OFF:
        return tuple(told)
    told.extend(budget_messages.group_changed(scene, *found) for found in judged.changed_groups)
    would_stop = any(v.verdict is Verdict.STOP for v in decision.verdicts)
    codes = {hold.code for hold in decision.holds}
    if decision.level == "unknown":
        told.extend(_unknown_messages(snapshot, scene, state, now))
    elif decision.level in ("warn", "below"):
        if decision.level == "warn":
            told.append(budget_messages.warn_reached(scene))
        if state.noticed_at is not None and crossing is not None and would_stop:
            told.append(budget_messages.crossing_predicted(scene, crossing))
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
        elif codes & {ReasonCode.OVERRIDDEN, ReasonCode.OVERRIDE_UNREADABLE}:
            told.append(budget_messages.held_by_override(scene))
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
    quiet = {ReasonCode.STOP_UNDERWAY, ReasonCode.NEXT_WAVE, ReasonCode.CHECKPOINT_RUNNING, ReasonCode.ENOUGH}
    if codes & quiet or scene.money.run_rate_usd_per_hour <= 0:
        return []
    percent = scene.money.percent or 0.0
    width = PERCENT_STEP if percent < WIDE_STEPS_FROM else WIDE_PERCENT_STEP
    step = int(percent // width * width)
    tried = any(entry.decided_at >= period_start(now) for entry in ledger)
    if tried and step <= scene.settings.stop_percent:
        return []
    return [budget_messages.nothing_to_stop(scene, step)]


def _fingerprint(decision: Decision) -> str:
    """Short digest of what a decision says, so that the same thing is recorded once and not every five minutes."""
    said = [
        decision.mode.value,
        decision.level,
        str(decision.settings_version),
        *[hold.code.value for hold in decision.holds],
        *[f"start {restore.instance_id}{restore.launched_at}" for restore in decision.restores],
        *[f"{v.instance_id}{v.verdict.value}{v.reason.code.value}" for v in decision.verdicts],
    ]
    return hashlib.sha256("|".join(said).encode()).hexdigest()[:16]
