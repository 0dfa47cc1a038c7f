"""Laws of the budget guard, over random fleets, tags, states, prices and limits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from governor.domain.budget import decide
from governor.domain.budget_snapshot import BudgetReading, BudgetSnapshot, GuardState, ThresholdEdit, UnknownBudget
from governor.domain.decisions import StopInstance
from governor.domain.fleet import FleetSnapshot, Instance, InstanceKind, InstanceState, UnknownRegion
from governor.domain.guard import StopLimits, permit_stops, share_of
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.pause import Pause, parse_pause
from governor.domain.prices import PriceCatalogue
from governor.domain.settings import BudgetSettings, Mode
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
    instance = Instance(
        instance_id=f"i-{number}",
        region=draw(st.sampled_from(["eu-west-1", "us-east-1"])),
        instance_type=draw(st.sampled_from(TYPES)),
        state=draw(st.sampled_from([InstanceState.RUNNING] * 4 + list(InstanceState))),
        launched_at=draw(st.one_of(moments, st.none())),
        kind=draw(st.sampled_from([InstanceKind.PLAIN] * 6 + list(InstanceKind))),
        governance=read_governance(tags, KEYS, STAGE),
    )
    return instance, tags


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
)
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
        fleet=FleetSnapshot(tuple(instance for instance, _ in fleet), unknown),
        budget=budget,
        prices=PRICES,
        pause=draw(pauses),
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
    assert not snapshot.pause.active
    assert isinstance(snapshot.budget, BudgetReading)
    assert snapshot.budget.actual_usd / guard.limit_usd * 100 >= guard.stop_percent
    assert len(stops) <= guard.max_stops_per_run
    not_critical = [i for i in by_id.values() if i.governance.stoppable and i.state is InstanceState.RUNNING]
    ours = plan.limits.already_stopped
    assert len(stops) + ours <= share_of(guard.max_stop_percent, len(not_critical) + ours)
    for stop in stops:
        instance = by_id[stop.instance_id]
        assert instance.family in guard.stop_families
        assert (instance.kind, instance.state) == (InstanceKind.PLAIN, InstanceState.RUNNING)
    assert len({stop.instance_id for stop in stops}) == len(stops)


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
    assert all("nothing-to-stop" in key or "limits-differ" in key for key in new)


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
    permit = permit_stops(stops, facts, mode=mode, pause=pause, limits=StopLimits(most, total))
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
