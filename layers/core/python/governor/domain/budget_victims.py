"""A verdict for each instance: who is stopped, in which order, and why the others are not."""

from __future__ import annotations

from datetime import datetime, timedelta

from governor.domain.budget_level import clock_text
from governor.domain.budget_snapshot import BudgetSnapshot, GuardState
from governor.domain.decisions import InstanceVerdict, Verdict
from governor.domain.fleet import Instance, InstanceKind, InstanceState
from governor.domain.guard import StopLimits, share_of
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.meter import is_billed, period_start
from governor.domain.prices import PriceCatalogue
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.settings import BudgetSettings
from governor.domain.tags import Criticality, TagFinding

WITHHELD_REST = timedelta(hours=1)
"""A machine that was left at the last moment for what it is (protected, changed) is looked at again after this."""


def judge(
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
                reason = because(ReasonCode.JUST_LAUNCHED, due=clock_text(due))
        if reason is None:
            candidates.append(instance)
        else:
            spared.append((instance, reason))
    # What failed before goes last, so that machines that refuse do not keep the others from their turn.
    troubled = {key for key, e in tried.items() if e.status in (StopStatus.FAILED, StopStatus.WITHHELD)}
    candidates.sort(key=lambda i: ((i.instance_id, i.launched_at) in troubled, _regret(i, snapshot.prices)))

    # What EC2 accepted this month counts whatever became of it, or the share would grow as people clean up.
    ours = {entry.instance_id for entry in ledger if entry.accepted_at is not None and entry.accepted_at >= begin}
    not_critical = [i for i in snapshot.fleet.instances if i.governance.stoppable and i.state is InstanceState.RUNNING]
    base = len({instance.instance_id for instance in not_critical} | ours)
    # One whose stop was accepted and never seen is tried again: it is one machine, not two.
    limits = StopLimits(
        max_count=settings.max_stops_per_run,
        max_total=share_of(settings.max_stop_percent, base),
        already_stopped=len(ours - {instance.instance_id for instance in candidates}),
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
        return because(ReasonCode.WITHHELD_LATELY, what=entry.detail, due=clock_text(due))
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
        loses = (*loses, f"its slot: {instance.family} is scarce and may not start again soon")
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
