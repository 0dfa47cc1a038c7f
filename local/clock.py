"""The virtual clock of the emulator's process: it follows the wall clock until it is set, then stands still."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import time_machine

MINUTE = timedelta(minutes=1)


class ClockRunsForwardError(ValueError):
    """A clock was asked to advance to a moment that has passed."""


def wall_time_seconds() -> float:
    """Seconds since the epoch on the machine's own clock, whatever the virtual clock says."""
    if time_machine.escape_hatch.is_travelling():
        return float(time_machine.escape_hatch.time.time())
    return time.time()


def minute_of(moment: datetime) -> datetime:
    """The start of the minute that holds `moment`."""
    return moment.replace(second=0, microsecond=0)


def minutes_between(start: datetime, end: datetime) -> Iterator[datetime]:
    """Each minute boundary after `start` up to and including `end`, in order."""
    boundary = minute_of(start) + MINUTE
    while boundary <= end:
        yield boundary
        boundary += MINUTE


class Clock:
    """Owns the time that every module of this process sees (time.time, datetime.now); never time.monotonic."""

    def __init__(self) -> None:
        self._travel: time_machine.travel | None = None
        self._traveller: time_machine.Traveller | None = None

    @property
    def is_virtual(self) -> bool:
        """True once the clock was set: it then moves by `set` and by nothing else."""
        return self._traveller is not None

    def now(self) -> datetime:
        """The current virtual time, aware UTC."""
        return datetime.now(UTC)

    def set(self, moment: datetime) -> None:
        """Move to an aware moment, forward or back. Raises ValueError on a naive one."""
        if moment.tzinfo is None:
            raise ValueError(f"a moment with a time zone is needed, got {moment.isoformat()}")
        if self._traveller is None:
            self._travel = time_machine.travel(moment, tick=False)
            self._traveller = self._travel.start()
        else:
            self._traveller.move_to(moment)

    def follow_wall_clock(self) -> None:
        """Give the machine's own time back."""
        if self._travel is not None:
            self._travel.stop()
        self._travel = None
        self._traveller = None


def sleep_real_seconds(seconds: float) -> None:
    """Wait on the machine's clock; only the pacing of `make local` may use it, never the path of an event."""
    time.sleep(seconds)
