"""Deploying again and taking the stacks away: what operators decided stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local.client import LocalAws, local_aws
from local.deploy import CdkApp, bootstrap, deploy, destroy, stack_outputs
from tests.integration.conftest import ROOT, STAGE, TREE

APP = CdkApp(ROOT, context={"stage": STAGE})


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
    destroy(aws, APP, on_line=print)
    assert tree(aws) == edited
    stacks = aws.client("cloudformation").list_stacks(StackStatusFilter=["CREATE_COMPLETE", "UPDATE_COMPLETE"])
    assert [s["StackName"] for s in stacks["StackSummaries"] if s["StackName"].startswith("Governor-")] == []

    deploy(aws, APP, on_line=print)
    assert tree(aws) == edited, "a new deploy takes up what operators decided"
