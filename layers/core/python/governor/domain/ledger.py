"""The stop ledger: which instance we stopped, for which reasons, and how far each stop has come.

An instance may be started again only when no reason is left and it was we who stopped it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from governor.domain.fleet import Instance, InstanceState


class StopStatus(StrEnum):
    """How far a stop has come. `intended` is stored before the call; `stopped` only when the state was seen.

    `withheld`: the guard refused the call at the last moment (paused, changed), so nothing was done.
    """

    INTENDED = "intended"
    ACCEPTED = "accepted"
    STOPPED = "stopped"
    FAILED = "failed"
    GONE = "gone"
    RESTARTED = "restarted"
    WITHHELD = "withheld"


OPEN_STATUSES = frozenset({StopStatus.INTENDED, StopStatus.ACCEPTED, StopStatus.FAILED})

STOP_PATIENCE = timedelta(minutes=15)
"""A stop that was accepted but not seen for this long is a failure (shutdown of a guest may hang)."""


@dataclass(frozen=True, slots=True)
class StopEntry:
    """One stop of one launch of one instance, for one reason (`budget`, later `quota`, `idle`, `operator`)."""

    instance_id: str
    region: str
    reason: str
    launched_at: datetime
    rule: str
    decided_at: datetime
    decision_id: str
    status: StopStatus
    updated_at: datetime
    instance_type: str = ""
    usd_per_hour: float | None = None
    detail: str = ""
    accepted_at: datetime | None = None
    """When EC2 first accepted this try; patience counts from here."""
    withheld_code: str = ""
    """Code of the reason why the guard refused the call at the last moment."""

    @property
    def open(self) -> bool:
        """True while the outcome is not yet known."""
        return self.status in OPEN_STATUSES


def follow_up(entry: StopEntry, seen: Instance | None, now: datetime) -> StopEntry:
    """What `entry` has become, given the instance as seen now (None = no longer there).

    The answer of the API is not the outcome: only a seen state ends a stop.
    """
    status, detail = entry.status, entry.detail
    if status is StopStatus.WITHHELD:
        return entry
    waited = status is StopStatus.ACCEPTED and now - (entry.accepted_at or entry.updated_at) > STOP_PATIENCE
    if seen is None or seen.state in (InstanceState.TERMINATED, InstanceState.SHUTTING_DOWN):
        status, detail = StopStatus.GONE, "the instance no longer exists"
    elif seen.launched_at is not None and seen.launched_at > entry.launched_at:
        if entry.status in (StopStatus.ACCEPTED, StopStatus.STOPPED):
            status, detail = StopStatus.RESTARTED, "started again after our stop"
        else:
            status, detail = StopStatus.GONE, "restarted before a stop succeeded"
    elif seen.state is InstanceState.STOPPED and status is StopStatus.FAILED and entry.accepted_at is None:
        status, detail = StopStatus.GONE, "stopped by somebody else"
    elif seen.state is InstanceState.STOPPED:
        accepted_at = entry.accepted_at or now
        if status is StopStatus.STOPPED:
            return entry
        return replace(entry, status=StopStatus.STOPPED, detail="seen stopped", accepted_at=accepted_at, updated_at=now)
    elif seen.state is InstanceState.STOPPING and status is StopStatus.INTENDED:
        return replace(entry, status=StopStatus.ACCEPTED, accepted_at=now, updated_at=now)
    elif waited:
        minutes = int(STOP_PATIENCE.total_seconds() // 60)
        status, detail = StopStatus.FAILED, f"still {seen.state.value} {minutes} minutes after EC2 accepted the stop"
    if (status, detail) == (entry.status, entry.detail):
        return entry
    return replace(entry, status=status, detail=detail, updated_at=now)
