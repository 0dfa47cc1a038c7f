"""Deploying again and taking the stacks away: what operators decided stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local.client import LocalAws, local_aws
from local.deploy import CdkApp, DeployError, bootstrap, deploy, destroy, stack_outputs
from tests.integration.conftest import ROOT, STAGE, TREE

APP = CdkApp(ROOT, context={"stage": STAGE})
FORCED = CdkApp(ROOT, context={"stage": STAGE, "force-destroy": "true"})


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    """A local AWS of its own, because its stacks are taken away."""
    with local_aws(seed=5) as started:
        bootstrap(started, on_line=print)
        deploy(started, APP, on_line=print)
        yield started


def tree(aws: LocalAws) -> dict[str, tuple[str, int]]:
    """Name below the stage -> value and version of each parameter."""
    pages = aws.client("ssm").get_paginator("get_parameters_by_path").paginate(Path=TREE, Recursive=True)
    found = [parameter for page in pages for parameter in page["Parameters"]]
    return {p["Name"].removeprefix(f"{TREE}/"): (p["Value"], p["Version"]) for p in found}


def stacks_of(aws: LocalAws) -> dict[str, str]:
    """Last part of the name -> status of each stack of the stage."""
    found = aws.client("cloudformation").describe_stacks()["Stacks"]
    prefix = f"Governor-{STAGE}-"
    return {s["StackName"].removeprefix(prefix): s["StackStatus"] for s in found if s["StackName"].startswith(prefix)}


def resources_of(aws: LocalAws, stack: str) -> set[str]:
    """Logical ids of what a stack of the stage still has."""
    pages = aws.client("cloudformation").list_stack_resources(StackName=f"Governor-{STAGE}-{stack}")
    return {one["LogicalResourceId"] for one in pages["StackResourceSummaries"] if "DELETE_COMPLETE" not in str(one)}


def test_a_redeploy_keeps_edits_and_taking_the_stacks_away_keeps_the_parameters_and_says_so(aws: LocalAws) -> None:
    seeded = tree(aws)
    assert {version for _, version in seeded.values()} == {1}
    ssm = aws.client("ssm")
    ssm.put_parameter(Name=f"{TREE}/budget/stop-percent", Value="91", Overwrite=True)
    ssm.put_parameter(Name=f"{TREE}/control/pause", Value="on because of a test", Overwrite=True)
    aws.settle()
    edited = tree(aws)
    deploy(aws, APP, on_line=print)
    assert tree(aws) == edited

    kept = stack_outputs(aws, f"Governor-{STAGE}-Control")["KeptOnDelete"]
    assert kept == TREE
    description = next(
        output["Description"]
        for output in aws.client("cloudformation").describe_stacks(StackName=f"Governor-{STAGE}-Control")["Stacks"][0][
            "Outputs"
        ]
        if output["OutputKey"] == "KeptOnDelete"
    )
    assert "stay when this stack is deleted" in description
    deployed = stacks_of(aws)
    assert set(deployed) == {"State", "Control", "Watch"}
    before = {stack: resources_of(aws, stack) for stack in ("State", "Control", "Watch")}
    lines: list[str] = []
    with pytest.raises(DeployError):
        destroy(aws, APP, on_line=lines.append)
    said = " ".join(" ".join(lines).split())
    assert f"Stage {STAGE} is not retired: machines may still be stopped and groups lowered by the Governor." in said
    assert stacks_of(aws) == {**deployed, "Watch": "DELETE_FAILED"}
    assert {stack: resources_of(aws, stack) for stack in before} == before, "a refusal leaves everything in place"

    table = stack_outputs(aws, f"Governor-{STAGE}-State")["TableName"]
    key = {"pk": {"S": "retired"}, "sk": {"S": "retired"}}
    aws.client("dynamodb").put_item(TableName=table, Item={**key, "v": {"N": "1"}, "body": {"S": "{}"}})
    destroy(aws, APP, on_line=print)
    assert tree(aws) == edited
    assert stacks_of(aws) == {}

    deploy(aws, FORCED, on_line=print)
    assert tree(aws) == edited, "a new deploy takes up what operators decided"
    destroy(aws, FORCED, on_line=print)
    assert stacks_of(aws) == {}
