"""The fleet in EC2 (moto): what is seen, what is read again, and stopping with one failure a bad id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws

from governor.aws.ec2_fleet import Ec2Fleet, read_instance
from governor.domain.fleet import InstanceKind, InstanceState
from governor.domain.tags import TagKeys
from governor.ports import UnreadableError
from local import wildcards

HOME, FURTHER = "eu-west-1", "us-east-1"
STAGE = "test"
AMI = "ami-12c6146b"


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """EC2 clients of two Regions; moto learns the wildcards that EC2 has."""
    monkeypatch.setattr("moto.ec2.utils.instance_value_in_filter_values", wildcards.matches)
    with mock_aws():
        yield {region: boto3.client("ec2", region) for region in (HOME, FURTHER)}


def fleet_of(ec2: dict[str, Any]) -> Ec2Fleet:
    return Ec2Fleet([HOME, FURTHER], lambda region: ec2[region], TagKeys(), STAGE)


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


@pytest.mark.parametrize(
    ("tag", "kind", "owner"),
    [
        ("aws:autoscaling:groupName", InstanceKind.GROUP_MEMBER, "workers"),
        ("aws:eks:cluster-name", InstanceKind.CLUSTER_MEMBER, "workers"),
        ("karpenter.sh/nodepool", InstanceKind.CLUSTER_MEMBER, "workers"),
        ("aws:ec2:fleet-id", InstanceKind.CLUSTER_MEMBER, "workers"),
        ("kubernetes.io/cluster/prod", InstanceKind.CLUSTER_MEMBER, "kubernetes.io/cluster/prod"),
    ],
)
def test_members_of_something_are_named_with_their_owner(
    ec2: dict[str, Any], tag: str, kind: InstanceKind, owner: str
) -> None:

    item = {"InstanceId": "i-1", "RootDeviceType": "ebs", "Tags": [{"Key": tag, "Value": "workers"}]}
    seen = read_instance(item, HOME, TagKeys(), STAGE)
    assert (seen.kind, seen.owner) == (kind, owner)


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"InstanceLifecycle": "spot"}, InstanceKind.SPOT),
        ({"InstanceLifecycle": "capacity-block"}, InstanceKind.CAPACITY_BLOCK),
        ({"InstanceLifecycle": "scheduled"}, InstanceKind.UNKNOWN),
        ({"CapacityReservationId": "cr-1"}, InstanceKind.CAPACITY_RESERVATION),
        ({"Placement": {"Tenancy": "host"}}, InstanceKind.DEDICATED),
        ({"RootDeviceType": "instance-store"}, InstanceKind.INSTANCE_STORE_ROOT),
        ({"RootDeviceType": None}, InstanceKind.UNKNOWN),
        ({}, InstanceKind.PLAIN),
    ],
)
def test_kinds_are_read_from_what_ec2_says(more: dict[str, Any], kind: InstanceKind) -> None:

    seen = read_instance({"InstanceId": "i-1", "RootDeviceType": "ebs", **more}, HOME, TagKeys(), STAGE)
    assert seen.kind is kind
    assert seen.state is InstanceState.UNKNOWN


def test_reading_again_sees_stop_protection_and_leaves_out_what_is_gone(ec2: dict[str, Any]) -> None:
    plain, protected = launch(ec2[HOME]), launch(ec2[HOME])
    ec2[HOME].modify_instance_attribute(InstanceId=protected, DisableApiStop={"Value": True})
    facts = fleet_of(ec2).look_again(HOME, [plain, protected, "i-0123456789abcdef0"])
    assert {i: facts[i].kind for i in facts} == {plain: InstanceKind.PLAIN, protected: InstanceKind.STOP_PROTECTED}


def test_reading_again_raises_what_the_guard_understands(ec2: dict[str, Any]) -> None:
    with Stubber(ec2[HOME]) as stub:
        stub.add_client_error("describe_instances", "RequestLimitExceeded", "Rate exceeded")
        with pytest.raises(UnreadableError, match="eu-west-1: RequestLimitExceeded"):
            fleet_of(ec2).look_again(HOME, ["i-1"])


def test_one_bad_id_costs_one_failure(ec2: dict[str, Any]) -> None:
    ids = [launch(ec2[HOME]) for _ in range(5)]
    wanted = [*ids[:3], "i-0123456789abcdef0", *ids[3:]]
    answers = fleet_of(ec2).stop(HOME, wanted)
    assert {a.instance_id for a in answers if a.accepted} == set(ids)
    (failed,) = [a for a in answers if not a.accepted]
    assert failed.error.startswith("InvalidInstanceID.NotFound")
    states = ec2[HOME].describe_instances(InstanceIds=ids)["Reservations"]
    assert {i["State"]["Name"] for r in states for i in r["Instances"]} == {"stopped"}


def test_throttling_fails_the_call_without_asking_for_each_id(ec2: dict[str, Any]) -> None:
    calls = []

    class Throttled:
        def stop_instances(self, **request: Any) -> None:
            calls.append(request)
            raise ClientError({"Error": {"Code": "RequestLimitExceeded", "Message": "Rate"}}, "StopInstances")

    fleet = Ec2Fleet([HOME], lambda region: Throttled(), TagKeys(), STAGE)
    answers = fleet.stop(HOME, ["i-1", "i-2", "i-3"])
    assert [a.accepted for a in answers] == [False] * 3
    assert len(calls) == 1


def test_large_lists_go_in_calls_of_fifty() -> None:
    sizes = []

    class Counting:
        def stop_instances(self, **request: list[str]) -> None:
            sizes.append(len(request["InstanceIds"]))

    fleet = Ec2Fleet([HOME], lambda region: Counting(), TagKeys(), STAGE)
    assert all(a.accepted for a in fleet.stop(HOME, [f"i-{n}" for n in range(120)]))
    assert sizes == [50, 50, 20]
