"""One suite for Fleet, FleetActions and StartActions: on the fake, and on the adapters with the local AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from governor.domain.fleet import Instance, InstanceKind, InstanceState, SpotKind
from local.client import LocalAws, local_aws
from tests.contract.fleet_worlds import REGION, FakeWorld, LocalWorld, World

GROUP = "workers"
NOBODY = "i-0123456789abcdef0"


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    """One local AWS for the module; each test begins without a fleet."""
    with local_aws(seed=7) as started:
        yield started


@pytest.fixture(params=[FakeWorld, LocalWorld])
def world(request: pytest.FixtureRequest, aws: LocalAws) -> World:
    made: World = request.param(aws)
    return made


def again(world: World, instance_id: str) -> Instance:
    return world.fleet.look_again(REGION, [instance_id])[instance_id]


def sizes(world: World) -> tuple[int, int, int]:
    group = world.fleet.look_at_groups(REGION, [GROUP])[GROUP]
    return group.min_size, group.desired, group.max_size


def members(world: World) -> dict[str, str]:
    return dict(world.fleet.look_at_groups(REGION, [GROUP])[GROUP].members)


# --- Looking ----------------------------------------------------------------------------------------------------------


def test_an_empty_fleet_is_empty_and_known(world: World) -> None:
    seen = world.fleet.observe()
    assert (seen.instances, seen.groups, seen.reserved, seen.unknown_regions) == ((), (), (), ())
    assert seen.regions == (REGION,)
    assert world.fleet.look_again(REGION, []) == {}
    assert world.fleet.look_at_groups(REGION, []) == {}
    assert world.fleet.look_at_groups(REGION, ["nobody"]) == {}


def test_kinds_tags_and_groups_are_seen_at_once(world: World) -> None:
    plain, persistent, one_time = world.launch(), world.launch(spot="persistent"), world.launch(spot="one-time")
    first, second = world.launch_group(GROUP, (1, 2, 3))
    seen = world.fleet.observe()
    by_id = {i.instance_id: i for i in seen.instances}
    assert list(by_id) == sorted(by_id)
    assert {one: i.kind for one, i in by_id.items()} == {
        plain: InstanceKind.PLAIN,
        persistent: InstanceKind.SPOT,
        one_time: InstanceKind.SPOT,
        first: InstanceKind.GROUP_MEMBER,
        second: InstanceKind.GROUP_MEMBER,
    }
    assert (by_id[first].owner, by_id[first].member_state, by_id[plain].member_state) == (GROUP, "InService", "")
    assert ("governor:criticality", "standard") in by_id[plain].tags
    assert list(by_id[plain].tags) == sorted(by_id[plain].tags)
    requests = {one: by_id[one].spot for one in (plain, persistent, one_time)}
    assert requests[plain] is None
    assert {one: (r.kind, r.stoppable) for one, r in requests.items() if r} == {
        persistent: (SpotKind.PERSISTENT, True),
        one_time: (SpotKind.ONE_TIME, False),
    }
    (group,) = seen.groups
    assert (group.name, group.region, group.min_size, group.desired, group.max_size) == (GROUP, REGION, 1, 2, 3)
    assert group.members == ((first, "InService"), (second, "InService"))
    assert (group.governance.stoppable, group.scales_itself) == (True, ())


def test_stop_protection_is_unknown_until_it_is_asked_for(world: World) -> None:
    plain, protected, spot = world.launch(), world.launch(protected=True), world.launch(spot="persistent")
    seen = {i.instance_id: i.stop_protected for i in world.fleet.observe().instances}
    assert seen == {plain: None, protected: None, spot: False}
    assert world.fleet.read_protection(REGION, [plain, protected]) == {plain: False, protected: True}
    assert world.fleet.read_protection(REGION, [NOBODY]) == {NOBODY: None}
    ids = [plain, protected, spot]
    asked = world.fleet.look_again(REGION, ids)
    assert {one: asked[one].stop_protected for one in ids} == {plain: False, protected: True, spot: False}
    unasked = world.fleet.look_again(REGION, ids, protection=False)
    assert {one: unasked[one].stop_protected for one in ids} == {plain: None, protected: None, spot: False}


def test_what_is_gone_is_left_out_and_what_is_not_asked_for_too(world: World) -> None:
    wanted, other = world.launch(), world.launch()
    assert set(world.fleet.look_again(REGION, [wanted, NOBODY])) == {wanted}
    assert other not in world.fleet.look_again(REGION, [wanted])


# --- Stopping and terminating -----------------------------------------------------------------------------------------


def test_a_stop_ends_in_stopped_and_may_be_repeated(world: World) -> None:
    one = world.launch()
    launched = again(world, one).launched_at
    (answer,) = world.actions.stop(REGION, [one])
    assert (answer.instance_id, answer.accepted, answer.error) == (one, True, "")
    assert again(world, one).state in (InstanceState.STOPPING, InstanceState.STOPPED)
    world.settle()
    seen = again(world, one)
    assert (seen.state, seen.launched_at) == (InstanceState.STOPPED, launched)
    assert seen.state_reason.startswith("Client.UserInitiatedShutdown: ")
    assert world.actions.stop(REGION, [one])[0].accepted
    assert one in {i.instance_id for i in world.fleet.observe().instances}


def test_one_bad_id_costs_one_failure_and_answers_keep_the_order(world: World) -> None:
    good, protected, last = world.launch(), world.launch(protected=True), world.launch(spot="persistent")
    one_time = world.launch(spot="one-time")
    ids = [good, NOBODY, protected, one_time, last]
    answers = world.actions.stop(REGION, ids)
    assert [a.instance_id for a in answers] == ids
    assert [(a.accepted, a.error.partition(":")[0]) for a in answers] == [
        (True, ""),
        (False, "InvalidInstanceID.NotFound"),
        (False, "OperationNotPermitted"),
        (False, "UnsupportedOperation"),
        (True, ""),
    ]
    world.settle()
    states = {i.instance_id: i.state for i in world.fleet.observe().instances}
    assert states == {
        good: InstanceState.STOPPED,
        protected: InstanceState.RUNNING,
        one_time: InstanceState.RUNNING,
        last: InstanceState.STOPPED,
    }


def test_a_terminated_one_leaves_the_fleet_and_cannot_come_back(world: World) -> None:
    one, other = world.launch(), world.launch()
    answers = world.actions.terminate(REGION, [one, NOBODY])
    assert [a.accepted for a in answers] == [True, False]
    assert answers[1].error.startswith("InvalidInstanceID.NotFound")
    world.settle()
    assert [i.instance_id for i in world.fleet.observe().instances] == [other]
    for call in (world.actions.stop, world.actions.start):
        assert call(REGION, [one])[0].error.startswith("IncorrectInstanceState")


# --- Spot -------------------------------------------------------------------------------------------------------------


def request_id(world: World, instance_id: str) -> str:
    spot = again(world, instance_id).spot
    assert spot is not None
    return spot.request_id


def test_a_persistent_spot_instance_stops_and_starts(world: World) -> None:
    one = world.launch(spot="persistent")
    assert world.actions.stop(REGION, [one])[0].accepted
    world.settle()
    seen = again(world, one)
    assert (seen.state, seen.spot and seen.spot.stoppable) == (InstanceState.STOPPED, False)
    assert world.actions.start(REGION, [one])[0].accepted
    world.settle()
    seen = again(world, one)
    assert (seen.state, seen.spot and seen.spot.stoppable) == (InstanceState.RUNNING, True)


def test_a_request_that_lives_on_launches_another_one(world: World) -> None:
    one = world.launch(spot="persistent")
    assert world.actions.terminate(REGION, [one])[0].accepted
    world.settle()
    (other,) = world.fleet.observe().instances
    assert (other.instance_id != one, other.state) == (True, InstanceState.RUNNING)


@pytest.mark.parametrize("kind", ["persistent", "one-time"])
def test_a_cancelled_request_launches_nothing_and_its_machine_only_terminates(world: World, kind: str) -> None:
    one = world.launch(spot=kind)
    request = request_id(world, one)
    for _ in range(2):
        answer = world.actions.cancel_spot_request(REGION, request)
        assert (answer.accepted, answer.error) == (True, "")
    seen = again(world, one)
    assert (seen.state, seen.spot and seen.spot.stoppable) == (InstanceState.RUNNING, False)
    assert not world.actions.stop(REGION, [one])[0].accepted
    assert world.actions.terminate(REGION, [one])[0].accepted
    world.settle()
    assert world.fleet.observe().instances == ()
    assert world.actions.cancel_spot_request(REGION, request).accepted


def test_an_unknown_request_is_refused(world: World) -> None:
    answer = world.actions.cancel_spot_request(REGION, "sir-0nobody0")
    assert not answer.accepted
    assert answer.error.startswith("InvalidSpotInstanceRequestID.NotFound")


# --- Starting ---------------------------------------------------------------------------------------------------------


def test_a_start_ends_in_running_with_a_new_launch_time(world: World) -> None:
    one = world.launch()
    before = again(world, one).launched_at
    world.actions.stop(REGION, [one])
    world.settle()
    assert world.actions.start(REGION, [one, NOBODY])[0].accepted
    world.settle()
    seen = again(world, one)
    assert (seen.state, seen.state_reason) == (InstanceState.RUNNING, "")
    assert before is not None
    assert seen.launched_at is not None
    assert seen.launched_at > before
    assert world.actions.start(REGION, [one])[0].accepted


def test_a_start_may_be_accepted_and_fall_back_with_its_reason(world: World) -> None:
    one = world.launch()
    world.actions.stop(REGION, [one])
    world.settle()
    world.deny_key(one)
    assert world.actions.start(REGION, [one])[0].accepted
    world.settle()
    seen = again(world, one)
    assert seen.state is InstanceState.STOPPED
    assert seen.state_reason.startswith("Client.InternalError: ")


def test_the_keys_of_volumes_are_named(world: World) -> None:
    one = world.launch()
    assert world.actions.volume_keys(REGION, one) == ()
    key = world.encrypt(one)
    assert world.actions.volume_keys(REGION, one) == (key,)
    assert world.actions.volume_keys(REGION, NOBODY) == ()


# --- Groups -----------------------------------------------------------------------------------------------------------


def test_a_member_that_stops_in_service_is_replaced(world: World) -> None:
    first, second = world.launch_group(GROUP, (1, 2, 3))
    world.actions.stop(REGION, [first])
    world.settle()
    now = members(world)
    assert (first in now, second in now, len(now)) == (False, True, 2)
    assert first not in {i.instance_id for i in world.fleet.observe().instances}


def test_a_member_in_standby_stops_and_comes_back_as_itself(world: World) -> None:
    first, second = world.launch_group(GROUP, (1, 2, 3))
    assert world.actions.enter_standby(REGION, GROUP, [first])[0].accepted
    world.settle()
    assert (sizes(world), members(world)) == ((1, 1, 3), {first: "Standby", second: "InService"})
    assert again(world, first).member_state == "Standby"
    world.actions.stop(REGION, [first])
    world.settle()
    assert (again(world, first).state, len(world.fleet.observe().instances)) == (InstanceState.STOPPED, 2)
    world.actions.start(REGION, [first])
    world.settle()
    assert world.actions.exit_standby(REGION, GROUP, [first])[0].accepted
    world.settle()
    assert (sizes(world), members(world)) == ((1, 2, 3), {first: "InService", second: "InService"})
    assert again(world, first).state is InstanceState.RUNNING


def test_standby_is_refused_below_the_least_size_one_by_one(world: World) -> None:
    first, second = world.launch_group(GROUP, (1, 2, 3))
    answers = world.actions.enter_standby(REGION, GROUP, [first, second])
    assert [a.accepted for a in answers] == [True, False]
    assert answers[1].error.startswith("ValidationError")
    assert sizes(world) == (1, 1, 3)
    assert world.actions.set_group_size(REGION, GROUP, min_size=0).accepted
    assert world.actions.enter_standby(REGION, GROUP, [second])[0].accepted
    world.settle()
    assert (sizes(world), set(members(world).values())) == ((0, 0, 3), {"Standby"})


def test_standby_asks_for_a_member_in_service_and_its_end_for_one_in_standby(world: World) -> None:
    first, second = world.launch_group(GROUP, (0, 2, 2))
    stranger = world.launch()
    for call, ids in ((world.actions.enter_standby, [stranger]), (world.actions.exit_standby, [first])):
        (answer,) = call(REGION, GROUP, ids)
        assert not answer.accepted
        assert answer.error.startswith("ValidationError")
    world.actions.enter_standby(REGION, GROUP, [first])
    world.settle()
    assert not world.actions.enter_standby(REGION, GROUP, [first])[0].accepted
    assert world.actions.set_group_size(REGION, GROUP, desired=2).accepted
    world.settle()
    full = world.actions.exit_standby(REGION, GROUP, [first])[0]
    assert (full.accepted, full.error.partition(":")[0]) == (False, "ValidationError")
    assert members(world)[first] == "Standby"
    assert len(members(world)) == 3
    assert second in members(world)


def test_lowering_takes_exactly_this_member_and_its_place(world: World) -> None:
    first, second = world.launch_group(GROUP, (1, 2, 3))
    answer = world.actions.lower(REGION, GROUP, second)
    assert (answer.instance_id, answer.accepted) == (second, True)
    world.settle()
    assert (sizes(world), members(world)) == ((1, 1, 3), {first: "InService"})
    assert [i.instance_id for i in world.fleet.observe().instances] == [first]
    refused = world.actions.lower(REGION, GROUP, first)
    assert (refused.accepted, refused.error.partition(":")[0]) == (False, "ValidationError")
    assert not world.actions.lower(REGION, GROUP, world.launch()).accepted


def test_sizes_change_as_far_as_they_fit_and_members_follow(world: World) -> None:
    world.launch_group(GROUP, (1, 1, 3))
    for least, desired in ((4, None), (None, 4), (None, 0), (2, 1)):
        answer = world.actions.set_group_size(REGION, GROUP, min_size=least, desired=desired)
        assert not answer.accepted
        assert answer.error.startswith("ValidationError")
    assert sizes(world) == (1, 1, 3)
    assert world.actions.set_group_size(REGION, GROUP, min_size=2).accepted
    assert sizes(world) == (2, 2, 3), "a least size above the desired capacity raises it"
    world.settle()
    assert len(members(world)) == 2
    assert world.actions.set_group_size(REGION, GROUP, min_size=0, desired=3).accepted
    world.settle()
    assert (sizes(world), len(members(world))) == ((0, 3, 3), 3)
    assert {i.owner for i in world.fleet.observe().instances} == {GROUP}
    assert not world.actions.set_group_size(REGION, "nobody", min_size=0).accepted
