"""The one guard that every destructive path passes, on the exact ids of the call, just before the call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from governor.domain.decisions import StopInstance
from governor.domain.eligibility import Surroundings, method_of, objection_to, overridden, paused
from governor.domain.fleet import Instance, InstanceKind
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.settings import Mode


@dataclass(frozen=True, slots=True)
class StopLimits:
    """How much one call may stop: at most `max_count`, so that all stops stay within `max_total` instances."""

    max_count: int
    max_total: int
    already_stopped: int = 0


@dataclass(frozen=True, slots=True)
class Permit:
    """The ids that may be in the call, and why each of the others may not."""

    allowed: tuple[StopInstance, ...]
    refused: tuple[tuple[StopInstance, Reason], ...]


def share_of(percent: float, total: int) -> int:
    """Instances that `percent` (0 to 100) of `total` allows; rounded up, so that a small fleet is not frozen."""
    return math.ceil(total * percent / 100 - 1e-9)


def _objection(stop: StopInstance, fresh: Instance | None, around: Surroundings) -> Reason | None:
    if fresh is None:
        return because(ReasonCode.GONE)
    objection = objection_to(fresh, around)
    if objection is not None:
        return objection
    if fresh.stop_protected is None and fresh.kind is not InstanceKind.SPOT:
        return because(ReasonCode.PROTECTION_UNKNOWN)
    if fresh.launched_at != stop.launched_at:
        return because(ReasonCode.CHANGED_SINCE, what="launched again")
    if fresh.region != stop.region:
        return because(ReasonCode.CHANGED_SINCE, what="another Region")
    if method_of(fresh, around.settings) is not stop.method or (stop.group and fresh.owner != stop.group):
        return because(ReasonCode.CHANGED_SINCE, what="what it is to EC2")
    request_id = fresh.spot.request_id if fresh.spot else ""
    if stop.spot_request_id != request_id:
        return because(ReasonCode.CHANGED_SINCE, what="its spot request")
    return None


def whole_objection(mode: Mode, around: Surroundings) -> Reason | None:
    """Why nothing at all may be stopped now: the mode, a pause, an override of the budget."""
    if mode is Mode.OFF:
        return because(ReasonCode.MODE_OFF)
    if mode is not Mode.ENFORCE:
        return because(ReasonCode.MODE_OBSERVE)
    pause = around.controls.pause
    if pause.active:
        return paused(pause)
    override = around.controls.override_of_budget(around.now, around.spent_usd)
    return None if override is None else overridden(override)


def permit_stops(
    stops: Sequence[StopInstance],
    facts: Mapping[str, Instance],
    *,
    mode: Mode,
    around: Surroundings,
    limits: StopLimits,
) -> Permit:
    """Which of `stops` may be called now, given `facts` (instance id -> instance, read a moment ago). Never raises."""
    whole = whole_objection(mode, around)
    allowed: list[StopInstance] = []
    refused: list[tuple[StopInstance, Reason]] = []
    taken: set[str] = set()
    room = max(0, limits.max_total - limits.already_stopped)
    for stop in stops:
        if stop.instance_id in taken:
            continue
        taken.add(stop.instance_id)
        objection = whole or _objection(stop, facts.get(stop.instance_id), around)
        if objection is None and len(allowed) >= room:
            objection = because(ReasonCode.OVER_MAX_STOP_PERCENT, allowed=limits.max_total, base="the")
        if objection is None and len(allowed) >= limits.max_count:
            objection = because(ReasonCode.NEXT_RUN)
        if objection is None:
            allowed.append(stop)
        else:
            refused.append((stop, objection))
    return Permit(tuple(allowed), tuple(refused))
