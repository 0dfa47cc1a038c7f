"""The texts of keeps and overrides: what we write is read back, what people write in a hurry holds."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from governor.domain.controls import (
    Controls,
    Keep,
    Override,
    format_keep,
    format_override,
    is_project_name,
    parse_controls,
    parse_keep,
    parse_override,
)
from governor.domain.eligibility import Surroundings, objection_to
from governor.domain.pause import Pause
from governor.domain.reasons import ReasonCode
from tests.builders import NOW, an_instance, some_settings, tags_of

END = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FOREVER = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)

any_text = st.text(st.characters(), max_size=120)
"""Surrogates and control characters included."""
words_of_the_grammar = st.lists(
    st.sampled_from(
        [
            *("on", "ON", "until", "Until", "because", "up", "to", "usd", "budget", "project", "instance", "apollo"),
            *("i-0a", "i-", "2026-12-01T06:00Z", "2026-13-01", "0", "500", "12.34", "-5", "inf", "nan", "9999-12-31"),
            *("9999-12-31T23:59-14:00", "0001-01-01T00:00+14:00", "\u2028", "\x00", "\ud800", "ſ", "１２"),
        ]
    ),
    max_size=12,
).map(" ".join)
odd_text = any_text | words_of_the_grammar

moments = st.datetimes(
    datetime(2000, 1, 1),
    datetime(2100, 1, 1),
    timezones=st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
).map(lambda moment: moment.replace(second=0, microsecond=0))
ends = st.none() | moments
reasons = any_text.map(str.strip)
amounts = st.integers(1, 99_999_999_999).map(lambda cents: cents / 100)
ids = st.text("0123456789abcdef", min_size=8, max_size=17).map(lambda digits: f"i-{digits}")
projects = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(is_project_name) | (
    st.sampled_from(["render farm until dawn", "up to 5 usd", "until", "UP", "because", "two  spaces", "a because"])
)
"""Names that `governor override --project` takes."""
limits = st.tuples(ends, st.none() | amounts).filter(lambda pair: pair != (None, None))


def the_tag(text: str) -> ReasonCode | None:
    """What the keep tag `text` means for a machine that would be stopped at `NOW`."""
    instance = an_instance(tags=tags_of(**{"governor:keep": text}))
    reason = objection_to(instance, Surroundings(some_settings(), Controls(Pause(active=False)), NOW, 990.0))
    return None if reason is None else reason.code


@given(ends, reasons)
def test_a_keep_that_is_written_is_read_back_equal(until: datetime | None, because: str) -> None:
    assert parse_keep("i-0a", format_keep(until, because)) == Keep("i-0a", until, because)


@given(limits, reasons)
def test_an_override_of_the_budget_that_is_written_is_read_back_equal(
    limit: tuple[datetime | None, float | None], because: str
) -> None:
    until, usd = limit
    text = format_override("budget", until=until, up_to_usd=usd, because=because)
    assert parse_override("override/a", text) == Override("budget", "", until, usd, because, "override/a")


@given(projects, limits, reasons)
def test_an_override_of_a_project_that_is_written_is_read_back_equal(
    project: str, limit: tuple[datetime | None, float | None], because: str
) -> None:
    until, usd = limit
    text = format_override("project", project, until=until, up_to_usd=usd, because=because)
    assert parse_override("override/a", text) == Override("project", project, until, usd, because, "override/a")


@given(ids, limits, reasons)
def test_an_override_of_an_instance_that_is_written_is_read_back_equal(
    instance_id: str, limit: tuple[datetime | None, float | None], because: str
) -> None:
    until, usd = limit
    text = format_override("instance", instance_id, until=until, up_to_usd=usd, because=because)
    assert parse_override("override/a", text) == Override("instance", instance_id, until, usd, because, "override/a")


@pytest.mark.parametrize("name", ["", " a", "a ", 'say "a"', "a because b", "a\nb", "a\tb"])
def test_a_project_that_could_be_misread_is_never_written(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        format_override("project", name, until=END)


@pytest.mark.parametrize("usd", [0.0, 0.004, -1.0, 1e9, float("nan"), float("inf")])
def test_an_amount_that_could_not_be_read_back_is_never_written(usd: float) -> None:
    with pytest.raises(ValueError, match="goes up to"):
        format_override("budget", up_to_usd=usd)


@given(st.sampled_from(["budget", "project", "instance"]))
def test_an_override_without_an_end_is_never_written(scope: str) -> None:
    with pytest.raises(ValueError, match="ends"):
        format_override(scope, "i-0a")


@given(moments, amounts, st.sampled_from([str.upper, str.lower, str.title]), st.sampled_from([" ", "   ", "\t", "\n"]))
def test_capitals_and_white_space_change_nothing(until: datetime, usd: float, case: object, space: str) -> None:
    def typed(words: str) -> str:
        return space + space.join(case(word) for word in words.split()) + space  # type: ignore[operator]

    moment = f"{until.astimezone(UTC):%Y-%m-%dT%H:%M}+00:00"
    assert parse_keep("i-0a", typed("until") + moment + typed("because demo")).until == until
    assert parse_keep("i-0a", typed("on")) == Keep("i-0a")
    text = typed("budget until") + moment + typed(f"up to {usd:.2f} usd")
    assert parse_override("x", text) == Override("budget", "", until, usd, "", "x")
    text = typed("instance i-0ab up to 5 usd")
    assert parse_override("x", text) == Override("instance", "i-0ab", None, 5.0, "", "x")


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-12-01T06:00Z", END),
        ("2026-12-01T06:00", END),
        ("2026-12-01T08:00+02:00", END),
        ("2026-12-01T08:00+0200", END),
        ("2026-11-30T22:00-08:00", END),
        ("2026-12-01T11:45+05:45", END),
        ("20261201T0600Z", END),
        ("2026-12-01T06:00:30Z", END + timedelta(seconds=30)),
        ("2026-12-01", datetime(2026, 12, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_with_its_offset_and_one_without_is_utc(written: str, moment: datetime) -> None:
    assert parse_keep("i-0a", f"until {written}") == Keep("i-0a", moment)
    assert parse_override("x", f"budget until {written}") == Override("budget", until=moment, source="x")


def test_a_time_without_a_zone_is_utc_on_a_machine_of_any_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        keep = parse_keep("i-0a", "until 2026-12-01T06:00")
    time.tzset()
    assert keep.until == END


def test_a_reason_of_several_lines_is_read() -> None:
    assert parse_keep("i-0a", "on because one\ntwo").reason == "one\ntwo"
    assert parse_override("x", "budget up to 5 usd because one\ntwo").reason == "one\ntwo"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "off",
        "yes",
        "on until 2026-12-01T06:00Z",
        "until",
        "until tomorrow",
        "until 2026-13-01T06:00Z",
        "until 2026-12-01 06:00Z",
        "until 9999-12-31T23:59-14:00",
        "on because",
        "on, please",
        "until 2000-01-01T00:00Z please",
    ],
)
def test_an_odd_keep_keeps_in_the_parameter_and_in_the_tag_for_ever(text: str) -> None:
    keep = parse_keep("i-0a", text)
    assert not keep.readable
    assert keep.holds(FOREVER)
    assert the_tag(text) is ReasonCode.KEEP_UNREADABLE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "on",
        "budget",
        "budget because we must",
        "budget until tomorrow",
        "budget until 2000-01-01 06:00Z",
        "budget until 2000-13-01T06:00Z",
        "budget up to 500",
        "budget up to 500 eur",
        "budget up to 1e2 usd",
        "budget up to -5 usd",
        "budget up to nan usd",
        "budget up to 1,000 usd",
        "budget up to 10000000000 usd",
        "budget up to 5.001 usd",
        "budget up to 5 usd until 2000-01-01T06:00Z",
        "project apollo",
        "project apollo untill 2000-01-01T06:00Z up to 5 usd",
        "project apollo till 2000-01-01T06:00Z up to 5 usd",
        "project render farm until 2000-01-01T06:00Z",
        'project "render farm until 2000-01-01T06:00Z',
        'project "render farm"until 2000-01-01T06:00Z',
        'project "" until 2000-01-01T06:00Z',
        'project "a because b" until 2000-01-01T06:00Z',
        "project up to 5 usd",
        "budget up to 0 usd",
        "budget up to 0.00 usd",
        "project until 2000-01-01T06:00Z",
        "project apollo because until 2000-01-01T06:00Z",
        "instance up to 5 usd",
        "instance apollo until 2000-01-01T06:00Z",
        "instance i-0a, i-0b until 2000-01-01T06:00Z",
        "everything until 2000-01-01T06:00Z",
    ],
)
def test_an_odd_override_holds_the_whole_budget_for_ever(text: str) -> None:
    controls = parse_controls({"pause": "off", "override/x": text}, NOW)
    held = controls.override_of_budget(FOREVER, 1e12)
    assert held is not None
    assert (held.scope, held.readable, held.source) == ("budget", False, "override/x")
    assert "control/override/x" in held.reason


@given(odd_text, moments)
@example("until 9999-12-31T23:59-14:00", NOW)
@example("until \ud800", NOW)
def test_any_text_is_a_keep_that_is_read_whole_or_holds(text: str, now: datetime) -> None:
    keep = parse_keep("i-0a", text)
    if keep.readable:
        # Nothing but the grammar's words was passed over.
        assert parse_keep("i-0a", format_keep(keep.until, keep.reason)).readable
        assert text.split()[0].lower() in ("on", "until")
        assert keep.holds(now) is (keep.until is None or now < keep.until)
    else:
        assert keep.holds(now)
        assert keep.until is None


@given(odd_text, moments, st.none() | st.floats(0, 1e9))
@example("budget until 0001-01-01T00:00+14:00 up to 5 usd", NOW, 5.0)
def test_any_text_is_an_override_that_ends_or_holds_the_budget(text: str, now: datetime, spent: float | None) -> None:
    override = parse_override("override/x", text)
    if override.readable:
        assert override.until is not None or override.up_to_usd is not None
        assert override.scope == text.split()[0].lower()
        assert bool(override.subject) is (override.scope != "budget")
    else:
        assert override.scope == "budget"
        assert override.holds(now, spent)


@given(
    st.none()
    | st.dictionaries(
        st.sampled_from(["pause", "keep/i-0a", "keep/", "keep/workers", "override/a", "override/", "other"]) | any_text,
        odd_text,
        max_size=6,
    ),
    moments,
)
def test_any_parameters_are_read_without_error_and_none_is_left_out(
    texts: dict[str, str] | None, now: datetime
) -> None:
    controls = parse_controls(texts, now)
    said = [name for name in texts or {} if name.startswith(("keep/", "override/"))]
    assert len(controls.keeps) + len(controls.overrides) == len(said)
    assert controls.pause.active or (texts or {}).get("pause") is not None
    assert controls.keep_of("i-0a", now) is None or "keep/i-0a" in said


def test_parameters_that_cannot_be_read_pause_everything() -> None:
    controls = parse_controls(None, NOW)
    assert (controls.pause.active, controls.pause.readable) == (True, False)


@pytest.mark.parametrize("name", ["keep/workers", "keep/", "keep/i-0A", "keep/team/i-0a"])
@pytest.mark.parametrize("text", ["on", "until 2000-01-01T00:00Z", "hello"])
def test_a_keep_of_what_is_no_instance_holds_the_whole_budget(name: str, text: str) -> None:
    controls = parse_controls({"pause": "off", name: text}, NOW)
    held = controls.override_of_budget(NOW, 0.0)
    assert held is not None
    assert f"control/{name}" in held.reason


def test_a_keep_of_one_instance_is_not_one_of_another() -> None:
    controls = parse_controls({"pause": "off", "keep/i-0a": "on"}, NOW)
    assert controls.keep_of("i-0a", NOW) is not None
    assert controls.keep_of("i-0a1", NOW) is None
    assert controls.overrides == ()


def test_keep_and_override_end_at_the_very_second() -> None:
    keep = parse_keep("i-0a", "until 2026-12-01T06:00Z")
    override = parse_override("x", "budget until 2026-12-01T06:00Z")
    assert (keep.holds(END - SECOND), keep.holds(END), keep.holds(END + SECOND)) == (True, False, False)
    assert [override.holds(END + n * SECOND, None) for n in (-1, 0, 1)] == [True, False, False]


def test_the_keep_tag_ends_at_the_very_second() -> None:
    assert the_tag(f"until {NOW + SECOND:%Y-%m-%dT%H:%M:%SZ}") is ReasonCode.KEPT
    assert the_tag(f"until {NOW:%Y-%m-%dT%H:%M:%SZ}") is None


@pytest.mark.parametrize(("spent", "holds"), [(None, True), (0.0, True), (499.99, True), (500.0, False), (501, False)])
def test_up_to_an_amount_holds_below_it_and_while_the_spend_is_unknown(spent: float | None, holds: bool) -> None:
    override = parse_override("x", "budget up to 500 usd")
    assert override.up_to_usd == 500.0
    assert override.holds(FOREVER, spent) is holds


def test_with_a_time_and_an_amount_the_first_that_is_reached_ends_it() -> None:
    override = parse_override("x", "budget until 2026-12-01T06:00Z up to 500.50 usd because the launch")
    assert override == Override("budget", "", END, 500.5, "the launch", "x")
    assert override.holds(END - SECOND, 500.49)
    assert not override.holds(END, 0.0)
    assert not override.holds(END - SECOND, 500.5)
    assert not override.holds(END, None)


def test_an_override_that_ended_does_not_hide_one_that_still_holds() -> None:
    texts = {
        "pause": "off",
        "override/a": "budget until 2026-11-20T12:00Z",
        "override/b": "budget up to 2000 usd because the launch",
        "override/c": "project apollo up to 10 usd",
        "override/d": "project apollo up to 20 usd",
    }
    controls = parse_controls(texts, NOW)
    budget, project = controls.override_of_budget(NOW, 15.0), controls.override_of("i-0a", "apollo", NOW, 15.0)
    assert budget is not None
    assert project is not None
    assert (budget.source, project.source) == ("override/b", "override/d")
    assert controls.override_of("i-0a", "", NOW, 15.0) is None


def test_a_long_text_is_read_in_no_time() -> None:
    started = datetime.now(UTC)
    for space in (" " * 8000, " until" * 1300, " because" * 1000, " up to 5 usd" * 660, ' "' * 4000, "\n" * 8000):
        parse_keep("i-0a", f"until{space}x")
        parse_override("x", f"budget{space}x")
        parse_override("x", f"project a{space}x")
    assert datetime.now(UTC) - started < timedelta(seconds=1)
