"""The story as data, its figures in words, and what the terminal shows of it."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from demo.story import Check, read_story, write_story
from demo.terminal import Narrator, duration, summary_rows
from demo.theatre import first_of_month_after
from tests.unit.demo.small_story import small_story


def plain() -> tuple[Console, io.StringIO]:
    """A console that is no terminal, and what it wrote."""
    text = io.StringIO()
    return Console(file=text, width=160, soft_wrap=True), text


def test_a_story_read_back_equals_the_one_written(tmp_path: Path) -> None:
    story = small_story()
    write_story(story, tmp_path / "story.json")
    assert read_story(tmp_path / "story.json") == story


def test_the_way_from_crossing_to_stopped_adds_up() -> None:
    crossing = small_story().crossing
    assert crossing.lag_seconds == 9 * 3600
    assert crossing.own_seconds == 600
    assert crossing.total_seconds == crossing.lag_seconds + crossing.own_seconds


def test_failures_are_the_checks_that_did_not_hold() -> None:
    assert small_story().failures == ()
    assert [check.what for check in small_story(failing=True).failures] == ["mails"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (600, "10 min"), (3570, "1 h 00 min"), (33_019, "9 h 10 min")],
)
def test_a_duration_reads_as_people_say_it(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_summary_says_what_was_not_spent_and_what_failed() -> None:
    rows = {what: (figure, how) for what, figure, how in summary_rows(small_story(failing=True))}
    assert rows["Month’s bill"] == ("$38,290", "instead of $56,834: $18,544 not spent")
    assert rows["Checks"] == ("1 of 2", "held; see FAILED above")


def test_a_failed_check_is_shown_with_expected_and_seen() -> None:
    console, text = plain()
    Narrator(console).checked(Check("machines stopped", "a, b", "a [b]", False))
    assert "FAILED" in text.getvalue()
    assert "machines stopped: expected a, b, seen a [b]" in text.getvalue()


def test_without_a_terminal_no_control_characters_are_written() -> None:
    console, text = plain()
    narrator = Narrator(console)
    with narrator.work("Deploying") as update:
        update("12 of 40 resources")
    narrator.scene(1, "Observing", "now")
    narrator.checked(Check("mails", "1", "1", True))
    narrator.summary(small_story())
    assert "\x1b" not in text.getvalue()
    assert "\r" not in text.getvalue()
    assert text.getvalue().startswith("  Deploying (")
    assert [lap.what for lap in narrator.laps] == ["Deploying"]


@pytest.mark.parametrize(
    ("now", "first"),
    [
        (datetime(2026, 11, 10, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)),
        (datetime(2026, 11, 30, 23, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        (datetime(2026, 12, 26, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_story_begins_after_the_deploy(now: datetime, first: datetime) -> None:
    """The clock only ever moves forward, and the fleet is launched some days before the month turns."""
    assert first_of_month_after(now, days_before=6) == first
