"""The virtual clock driven by real time, for people who play with a local AWS."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from local.clock import MINUTE, minute_of, sleep_real_seconds
from local.world import World

_log = logging.getLogger("local.pacing")

REAL_MINUTE_SECONDS = 60.0


def start_pacing(world: World, minute_seconds: float) -> None:
    """From now on run one virtual minute every `minute_seconds` of real time, for the life of the process."""
    threading.Thread(target=_keep_pace, args=(world, minute_seconds), name="pacing", daemon=True).start()


def _keep_pace(world: World, minute_seconds: float) -> None:
    while True:
        try:
            run_next_minute(world, minute_seconds)
        except Exception:  # noqa: BLE001 - nobody waits for this thread; the log has it
            _log.exception("a minute failed; the next one is run all the same")


def run_next_minute(world: World, minute_seconds: float) -> None:
    """Wait for the next minute and run it. At real speed the clock stays the machine's until somebody sets it."""
    if minute_seconds == REAL_MINUTE_SECONDS and not world.clock.is_virtual:
        now = world.clock.now()
        sleep_real_seconds((minute_of(now) + MINUTE - now) / timedelta(seconds=1))
        world.run_wall_clock_minute()
    else:
        sleep_real_seconds(minute_seconds)
        world.advance_to(minute_of(world.clock.now()) + MINUTE)
