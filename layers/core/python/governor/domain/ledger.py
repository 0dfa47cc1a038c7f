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

    `withheld`: the guard refused the call at the last moment (paused, changed), so nothing was done. `terminated`: the
    stop was a termination, and it was seen. The way back: `restoring` (a start is wanted, and stored before the call),
    `starting` (EC2 accepted it), `restored` (seen running, and in service where it is of a group), `gave-up` (no start
    succeeded within restore/give-up-hours). `restarted`: somebody else started it.
    """

    INTENDED = "intended"
    ACCEPTED = "accepted"
    STOPPED = "stopped"
    FAILED = "failed"
    GONE = "gone"
    RESTARTED = "restarted"
    WITHHELD = "withheld"
    TERMINATED = "terminated"
    RESTORING = "restoring"
    STARTING = "starting"
    RESTORED = "restored"
    GAVE_UP = "gave-up"


OPEN_STATUSES = frozenset({StopStatus.INTENDED, StopStatus.ACCEPTED, StopStatus.FAILED})

RETURNING_STATUSES = frozenset({StopStatus.RESTORING, StopStatus.STARTING})
"""On the way back."""

ENDED_STATUSES = frozenset({StopStatus.GONE, StopStatus.RESTARTED, StopStatus.TERMINATED, StopStatus.RESTORED})
"""Nothing more is to be seen of these."""

TERMINATING_METHODS = frozenset({"lower", "cancel-and-terminate"})
"""Stop methods after which an instance does not exist any more."""

START_PATIENCE = timedelta(minutes=1)
"""A start that EC2 accepted may be seen as stopped for so long before it is pending."""

STOPPED_WHILE_RUNNING = (
    "Client.UserInitiatedShutdown",
    "Client.InstanceInitiatedShutdown",
    "Server.SpotInstanceShutdown",
    "Server.ScheduledStop",
)
"""State reasons of a machine that ran and was stopped; a start that failed leaves another one, or none."""

NOT_OUT_OF_STANDBY = "does not leave standby"
"""How the detail begins of a member whose group refuses to take it back."""

FIRST_BACKOFF = timedelta(minutes=5)
LAST_BACKOFF = timedelta(hours=1)

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
    method: str = "stop"
    """A `StopMethod`."""
    group: str = ""
    """Auto Scaling group of a member."""
    standby_by_us: bool = False
    """True once we have asked the group to put it into standby: only then it is ours to bring back from there."""
    criticality: str = ""
    name: str = ""
    project: str = ""
    restore_asked_at: datetime | None = None
    restore_asked_by: str = ""
    """Why it is started again: `period 2026-12`, `limit`, or the ARN of a person."""
    restore_decision_id: str = ""
    start_tries: int = 0
    start_tried_at: datetime | None = None
    """When we last called for a start, stored before the call; None where we never did."""
    next_start_at: datetime | None = None
    start_accepted_at: datetime | None = None
    restored_at: datetime | None = None
    restored_launched_at: datetime | None = None
    """Launch time of the launch that our start made."""

    @property
    def open(self) -> bool:
        """True while the outcome is not yet known."""
        return self.status in OPEN_STATUSES

    @property
    def left_in_standby(self) -> bool:
        """True for a member that we put into standby and never stopped: only its group has to take it back."""
        return self.standby_by_us and self.accepted_at is None

    def is_same_launch(self, seen: Instance) -> bool:
        """True for the launch that was stopped, and for one that a start of ours made: EC2 may renew its time even
        where the start failed.

        A newer launch that somebody stopped is theirs.
        """
        if seen.launched_at is None or seen.launched_at <= self.launched_at:
            return seen.launched_at is not None
        if seen.launched_at == self.restored_launched_at:
            return True
        failed = seen.state is InstanceState.STOPPED and not seen.state_reason.startswith(STOPPED_WHILE_RUNNING)
        return failed and self.start_tried_at is not None


def follow_up(
    entry: StopEntry, seen: Instance | None, now: datetime, *, give_up_after: timedelta = timedelta(hours=48)
) -> StopEntry:
    """What `entry` has become, given the instance as seen now (None = no longer there).

    The answer of the API is not the outcome: only a seen state ends a stop or a start. `give_up_after` counts from the
    moment at which the start was asked for.
    """
    if entry.status is StopStatus.WITHHELD or entry.status in ENDED_STATUSES:
        return entry
    if entry.status in RETURNING_STATUSES:
        return _follow_start(entry, seen, now, give_up_after)
    return _follow_stop(entry, seen, now)


def _is_gone(seen: Instance | None) -> bool:
    return seen is None or seen.state in (InstanceState.TERMINATED, InstanceState.SHUTTING_DOWN)


def _moved(entry: StopEntry, status: StopStatus, detail: str, now: datetime) -> StopEntry:
    if (status, detail) == (entry.status, entry.detail):
        return entry
    return replace(entry, status=status, detail=detail, next_start_at=None, updated_at=now)


def _follow_stop(entry: StopEntry, seen: Instance | None, now: datetime) -> StopEntry:
    status = entry.status
    if seen is None or _is_gone(seen):
        return _follow_end(entry, now)
    if not entry.is_same_launch(seen) and seen.launched_at is not None:
        if status in (StopStatus.ACCEPTED, StopStatus.STOPPED, StopStatus.GAVE_UP):
            return _moved(entry, StopStatus.RESTARTED, "started again after our stop", now)
        return _moved(entry, StopStatus.GONE, "restarted before a stop succeeded", now)
    if status is StopStatus.GAVE_UP:
        in_service = seen.state is InstanceState.RUNNING and seen.member_state == "InService"
        return _back(entry, seen, now) if in_service else entry
    if seen.state is InstanceState.STOPPED:
        if status is StopStatus.FAILED and entry.accepted_at is None:
            return _moved(entry, StopStatus.GONE, "stopped by somebody else", now)
        if status is StopStatus.STOPPED:
            return entry
        return replace(_moved(entry, StopStatus.STOPPED, "seen stopped", now), accepted_at=entry.accepted_at or now)
    if seen.state is InstanceState.STOPPING and status is StopStatus.INTENDED:
        return replace(entry, status=StopStatus.ACCEPTED, accepted_at=now, updated_at=now)
    if status is StopStatus.ACCEPTED and now - (entry.accepted_at or entry.updated_at) > STOP_PATIENCE:
        minutes = int(STOP_PATIENCE.total_seconds() // 60)
        detail = f"still {seen.state.value} {minutes} minutes after EC2 accepted the stop"
        return _moved(entry, StopStatus.FAILED, detail, now)
    return entry


def _follow_end(entry: StopEntry, now: datetime) -> StopEntry:
    """The instance is gone. The intent was stored before the call, so an end that we wanted is ours even where the
    answer was lost."""
    ours = entry.method in TERMINATING_METHODS and entry.status in (StopStatus.INTENDED, StopStatus.ACCEPTED)
    if ours:
        ended = _moved(entry, StopStatus.TERMINATED, "seen terminated", now)
        return replace(ended, accepted_at=entry.accepted_at or now)
    if entry.method == "lower" and entry.status is StopStatus.GAVE_UP:
        return entry  # what may still come back is its place
    return _moved(entry, StopStatus.GONE, "the instance no longer exists", now)


def _follow_start(entry: StopEntry, seen: Instance | None, now: datetime, give_up_after: timedelta) -> StopEntry:
    """The way back: `restoring` -> `starting` -> `restored`, or back to `restoring` with a later try.

    A start that we tried and that is seen running is ours even where the answer of EC2 was lost.
    """
    if entry.method == "lower":
        # The machine is gone and stays so; its place comes back, which confirm_actions sees on the group.
        return _give_up_late(entry, now, give_up_after)
    if seen is None or _is_gone(seen):
        return _moved(entry, StopStatus.GONE, "the instance no longer exists", now)
    renewed = seen.launched_at is not None and seen.launched_at > entry.launched_at
    if seen.state is InstanceState.RUNNING:
        return _follow_running(entry, seen, renewed, now, give_up_after)
    if seen.state is InstanceState.PENDING and entry.start_tried_at is not None:
        if entry.status is StopStatus.STARTING:
            return entry
        started = _moved(entry, StopStatus.STARTING, "starts", now)
        return replace(started, start_accepted_at=entry.start_accepted_at or now)
    if seen.state is InstanceState.STOPPED:
        if entry.left_in_standby:
            return _moved(entry, StopStatus.GONE, "stopped by somebody else while it stood in our standby", now)
        if not entry.is_same_launch(seen):
            return _moved(entry, StopStatus.GONE, "started, and stopped again by somebody else", now)
        entry = _see_failure(entry, seen, now)
    return _give_up_late(entry, now, give_up_after)


def _see_failure(entry: StopEntry, seen: Instance, now: datetime) -> StopEntry:
    """A start that EC2 accepted and that is seen stopped has failed.

    The reason that it leaves proves the first failure at once, also where the answer of EC2 was lost. Later the same
    reason may be that of the try before, so some time has to pass.
    """
    if entry.start_tried_at is None or entry.next_start_at is not None:
        return entry
    proven = seen.state_reason != "" and not seen.state_reason.startswith(STOPPED_WHILE_RUNNING)
    waited = entry.status is StopStatus.STARTING and now - (entry.start_accepted_at or now) >= START_PATIENCE
    if not waited and not (proven and entry.start_tries == 1):
        return entry
    return start_failed(entry, f"fell back to stopped: {seen.state_reason or 'EC2 gave no reason'}", now)


def _follow_running(
    entry: StopEntry, seen: Instance, renewed: bool, now: datetime, give_up_after: timedelta
) -> StopEntry:
    """It runs: started by us, by somebody before us, or never stopped at all. A member has to be in service as well."""
    if renewed and entry.start_tried_at is None:
        return _moved(entry, StopStatus.RESTARTED, "started by somebody else before the Governor did", now)
    if entry.standby_by_us and seen.member_state not in ("InService", ""):
        refused = entry.detail.startswith(NOT_OUT_OF_STANDBY)
        waits = _moved(entry, StopStatus.STARTING, entry.detail if refused else "runs, leaves standby next", now)
        accepted = entry.start_accepted_at or now
        waits = replace(waits, start_accepted_at=accepted, restored_launched_at=seen.launched_at)
        return _give_up_late(waits, now, give_up_after)
    return _back(entry, seen, now)


def _back(entry: StopEntry, seen: Instance, now: datetime) -> StopEntry:
    back = _moved(entry, StopStatus.RESTORED, "seen running", now)
    return replace(back, restored_at=now, restored_launched_at=seen.launched_at)


def _give_up_late(entry: StopEntry, now: datetime, give_up_after: timedelta) -> StopEntry:
    asked = entry.restore_asked_at or entry.updated_at
    if now - asked < give_up_after:
        return entry
    hours = int(give_up_after.total_seconds() // 3600)
    last = entry.detail or "it was not tried, since the guard was paused, switched off, or others came first"
    return _moved(entry, StopStatus.GAVE_UP, f"not back within {hours} h; last: {last}", now)


def start_failed(entry: StopEntry, why: str, now: datetime) -> StopEntry:
    """A start that did not work: tried again after 5 minutes, then after twice as long each time, up to an hour."""
    tries = entry.start_tries
    wait = min(FIRST_BACKOFF * 2 ** max(0, min(tries, 10) - 1), LAST_BACKOFF)
    return replace(
        entry,
        status=StopStatus.RESTORING,
        detail=why,
        start_accepted_at=None,
        next_start_at=now + wait,
        updated_at=now,
    )
