"""The one guard that every destructive path passes, on the exact ids of the call, just before the call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from governor.domain.decisions import StopInstance
from governor.domain.fleet import Instance, InstanceKind, InstanceState
from governor.domain.pause import Pause
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.settings import Mode
from governor.domain.tags import Criticality


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


def _objection(stop: StopInstance, fresh: Instance | None) -> Reason | None:
    if fresh is None:
        return because(ReasonCode.GONE)
    governance = fresh.governance
    if not governance.managed:
        return because(ReasonCode.NOT_MANAGED)
    if governance.criticality is Criticality.CRITICAL:
        return because(ReasonCode.CRITICAL)
    if not governance.exact:
        return because(ReasonCode.TAG_NOT_EXACT, finding=", ".join(governance.findings))
    if fresh.kind is not InstanceKind.PLAIN:
        return because(ReasonCode.KIND_NOT_HANDLED, kind=fresh.kind.value)
    if fresh.state is not InstanceState.RUNNING:
        return because(ReasonCode.NOT_RUNNING, state=fresh.state.value)
    if fresh.launched_at != stop.launched_at:
        return because(ReasonCode.CHANGED_SINCE, what="launched again")
    if fresh.region != stop.region:
        return because(ReasonCode.CHANGED_SINCE, what="another Region")
    return None


def permit_stops(
    stops: Sequence[StopInstance],
    facts: Mapping[str, Instance],
    *,
    mode: Mode,
    pause: Pause,
    limits: StopLimits,
) -> Permit:
    """Which of `stops` may be called now, given `facts` (instance id -> instance, read a moment ago). Never raises."""
    whole: Reason | None = None
    if mode is Mode.OFF:
        whole = because(ReasonCode.MODE_OFF)
    elif mode is not Mode.ENFORCE:
        whole = because(ReasonCode.MODE_OBSERVE)
    elif pause.active:
        whole = because(ReasonCode.PAUSED if pause.readable else ReasonCode.PAUSE_UNREADABLE, why=pause.reason)
    allowed: list[StopInstance] = []
    refused: list[tuple[StopInstance, Reason]] = []
    taken: set[str] = set()
    room = max(0, limits.max_total - limits.already_stopped)
    for stop in stops:
        if stop.instance_id in taken:
            continue
        taken.add(stop.instance_id)
        objection = whole or _objection(stop, facts.get(stop.instance_id))
        if objection is None and len(allowed) >= room:
            objection = because(ReasonCode.OVER_MAX_STOP_PERCENT, allowed=limits.max_total, base="the")
        if objection is None and len(allowed) >= limits.max_count:
            objection = because(ReasonCode.NEXT_RUN)
        if objection is None:
            allowed.append(stop)
        else:
            refused.append((stop, objection))
    return Permit(tuple(allowed), tuple(refused))
