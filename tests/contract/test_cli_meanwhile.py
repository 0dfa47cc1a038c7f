"""What happens between a question and its answer, and when an answer of AWS is lost: nothing that nobody agreed to."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError

from tests.contract.test_cli_overrule import state_of
from tests.contract.test_cli_take import ADOPT, CRITICALITY, MANAGED, a_file, everything, set_tag, tags_of, words
from tests.unit.cli.world import HOME, World, a_world

Meanwhile = Callable[[Callable[[], None]], None]


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        made.deploy(mode="enforce")
        made.connect_functions()
        yield made


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let something happen while a question stands; the answer is yes."""

    def arrange(happens: Callable[[], None]) -> None:
        monkeypatch.setattr("cli.terminal.ask", lambda question, *, yes: happens())

    return arrange


def test_a_machine_that_became_critical_meanwhile_keeps_that(
    world: World, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    mine = world.launch(managed=None, criticality=None)
    meanwhile(lambda: set_tag(mine, CRITICALITY, "critical"))
    file = a_file(tmp_path, (mine, HOME, MANAGED, "dev"), (mine, HOME, CRITICALITY, "standard"))
    result = world.governor("tag", "--plan", file, "--apply")
    assert result.exit_code == 1
    assert f"{CRITICALITY} of {mine} is critical now" in words(result.stderr)
    assert tags_of(mine) == {CRITICALITY: "critical"}


def test_a_machine_that_is_gone_meanwhile_is_not_counted(world: World, meanwhile: Meanwhile, tmp_path: Path) -> None:
    gone, there = world.launch(managed=None), world.launch(managed=None)
    meanwhile(lambda: boto3.client("ec2", HOME).terminate_instances(InstanceIds=[gone]))
    file = a_file(tmp_path, (gone, HOME, MANAGED, "dev"), (there, HOME, MANAGED, "dev"))
    result = world.governor("tag", "--plan", file, "--apply")
    assert result.exit_code == 0
    assert "1 tag set" in words(result.output)
    assert f"Not set, because they are gone or hold it by now: {gone}" in words(result.output)


@pytest.mark.parametrize("what", ["critical", "another member"])
def test_a_group_that_changed_meanwhile_is_not_taken_in(world: World, meanwhile: Meanwhile, what: str) -> None:
    members = world.launch_group()
    groups = boto3.client("autoscaling", HOME)

    def happens() -> None:
        if what == "critical":
            set_tag(members[0], CRITICALITY, "critical")
        else:
            groups.set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=len(members) + 1)

    meanwhile(happens)
    result = world.governor(*ADOPT)
    assert result.exit_code == 1
    assert (members[0] if what == "critical" else "changed while the question stood") in words(result.stderr)
    assert all(MANAGED not in tags_of(member) for member in members)


def test_a_group_whose_machines_were_stopped_meanwhile_is_not_given_back(world: World, meanwhile: Meanwhile) -> None:
    members = world.launch_group()
    world.answer(*ADOPT, "--yes")

    def happens() -> None:
        world.spend(960.0)
        for _ in range(2):
            world.guard()
            world.confirm()
            world.pass_minutes(5)

    meanwhile(happens)
    result = world.governor("unadopt", "workers")
    assert result.exit_code == 1
    assert "are stopped by the Governor" in words(result.stderr)
    assert all(MANAGED in tags_of(member) for member in members)


def test_only_what_was_shown_is_started(world: World, meanwhile: Meanwhile) -> None:
    shown = world.launch()
    world.spend(960.0)
    world.guard()
    world.confirm()
    more: list[str] = []

    def happens() -> None:
        more.extend(world.launch() for _ in range(2))
        for _ in range(4):
            world.pass_minutes(5)
            world.guard()
            world.confirm()
        assert {state_of(one) for one in more} == {"stopped"}

    meanwhile(happens)
    result = world.governor("restore", "--all", "--no-wait")
    assert result.exit_code == 0, result.output
    world.confirm()
    world.pass_minutes(1)
    world.confirm()
    assert [state_of(one) for one in (shown, *more)] == ["running", "stopped", "stopped"]


def lost(region: str, params: Mapping[str, Any]) -> Any:
    raise ReadTimeoutError(endpoint_url="https://lambda.us-east-1.amazonaws.com")


def failed(kind: str) -> Callable[[str, Mapping[str, Any]], Any]:
    body = json.dumps({"errorType": kind, "errorMessage": "the lease is held by another run"}).encode()
    return lambda region, params: {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": io.BytesIO(body)}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lost, "The answer was lost"),
        (failed("ConflictError"), "whether guard_budget of stage dev took the request is not known"),
        (failed("LeaseHeldError"), "Another run of guard_budget of stage dev is at work, so nothing was started"),
        (lambda region, params: {"StatusCode": 200, "Payload": io.BytesIO(b"{")}, "is not known"),
    ],
)
def test_an_answer_that_is_lost_is_not_taken_for_a_no_and_nothing_is_asked_twice(
    world: World, answer: Callable[[str, Mapping[str, Any]], Any], sentence: str
) -> None:
    mine = world.launch()
    world.spend(960.0)
    world.guard()
    world.confirm()
    world.answers["lambda.Invoke"] = answer
    before, calls = everything(world), len(world.calls)
    result = world.governor("restore", mine, "--yes")
    assert result.exit_code == 1
    assert sentence in words(result.stderr)
    assert [call for call in world.calls[calls:] if "Invoke" in call] == ["lambda.Invoke"]
    assert everything(world) == before


def test_the_client_of_the_guard_waits_longer_than_the_guard_may_take() -> None:
    from cli.account import patient_lambda

    config = patient_lambda("us-east-1").meta.config
    assert config.read_timeout >= 330
    assert config.retries["total_max_attempts"] == 1
