"""The whole ladder: preemptible first, enough, small savings, commitments, waves, notices, checkpoints, groups."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from governor.domain.budget import GuardPlan, decide
from governor.domain.budget_snapshot import Checkpoint, GuardState, ThresholdEdit
from governor.domain.controls import Keep, Override
from governor.domain.decisions import Severity, StopMethod, Verdict
from governor.domain.fleet import Instance, InstanceKind, ReservedInstances
from governor.domain.groups import GroupHold
from governor.domain.ledger import StopStatus
from governor.domain.meter import hours_left
from governor.domain.reasons import ReasonCode
from governor.domain.settings import StopPolicy
from tests.builders import NOW, PRICES, a_group, a_snapshot, an_entry, an_instance, some_settings


def ids_of(plan: GuardPlan) -> list[str]:
    return [stop.instance_id for stop in plan.decision.stops]


def code_for(plan: GuardPlan, instance_id: str) -> ReasonCode:
    return next(v.reason.code for v in plan.decision.verdicts if v.instance_id == instance_id)


def subjects(plan: GuardPlan) -> list[str]:
    return [message.subject.partition("] ")[2] for message in plan.decision.messages]


def a_member(instance_id: str, **changes: object) -> Instance:
    return an_instance(
        instance_id,
        kind=InstanceKind.GROUP_MEMBER,
        owner="workers",
        member_state="InService",
        **changes,  # type: ignore[arg-type]
    )


def test_preemptible_instances_are_stopped_earlier_where_the_setting_says_so() -> None:
    fleet = (an_instance("i-0a", criticality="preemptible"), an_instance("i-0b"))
    settings = some_settings(stop_preemptible_percent=85.0)
    plan = decide(a_snapshot(*fleet, spent=870.0), settings, NOW)
    assert ids_of(plan) == ["i-0a"]
    assert code_for(plan, "i-0b") is ReasonCode.NOT_YET
    assert "85 % for preemptible" in plan.decision.messages[0].body


def test_the_standard_ones_get_a_grace_of_their_own_when_the_level_rises() -> None:
    settings = some_settings(stop_preemptible_percent=85.0, grace_minutes=5)
    fleet = (an_instance("i-0a", criticality="preemptible"), an_instance("i-0b"))
    first = decide(a_snapshot(*fleet, spent=870.0), settings, NOW)
    at = NOW + timedelta(minutes=5)
    second = decide(a_snapshot(*fleet, spent=870.0, state=first.state), settings, at)
    assert ids_of(second) == ["i-0a"]
    third = decide(a_snapshot(fleet[1], spent=960.0, state=second.state), settings, at + timedelta(minutes=5))
    assert ids_of(third) == []
    fourth = decide(a_snapshot(fleet[1], spent=960.0, state=third.state), settings, at + timedelta(minutes=10))
    assert ids_of(fourth) == ["i-0b"]


def test_enough_stops_the_fewest_in_order_of_regret_that_bring_the_forecast_under_the_limit() -> None:
    fleet = tuple(an_instance(f"i-{n:02x}", criticality="preemptible") for n in range(10))
    rate = PRICES.usd_per_hour["g4dn.xlarge"]
    settings = some_settings(stop_policy=StopPolicy.ENOUGH, limit_usd=20_000.0)
    plan = decide(a_snapshot(*fleet, spent=19_050.0, aws_limit_usd=20_000.0), settings, NOW)
    assert plan.decision.money is not None
    over = (plan.decision.money.forecast_high_usd or 0.0) - 20_000.0
    each = rate * hours_left(NOW)
    stopped = len(ids_of(plan))
    assert 0 < stopped < 10
    assert (stopped - 1) * each < over <= stopped * each
    assert code_for(plan, fleet[-1].instance_id) is ReasonCode.ENOUGH


def test_enough_stops_nothing_where_the_forecast_is_within_the_limit_and_pages_nobody() -> None:
    near_end = datetime(2026, 11, 30, 22, tzinfo=NOW.tzinfo)
    instance = an_instance(launched_at=near_end - timedelta(hours=3))
    settings = some_settings(stop_policy=StopPolicy.ENOUGH, min_saving_usd=0.0)
    plan = decide(a_snapshot(instance, spent=955.0), settings, near_end)
    assert ids_of(plan) == []
    assert plan.decision.messages == ()


def test_what_saves_too_little_to_the_end_of_the_month_is_not_stopped() -> None:
    near_end = datetime(2026, 11, 30, 23, tzinfo=NOW.tzinfo)
    small, big = an_instance("i-0a"), an_instance("i-0b", instance_type="p4d.24xlarge")
    plan = decide(a_snapshot(small, big, spent=960.0), some_settings(), near_end)
    assert ids_of(plan) == ["i-0b"]
    assert code_for(plan, "i-0a") is ReasonCode.SAVES_TOO_LITTLE


@pytest.mark.parametrize(("count", "stopped"), [(0, 3), (1, 2), (2, 1), (3, 0), (9, 0)])
def test_reserved_instances_make_so_many_stops_useless(count: int, stopped: int) -> None:
    fleet = [an_instance(f"i-0{n}") for n in range(3)]
    reserved = (ReservedInstances("eu-west-1", "g4dn.xlarge", count),)
    plan = decide(a_snapshot(*fleet, spent=960.0, reserved=reserved), some_settings(), NOW)
    assert len(ids_of(plan)) == stopped
    useless = [v for v in plan.decision.verdicts if v.reason.code is ReasonCode.SAVES_NOTHING]
    assert len(useless) == 3 - stopped


def test_a_critical_machine_uses_up_a_reservation_as_well() -> None:
    fleet = [an_instance("i-0a", criticality="critical"), an_instance("i-0b")]
    reserved = (ReservedInstances("eu-west-1", "g4dn.xlarge", 1),)
    plan = decide(a_snapshot(*fleet, spent=960.0, reserved=reserved), some_settings(), NOW)
    assert ids_of(plan) == ["i-0b"]


def test_a_reservation_of_another_zone_covers_nothing_here() -> None:
    fleet = [replace(an_instance("i-0a"), zone="eu-west-1a")]
    reserved = (ReservedInstances("eu-west-1", "g4dn.xlarge", 1, "eu-west-1b"),)
    plan = decide(a_snapshot(*fleet, spent=960.0, reserved=reserved), some_settings(), NOW)
    assert ids_of(plan) == ["i-0a"]


def test_after_a_hold_the_stops_come_in_waves() -> None:
    fleet = [an_instance(f"i-{n:02x}") for n in range(8)]
    settings = some_settings(confirm_minutes=10)
    edit = ThresholdEdit("budget/stop-percent", NOW - timedelta(minutes=11), "someone")
    plan = decide(a_snapshot(*fleet, spent=960.0, edits=(edit,)), settings, NOW)
    assert len(ids_of(plan)) == 4
    assert code_for(plan, "i-07") is ReasonCode.NEXT_WAVE
    stopped = tuple(
        replace(an_entry(i, StopStatus.STOPPED), accepted_at=NOW) for i in fleet if i.instance_id in ids_of(plan)
    )
    left = [i for i in fleet if i.instance_id not in ids_of(plan)]
    soon = decide(
        a_snapshot(*left, spent=960.0, edits=(edit,), ledger=stopped, state=plan.state),
        settings,
        NOW + timedelta(minutes=1),
    )
    assert ids_of(soon) == [], "a run that follows at once is not the next wave"
    later = decide(
        a_snapshot(*left, spent=960.0, edits=(edit,), ledger=stopped, state=plan.state),
        settings,
        NOW + timedelta(minutes=5),
    )
    assert len(ids_of(later)) == 4


def test_the_notice_goes_out_before_the_crossing_and_its_grace_counts() -> None:
    settings = some_settings(grace_minutes=10)
    big = an_instance(instance_type="p4d.24xlarge", launched_at=NOW - timedelta(hours=1))
    state = GuardState("2026-11", NOW - timedelta(minutes=5), 940.0, NOW - timedelta(minutes=20))
    plan = decide(a_snapshot(big, spent=940.0, state=state), settings, NOW)
    assert plan.decision.level == "warn"
    assert any(s.startswith("the stop level comes near") for s in subjects(plan))
    assert plan.state.noticed_at == NOW
    crossed = decide(a_snapshot(big, spent=951.0, state=plan.state), settings, NOW + timedelta(minutes=15))
    assert ids_of(crossed) == [big.instance_id], "the grace has run since the notice"


def test_no_notice_goes_out_while_the_crossing_is_far_away() -> None:
    state = GuardState("2026-11", NOW - timedelta(minutes=5), 820.0, NOW - timedelta(minutes=20))
    plan = decide(a_snapshot(an_instance(), spent=820.0, state=state), some_settings(grace_minutes=10), NOW)
    assert plan.state.noticed_at is None
    assert [s for s in subjects(plan) if "comes near" in s] == []


def a_checkpointed(instance_id: str = "i-0a") -> Instance:
    tags = {"governor:managed": "test", "governor:criticality": "standard", "governor:checkpoint": "Save-Work"}
    return an_instance(instance_id, tags=tags)


ALLOWED = frozenset({"Save-Work"})


def test_a_checkpoint_is_run_within_the_grace_and_waited_for() -> None:
    settings = some_settings(grace_minutes=5)
    saved, plain = a_checkpointed(), an_instance("i-0b")
    first = decide(a_snapshot(saved, plain, spent=960.0, checkpoint_documents=ALLOWED), settings, NOW)
    assert [(c.instance_id, c.document) for c in first.decision.checkpoints] == [("i-0a", "Save-Work")]
    assert first.decision.stops == ()
    due = NOW + timedelta(minutes=5)
    running = Checkpoint("i-0a", "eu-west-1", saved.launched_at or NOW, "Save-Work", NOW + timedelta(minutes=2), "c-1")
    waiting = decide(
        a_snapshot(saved, plain, spent=960.0, state=first.state, checkpoints=(running,), checkpoint_documents=ALLOWED),
        settings,
        due,
    )
    assert ids_of(waiting) == ["i-0b"]
    assert code_for(waiting, "i-0a") is ReasonCode.CHECKPOINT_RUNNING
    done = replace(running, status="success")
    after = decide(
        a_snapshot(saved, spent=960.0, state=waiting.state, checkpoints=(done,), checkpoint_documents=ALLOWED),
        settings,
        due + timedelta(minutes=1),
    )
    assert ids_of(after) == ["i-0a"]


@pytest.mark.parametrize("status", ["failed", "pending"])
def test_one_whose_checkpoint_failed_or_hangs_goes_last_and_the_message_says_so(status: str) -> None:
    settings = some_settings(grace_minutes=5)
    saved, plain = replace(a_checkpointed(), launched_at=NOW - timedelta(hours=1)), an_instance("i-0b")
    state = GuardState(
        "2026-11", NOW - timedelta(minutes=5), 960.0, NOW, stop_reached_at=NOW - timedelta(minutes=9), stop_scope="all"
    )
    run = Checkpoint(
        "i-0a", "eu-west-1", saved.launched_at or NOW, "Save-Work", NOW - timedelta(minutes=6), "c-1", status, "broke"
    )
    plan = decide(
        a_snapshot(saved, plain, spent=960.0, state=state, checkpoints=(run,), checkpoint_documents=ALLOWED),
        settings,
        NOW,
    )
    assert ids_of(plan) == ["i-0b", "i-0a"]
    (page,) = [m for m in plan.decision.messages if m.severity is Severity.PAGE]
    assert "its checkpoint Save-Work failed (broke), so it goes last" in page.body


def test_a_document_that_the_stage_does_not_allow_is_not_run() -> None:
    plan = decide(a_snapshot(a_checkpointed(), spent=960.0), some_settings(grace_minutes=5), NOW)
    assert plan.decision.checkpoints == ()
    assert "checkpoint_documents in cdk.json" in plan.decision.messages[0].body


def test_nothing_is_run_on_machines_while_people_hold_it() -> None:
    override = Override("budget", until=NOW + timedelta(hours=1))
    plan = decide(
        a_snapshot(a_checkpointed(), spent=960.0, overrides=(override,), checkpoint_documents=ALLOWED),
        some_settings(grace_minutes=5),
        NOW,
    )
    assert plan.decision.checkpoints == ()


def test_an_override_of_the_budget_holds_everything_and_is_told_once_and_ends_with_a_notice() -> None:
    settings = some_settings(grace_minutes=5)
    override = Override("budget", until=NOW + timedelta(hours=1), reason="launch day", source="override/budget")
    first = decide(a_snapshot(an_instance(), spent=960.0, overrides=(override,)), settings, NOW)
    assert ids_of(first) == []
    assert first.decision.holds[0].code is ReasonCode.OVERRIDDEN
    assert subjects(first) == ["overridden at 96 % of the limit: $0.53/h goes on"]
    at = NOW + timedelta(minutes=30)
    again = decide(a_snapshot(an_instance(), spent=960.0, overrides=(override,), state=first.state), settings, at)
    assert [m.key for m in again.decision.messages] == [m.key for m in first.decision.messages]
    ended = NOW + timedelta(hours=1)
    over = decide(a_snapshot(an_instance(), spent=960.0, overrides=(override,), state=again.state), settings, ended)
    assert ids_of(over) == []
    assert any(s.startswith("stopping 1 instance at") for s in subjects(over))


def test_an_override_up_to_an_amount_ends_at_it() -> None:
    override = Override("budget", up_to_usd=970.0)
    assert ids_of(decide(a_snapshot(an_instance(), spent=969.0, overrides=(override,)), some_settings(), NOW)) == []
    assert ids_of(decide(a_snapshot(an_instance(), spent=970.0, overrides=(override,)), some_settings(), NOW)) != []


def test_an_override_that_cannot_be_read_holds_the_budget_and_pages() -> None:
    override = Override("budget", reason="control/override/budget holds 'x'", readable=False)
    plan = decide(a_snapshot(an_instance(), spent=999.0, overrides=(override,)), some_settings(), NOW)
    assert ids_of(plan) == []
    assert [m.severity for m in plan.decision.messages] == [Severity.PAGE]


def test_a_kept_instance_is_left_and_the_others_go() -> None:
    keep = Keep("i-0a", NOW + timedelta(hours=4), "demo at noon")
    plan = decide(
        a_snapshot(an_instance("i-0a"), an_instance("i-0b"), spent=960.0, keeps=(keep,)), some_settings(), NOW
    )
    assert ids_of(plan) == ["i-0b"]
    assert "demo at noon" in plan.decision.messages[0].body


def test_the_stop_of_members_records_the_groups_sizes_before() -> None:
    members = [a_member("i-0a"), a_member("i-0b"), a_member("i-0c", managed=None, criticality="standard")]
    group = a_group(*members, min_size=2, desired=3)
    plan = decide(a_snapshot(*members, spent=960.0, groups=(group,)), some_settings(), NOW)
    assert [(s.instance_id, s.method, s.group) for s in plan.decision.stops] == [
        ("i-0a", StopMethod.STANDBY_AND_STOP, "workers"),
        ("i-0b", StopMethod.STANDBY_AND_STOP, "workers"),
    ]
    (hold,) = plan.holds
    assert (hold.min_before, hold.desired_before, hold.min_set) == (2, 3, 1)
    assert all(entry.standby_by_us for entry in plan.intended)


def test_a_group_that_somebody_else_changed_is_held_and_told_not_fought() -> None:
    member, ours = a_member("i-0a"), replace(a_member("i-0b"), member_state="Standby")
    group = a_group(member, ours, min_size=1, desired=4)
    hold = GroupHold("workers", "eu-west-1", 1, 2, 1, 1, NOW, NOW, "d")
    entry = replace(an_entry(ours, StopStatus.STOPPED), group="workers", standby_by_us=True)
    plan = decide(
        a_snapshot(member, ours, spent=960.0, groups=(group,), holds=(hold,), ledger=(entry,)), some_settings(), NOW
    )
    assert ids_of(plan) == []
    assert code_for(plan, "i-0a") is ReasonCode.GROUP_CHANGED
    assert any("group workers was changed" in s for s in subjects(plan))
    unchanged = a_group(member, ours, min_size=1, desired=1)
    plan = decide(
        a_snapshot(member, ours, spent=960.0, groups=(unchanged,), holds=(hold,), ledger=(entry,)),
        some_settings(),
        NOW,
    )
    assert ids_of(plan)[0] == "i-0a"


@pytest.mark.parametrize(("hours", "stopped"), [(11.9, []), (12.0, ["i-0a"])])
def test_what_a_person_started_after_our_stop_has_a_grace_and_then_goes(hours: float, stopped: list[str]) -> None:
    started = NOW - timedelta(hours=hours)
    before = an_instance(launched_at=NOW - timedelta(days=3))
    entry = an_entry(before, StopStatus.RESTARTED, updated_at=started)
    now_running = replace(before, launched_at=started)
    state = GuardState(
        "2026-11", NOW - timedelta(minutes=5), 960.0, NOW, stop_reached_at=NOW - timedelta(days=1), stop_scope="all"
    )
    plan = decide(a_snapshot(now_running, spent=960.0, ledger=(entry,), state=state), some_settings(), NOW)
    assert ids_of(plan) == stopped
    if not stopped:
        assert code_for(plan, "i-0a") is ReasonCode.MANUAL_START_GRACE


def test_what_a_group_launches_in_places_that_a_person_gave_back_has_the_same_grace() -> None:
    gone, another = (
        an_instance(f"i-0{n}", kind=InstanceKind.GROUP_MEMBER, owner="workers", launched_at=NOW - timedelta(days=3))
        for n in "ab"
    )
    asked = NOW - timedelta(hours=2)
    entries = tuple(
        replace(
            an_entry(one, StopStatus.RESTORED, updated_at=asked),
            method=StopMethod.LOWER.value,
            group="workers",
            restore_asked_by=by,
            restore_asked_at=asked,
            restored_at=asked,
        )
        for one, by in ((gone, "arn:aws:sts::123456789012:assumed-role/Operator/alice"), (another, "the new period"))
    )
    first, second = (a_member(f"i-0{n}", launched_at=asked + timedelta(minutes=m)) for n, m in (("c", 1), ("d", 2)))
    older = a_member("i-0e", launched_at=NOW - timedelta(days=4))
    state = GuardState(
        "2026-11", NOW - timedelta(minutes=5), 960.0, NOW, stop_reached_at=NOW - timedelta(days=1), stop_scope="all"
    )
    fleet = (first, second, older)
    snapshot = a_snapshot(*fleet, spent=960.0, ledger=entries, state=state, groups=(a_group(*fleet),))
    plan = decide(snapshot, some_settings(wave_percent=100), NOW)
    assert code_for(plan, "i-0c") is ReasonCode.MANUAL_START_GRACE
    assert set(ids_of(plan)) == {"i-0d", "i-0e"}, "one place was given back by a person, so one machine is left alone"
    later = decide(snapshot, some_settings(wave_percent=100, manual_start_grace_hours=2), NOW)
    assert set(ids_of(later)) == {"i-0c", "i-0d", "i-0e"}


def test_victims_say_how_they_are_stopped_and_what_may_not_come_back() -> None:
    plan = decide(a_snapshot(an_instance(instance_type="p4d.24xlarge"), spent=960.0), some_settings(), NOW)
    (verdict,) = [v for v in plan.decision.verdicts if v.verdict is Verdict.STOP]
    assert verdict.method is StopMethod.STOP
    assert [note.code for note in verdict.notes] == [ReasonCode.MAY_NOT_COME_BACK]
    assert "p4d is scarce: it may not come back" in plan.decision.messages[0].body
