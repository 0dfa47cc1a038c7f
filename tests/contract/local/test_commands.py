"""SSM Run Command: who sent what, how it ends, and who may send it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.commands import Outcome
from tests.contract.local.conftest import Probe
from tests.contract.local.test_ec2 import launch
from tests.contract.local.test_roles import tagged, user_with

DOCUMENT = "Governor-SaveCheckpoint"


@pytest.fixture
def aws_with_outcomes(probe: Probe) -> Iterator[Probe]:
    yield probe
    probe.aws.set_command_outcomes()


def send(ssm: Any, *ids: str, document: str = DOCUMENT) -> str:
    return str(ssm.send_command(DocumentName=document, InstanceIds=list(ids), Comment="why")["Command"]["CommandId"])


def outcome(probe: Probe, command_id: str, instance_id: str) -> tuple[str, str, int]:
    found = probe.aws.client("ssm").get_command_invocation(CommandId=command_id, InstanceId=instance_id)
    return found["Status"], found["StatusDetails"], found["ResponseCode"]


def test_command_succeeds_at_once_and_is_kept(probe: Probe) -> None:
    instance_id = launch(probe.aws)
    before = len(probe.aws.commands())
    command_id = send(probe.aws.client("ssm"), instance_id)
    assert outcome(probe, command_id, instance_id) == ("Success", "Success", 0)
    [sent] = probe.aws.commands()[before:]
    assert (sent.command_id, sent.document, sent.instance_ids, sent.comment) == (
        command_id,
        DOCUMENT,
        (instance_id,),
        "why",
    )
    assert (sent.at, sent.function) == (probe.aws.now().isoformat(), "")


@pytest.mark.parametrize(
    ("status", "expected"),
    [("Failed", ("Failed", "Failed", 1)), ("TimedOut", ("TimedOut", "ExecutionTimedOut", -1))],
)
def test_command_ends_as_set_for_its_instance(
    aws_with_outcomes: Probe, status: str, expected: tuple[str, str, int]
) -> None:
    probe = aws_with_outcomes
    bad, good = launch(probe.aws), launch(probe.aws)
    probe.aws.set_command_outcomes(Outcome(status, instance=bad))
    command_id = send(probe.aws.client("ssm"), bad, good)
    assert outcome(probe, command_id, bad) == expected
    assert outcome(probe, command_id, good) == ("Success", "Success", 0)


def test_command_goes_on_for_its_minutes(aws_with_outcomes: Probe) -> None:
    probe = aws_with_outcomes
    instance_id = launch(probe.aws)
    probe.aws.set_command_outcomes(Outcome("Failed", document="Governor-*", minutes=4))
    command_id = send(probe.aws.client("ssm"), instance_id)
    probe.aws.set_command_outcomes()  # an outcome belongs to the command that was sent under it
    probe.aws.advance(timedelta(minutes=3))
    assert outcome(probe, command_id, instance_id)[0] == "InProgress"
    probe.aws.advance(timedelta(minutes=1))
    assert outcome(probe, command_id, instance_id)[0] == "Failed"


def test_command_to_what_does_not_run_is_refused(aws_with_outcomes: Probe) -> None:
    probe = aws_with_outcomes
    ssm, running, stopped = probe.aws.client("ssm"), launch(probe.aws), launch(probe.aws)
    probe.aws.client("ec2").stop_instances(InstanceIds=[stopped])
    before = probe.aws.commands()
    for ids in ([stopped], [running, stopped], ["i-0123456789abcdef0"]):
        with pytest.raises(ClientError, match="InvalidInstanceId"):
            send(ssm, *ids)
    probe.aws.set_command_outcomes(Outcome("InvalidInstanceId", instance=running))
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        send(ssm, running)
    probe.aws.set_command_outcomes(Outcome("InvalidDocument"))
    with pytest.raises(ClientError, match="InvalidDocument"):
        send(ssm, running)
    assert probe.aws.commands() == before


def test_unknown_invocation_is_an_error(probe: Probe) -> None:
    command_id = send(probe.aws.client("ssm"), launch(probe.aws))
    with pytest.raises(ClientError, match="InvocationDoesNotExist"):
        outcome(probe, command_id, "i-0123456789abcdef0")


def test_role_needs_the_document_and_the_tags_of_the_instance(probe: Probe) -> None:
    ours, foreign = tagged(probe, managed="test"), tagged(probe, managed="other")
    keys = user_with(
        probe,
        "commander",
        {"Action": "ssm:SendCommand", "Resource": f"arn:aws:ssm:us-east-1:123456789012:document/{DOCUMENT}"},
        {
            "Action": "ssm:SendCommand",
            "Resource": "arn:aws:ec2:*:123456789012:instance/*",
            "Condition": {"StringEquals": {"ssm:resourceTag/governor:managed": "test"}},
        },
    )
    probe.aws.enforce_roles(True)
    ssm = probe.aws.client("ssm", **keys)
    assert send(ssm, ours)
    for ids, document in (([foreign], DOCUMENT), ([ours, foreign], DOCUMENT), ([ours], "AWS-RunShellScript")):
        with pytest.raises(ClientError, match="AccessDenied"):
            send(ssm, *ids, document=document)
