"""Other Regions, another partition, and the relay of events."""

from __future__ import annotations

import json
import re
from pathlib import Path

import boto3
import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_budgets as budgets

from stacks.config import HOME_REGIONS, partition_of, read_context
from tests.infrastructure.conftest import ELSEWHERE, Synthesis
from tests.infrastructure.templates import ACCOUNT, StageTemplates

STAGES = ("dev", "prod", "local", *ELSEWHERE)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_three_stacks_and_one_relay_for_each_further_region(synthesis: Synthesis, stage: str) -> None:
    relays = {f"Relay-{region}" for region in synthesis.stages[stage].further_regions}
    assert synthesis.templates[stage].stacks == {"State", "Control", "Watch"} | relays


@pytest.mark.parametrize("stage", STAGES)
def test_every_arn_is_of_the_partition_of_the_stage(synthesis: Synthesis, stage: str) -> None:
    partitions = {
        partition
        for text in synthesis.templates[stage].raw.values()
        for partition in re.findall(r"arn:(aws[a-z-]*|\$\{[^}]*\}|[^:\"]*):", text)
    }
    assert partitions == {synthesis.stages[stage].partition}


@pytest.mark.parametrize("stage", STAGES)
def test_arns_name_no_region_but_those_of_the_stage(synthesis: Synthesis, stage: str) -> None:
    regions = {
        region
        for text in synthesis.templates[stage].raw.values()
        for region in re.findall(r"arn:aws[a-z-]*:[a-z0-9]+:([a-z0-9-]+):", text)
    }
    assert regions == set(synthesis.stages[stage].regions)


@pytest.mark.parametrize("stage", ["china", "dev"])
def test_service_principals_are_the_same_in_china(synthesis: Synthesis, stage: str) -> None:
    principals = {
        principal
        for text in synthesis.templates[stage].raw.values()
        for principal in re.findall(r'"Service": "([^"]+)"', text)
    }
    assert principals == {
        "budgets.amazonaws.com",
        "cloudwatch.amazonaws.com",
        "events.amazonaws.com",
        "lambda.amazonaws.com",
        "scheduler.amazonaws.com",
        "sns.amazonaws.com",
    }


@pytest.mark.parametrize("stage", ["prod", "china", "tokyo"])
def test_a_relay_brings_instance_events_to_the_default_bus_of_the_home_region(synthesis: Synthesis, stage: str) -> None:
    config = synthesis.stages[stage]
    templates = synthesis.templates[stage]
    home_bus = f"arn:{config.partition}:events:{config.home_region}:{ACCOUNT}:event-bus/default"
    for region in config.further_regions:
        rule = templates.one("AWS::Events::Rule", f"Relay-{region}")
        assert rule.properties["EventPattern"] == {
            "source": ["aws.ec2"],
            "detail-type": ["EC2 Instance State-change Notification"],
        }
        assert "EventBusName" not in rule.properties
        (target,) = rule.properties["Targets"]
        assert target["Arn"] == home_bus
        role = templates.at(target["RoleArn"])
        (policy,) = role.properties["Policies"]
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert (statement["Action"], statement["Resource"]) == ("events:PutEvents", home_bus)


def test_home_regions_are_exactly_those_where_cloudformation_makes_budgets(tmp_path: Path) -> None:
    app = App(context=read_context(), outdir=str(tmp_path))
    session = boto3.session.Session()
    regions = {one for partition in ("aws", "aws-cn") for one in session.get_available_regions("ec2", partition)}
    for region in regions:
        stack = Stack(app, region, env=Environment(region=region))
        budgets.CfnBudget(stack, "Budget", budget={"budgetType": "COST", "timeUnit": "MONTHLY"})
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    reports = json.loads((tmp_path / "validation-report.json").read_text())["pluginReports"]
    refused = {
        construct["constructPath"].partition("/")[0]
        for report in reports
        for violation in report["violations"]
        for construct in violation["violatingConstructs"]
    }
    assert regions - refused == set(HOME_REGIONS)


def test_a_relay_refers_to_no_other_stack_so_that_regions_deploy_apart(prod: StageTemplates) -> None:
    for reference in ("Fn::ImportValue", "Fn::GetStackOutput"):
        assert reference not in prod.raw["Relay-us-west-2"]


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("us-east-1", "aws"),
        ("ap-southeast-5", "aws"),
        ("mx-central-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("cn-northwest-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("us-iso-east-1", "aws-iso"),
        ("us-isob-east-1", "aws-iso-b"),
    ],
)
def test_the_partition_follows_from_the_region(region: str, partition: str) -> None:
    assert partition_of(region) == partition
