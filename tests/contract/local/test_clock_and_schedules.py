"""Time runs minute by minute in order; schedules fire on it, in their own time zones."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from local.client import LocalAwsError
from local.clock import minutes_between
from tests.contract.local.conftest import Probe


def fired(probe: Probe, mark: int, source: str) -> list[str]:
    """The scheduled times that reached the function from one kind of schedule, in order."""
    payloads = [one.payload for one in probe.since(mark)]
    return [one["time"] for one in payloads if one.get("source") == source]


def test_minutes_between_are_the_boundaries_after_the_start() -> None:
    start, end = datetime(2027, 1, 1, 0, 0, 30, tzinfo=UTC), datetime(2027, 1, 1, 0, 3, tzinfo=UTC)
    assert [moment.minute for moment in minutes_between(start, end)] == [1, 2, 3]


def test_clock_stands_still_once_it_was_set(probe: Probe) -> None:
    assert probe.aws.now() == probe.aws.now()


def test_naive_moment_is_refused(probe: Probe) -> None:
    with pytest.raises(LocalAwsError, match="time zone"):
        probe.aws.set_clock(datetime(2027, 1, 1))


def test_schedule_fires_in_its_time_zone_with_the_scheduled_time_as_input(probe: Probe) -> None:
    day = (probe.aws.now() + timedelta(days=1)).replace(hour=23, minute=0)
    probe.aws.set_clock(day)  # 07:30 in Shanghai is 23:30 UTC of the day before
    mark = probe.mark()
    probe.aws.advance(timedelta(hours=1))
    assert fired(probe, mark, "probe.schedule") == [day.replace(minute=30).strftime("%Y-%m-%dT%H:%M:%SZ")]


def test_rate_counts_from_the_clocks_jump(probe: Probe) -> None:
    start = probe.aws.now()
    mark = probe.mark()
    probe.aws.advance(timedelta(minutes=31))
    expected = [start + timedelta(minutes=minutes) for minutes in (10, 20, 30)]
    assert fired(probe, mark, "probe.rate") == [moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in expected]


def test_rule_fires_by_cron_in_utc(probe: Probe) -> None:
    probe.aws.set_clock(probe.aws.now().replace(hour=11, minute=58))
    mark = probe.mark()
    probe.aws.advance(timedelta(minutes=5))
    [event] = [one.payload for one in probe.since(mark, "rule") if one.payload["source"] == "aws.events"]
    assert event["detail-type"] == "Scheduled Event"
    assert event["time"].endswith("T12:00:00Z")


def test_jump_fires_nothing_for_the_time_in_between(probe: Probe) -> None:
    mark = probe.mark()
    probe.aws.set_clock(probe.aws.now() + timedelta(days=3))
    probe.aws.settle()
    assert probe.since(mark) == []


@pytest.mark.parametrize(
    ("cron", "from_utc", "hours", "expected_utc"),
    [
        # New York, 2027-03-14: 02:30 does not exist and is skipped.
        ("cron(30 2 * * ? *)", "2027-03-14T05:00", 6, []),
        # New York, 2027-11-07: 01:30 comes twice and counts once.
        ("cron(30 1 * * ? *)", "2027-11-07T04:00", 6, ["2027-11-07T05:30:00Z"]),
    ],
)
def test_clock_changes_skip_and_do_not_repeat(
    probe: Probe, cron: str, from_utc: str, hours: int, expected_utc: list[str]
) -> None:
    scheduler = probe.aws.client("scheduler")
    function = probe.aws.client("lambda").get_function_configuration(FunctionName=probe.function)
    back_to = probe.aws.now()
    probe.aws.set_clock(datetime.fromisoformat(from_utc).replace(tzinfo=UTC))
    scheduler.create_schedule(
        Name="daylight",
        ScheduleExpression=cron,
        ScheduleExpressionTimezone="America/New_York",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": function["FunctionArn"],
            "RoleArn": function["Role"],
            "Input": json.dumps({"source": "daylight", "time": "<aws.scheduler.scheduled-time>"}),
        },
    )
    try:
        mark = probe.mark()
        probe.aws.advance(timedelta(hours=hours))
        assert fired(probe, mark, "daylight") == expected_utc
    finally:
        scheduler.delete_schedule(Name="daylight")
        probe.aws.set_clock(back_to)


def test_one_time_schedule_fires_once_and_goes(probe: Probe) -> None:
    scheduler = probe.aws.client("scheduler")
    function = probe.aws.client("lambda").get_function_configuration(FunctionName=probe.function)
    at = probe.aws.now() + timedelta(minutes=2)
    scheduler.create_schedule(
        Name="once",
        ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target={
            "Arn": function["FunctionArn"],
            "RoleArn": function["Role"],
            "Input": json.dumps({"source": "once", "time": "<aws.scheduler.scheduled-time>"}),
        },
    )
    mark = probe.mark()
    probe.aws.advance(timedelta(minutes=5))
    assert fired(probe, mark, "once") == [at.strftime("%Y-%m-%dT%H:%M:%SZ")]
    assert "once" not in [one["Name"] for one in scheduler.list_schedules()["Schedules"]]
