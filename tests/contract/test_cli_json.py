"""What `--json` answers has the keys that cli/README.md promises, and nothing else is on stdout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.unit.cli.shapes import promised_shapes, shape_of
from tests.unit.cli.world import FURTHER, HOME, IMAGE, World, a_world

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
    world.governor("pause", "--because", "test")
    return world.answer("plan")


def answer_status(world: World) -> Any:
    victim = a_fleet(world)
    world.spend(960)
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
    world.spend(960)
    world.governor("pause", "--because", "test")
    world.guard()
    world.governor("unpause", "--because", "test")
    world.guard()
    return world.answer("explain", victim)


def answer_explain_decision(world: World) -> Any:
    a_fleet(world)
    world.spend(960)
    report = world.guard()
    answer = world.answer("explain", report.decision_id)
    assert answer["message_keys"] == list(report.messages)
    return answer


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
    "governor doctor": lambda world: world.answer("doctor", exit_code=1),
    "governor pause": answer_pause,
    "governor unpause": lambda world: world.answer("unpause", "--because", "test"),
    "governor arm": answer_arm,
    "governor settings get": lambda world: world.answer("settings", "get"),
    "governor settings set": lambda world: world.answer("settings", "set", "budget/warn-percent", "70"),
    "governor settings diff": lambda world: world.answer("settings", "diff"),
    "governor settings history": lambda world: world.answer("settings", "history"),
}


@pytest.mark.parametrize("verb", ANSWERS)
def test_answer_has_the_keys_that_the_page_promises(verb: str, world: World) -> None:
    assert shape_of(ANSWERS[verb](world)) == PROMISED[verb]


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
    assert set(PROMISED) == {*ANSWERS, "governor init", "governor settings validate"}


def test_an_error_leaves_stdout_empty(world: World) -> None:
    result = world.governor("plan", "--stage", "other", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "other" in result.stderr


def test_json_is_whole_and_alone_on_stdout(world: World) -> None:
    result = world.governor("settings", "set", "budget/warn-percent", "80", "--json")
    assert json.loads(result.stdout)["changed"] is False
    assert "nothing was changed" in result.stderr
