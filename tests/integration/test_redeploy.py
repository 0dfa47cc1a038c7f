"""The life of a stage in an account with machines of every kind: installed, used, deployed again, and retired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local.client import LocalAws, local_aws
from local.deploy import CdkApp, DeployError, bootstrap, deploy, destroy
from tests.integration.conftest import ROOT, STAGE, TREE, run_governor

APP = CdkApp(ROOT, context={"stage": STAGE})
FORCED = CdkApp(ROOT, context={"stage": STAGE, "force-destroy": "true"})
GROUP = "night-batch"
"""A group that nobody has tagged, with a hook and a scheduled action."""


@dataclass(frozen=True, slots=True)
class Account:
    """A local AWS, and what was in it before the install."""

    aws: LocalAws
    before: dict[str, Any]
    untagged: str


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    """One of its own, because its stacks are taken away."""
    with local_aws(seed=5) as aws:
        fleet = aws.create_fleet(STAGE, everything=True)
        make_group(aws)
        aws.settle()
        untagged = next(one.instance_id for one in fleet if one.role == "untagged")
        before = look(aws)
        bootstrap(aws, on_line=print)
        deploy(aws, APP, on_line=print)
        aws.set_clock(datetime(2027, 1, 10, 9, tzinfo=UTC))
        yield Account(aws, before, untagged)


def make_group(aws: LocalAws) -> None:
    groups = aws.client("autoscaling")
    image = aws.client("ec2").describe_instances()["Reservations"][0]["Instances"][0]["ImageId"]
    data = {"ImageId": image, "InstanceType": "g4dn.xlarge"}
    aws.client("ec2").create_launch_template(LaunchTemplateName=GROUP, LaunchTemplateData=data)
    groups.create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        LaunchTemplate={"LaunchTemplateName": GROUP, "Version": "$Latest"},
        MinSize=1,
        MaxSize=4,
        DesiredCapacity=2,
        AvailabilityZones=["us-east-1a"],
        Tags=[{"Key": "team", "Value": "render", "PropagateAtLaunch": True}],
    )
    groups.put_lifecycle_hook(
        LifecycleHookName="drain",
        AutoScalingGroupName=GROUP,
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        DefaultResult="CONTINUE",
        HeartbeatTimeout=300,
    )
    groups.put_scheduled_update_group_action(
        AutoScalingGroupName=GROUP, ScheduledActionName="evening", Recurrence="0 20 * * *", DesiredCapacity=3
    )


def look(aws: LocalAws) -> dict[str, Any]:
    """Machines and groups with all that a Governor could change of them, and its parameters."""
    groups = aws.client("autoscaling")
    instances = [i for r in aws.client("ec2").describe_instances()["Reservations"] for i in r["Instances"]]
    alive = [one for one in instances if one["State"]["Name"] != "terminated"]
    found = groups.describe_auto_scaling_groups()["AutoScalingGroups"]
    return {
        "instances": {one["InstanceId"]: (one["State"]["Name"], tags_of(one)) for one in alive},
        "groups": {
            one["AutoScalingGroupName"]: {
                "sizes": (one["MinSize"], one["DesiredCapacity"], one["MaxSize"]),
                "members": {m["InstanceId"]: m["LifecycleState"] for m in one["Instances"]},
                "tags": sorted((t["Key"], t["Value"], t["PropagateAtLaunch"]) for t in one["Tags"]),
                "suspended": sorted(p["ProcessName"] for p in one.get("SuspendedProcesses", ())),
                "hooks": groups.describe_lifecycle_hooks(AutoScalingGroupName=one["AutoScalingGroupName"])[
                    "LifecycleHooks"
                ],
                "scheduled": groups.describe_scheduled_actions(AutoScalingGroupName=one["AutoScalingGroupName"])[
                    "ScheduledUpdateGroupActions"
                ],
            }
            for one in found
        },
        "spot": sorted(
            (one["SpotInstanceRequestId"], one["State"])
            for one in aws.client("ec2").describe_spot_instance_requests()["SpotInstanceRequests"]
        ),
        "parameters": tree(aws),
    }


def tags_of(item: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((tag["Key"], tag["Value"]) for tag in item.get("Tags", ()))


def tree(aws: LocalAws) -> dict[str, tuple[str, int]]:
    """Name below the stage -> value and version of each parameter."""
    pages = aws.client("ssm").get_paginator("get_parameters_by_path").paginate(Path=TREE, Recursive=True)
    found = [parameter for page in pages for parameter in page["Parameters"]]
    return {p["Name"].removeprefix(f"{TREE}/"): (p["Value"], p["Version"]) for p in found}


def stacks_of(aws: LocalAws) -> dict[str, str]:
    """Last part of the name -> status of each stack of the stage."""
    found = aws.client("cloudformation").describe_stacks()["Stacks"]
    prefix = f"Governor-{STAGE}-"
    return {s["StackName"].removeprefix(prefix): s["StackStatus"] for s in found if s["StackName"].startswith(prefix)}


def resources_of(aws: LocalAws, stack: str) -> set[str]:
    """Logical ids of what a stack of the stage still has."""
    pages = aws.client("cloudformation").list_stack_resources(StackName=f"Governor-{STAGE}-{stack}")
    return {one["LogicalResourceId"] for one in pages["StackResourceSummaries"] if "DELETE_COMPLETE" not in str(one)}


def states(aws: LocalAws) -> dict[str, str]:
    """State of each instance."""
    return {name: state for name, (state, _) in look(aws)["instances"].items()}


def run(aws: LocalAws, *arguments: str) -> str:
    """The command, which has to end well; what it said."""
    answer = run_governor(aws, *arguments, "--stage", STAGE, waits_pass_minutes=True)
    assert answer.exit_code == 0, answer.output
    aws.settle()
    return answer.output


@pytest.mark.timeout(300)
def test_the_life_of_a_stage(account: Account, tmp_path: Path) -> None:
    """One story, because each part stands on the one before; its parts are the functions below."""
    aws = account.aws
    seeded = tree(aws)
    assert {version for _, version in seeded.values()} == {1}
    take_in(account, tmp_path)
    edited = stop(account)
    a_deploy_keeps_what_is_stopped_and_edited(account, edited)
    a_destroy_before_retire_fails_and_says_what_to_do(account)
    retire_makes_the_world_what_it_was(account)
    destroy(aws, APP, on_line=print)
    assert stacks_of(aws) == {}
    assert look(aws) == account.before

    aws.set_clock(datetime.now(UTC) + timedelta(minutes=1))  # the CLI waits for events later than its own start
    deploy(aws, FORCED, on_line=print)
    assert {name: value for name, (value, _) in tree(aws).items()} == {n: value for n, (value, _) in seeded.items()}
    aws.client("ssm").put_parameter(Name=f"{TREE}/budget/stop-percent", Value="92", Overwrite=True)
    kept = tree(aws)
    destroy(aws, FORCED, on_line=print)
    assert stacks_of(aws) == {}
    assert tree(aws) == kept, "a forced destroy keeps what operators decided"


def take_in(account: Account, folder: Path) -> None:
    """A machine by tags and a group by adoption: both are within reach afterwards."""
    file = folder / "tags.csv"
    rows = [("governor:managed", STAGE), ("governor:criticality", "standard"), ("governor:project", "spare")]
    lines = [f"{account.untagged},us-east-1,{key},{value}" for key, value in rows]
    file.write_text("\n".join(["resource,region,key,value", *lines]) + "\n")
    run(account.aws, "tag", "--plan", str(file), "--apply", "--yes")
    refused = run_governor(account.aws, "adopt", GROUP, "--pool", "batch", "--yes", "--stage", STAGE)
    assert refused.exit_code == 1
    assert "evening" in refused.output
    assert "--suspend" in refused.output
    run(account.aws, "adopt", GROUP, "--pool", "batch", "--suspend", "--yes")
    assert account.before != look(account.aws)


def stop(account: Account) -> dict[str, tuple[str, int]]:
    """Edits, and 96 % of the limit; the settings as they then are."""
    aws = account.aws
    run(aws, "settings", "set", "budget/stop-percent", "91")
    aws.set_spend(960.0, refresh=True)
    aws.settle()
    aws.advance(timedelta(minutes=11))
    stopped = {name for name, state in states(aws).items() if state == "stopped"}
    assert account.untagged in stopped
    assert set(look(aws)["groups"][GROUP]["members"].values()) == {"Standby"}
    assert set(look(aws)["groups"][GROUP]["members"]) <= stopped
    assert len(stopped) == 11
    return tree(aws)


def a_deploy_keeps_what_is_stopped_and_edited(account: Account, edited: dict[str, tuple[str, int]]) -> None:
    aws = account.aws
    before, mails = look(aws), len(aws.mails())
    deploy(aws, APP, on_line=print)
    aws.advance(timedelta(minutes=11))
    assert tree(aws) == edited
    assert look(aws) == before
    assert [mail.subject for mail in aws.mails()[mails:] if "stopp" in mail.subject] == []
    outputs = aws.client("cloudformation").describe_stacks(StackName=f"Governor-{STAGE}-Control")["Stacks"][0]
    kept = next(one for one in outputs["Outputs"] if one["OutputKey"] == "KeptOnDelete")
    assert kept["OutputValue"] == TREE
    assert "stay when this stack is deleted" in kept["Description"]


def a_destroy_before_retire_fails_and_says_what_to_do(account: Account) -> None:
    aws = account.aws
    deployed = stacks_of(aws)
    assert set(deployed) == {"State", "Control", "Watch"}
    before = {stack: resources_of(aws, stack) for stack in ("State", "Control", "Watch")}
    lines: list[str] = []
    with pytest.raises(DeployError):
        destroy(aws, APP, on_line=lines.append)
    said = " ".join(" ".join(lines).split())
    assert f"Stage {STAGE} is not retired: machines may still be stopped and groups lowered by the Governor." in said
    assert "governor retire --plan" in said
    assert stacks_of(aws) == {**deployed, "Watch": "DELETE_FAILED"}
    assert {stack: resources_of(aws, stack) for stack in before} == before, "a refusal leaves everything in place"


def retire_makes_the_world_what_it_was(account: Account) -> None:
    aws = account.aws
    before = look(aws)
    planned = run(aws, "retire", "--plan")
    assert look(aws) == before, "a plan changes nothing"
    assert GROUP in planned
    done = run(aws, "retire", "--apply", "--yes")
    assert f"The stage {STAGE} is retired" in done
    assert look(aws) == account.before
