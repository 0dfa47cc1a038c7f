"""What `--json` answers has the keys that cli/README.md promises, and nothing else is on stdout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from governor.aws.clients import client
from tests.unit.cli.shapes import promised_shapes, shape_of
from tests.unit.cli.world import FURTHER, HOME, IMAGE, World, a_world, refusal

PROMISED = promised_shapes()


@pytest.fixture
def world() -> Iterator[World]:
    """A stage that has stopped one instance and has an open stop, a rejection, and an unknown Region."""
    with a_world() as made:
        made.deploy(mode="enforce")
        yield made


def a_fleet(world: World) -> str:
    """Instances of several kinds; the id of the one that may be stopped."""
    victim = world.launch(Name="train", **{"governor:project": "nlp", "governor:pool": "training"})
    world.launch("p4d.24xlarge", "critical")
    world.launch("g5.xlarge", None, None, region=FURTHER)
    return victim


def with_brake(world: World) -> None:
    """A stage with a native brake that AWS has pulled."""
    real = client("cloudformation", HOME).describe_stacks

    def stacks(region: str, params: Mapping[str, Any]) -> Any:
        del world.answers["cloudformation.DescribeStacks"]
        answer = real(**params)
        world.answers["cloudformation.DescribeStacks"] = stacks
        for stack in answer["Stacks"]:
            if stack["StackName"] == "Governor-dev-Control":
                stack["Outputs"].append({"OutputKey": "NativeBrakeActionId", "OutputValue": "brake-1"})
        return answer

    threshold = {"ActionThresholdValue": 98.0, "ActionThresholdType": "PERCENTAGE"}
    action = {"ActionId": "brake-1", "Status": "EXECUTION_SUCCESS", "ActionThreshold": threshold}
    world.answers["cloudformation.DescribeStacks"] = stacks
    world.answers["budgets.DescribeBudgetActionsForBudget"] = lambda region, params: {"Actions": [action]}
    world.answers["budgets.ExecuteBudgetAction"] = lambda region, params: {}


def come_to_rest(world: World) -> None:
    """Everything that the guard began is seen."""
    world.guard()
    world.confirm()
    world.guard()
    world.confirm()


def answer_scan(world: World) -> Any:
    a_fleet(world)
    autoscaling = boto3.client("autoscaling", HOME)
    autoscaling.create_launch_configuration(LaunchConfigurationName="gpu", ImageId=IMAGE, InstanceType="g4dn.xlarge")
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="gpu",
        LaunchConfigurationName="gpu",
        MinSize=1,
        MaxSize=3,
        DesiredCapacity=2,
        AvailabilityZones=["us-east-1a"],
    )
    world.answers["ec2.DescribeSpotInstanceRequests"] = lambda region, params: {
        "SpotInstanceRequests": [
            {
                "SpotInstanceRequestId": "sir-1",
                "State": "active",
                "Type": "persistent",
                "LaunchSpecification": {"InstanceType": "g5.xlarge"},
            }
        ]
    }
    world.answers["ec2.DescribeCapacityReservations"] = lambda region, params: {
        "CapacityReservations": [
            {
                "CapacityReservationId": "cr-1",
                "InstanceType": "p5.48xlarge",
                "State": "active",
                "TotalInstanceCount": 2,
                "AvailableInstanceCount": 1,
            }
        ]
    }
    world.refuse("ec2.DescribeInstances", "UnauthorizedOperation", region=FURTHER)
    world.refuse("sts.GetCallerIdentity", "AccessDenied")
    return world.answer("scan")


def answer_plan(world: World) -> Any:
    a_fleet(world)
    world.refuse("ec2.DescribeInstances", "UnauthorizedOperation", region=FURTHER)
    world.spend(960)
    with_brake(world)
    world.governor("pause", "--because", "test")
    return world.answer("plan")


def answer_status(world: World) -> Any:
    world.launch_group(tags={"governor:managed": ("dev", True), "governor:criticality": ("standard", True)})
    world.spend(960)
    come_to_rest(world)
    victim = a_fleet(world)
    world.answer("keep", world.launch(criticality="critical"), "--for", "2h")
    world.answer("override", "--project", "speech", "--for", "2h", "--because", "test")
    world.answers["ec2.StopInstances"] = lambda region, params: {"StoppingInstances": []}
    assert world.guard().stopped == (victim,)
    boto3.client("ssm", HOME).put_parameter(
        Name="/governor/dev/budget/warn-percent", Value="99", Overwrite=True, Type="String"
    )
    world.pass_minutes(2)
    world.check()
    world.governor("pause", "--because", "test")
    world.refuse("ec2.DescribeInstances", "UnauthorizedOperation", region=FURTHER)
    return world.answer("status")


def answer_explain_instance(world: World) -> Any:
    victim = a_fleet(world)
    world.connect_functions()
    world.spend(960)
    world.governor("pause", "--because", "test")
    world.guard()
    world.governor("unpause", "--because", "test")
    come_to_rest(world)
    world.answer("restore", victim, "--yes", "--no-wait")
    return world.answer("explain", victim)


def answer_explain_decision(world: World) -> Any:
    """A decision that stopped one machine and brought another back, and the first has come back since as well."""
    first = a_fleet(world)
    world.connect_functions()
    world.spend(960)
    come_to_rest(world)
    second = world.launch()
    world.answer("restore", first, "--yes", "--no-wait")
    decision_id = world.answer("explain", first)["outcomes"][0]["restore"]["decision_id"]
    come_to_rest(world)
    world.answer("restore", second, "--yes", "--no-wait")
    answer = world.answer("explain", decision_id)
    assert [row["instance_id"] for row in answer["outcomes"]] == [second]
    assert [row["instance_id"] for row in answer["restore_outcomes"]] == [first]
    return answer


def answer_keep(world: World) -> Any:
    victim = world.launch()
    world.answer("keep", victim, "--for", "2h")
    return world.answer("keep", victim, "--for", "3h", "--because", "test")


def answer_keep_list(world: World) -> Any:
    answer_keep(world)
    return world.answer("keep", "--list")


def answer_override(world: World) -> Any:
    a_fleet(world)
    world.spend(960)
    with_brake(world)
    world.answer("override", "--for", "2h", "--because", "test")
    return world.answer("override", "--up-to-usd", "1500", "--because", "test")


def answer_override_lift(world: World) -> Any:
    answer_override(world)
    return world.answer("override", "--lift")


def answer_override_list(world: World) -> Any:
    answer_override(world)
    return world.answer("override", "--list")


def answer_restore(world: World) -> Any:
    """One machine comes back, one that somebody changed does not, and the third is lost on its way."""
    first, second, third = (world.launch() for _ in range(3))
    world.connect_functions()
    world.spend(960)
    come_to_rest(world)
    boto3.client("ec2", HOME).create_tags(
        Resources=[second], Tags=[{"Key": "governor:criticality", "Value": "critical"}]
    )

    def start(region: str, params: Mapping[str, Any]) -> Any:
        if third in params["InstanceIds"]:
            boto3.client("ec2", region).terminate_instances(InstanceIds=[third])
            raise refusal("InsufficientInstanceCapacity", "StartInstances")
        return NotImplemented

    world.answers["ec2.StartInstances"] = start
    return world.answer("restore", first, second, third, "--yes", exit_code=1)


def a_file(folder: Path, *rows: tuple[str, str, str]) -> str:
    """A file for `governor tag`: resource, key, value."""
    file = folder / "tags.csv"
    lines = [",".join((resource, HOME, key, value)) for resource, key, value in rows]
    file.write_text("\n".join(["resource,region,key,value", *lines, ""]))
    return str(file)


def answer_tag(world: World, folder: Path) -> Any:
    victim = world.launch(managed=None)
    world.refuse("ec2.DescribeInstances", "UnauthorizedOperation", region=FURTHER)
    return world.answer("tag", "--plan", a_file(folder, (victim, "governor:managed", "dev")))


def answer_tag_template(world: World, folder: Path) -> Any:
    a_fleet(world)
    world.launch(managed=None)
    world.refuse("ec2.DescribeInstances", "UnauthorizedOperation", region=FURTHER)
    return world.answer("tag", "--template")


def answer_tag_revert(world: World, folder: Path) -> Any:
    victim = world.launch(managed=None)
    rows = ((victim, "governor:managed", "dev"), (victim, "governor:pool", "research"))
    world.answer("tag", "--plan", a_file(folder, *rows), "--apply", "--yes")
    boto3.client("ec2", HOME).create_tags(Resources=[victim], Tags=[{"Key": "governor:pool", "Value": "other"}])
    return world.answer("tag", "--revert", "--yes")


def answer_adopt(world: World, folder: Path) -> Any:
    world.launch_group()
    return world.answer("adopt", "workers", "--pool", "research", "--yes")


def answer_unadopt(world: World, folder: Path) -> Any:
    answer_adopt(world, folder)
    tag = {"Key": "governor:pool", "Value": "other"}
    boto3.client("ec2", HOME).create_tags(Resources=[world.members()[0]], Tags=[tag])
    return world.answer("unadopt", "workers", "--yes")


def answer_retire(world: World, folder: Path) -> Any:
    answer_adopt(world, folder)
    world.spend(960)
    come_to_rest(world)
    return world.answer("retire", "--apply", "--leave-stopped", "--yes")


def answer_pause(world: World) -> Any:
    a_fleet(world)
    world.spend(960)
    return world.answer("pause", "--because", "test", "--for", "2h")


def answer_arm(world: World) -> Any:
    a_fleet(world)
    world.spend(960)
    return world.answer("arm", "budget", "--yes", "--without-subscribers")


def answer_init(world: World, folder: Path) -> Any:
    (folder / "cdk.json").write_text('{"context": {"stages": {}}}')
    world.refuse("ec2.DescribeInstances", "UnauthorizedOperation", region=FURTHER)
    return world.answer("init", "--stage", "new", "--folder", str(folder))


ANSWERS: Mapping[str, Callable[[World], Any]] = {
    "governor scan": answer_scan,
    "governor status": answer_status,
    "governor plan": answer_plan,
    "governor explain INSTANCE": answer_explain_instance,
    "governor explain DECISION": answer_explain_decision,
    "governor keep": answer_keep,
    "governor keep --list": answer_keep_list,
    "governor override": answer_override,
    "governor override --lift": answer_override_lift,
    "governor override --list": answer_override_list,
    "governor restore": answer_restore,
    "governor doctor": lambda world: world.answer("doctor", exit_code=1),
    "governor pause": answer_pause,
    "governor unpause": lambda world: world.answer("unpause", "--because", "test"),
    "governor arm": answer_arm,
    "governor settings get": lambda world: world.answer("settings", "get"),
    "governor settings set": lambda world: world.answer("settings", "set", "budget/warn-percent", "70"),
    "governor settings diff": lambda world: world.answer("settings", "diff"),
    "governor settings history": lambda world: world.answer("settings", "history"),
}

TAKING: Mapping[str, Callable[[World, Path], Any]] = {
    "governor tag": answer_tag,
    "governor tag --template": answer_tag_template,
    "governor tag --revert": answer_tag_revert,
    "governor adopt": answer_adopt,
    "governor unadopt": answer_unadopt,
    "governor retire": answer_retire,
}


@pytest.mark.parametrize("verb", ANSWERS)
def test_answer_has_the_keys_that_the_page_promises(verb: str, world: World) -> None:
    assert shape_of(ANSWERS[verb](world)) == PROMISED[verb]


@pytest.mark.parametrize("verb", TAKING)
def test_what_takes_in_and_gives_back_answers_as_promised(verb: str, world: World, tmp_path: Path) -> None:
    assert shape_of(TAKING[verb](world, tmp_path)) == PROMISED[verb]


def test_init_answers_as_promised(world: World, tmp_path: Path) -> None:
    answer = answer_init(world, tmp_path)
    del answer["after"], answer["before"]
    promised = {path: keys - {"after", "before"} for path, keys in PROMISED["governor init"].items()}
    assert shape_of(answer) == promised


def test_validate_answers_as_promised_and_ends_with_1_for_an_invalid_tree(world: World) -> None:
    boto3.client("ssm", HOME).put_parameter(
        Name="/governor/dev/budget/warn-percent", Value="99", Overwrite=True, Type="String"
    )
    answer = world.answer("settings", "validate", exit_code=1)
    assert shape_of(answer) == PROMISED["governor settings validate"]
    assert answer["errors"][0]["name"] == "budget/warn-percent"
    assert not answer["valid"]


def test_the_page_promises_nothing_that_no_test_checks() -> None:
    assert set(PROMISED) == {*ANSWERS, *TAKING, "governor init", "governor settings validate"}


def test_an_error_leaves_stdout_empty(world: World) -> None:
    result = world.governor("plan", "--stage", "other", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "other" in result.stderr


def test_json_is_whole_and_alone_on_stdout(world: World) -> None:
    result = world.governor("settings", "set", "budget/warn-percent", "80", "--json")
    assert json.loads(result.stdout)["changed"] is False
    assert "nothing was changed" in result.stderr
