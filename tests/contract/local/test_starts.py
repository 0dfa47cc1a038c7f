"""StartInstances: at once, slowly, refused, accepted and fallen back; keys of volumes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.client import LocalAws
from local.starts import boots_in, key_denied, no_capacity, no_capacity_later
from tests.contract.local.conftest import Probe
from tests.contract.local.test_ec2 import launch, states
from tests.contract.local.test_roles import user_with
from tests.contract.local.test_spot import described


@pytest.fixture
def stopped(probe: Probe) -> Iterator[str]:
    instance_id = launch(probe.aws)
    probe.aws.client("ec2").stop_instances(InstanceIds=[instance_id])
    probe.aws.settle()
    yield instance_id
    probe.aws.set_starts()


def start(aws: LocalAws, *ids: str) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = aws.client("ec2").start_instances(InstanceIds=list(ids))["StartingInstances"]
    return answer


def test_start_runs_at_once_and_says_what_it_was(probe: Probe, stopped: str) -> None:
    [answer] = start(probe.aws, stopped)
    assert (answer["PreviousState"]["Name"], answer["CurrentState"]["Name"]) == ("stopped", "pending")
    assert states(probe.aws)[stopped] == "running"
    [again] = start(probe.aws, stopped)
    assert again["PreviousState"]["Name"] == "running"


def test_shortage_fails_the_whole_call_at_once(probe: Probe, stopped: str) -> None:
    other = launch(probe.aws)
    probe.aws.client("ec2").stop_instances(InstanceIds=[other])
    probe.aws.set_starts(no_capacity(stopped, count=1))
    with pytest.raises(ClientError) as refused:
        start(probe.aws, other, stopped)
    assert refused.value.response["Error"]["Code"] == "InsufficientInstanceCapacity"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert {states(probe.aws)[one] for one in (other, stopped)} == {"stopped"}
    start(probe.aws, other, stopped)
    assert {states(probe.aws)[one] for one in (other, stopped)} == {"running"}


@pytest.mark.parametrize(
    ("fate", "reason"),
    [(no_capacity_later, "Server.InsufficientInstanceCapacity"), (key_denied, "Client.InternalError")],
)
def test_accepted_start_falls_back_to_stopped(probe: Probe, stopped: str, fate: Any, reason: str) -> None:
    before = described(probe.aws, stopped)["LaunchTime"]
    probe.aws.advance(timedelta(minutes=1))
    mark = probe.mark()
    probe.aws.set_starts(fate(stopped))
    start(probe.aws, stopped)
    instance = described(probe.aws, stopped)
    assert (instance["State"]["Name"], instance["StateReason"]["Code"]) == ("stopped", reason)
    assert instance["StateReason"]["Message"].startswith(f"{reason}: ")
    assert instance["LaunchTime"] > before
    probe.aws.settle()
    assert [one.payload["detail"]["state"] for one in probe.since(mark, "rule")] == ["stopped"]


def test_slow_start_is_pending_until_its_minute(probe: Probe, stopped: str) -> None:
    probe.aws.set_starts(boots_in(stopped, minutes=3))
    start(probe.aws, stopped)
    probe.aws.advance(timedelta(minutes=2))
    assert states(probe.aws)[stopped] == "pending"
    probe.aws.advance(timedelta(minutes=1))
    assert states(probe.aws)[stopped] == "running"
    assert not described(probe.aws, stopped)["StateReason"]["Code"]


def test_late_shortage_is_pending_first(probe: Probe, stopped: str) -> None:
    probe.aws.set_starts(no_capacity_later(stopped, after_minutes=2))
    start(probe.aws, stopped)
    assert states(probe.aws)[stopped] == "pending"
    probe.aws.advance(timedelta(minutes=2))
    assert states(probe.aws)[stopped] == "stopped"


def test_terminated_instance_cannot_be_started(probe: Probe) -> None:
    instance_id = launch(probe.aws)
    probe.aws.client("ec2").terminate_instances(InstanceIds=[instance_id])
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        start(probe.aws, instance_id)


def encrypted(probe: Probe) -> tuple[str, str]:
    """A stopped instance whose volume has a customer's key, and that key's ARN."""
    key_arn = probe.aws.client("kms").create_key()["KeyMetadata"]["Arn"]
    ebs = {"VolumeSize": 8, "Encrypted": True, "KmsKeyId": key_arn}
    instance_id = launch(probe.aws, BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": ebs}])
    probe.aws.client("ec2").stop_instances(InstanceIds=[instance_id])
    return instance_id, key_arn


def test_key_of_a_volume_can_be_read(probe: Probe) -> None:
    instance_id, key_arn = encrypted(probe)
    filters = [{"Name": "attachment.instance-id", "Values": [instance_id]}]
    [volume] = probe.aws.client("ec2").describe_volumes(Filters=filters)["Volumes"]
    assert (volume["Encrypted"], volume["KmsKeyId"]) == (True, key_arn)


@pytest.mark.parametrize("may_grant", [True, False])
def test_start_needs_a_grant_on_the_key_by_its_caller(probe: Probe, may_grant: bool) -> None:
    instance_id, key_arn = encrypted(probe)
    grant = {
        "Action": "kms:CreateGrant",
        "Resource": key_arn if may_grant else key_arn.replace("key/", "key/0"),
        "Condition": {
            "Bool": {"kms:GrantIsForAWSResource": "true"},
            "StringEquals": {"kms:ViaService": "ec2.us-east-1.amazonaws.com"},
        },
    }
    may_start = {"Action": "ec2:StartInstances", "Resource": "*"}
    keys = user_with(probe, f"starter-{json.dumps(may_grant)}", may_start, grant)
    probe.aws.enforce_roles(True)
    probe.aws.client("ec2", **keys).start_instances(InstanceIds=[instance_id])
    instance = described(probe.aws, instance_id)
    assert instance["State"]["Name"] == ("running" if may_grant else "stopped")
    assert instance["StateReason"]["Code"] == ("" if may_grant else "Client.InternalError")
