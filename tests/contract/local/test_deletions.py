"""A stack whose custom resource refuses its delete: failed at once, with the reason, and still whole enough to ask."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from local.client import LocalAws
from local.deploy import CdkApp, DeployError, bootstrap, deploy, destroy, stack_outputs

APP = CdkApp(Path(__file__).parent / "held_app")
SENTENCE = "Instances are still stopped: run `governor retire --apply` first."


def statuses(aws: LocalAws) -> dict[str, str]:
    """Status by the beginning of the logical id; the stack's own under an empty name."""
    cloudformation = aws.client("cloudformation")
    [stack] = cloudformation.describe_stacks(StackName="Held")["Stacks"]
    resources = cloudformation.describe_stack_resources(StackName="Held")["StackResources"]
    return {"": stack["StackStatus"], **{one["ResourceType"]: one["ResourceStatus"] for one in resources}}


def test_refused_delete_shows_its_reason_in_the_cli_and_can_be_repeated(fresh: LocalAws) -> None:
    lines: list[str] = []
    bootstrap(fresh, lines.append)
    deploy(fresh, APP, lines.append)
    parameter = stack_outputs(fresh, "Held")["Parameter"]
    for _ in range(2):  # what the resource depends on is still there for the second attempt
        lines.clear()
        began = time.monotonic()
        with pytest.raises(DeployError):
            destroy(fresh, APP, lines.append)
        assert time.monotonic() - began < 60
        assert any("DELETE_FAILED" in line for line in lines)
        assert SENTENCE in " ".join(" ".join(lines).split())
        found = statuses(fresh)
        assert found[""] == "DELETE_FAILED"
        assert found["AWS::CloudFormation::CustomResource"] == "DELETE_FAILED"
        assert {"AWS::Lambda::Function", "AWS::IAM::Role", "AWS::SSM::Parameter"} <= set(found)
        assert "AWS::SNS::Topic" not in found
        assert fresh.client("ssm").get_parameter(Name=parameter)["Parameter"]["Value"] == "no"
    fresh.client("ssm").put_parameter(Name=parameter, Value="yes", Overwrite=True)
    destroy(fresh, APP, lines.append)
    names = [one["StackName"] for one in fresh.client("cloudformation").describe_stacks()["Stacks"]]
    assert names == ["CDKToolkit"]
