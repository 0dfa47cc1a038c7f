"""What the scenes measure: times are those at which something was seen, and what was not seen has none."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest

from demo.company import GROUP_SIZES
from demo.scenes import _but_digests, _run_waves, _watch_return
from demo.story import GroupMoment
from demo.theatre import Theatre
from local.mail import Mail
from tests.unit.demo.small_story import BEGIN

HELD = (0, 0, 3)


class Minutes:
    """A stage of which states and group sizes are given by the minute; the last ones stay."""

    def __init__(self, states: list[dict[str, str]], sizes: list[tuple[int, int, int]] | None = None) -> None:
        self._states = states
        self._sizes = sizes or [GROUP_SIZES]
        self.minute = 0

    def now(self) -> object:
        return BEGIN + timedelta(minutes=self.minute)

    def run(self, minutes: int) -> None:
        self.minute += minutes

    def states(self) -> dict[str, str]:
        return self._states[min(self.minute, len(self._states) - 1)]

    def look_at_group(self, what: str) -> GroupMoment:
        sizes = self._sizes[min(self.minute, len(self._sizes) - 1)]
        state = "InService" if sizes == GROUP_SIZES else "Standby"
        return GroupMoment(BEGIN, what, *sizes, (("worker-1", state),), 2)


def stage_of(minutes: Minutes) -> Theatre:
    """It stands in for the stage of the demo."""
    return cast("Theatre", minutes)


def test_a_machine_ran_when_it_was_first_seen_running_and_the_group_when_its_sizes_were() -> None:
    neither = {"a": "pending", "b": "pending"}
    one = {"a": "running", "b": "pending"}
    both = {"a": "running", "b": "running"}
    minutes = Minutes([neither, one, one, both], [HELD, HELD, GROUP_SIZES])
    seen: dict[str, float] = {}
    assert _watch_return(stage_of(minutes), BEGIN, {"a", "b"}, seen) == 120.0
    assert seen == {"a": 60.0, "b": 180.0}
    assert minutes.minute == 3


def test_what_does_not_come_back_has_no_time() -> None:
    minutes = Minutes([{"a": "running", "b": "stopped"}], [HELD])
    seen: dict[str, float] = {}
    assert _watch_return(stage_of(minutes), BEGIN, {"a", "b"}, seen) is None
    assert seen == {"a": 0.0}


def test_waves_are_the_minutes_at_which_machines_were_first_seen_stopped() -> None:
    neither = {"a": "running", "b": "running"}
    one = {"a": "stopped", "b": "running"}
    both = {"a": "stopped", "b": "stopped"}
    minutes = Minutes([neither, neither, one, both])
    assert _run_waves(stage_of(minutes), {"a", "b"}, at_most=20) == [
        (BEGIN + timedelta(minutes=2), {"a"}),
        (BEGIN + timedelta(minutes=3), {"b"}),
    ]


@pytest.mark.parametrize(
    ("subject", "kept"),
    [
        ("[Governor local] the week: $2,123.18 saved", False),
        ("[Governor local] the month 2026-12: $34,599.25 spent", False),
        ("[Governor local] stopping 9 instances at 07:50 UTC (97 % of $30,000.00)", True),
        ("[Governor local] at 101 % of the limit and nothing within reach to stop", True),
    ],
)
def test_digests_are_told_from_messages(subject: str, kept: bool) -> None:
    mail = Mail("", "email", "", "", subject, "")
    assert _but_digests([mail]) == ([mail] if kept else [])
