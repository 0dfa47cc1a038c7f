"""A verdict for each instance: who is stopped, how and in which order, and why the others are not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from governor.domain.budget_checkpoints import CheckpointView, view_checkpoint
from governor.domain.budget_level import JUMP_PATIENCE, Level, clock_text
from governor.domain.budget_snapshot import BudgetSnapshot, GuardState
from governor.domain.decisions import InstanceVerdict, RunCheckpoint, StopMethod, Verdict
from governor.domain.eligibility import Surroundings, groups_by_key, method_of, objection_to
from governor.domain.fleet import FleetSnapshot, Instance, InstanceKind, InstanceState
from governor.domain.groups import change_by_others, held_members
from governor.domain.guard import StopLimits, share_of
from governor.domain.ledger import RETURNING_STATUSES, StopEntry, StopStatus
from governor.domain.meter import hours_left, is_billed, period_start
from governor.domain.prices import PriceCatalogue
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.settings import BudgetSettings, StopPolicy, to_text
from governor.domain.tags import Criticality

WITHHELD_REST = timedelta(hours=1)
"""A machine that was left at the last moment for what it is (protected, changed) is looked at again after this."""

WAVE_PAUSE = timedelta(minutes=4)
"""Between two waves, so that runs which follow each other at once do not make one of them."""

LASTING = (
    ReasonCode.KIND_NOT_HANDLED,
    ReasonCode.NOT_MANAGED,
    ReasonCode.CRITICAL,
    ReasonCode.TAG_NOT_EXACT,
    ReasonCode.STOP_PROTECTED,
    ReasonCode.GROUP_CRITICAL,
    ReasonCode.GROUP_NOT_MANAGED,
    ReasonCode.GROUP_SCALES_ITSELF,
    ReasonCode.OWNED_ELSEWHERE,
    ReasonCode.CANNOT_STOP,
)
"""What a machine was left for at the last moment and what will not have changed in the next minutes."""

_COMING_BACK = frozenset({StopStatus.RESTORED, StopStatus.GAVE_UP, *RETURNING_STATUSES})
"""A person asked for it; it may run already while its group has not taken it back."""

SEEN_WITHIN = timedelta(minutes=5)
"""A launch is seen by the next scheduled run; with it the notice comes no less than the grace before the stop."""

OUT_OF_REACH_FOR_NOW = frozenset({ReasonCode.NEXT_RUN, ReasonCode.NEXT_WAVE, ReasonCode.JUST_LAUNCHED})
"""Spared now, stopped soon: counted as within reach."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts, victims first in the order of least regret; what one call may stop; checkpoints to be run now."""

    verdicts: tuple[InstanceVerdict, ...]
    limits: StopLimits
    checkpoints: tuple[RunCheckpoint, ...] = ()
    changed_groups: tuple[tuple[str, str, str], ...] = ()
    """(Region, group, what somebody else changed) of groups that we hold."""


@dataclass(frozen=True, slots=True)
class Need:
    """What judging needs of the decision: its level, the forecast, what holds the stops, and when they are due."""

    level: Level
    over_usd: float | None = None
    """By how much the forecast exceeds the limit, USD; None where it is unknown."""
    held: bool = False
    due: datetime | None = None
    spent_usd: float | None = None
    notice: bool = False
    """True where the crossing is predicted: checkpoints may begin."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    instance: Instance
    checkpoint: CheckpointView
    troubled: bool = False
    notes: tuple[Reason, ...] = field(default=())


def judge(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    ledger: tuple[StopEntry, ...],
    state: GuardState,
    now: datetime,
    need: Need,
) -> Judgement:
    """A verdict for every GPU instance. Pure and total."""
    prices = snapshot.prices
    around = surroundings_of(snapshot, settings, now, need.spent_usd)
    changed = _groups_changed_by_others(snapshot, ledger)
    spared: list[tuple[Instance, Reason]] = []
    candidates: list[_Candidate] = []
    tried = {(entry.instance_id, entry.launched_at): entry for entry in ledger}
    started = _started_by_people(ledger, snapshot.fleet, settings)
    for instance in snapshot.fleet.instances:
        reason = objection_to(instance, around)
        earlier = tried.get((instance.instance_id, instance.launched_at)) if instance.launched_at else None
        if reason is None:
            reason = (
                _changed_reason(instance, changed)
                or _person_reason(instance, started, now)
                or (_rest_reason(earlier, now) if earlier is not None else None)
                or _launch_reason(instance, settings, state, now)
                or _scope_reason(instance, settings, need.level)
                or _saving_reason(instance, settings, prices, now)
            )
        if reason is not None:
            spared.append((instance, reason))
            continue
        view = view_checkpoint(instance, snapshot, settings, now)
        troubled = view.failed or (earlier is not None and earlier.status in (StopStatus.FAILED, StopStatus.WITHHELD))
        candidates.append(_Candidate(instance, view, troubled))
    # What failed before goes last, so that machines that refuse do not keep the others from their turn.
    candidates.sort(key=lambda c: (c.troubled, _regret(c.instance, prices)))
    candidates, covered = _without_covered(candidates, snapshot.fleet)
    spared.extend(covered)
    candidates, unneeded = _enough(candidates, settings, prices, need, ledger, snapshot.fleet, now)
    spared.extend(unneeded)

    limits, base = _limits(snapshot, settings, ledger, [c.instance for c in candidates], now)
    room = max(0, limits.max_total - limits.already_stopped)
    wave = _wave(snapshot, settings, state, ledger, len(candidates), now)
    limits = StopLimits(min(limits.max_count, wave), limits.max_total, limits.already_stopped)
    verdicts: list[InstanceVerdict] = []
    runs: list[RunCheckpoint] = []
    taken = 0
    for place, candidate in enumerate(candidates):
        instance = candidate.instance
        if place >= room:
            reason = because(ReasonCode.OVER_MAX_STOP_PERCENT, allowed=limits.max_total, base=base)
            spared.append((instance, reason))
            continue
        begins = need.due is not None and need.due - now <= timedelta(minutes=settings.grace_minutes)
        if candidate.checkpoint.to_run and (need.notice or begins or not need.held) and instance.launched_at:
            document = candidate.checkpoint.document
            runs.append(RunCheckpoint(instance.instance_id, instance.region, instance.launched_at, document))
        waits = not need.held and (candidate.checkpoint.to_run or candidate.checkpoint.running)
        if waits:
            spared.append((instance, because(ReasonCode.CHECKPOINT_RUNNING, document=candidate.checkpoint.document)))
        elif taken >= limits.max_count:
            code = ReasonCode.NEXT_WAVE if wave < settings.max_stops_per_run else ReasonCode.NEXT_RUN
            spared.append((instance, because(code)))
        else:
            taken += 1
            facts = {"criticality": instance.governance.criticality.value, "family": instance.family}
            reason = because(ReasonCode.WITHIN_REACH, **facts)
            verdicts.append(_victim(candidate, reason, settings, prices))
    order = {ReasonCode.OVER_MAX_STOP_PERCENT: 0, ReasonCode.NEXT_RUN: 0, ReasonCode.NEXT_WAVE: 0}
    places = {c.instance.instance_id: place for place, c in enumerate(candidates)}
    spared.sort(
        key=lambda pair: (
            order.get(pair[1].code, 1),
            places.get(pair[0].instance_id, 0) if pair[1].code in order else 0,
            pair[0].region,
            pair[0].instance_id,
        )
    )
    verdicts.extend(_spare(instance, reason, prices) for instance, reason in spared)
    named = tuple((region, name, what) for (region, name), what in sorted(changed.items()))
    return Judgement(tuple(verdicts), limits, tuple(runs), named)


def surroundings_of(
    snapshot: BudgetSnapshot, settings: BudgetSettings, now: datetime, spent_usd: float | None
) -> Surroundings:
    """What the rule of eligibility needs, from a snapshot."""
    members = {instance.instance_id: instance for instance in snapshot.fleet.instances}
    return Surroundings(settings, snapshot.controls, now, spent_usd, groups_by_key(snapshot.fleet.groups), members)


def _groups_changed_by_others(snapshot: BudgetSnapshot, ledger: tuple[StopEntry, ...]) -> dict[tuple[str, str], str]:
    """Groups that we hold and that somebody else changed: a finding and a hold, no fight."""
    groups = groups_by_key(snapshot.fleet.groups)
    changed: dict[tuple[str, str], str] = {}
    for hold in snapshot.holds:
        group = groups.get((hold.region, hold.name))
        if hold.open and group is not None:
            found = change_by_others(hold, group, held_members(ledger, hold, group))
            if found:
                changed[(hold.region, hold.name)] = found
    return changed


def _changed_reason(instance: Instance, changed: Mapping[tuple[str, str], str]) -> Reason | None:
    if instance.kind is not InstanceKind.GROUP_MEMBER:
        return None
    what = changed.get((instance.region, instance.owner))
    return because(ReasonCode.GROUP_CHANGED, group=instance.owner, what=what) if what else None


def _started_by_people(
    ledger: tuple[StopEntry, ...], fleet: FleetSnapshot, settings: BudgetSettings
) -> dict[str, tuple[datetime, str]]:
    """Instance -> (until when it is left alone, who started it), of those that people started after our stop."""
    grace = timedelta(hours=settings.manual_start_grace_hours)
    started: dict[str, tuple[datetime, str]] = {}
    given_back: dict[tuple[str, str], list[StopEntry]] = {}
    for entry in ledger:
        at, who = None, "a person"
        if entry.status is StopStatus.RESTARTED:
            at = entry.updated_at
        elif entry.restore_asked_by.startswith("arn:") and entry.status in _COMING_BACK:
            at, who = entry.restored_at or entry.updated_at, entry.restore_asked_by.rpartition("/")[2]
            if entry.method == StopMethod.LOWER.value:
                given_back.setdefault((entry.region, entry.group), []).append(entry)
        if at is not None:
            before = started.get(entry.instance_id)
            due = at + grace
            started[entry.instance_id] = (due, who) if before is None or due > before[0] else before
    for place, entries in given_back.items():
        for instance, entry in _in_given_places(fleet, place, entries):
            started.setdefault(instance.instance_id, started[entry.instance_id])
    return started


def _in_given_places(
    fleet: FleetSnapshot, place: tuple[str, str], entries: list[StopEntry]
) -> list[tuple[Instance, StopEntry]]:
    """The members that a group has launched in the places that a person gave back to it, first come, first served."""
    asked = {e: e.restore_asked_at.replace(microsecond=0) for e in entries if e.restore_asked_at is not None}
    free = sorted(asked, key=lambda e: (asked[e], e.instance_id))
    members = [i for i in fleet.instances if (i.region, i.owner) == place and i.launched_at is not None]
    found = []
    for instance in sorted(members, key=lambda i: (i.launched_at, i.instance_id)):
        if free and instance.launched_at is not None and instance.launched_at >= asked[free[0]]:
            found.append((instance, free.pop(0)))
    return found


def _person_reason(instance: Instance, started: Mapping[str, tuple[datetime, str]], now: datetime) -> Reason | None:
    due, who = started.get(instance.instance_id, (None, ""))
    if due is None or now >= due:
        return None
    return because(ReasonCode.MANUAL_START_GRACE, who=who, due=clock_text(due))


def _rest_reason(entry: StopEntry, now: datetime) -> Reason | None:
    """Why an instance whose stop was tried is not tried again now, or None."""
    if entry.status is StopStatus.ACCEPTED:
        return because(ReasonCode.STOP_UNDERWAY)
    due = entry.updated_at + WITHHELD_REST
    if entry.status is StopStatus.WITHHELD and entry.withheld_code in LASTING and now < due:
        return because(ReasonCode.WITHHELD_LATELY, what=entry.detail, due=clock_text(due))
    return None


def _launch_reason(instance: Instance, settings: BudgetSettings, state: GuardState, now: datetime) -> Reason | None:
    reached, launched = state.stop_reached_at, instance.launched_at
    if reached is None or launched is None or launched <= reached:
        return None
    due = launched + (
        timedelta(minutes=settings.grace_minutes) + SEEN_WITHIN if settings.grace_minutes else timedelta()
    )
    return because(ReasonCode.JUST_LAUNCHED, due=clock_text(due)) if now < due else None


def _scope_reason(instance: Instance, settings: BudgetSettings, level: Level) -> Reason | None:
    preemptible = instance.governance.criticality is Criticality.PREEMPTIBLE
    if level.scope != "preemptible" or preemptible:
        return None
    return because(
        ReasonCode.NOT_YET,
        criticality=instance.governance.criticality.value,
        stop_percent=to_text(settings.stop_percent),
    )


def _saving_reason(
    instance: Instance, settings: BudgetSettings, prices: PriceCatalogue, now: datetime
) -> Reason | None:
    """An unknown price is not a small one."""
    price = prices.price_of(instance.instance_type)
    if price is None:
        return None
    saving = price.usd_per_hour * hours_left(now)
    if saving >= settings.min_saving_usd:
        return None
    return because(ReasonCode.SAVES_TOO_LITTLE, usd=f"{saving:.2f}", least=to_text(settings.min_saving_usd))


def _without_covered(
    candidates: list[_Candidate], fleet: FleetSnapshot
) -> tuple[list[_Candidate], list[tuple[Instance, Reason]]]:
    """Split off the candidates whose stop saves nothing because Reserved Instances pay for that many anyway.

    A reservation covers whichever instance of its type runs, so of n running and r reserved only n - r stops save
    anything. Size flexibility is not counted: g4dn and g5 have none, and the large types have one size (Amazon EC2 User
    Guide, "How Reserved Instances are applied").
    """
    if not fleet.reserved:
        return candidates, []
    running = Counter((i.region, i.instance_type) for i in fleet.instances if is_billed(i))
    by_zone = Counter((i.region, i.instance_type, i.zone) for i in fleet.instances if is_billed(i))
    reserved: Counter[tuple[str, str]] = Counter()
    for one in fleet.reserved:
        usable = min(one.count, by_zone[(one.region, one.instance_type, one.zone)]) if one.zone else one.count
        reserved[(one.region, one.instance_type)] += usable
    kept: list[_Candidate] = []
    covered: list[tuple[Instance, Reason]] = []
    taken: Counter[tuple[str, str]] = Counter()
    for candidate in candidates:
        kind = (candidate.instance.region, candidate.instance.instance_type)
        if taken[kind] < running[kind] - reserved[kind]:
            taken[kind] += 1
            kept.append(candidate)
        else:
            why = f"{reserved[kind]} Reserved Instances of {kind[1]} pay for it whether it runs or not"
            covered.append((candidate.instance, because(ReasonCode.SAVES_NOTHING, why=why)))
    return kept, covered


def _enough(
    candidates: list[_Candidate],
    settings: BudgetSettings,
    prices: PriceCatalogue,
    need: Need,
    ledger: Sequence[StopEntry],
    fleet: FleetSnapshot,
    now: datetime,
) -> tuple[list[_Candidate], list[tuple[Instance, Reason]]]:
    """With budget/stop-policy `enough`: the first in order of regret that bring the forecast under the limit.

    What EC2 has accepted and what still runs counts as saved already. An unpriced one saves an unknown amount, so it is
    left. Where the forecast is unknown, all are needed.
    """
    if settings.stop_policy is not StopPolicy.ENOUGH or need.over_usd is None:
        return candidates, []
    left = hours_left(now)
    rates = {
        i.instance_id: price.usd_per_hour
        for i in fleet.instances
        if is_billed(i) and (price := prices.price_of(i.instance_type)) is not None
    }
    underway = {e.instance_id for e in ledger if e.status is StopStatus.ACCEPTED}
    still = need.over_usd - sum(rates.get(instance_id, 0.0) for instance_id in underway) * left
    chosen: list[_Candidate] = []
    unneeded: list[tuple[Instance, Reason]] = []
    for candidate in candidates:
        rate = rates.get(candidate.instance.instance_id)
        if still > 0 and rate is not None:
            chosen.append(candidate)
            still -= rate * left
        else:
            unneeded.append((candidate.instance, because(ReasonCode.ENOUGH)))
    return chosen, unneeded


def _limits(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    ledger: Sequence[StopEntry],
    candidates: Sequence[Instance],
    now: datetime,
) -> tuple[StopLimits, int]:
    # What EC2 accepted this month counts whatever became of it, or the share would grow as people clean up. What we
    # started again ourselves is one of the running ones.
    begin = period_start(now)
    ours = {
        entry.instance_id
        for entry in ledger
        if entry.accepted_at is not None
        and entry.accepted_at >= begin
        and entry.status not in (StopStatus.RESTORED, StopStatus.STARTING)
    }
    not_critical = [i for i in snapshot.fleet.instances if i.governance.stoppable and i.state is InstanceState.RUNNING]
    base = len({instance.instance_id for instance in not_critical} | ours)
    # One whose stop was accepted and never seen is tried again: it is one machine, not two.
    limits = StopLimits(
        max_count=settings.max_stops_per_run,
        max_total=share_of(settings.max_stop_percent, base),
        already_stopped=len(ours - {instance.instance_id for instance in candidates}),
    )
    return limits, base


def _wave(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    state: GuardState,
    ledger: Sequence[StopEntry],
    candidates: int,
    now: datetime,
) -> int:
    """How many may be stopped in this run: within an hour of what was held, a share at a time.

    Worked example: 8 are within reach after a hold and budget/wave-percent is 50: 4 now, 4 in the next run.
    """
    moments = [edit.at for edit in snapshot.edits] + ([state.jump_at] if state.jump_at is not None else [])
    recent = [at for at in moments if timedelta(0) <= now - at < JUMP_PATIENCE]
    if not recent or settings.confirm_minutes == 0 or settings.wave_percent >= 100:
        return settings.max_stops_per_run
    accepted = [e.accepted_at for e in ledger if e.accepted_at is not None and e.accepted_at >= min(recent)]
    if any(now - at < WAVE_PAUSE for at in accepted):
        return 0
    return max(1, math.ceil((candidates + len(accepted)) * settings.wave_percent / 100 - 1e-9))


def _regret(instance: Instance, prices: PriceCatalogue) -> tuple[int, bool, bool, float, float, str, str]:
    """Least regret first: preemptible, what can be undone, types that come back, youngest, dearest, then by id.

    Worked example: a preemptible g4dn of ten minutes goes before a preemptible g4dn of three days, both go before a
    preemptible p4d (its slot may be lost), and all of them before anything standard.
    """
    price = prices.price_of(instance.instance_type)
    launched = instance.launched_at.timestamp() if instance.launched_at else 0.0
    return (
        0 if instance.governance.criticality is Criticality.PREEMPTIBLE else 1,
        instance.spot is not None and not instance.spot.stoppable,
        instance.scarce,
        -launched,
        -(price.usd_per_hour if price else 0.0),
        instance.region,
        instance.instance_id,
    )


def _victim(candidate: _Candidate, reason: Reason, settings: BudgetSettings, prices: PriceCatalogue) -> InstanceVerdict:
    instance = candidate.instance
    method = method_of(instance, settings)
    loses: tuple[str, ...] = ("contents of its local NVMe disks and its memory",)
    notes: list[Reason] = list(candidate.checkpoint.notes)
    if instance.scarce:
        loses = (*loses, f"its slot: {instance.family} is scarce and may not come back")
        notes.append(because(ReasonCode.MAY_NOT_COME_BACK, family=instance.family))
    if method is StopMethod.LOWER:
        loses = (*loses, "the machine itself with its disks: the group launches another one on the way back")
        notes.append(because(ReasonCode.TERMINATES, why="budget/group-action is lower"))
    elif method is StopMethod.CANCEL_AND_TERMINATE:
        loses = (*loses, "the machine itself with its disks: one-time spot cannot be started again")
        notes.append(because(ReasonCode.TERMINATES, why="budget/terminate-one-time-spot is on"))
    elif instance.spot is not None:
        loses = (*loses, "its spot capacity, which may be dearer or missing when it starts again")
    spared = _spare(instance, reason, prices)
    return replace(spared, verdict=Verdict.STOP, loses=loses, method=method, notes=tuple(notes))


def _spare(instance: Instance, reason: Reason, prices: PriceCatalogue) -> InstanceVerdict:
    return InstanceVerdict(
        instance_id=instance.instance_id,
        region=instance.region,
        instance_type=instance.instance_type,
        verdict=Verdict.SPARE,
        reason=reason,
        usd_per_hour=_rate(instance, prices),
        launched_at=instance.launched_at,
        name=instance.name,
        project=instance.governance.project,
        pool=instance.governance.pool,
    )


def _rate(instance: Instance, prices: PriceCatalogue) -> float | None:
    """List price per hour of a running instance; 0 for one that is not billed, None where it is unknown."""
    price = prices.price_of(instance.instance_type)
    if price is None:
        return None
    return price.usd_per_hour if is_billed(instance) else 0.0
