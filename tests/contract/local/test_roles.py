"""Deployed roles are enforced, and tag conditions are evaluated against the instances."""

from __future__ import annotations

import json

import pytest

from tests.contract.local.conftest import Probe
from tests.contract.local.test_ec2 import launch, states


def tagged(probe: Probe, **tags: str) -> str:
    """An instance with `governor:<name>` tags."""
    listed = [{"Key": f"governor:{name}", "Value": value} for name, value in tags.items()]
    specification = [{"ResourceType": "instance", "Tags": listed}] if listed else []
    return launch(probe.aws, TagSpecifications=specification)


def stop_by_function(probe: Probe, *ids: str) -> str:
    """The error message of the function's attempt, or an empty text."""
    event = json.dumps({"wish": "stop", "instances": list(ids)})
    answer = probe.aws.client("lambda").invoke(FunctionName=probe.function, Payload=event)
    body = json.loads(answer["Payload"].read())
    return str(body.get("errorMessage", ""))


def test_without_enforcement_the_function_may_do_anything(probe: Probe) -> None:
    critical = tagged(probe, managed="test", criticality="critical")
    assert stop_by_function(probe, critical) == ""
    assert states(probe.aws)[critical] == "stopped"


@pytest.mark.parametrize("criticality", ["standard", "preemptible"])
def test_role_may_stop_what_is_managed_and_not_critical(probe: Probe, criticality: str) -> None:
    instance_id = tagged(probe, managed="test", criticality=criticality)
    probe.aws.enforce_roles(True)
    assert stop_by_function(probe, instance_id) == ""
    assert states(probe.aws)[instance_id] == "stopped"


@pytest.mark.parametrize(
    "tags",
    [
        {"managed": "test", "criticality": "critical"},
        {"managed": "test", "criticality": "Standard"},
        {"managed": "test"},
        {"managed": "another", "criticality": "standard"},
        {"criticality": "standard"},
        {},
    ],
)
def test_role_cannot_stop_critical_foreign_or_untagged_instances(probe: Probe, tags: dict[str, str]) -> None:
    instance_id = tagged(probe, **tags)
    probe.aws.enforce_roles(True)
    assert "UnauthorizedOperation" in stop_by_function(probe, instance_id)
    assert states(probe.aws)[instance_id] == "running"


def test_one_critical_instance_blocks_the_whole_call(probe: Probe) -> None:
    allowed = tagged(probe, managed="test", criticality="standard")
    critical = tagged(probe, managed="test", criticality="critical")
    probe.aws.enforce_roles(True)
    assert "explicit deny" in stop_by_function(probe, allowed, critical)
    assert states(probe.aws)[allowed] == "running"


def test_call_that_the_role_does_not_have_is_denied(probe: Probe) -> None:
    probe.aws.enforce_roles(True)
    event = json.dumps({"wish": "write", "key": "a", "count": 1})
    client = probe.aws.client("lambda")
    assert "FunctionError" not in client.invoke(FunctionName=probe.function, Payload=event)
    answer = client.invoke(FunctionName=probe.function, Payload=json.dumps({"wish": "read"}))
    assert "AccessDeniedException" in json.loads(answer["Payload"].read())["errorMessage"]


def test_enforcement_works_with_the_clock_years_ahead_of_the_machine(probe: Probe) -> None:
    instance_id = tagged(probe, managed="test", criticality="standard")
    probe.aws.enforce_roles(True)
    before = probe.aws.now()
    probe.aws.set_clock(before.replace(year=before.year + 3, day=1))
    try:
        assert stop_by_function(probe, instance_id) == ""
    finally:
        probe.aws.set_clock(before)
