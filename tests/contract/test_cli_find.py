"""The stage is found, or one sentence says what to do: no credentials, no Region, wrong stage, denied, throttled."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest

from governor.aws.clients import client
from governor.ports import Key, Record, Write
from tests.unit.cli.world import BUDGET, FURTHER, HOME, TABLE, World, a_world, make_stack, refusal


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        yield made


def sentence(world: World, *arguments: str) -> str:
    """The one line on stderr of a command that fails; nothing is on stdout."""
    result = world.governor(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.output
    assert result.stderr.startswith("governor: ")
    return result.stderr.removeprefix("governor: ").strip()


READERS = (
    ("status",),
    ("plan",),
    ("explain", "i-0abc"),
    ("pause", "--because", "x"),
    ("unpause", "--because", "x"),
    ("arm", "budget"),
    ("settings", "get"),
    ("settings", "set", "budget/warn-percent", "70"),
    ("settings", "diff"),
    ("settings", "history"),
    ("settings", "validate"),
)


@pytest.mark.parametrize("verb", [*READERS, ("scan",)], ids=" ".join)
def test_no_region(verb: tuple[str, ...], world: World) -> None:
    del os.environ["AWS_REGION"]
    assert sentence(world, *verb).startswith("No AWS Region is set on this machine; set AWS_REGION")


@pytest.mark.parametrize("verb", READERS, ids=" ".join)
def test_nothing_deployed(verb: tuple[str, ...], world: World) -> None:
    assert sentence(world, *verb) == (
        "No stage of the Governor is deployed in us-east-1; deploy one with make deploy STAGE=dev, or set AWS_REGION "
        "to the home Region of yours."
    )


def test_no_credentials(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    client.cache_clear()
    for verb in (("status",), ("scan",)):
        assert sentence(world, *verb).startswith("No AWS credentials were found on this machine; sign in,")


def test_unknown_profile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    client.cache_clear()
    assert sentence(world, "status").startswith("The config profile (work) could not be found; set AWS_PROFILE")


def test_wrong_stage_names_those_that_are_there(world: World) -> None:
    for name in ("dev", "prod"):
        make_stack(f"Governor-{name}-State", {"TableName": TABLE})
    make_stack("Governor-prod-Control", {})
    make_stack("Other-app-State", {})
    assert sentence(world, "status", "--stage", "test") == (
        "The stage test is not deployed in us-east-1; choose one of those that are with --stage: dev, prod."
    )


def test_wrong_stage_where_stacks_may_not_be_listed(world: World) -> None:
    def answer(region: str, params: Mapping[str, Any]) -> Any:
        if "StackName" in params:
            return NotImplemented
        raise refusal("AccessDenied", "DescribeStacks")

    world.answers["cloudformation.DescribeStacks"] = answer
    assert sentence(world, "status", "--stage", "test") == (
        "The stage test is not deployed in us-east-1; check --stage and AWS_REGION (the stacks that are there may not "
        "be listed with these credentials)."
    )
    assert sentence(world, "status") == (
        "AWS does not let you list the stacks in us-east-1, so the stage cannot be found; name it with --stage NAME."
    )


def test_several_stages_need_a_choice(world: World) -> None:
    for name in ("dev", "prod"):
        make_stack(f"Governor-{name}-State", {"TableName": TABLE})
    expected = "Several stages are deployed in us-east-1 (dev, prod); choose one with --stage NAME."
    assert sentence(world, "status") == expected
    assert sentence(world, "scan") == expected


def test_impossible_stage(world: World) -> None:
    assert sentence(world, "status", "--stage", "Dev_1").startswith("'Dev_1' cannot be the name of a stage; write")
    assert sentence(world, "scan", "--stage", "Dev_1").startswith("'Dev_1' cannot be the name of a stage; write")


def test_the_only_stage_and_the_named_one_and_that_of_the_variable_are_the_same(world: World) -> None:
    world.deploy()
    answers = [world.answer("settings", "diff"), world.answer("settings", "diff", "--stage", "dev")]
    os.environ["GOVERNOR_STAGE"] = "dev"
    answers.append(world.answer("settings", "diff"))
    assert answers[0]["stage"] == "dev"
    assert answers == [answers[0]] * 3


def test_region_of_either_variable_counts_and_aws_region_wins(world: World) -> None:
    world.deploy()
    del os.environ["AWS_REGION"]
    os.environ["AWS_DEFAULT_REGION"] = HOME
    assert world.answer("settings", "diff")["stage"] == "dev"
    os.environ["AWS_REGION"] = FURTHER
    assert FURTHER in sentence(world, "settings", "diff")


def test_stack_of_the_functions_is_missing(world: World) -> None:
    world.deploy()
    boto3.client("cloudformation", HOME).delete_stack(StackName="Governor-dev-Control")
    assert sentence(world, "plan") == (
        "The stack Governor-dev-Control is missing in us-east-1; finish its deploy first: make deploy STAGE=dev."
    )


def test_stack_without_an_output(world: World) -> None:
    make_stack("Governor-dev-State", {"BusName": "b"})
    make_stack("Governor-dev-Control", {"BudgetName": "c"})
    assert sentence(world, "settings", "get") == (
        "The stack Governor-dev-State in us-east-1 has no output TableName; finish its deploy first: "
        "make deploy STAGE=dev."
    )
    assert sentence(world, "plan").startswith(
        "The stack Governor-dev-Control in us-east-1 has no output BudgetFamilies; finish its deploy first"
    )


def test_regions_and_tag_keys_come_from_the_outputs_of_the_stack(world: World) -> None:
    world.deploy()
    outputs = {"BudgetName": BUDGET, "BudgetFamilies": "g4dn", "Regions": HOME}
    boto3.client("cloudformation", HOME).delete_stack(StackName="Governor-dev-Control")
    make_stack("Governor-dev-Control", {**outputs, "TagKeys": json.dumps({"managed": "team:managed"})})
    instance = world.launch(managed=None, **{"team:managed": "dev"})
    world.launch(region=FURTHER)
    verdicts = world.answer("plan")["verdicts"]
    assert [(v["instance_id"], v["reason"]["code"]) for v in verdicts] == [(instance, "within-reach")]
    boto3.client("cloudformation", HOME).delete_stack(StackName="Governor-dev-Control")
    make_stack("Governor-dev-Control", {**outputs, "TagKeys": "[]"})
    assert sentence(world, "plan").startswith("The deploy of stage dev in us-east-1 does not say its Regions and tag")


@pytest.mark.parametrize(
    ("call", "verb"),
    [
        ("dynamodb.GetItem", ("plan",)),
        ("ssm.GetParametersByPath", ("settings", "get")),
        ("ssm.GetParameterHistory", ("settings", "history")),
        ("ssm.PutParameter", ("pause", "--because", "x")),
        ("ssm.PutParameter", ("settings", "set", "budget/warn-percent", "70")),
        ("sns.ListSubscriptionsByTopic", ("arm", "budget")),
        ("dynamodb.Query", ("explain", "i-0abc")),
        ("ec2.DescribeRegions", ("scan",)),
    ],
)
def test_denied_and_throttled(call: str, verb: tuple[str, ...], world: World) -> None:
    world.deploy()
    service, _, operation = call.partition(".")
    world.refuse(call, "ThrottlingException", "Rate exceeded")
    assert sentence(world, *verb) == (
        f"AWS throttles {operation} in us-east-1 (ThrottlingException); wait a minute and try again."
    )
    if verb == ("scan",):
        return
    world.refuse(call, "AccessDeniedException", f"User: x is not authorized to perform: {service}:{operation} on y")
    assert sentence(world, *verb).startswith(f"AWS denies {service}:{operation} in us-east-1; use credentials")


def test_settings_not_read_yet(world: World) -> None:
    world.deploy()
    boto3.client("dynamodb", HOME).delete_item(TableName=TABLE, Key={"pk": {"S": "settings"}, "sk": {"S": "current"}})
    assert sentence(world, "plan").startswith("The stage dev has no snapshot of its settings yet; check_settings takes")


def test_record_of_a_newer_version(world: World) -> None:
    world.deploy()
    body = dict(world.store().get(Key("settings", "current")).body)  # type: ignore[union-attr]
    world.store().commit([Write(Record(Key("settings", "current"), body, version=99))])
    assert sentence(world, "plan") == (
        "record settings current has version 99, newer than 1; try again, or use the version of governor that is "
        "deployed."
    )


def test_record_that_cannot_be_read(world: World) -> None:
    world.deploy()
    world.store().commit([Write(Record(Key("ledger", "i-0abc#budget#x"), {"instance_id": "i-0abc"}))])
    assert sentence(world, "explain", "i-0abc").startswith("A record of the state table cannot be read (StopEntry")


def test_a_fault_of_the_program_is_one_sentence_and_a_trace_on_demand(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.answers["cloudformation.DescribeStacks"] = lambda region, params: {"Stacks": [{}]}
    assert sentence(world, "status").startswith("governor has a fault (KeyError: 'StackName'); nothing more was done.")
    monkeypatch.setenv("GOVERNOR_TRACE", "1")
    assert isinstance(world.governor("status").exception, KeyError)


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "whatever"),
        ("explain", "guard_budget@yesterday"),
        ("explain", "guard_budget@2026-11-20T12:00:00"),
        ("explain",),
        ("pause",),
        ("pause", "--because", "x", "--for", "long"),
        ("unpause",),
        ("arm",),
        ("arm", "burst"),
        ("arm", "budget", "--mode", "on"),
        ("settings", "get", "budget/stop"),
        ("settings", "set", "budget/stop-percent"),
        ("init",),
        ("nothing",),
        ("scan", "--region", "x"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], world: World) -> None:
    world.deploy()
    result = world.governor(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error" in result.stderr
