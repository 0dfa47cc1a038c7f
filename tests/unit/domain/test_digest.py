"""The digests: what they say, and that each comes once, at its hour or late, whatever happens in between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from governor.domain.budget import GuardPlan, decide
from governor.domain.budget_snapshot import GuardState
from governor.domain.decisions import Message, Severity
from governor.domain.digest import saved_usd
from governor.domain.fleet import Instance, InstanceState
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.settings import BudgetSettings, DigestSettings, Mode
from tests.builders import a_snapshot, an_entry, an_instance, some_settings

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
TURN = datetime(2026, 12, 1, tzinfo=UTC)
"""A Tuesday."""
LAUNCHED = datetime(2026, 10, 1, tzinfo=UTC)
OBSERVE = some_settings(mode=Mode.OBSERVE)


@dataclass
class Guard:
    """The decision over time: what one run remembers is what the next one knows."""

    settings: BudgetSettings = field(default_factory=some_settings)
    hour_utc: int = 7
    spent: float | None = 100.0
    fleet: tuple[Instance, ...] = (an_instance(),)
    ledger: tuple[StopEntry, ...] = ()
    state: GuardState | None = None
    told: list[tuple[datetime, Message]] = field(default_factory=list)

    def plan(self, now: datetime) -> GuardPlan:
        snapshot = a_snapshot(
            *self.fleet,
            spent=self.spent,
            ledger=self.ledger,
            state=self.state,
            digest_settings=DigestSettings(self.hour_utc),
        )
        return decide(snapshot, self.settings, now)

    def tick(self, now: datetime) -> list[Message]:
        """One run, and the digests that it sends."""
        plan = self.plan(now)
        self.state = plan.state
        digests = [message for message in plan.decision.messages if "#digest#" in message.key]
        self.told += [(now, message) for message in digests]
        return digests

    def live(self, begin: datetime, end: datetime, step: timedelta = HOUR) -> None:
        """Runs from `begin` until before `end`."""
        while begin < end:
            self.tick(begin)
            begin += step

    def came(self, kind: str) -> list[tuple[str, str]]:
        """When digests of a kind came, and for which period."""
        found = [(at, m.key.rsplit("#", 2)) for at, m in self.told]
        return [(f"{at:%m-%d %H:%M}", parts[2]) for at, parts in found if parts[1] == kind]

    def the(self, kind: str) -> Message:
        """The only digest of a kind."""
        (message,) = [m for _, m in self.told if f"#digest#{kind}#" in m.key]
        return message


def lines_of(message: Message) -> list[str]:
    return message.body.splitlines()


def stopped(
    instance_id: str, at: datetime, status: StopStatus = StopStatus.STOPPED, *, until: datetime | None = None
) -> StopEntry:
    """A g4dn.xlarge whose stop EC2 accepted `at`, and that left that state `until`."""
    instance = an_instance(instance_id, launched_at=LAUNCHED)
    entry = an_entry(instance, status, decided_at=at, updated_at=until or at)
    back = until if status is StopStatus.RESTORED else None
    return replace(entry, accepted_at=at, restored_at=back)


def asleep(instance_id: str) -> Instance:
    """The machine of `stopped`, as EC2 shows it since."""
    return an_instance(instance_id, state=InstanceState.STOPPED, launched_at=LAUNCHED)


# --- When ----------------------------------------------------------------------------------------------------------


def test_each_digest_comes_once_at_its_hour() -> None:
    guard = Guard(OBSERVE)
    guard.live(MONDAY - 4 * DAY, TURN + 8 * DAY)
    assert guard.came("weekly") == [
        ("11-23 07:00", "2026-W48"),
        ("11-30 07:00", "2026-W49"),
        ("12-07 07:00", "2026-W50"),
    ]
    assert guard.came("monthly") == [("12-01 07:00", "2026-12")]
    days = [MONDAY - 3 * DAY + n * DAY for n in range(19)]
    assert guard.came("daily") == [(f"{day:%m-%d} 07:00", f"{day:%Y-%m-%d}") for day in days]


@pytest.mark.parametrize("hour_utc", [0, 7, 23])
def test_a_digest_comes_with_the_first_run_of_its_hour_and_not_a_minute_before(hour_utc: int) -> None:
    guard = Guard(OBSERVE, hour_utc)
    guard.tick(TURN - 9 * DAY)
    guard.tick(TURN - DAY + timedelta(hours=hour_utc))
    guard.told.clear()
    assert guard.tick(TURN + timedelta(hours=hour_utc) - timedelta(seconds=1)) == []
    assert len(guard.tick(TURN + timedelta(hours=hour_utc))) == 2, "daily and monthly"


@pytest.mark.parametrize(("hour_utc", "late"), [(0, 20 * HOUR), (7, 16 * HOUR), (7, 20 * HOUR), (23, 65 * HOUR / 60)])
def test_a_run_that_comes_late_sends_what_was_due_also_after_midnight(hour_utc: int, late: timedelta) -> None:
    guard = Guard(OBSERVE, hour_utc)
    due = MONDAY + timedelta(hours=hour_utc)
    guard.live(MONDAY - 3 * DAY, due)
    guard.told.clear()
    guard.tick(due + late)
    assert guard.came("daily") == [(f"{due + late:%m-%d %H:%M}", "2026-11-23")]
    assert guard.came("weekly") == [(f"{due + late:%m-%d %H:%M}", "2026-W48")]


def test_the_month_end_is_sent_late_rather_than_never() -> None:
    guard = Guard()
    guard.live(TURN - 3 * DAY, TURN)
    guard.live(TURN + 3 * DAY, TURN + 20 * DAY)
    assert guard.came("monthly") == [("12-04 00:00", "2026-12")]


def test_a_month_end_that_was_missed_by_a_month_is_not_told_with_the_figure_of_another_month() -> None:
    guard = Guard(spent=500.0)
    guard.live(TURN - 40 * DAY, TURN - 32 * DAY)
    guard.settings = some_settings(mode=Mode.OFF)
    guard.live(TURN - 32 * DAY, TURN)
    guard.settings = some_settings()
    guard.live(TURN, TURN + DAY)
    assert guard.came("monthly") == [("12-01 07:00", "2026-12")]


def test_a_month_of_which_no_figure_was_believed_is_not_told_with_the_one_before() -> None:
    october = GuardState("2026-10", TURN - 31 * DAY, actual_usd=500.0, running_since=TURN - 60 * DAY)
    state = october
    for when in (TURN - 30 * DAY, TURN - DAY, TURN + DAY):
        plan = decide(a_snapshot(spent=None, state=state), some_settings(), when)
        state = plan.state
    (message,) = [m for m in plan.decision.messages if "#monthly#" in m.key]
    assert "The month 2026-11." in message.body
    assert "Spend: unknown, AWS Budgets told none that could be believed." in message.body
    assert "500" not in message.body.replace("1000", "")


def test_nothing_is_summed_up_on_the_day_of_the_first_run() -> None:
    first_on_a_monday, first_of_a_month = Guard(OBSERVE), Guard(OBSERVE)
    first_on_a_monday.live(MONDAY, MONDAY + DAY)
    first_of_a_month.live(TURN, TURN + DAY)
    assert first_on_a_monday.told == []
    assert first_of_a_month.told == []


def test_only_observing_is_told_daily_and_not_on_the_day_on_which_it_began() -> None:
    guard = Guard()
    guard.live(MONDAY, MONDAY + 2 * DAY)
    assert guard.came("daily") == []
    guard.settings = OBSERVE
    guard.live(MONDAY + 2 * DAY, MONDAY + 4 * DAY)
    assert guard.came("daily") == [("11-26 07:00", "2026-11-26")]
    guard.settings = some_settings()
    guard.live(MONDAY + 4 * DAY, MONDAY + 5 * DAY)
    guard.settings = OBSERVE
    guard.live(MONDAY + 5 * DAY, MONDAY + 6 * DAY)
    assert len(guard.came("daily")) == 1


def test_switched_off_sends_none_and_what_was_sent_before_is_not_sent_again_after() -> None:
    guard = Guard()
    guard.live(MONDAY - 3 * DAY, MONDAY + DAY)
    guard.settings = some_settings(mode=Mode.OFF)
    guard.live(MONDAY + DAY, TURN)
    assert [period for _, period in guard.came("weekly")] == ["2026-W48"]
    guard.settings = some_settings()
    guard.live(TURN - 2 * HOUR, TURN)
    assert [period for _, period in guard.came("weekly")] == ["2026-W48", "2026-W49"]


@pytest.mark.parametrize(("before", "after"), [(7, 20), (20, 7), (0, 23)])
def test_another_hour_within_the_day_brings_no_digest_of_a_day_again(before: int, after: int) -> None:
    guard = Guard(OBSERVE, before)
    guard.live(MONDAY - 3 * DAY, MONDAY + timedelta(hours=9))
    guard.hour_utc = after
    guard.live(MONDAY + timedelta(hours=9), MONDAY + 3 * DAY)
    assert Counter(period for _, period in guard.came("daily")) == {
        f"{MONDAY + n * DAY:%Y-%m-%d}": 1 for n in range(-2, 3)
    }
    assert [period for _, period in guard.came("weekly")] == ["2026-W48"]


def test_a_run_that_is_repeated_before_it_remembers_sends_the_same_keys_and_texts() -> None:
    guard = Guard(OBSERVE)
    guard.live(MONDAY - 3 * DAY, TURN)
    at = TURN + timedelta(hours=7)
    first, again = guard.plan(at).decision.messages, guard.plan(at).decision.messages
    assert [m.key for m in first] == ["gpu#digest#daily#2026-12-01", "gpu#digest#monthly#2026-12"]
    assert first == again
    later = guard.plan(at + timedelta(minutes=5)).decision.messages
    assert [m.key for m in later] == [m.key for m in first], "so the outbox knows that they were sent"


def test_the_memory_of_an_older_version_sends_nothing_again() -> None:
    guard = Guard(OBSERVE)
    guard.live(MONDAY - 30 * DAY, MONDAY)
    assert guard.state is not None
    keys = ("gpu#digest#daily#2026-11-23", "gpu#digest#weekly#2026-W48", "gpu#digest#monthly#2026-11")
    guard.state = replace(guard.state, digests=keys)
    assert guard.tick(MONDAY + timedelta(hours=8)) == []


steps = st.lists(
    st.tuples(
        st.sampled_from([1, 5, 5, 59, 60, 300, 720, 1440, 4000, 11_000]),
        st.sampled_from([None, None, None, 0, 7, 12, 23]),
        st.sampled_from([None, None, None, Mode.OBSERVE, Mode.ENFORCE, Mode.OFF]),
    ),
    min_size=1,
    max_size=60,
)
"""Minutes that pass, then the hour and the mode that somebody sets."""


@settings(max_examples=200)
@given(steps)
def test_no_two_digests_of_a_kind_come_for_one_period_whatever_is_edited(
    ticks: list[tuple[int, int | None, Mode | None]],
) -> None:
    guard, now = Guard(OBSERVE), MONDAY
    for minutes, hour, mode in ticks:
        now += timedelta(minutes=minutes)
        guard.hour_utc = guard.hour_utc if hour is None else hour
        guard.settings = guard.settings if mode is None else some_settings(mode=mode)
        guard.tick(now)
    for kind in ("daily", "weekly", "monthly"):
        periods = [period for _, period in guard.came(kind)]
        assert periods == sorted(set(periods)), kind


@settings(max_examples=200)
@given(st.lists(st.sampled_from([1, 5, 59, 60, 300, 720, 1440, 4000]), min_size=1, max_size=60), st.integers(0, 23))
def test_the_first_run_after_the_hour_of_a_digest_sends_it(gaps: list[int], hour_utc: int) -> None:
    guard, begin = Guard(OBSERVE, hour_utc), MONDAY + timedelta(hours=12)
    moments = [begin]
    for minutes in gaps:
        moments.append(moments[-1] + timedelta(minutes=minutes))
    for moment in moments:
        guard.tick(moment)
    expected = []
    for before, at in pairwise(moments):
        hours = [MONDAY + n * DAY + timedelta(hours=hour_utc) for n in range(1, (at - MONDAY).days + 1)]
        passed = [hour for hour in hours if before < hour <= at]
        # Of several that were missed, people get the last.
        expected += [f"daily {hour:%Y-%m-%d}" for hour in passed[-1:]]
        expected += [f"weekly {hour:%G-W%V}" for hour in passed if hour.weekday() == 0][-1:]
        expected += [f"monthly {hour:%Y-%m}" for hour in passed if hour.day == 1 and hour.month == at.month][-1:]
    found = [" ".join(message.key.rsplit("#", 2)[1:]) for _, message in guard.told]
    assert sorted(found) == sorted(expected)


# --- What ----------------------------------------------------------------------------------------------------------


def test_the_daily_one_says_what_would_have_been_stopped_and_how_to_let_it() -> None:
    fleet = (an_instance("i-0a"), an_instance("i-0b"), an_instance("i-0c", criticality="critical"))
    guard = Guard(OBSERVE, spent=100.0, fleet=fleet)
    guard.live(MONDAY + HOUR, MONDAY + DAY + 8 * HOUR)
    message = guard.the("daily")
    assert message.severity is Severity.INFO
    assert message.subject == "[Governor test] observing, would stop at the level: 2 instances, $1.05/h"
    lines = lines_of(message)
    assert lines[0] == "The budget guard observes: it changed nothing."
    assert "Spend this month: $100.00 of $1,000.00 = 10.0 %" in lines[1]
    assert "Armed, it would stop 2 instances ($1.05/h) once the stop level is reached:" in lines
    listed = [line for line in lines if line.startswith("  i-")]
    assert [line.split(":")[0].strip() for line in listed] == ["i-0a", "i-0b"]
    assert lines[-1] == "To let it act: governor arm budget --stage test"


def test_the_daily_one_at_the_stop_level_says_now() -> None:
    guard = Guard(OBSERVE, spent=960.0)
    guard.live(MONDAY + HOUR, MONDAY + DAY + 8 * HOUR)
    assert guard.the("daily").subject == "[Governor test] observing, would stop now: 1 instance, $0.53/h"
    assert "Armed, it would stop 1 instance ($0.53/h) now:" in lines_of(guard.the("daily"))
    assert "= 96.0 %" in guard.the("daily").body


def test_the_daily_one_of_an_unreadable_budget_says_why_and_names_no_figure() -> None:
    guard = Guard(OBSERVE, spent=None)
    guard.live(MONDAY + HOUR, MONDAY + DAY + 8 * HOUR)
    body = guard.the("daily").body
    assert "Spend this month: unknown of $1,000.00, as" in body
    assert "denied" in body
    assert "the month ends between" not in body


def test_the_weekly_one_holds_spend_forecast_stops_savings_and_thresholds() -> None:
    begin = MONDAY - 7 * DAY
    guard = Guard(spent=400.0, fleet=(an_instance(), asleep("i-0b")))
    guard.tick(begin - DAY)
    guard.ledger = (
        stopped("i-0b", MONDAY - 2 * DAY),
        stopped("i-0c", begin + DAY, StopStatus.RESTORED, until=begin + 2 * DAY),
        stopped("i-0d", begin - DAY, StopStatus.RESTARTED, until=begin + DAY),
        stopped("i-0e", MONDAY, StopStatus.RESTARTED, until=MONDAY + HOUR),
    )
    (message,) = guard.tick(MONDAY + timedelta(hours=7))
    lines = lines_of(message)
    assert lines[0] == "The week from 2026-11-16 to 2026-11-22."
    assert lines[1].startswith("Spend this month: $400.00 of $1,000.00 = 40.0 %")
    assert lines[2].startswith("Running now: $0.53/h at list price")
    # 185 hours are left of the month, and up to 24 are not on the bill yet: (185 + 24) * 0.526 above 400 at most.
    assert lines[3] == "If nothing changes the month ends between $497.31 and $509.93."
    assert "Stopped by the Governor: 2 instances; started again by it: 1 instance." in lines
    # Two days of i-0b, one of i-0c, one of i-0d: 96 hours at 0.526.
    assert "Saved by its stops, at list price: $50.50." in lines
    assert "Stopped by the Governor now: 1 instance ($0.53/h)." in lines
    assert "  i-0b : g4dn.xlarge, eu-west-1" in lines
    assert "To start them again: governor restore --all --stage test" in lines
    assert message.subject == "[Governor test] the week: $50.50 saved"
    assert lines[-1] == "Thresholds: warning at 80 %, stop at 95 % (enforce)."


def test_the_month_end_is_that_of_the_month_before_with_its_last_figure_its_stops_and_savings() -> None:
    guard = Guard(spent=100.0, fleet=(an_instance(), asleep("i-0b")))
    guard.tick(TURN - 20 * DAY)
    guard.ledger = (
        stopped("i-0b", TURN - 2 * DAY),
        stopped("i-0c", TURN - 10 * DAY, StopStatus.RESTORED, until=TURN + HOUR),
        stopped("i-0d", TURN - 40 * DAY, StopStatus.RESTARTED, until=TURN - 30 * DAY),
    )
    guard.spent = 941.5
    guard.tick(TURN - HOUR)
    guard.spent = 3.0
    guard.live(TURN + HOUR, TURN + 8 * HOUR)
    message = guard.the("monthly")
    lines = lines_of(message)
    assert message.subject == "[Governor test] the month 2026-11: $941.50 spent"
    assert lines[0] == "The month 2026-11."
    assert lines[1].startswith("Spend: $941.50 as AWS Budgets last reported it")
    assert lines[2] == "Limit now: $1,000.00."
    # What came back in December is not November's.
    assert lines[3] == "Stopped by the Governor: 2 instances; started again by it: 0 instances."
    # Two days and ten days, 288 hours at 0.526.
    assert lines[4] == "Saved by its stops, at list price: $151.49."


def test_a_month_without_any_figure_is_told_as_unknown() -> None:
    guard = Guard(spent=None)
    guard.live(TURN - 3 * DAY, TURN + 8 * HOUR)
    assert guard.the("monthly").subject == "[Governor test] the month 2026-11: unknown spent"


def test_what_has_no_price_is_named_and_not_in_the_savings() -> None:
    guard = Guard()
    guard.tick(MONDAY - 8 * DAY)
    guard.ledger = (replace(stopped("i-0b", MONDAY - DAY, StopStatus.RESTARTED, until=MONDAY), usd_per_hour=None),)
    (message,) = guard.tick(MONDAY + 7 * HOUR)
    assert "Not priced, so not in it: 1 instance." in lines_of(message)
    assert message.subject == "[Governor test] the week: $0.00 saved"
    assert "Nothing is stopped by the Governor now." in lines_of(message)


def test_a_stop_that_was_not_seen_is_not_told_as_one() -> None:
    guard = Guard(fleet=(an_instance("i-0b", launched_at=LAUNCHED),))
    guard.tick(MONDAY - 8 * DAY)
    guard.ledger = (stopped("i-0b", MONDAY - DAY, StopStatus.FAILED),)
    (message,) = guard.tick(MONDAY + 7 * HOUR)
    assert "Stopped by the Governor: 0 instances; started again by it: 0 instances." in lines_of(message)
    assert "Nothing is stopped by the Governor now." in lines_of(message)


def test_a_member_that_only_stood_in_our_standby_is_neither_stopped_nor_started_again() -> None:
    standing = replace(stopped("i-0b", MONDAY - DAY, StopStatus.RESTORING), accepted_at=None, standby_by_us=True)
    back = replace(stopped("i-0c", MONDAY - DAY, StopStatus.RESTORED, until=MONDAY - HOUR), accepted_at=None)
    guard = Guard(fleet=(an_instance("i-0b", launched_at=LAUNCHED, state=InstanceState.PENDING),))
    guard.tick(MONDAY - 8 * DAY)
    guard.ledger = (replace(standing, restore_asked_at=MONDAY), replace(back, standby_by_us=True))
    (message,) = guard.tick(MONDAY + 7 * HOUR)
    assert "Stopped by the Governor: 0 instances; started again by it: 0 instances." in lines_of(message)
    assert "Nothing is stopped by the Governor now." in lines_of(message)


def test_a_long_list_of_what_is_stopped_is_cut_and_says_so() -> None:
    names = [f"i-{n:02}a" for n in range(25)]
    guard = Guard(fleet=tuple(asleep(name) for name in names))
    guard.tick(MONDAY - 8 * DAY)
    guard.ledger = tuple(stopped(name, MONDAY - DAY) for name in names)
    (message,) = guard.tick(MONDAY + 7 * HOUR)
    lines = lines_of(message)
    assert "Stopped by the Governor now: 25 instances ($13.15/h)." in lines
    assert sum(line.startswith("  i-") for line in lines) == 20
    assert "  ... and 5 more" in lines


@pytest.mark.parametrize(
    ("status", "left", "hours"),
    [
        (StopStatus.STOPPED, None, 24),
        (StopStatus.RESTORING, None, 24),
        (StopStatus.STARTING, None, 24),
        (StopStatus.GAVE_UP, None, 24),
        (StopStatus.TERMINATED, None, 24),
        (StopStatus.RESTORED, 10, 10),
        (StopStatus.RESTARTED, 10, 10),
        (StopStatus.GONE, 10, 10),
        (StopStatus.RESTORED, 30, 24),
        (StopStatus.RESTORED, -5, 0),
        (StopStatus.INTENDED, None, 0),
        (StopStatus.ACCEPTED, None, 0),
        (StopStatus.FAILED, None, 0),
        (StopStatus.WITHHELD, None, 0),
    ],
)
def test_savings_are_the_hours_that_a_machine_was_stopped_by_us_and_no_others(
    status: StopStatus, left: int | None, hours: int
) -> None:
    begin, end = MONDAY, MONDAY + DAY
    until = None if left is None else begin + left * HOUR
    entry = stopped("i-0b", begin - 10 * HOUR, status, until=until)
    assert saved_usd([entry], begin, end) == pytest.approx(hours * 0.526)


moments = st.integers(0, 24 * 60).map(lambda hours: LAUNCHED + hours * HOUR)


@given(
    st.lists(st.tuples(moments, st.sampled_from(StopStatus), moments), max_size=8),
    st.tuples(moments, moments, moments).map(sorted),
)
def test_savings_of_two_spans_are_those_of_both_together_and_never_more_than_all_hours(
    stops: list[tuple[datetime, StopStatus, datetime]], cuts: list[datetime]
) -> None:
    ledger = [stopped(f"i-{n}", min(a, b), status, until=max(a, b)) for n, (a, status, b) in enumerate(stops)]
    begin, middle, end = cuts
    whole = saved_usd(ledger, begin, end)
    assert saved_usd(ledger, begin, middle) + saved_usd(ledger, middle, end) == pytest.approx(whole)
    assert 0 <= whole <= (end - begin) / HOUR * 0.526 * len(ledger) + 1e-9
