"""Spot requests: their kinds and states, what may be stopped, and what an uncancelled persistent one does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.client import LocalAws
from local.faults import capacity_shortage
from tests.contract.local.conftest import Probe
from tests.contract.local.test_ec2 import IMAGE, launch, refusal, states


def spot(aws: LocalAws, kind: str, **more: Any) -> str:
    market = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": kind}}
    return launch(aws, InstanceMarketOptions=market, **more)


def described(aws: LocalAws, instance_id: str) -> dict[str, Any]:
    answer = aws.client("ec2").describe_instances(InstanceIds=[instance_id])
    found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
    return found


def request_of(aws: LocalAws, instance_id: str) -> dict[str, Any]:
    """The request that an instance names, read by that id."""
    request_id = described(aws, instance_id)["SpotInstanceRequestId"]
    answer = aws.client("ec2").describe_spot_instance_requests(SpotInstanceRequestIds=[request_id])
    [found] = answer["SpotInstanceRequests"]
    return dict(found)


@pytest.mark.parametrize("kind", ["one-time", "persistent"])
def test_instance_and_request_name_each_other(probe: Probe, kind: str) -> None:
    instance_id = spot(probe.aws, kind)
    assert described(probe.aws, instance_id)["InstanceLifecycle"] == "spot"
    request = request_of(probe.aws, instance_id)
    assert (request["Type"], request["State"], request["InstanceId"]) == (kind, "active", instance_id)
    assert request["Status"]["Code"] == "fulfilled"
    filters = [{"Name": "instance-id", "Values": [instance_id]}, {"Name": "type", "Values": [kind]}]
    [found] = probe.aws.client("ec2").describe_spot_instance_requests(Filters=filters)["SpotInstanceRequests"]
    assert found["SpotInstanceRequestId"] == request["SpotInstanceRequestId"]


def test_plain_instance_has_no_request(probe: Probe) -> None:
    instance = described(probe.aws, launch(probe.aws))
    assert "InstanceLifecycle" not in instance
    assert "SpotInstanceRequestId" not in instance


def test_request_spot_instances_links_its_instance(probe: Probe) -> None:
    answer = probe.aws.client("ec2").request_spot_instances(
        Type="persistent", LaunchSpecification={"ImageId": IMAGE, "InstanceType": "g4dn.xlarge"}
    )
    [request] = answer["SpotInstanceRequests"]
    assert described(probe.aws, request["InstanceId"])["SpotInstanceRequestId"] == request["SpotInstanceRequestId"]


def test_persistent_stops_and_starts_and_its_request_follows(probe: Probe) -> None:
    ec2 = probe.aws.client("ec2")
    instance_id = spot(probe.aws, "persistent")
    ec2.stop_instances(InstanceIds=[instance_id])
    assert states(probe.aws)[instance_id] == "stopped"
    assert request_of(probe.aws, instance_id)["State"] == "disabled"
    ec2.stop_instances(InstanceIds=[instance_id])  # again: no error
    ec2.start_instances(InstanceIds=[instance_id])
    assert states(probe.aws)[instance_id] == "running"
    assert request_of(probe.aws, instance_id)["State"] == "active"


def test_one_time_cannot_be_stopped_nor_persistent_once_cancelled(probe: Probe) -> None:
    aws = probe.aws
    one_time, persistent = spot(aws, "one-time"), spot(aws, "persistent")
    assert refusal(aws, [one_time]) == "UnsupportedOperation"
    request_id = described(aws, persistent)["SpotInstanceRequestId"]
    aws.client("ec2").cancel_spot_instance_requests(SpotInstanceRequestIds=[request_id])
    assert refusal(aws, [persistent]) == "IncorrectSpotRequestState"
    assert {states(aws)[one_time], states(aws)[persistent]} == {"running"}


def test_stopped_instance_of_a_cancelled_request_cannot_be_started(probe: Probe) -> None:
    ec2 = probe.aws.client("ec2")
    instance_id = spot(probe.aws, "persistent")
    ec2.stop_instances(InstanceIds=[instance_id])
    ec2.cancel_spot_instance_requests(
        SpotInstanceRequestIds=[described(probe.aws, instance_id)["SpotInstanceRequestId"]]
    )
    with pytest.raises(ClientError, match="IncorrectSpotRequestState"):
        ec2.start_instances(InstanceIds=[instance_id])


def test_cancelled_request_stays_visible_and_terminating_launches_nothing(probe: Probe) -> None:
    ec2 = probe.aws.client("ec2")
    instance_id = spot(probe.aws, "persistent")
    request_id = described(probe.aws, instance_id)["SpotInstanceRequestId"]
    ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request_id])
    ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request_id])  # again: no error
    before = set(states(probe.aws))
    ec2.terminate_instances(InstanceIds=[instance_id])
    probe.aws.advance(timedelta(minutes=1))
    assert set(states(probe.aws)) == before
    assert request_of(probe.aws, instance_id)["State"] == "cancelled"


def test_terminating_an_uncancelled_persistent_one_launches_another(probe: Probe) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "render"}]}]
    instance_id = spot(probe.aws, "persistent", TagSpecifications=tags)
    request = request_of(probe.aws, instance_id)
    mark = probe.mark()
    probe.aws.client("ec2").terminate_instances(InstanceIds=[instance_id])
    again = request_of(probe.aws, instance_id)
    assert again["SpotInstanceRequestId"] == request["SpotInstanceRequestId"]
    assert again["State"] == "active"
    assert again["InstanceId"] != instance_id
    successor = described(probe.aws, again["InstanceId"])
    assert (successor["State"]["Name"], successor["InstanceType"]) == ("running", "g4dn.xlarge")
    assert {"Key": "team", "Value": "render"} in successor["Tags"]
    assert successor["SpotInstanceRequestId"] == request["SpotInstanceRequestId"]
    probe.aws.settle()
    assert [one.payload["detail"]["instance-id"] for one in probe.since(mark, "rule")] == [instance_id]


def test_reopened_request_waits_for_capacity(probe: Probe) -> None:
    instance_id = spot(probe.aws, "persistent")
    probe.aws.set_faults(capacity_shortage(count=2))
    probe.aws.client("ec2").terminate_instances(InstanceIds=[instance_id])
    assert request_of(probe.aws, instance_id)["State"] == "open"
    probe.aws.advance(timedelta(minutes=1))
    assert request_of(probe.aws, instance_id)["State"] == "open"
    probe.aws.advance(timedelta(minutes=1))
    assert request_of(probe.aws, instance_id)["State"] == "active"


def test_one_time_request_closes_with_its_instance(probe: Probe) -> None:
    instance_id = spot(probe.aws, "one-time")
    before = set(states(probe.aws))
    probe.aws.client("ec2").terminate_instances(InstanceIds=[instance_id])
    assert request_of(probe.aws, instance_id)["State"] == "closed"
    assert set(states(probe.aws)) == before


def test_unknown_request_fails_the_whole_cancel(probe: Probe) -> None:
    known = described(probe.aws, spot(probe.aws, "persistent"))["SpotInstanceRequestId"]
    with pytest.raises(ClientError, match=r"InvalidSpotInstanceRequestID\.NotFound"):
        probe.aws.client("ec2").cancel_spot_instance_requests(SpotInstanceRequestIds=[known, "sir-0000gone"])
    [request] = probe.aws.client("ec2").describe_spot_instance_requests(SpotInstanceRequestIds=[known])[
        "SpotInstanceRequests"
    ]
    assert request["State"] == "active"


def test_capacity_block_is_no_spot(probe: Probe) -> None:
    instance_id = launch(probe.aws, InstanceMarketOptions={"MarketType": "capacity-block"})
    instance = described(probe.aws, instance_id)
    assert instance["InstanceLifecycle"] == "capacity-block"
    assert "SpotInstanceRequestId" not in instance
