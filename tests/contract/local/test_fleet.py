"""The sample fleet with every kind, the lists of commitments, and stop protection."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.client import LocalAws, LocalAwsError
from tests.contract.local.conftest import Probe
from tests.contract.local.test_ec2 import launch, refusal, states
from tests.contract.local.test_spot import described

ROLES = (
    *("big-standard", "big-preemptible", "big-critical", "small-standard", "small-preemptible", "small-critical"),
    *("untagged", "spot-persistent", "spot-one-time", "stop-protected", "eks-member", "karpenter-member"),
    *("fleet-member", "reserved", "capacity-block", "instance-store", "checkpoint"),
    *("group-member-1", "group-member-2", "mixed-group-critical", "mixed-group-standard"),
)


def tags_of(instance: dict[str, Any]) -> dict[str, str]:
    return {one["Key"]: one["Value"] for one in instance.get("Tags", [])}


def test_every_kind_is_there_and_looks_like_it(bare: LocalAws) -> None:
    fleet = bare.create_fleet("test", everything=True)
    assert tuple(one.role for one in fleet) == ROLES
    by_role = {one.role: described(bare, one.instance_id) for one in fleet}
    for one in fleet:
        assert dict(one.tags).items() <= tags_of(by_role[one.role]).items()
        assert by_role[one.role]["InstanceType"] == one.instance_type
    assert set(states(bare).values()) == {"running"}
    assert tags_of(by_role["untagged"]) == {"Name": "untagged"}
    assert by_role["instance-store"]["RootDeviceType"] == "instance-store"
    assert by_role["capacity-block"]["InstanceLifecycle"] == "capacity-block"
    assert "eks:nodegroup-name" in tags_of(by_role["eks-member"])
    assert "karpenter.sh/nodepool" in tags_of(by_role["karpenter-member"])
    assert "aws:ec2:fleet-id" in tags_of(by_role["fleet-member"])
    assert "governor:checkpoint" in tags_of(by_role["checkpoint"])
    requests = bare.client("ec2").describe_spot_instance_requests()["SpotInstanceRequests"]
    assert {one["InstanceId"]: one["Type"] for one in requests} == {
        by_role["spot-persistent"]["InstanceId"]: "persistent",
        by_role["spot-one-time"]["InstanceId"]: "one-time",
    }


def test_groups_of_the_whole_fleet(bare: LocalAws) -> None:
    fleet = {one.role: one.instance_id for one in bare.create_fleet("test", everything=True)}
    answer = bare.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    groups = {one["AutoScalingGroupName"]: one for one in answer}
    assert {name: (one["MinSize"], one["DesiredCapacity"], one["MaxSize"]) for name, one in groups.items()} == {
        "training-group": (1, 2, 3),
        "inference-group": (1, 2, 3),
    }
    assert tags_of(groups["training-group"])["governor:criticality"] == "standard"
    assert {one["InstanceId"] for one in groups["training-group"]["Instances"]} == {
        fleet["group-member-1"],
        fleet["group-member-2"],
    }
    mixed = [described(bare, fleet[role]) for role in ("mixed-group-critical", "mixed-group-standard")]
    assert [tags_of(one)["governor:criticality"] for one in mixed] == ["critical", "standard"]


def test_reservations_of_the_whole_fleet_are_used(bare: LocalAws) -> None:
    fleet = {one.role: one.instance_id for one in bare.create_fleet("test", everything=True)}
    ec2 = bare.client("ec2")

    def free() -> dict[str, int]:
        filters = [{"Name": "state", "Values": ["active"]}]
        answer = ec2.describe_capacity_reservations(Filters=filters)["CapacityReservations"]
        return {one["CapacityReservationId"]: one["AvailableInstanceCount"] for one in answer}

    reservation_id = described(bare, fleet["reserved"])["CapacityReservationId"]
    assert free()[reservation_id] == 0
    ec2.stop_instances(InstanceIds=[fleet["reserved"]])
    assert free()[reservation_id] == 1


def test_removed_fleet_leaves_nothing_and_does_not_come_back(bare: LocalAws) -> None:
    fleet = {one.role: one.instance_id for one in bare.create_fleet("test", everything=True)}
    groups, ec2 = bare.client("autoscaling"), bare.client("ec2")
    groups.enter_standby(
        AutoScalingGroupName="training-group",
        InstanceIds=[fleet["group-member-1"]],
        ShouldDecrementDesiredCapacity=True,
    )
    ec2.stop_instances(InstanceIds=[fleet["spot-persistent"], fleet["group-member-1"]])
    assert bare.remove_fleet() == len(ROLES)
    bare.advance(timedelta(minutes=2))
    assert states(bare) == {}
    assert groups.describe_auto_scaling_groups()["AutoScalingGroups"] == []
    assert ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []
    assert ec2.describe_capacity_reservations()["CapacityReservations"] == []
    assert tuple(one.role for one in bare.create_fleet("test", everything=True)) == ROLES


def test_lists_of_commitments_are_empty_until_set(probe: Probe) -> None:
    ec2 = probe.aws.client("ec2")
    assert ec2.describe_reserved_instances()["ReservedInstances"] == []
    assert ec2.describe_capacity_reservations()["CapacityReservations"] == []
    bought = {"ReservedInstancesId": "r-1", "InstanceType": "p4d.24xlarge", "InstanceCount": 2, "Scope": "Region"}
    over = {**bought, "ReservedInstancesId": "r-2", "State": "retired"}
    probe.aws.set_reserved_instances(bought, over)
    filters = [{"Name": "state", "Values": ["active"]}]
    [found] = ec2.describe_reserved_instances(Filters=filters)["ReservedInstances"]
    assert found == {**bought, "State": "active"}
    assert probe.aws.client("ec2", region="eu-west-1").describe_reserved_instances()["ReservedInstances"] == []
    probe.aws.set_reserved_instances()
    assert ec2.describe_reserved_instances()["ReservedInstances"] == []


def test_wrong_field_or_filter_of_commitments_is_an_error(probe: Probe) -> None:
    with pytest.raises(LocalAwsError, match="ReservedInstances has no Type"):
        probe.aws.set_reserved_instances({"ReservedInstancesId": "r-1", "Type": "p4d.24xlarge"})
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        probe.aws.client("ec2").describe_capacity_reservations(Filters=[{"Name": "colour", "Values": ["red"]}])


def test_launch_may_name_its_reservation(probe: Probe) -> None:
    target = {"CapacityReservationTarget": {"CapacityReservationId": "cr-77"}}
    instance_id = launch(probe.aws, CapacityReservationSpecification=target)
    assert described(probe.aws, instance_id)["CapacityReservationId"] == "cr-77"
    assert "CapacityReservationId" not in described(probe.aws, launch(probe.aws))


def test_stop_protection_can_be_set_read_and_lifted(probe: Probe) -> None:
    ec2, instance_id = probe.aws.client("ec2"), launch(probe.aws)
    ec2.modify_instance_attribute(InstanceId=instance_id, DisableApiStop={"Value": True})
    answer = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="disableApiStop")
    assert answer["DisableApiStop"] == {"Value": True}
    assert refusal(probe.aws, [instance_id]) == "OperationNotPermitted"
    ec2.modify_instance_attribute(InstanceId=instance_id, DisableApiStop={"Value": False})
    ec2.stop_instances(InstanceIds=[instance_id])
    assert states(probe.aws)[instance_id] == "stopped"


def test_root_on_an_instance_store_cannot_be_stopped(bare: LocalAws) -> None:
    fleet = {one.role: one.instance_id for one in bare.create_fleet("test", everything=True)}
    assert refusal(bare, [fleet["instance-store"]]) == "UnsupportedOperation"
