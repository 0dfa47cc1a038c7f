"""Auto Scaling groups: bounds, standby, replacements, what suspends or changes a group by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.client import LocalAws
from tests.contract.local.test_ec2 import states

GROUP = "training-group"


@pytest.fixture
def members(bare: LocalAws) -> tuple[str, str]:
    """The two members of a group of minimum 1, desired 2, maximum 3."""
    by_role = {one.role: one.instance_id for one in bare.create_fleet("test", everything=True)}
    return by_role["group-member-1"], by_role["group-member-2"]


def group(aws: LocalAws) -> dict[str, Any]:
    answer = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])
    found: dict[str, Any] = answer["AutoScalingGroups"][0]
    return found


def sizes(aws: LocalAws) -> tuple[int, int, int]:
    found = group(aws)
    return found["MinSize"], found["DesiredCapacity"], found["MaxSize"]


def lifecycles(aws: LocalAws) -> dict[str, str]:
    return {one["InstanceId"]: one["LifecycleState"] for one in group(aws)["Instances"]}


def enter(aws: LocalAws, *ids: str, decrement: bool = True) -> None:
    aws.client("autoscaling").enter_standby(
        AutoScalingGroupName=GROUP, InstanceIds=list(ids), ShouldDecrementDesiredCapacity=decrement
    )


def leave(aws: LocalAws, *ids: str) -> None:
    aws.client("autoscaling").exit_standby(AutoScalingGroupName=GROUP, InstanceIds=list(ids))


def resize(aws: LocalAws, **changes: Any) -> None:
    aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=GROUP, **changes)


def refused(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(ClientError) as error:
        call(*arguments, **named)
    assert error.value.response["Error"]["Code"] == "ValidationError"
    return str(error.value.response["Error"]["Message"])


def test_stopped_in_standby_comes_back_as_it_was(bare: LocalAws, members: tuple[str, str]) -> None:
    first, second = members
    ec2 = bare.client("ec2")
    enter(bare, first)
    ec2.stop_instances(InstanceIds=[first])
    bare.advance(timedelta(minutes=5))
    assert sizes(bare) == (1, 1, 3)
    assert lifecycles(bare) == {first: "Standby", second: "InService"}
    assert states(bare)[first] == "stopped"
    ec2.start_instances(InstanceIds=[first])
    leave(bare, first)
    bare.advance(timedelta(minutes=5))
    assert sizes(bare) == (1, 2, 3)
    assert lifecycles(bare) == {first: "InService", second: "InService"}
    assert states(bare)[first] == "running"


def test_standby_below_the_minimum_is_refused_until_it_is_lowered(bare: LocalAws, members: tuple[str, str]) -> None:
    text = refused(enter, bare, *members)
    assert text.startswith(f"AutoScalingGroup {GROUP} has min-size=1, max-size=3, and desired-size=2.")
    assert set(lifecycles(bare).values()) == {"InService"}
    resize(bare, MinSize=0)
    enter(bare, *members)
    assert sizes(bare) == (0, 0, 3)
    leave(bare, *members)
    resize(bare, MinSize=1)
    assert sizes(bare) == (1, 2, 3)
    assert set(lifecycles(bare)) == set(members)


def test_standby_without_decrement_launches_a_replacement(bare: LocalAws, members: tuple[str, str]) -> None:
    enter(bare, members[0], decrement=False)
    assert sizes(bare) == (1, 2, 3)
    assert sorted(lifecycles(bare).values()) == ["InService", "InService", "Standby"]


def test_leaving_standby_above_the_maximum_is_refused(bare: LocalAws, members: tuple[str, str]) -> None:
    enter(bare, members[0])
    resize(bare, MaxSize=1)
    assert "move out of standby 1 instance" in refused(leave, bare, members[0])
    assert lifecycles(bare)[members[0]] == "Standby"


def test_leaving_standby_while_stopped_loses_the_member(bare: LocalAws, members: tuple[str, str]) -> None:
    enter(bare, members[0])
    bare.client("ec2").stop_instances(InstanceIds=[members[0]])
    leave(bare, members[0])
    bare.advance(timedelta(minutes=1))
    assert states(bare)[members[0]] == "terminated"
    assert members[0] not in lifecycles(bare)
    assert len(lifecycles(bare)) == 2


def test_states_and_names_are_checked(bare: LocalAws, members: tuple[str, str]) -> None:
    assert "is not in Standby" in refused(leave, bare, members[0])
    enter(bare, members[0])
    assert "is not in InService" in refused(enter, bare, members[0])
    assert "is not part of" in refused(enter, bare, "i-0123456789abcdef0")
    unknown = bare.client("autoscaling").set_desired_capacity
    assert "not found" in refused(unknown, AutoScalingGroupName="nobody", DesiredCapacity=1)


def test_lowering_terminates_exactly_the_named_member(bare: LocalAws, members: tuple[str, str]) -> None:
    terminate = bare.client("autoscaling").terminate_instance_in_auto_scaling_group
    terminate(InstanceId=members[1], ShouldDecrementDesiredCapacity=True)
    assert sizes(bare) == (1, 1, 3)
    assert lifecycles(bare) == {members[0]: "InService"}
    assert states(bare)[members[1]] == "terminated"
    text = refused(terminate, InstanceId=members[0], ShouldDecrementDesiredCapacity=True)
    assert "desiredSize equals minSize (1)" in text
    assert states(bare)[members[0]] == "running"
    assert "No managed instance found" in refused(
        terminate, InstanceId="i-0123456789abcdef0", ShouldDecrementDesiredCapacity=True
    )


def test_new_bounds_pull_the_desired_capacity_along(bare: LocalAws, members: tuple[str, str]) -> None:
    enter(bare, members[0])
    resize(bare, MinSize=2)
    assert sizes(bare) == (2, 2, 3)
    assert sorted(lifecycles(bare).values()) == ["InService", "InService", "Standby"]
    resize(bare, MinSize=0, MaxSize=1)
    assert sizes(bare) == (0, 1, 1)
    assert lifecycles(bare)[members[0]] == "Standby"
    assert "must be greater than or equal to min bound" in refused(resize, bare, MinSize=2)
    assert "must be between" in refused(resize, bare, DesiredCapacity=5)


def test_shrinking_never_takes_a_member_in_standby(bare: LocalAws, members: tuple[str, str]) -> None:
    groups = bare.client("autoscaling")
    enter(bare, members[0], decrement=False)
    groups.set_desired_capacity(AutoScalingGroupName=GROUP, DesiredCapacity=1)
    assert sorted(lifecycles(bare).values()) == ["InService", "Standby"]
    assert states(bare)[members[0]] == "running"
    assert "is below min value 1" in refused(groups.set_desired_capacity, AutoScalingGroupName=GROUP, DesiredCapacity=0)
    assert "is above max value 3" in refused(groups.set_desired_capacity, AutoScalingGroupName=GROUP, DesiredCapacity=4)


def test_changing_a_size_keeps_the_mixed_policy(bare: LocalAws) -> None:
    ec2, groups = bare.client("ec2"), bare.client("autoscaling")
    ec2.create_launch_template(
        LaunchTemplateName="mixed", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "g4dn.xlarge"}
    )
    specification = {"LaunchTemplateName": "mixed", "Version": "$Latest"}
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": []}}
    groups.create_auto_scaling_group(
        AutoScalingGroupName=GROUP, MinSize=1, MaxSize=2, AvailabilityZones=["us-east-1a"], MixedInstancesPolicy=policy
    )
    before = group(bare)["MixedInstancesPolicy"]
    resize(bare, MinSize=0)
    assert group(bare)["MixedInstancesPolicy"] == before


def test_policies_actions_and_suspensions_can_be_read(bare: LocalAws, members: tuple[str, str]) -> None:
    groups = bare.client("autoscaling")
    for name, enabled in (("grow", True), ("rest", False)):
        groups.put_scaling_policy(
            AutoScalingGroupName=GROUP,
            PolicyName=name,
            PolicyType="SimpleScaling",
            AdjustmentType="ChangeInCapacity",
            ScalingAdjustment=1,
            Enabled=enabled,
        )
    policies = groups.describe_policies(AutoScalingGroupName=GROUP)["ScalingPolicies"]
    assert {one["PolicyName"]: one["Enabled"] for one in policies} == {"grow": True, "rest": False}
    groups.put_scheduled_update_group_action(
        AutoScalingGroupName=GROUP, ScheduledActionName="morning", Recurrence="0 7 * * *", DesiredCapacity=2
    )
    actions = groups.describe_scheduled_actions(AutoScalingGroupName=GROUP)["ScheduledUpdateGroupActions"]
    assert [one["ScheduledActionName"] for one in actions] == ["morning"]
    groups.suspend_processes(AutoScalingGroupName=GROUP, ScalingProcesses=["ScheduledActions", "AlarmNotification"])
    suspended = [one["ProcessName"] for one in group(bare)["SuspendedProcesses"]]
    assert suspended == ["AlarmNotification", "ScheduledActions"]
    groups.resume_processes(AutoScalingGroupName=GROUP, ScalingProcesses=["AlarmNotification"])
    assert [one["ProcessName"] for one in group(bare)["SuspendedProcesses"]] == ["ScheduledActions"]


def test_instance_refresh_goes_on_until_it_is_cancelled(bare: LocalAws, members: tuple[str, str]) -> None:
    groups = bare.client("autoscaling")

    def refreshes() -> list[str]:
        answer = groups.describe_instance_refreshes(AutoScalingGroupName=GROUP)["InstanceRefreshes"]
        return [one["Status"] for one in answer]

    assert refreshes() == []
    refresh_id = groups.start_instance_refresh(AutoScalingGroupName=GROUP)["InstanceRefreshId"]
    bare.advance(timedelta(minutes=30))
    assert refreshes() == ["InProgress"]
    with pytest.raises(ClientError, match="InstanceRefreshInProgress"):
        groups.start_instance_refresh(AutoScalingGroupName=GROUP)
    assert groups.cancel_instance_refresh(AutoScalingGroupName=GROUP)["InstanceRefreshId"] == refresh_id
    assert refreshes() == ["Cancelled"]
    with pytest.raises(ClientError, match="ActiveInstanceRefreshNotFound"):
        groups.cancel_instance_refresh(AutoScalingGroupName=GROUP)
