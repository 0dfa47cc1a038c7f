"""When a pause ends, and the text that the parameter gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from cli.pause import read_end, read_reason
from governor.domain.pause import format_pause, parse_pause

NOW = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("until", "lasting", "end"),
    [
        (None, None, None),
        ("2026-12-01T06:00Z", None, datetime(2026, 12, 1, 6, 0, tzinfo=UTC)),
        ("2026-12-01T06:00", None, datetime(2026, 12, 1, 6, 0, tzinfo=UTC)),
        ("2026-12-01T06:00+02:00", None, datetime(2026, 12, 1, 4, 0, tzinfo=UTC)),
        ("2026-12-01", None, datetime(2026, 12, 1, tzinfo=UTC)),
        (None, "90m", datetime(2026, 11, 20, 13, 31, tzinfo=UTC)),
        (None, "4h", datetime(2026, 11, 20, 16, 1, tzinfo=UTC)),
        (None, "1d12h", datetime(2026, 11, 22, 0, 1, tzinfo=UTC)),
    ],
)
def test_end_is_read(until: str | None, lasting: str | None, end: datetime | None) -> None:
    assert read_end(until, lasting, NOW) == end


@pytest.mark.parametrize(
    ("until", "lasting", "words"),
    [
        ("tomorrow", None, "no moment"),
        ("2026-11-20T12:00Z", None, "has passed"),
        (None, "4 hours", "no duration"),
        (None, "", "no duration"),
        (None, "0m", "no duration"),
        (None, "-4h", "no duration"),
        ("2026-12-01T06:00Z", "4h", "not both"),
    ],
)
def test_odd_end_is_refused(until: str | None, lasting: str | None, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        read_end(until, lasting, NOW)


@given(st.integers(1, 99_999))
def test_pause_lasts_at_least_as_long_as_said_and_at_most_a_minute_more(minutes: int) -> None:
    end = read_end(None, f"{minutes}m", NOW)
    assert end is not None
    assert timedelta(0) <= end - (NOW + timedelta(minutes=minutes)) < timedelta(minutes=1)


@given(st.text(min_size=1).filter(lambda text: text.split()))
def test_any_reason_can_be_read_back_from_the_parameter(text: str) -> None:
    reason = read_reason(text[:500])
    pause = parse_pause(format_pause(True, until=None, because=reason), NOW)
    assert (pause.active, pause.readable, pause.reason) == (True, True, reason)


@pytest.mark.parametrize("text", ["", "  \n ", "x" * 501])
def test_a_reason_is_needed(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        read_reason(text)
