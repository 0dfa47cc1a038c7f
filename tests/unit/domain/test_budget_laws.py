"""Laws of the budget guard, over random fleets, tags, states, prices and limits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from governor.domain.budget import decide
from governor.domain.budget_snapshot import BudgetReading, BudgetSnapshot, GuardState, ThresholdEdit, UnknownBudget
from governor.domain.controls import Controls, Keep, Override
from governor.domain.decisions import StopInstance, StopMethod
from governor.domain.eligibility import Surroundings
from governor.domain.fleet import (
    FleetSnapshot,
    Group,
    Instance,
    InstanceKind,
    InstanceState,
    ReservedInstances,
    SpotKind,
    SpotRequest,
    UnknownRegion,
)
from governor.domain.guard import StopLimits, permit_stops, share_of
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.meter import hours_left
from governor.domain.pause import Pause, parse_pause
from governor.domain.prices import PriceCatalogue
from governor.domain.settings import BudgetSettings, GroupAction, Mode, RestoreAtPeriod, StopPolicy, Switch
from governor.domain.tags import Criticality, normalise, read_governance
from tests.builders import KEYS, NOW, PRICES, STAGE

TYPES = ("p4d.24xlarge", "g4dn.xlarge", "g5.xlarge", "p5.48xlarge", "g9.huge", "", "nonsense")
spaces = st.sampled_from(["", " ", "\t", "\u00a0", "\u200b", "\u2003", "\ufeff"])


@st.composite
def variants_of(draw: st.DrawFn, word: str) -> str:
    """A word as people write it: cases, spaces, full-width forms, invisible characters."""
    text: str = draw(st.sampled_from([word, word.upper(), word.title(), word.capitalize()]))
    if draw(st.integers(0, 9)) == 0:
        text = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)
    return draw(spaces) + text + draw(spaces)


tag_keys = st.one_of(
    st.sampled_from([KEYS.managed, KEYS.criticality, KEYS.project, "Name"]),
    variants_of(KEYS.managed),
    variants_of(KEYS.criticality),
    st.text(max_size=12),
)
tag_values = st.one_of(
    st.sampled_from([STAGE, "critical", "standard", "preemptible", "prod", ""]),
    variants_of(STAGE),
    variants_of("critical"),
    variants_of("standard"),
    variants_of("preemptible"),
    st.text(max_size=12),
)
likely_tags = st.sampled_from(
    [
        ((KEYS.managed, STAGE), (KEYS.criticality, "standard")),
        ((KEYS.managed, STAGE), (KEYS.criticality, "preemptible")),
        ((KEYS.managed, STAGE), (KEYS.criticality, "critical")),
        ((KEYS.managed, STAGE),),
    ]
)
all_tags = st.one_of(
    likely_tags,
    st.lists(st.tuples(tag_keys, tag_values), max_size=6).map(tuple),
    st.tuples(likely_tags, st.lists(st.tuples(tag_keys, tag_values), max_size=2)).map(lambda p: (*p[0], *p[1])),
)
moments = st.datetimes(datetime(2026, 11, 1), datetime(2026, 12, 5), timezones=st.just(UTC))
money = st.floats(0, 1e7, allow_nan=False)


@st.composite
def an_arbitrary_instance(draw: st.DrawFn, number: int) -> tuple[Instance, tuple[tuple[str, str], ...]]:
    tags = draw(all_tags)
    kind = draw(st.sampled_from([InstanceKind.PLAIN] * 6 + [InstanceKind.GROUP_MEMBER] * 3 + list(InstanceKind)))
    spots = st.builds(SpotRequest, st.just("sir-1"), st.sampled_from(SpotKind), st.booleans())
    instance = Instance(
        instance_id=f"i-{number}",
        region=draw(st.sampled_from(["eu-west-1", "us-east-1"])),
        instance_type=draw(st.sampled_from(TYPES)),
        state=draw(st.sampled_from([InstanceState.RUNNING] * 4 + list(InstanceState))),
        launched_at=draw(st.one_of(moments, st.none())),
        kind=kind,
        governance=read_governance(tags, KEYS, STAGE),
        owner="g" if kind is InstanceKind.GROUP_MEMBER else "",
        tags=tuple(sorted(tags)),
        member_state=draw(st.sampled_from(["InService", "InService", "Standby", "Pending", ""])),
        spot=draw(spots) if kind is InstanceKind.SPOT else None,
        stop_protected=draw(st.sampled_from([False, False, None, True])),
    )
    return instance, tags


def groups_of(fleet: list[Instance], draw: st.DrawFn) -> tuple[Group, ...]:
    """The group `g` of each Region with the members that the fleet has."""
    groups = []
    for region in ("eu-west-1", "us-east-1"):
        members = [i for i in fleet if i.region == region and i.kind is InstanceKind.GROUP_MEMBER]
        may_be_seen: int = draw(st.integers(0, 5))
        if members and may_be_seen:
            tags = draw(st.one_of(likely_tags, all_tags))
            low: int = draw(st.integers(0, len(members)))
            desired: int = draw(st.integers(low, 12))
            groups.append(
                Group(
                    name="g",
                    region=region,
                    min_size=low,
                    max_size=12,
                    desired=desired,
                    governance=read_governance(tags, KEYS, STAGE),
                    members=tuple(sorted((m.instance_id, m.member_state) for m in members)),
                    scales_itself=draw(st.sampled_from([(), (), ("scaling policy cpu",)])),
                )
            )
    return tuple(groups)


@st.composite
def some_fleet(draw: st.DrawFn) -> list[tuple[Instance, tuple[tuple[str, str], ...]]]:
    return [draw(an_arbitrary_instance(number)) for number in range(draw(st.integers(0, 12)))]


guard_settings = st.builds(
    BudgetSettings,
    mode=st.sampled_from(Mode),
    limit_usd=st.floats(1, 1e7),
    warn_percent=st.floats(1, 200),
    stop_percent=st.floats(2, 500),
    stop_families=st.sampled_from([("p4d", "g4dn"), ("g5",), ("p4d", "g4dn", "g5", "p5", "g9")]),
    grace_minutes=st.integers(0, 120),
    confirm_minutes=st.integers(0, 240),
    max_stop_percent=st.floats(0, 100),
    max_stops_per_run=st.integers(1, 50),
    stop_policy=st.sampled_from(StopPolicy),
    stop_preemptible_percent=st.one_of(st.none(), st.floats(2, 500)),
    min_saving_usd=st.floats(0, 2000),
    stop_tags=st.sampled_from([(), ((KEYS.managed, STAGE),), (("env", "dev"),)]),
    group_action=st.sampled_from(GroupAction),
    terminate_one_time_spot=st.sampled_from(Switch),
    wave_percent=st.floats(1, 100),
    manual_start_grace_hours=st.integers(0, 744),
    restore_at_period=st.sampled_from(RestoreAtPeriod),
)
keep_lists = st.lists(
    st.builds(Keep, st.integers(0, 12).map(lambda n: f"i-{n}"), st.one_of(st.none(), moments), readable=st.booleans()),
    max_size=2,
).map(tuple)
override_lists = st.lists(
    st.builds(
        Override,
        st.sampled_from(["budget", "project", "instance", "instance"]),
        st.integers(0, 12).map(lambda n: f"i-{n}"),
        until=st.one_of(st.none(), moments),
        up_to_usd=st.one_of(st.none(), money),
        readable=st.sampled_from([True, True, True, False]),
    ),
    max_size=1,
).map(tuple)
pauses = st.one_of(st.just(Pause(active=False)), st.text(max_size=30).map(lambda text: parse_pause(text, NOW)))


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[BudgetSnapshot, dict[str, tuple[tuple[str, str], ...]]]:
    fleet = draw(some_fleet())
    entries = tuple(
        StopEntry(
            instance_id=instance.instance_id,
            region=instance.region,
            reason="budget",
            launched_at=draw(moments),
            rule="r",
            decided_at=draw(moments),
            decision_id="guard_budget@then",
            status=draw(st.sampled_from(StopStatus)),
            updated_at=draw(moments),
            usd_per_hour=draw(st.one_of(st.none(), st.floats(0, 200))),
            method=draw(st.sampled_from(StopMethod)).value,
            group=instance.owner,
            standby_by_us=draw(st.booleans()),
            restore_asked_by=draw(st.sampled_from(["", "limit", "period 2026-11", "arn:aws:iam::1:user/me"])),
        )
        for instance, _ in fleet
        if draw(st.integers(0, 3)) == 0
    )
    state = draw(
        st.one_of(
            st.none(),
            st.builds(
                GuardState,
                period=st.sampled_from(["2026-10", "2026-11"]),
                decided_at=st.just(NOW - timedelta(minutes=5)),
                actual_usd=st.one_of(st.none(), money),
                actual_moved_at=st.one_of(st.none(), moments),
                last_period_actual_usd=st.one_of(st.none(), money),
                stop_reached_at=st.one_of(st.none(), moments),
                jump_at=st.one_of(st.none(), moments),
            ),
        )
    )
    budget = draw(
        st.one_of(
            st.builds(BudgetReading, st.just("gpu"), money, st.one_of(st.none(), money)),
            st.just(UnknownBudget("gpu", "denied")),
        )
    )
    unknown = draw(st.sampled_from([(), (UnknownRegion("us-east-1", "throttled"),)]))
    snapshot = BudgetSnapshot(
        stage=STAGE,
        home_region="eu-west-1",
        fleet=FleetSnapshot(
            tuple(instance for instance, _ in fleet),
            unknown,
            groups=groups_of([instance for instance, _ in fleet], draw),
            reserved=draw(st.sampled_from([(), (ReservedInstances("eu-west-1", "g4dn.xlarge", 2),)])),
        ),
        budget=budget,
        prices=PRICES,
        controls=Controls(draw(pauses), draw(keep_lists), draw(override_lists)),
        settings_version=1,
        ledger=entries,
        state=state,
        edits=draw(st.sampled_from([(), (ThresholdEdit("budget/stop-percent", NOW - timedelta(minutes=3), "me"),)])),
    )
    return snapshot, {instance.instance_id: tags for instance, tags in fleet}


def means(tags: tuple[tuple[str, str], ...], key: str) -> set[str]:
    """What the variants of a tag say, read apart from the code under test's own decision."""
    return {normalise(value) for name, value in tags if normalise(name) == normalise(key)}


@settings(max_examples=400, deadline=None)
@given(snapshots(), guard_settings)
def test_no_critical_or_unmanaged_instance_is_ever_decided_to_stop(
    drawn: tuple[BudgetSnapshot, dict[str, tuple[tuple[str, str], ...]]], guard: BudgetSettings
) -> None:
    snapshot, tags = drawn
    for stop in decide(snapshot, guard, NOW).decision.stops:
        mine = tags[stop.instance_id]
        assert means(mine, KEYS.managed) == {STAGE}
        assert (KEYS.managed, STAGE) in mine
        assert len(means(mine, KEYS.criticality)) == 1
        assert means(mine, KEYS.criticality) <= {"standard", "preemptible"}
        assert any((KEYS.criticality, exactly) in mine for exactly in ("standard", "preemptible"))


@settings(max_examples=400, deadline=None)
@given(snapshots(), guard_settings)
def test_stops_happen_only_armed_unpaused_at_the_level_in_scope_and_within_limits(
    drawn: tuple[BudgetSnapshot, object], guard: BudgetSettings
) -> None:
    snapshot, _ = drawn
    plan = decide(snapshot, guard, NOW)
    stops = plan.decision.stops
    by_id = {instance.instance_id: instance for instance in snapshot.fleet.instances}
    if not stops:
        return
    assert guard.mode is Mode.ENFORCE
    assert not snapshot.controls.pause.active
    assert snapshot.controls.override_of_budget(NOW, plan.spent_usd) is None
    assert isinstance(snapshot.budget, BudgetReading)
    percent = snapshot.budget.actual_usd / guard.limit_usd * 100
    assert percent >= min(guard.stop_percent, guard.stop_preemptible_at_percent)
    assert len(stops) <= guard.max_stops_per_run
    not_critical = [i for i in by_id.values() if i.governance.stoppable and i.state is InstanceState.RUNNING]
    ours = plan.limits.already_stopped
    assert len(stops) + ours <= share_of(guard.max_stop_percent, len(not_critical) + ours)
    for stop in stops:
        instance = by_id[stop.instance_id]
        assert instance.family in guard.stop_families
        assert instance.state is InstanceState.RUNNING
        assert instance.stop_protected is not True
        assert snapshot.controls.keep_of(instance.instance_id, NOW) is None
        if percent < guard.stop_percent:
            assert instance.governance.criticality is Criticality.PREEMPTIBLE
        if instance.kind is InstanceKind.GROUP_MEMBER:
            check_member(snapshot, instance, stop, guard)
        elif instance.kind is InstanceKind.SPOT:
            assert instance.spot is not None
            assert instance.spot.stoppable or guard.terminate_one_time_spot is Switch.ON
        else:
            assert (instance.kind, stop.method) == (InstanceKind.PLAIN, StopMethod.STOP)
    assert len({stop.instance_id for stop in stops}) == len(stops)


def check_member(snapshot: BudgetSnapshot, instance: Instance, stop: StopInstance, guard: BudgetSettings) -> None:
    """A member is never stopped in service, and only in a group that is tagged, silent and without a critical one."""
    (group,) = [g for g in snapshot.fleet.groups if g.region == instance.region]
    assert group.governance.stoppable
    assert group.scales_itself == ()
    members = [i for i in snapshot.fleet.instances if i.owner and i.region == instance.region]
    assert all(m.governance.criticality is not Criticality.CRITICAL for m in members)
    assert guard.group_action is not GroupAction.REPORT
    if stop.method is StopMethod.STOP:
        assert instance.member_state == "Standby"


@settings(max_examples=300, deadline=None)
@given(snapshots(), guard_settings)
def test_the_decision_is_total_and_deterministic_and_covers_every_instance(
    drawn: tuple[BudgetSnapshot, object], guard: BudgetSettings
) -> None:
    snapshot, _ = drawn
    plan = decide(snapshot, guard, NOW)
    assert plan == decide(snapshot, guard, NOW)
    assert sorted(v.instance_id for v in plan.decision.verdicts) == sorted(
        i.instance_id for i in snapshot.fleet.instances
    )
    for message in plan.decision.messages:
        assert message.subject.isascii()
        assert 0 < len(message.subject) <= 100
        assert "\n" not in message.subject


@settings(max_examples=300, deadline=None)
@given(snapshots(), guard_settings)
def test_enough_exceeds_the_need_by_less_than_one_instance(
    drawn: tuple[BudgetSnapshot, object], guard: BudgetSettings
) -> None:
    snapshot, _ = drawn
    guard = replace(guard, mode=Mode.ENFORCE, stop_policy=StopPolicy.ENOUGH)
    decision = decide(snapshot, guard, NOW).decision
    if not decision.stops:
        return
    assert decision.money is not None
    assert decision.money.forecast_high_usd is not None
    need = decision.money.forecast_high_usd - guard.limit_usd
    savings = [(stop.usd_per_hour or 0.0) * hours_left(NOW) for stop in decision.stops]
    assert need > 0
    assert sum(savings) - savings[-1] < need


@settings(max_examples=200, deadline=None)
@given(snapshots(), guard_settings)
def test_deciding_again_after_acting_stops_and_says_nothing_more(
    drawn: tuple[BudgetSnapshot, object], guard: BudgetSettings
) -> None:
    snapshot, _ = drawn
    guard = replace(guard, max_stop_percent=100.0, max_stops_per_run=50)
    first = decide(snapshot, guard, NOW)
    hit = {stop.instance_id for stop in first.decision.stops}
    fleet = tuple(
        replace(i, state=InstanceState.STOPPING) if i.instance_id in hit else i for i in snapshot.fleet.instances
    )
    ledger = {(e.instance_id, e.launched_at): e for e in (*snapshot.ledger, *first.ledger)}
    again = replace(
        snapshot,
        fleet=replace(snapshot.fleet, instances=fleet),
        ledger=tuple(
            replace(e, status=StopStatus.ACCEPTED) if e.instance_id in hit and e.status is StopStatus.INTENDED else e
            for e in ledger.values()
        ),
        state=first.state,
    )
    second = decide(again, guard, NOW)
    assert second.decision.stops == ()
    told = {message.key for message in first.decision.messages}
    new = {m.key for m in second.decision.messages} - told
    expected = ("nothing-to-stop", "limits-differ", "group-changed", "stops-seen")
    assert all(any(part in key for part in expected) for key in new), new


@settings(max_examples=300, deadline=None)
@given(some_fleet(), some_fleet(), st.sampled_from(Mode), pauses, st.integers(0, 5), st.integers(0, 5))
def test_the_guard_lets_only_fresh_stoppable_ids_through_and_never_more_than_allowed(
    wanted: list[tuple[Instance, object]],
    fresh: list[tuple[Instance, object]],
    mode: Mode,
    pause: Pause,
    most: int,
    total: int,
) -> None:
    stops = [
        StopInstance(i.instance_id, i.region, i.launched_at or NOW, "budget", "rule", None)
        for i, _ in (*wanted, *wanted)
    ]
    facts = {i.instance_id: i for i, _ in fresh}
    around = Surroundings(BudgetSettings(), Controls(pause), NOW)
    permit = permit_stops(stops, facts, mode=mode, around=around, limits=StopLimits(most, total))
    assert len(permit.allowed) <= min(most, total)
    assert {s.instance_id for s in permit.allowed}.isdisjoint(s.instance_id for s, _ in permit.refused)
    assert {s.instance_id for s in stops} == {s.instance_id for s in (*permit.allowed, *(s for s, _ in permit.refused))}
    if mode is not Mode.ENFORCE or pause.active:
        assert permit.allowed == ()
    for stop in permit.allowed:
        seen = facts[stop.instance_id]
        assert seen.governance.stoppable
        assert seen.governance.criticality is not Criticality.CRITICAL
        assert seen.state is InstanceState.RUNNING
        assert seen.launched_at == stop.launched_at
        assert seen.stop_protected is False


@given(st.lists(st.tuples(tag_keys, tag_values), max_size=6))
def test_tags_are_read_without_error_and_doubt_means_critical(tags: list[tuple[str, str]]) -> None:
    governance = read_governance(tags, KEYS, STAGE)
    if governance.criticality is not Criticality.CRITICAL:
        assert means(tuple(tags), KEYS.criticality) == {governance.criticality.value}
    if governance.managed:
        assert means(tuple(tags), KEYS.managed) == {STAGE}


@given(st.text(max_size=60), moments)
def test_any_text_in_the_pause_parameter_is_read_and_doubt_means_paused(text: str, now: datetime) -> None:
    pause = parse_pause(text, now)
    if not pause.active:
        assert text.strip().lower().startswith(("off", "on until"))
    assert pause.active or pause.readable


@given(st.floats(0, 100), st.integers(0, 10_000))
def test_a_share_never_exceeds_the_whole_and_never_freezes_a_small_fleet(percent: float, total: int) -> None:
    share = share_of(percent, total)
    assert 0 <= share <= total
    if percent > 1e-6 and total > 0 and total * percent / 100 > 1e-9:
        assert share >= 1


def test_an_empty_catalogue_is_no_error() -> None:
    empty = PriceCatalogue("us-east-1", NOW.date(), {})
    assert empty.price_of("p4d.24xlarge") is None
