"""An account for the CLI: moto, with a stage deployed in it, and answers of AWS that a test can replace."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
import time_machine
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto import mock_aws
from typer.testing import CliRunner, Result

from cli.main import app
from governor.aws.budgets import AwsBudgets
from governor.aws.catalogue import load_catalogue
from governor.aws.clients import client
from governor.aws.ec2_actions import Ec2Actions
from governor.aws.ec2_fleet import Ec2Fleet
from governor.aws.parameter_store import ControlParameters, ParameterTree
from governor.aws.run_command import RunCommand
from governor.aws.state_table import DynamoDbStateTable
from governor.domain.settings import SETTINGS
from governor.domain.settings_review import Place
from governor.domain.tags import TagKeys
from governor.shell import confirm_actions
from governor.shell.budget_guard import GuardDeps, RunReport, run
from governor.shell.confirm_actions import ConfirmDeps, ConfirmReport
from governor.shell.events import Trigger, read_trigger
from governor.shell.settings import CheckDeps, check_tree
from local import wildcards

HOME = "us-east-1"
FURTHER = "eu-west-1"
REGIONS = (FURTHER, HOME)
ACCOUNT = "123456789012"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TABLE = "governor-state"
BUDGET = "governor-budget"
IMAGE = "ami-12c6146b"
KEYS = {"managed": "governor:managed", "criticality": "governor:criticality"}

Answer = Callable[[str, Mapping[str, Any]], Any]


def refusal(code: str, operation: str, message: str = "") -> ClientError:
    """An error as AWS answers it."""
    return ClientError({"Error": {"Code": code, "Message": message or f"{code}!"}}, operation)


@dataclass
class World:
    """The account. `answers` replaces calls by `<service>.<Operation>`; `calls` lists all that were made."""

    answers: dict[str, Answer] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)
    clock: Any = None

    def governor(self, *arguments: str, typed: str | None = None) -> Result:
        """Run the command."""
        return CliRunner().invoke(app, list(arguments), input=typed, prog_name="governor")

    def answer(self, *arguments: str, exit_code: int = 0) -> Any:
        """Run the command with --json; its answer."""
        result = self.governor(*arguments, "--json")
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

    def refuse(self, call: str, code: str, message: str = "", region: str | None = None) -> None:
        """Let a call fail, in one Region or in all."""
        operation = call.partition(".")[2]

        def fail(where: str, params: Mapping[str, Any]) -> Any:
            if region in (None, where):
                raise refusal(code, operation, message)
            return NotImplemented

        self.answers[call] = fail

    def launch(
        self,
        instance_type: str = "g4dn.xlarge",
        criticality: str | None = "standard",
        managed: str | None = "dev",
        region: str = HOME,
        **tags: str,
    ) -> str:
        """Launch one instance; its id."""
        wanted = dict(tags)
        if managed is not None:
            wanted[KEYS["managed"]] = managed
        if criticality is not None:
            wanted[KEYS["criticality"]] = criticality
        ec2 = boto3.client("ec2", region)
        specification = [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in wanted.items()]}]
        answer = ec2.run_instances(
            ImageId=IMAGE,
            InstanceType=instance_type,
            MinCount=1,
            MaxCount=1,
            **({"TagSpecifications": specification} if wanted else {}),
        )
        return str(answer["Instances"][0]["InstanceId"])

    def launch_group(
        self, name: str = "workers", size: int = 2, *, region: str = HOME, tags: Mapping[str, tuple[str, bool]] = {}
    ) -> list[str]:
        """An Auto Scaling group of GPU instances with room for one more; `tags` say whether each goes on. Its members.

        The tags that go on are set on the members, as AWS does at launch.
        """
        template = {"ImageId": IMAGE, "InstanceType": "g4dn.xlarge"}
        boto3.client("ec2", region).create_launch_template(LaunchTemplateName=name, LaunchTemplateData=template)
        boto3.client("autoscaling", region).create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchTemplate={"LaunchTemplateName": name, "Version": "$Latest"},
            MinSize=size,
            DesiredCapacity=size,
            MaxSize=size + 1,
            AvailabilityZones=[f"{region}a"],
            Tags=[{"Key": k, "Value": v, "PropagateAtLaunch": goes_on} for k, (v, goes_on) in tags.items()],
        )
        return self.members(name, region)

    def members(self, group: str = "workers", region: str = HOME) -> list[str]:
        """Ids of the members of a group, in order."""
        groups = boto3.client("autoscaling", region).describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        return sorted(one["InstanceId"] for one in groups["AutoScalingGroups"][0]["Instances"])

    def deploy(self, stage: str = "dev", *, settings: Mapping[str, str] | None = None, mode: str = "observe") -> None:
        """Make what the stacks of a stage make, as far as the CLI sees it."""
        sns = boto3.client("sns", HOME)
        for name in ("Page", "Warn", "Info", "Slack"):
            self.topics[name] = sns.create_topic(Name=f"{stage}-{name}")["TopicArn"]
        outputs = {"TableName": TABLE, "KeptOnDelete": "nothing"}
        outputs |= {f"{name}TopicArn": arn for name, arn in self.topics.items()}
        make_stack(f"Governor-{stage}-State", outputs)
        make_stack(
            f"Governor-{stage}-Control",
            {
                "BudgetName": BUDGET,
                "GuardBudgetFunctionName": "guard",
                "GuardBudgetRoleArn": f"arn:aws:iam::{ACCOUNT}:role/guard",
                "ConfirmActionsRoleArn": f"arn:aws:iam::{ACCOUNT}:role/confirm",
                "BudgetFamilies": "p4d,g4dn,g5,p5,g6",
                "Regions": ",".join((HOME, FURTHER)),
                "TagKeys": json.dumps(KEYS),
            },
        )
        make_table()
        self.seed(stage, settings=settings, mode=mode)
        self.spend(0.0)
        self.check(stage)

    def seed(self, stage: str = "dev", *, settings: Mapping[str, str] | None = None, mode: str = "observe") -> None:
        """Create the parameters of a stage."""
        values = {"budget/mode": mode, "budget/grace-minutes": "0", "budget/confirm-minutes": "0", **(settings or {})}
        tree = ParameterTree(boto3.client("ssm", HOME), stage)
        for spec in SETTINGS:
            tree.create(
                f"/governor/{stage}/{spec.name}",
                values.get(spec.name, spec.default),
                description=spec.description,
                allowed_pattern=spec.allowed_pattern,
            )
        tree.create(f"/governor/{stage}/control/pause", "off", description="the pause", allowed_pattern="^.*$")

    def spend(self, actual_usd: float, limit_usd: float = 1000.0) -> None:
        """What AWS Budgets says from now on."""

        def describe(region: str, params: Mapping[str, Any]) -> Any:
            def money(amount: float) -> dict[str, str]:
                return {"Amount": f"{amount}", "Unit": "USD"}

            spend = {"ActualSpend": money(actual_usd)}
            return {"Budget": {"BudgetName": BUDGET, "BudgetLimit": money(limit_usd), "CalculatedSpend": spend}}

        self.answers["budgets.DescribeBudget"] = describe

    def store(self) -> DynamoDbStateTable:
        """The state table."""
        return DynamoDbStateTable(boto3.client("dynamodb", HOME), TABLE)

    def check(self, stage: str = "dev") -> None:
        """One run of check_settings."""
        parameters = ParameterTree(boto3.client("ssm", HOME), stage)
        deps = CheckDeps(Place(stage, HOME), self.store(), parameters, lambda: datetime.now(UTC))
        check_tree(deps, datetime.now(UTC))

    def guard(self, stage: str = "dev", trigger: Trigger | None = None) -> RunReport:
        """One run of guard_budget."""
        deps = GuardDeps(
            stage=stage,
            home_region=HOME,
            account_id=ACCOUNT,
            budget_name=BUDGET,
            store=self.store(),
            fleet=Ec2Fleet([HOME, FURTHER], _ec2, _auto_scaling, TagKeys(), stage),
            actions=Ec2Actions(_ec2, _auto_scaling),
            commands=RunCommand(lambda region: client("ssm", region)),
            budgets=AwsBudgets(client("budgets", HOME), ACCOUNT, BUDGET),
            controls=ControlParameters(client("ssm", HOME), stage),
            prices=load_catalogue(),
            clock=lambda: datetime.now(UTC),
        )
        return run(deps, trigger or Trigger("test", datetime.now(UTC)))

    def confirm(self, stage: str = "dev") -> ConfirmReport:
        """One run of confirm_actions."""
        deps = ConfirmDeps(
            stage=stage,
            home_region=HOME,
            budget_name=BUDGET,
            store=self.store(),
            fleet=Ec2Fleet([HOME, FURTHER], _ec2, _auto_scaling, TagKeys(), stage),
            actions=Ec2Actions(_ec2, _auto_scaling),
            controls=ControlParameters(client("ssm", HOME), stage),
            clock=lambda: datetime.now(UTC),
            sleep=lambda _: None,
        )
        return confirm_actions.run(deps, Trigger("test", datetime.now(UTC)))

    def connect_functions(self, stage: str = "dev") -> None:
        """Let an invocation of guard_budget run it, and confirm_actions after it, as the event bus does."""

        def invoke(region: str, params: Mapping[str, Any]) -> Any:
            event = json.loads(params["Payload"])
            report = self.guard(stage, read_trigger(event, lambda: datetime.now(UTC)))
            self.confirm(stage)
            self.confirm(stage)
            body = json.dumps(dataclasses.asdict(report)).encode()
            return {"StatusCode": 200, "Payload": io.BytesIO(body)}

        self.answers["lambda.Invoke"] = invoke

    def parameter(self, name: str, stage: str = "dev") -> str:
        """What a parameter holds."""
        answer = boto3.client("ssm", HOME).get_parameter(Name=f"/governor/{stage}/{name}")
        return str(answer["Parameter"]["Value"])

    def pass_minutes(self, minutes: float) -> None:
        """Let time pass."""
        self.clock.shift(timedelta(minutes=minutes))


def _ec2(region: str) -> Any:
    return client("ec2", region)


def _auto_scaling(region: str) -> Any:
    return client("autoscaling", region)


def make_stack(name: str, outputs: Mapping[str, str]) -> None:
    """A stack with outputs and next to nothing in it."""
    template = {
        "Resources": {"Nothing": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items()},
    }
    boto3.client("cloudformation", HOME).create_stack(StackName=name, TemplateBody=json.dumps(template))


def make_table() -> None:
    """The state table, as the State stack makes it."""
    dynamodb = boto3.client("dynamodb", HOME)
    if TABLE in dynamodb.list_tables()["TableNames"]:
        return
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
    )


@contextmanager
def a_world() -> Iterator[World]:
    """An empty account with two enabled Regions; the clock stands at `NOW` and goes on from there."""
    world = World()
    world.answers["ec2.DescribeRegions"] = lambda region, params: {
        "Regions": [{"RegionName": name} for name in REGIONS]
    }
    world.answers["ec2.DescribeCapacityReservations"] = lambda region, params: {"CapacityReservations": []}
    world.answers["ec2.DescribeReservedInstances"] = lambda region, params: {"ReservedInstances": []}
    world.answers["autoscaling.DescribeInstanceRefreshes"] = lambda region, params: {"InstanceRefreshes": []}
    original = BaseClient._make_api_call  # type: ignore[attr-defined]

    def call(self: Any, operation: str, params: Mapping[str, Any]) -> Any:
        name = f"{self.meta.service_model.service_name}.{operation}"
        world.calls.append(name)
        replaced = world.answers.get(name)
        answer = NotImplemented if replaced is None else replaced(self.meta.region_name, params)
        return original(self, operation, params) if answer is NotImplemented else answer

    os.environ |= {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": HOME,
        "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    }
    client.cache_clear()
    with mock_aws(), time_machine.travel(NOW, tick=True) as clock:
        world.clock = clock
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("moto.ec2.utils.instance_value_in_filter_values", wildcards.matches)
            patch.setattr(BaseClient, "_make_api_call", call)
            yield world
    client.cache_clear()
