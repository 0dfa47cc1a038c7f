"""The story as data, its figures in words, and what the terminal shows of it."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from demo.story import Check, read_story, write_story
from demo.terminal import Narrator, after, duration, held_seconds, summary_rows
from demo.theatre import boot_minutes, first_of_month_after
from tests.unit.demo.small_story import small_restoring, small_story


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
    assert rows["Month’s bill"] == ("$38,290", "override included, instead of $56,834: $18,544 not spent")
    assert rows["Checks"] == ("1 of 2", "held; see FAILED above")


def test_a_restore_took_as_long_as_its_slowest_machine_and_no_time_is_known_where_one_is_missing() -> None:
    assert small_restoring().slowest_seconds == 420.0
    assert small_restoring(missing=True).slowest_seconds is None
    assert replace(small_restoring(), rows=()).slowest_seconds is None


@pytest.mark.parametrize(("seconds", "words"), [(None, "not in time"), (0.0, "at once"), (60.0, "1 min")])
def test_a_time_that_is_missing_is_not_shown_as_none_at_all(seconds: float | None, words: str) -> None:
    assert after(seconds) == words


def test_the_summary_tells_how_long_the_override_held_and_the_restore_took() -> None:
    story = small_story()
    rows = {what: (figure, how) for what, figure, how in summary_rows(story)}
    assert held_seconds(story) == 86_400
    assert rows["Overridden"] == (
        "24 h 00 min", "$46.09 an hour above the stop level, 11 runs of the guard, stop calls: 0"
    )  # fmt: skip
    assert rows["Command to running"] == (
        "7 min",
        "2 machines by governor restore, boot included; the group’s sizes: 5 min",
    )


def test_the_time_of_each_restored_machine_is_printed_at_the_end() -> None:
    console, text = plain()
    Narrator(console).summary(small_story())
    printed = text.getvalue().partition("Restore: virtual time from the command")[2]
    lines = {line.split()[1]: line.split()[2:] for line in printed.replace("│", " │ ").splitlines() if "min" in line}
    assert printed
    assert [word for word in lines["trainer"] if word not in ("│", "min")] == ["p4d.24xlarge", "1", "6", "7", "8"]
    assert [word for word in lines["worker-1"] if word not in ("│", "min")] == ["g4dn.xlarge", "1", "2", "3", "4"]
    assert small_story().restoring.command.typed in printed


def test_big_machines_boot_longer_in_the_demo() -> None:
    assert boot_minutes("p4d.24xlarge") > boot_minutes("g4dn.xlarge") > 0


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
