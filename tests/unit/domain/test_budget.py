"""The budget guard's decision, by example: each test names the rule it protects."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from governor.domain.budget import GuardPlan, decide
from governor.domain.budget_snapshot import GuardState, ThresholdEdit
from governor.domain.decisions import Severity, Verdict
from governor.domain.fleet import InstanceKind, InstanceState, UnknownRegion
from governor.domain.ledger import StopStatus
from governor.domain.pause import Pause, parse_pause
from governor.domain.reasons import ReasonCode, words
from governor.domain.settings import Mode
from tests.builders import NOW, a_snapshot, an_entry, an_instance, some_settings


def stopped_ids(plan: GuardPlan) -> list[str]:
    return [stop.instance_id for stop in plan.decision.stops]


def codes(plan: GuardPlan) -> dict[str, ReasonCode]:
    return {v.instance_id: v.reason.code for v in plan.decision.verdicts}


def kinds_told(plan: GuardPlan) -> list[str]:
    return [message.key.split("#")[2] for message in plan.decision.messages]


def test_below_the_warning_nothing_is_said_or_done() -> None:
    plan = decide(a_snapshot(an_instance(), spent=799.99), some_settings(), NOW)
    assert plan.decision.level == "below"
    assert (plan.decision.stops, plan.decision.messages) == ((), ())


def test_at_80_percent_one_warning_and_no_stop() -> None:
    plan = decide(a_snapshot(an_instance(), spent=800), some_settings(), NOW)
    assert plan.decision.level == "warn"
    assert stopped_ids(plan) == []
    (message,) = plan.decision.messages
    assert message.severity is Severity.WARN
    assert "Nothing was stopped" in message.body
    assert "i-0a" in message.body


def test_at_95_percent_exactly_what_is_managed_and_not_critical_and_in_scope_is_stopped() -> None:
    fleet = [
        an_instance("i-standard"),
        an_instance("i-preemptible", criticality="preemptible", instance_type="p4d.24xlarge"),
        an_instance("i-critical", criticality="critical"),
        an_instance("i-untagged", criticality=None),
        an_instance("i-unmanaged", managed=None),
        an_instance("i-other-stage", managed="prod"),
        an_instance("i-other-family", instance_type="g5.xlarge"),
        an_instance("i-stopped", state=InstanceState.STOPPED),
        an_instance("i-group", kind=InstanceKind.GROUP_MEMBER),
        an_instance("i-spot", kind=InstanceKind.SPOT),
        an_instance("i-inexact", criticality="Standard"),
    ]
    plan = decide(a_snapshot(*fleet, spent=950), some_settings(), NOW)
    assert stopped_ids(plan) == ["i-preemptible", "i-standard"]
    assert codes(plan) == {
        "i-standard": ReasonCode.WITHIN_REACH,
        "i-preemptible": ReasonCode.WITHIN_REACH,
        "i-critical": ReasonCode.CRITICAL,
        "i-untagged": ReasonCode.CRITICAL,
        "i-unmanaged": ReasonCode.NOT_MANAGED,
        "i-other-stage": ReasonCode.NOT_MANAGED,
        "i-other-family": ReasonCode.OUT_OF_SCOPE_FAMILY,
        "i-stopped": ReasonCode.NOT_RUNNING,
        "i-group": ReasonCode.GROUP_UNKNOWN,
        "i-spot": ReasonCode.SPOT_UNKNOWN,
        "i-inexact": ReasonCode.TAG_NOT_EXACT,
    }
    assert [entry.status for entry in plan.ledger] == [StopStatus.INTENDED, StopStatus.INTENDED]


@pytest.mark.parametrize("kind", [kind for kind in InstanceKind if kind is not InstanceKind.PLAIN])
def test_a_kind_of_which_nothing_more_is_known_is_named_and_left(kind: InstanceKind) -> None:
    plan = decide(a_snapshot(an_instance(kind=kind), spent=2000), some_settings(), NOW)
    assert stopped_ids(plan) == []
    assert plan.decision.verdicts[0].reason.code is not ReasonCode.WITHIN_REACH
    assert words(plan.decision.verdicts[0].reason)


def test_least_regret_goes_first() -> None:
    young, old = NOW - timedelta(minutes=10), NOW - timedelta(days=3)
    fleet = [
        an_instance("i-1", criticality="standard", instance_type="p4d.24xlarge", launched_at=young),
        an_instance("i-2", criticality="standard", launched_at=old),
        an_instance("i-3", criticality="preemptible", instance_type="p4d.24xlarge", launched_at=young),
        an_instance("i-4", criticality="preemptible", launched_at=old),
        an_instance("i-5", criticality="preemptible", launched_at=young),
    ]
    plan = decide(a_snapshot(*fleet, spent=950), some_settings(), NOW)
    assert stopped_ids(plan) == ["i-5", "i-4", "i-3", "i-2", "i-1"]


def test_observe_tells_what_would_be_done_and_does_nothing() -> None:
    plan = decide(a_snapshot(an_instance(), spent=1100), some_settings(mode=Mode.OBSERVE), NOW)
    assert (stopped_ids(plan), plan.ledger) == ([], ())
    assert kinds_told(plan) == ["would-stop"]
    assert plan.decision.verdicts[0].verdict is Verdict.STOP


def test_off_is_silent() -> None:
    plan = decide(a_snapshot(an_instance(), spent=1100), some_settings(mode=Mode.OFF), NOW)
    assert (stopped_ids(plan), plan.decision.messages) == ([], ())


@pytest.mark.parametrize("text", ["on", "on until 2026-12-01T00:00Z"])
def test_a_pause_holds_and_pages(text: str) -> None:
    plan = decide(a_snapshot(an_instance(), spent=1100, pause=parse_pause(text, NOW)), some_settings(), NOW)
    assert stopped_ids(plan) == []
    assert kinds_told(plan) == ["paused"]
    assert plan.decision.messages[0].severity is Severity.PAGE


@pytest.mark.parametrize("text", ["nonsense", "", None])
def test_a_pause_that_cannot_be_read_holds_at_once_and_pages_when_it_lasts(text: str | None) -> None:
    pause = parse_pause(text, NOW)
    first = decide(a_snapshot(an_instance(), spent=1100, pause=pause), some_settings(), NOW)
    assert (stopped_ids(first), kinds_told(first)) == ([], [])
    later = NOW + timedelta(minutes=15)
    plan = decide(a_snapshot(an_instance(), spent=1100, pause=pause, state=first.state), some_settings(), later)
    assert (stopped_ids(plan), kinds_told(plan)) == ([], ["paused"])


def test_an_expired_pause_no_longer_holds() -> None:
    pause = parse_pause("on until 2026-11-20T11:59Z", NOW)
    plan = decide(a_snapshot(an_instance(), spent=1100, pause=pause), some_settings(), NOW)
    assert stopped_ids(plan) == ["i-0a"]


def test_an_unknown_budget_stops_nothing_and_pages_once_it_lasts() -> None:
    first = decide(a_snapshot(an_instance(), spent=None), some_settings(), NOW)
    assert first.decision.level == "unknown"
    assert (stopped_ids(first), kinds_told(first)) == ([], [])
    later = decide(
        a_snapshot(an_instance(), spent=None, state=first.state), some_settings(), NOW + timedelta(minutes=15)
    )
    assert (stopped_ids(later), kinds_told(later)) == ([], ["unknown"])
    assert later.decision.messages[0].severity is Severity.PAGE
    back = decide(a_snapshot(spent=10, state=later.state), some_settings(), NOW + timedelta(minutes=20))
    assert back.state.unknown_since is None


def test_an_unreadable_region_is_unknown_and_the_others_go_on() -> None:
    gone = UnknownRegion("us-west-2", "RequestLimitExceeded")
    entry = an_entry(an_instance("i-far", region="us-west-2"), StopStatus.ACCEPTED)
    snapshot = a_snapshot(an_instance(), spent=960, unknown_regions=(gone,), ledger=(entry,))
    plan = decide(snapshot, some_settings(), NOW)
    assert stopped_ids(plan) == ["i-0a"]
    assert "us-west-2 could not be read" in plan.decision.messages[0].body
    assert entry not in [e for e in plan.ledger if e.status is StopStatus.GONE]


def test_grace_first_gives_notice_and_then_stops() -> None:
    settings = some_settings(grace_minutes=5)
    first = decide(a_snapshot(an_instance(), spent=960), settings, NOW)
    assert (stopped_ids(first), kinds_told(first)) == ([], ["stop-notice"])
    assert first.decision.messages[0].severity is Severity.PAGE
    then = decide(a_snapshot(an_instance(), spent=960, state=first.state), settings, NOW + timedelta(minutes=5))
    assert (stopped_ids(then), kinds_told(then)) == (["i-0a"], ["stopping"])


def test_what_was_launched_above_the_level_gets_its_own_grace() -> None:
    settings = some_settings(grace_minutes=5)
    state = decide(a_snapshot(spent=960), settings, NOW).state
    late = an_instance("i-late", launched_at=NOW + timedelta(minutes=8))
    plan = decide(a_snapshot(late, spent=960, state=state), settings, NOW + timedelta(minutes=10))
    assert codes(plan) == {"i-late": ReasonCode.JUST_LAUNCHED}
    plan = decide(a_snapshot(late, spent=960, state=plan.state), settings, NOW + timedelta(minutes=17))
    assert stopped_ids(plan) == []
    plan = decide(a_snapshot(late, spent=960, state=plan.state), settings, NOW + timedelta(minutes=18))
    assert stopped_ids(plan) == ["i-late"]


def test_what_was_launched_with_a_run_is_told_before_it_is_stopped() -> None:
    settings = some_settings(grace_minutes=5)
    state = decide(a_snapshot(spent=960), settings, NOW).state
    late = an_instance("i-late", launched_at=NOW + timedelta(minutes=5))
    plan = decide(a_snapshot(late, spent=960, state=state), settings, NOW + timedelta(minutes=10))
    assert (stopped_ids(plan), kinds_told(plan)) == ([], ["launched-above"])


def test_a_threshold_edited_within_the_hour_holds_until_confirmed() -> None:
    edit = ThresholdEdit("budget/stop-percent", NOW - timedelta(minutes=4), "arn:user/ops")
    settings = some_settings(confirm_minutes=10)
    plan = decide(a_snapshot(an_instance(), spent=960, edits=(edit,)), settings, NOW)
    assert (stopped_ids(plan), kinds_told(plan)) == ([], ["stop-notice"])
    assert "edited" in plan.decision.messages[0].body
    snapshot = a_snapshot(an_instance(), spent=960, edits=(edit,), state=plan.state)
    assert stopped_ids(decide(snapshot, settings, NOW + timedelta(minutes=6))) == ["i-0a"]


def test_a_jump_beyond_what_the_fleet_can_burn_holds_until_confirmed() -> None:
    settings = some_settings(confirm_minutes=10)
    calm = decide(a_snapshot(an_instance(), spent=300), settings, NOW)
    jump = decide(a_snapshot(an_instance(), spent=960, state=calm.state), settings, NOW + timedelta(hours=8))
    assert [hold.code for hold in jump.decision.holds] == [ReasonCode.SPEND_JUMPED]
    later = NOW + timedelta(hours=8, minutes=10)
    assert stopped_ids(decide(a_snapshot(an_instance(), spent=960, state=jump.state), settings, later)) == ["i-0a"]


def test_a_rise_that_the_fleet_explains_is_believed_at_once() -> None:
    settings = some_settings(confirm_minutes=10)
    fleet = [an_instance("i-p4d", instance_type="p4d.24xlarge")]
    calm = decide(a_snapshot(*fleet, spent=500), settings, NOW)
    plan = decide(a_snapshot(*fleet, spent=960, state=calm.state), settings, NOW + timedelta(hours=8))
    assert stopped_ids(plan) == ["i-p4d"]


def test_the_old_months_figure_does_not_stop_anything_in_the_new_month() -> None:
    end = NOW.replace(month=11, day=30, hour=23, minute=55)
    last = decide(a_snapshot(an_instance(), spent=990), some_settings(mode=Mode.OBSERVE), end)
    first = end + timedelta(minutes=10)
    plan = decide(a_snapshot(an_instance(), spent=990, state=last.state), some_settings(), first)
    assert plan.decision.level == "unknown"
    assert stopped_ids(plan) == []
    fell = decide(a_snapshot(an_instance(), spent=3, state=plan.state), some_settings(), first + timedelta(hours=9))
    assert fell.decision.level == "below"


def test_max_stop_percent_limits_what_is_stopped_over_several_runs_and_asks_a_person() -> None:
    fleet = [an_instance(f"i-{n}") for n in range(4)]
    settings = some_settings(max_stop_percent=50)
    plan = decide(a_snapshot(*fleet, spent=960), settings, NOW)
    assert len(plan.decision.stops) == 2
    assert "over-max-stop-percent" in kinds_told(plan)
    stopped = stopped_ids(plan)
    after = [replace(i, state=InstanceState.STOPPED) if i.instance_id in stopped else i for i in fleet]
    ledger = tuple(replace(entry, status=StopStatus.STOPPED, accepted_at=NOW) for entry in plan.ledger)
    again = decide(a_snapshot(*after, spent=960, ledger=ledger, state=plan.state), settings, NOW + timedelta(minutes=5))
    assert stopped_ids(again) == []


def test_more_than_one_run_may_stop_follow_in_the_next() -> None:
    fleet = [an_instance(f"i-{n}") for n in range(3)]
    plan = decide(a_snapshot(*fleet, spent=960), some_settings(max_stops_per_run=2), NOW)
    assert stopped_ids(plan) == ["i-0", "i-1"]
    assert codes(plan)["i-2"] is ReasonCode.NEXT_RUN


def test_what_a_person_started_after_our_stop_is_left_alone_and_told_once() -> None:
    before = an_instance(launched_at=NOW - timedelta(days=2))
    entry = an_entry(before, StopStatus.STOPPED, decided_at=NOW - timedelta(hours=3))
    again = an_instance(launched_at=NOW - timedelta(hours=1))
    plan = decide(a_snapshot(again, spent=960, ledger=(entry,)), some_settings(), NOW)
    assert stopped_ids(plan) == []
    assert codes(plan) == {"i-0a": ReasonCode.MANUAL_START_GRACE}
    assert [m.key.split("#")[2] for m in plan.decision.messages] == ["started-again"]
    quiet = decide(a_snapshot(again, spent=960, ledger=plan.ledger, state=plan.state), some_settings(), NOW)
    assert quiet.decision.messages == ()


def test_a_stop_is_done_only_when_the_state_was_seen() -> None:
    running = an_instance()
    accepted = an_entry(running, StopStatus.ACCEPTED)
    stopping = replace(running, state=InstanceState.STOPPING)
    plan = decide(a_snapshot(stopping, spent=960, ledger=(accepted,)), some_settings(), NOW + timedelta(minutes=1))
    assert plan.decision.messages == ()
    stopped = replace(running, state=InstanceState.STOPPED)
    plan = decide(a_snapshot(stopped, spent=960, ledger=(accepted,)), some_settings(), NOW + timedelta(minutes=5))
    assert [entry.status for entry in plan.ledger] == [StopStatus.STOPPED]
    assert kinds_told(plan) == ["stops-seen"]


def test_an_accepted_stop_that_is_never_seen_is_a_failure_and_is_tried_again() -> None:
    entry = an_entry(an_instance(), StopStatus.ACCEPTED)
    late = NOW + timedelta(minutes=20)
    plan = decide(a_snapshot(an_instance(), spent=960, ledger=(entry,)), some_settings(), late)
    assert "stop-failed" in kinds_told(plan)
    assert stopped_ids(plan) == ["i-0a"]


def test_the_warning_says_whether_stopping_everything_reachable_would_hold_the_limit() -> None:
    dear = an_instance("i-p4d", instance_type="p4d.24xlarge", managed=None)
    plan = decide(a_snapshot(an_instance(), dear, spent=800), some_settings(), NOW)
    body = plan.decision.messages[0].body
    assert "would NOT hold the limit" in body
    assert "Out of reach by a missing or inexact tag: $21.96/h" in body
    young = an_instance(instance_type="p4d.24xlarge", launched_at=NOW - timedelta(hours=1))
    plan = decide(a_snapshot(young, spent=800), some_settings(), NOW)
    assert "would hold the limit" in plan.decision.messages[0].body


def test_an_unpriced_type_is_named_and_never_counted_as_zero() -> None:
    plan = decide(a_snapshot(an_instance(instance_type="g9.huge"), spent=800), some_settings(), NOW)
    assert plan.decision.money is not None
    assert plan.decision.money.unpriced == ("g9.huge",)
    assert plan.decision.verdicts[0].usd_per_hour is None
    assert "Not priced" in plan.decision.messages[0].body


def test_another_limit_in_the_aws_budget_is_told_not_changed() -> None:
    plan = decide(a_snapshot(an_instance(), spent=10, aws_limit_usd=500.0), some_settings(), NOW)
    assert kinds_told(plan) == ["limits-differ"]


def test_nothing_within_reach_at_the_stop_level_pages_a_person() -> None:
    plan = decide(a_snapshot(an_instance(criticality="critical"), spent=960), some_settings(), NOW)
    assert kinds_told(plan) == ["nothing-to-stop"]


def test_lowering_spend_below_the_level_starts_a_fresh_grace_later() -> None:
    settings = some_settings(grace_minutes=5)
    first = decide(a_snapshot(an_instance(), spent=960), settings, NOW)
    below = decide(a_snapshot(an_instance(), spent=700, state=first.state), settings, NOW + timedelta(minutes=5))
    assert below.state.stop_reached_at is None


def test_the_state_keeps_the_moment_of_this_run() -> None:
    plan = decide(a_snapshot(), some_settings(), NOW)
    expected = GuardState("2026-11", NOW, 0.0, NOW, fingerprint=plan.state.fingerprint, running_since=NOW)
    assert plan.state == expected
    assert Pause(active=False).readable


def test_the_meter_counts_what_the_budget_counts() -> None:
    fleet = (an_instance("i-p4d", instance_type="p4d.24xlarge"), an_instance("i-g5", instance_type="g5.xlarge"))
    snapshot = replace(a_snapshot(*fleet, spent=800), counted_families=frozenset({"p4d"}))
    money = decide(snapshot, some_settings(), NOW).decision.money
    assert money is not None
    assert money.run_rate_usd_per_hour == pytest.approx(21.957642)


def test_a_restart_is_respected_for_the_month_only() -> None:
    before = an_instance(launched_at=NOW - timedelta(days=40))
    again = an_instance(launched_at=NOW - timedelta(days=30))
    told = an_entry(before, StopStatus.RESTARTED, decided_at=NOW - timedelta(days=31))
    plan = decide(a_snapshot(again, spent=960, ledger=(told,)), some_settings(), NOW)
    assert stopped_ids(plan) == ["i-0a"]


def test_a_notice_is_not_repeated_when_one_of_its_reasons_falls_away() -> None:
    settings = some_settings(confirm_minutes=10, grace_minutes=5)
    edit = ThresholdEdit("budget/stop-percent", NOW, "ops")
    first = decide(a_snapshot(an_instance(), spent=960, edits=(edit,)), settings, NOW)
    later = NOW + timedelta(minutes=6)
    second = decide(a_snapshot(an_instance(), spent=960, edits=(edit,), state=first.state), settings, later)
    assert [m.key for m in second.decision.messages] == [m.key for m in first.decision.messages]


def run_through(*readings: tuple[float, float | None], first: float, burn: int = 1) -> list[GuardPlan]:
    """The guard through November's end and into December: (hours since 1 December, USD or None), `burn` p4d running."""
    settings = some_settings()
    end = NOW.replace(day=30, hour=23, minute=55)
    fleet = [an_instance(f"i-{n}", instance_type="p4d.24xlarge", launched_at=end) for n in range(burn)]
    plan = decide(a_snapshot(*fleet, spent=first), some_settings(mode=Mode.OBSERVE), end)
    begin = end + timedelta(minutes=5)
    plans = []
    for hours, usd in readings:
        plan = decide(a_snapshot(*fleet, spent=usd, state=plan.state), settings, begin + timedelta(hours=hours))
        plans.append(plan)
    return plans


def test_a_correction_of_the_old_months_figure_is_not_this_months_spend() -> None:
    (plan,) = run_through((0.2, 959.99), first=960.0)
    assert plan.decision.level == "unknown"
    assert stopped_ids(plan) == []


def test_a_heavy_first_day_is_believed_and_a_blind_month_cannot_be() -> None:
    plans = run_through((8, 400.0), (12, None), (16, 600.0), (26, 990.0), first=200.0, burn=2)
    assert [plan.decision.level for plan in plans] == ["below", "unknown", "below", "stop"]
    assert len(plans[-1].decision.stops) == 2


def test_what_never_becomes_believable_is_told_after_a_day_and_believed_after_a_day_and_a_half() -> None:
    early, day, late = run_through((2, 5000.0), (25, 5000.0), (37, 5000.0), first=5000.0)
    assert (early.decision.level, kinds_told(early)) == ("unknown", [])
    # The digest of the month goes out on its first day, with that doubt or without.
    assert (day.decision.level, kinds_told(day)) == ("unknown", ["doubt", "monthly"])
    assert late.decision.level == "stop"
    assert late.state.jump_at is not None


def test_a_figure_that_falls_within_the_month_is_unknown_for_a_day_and_told() -> None:
    first = decide(a_snapshot(an_instance(), spent=960), some_settings(mode=Mode.OBSERVE), NOW)
    fell = decide(a_snapshot(an_instance(), spent=0, state=first.state), some_settings(), NOW + timedelta(hours=1))
    assert (fell.decision.level, kinds_told(fell)) == ("unknown", ["doubt"])
    back = decide(a_snapshot(an_instance(), spent=970, state=fell.state), some_settings(), NOW + timedelta(hours=9))
    assert stopped_ids(back) == ["i-0a"]
    day = decide(a_snapshot(an_instance(), spent=0, state=fell.state), some_settings(), NOW + timedelta(hours=26))
    assert day.decision.level == "below"


def test_arming_above_the_level_gives_notice_and_grace_first() -> None:
    watching = decide(a_snapshot(an_instance(), spent=960), some_settings(mode=Mode.OBSERVE), NOW)
    settings = some_settings(grace_minutes=5)
    armed_at = NOW + timedelta(hours=2)
    armed = decide(a_snapshot(an_instance(), spent=960, state=watching.state), settings, armed_at)
    assert (stopped_ids(armed), kinds_told(armed)) == ([], ["stop-notice"])
    after = decide(a_snapshot(an_instance(), spent=960, state=armed.state), settings, armed_at + timedelta(minutes=5))
    assert stopped_ids(after) == ["i-0a"]


def test_a_pause_that_ends_gives_notice_and_grace_first_and_each_pause_is_told() -> None:
    settings = some_settings(grace_minutes=5)
    paused = parse_pause("on", NOW)
    first = decide(a_snapshot(an_instance(), spent=960, pause=paused), settings, NOW)
    lifted = decide(a_snapshot(an_instance(), spent=960, state=first.state), settings, NOW + timedelta(minutes=5))
    assert (kinds_told(first), kinds_told(lifted)) == (["paused"], ["stop-notice"])
    second = decide(
        a_snapshot(an_instance(), spent=960, pause=paused, state=lifted.state), settings, NOW + timedelta(minutes=6)
    )
    assert second.decision.messages[0].key != first.decision.messages[0].key


def test_one_unreadable_run_neither_resets_the_grace_nor_pages() -> None:
    settings = some_settings(grace_minutes=10)
    plan = decide(a_snapshot(an_instance(), spent=960), settings, NOW)
    blip = decide(a_snapshot(an_instance(), spent=None, state=plan.state), settings, NOW + timedelta(minutes=5))
    assert blip.decision.messages == ()
    after = decide(a_snapshot(an_instance(), spent=960, state=blip.state), settings, NOW + timedelta(minutes=10))
    assert stopped_ids(after) == ["i-0a"]


def test_nothing_is_announced_about_no_machines() -> None:
    edit = ThresholdEdit("budget/stop-percent", NOW, "ops")
    critical = an_instance(criticality="critical")
    for settings in (some_settings(mode=Mode.OBSERVE), some_settings(confirm_minutes=10), some_settings()):
        assert kinds_told(decide(a_snapshot(critical, spent=960, edits=(edit,)), settings, NOW)) == ["nothing-to-stop"]
        assert kinds_told(decide(a_snapshot(spent=960, edits=(edit,)), settings, NOW)) == [], "nothing runs"


def test_a_region_that_stays_unreadable_is_paged_once() -> None:
    gone = UnknownRegion("us-west-2", "RequestLimitExceeded")
    first = decide(a_snapshot(spent=10, unknown_regions=(gone,)), some_settings(), NOW)
    assert first.decision.messages == ()
    told = decide(
        a_snapshot(spent=10, unknown_regions=(gone,), state=first.state), some_settings(), NOW + timedelta(minutes=15)
    )
    again = decide(
        a_snapshot(spent=10, unknown_regions=(gone,), state=told.state), some_settings(), NOW + timedelta(minutes=20)
    )
    assert kinds_told(told) == ["region-blind"]
    assert [m.key for m in told.decision.messages] == [m.key for m in again.decision.messages]


def test_a_machine_of_a_region_no_longer_listed_is_not_taken_for_gone() -> None:
    entry = an_entry(an_instance("i-far", region="us-west-2"), StopStatus.STOPPED)
    snapshot = a_snapshot(spent=10, ledger=(entry,))
    snapshot = replace(snapshot, fleet=replace(snapshot.fleet, regions=("eu-west-1",)))
    assert decide(snapshot, some_settings(), NOW + timedelta(minutes=5)).ledger == ()


def test_a_stop_that_hangs_in_stopping_is_paged_once_and_seen_stopped_in_the_end() -> None:
    entry = replace(an_entry(an_instance(), StopStatus.ACCEPTED), accepted_at=NOW)
    hanging = replace(an_instance(), state=InstanceState.STOPPING)
    late = decide(a_snapshot(hanging, spent=960, ledger=(entry,)), some_settings(), NOW + timedelta(minutes=16))
    assert "stop-failed" in kinds_told(late)
    assert "still stopping 15 minutes" in late.decision.messages[0].body
    later = decide(a_snapshot(hanging, spent=960, ledger=late.ledger), some_settings(), NOW + timedelta(minutes=21))
    assert "stop-failed" not in kinds_told(later)
    gone = replace(an_instance(), state=InstanceState.STOPPED)
    end = decide(a_snapshot(gone, spent=960, ledger=late.ledger), some_settings(), NOW + timedelta(minutes=40))
    assert [e.status for e in end.ledger] == [StopStatus.STOPPED]


def test_an_accepted_stop_is_not_called_again_while_it_may_still_come() -> None:
    entry = replace(an_entry(an_instance(), StopStatus.ACCEPTED), accepted_at=NOW)
    plan = decide(a_snapshot(an_instance(), spent=960, ledger=(entry,)), some_settings(), NOW + timedelta(minutes=5))
    assert stopped_ids(plan) == []
    assert codes(plan) == {"i-0a": ReasonCode.STOP_UNDERWAY}


def test_what_was_stopped_long_ago_does_not_dull_the_jump_rule() -> None:
    settings = some_settings(confirm_minutes=10)
    old = tuple(
        an_entry(an_instance(f"i-{n}"), StopStatus.RESTARTED, decided_at=NOW - timedelta(days=15)) for n in range(50)
    )
    calm = decide(a_snapshot(an_instance(), spent=100, ledger=old), settings, NOW)
    jump = decide(
        a_snapshot(an_instance(), spent=960, ledger=old, state=calm.state), settings, NOW + timedelta(hours=8)
    )
    assert [hold.code for hold in jump.decision.holds] == [ReasonCode.SPEND_JUMPED]


def test_one_failed_stop_does_not_keep_the_outcome_of_the_others_from_being_told() -> None:
    fine, stuck = an_instance("i-fine"), an_instance("i-stuck")
    ledger = (an_entry(fine, StopStatus.ACCEPTED), an_entry(stuck, StopStatus.FAILED))
    seen = (replace(fine, state=InstanceState.STOPPED), stuck)
    plan = decide(a_snapshot(*seen, spent=960, ledger=ledger), some_settings(), NOW + timedelta(minutes=5))
    assert "stops-seen" in [m.key.split("#")[2] for m in plan.decision.messages]


def test_the_outcome_of_a_stop_is_told_even_when_the_area_was_switched_off_since() -> None:
    entry = an_entry(an_instance(), StopStatus.ACCEPTED)
    seen = replace(an_instance(), state=InstanceState.STOPPED)
    plan = decide(
        a_snapshot(seen, spent=960, ledger=(entry,)), some_settings(mode=Mode.OFF), NOW + timedelta(minutes=5)
    )
    assert [m.key.split("#")[2] for m in plan.decision.messages] == ["stops-seen"]


def test_a_budget_that_counts_far_less_than_what_runs_is_doubted_once() -> None:
    fleet = [an_instance("i-p4d", instance_type="p4d.24xlarge", launched_at=NOW - timedelta(days=15))]
    plan = decide(a_snapshot(*fleet, spent=0), some_settings(), NOW)
    assert kinds_told(plan) == ["far-behind"]
    young = [an_instance("i-p4d", instance_type="p4d.24xlarge", launched_at=NOW - timedelta(hours=40))]
    assert decide(a_snapshot(*young, spent=0), some_settings(), NOW).decision.messages == ()


def test_a_long_confirmation_is_not_cut_off() -> None:
    edit = ThresholdEdit("budget/stop-percent", NOW - timedelta(minutes=90), "ops")
    plan = decide(a_snapshot(an_instance(), spent=960, edits=(edit,)), some_settings(confirm_minutes=240), NOW)
    assert [hold.code for hold in plan.decision.holds] == [ReasonCode.THRESHOLD_EDITED]


def test_the_old_months_figure_is_not_believed_when_it_comes_back() -> None:
    plans = run_through((0.2, 990.0), (9, 31.0), (9.1, 990.0), (9.4, 990.0), (12, 60.0), first=990.0)
    assert [plan.decision.level for plan in plans] == ["unknown", "below", "unknown", "unknown", "below"]


def test_a_last_month_that_could_not_be_read_leaves_the_same_doubt() -> None:
    end = NOW.replace(day=30, hour=23)
    last = decide(a_snapshot(an_instance(), spent=None), some_settings(), end)
    plan = decide(a_snapshot(an_instance(), spent=990, state=last.state), some_settings(), end + timedelta(hours=2))
    assert plan.decision.level == "unknown"


def test_a_failure_of_last_month_is_a_new_stop_in_this_one() -> None:
    begin = NOW.replace(day=1, hour=0)
    fleet = [an_instance(f"i-{n}", launched_at=begin - timedelta(days=9)) for n in range(4)]
    ledger = tuple(an_entry(i, StopStatus.FAILED, decided_at=begin - timedelta(days=3)) for i in fleet)
    settings = some_settings(max_stop_percent=50)
    plan = decide(a_snapshot(*fleet, spent=960, ledger=ledger), settings, NOW)
    assert len(plan.decision.stops) == 2
    assert "stopping" in kinds_told(plan)
    assert {entry.decided_at for entry in plan.intended} == {NOW}
    stopped = {stop.instance_id for stop in plan.decision.stops}
    done = tuple(replace(entry, status=StopStatus.STOPPED, accepted_at=NOW) for entry in plan.intended)
    after = [replace(i, state=InstanceState.STOPPED) if i.instance_id in stopped else i for i in fleet]
    again = decide(a_snapshot(*after, spent=960, ledger=done, state=plan.state), settings, NOW + timedelta(minutes=5))
    assert again.decision.stops == ()


def test_the_share_does_not_grow_when_people_terminate_what_was_stopped() -> None:
    fleet = [an_instance(f"i-{n}") for n in range(4)]
    gone = tuple(
        replace(an_entry(an_instance(f"i-gone{n}"), StopStatus.GONE), accepted_at=NOW - timedelta(hours=1))
        for n in range(4)
    )
    plan = decide(a_snapshot(*fleet, spent=960, ledger=gone), some_settings(max_stop_percent=50), NOW)
    assert plan.decision.stops == ()


def test_after_our_stops_people_are_told_again_at_each_further_quarter_of_the_limit() -> None:
    entry = replace(an_entry(an_instance("i-done"), StopStatus.STOPPED), accepted_at=NOW)
    done = an_instance("i-done", state=InstanceState.STOPPED)
    critical = an_instance("i-critical", criticality="critical")
    told = []
    for spent in (960, 990, 1000, 1100, 1250, 2000):
        plan = decide(a_snapshot(done, critical, spent=spent, ledger=(entry,)), some_settings(), NOW)
        told += [m.key.split("#")[-3] for m in plan.decision.messages if "nothing-to-stop" in m.key]
    assert told == ["100", "100", "125", "200"]


def test_what_is_launched_above_the_level_is_announced_not_called_out_of_reach() -> None:
    settings = some_settings(grace_minutes=5)
    state = decide(a_snapshot(an_instance("i-old"), spent=960), settings, NOW).state
    late = an_instance("i-late", launched_at=NOW + timedelta(minutes=8))
    plan = decide(a_snapshot(late, spent=960, state=state), settings, NOW + timedelta(minutes=10))
    assert kinds_told(plan) == ["launched-above"]


def test_one_unreadable_pause_neither_resets_the_grace_nor_pages() -> None:
    settings = some_settings(grace_minutes=10)
    first = decide(a_snapshot(an_instance(), spent=960), settings, NOW)
    blip = decide(
        a_snapshot(an_instance(), spent=960, pause=parse_pause(None, NOW), state=first.state),
        settings,
        NOW + timedelta(minutes=5),
    )
    assert (stopped_ids(blip), blip.decision.messages) == ([], ())
    after = decide(a_snapshot(an_instance(), spent=960, state=blip.state), settings, NOW + timedelta(minutes=10))
    assert stopped_ids(after) == ["i-0a"]


def test_a_stop_by_a_person_is_not_ours() -> None:
    failed = an_entry(an_instance(), StopStatus.FAILED)
    by_hand = replace(an_instance(), state=InstanceState.STOPPED)
    plan = decide(a_snapshot(by_hand, spent=960, ledger=(failed,)), some_settings(), NOW + timedelta(minutes=5))
    assert [(e.status, e.detail) for e in plan.ledger] == [(StopStatus.GONE, "stopped by somebody else")]


def test_after_a_long_outage_the_grace_begins_anew() -> None:
    settings = some_settings(grace_minutes=10)
    plan = decide(a_snapshot(an_instance(), spent=960), settings, NOW)
    for minutes in (5, 10, 20, 25):
        snapshot = a_snapshot(an_instance(), spent=None, state=plan.state)
        plan = decide(snapshot, settings, NOW + timedelta(minutes=minutes))
    back = decide(a_snapshot(an_instance(), spent=960, state=plan.state), settings, NOW + timedelta(minutes=30))
    assert (stopped_ids(back), kinds_told(back)) == ([], ["stop-notice"])


def test_the_outcome_of_a_decision_is_not_told_again_when_a_person_starts_one_of_its_machines() -> None:
    first, second = an_instance("i-1"), an_instance("i-2")
    ledger = (an_entry(first, StopStatus.STOPPED), an_entry(second, StopStatus.STOPPED))
    seen = (replace(first, launched_at=NOW + timedelta(hours=1)), replace(second, state=InstanceState.STOPPED))
    plan = decide(a_snapshot(*seen, spent=960, ledger=ledger), some_settings(), NOW + timedelta(hours=2))
    assert [m.key.split("#")[2] for m in plan.decision.messages] == ["started-again"]


def test_a_stop_that_was_accepted_and_never_seen_is_tried_again_within_the_share() -> None:
    hung = an_instance("i-hung")
    entry = replace(an_entry(hung, StopStatus.FAILED), accepted_at=NOW)
    plan = decide(a_snapshot(hung, spent=960, ledger=(entry,)), some_settings(), NOW + timedelta(minutes=20))
    assert stopped_ids(plan) == ["i-hung"]
    assert "over-max-stop-percent" not in kinds_told(plan)
