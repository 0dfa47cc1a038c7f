"""Instances and groups: events, refused stops, replaced members, the sample fleet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.client import LocalAws
from local.wildcards import matches
from tests.contract.local.conftest import Probe

IMAGE = "ami-12c6146b"  # one of moto's default images, EBS-backed


def states(aws: LocalAws) -> dict[str, str]:
    """State by instance id."""
    reservations = aws.client("ec2").describe_instances()["Reservations"]
    return {one["InstanceId"]: one["State"]["Name"] for group in reservations for one in group["Instances"]}


def launch(aws: LocalAws, **arguments: Any) -> str:
    ec2 = aws.client("ec2")
    answer = ec2.run_instances(ImageId=IMAGE, InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1, **arguments)
    return str(answer["Instances"][0]["InstanceId"])


def refusal(aws: LocalAws, ids: list[str]) -> str:
    with pytest.raises(ClientError) as refused:
        aws.client("ec2").stop_instances(InstanceIds=ids)
    return str(refused.value.response["Error"]["Code"])


def test_stop_puts_its_event_on_the_bus(probe: Probe) -> None:
    instance_id = launch(probe.aws)
    mark = probe.mark()
    probe.aws.client("ec2").stop_instances(InstanceIds=[instance_id])
    probe.aws.settle()
    [event] = [one.payload for one in probe.since(mark, "rule")]
    assert (event["source"], event["detail-type"]) == ("aws.ec2", "EC2 Instance State-change Notification")
    assert event["detail"] == {"instance-id": instance_id, "state": "stopped"}
    assert event["resources"] == [f"arn:aws:ec2:us-east-1:123456789012:instance/{instance_id}"]


def test_stopped_instance_says_when_and_by_whom(probe: Probe) -> None:
    instance_id = launch(probe.aws)
    probe.aws.client("ec2").stop_instances(InstanceIds=[instance_id])
    [reservation] = probe.aws.client("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"]
    [instance] = reservation["Instances"]
    assert instance["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert f"({probe.aws.now():%Y-%m-%d %H:%M:%S}" in instance["StateTransitionReason"]


def test_second_stop_is_no_event_and_no_error(probe: Probe) -> None:
    instance_id = launch(probe.aws)
    ec2 = probe.aws.client("ec2")
    ec2.stop_instances(InstanceIds=[instance_id])
    probe.aws.settle()
    mark = probe.mark()
    ec2.stop_instances(InstanceIds=[instance_id])
    probe.aws.settle()
    assert probe.since(mark, "rule") == []


def test_one_instance_that_cannot_be_stopped_fails_the_whole_call(probe: Probe) -> None:
    aws = probe.aws
    plain = launch(aws)
    spot = launch(aws, InstanceMarketOptions={"MarketType": "spot"})
    protected = launch(aws, DisableApiStop=True)
    gone = launch(aws)
    aws.client("ec2").terminate_instances(InstanceIds=[gone])
    assert refusal(aws, [plain, spot]) == "UnsupportedOperation"
    assert refusal(aws, [plain, protected]) == "OperationNotPermitted"
    assert refusal(aws, [plain, gone]) == "IncorrectInstanceState"
    assert refusal(aws, [plain, "i-0123456789abcdef0"]) == "InvalidInstanceID.NotFound"
    assert states(aws)[plain] == "running"


def test_stopped_group_member_is_terminated_and_replaced(bare: LocalAws) -> None:
    member = next(one for one in bare.create_fleet("test") if one.role == "group-member")
    bare.client("ec2").stop_instances(InstanceIds=[member.instance_id])
    bare.advance(timedelta(minutes=1))
    assert states(bare)[member.instance_id] == "terminated"
    [group] = bare.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    [successor] = group["Instances"]
    assert successor["InstanceId"] != member.instance_id
    assert states(bare)[successor["InstanceId"]] == "running"


def test_member_marked_unhealthy_is_replaced_and_one_in_standby_is_left(bare: LocalAws) -> None:
    member = next(one for one in bare.create_fleet("test") if one.role == "group-member").instance_id
    groups = bare.client("autoscaling")
    groups.enter_standby(
        InstanceIds=[member], AutoScalingGroupName="training-group", ShouldDecrementDesiredCapacity=True
    )
    bare.client("ec2").stop_instances(InstanceIds=[member])
    bare.advance(timedelta(minutes=2))
    assert states(bare)[member] == "stopped"
    bare.client("ec2").start_instances(InstanceIds=[member])
    groups.exit_standby(InstanceIds=[member], AutoScalingGroupName="training-group")
    groups.set_instance_health(InstanceId=member, HealthStatus="Unhealthy")
    bare.advance(timedelta(minutes=1))
    assert states(bare)[member] == "terminated"


def test_suspended_health_check_replaces_nothing(bare: LocalAws) -> None:
    member = next(one for one in bare.create_fleet("test") if one.role == "group-member").instance_id
    bare.client("autoscaling").suspend_processes(
        AutoScalingGroupName="training-group", ScalingProcesses=["ReplaceUnhealthy"]
    )
    bare.client("ec2").stop_instances(InstanceIds=[member])
    bare.advance(timedelta(minutes=2))
    assert states(bare)[member] == "stopped"


def test_running_fleet_makes_the_bill(fresh: LocalAws) -> None:
    fresh.create_fleet("test", group=False)
    fresh.set_clock(fresh.now().replace(day=10, hour=6, minute=0, second=0, microsecond=0))
    rate = fresh.bill().run_rate_usd_per_hour
    # three p4d.24xlarge, four g4dn.xlarge, a g4dn.12xlarge, a g5.2xlarge, a g4dn.2xlarge at list price
    assert rate == pytest.approx(3 * 21.957642 + 4 * 0.526 + 3.912 + 1.212 + 0.752)
    fresh.advance(timedelta(hours=2))
    assert fresh.bill().month_to_date_usd == pytest.approx(2 * rate, rel=1e-6)


def test_same_seed_gives_the_same_ids(fresh: LocalAws, lambda_runtime_dir: Any) -> None:
    from local.client import local_aws

    first = [one.instance_id for one in fresh.create_fleet("test")]
    with local_aws(lambda_runtime_dir=lambda_runtime_dir, seed=11) as again:
        assert [one.instance_id for one in again.create_fleet("test")] == first


def test_filters_take_wildcards_and_no_other_patterns() -> None:
    assert matches("p4d.24xlarge", ["g*", "p4?.*"])
    assert not matches("p4d.24xlarge", ["p4"])
    assert not matches("a", ["[a]"])
    assert matches(True, ["true"])
    assert matches(["x", "y"], ["y"])


def test_a_start_renews_the_launch_time(probe: Probe) -> None:
    instance_id = launch(probe.aws)
    ec2 = probe.aws.client("ec2")

    def launched_at() -> Any:
        answer = ec2.describe_instances(InstanceIds=[instance_id])
        return answer["Reservations"][0]["Instances"][0]["LaunchTime"]

    first = launched_at()
    ec2.stop_instances(InstanceIds=[instance_id])
    probe.aws.advance(timedelta(minutes=2))
    assert launched_at() == first
    ec2.start_instances(InstanceIds=[instance_id])
    assert launched_at() > first
