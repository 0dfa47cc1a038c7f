"""What the adapters of EC2 and Auto Scaling do with answers that only AWS gives: on moto, and on botocore's Stubber."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import Stubber
from moto import mock_aws

from governor.aws.auto_scaling import read_groups
from governor.aws.ec2_actions import Ec2Actions
from governor.aws.ec2_fleet import Ec2Fleet, read_instance
from governor.domain.fleet import (
    Group,
    Instance,
    InstanceKind,
    InstanceState,
    ReservedInstances,
    SpotKind,
    SpotRequest,
)
from governor.domain.tags import Criticality, TagKeys
from governor.ports import UnreadableError
from tests.contract.moto_gaps import fill_gaps

HOME, FURTHER = "eu-west-1", "us-east-1"
STAGE = "test"
AMI = "ami-12c6146b"
AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """EC2 clients of two Regions."""
    fill_gaps(monkeypatch)
    with mock_aws():
        yield {region: boto3.client("ec2", region) for region in (HOME, FURTHER)}


def fleet_of(ec2: dict[str, Any]) -> Ec2Fleet:
    return Ec2Fleet([HOME, FURTHER], lambda region: ec2[region], auto_scaling, TagKeys(), STAGE)


def auto_scaling(region: str = HOME) -> Any:
    return boto3.client("autoscaling", region, config=Config(retries={"total_max_attempts": 1}))


def launch(client: Any, instance_type: str = "g4dn.xlarge", **tags: str) -> str:
    wanted = {"governor:managed": STAGE, "governor:criticality": "standard", **tags}
    answer = client.run_instances(
        ImageId=AMI,
        InstanceType=instance_type,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in wanted.items() if v]}
        ],
    )
    return str(answer["Instances"][0]["InstanceId"])


def test_gpu_instances_of_every_listed_region_are_seen_and_nothing_else(ec2: dict[str, Any]) -> None:
    small = launch(ec2[HOME], Name="small")
    big = launch(ec2[FURTHER], "p4d.24xlarge")
    launch(ec2[HOME], "m5.large")
    gone = launch(ec2[HOME])
    ec2[HOME].terminate_instances(InstanceIds=[gone])
    seen = fleet_of(ec2).observe()
    assert [(i.instance_id, i.region, i.instance_type, i.name) for i in seen.instances] == [
        (small, HOME, "g4dn.xlarge", "small"),
        (big, FURTHER, "p4d.24xlarge", ""),
    ]
    assert seen.unknown_regions == ()
    assert all(i.state is InstanceState.RUNNING and i.kind is InstanceKind.PLAIN for i in seen.instances)
    assert all(i.governance.stoppable and i.launched_at is not None for i in seen.instances)


def test_a_region_that_cannot_be_read_is_unknown_and_the_other_is_seen(ec2: dict[str, Any]) -> None:
    launch(ec2[HOME])
    with Stubber(ec2[FURTHER]) as stub:
        stub.add_client_error("describe_instances", "UnauthorizedOperation", "You are not authorized", 403)
        seen = fleet_of(ec2).observe()
    assert len(seen.instances) == 1
    (unknown,) = seen.unknown_regions
    assert (unknown.region, unknown.why.partition(":")[0]) == (FURTHER, "UnauthorizedOperation")


def read(**item: Any) -> Instance:
    return read_instance({"InstanceId": "i-1", "RootDeviceType": "ebs", **item}, HOME, TagKeys(), STAGE)


def tagged(**tags: str) -> list[dict[str, str]]:
    return [{"Key": key.replace("__", ":"), "Value": value} for key, value in tags.items()]


IN_GROUP = {"Key": "aws:autoscaling:groupName", "Value": "workers"}


@pytest.mark.parametrize(
    ("tag", "owner"),
    [
        ("eks:nodegroup-name", "the EKS node group workers"),
        ("aws:eks:cluster-name", "the EKS cluster workers"),
        ("karpenter.sh/nodepool", "the Karpenter node pool workers"),
        ("aws:ec2:fleet-id", "the EC2 Fleet workers"),
        ("aws:ec2spot:fleet-request-id", "the Spot Fleet workers"),
        ("kubernetes.io/cluster/prod", "the Kubernetes cluster prod"),
    ],
)
@pytest.mark.parametrize("more", [[], [IN_GROUP]])
def test_who_replaces_a_member_comes_before_its_group(tag: str, owner: str, more: list[dict[str, str]]) -> None:
    seen = read(Tags=[*more, {"Key": tag, "Value": "workers"}])
    assert (seen.kind, seen.owner) == (InstanceKind.CLUSTER_MEMBER, owner)


@pytest.mark.parametrize(
    ("more", "kind", "owner_in_a_group"),
    [
        ({"InstanceLifecycle": "capacity-block", "CapacityReservationId": "cr-1"}, InstanceKind.CAPACITY_BLOCK, ""),
        ({"InstanceLifecycle": "scheduled"}, InstanceKind.UNKNOWN, "scheduled"),
        ({"CapacityReservationId": "cr-1"}, InstanceKind.CAPACITY_RESERVATION, "cr-1"),
        ({"Placement": {"Tenancy": "host"}}, InstanceKind.DEDICATED, ""),
        ({"RootDeviceType": "instance-store"}, InstanceKind.INSTANCE_STORE_ROOT, ""),
        ({"RootDeviceType": None}, InstanceKind.UNKNOWN, ""),
        ({"InstanceLifecycle": "spot"}, InstanceKind.SPOT, "workers"),
        ({"InstanceLifecycle": "spot", "CapacityReservationId": ""}, InstanceKind.SPOT, "workers"),
        ({}, InstanceKind.PLAIN, "workers"),
    ],
)
def test_kinds_are_read_from_what_ec2_says_and_a_commitment_comes_before_a_group(
    more: dict[str, Any], kind: InstanceKind, owner_in_a_group: str
) -> None:
    alone, member = read(**more), read(**more, Tags=[IN_GROUP])
    assert alone.kind is kind
    assert alone.state is InstanceState.UNKNOWN
    in_group = InstanceKind.GROUP_MEMBER if owner_in_a_group == "workers" else kind
    assert (member.kind, member.owner) == (in_group, owner_in_a_group)


def test_a_spot_instance_of_which_nothing_is_read_has_an_unknown_request() -> None:
    seen = read(InstanceLifecycle="spot", SpotInstanceRequestId="sir-1")
    assert seen.spot == SpotRequest("sir-1", SpotKind.UNKNOWN)
    assert seen.stop_protected is False
    assert read().spot is None
    assert read().stop_protected is None


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ({"Code": "Server.SpotInstanceShutdown", "Message": "no capacity"}, "Server.SpotInstanceShutdown: no capacity"),
        (
            {"Code": "Client.InternalError", "Message": "Client.InternalError: Client error"},
            "Client.InternalError: Client error",
        ),
        ({"Code": "Server.InternalError"}, "Server.InternalError"),
        ({"Code": "", "Message": ""}, ""),
        (None, ""),
    ],
)
def test_the_reason_of_a_state_is_one_sentence(reason: Any, text: str) -> None:
    assert read(StateReason=reason).state_reason == text


def test_reading_again_raises_what_the_guard_understands(ec2: dict[str, Any]) -> None:
    with Stubber(ec2[HOME]) as stub:
        stub.add_client_error("describe_instances", "RequestLimitExceeded", "Rate exceeded")
        with pytest.raises(UnreadableError, match="eu-west-1: RequestLimitExceeded"):
            fleet_of(ec2).look_again(HOME, ["i-1"])


# --- Spot requests and reservations -----------------------------------------------------------------------------------


def seen_with(client: Any, *items: dict[str, Any]) -> Stubber:
    """A stub in which DescribeInstances answers with these items."""
    stub = Stubber(client)
    stub.add_response("describe_instances", {"Reservations": [{"Instances": list(items)}]})
    return stub


def item(instance_id: str, **more: Any) -> dict[str, Any]:
    return {"InstanceId": instance_id, "InstanceType": "g4dn.xlarge", "RootDeviceType": "ebs", **more}


def spot_item(number: int) -> dict[str, Any]:
    return item(f"i-{number}", InstanceLifecycle="spot", SpotInstanceRequestId=f"sir-{number}")


def alone(ec2: dict[str, Any]) -> Ec2Fleet:
    return Ec2Fleet([HOME], lambda region: ec2[region], auto_scaling, TagKeys(), STAGE)


@pytest.mark.parametrize(
    ("request_of", "kind", "stoppable"),
    [
        ({"Type": "persistent", "State": "active"}, SpotKind.PERSISTENT, True),
        ({"Type": "persistent", "State": "disabled"}, SpotKind.PERSISTENT, False),
        ({"Type": "persistent", "State": "cancelled"}, SpotKind.PERSISTENT, False),
        ({"Type": "persistent", "State": "active", "LaunchGroup": "together"}, SpotKind.PERSISTENT, False),
        ({"Type": "persistent", "State": "active", "AvailabilityZoneGroup": "near"}, SpotKind.PERSISTENT, False),
        ({"Type": "one-time", "State": "active"}, SpotKind.ONE_TIME, False),
        ({"Type": "block", "State": "active"}, SpotKind.UNKNOWN, False),
    ],
)
def test_only_an_active_persistent_request_of_one_machine_can_be_stopped(
    ec2: dict[str, Any], request_of: dict[str, str], kind: SpotKind, stoppable: bool
) -> None:
    with seen_with(ec2[HOME], spot_item(1)) as stub:
        wanted = {"Filters": [{"Name": "spot-instance-request-id", "Values": ["sir-1"]}]}
        answer = {"SpotInstanceRequests": [{"SpotInstanceRequestId": "sir-1", **request_of}]}
        stub.add_response("describe_spot_instance_requests", answer, wanted)
        facts = alone(ec2).look_again(HOME, ["i-1"])
        stub.assert_no_pending_responses()
    assert facts["i-1"].spot == SpotRequest("sir-1", kind, stoppable)


def test_requests_that_cannot_be_read_cost_their_kind_and_not_the_region(ec2: dict[str, Any]) -> None:
    with seen_with(ec2[HOME], spot_item(1), item("i-2")) as stub:
        stub.add_client_error("describe_spot_instance_requests", "UnauthorizedOperation")
        stub.add_client_error("describe_reserved_instances", "UnauthorizedOperation")
        seen = alone(ec2).observe()
        stub.assert_no_pending_responses()
    assert seen.unknown_regions == ()
    assert [i.spot for i in seen.instances] == [SpotRequest("sir-1", SpotKind.UNKNOWN), None]
    assert seen.reserved == ()


def test_spot_requests_are_asked_for_two_hundred_at_a_time(ec2: dict[str, Any]) -> None:
    sizes = []

    def note(params: dict[str, Any], **_: Any) -> None:
        sizes.append(len(params["Filters"][0]["Values"]))

    ec2[HOME].meta.events.register("provide-client-params.ec2.DescribeSpotInstanceRequests", note)
    with seen_with(ec2[HOME], *(spot_item(n) for n in range(450))) as stub:
        for _ in range(3):
            stub.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": []})
        stub.add_response("describe_reserved_instances", {"ReservedInstances": []})
        alone(ec2).observe()
    assert sizes == [200, 200, 50]


def test_reserved_instances_count_where_they_cover_gpu_machines_on_linux(ec2: dict[str, Any]) -> None:
    regional = {
        "InstanceType": "p4d.24xlarge",
        "InstanceCount": 2,
        "Scope": "Region",
        "ProductDescription": "Linux/UNIX",
        "InstanceTenancy": "default",
    }
    items = [
        regional,
        {**regional, "Scope": "Availability Zone", "AvailabilityZone": f"{HOME}b", "InstanceCount": 1},
        {**regional, "InstanceType": "m5.large"},
        {**regional, "ProductDescription": "Windows"},
        {**regional, "InstanceTenancy": "dedicated"},
        {**regional, "InstanceType": "g5.xlarge", "ProductDescription": "Linux/UNIX (Amazon VPC)"},
    ]
    with seen_with(ec2[HOME], item("i-1")) as stub:
        wanted = {"Filters": [{"Name": "state", "Values": ["active"]}]}
        stub.add_response("describe_reserved_instances", {"ReservedInstances": items}, wanted)
        seen = alone(ec2).observe()
    assert seen.reserved == (
        ReservedInstances(HOME, "p4d.24xlarge", 2),
        ReservedInstances(HOME, "p4d.24xlarge", 1, f"{HOME}b"),
        ReservedInstances(HOME, "g5.xlarge", 2),
    )


def test_an_empty_region_is_asked_for_nothing_more(ec2: dict[str, Any]) -> None:
    with seen_with(ec2[HOME]) as stub:
        assert alone(ec2).observe().instances == ()
        stub.assert_no_pending_responses()


# --- Groups -----------------------------------------------------------------------------------------------------------


def group_answer(name: str = "workers", **more: Any) -> dict[str, Any]:
    members = [{"InstanceId": "i-1", "LifecycleState": "Standby"}]
    for member in members:
        member.update(AvailabilityZone=f"{HOME}a", HealthStatus="Healthy", ProtectedFromScaleIn=False)  # type: ignore[call-overload]
    return {
        "AutoScalingGroupName": name,
        "MinSize": 0,
        "MaxSize": 4,
        "DesiredCapacity": 1,
        "DefaultCooldown": 300,
        "AvailabilityZones": [f"{HOME}a"],
        "HealthCheckType": "EC2",
        "CreatedTime": AT,
        "Instances": members,
        "Tags": tagged(governor__managed=STAGE, governor__criticality="preemptible"),
        **more,
    }


def stub_group(
    client: Any,
    *,
    policies: list[dict[str, Any]] | None = None,
    actions: list[str] | None = None,
    refreshes: list[str] | None = None,
    **more: Any,
) -> Stubber:
    """A stub of one group; None for what must not be asked."""
    stub = Stubber(client)
    stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [group_answer(**more)]})
    stub.add_response("describe_policies", {"ScalingPolicies": policies or []}, {"AutoScalingGroupName": "workers"})
    if actions is not None:
        found = [{"ScheduledActionName": name} for name in actions]
        stub.add_response("describe_scheduled_actions", {"ScheduledUpdateGroupActions": found})
    stub.add_response("describe_instance_refreshes", {"InstanceRefreshes": [{"Status": s} for s in refreshes or []]})
    return stub


def group_of(client: Any) -> Group:
    return read_groups(client, HOME, ["workers"], TagKeys(), STAGE)["workers"]


def test_a_group_is_read_with_its_own_tags_and_members() -> None:
    client = auto_scaling()
    with stub_group(client, actions=[]) as stub:
        group = group_of(client)
        stub.assert_no_pending_responses()
    assert (group.region, group.min_size, group.max_size, group.desired) == (HOME, 0, 4, 1)
    assert (group.members, group.state_of("i-1"), group.scales_itself) == ((("i-1", "Standby"),), "Standby", ())
    assert (group.governance.stoppable, group.governance.criticality) == (True, Criticality.PREEMPTIBLE)


FORECAST = {"MetricSpecifications": [{"TargetValue": 50.0}]}


@pytest.mark.parametrize(
    ("policy", "counts", "counts_while_suspended"),
    [
        ({"PolicyType": "TargetTrackingScaling", "Enabled": True}, True, False),
        ({"PolicyType": "SimpleScaling"}, True, False),
        ({"PolicyType": "StepScaling", "Enabled": False}, False, False),
        ({"PolicyType": "PredictiveScaling", "Enabled": True}, False, False),
        (
            {"PolicyType": "PredictiveScaling", "PredictiveScalingConfiguration": {**FORECAST, "Mode": "ForecastOnly"}},
            False,
            False,
        ),
        (
            {
                "PolicyType": "PredictiveScaling",
                "PredictiveScalingConfiguration": {**FORECAST, "Mode": "ForecastAndScale"},
            },
            True,
            True,
        ),
    ],
)
def test_enabled_policies_count_unless_alarms_are_suspended(
    policy: dict[str, Any], counts: bool, counts_while_suspended: bool
) -> None:
    for suspended, expected in (([], counts), ([{"ProcessName": "AlarmNotification"}], counts_while_suspended)):
        client = auto_scaling()
        named = {"PolicyName": "follow-queue", **policy}
        with stub_group(client, policies=[named], actions=[], SuspendedProcesses=suspended):
            assert group_of(client).scales_itself == (("scaling policy follow-queue",) if expected else ())


def test_scheduled_actions_count_unless_they_are_suspended() -> None:
    client = auto_scaling()
    with stub_group(client, actions=["morning", "evening"]):
        assert group_of(client).scales_itself == ("scheduled action morning", "scheduled action evening")
    with stub_group(client, SuspendedProcesses=[{"ProcessName": "ScheduledActions"}]) as stub:
        assert group_of(client).scales_itself == ()
        stub.assert_no_pending_responses()


@pytest.mark.parametrize("status", ["Pending", "InProgress", "Baking", "Cancelling", "RollbackInProgress"])
def test_a_refresh_that_goes_on_counts(status: str) -> None:
    client = auto_scaling()
    with stub_group(client, actions=[], refreshes=[status, "Successful"]):
        assert group_of(client).scales_itself == ("instance refresh in progress",)


@pytest.mark.parametrize("status", ["Successful", "Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful"])
def test_a_refresh_that_is_over_does_not_count(status: str) -> None:
    client = auto_scaling()
    with stub_group(client, actions=[], refreshes=[status]):
        assert group_of(client).scales_itself == ()


def test_groups_are_asked_for_fifty_at_a_time_and_over_several_pages() -> None:
    client = auto_scaling()
    names = [f"group-{number:02}" for number in range(51)]
    with Stubber(client) as stub:
        first = {"AutoScalingGroups": [group_answer(names[0])], "NextToken": "1"}
        stub.add_response("describe_auto_scaling_groups", first, {"AutoScalingGroupNames": names[:50]})
        more = {"AutoScalingGroupNames": names[:50], "NextToken": "1"}
        stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [group_answer(names[1])]}, more)
        rest = {"AutoScalingGroupNames": names[50:]}
        stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [group_answer(names[50])]}, rest)
        for _ in range(3):
            stub.add_response("describe_policies", {"ScalingPolicies": []})
            stub.add_response("describe_scheduled_actions", {"ScheduledUpdateGroupActions": []})
            stub.add_response("describe_instance_refreshes", {"InstanceRefreshes": []})
        found = read_groups(client, HOME, names, TagKeys(), STAGE)
        stub.assert_no_pending_responses()
    assert list(found) == [names[0], names[1], names[50]]


def test_groups_that_cannot_be_read_are_missing_at_first_and_an_error_later(ec2: dict[str, Any]) -> None:
    client = auto_scaling()
    fleet = Ec2Fleet([HOME], lambda region: ec2[region], lambda region: client, TagKeys(), STAGE)
    member = item("i-1", Tags=[IN_GROUP])
    with seen_with(ec2[HOME], member) as stub, Stubber(client) as groups:
        stub.add_response("describe_reserved_instances", {"ReservedInstances": []})
        stub.add_response("describe_instances", {"Reservations": [{"Instances": [member]}]})
        for _ in range(3):
            groups.add_client_error("describe_auto_scaling_groups", "AccessDenied", "not allowed", 403)
        seen = fleet.observe()
        assert (seen.groups, seen.unknown_regions, seen.instances[0].member_state) == ((), (), "")
        with pytest.raises(UnreadableError, match="eu-west-1: AccessDenied"):
            fleet.look_again(HOME, ["i-1"])
        with pytest.raises(UnreadableError, match="eu-west-1: AccessDenied"):
            fleet.look_at_groups(HOME, ["workers"])


@pytest.mark.parametrize("call", ["describe_policies", "describe_scheduled_actions", "describe_instance_refreshes"])
def test_a_group_of_which_something_cannot_be_read_is_not_taken_for_a_quiet_one(call: str) -> None:
    client = auto_scaling()
    with Stubber(client) as stub:
        stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [group_answer()]})
        if call != "describe_policies":
            stub.add_response("describe_policies", {"ScalingPolicies": []})
        if call == "describe_instance_refreshes":
            stub.add_response("describe_scheduled_actions", {"ScheduledUpdateGroupActions": []})
        stub.add_client_error(call, "Throttling", "Rate exceeded")
        with pytest.raises(ClientError, match="Throttling"):
            group_of(client)


def test_a_committed_member_tells_the_state_that_its_group_says(ec2: dict[str, Any]) -> None:
    client = auto_scaling()
    fleet = Ec2Fleet([HOME], lambda region: ec2[region], lambda region: client, TagKeys(), STAGE)
    member = item("i-1", Tags=[IN_GROUP], CapacityReservationId="cr-1")
    with seen_with(ec2[HOME], member), stub_group(client, actions=[]):
        seen = fleet.look_again(HOME, ["i-1"])["i-1"]
    assert (seen.kind, seen.member_state) == (InstanceKind.CAPACITY_RESERVATION, "Standby")


# --- Stop protection --------------------------------------------------------------------------------------------------


def test_protection_that_cannot_be_read_costs_one_instance(ec2: dict[str, Any]) -> None:
    with Stubber(ec2[HOME]) as stub:
        stub.add_client_error("describe_instance_attribute", "UnauthorizedOperation")
        protected = {"InstanceId": "i-2", "DisableApiStop": {"Value": True}}
        wanted = {"InstanceId": "i-2", "Attribute": "disableApiStop"}
        stub.add_response("describe_instance_attribute", protected, wanted)
        assert fleet_of(ec2).read_protection(HOME, ["i-1", "i-2"]) == {"i-1": None, "i-2": True}


def test_protection_is_asked_for_running_machines_that_can_have_it(ec2: dict[str, Any]) -> None:
    running = {"State": {"Name": "running"}}
    items = [
        item("i-1", **running),
        item("i-2", State={"Name": "stopped"}),
        {**spot_item(3), **running},
        item("i-4", **running, RootDeviceType="instance-store"),
    ]
    with seen_with(ec2[HOME], *items) as stub:
        stub.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": []})
        answer = {"InstanceId": "i-1", "DisableApiStop": {"Value": False}}
        stub.add_response("describe_instance_attribute", answer, {"InstanceId": "i-1", "Attribute": "disableApiStop"})
        facts = alone(ec2).look_again(HOME, [f"i-{n}" for n in range(1, 5)])
        stub.assert_no_pending_responses()
    assert [facts[f"i-{n}"].stop_protected for n in range(1, 5)] == [False, None, False, False]


# --- Acting -----------------------------------------------------------------------------------------------------------


class Calls:
    """A client of any service that notes requests and refuses them with `error` where they name `bad`."""

    def __init__(self, error: Exception | None = None, bad: str = "") -> None:
        self.made: list[tuple[str, dict[str, Any]]] = []
        self._error = error
        self._bad = bad

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> dict[str, Any]:
            self.made.append((name, request))
            if self._error is not None and self._bad in str(request):
                raise self._error
            return {}

        return call

    def sizes(self) -> list[int]:
        """How many ids each request names."""
        return [len(request["InstanceIds"]) for _, request in self.made]


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Call")


def actions_of(client: Any) -> Ec2Actions:
    return Ec2Actions(lambda region: client, lambda region: client)


def ids_of(count: int) -> list[str]:
    return [f"i-{number:03}" for number in range(count)]


@pytest.mark.parametrize(
    ("name", "request_of", "most"),
    [
        ("stop", {"Hibernate": False}, 50),
        ("terminate", {}, 50),
        ("start", {}, 50),
        ("enter_standby", {"AutoScalingGroupName": "workers", "ShouldDecrementDesiredCapacity": True}, 20),
        ("exit_standby", {"AutoScalingGroupName": "workers"}, 20),
    ],
)
@pytest.mark.parametrize(
    "code", ["", "IncorrectInstanceState", "RequestLimitExceeded", "ScalingActivityInProgress", "network"]
)
def test_lists_are_cut_and_halved_only_where_that_may_help(
    name: str, request_of: dict[str, Any], most: int, code: str
) -> None:
    error = EndpointConnectionError(endpoint_url="https://ec2") if code == "network" else refusal(code)
    client = Calls(error if code else None, "i-007")
    ids = ids_of(120)
    group = ["workers"] if "standby" in name else []
    answers = getattr(actions_of(client), name)(HOME, *group, ids)
    assert [a.instance_id for a in answers] == ids
    assert max(client.sizes()) == most
    names = {made for made, _ in client.made}
    assert names == {name if group else f"{name}_instances"}
    assert all({k: v for k, v in request.items() if k != "InstanceIds"} == request_of for _, request in client.made)
    failed = [a for a in answers if not a.accepted]
    if not code:
        assert (failed, len(client.made)) == ([], 120 // most + bool(120 % most))
    elif code == "IncorrectInstanceState":
        assert [(a.instance_id, a.error) for a in failed] == [("i-007", "IncorrectInstanceState: no")]
        assert len(client.made) < 120 // most + 15
    else:
        assert [a.instance_id for a in failed] == ids[:most], "one by one would be throttled all the more"
        assert len(client.made) == 120 // most + bool(120 % most)


def test_nothing_is_called_for_no_ids() -> None:
    client = Calls()
    assert actions_of(client).stop(HOME, []) == ()
    assert actions_of(client).exit_standby(HOME, "workers", []) == ()
    assert client.made == []


def test_a_member_is_lowered_by_its_own_id_and_with_its_place() -> None:
    client = Calls()
    assert actions_of(client).lower(HOME, "workers", "i-1").accepted
    request = {"InstanceId": "i-1", "ShouldDecrementDesiredCapacity": True}
    assert client.made == [("terminate_instance_in_auto_scaling_group", request)]
    refused = actions_of(Calls(refusal("ValidationError"))).lower(HOME, "workers", "i-1")
    assert (refused.accepted, refused.error) == (False, "ValidationError: no")


def test_only_the_named_sizes_are_sent() -> None:
    client = Calls()
    actions = actions_of(client)
    assert actions.set_group_size(HOME, "workers", min_size=0).accepted
    assert actions.set_group_size(HOME, "workers", desired=0, min_size=0).accepted
    assert [request for _, request in client.made] == [
        {"AutoScalingGroupName": "workers", "MinSize": 0},
        {"AutoScalingGroupName": "workers", "MinSize": 0, "DesiredCapacity": 0},
    ]
    refused = actions_of(Calls(refusal("ScalingActivityInProgress"))).set_group_size(HOME, "workers", desired=1)
    assert (refused.accepted, refused.error) == (False, "ScalingActivityInProgress: no")


@pytest.mark.parametrize(
    ("state", "accepted"),
    [("cancelled", True), ("closed", True), ("completed", True), ("active", False), ("open", False)],
)
def test_a_request_counts_as_cancelled_where_it_launches_nothing_more(
    ec2: dict[str, Any], state: str, accepted: bool
) -> None:
    with Stubber(ec2[HOME]) as stub:
        answer = {"CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": "sir-1", "State": state}]}
        stub.add_response("cancel_spot_instance_requests", answer, {"SpotInstanceRequestIds": ["sir-1"]})
        said = actions_of(ec2[HOME]).cancel_spot_request(HOME, "sir-1")
    assert said.accepted is accepted
    assert (state in said.error) is not accepted


def test_a_cancellation_that_nothing_confirms_is_none(ec2: dict[str, Any]) -> None:
    with Stubber(ec2[HOME]) as stub:
        stub.add_response("cancel_spot_instance_requests", {})
        stub.add_client_error("cancel_spot_instance_requests", "RequestLimitExceeded", "Rate exceeded")
        assert not actions_of(ec2[HOME]).cancel_spot_request(HOME, "sir-1").accepted
        said = actions_of(ec2[HOME]).cancel_spot_request(HOME, "sir-1")
    assert (said.accepted, said.error) == (False, "RequestLimitExceeded: Rate exceeded")


def test_keys_of_several_volumes_are_sorted_and_named_once(ec2: dict[str, Any]) -> None:
    with Stubber(ec2[HOME]) as stub:
        volumes = [{"KmsKeyId": "arn:b"}, {"KmsKeyId": "arn:a"}, {}, {"KmsKeyId": "arn:b"}]
        wanted = {"Filters": [{"Name": "attachment.instance-id", "Values": ["i-1"]}]}
        stub.add_response("describe_volumes", {"Volumes": volumes}, wanted)
        stub.add_client_error("describe_volumes", "UnauthorizedOperation")
        assert actions_of(ec2[HOME]).volume_keys(HOME, "i-1") == ("arn:a", "arn:b")
        assert actions_of(ec2[HOME]).volume_keys(HOME, "i-1") == ()
