"""A small story of two months: what the report and its charts are made from in tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from demo.story import (
    Change,
    Check,
    Command,
    Crossing,
    Fate,
    Figures,
    FleetRow,
    GroupMoment,
    Lap,
    MailItem,
    Mark,
    MarkKind,
    Overriding,
    Restoring,
    Returned,
    Sample,
    Scene,
    Step,
    Story,
    Thresholds,
)

BEGIN = datetime(2027, 1, 1, 9, tzinfo=UTC)
STOPPED_AT = BEGIN + timedelta(days=15, hours=13, minutes=10)
OVERRIDDEN_AT = STOPPED_AT + timedelta(days=2)
RESTORED_AT = STOPPED_AT + timedelta(days=16)


def small_story(*, failing: bool = False) -> Story:
    """The story; with `failing` one of its checks did not hold. Names hold what HTML must escape."""
    checks = (
        Check("machines stopped", "trainer", "trainer", True),
        Check("mails", "page, info", "page" if failing else "page, info", not failing),
    )
    return Story(
        company="Tern & <Audio>",
        stage="local",
        region="us-east-1",
        month="January 2027",
        prices_dated="us-east-1, 2026-07-20",
        scenes=(Scene(1, "95 %: <stopped>", BEGIN, STOPPED_AT, ("It wrote `enforce` & waited.",), checks),),
        samples=_samples(),
        thresholds=(Thresholds(BEGIN, 80.0, 95.0), Thresholds(BEGIN + timedelta(days=35), 50.0, 60.0)),
        marks=(
            Mark(BEGIN, MarkKind.EDIT, "armed"),
            Mark(STOPPED_AT, MarkKind.PAGE, "page: stopping 1"),
            Mark(STOPPED_AT + timedelta(minutes=5), MarkKind.PAGE, "page: <stopped>"),
            Mark(STOPPED_AT, MarkKind.STOP, "1 stopped"),
            Mark(RESTORED_AT, MarkKind.START, "restore of 2"),
        ),
        steps=(
            Step(BEGIN, "maria", "set budget/mode to enforce", ""),
            Step(STOPPED_AT, "guard_budget", "stops 1 machine", "97 % of the limit", ("trainer: $21.96/h",), 21.96),
        ),
        fleet=(
            FleetRow("i-0abc", "trainer", "speech", "p4d.24xlarge", "standard", "plain", 21.96, "running", "stopped",
                     Fate.STOPPED, "managed, standard, in scope", ("into standby, then stopped",)),
            FleetRow("i-0def", "<script>alert(1)</script>", "", "g4dn.xlarge", "no tags", "spot", None, "running",
                     "running", Fate.SPARED, "not managed"),
        ),
        mails=(MailItem(STOPPED_AT, "oncall@tern.example", "page", "[Governor local] stopping 1", "Why: <because>\n"),),
        alarm_mails=(MailItem(STOPPED_AT, "oncall@tern.example", "warn", "ALARM: SettingsRejected" + "x" * 90, ""),),
        changes=(
            Change(BEGIN, "maria", "budget/mode", "observe", "enforce", "in force as version 2", True),
            Change(BEGIN, "maria", "budget/stop-percent", "95", "60", "not used: must be above", False),
        ),
        crossing=Crossing(
            crossed_at=STOPPED_AT - timedelta(hours=9, minutes=10),
            reported_at=STOPPED_AT - timedelta(minutes=10),
            noticed_at=STOPPED_AT - timedelta(minutes=10),
            stopping_at=STOPPED_AT - timedelta(minutes=5),
            seen_stopped_at=STOPPED_AT,
            stop_usd=28_500.0,
            spent_when_stopped_usd=29_200.0,
        ),
        group="workers <1>",
        group_moments=(
            GroupMoment(STOPPED_AT, "before the stop", 1, 2, 3, (("worker-1", "InService"),), 4),
            GroupMoment(STOPPED_AT, "stopped <all>", 0, 1, 3, (("worker-1", "Standby"),), 4),
        ),
        overriding=small_overriding(),
        restoring=small_restoring(),
        figures=Figures(
            limit_usd=30_000.0,
            stopped_usd_per_hour=21.96,
            run_rate_before_usd_per_hour=22.49,
            run_rate_after_usd_per_hour=0.53,
            month_end_usd=38_290.0,
            month_end_without_usd=56_834.0,
            function_runs=220,
            api_calls=1493,
            stop_calls=3,
            start_calls=1,
            denied_calls=3,
        ),
        laps=(Lap("Deploying", 13.2),),
    )  # fmt: skip


def small_overriding() -> Overriding:
    """An override that held for a day."""
    return Overriding(
        command=Command(
            OVERRIDDEN_AT, "maria", "governor override --because 'a <release>'", "It keeps 3 & more.", 0, 1.25
        ),
        parameter="/governor/local/control/override/budget",
        until=OVERRIDDEN_AT + timedelta(days=4),
        up_to_usd=31_300.0,
        spent_at_begin_usd=30_150.5,
        machines=("trainer-2",),
        usd_per_hour=46.09,
        runs_held=11,
        stop_calls=0,
        ended_at=OVERRIDDEN_AT + timedelta(hours=24),
        reported_at_end_usd=31_512.25,
        stopped_at=OVERRIDDEN_AT + timedelta(hours=24, minutes=6),
    )


def small_restoring(*, missing: bool = False) -> Restoring:
    """Two machines on their way back; with `missing` one of them never ran."""
    line = "governor restore --decision 'guard_budget@2027-01-16T22:05:00+00:00' --stage local"
    command = Command(RESTORED_AT, "maria", f"{line} --yes --no-wait", "2 instances accepted: <ids>", 0, 2.0)
    trainer = Returned("i-0abc", "trainer", "p4d.24xlarge", "plain", 21.96, 6, 60.0, 420.0, 480.0)
    nothing = (None, None, None) if missing else (60.0, 180.0, 240.0)
    worker = Returned("i-0fed", "worker-1", "g4dn.xlarge", "group member", None, 2, *nothing)
    return Restoring("[Governor local] stopping 2", STOPPED_AT, line, command, (trainer, worker), 300.0)


def _samples() -> tuple[Sample, ...]:
    """Two months by half days: the bill grows evenly, and is reported every 12 hours, 12 hours late."""
    samples: list[Sample] = []
    reported: float | None = None
    for half_day in range(74):
        at = BEGIN + timedelta(hours=12 * half_day)
        true_usd = 900.0 * (half_day if half_day < 62 else half_day - 62)
        rate = 22.49 if at < STOPPED_AT else 0.53
        samples.append(Sample(at, true_usd, reported, rate))
        reported = true_usd
    return tuple(samples)
