"""One suite for Run Command: on the fake, and on SSM as the local AWS has it; what only SSM says on Stubber."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber

from governor.aws.run_command import RunCommand
from governor.ports import CommandOutcome, Commands
from local.client import LocalAws, local_aws
from local.commands import Outcome
from tests.fakes.commands import FakeCommands

REGION = "us-east-1"
DOCUMENT = "Save-Work"


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    """One local AWS for the module."""
    with local_aws(seed=7) as started:
        yield started


class World(Protocol):
    """The port, a machine, and how its commands end."""

    commands: Commands
    instance_id: str

    def end_with(self, status: str) -> None:
        """Let commands end with a status of SSM; `InProgress` for one that goes on."""
        ...

    def refuse(self) -> None:
        """Let the machine be unknown to SSM."""
        ...

    def sent(self) -> list[tuple[str, str, str]]:
        """(instance id, document, comment) of what was taken."""
        ...


class FakeWorld:
    """The fake."""

    def __init__(self, aws: LocalAws) -> None:
        self.fake = FakeCommands()
        self.commands: Commands = self.fake
        self.instance_id = "i-1"

    def end_with(self, status: str) -> None:
        word = {"Success": "success", "InProgress": "pending"}.get(status, "failed")
        self.fake.outcomes[self.instance_id] = CommandOutcome(word, status)

    def refuse(self) -> None:
        self.fake.refuse[self.instance_id] = "InvalidInstanceId: Instances not in a valid state for account"

    def sent(self) -> list[tuple[str, str, str]]:
        taken = [one for one in self.fake.sent if one[1] not in self.fake.refuse]
        return [(instance_id, document, comment) for _, instance_id, document, comment in taken]


class LocalWorld:
    """The adapter on the local AWS."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws = aws
        aws.remove_fleet()
        self.mark = len(aws.commands())
        self.commands: Commands = RunCommand(lambda region: aws.client("ssm", region=region))
        answer = aws.client("ec2").run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
        self.instance_id = str(answer["Instances"][0]["InstanceId"])

    def end_with(self, status: str) -> None:
        minutes = 60.0 if status == "InProgress" else 0.0
        self.aws.set_command_outcomes(Outcome("Success" if minutes else status, minutes=minutes))

    def refuse(self) -> None:
        self.aws.client("ec2").terminate_instances(InstanceIds=[self.instance_id])

    def sent(self) -> list[tuple[str, str, str]]:
        taken = self.aws.commands()[self.mark :]
        return [(one.instance_ids[0], one.document, one.comment) for one in taken]


@pytest.fixture(params=[FakeWorld, LocalWorld])
def world(request: pytest.FixtureRequest, aws: LocalAws) -> World:
    made: World = request.param(aws)
    return made


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("Success", "success"),
        ("Failed", "failed"),
        ("TimedOut", "failed"),
        ("Cancelled", "failed"),
        ("InProgress", "pending"),
    ],
)
def test_a_command_is_sent_to_one_machine_and_its_end_is_seen(world: World, status: str, expected: str) -> None:
    world.end_with(status)
    command_id, error = world.commands.send(REGION, world.instance_id, DOCUMENT, "before a stop")
    assert (bool(command_id), error) == (True, "")
    assert world.sent() == [(world.instance_id, DOCUMENT, "before a stop")]
    for _ in range(2):
        said = world.commands.outcome(REGION, world.instance_id, command_id)
        assert said.status == expected
        assert said.detail


def test_a_machine_that_ssm_does_not_know_is_an_error_and_raises_nothing(world: World) -> None:
    world.refuse()
    command_id, error = world.commands.send(REGION, world.instance_id, DOCUMENT, "")
    assert (command_id, error.partition(":")[0]) == ("", "InvalidInstanceId")
    assert world.sent() == []


def test_an_unknown_command_is_pending(world: World) -> None:
    said = world.commands.outcome(REGION, world.instance_id, "0a1b2c3d-0000-4000-8000-000000000001")
    assert said.status == "pending"


# --- What only SSM does -----------------------------------------------------------------------------------------------


def _client() -> Any:
    config = Config(retries={"total_max_attempts": 1})
    return boto3.client("ssm", REGION, aws_access_key_id="x", aws_secret_access_key="x", config=config)


def test_the_request_names_everything_and_cuts_the_comment_to_what_ssm_takes() -> None:
    client = _client()
    request = {"DocumentName": DOCUMENT, "InstanceIds": ["i-1"], "TimeoutSeconds": 60, "Comment": "x" * 100}
    with Stubber(client) as stub:
        stub.add_response("send_command", {"Command": {"CommandId": "0a1b2c3d-0000-4000-8000-000000000001"}}, request)
        command_id, error = RunCommand(lambda region: client).send(REGION, "i-1", DOCUMENT, "x" * 300)
        stub.assert_no_pending_responses()
    assert (command_id, error) == ("0a1b2c3d-0000-4000-8000-000000000001", "")


@pytest.mark.parametrize(
    ("answer", "status", "detail"),
    [
        ({"Status": "Pending"}, "pending", "Pending"),
        ({"Status": "Delayed", "StatusDetails": "Delayed"}, "pending", "Delayed"),
        ({"Status": "Cancelling"}, "pending", "Cancelling"),
        ({"Status": "Success", "StatusDetails": "Success", "ResponseCode": 0}, "success", "Success"),
        ({"Status": "Failed", "StatusDetails": "Failed", "ResponseCode": 3}, "failed", "Failed, exit code 3"),
        ({"Status": "TimedOut", "StatusDetails": "DeliveryTimedOut", "ResponseCode": -1}, "failed", "DeliveryTimedOut"),
        ({"Status": "Failed", "StatusDetails": "Undeliverable"}, "failed", "Undeliverable"),
        ({"Status": "SomethingNew"}, "failed", "SomethingNew"),
        ({}, "failed", ""),
    ],
)
def test_every_status_of_ssm_is_one_of_three(answer: dict[str, Any], status: str, detail: str) -> None:
    client = _client()
    with Stubber(client) as stub:
        stub.add_response("get_command_invocation", answer, {"CommandId": "c" * 36, "InstanceId": "i-1"})
        assert RunCommand(lambda region: client).outcome(REGION, "i-1", "c" * 36) == CommandOutcome(status, detail)


@pytest.mark.parametrize("code", ["InvocationDoesNotExist", "ThrottlingException", "AccessDeniedException"])
def test_an_outcome_that_cannot_be_read_is_pending(code: str) -> None:
    client = _client()
    with Stubber(client) as stub:
        stub.add_client_error("get_command_invocation", code, "no")
        said = RunCommand(lambda region: client).outcome(REGION, "i-1", "c" * 36)
    expected = "not known yet" if code == "InvocationDoesNotExist" else f"{code}: no"
    assert said == CommandOutcome("pending", expected)


def _cut_off(**_: object) -> None:
    raise EndpointConnectionError(endpoint_url="https://ssm")


def test_a_connection_that_fails_is_an_error_of_the_send_and_pending_afterwards() -> None:
    client = _client()
    client.meta.events.register("before-send.ssm", _cut_off)
    commands = RunCommand(lambda region: client)
    command_id, error = commands.send(REGION, "i-1", DOCUMENT, "")
    assert (command_id, error.partition(":")[0]) == ("", "EndpointConnectionError")
    assert commands.outcome(REGION, "i-1", "c" * 36).status == "pending"
