"""guard_budget is cut off after the effect of every AWS call that changes something, and the same event comes again.

Rule 10: at-least-once is assumed. The end state and the messages equal the run without a crash. The fleet holds one
machine for every way of stopping; two plans take the members of a group out in both ways that there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from governor.aws.budgets import AwsBudgets
from governor.aws.catalogue import load_catalogue
from governor.aws.ec2_actions import Ec2Actions
from governor.aws.ec2_fleet import Ec2Fleet
from governor.aws.parameter_store import ControlParameters
from governor.aws.run_command import RunCommand
from governor.aws.state_table import DynamoDbStateTable
from governor.domain.settings import BudgetSettings, GroupAction, Settings, Switch, as_texts
from governor.domain.tags import TagKeys
from governor.ports import Key, Record
from governor.shell.budget_guard import GuardDeps
from lambdas.guard_budget.handler import handler
from local.client import LocalAws, local_aws
from stacks.permissions import handler_actions
from tests.builders import STAGE, some_settings, tags_of
from tests.contract.crashing import Calls, Crash, crash_points

REGION = "us-east-1"
TABLE = "state"
GROUP = "workers"
IMAGE = "ami-12c6146b"
DOCUMENT = "Save-Work"
FIRST = datetime(2027, 1, 20, 12, tzinfo=UTC)

PLANS = {
    "standby": some_settings(grace_minutes=10, wave_percent=100, terminate_one_time_spot=Switch.ON),
    "lower": some_settings(grace_minutes=10, wave_percent=100, group_action=GroupAction.LOWER),
}


def answer_budget(request: Any, **_: Any) -> AWSResponse:
    """A DescribeBudget that reports 960 of 1000 USD, whatever the machines cost."""
    spend = {"ActualSpend": {"Amount": "960.00", "Unit": "USD"}}
    limit = {"Amount": "1000", "Unit": "USD"}
    body = json.dumps({"Budget": {"BudgetName": "gpu", "BudgetLimit": limit, "CalculatedSpend": spend}}).encode()

    class Raw:
        def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
            yield body

    return AWSResponse(request.url, 200, HTTPHeaders(), Raw())


@dataclass(frozen=True, slots=True)
class Life:
    """How one life of the guard ended: machines by name, records without ids, and the calls of its first two runs."""

    machines: dict[str, Any]
    records: list[tuple[str, str]]
    made: list[str]


class Stage:
    """A local AWS with watched clients and an empty table; `live` gives each life the same beginning."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws = aws
        self.calls = Calls()
        aws.client("dynamodb").create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        name = f"/governor/{STAGE}/control/pause"
        aws.client("ssm").put_parameter(Name=name, Value="off", Type="String")
        budgets = self._watched("budgets")
        budgets.meta.events.register_first("before-send.budgets.DescribeBudget", answer_budget)
        ec2, groups, ssm = (self._watched(name) for name in ("ec2", "autoscaling", "ssm"))
        self.deps = GuardDeps(
            stage=STAGE,
            home_region=REGION,
            account_id="123456789012",
            budget_name="gpu",
            store=DynamoDbStateTable(self._watched("dynamodb"), TABLE),
            fleet=Ec2Fleet([REGION], lambda region: ec2, lambda region: groups, TagKeys(), STAGE),
            actions=Ec2Actions(lambda region: ec2, lambda region: groups),
            commands=RunCommand(lambda region: ssm),
            budgets=AwsBudgets(budgets, "123456789012", "gpu"),
            controls=ControlParameters(ssm, STAGE),
            prices=load_catalogue(),
            clock=lambda: FIRST,
            checkpoint_documents=frozenset({DOCUMENT}),
            sleep=lambda seconds: None,
        )

    def _watched(self, service: str) -> Any:
        """A client of the function's own, apart from the test's."""
        client = self.aws.client(service, retries=1)
        client.meta.events.register("before-call", lambda **event: self.calls.before(**event))
        return client

    def _begin(self, budget: BudgetSettings) -> dict[str, str]:
        """An empty table but for the settings, and the fleet; id -> name of each machine."""
        self.aws.remove_fleet()
        self.aws.set_clock(FIRST - timedelta(days=1))
        table = self.aws.client("dynamodb")
        for item in table.scan(TableName=TABLE)["Items"]:
            table.delete_item(TableName=TABLE, Key={key: item[key] for key in ("pk", "sk")})
        values = as_texts(Settings(budget=budget))
        body = {"version": 1, "read_at": "2027-01-20T00:00:00+00:00", "schema": "", "values": values, "edits": {}}
        DynamoDbStateTable(table, TABLE).put_all([Record(Key("settings", "current"), body)])
        names = {self._launch(name, tags_of(name)): name for name in ("standard", "preemptible", "critical")}
        names[self._launch("saved", tags_of(**{"governor:checkpoint": DOCUMENT}))] = "saved"
        for kind in ("persistent", "one-time"):
            market = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": kind}}
            names[self._launch(kind, tags_of(), InstanceMarketOptions=market)] = kind
        return names | self._launch_group()

    def _launch(self, name: str, tags: Mapping[str, str], **more: Any) -> str:
        answer = self.aws.client("ec2").run_instances(
            ImageId=IMAGE,
            InstanceType="g4dn.xlarge",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": _pairs({**tags, "Name": name})}],
            **more,
        )
        return str(answer["Instances"][0]["InstanceId"])

    def _launch_group(self) -> dict[str, str]:
        """Two members of a group that may not be smaller."""
        ec2, auto_scaling = self.aws.client("ec2"), self.aws.client("autoscaling")
        template = {"ImageId": IMAGE, "InstanceType": "g4dn.xlarge"}
        ec2.create_launch_template(LaunchTemplateName=GROUP, LaunchTemplateData=template)
        auto_scaling.create_auto_scaling_group(
            AutoScalingGroupName=GROUP,
            LaunchTemplate={"LaunchTemplateName": GROUP, "Version": "$Latest"},
            MinSize=2,
            DesiredCapacity=2,
            MaxSize=3,
            AvailabilityZones=[f"{REGION}a"],
            Tags=[{**pair, "PropagateAtLaunch": True} for pair in _pairs(tags_of())],
        )
        (group,) = auto_scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
        ids = sorted(member["InstanceId"] for member in group["Instances"])
        for number, instance_id in enumerate(ids, start=1):
            ec2.create_tags(Resources=[instance_id], Tags=_pairs({"Name": f"member-{number}"}))
        return {instance_id: f"member-{number}" for number, instance_id in enumerate(ids, start=1)}

    def live(self, plan: str, die_at: int | None = None) -> Life:
        """Grace and stop, each delivered until it is through, then two quiet ticks."""
        self.calls = Calls()
        names = self._begin(PLANS[plan])
        self.calls = Calls(die_at)
        for minutes in (0, 10):
            try:
                self._run(FIRST + timedelta(minutes=minutes))
                if minutes:
                    self.calls.die_if_due(ended=True)
            except Crash:
                self._run(FIRST + timedelta(minutes=minutes))
        made = list(self.calls.made)
        for minutes in (15, 20):
            self.aws.advance_to(FIRST + timedelta(minutes=minutes))
            self._run(FIRST + timedelta(minutes=minutes))
        return Life(self._machines(names), self._records(names), made)

    def _run(self, at: datetime) -> None:
        self.aws.set_clock(at)
        self.calls.armed = True
        try:
            handler({"source": "governor.schedule", "time": at.isoformat()}, None, self.deps)
        finally:
            self.calls.armed = False

    def _machines(self, names: Mapping[str, str]) -> dict[str, Any]:
        """State of each machine by name, and the sizes of the group."""
        ec2, auto_scaling = self.aws.client("ec2"), self.aws.client("autoscaling")
        states = {
            names.get(instance["InstanceId"], "unexpected"): instance["State"]["Name"]
            for reservation in ec2.describe_instances()["Reservations"]
            for instance in reservation["Instances"]
        }
        (group,) = auto_scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
        members = {names.get(m["InstanceId"], "unexpected"): m["LifecycleState"] for m in group["Instances"]}
        sent = [one.instance_ids for one in self.aws.commands()]
        saved = [names[ids[0]] for ids in sent if ids[0] in names]
        return {**states, "sizes": (group["MinSize"], group["DesiredCapacity"]), "members": members, "commands": saved}

    def _records(self, names: Mapping[str, str]) -> list[tuple[str, str]]:
        """Every record but the lease, whose fence counts the runs, with names instead of ids."""
        items = self.aws.client("dynamodb").scan(TableName=TABLE)["Items"]
        found = [
            (_named(f"{item['pk']['S']} {item['sk']['S']}", names), _named(_settled(item["body"]["S"]), names))
            for item in items
            if not item["pk"]["S"].startswith("lease#")
        ]
        return sorted(found)


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _settled(body: str) -> str:
    """A body without the moments of answers: when one was noted may differ by a run, that it was noted may not."""
    read = json.loads(body)
    if isinstance(read, dict):
        for name in ("updated_at", "accepted_at"):
            read.pop(name, None)
    return json.dumps(read, sort_keys=True)


def _named(text: str, names: Mapping[str, str]) -> str:
    """The words of a text in order of the alphabet: ids, and what is made of them, differ from life to life."""
    for instance_id, name in names.items():
        text = text.replace(instance_id, name)
    text = re.sub(r"sir-[0-9a-z]+", "REQUEST", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "COMMAND", text)
    text = re.sub(r"\b(?=[0-9a-f]*[a-f])([0-9a-f]{16}|[0-9a-f]{12})\b|\b[0-9]{12}\b", "DIGEST", text)
    text = text.replace("\\n", " ")
    return " ".join(sorted(re.findall(r"[^\s,\[\]{}]+", text)))


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One local AWS for the module."""
    with local_aws(seed=20261120) as aws:
        yield Stage(aws)


@pytest.fixture(scope="module")
def unharmed(stage: Stage) -> dict[str, Life]:
    """The life of each plan without a crash."""
    return {plan: stage.live(plan) for plan in PLANS}


def test_the_run_without_a_crash_stops_each_machine_in_its_own_way(unharmed: dict[str, Life]) -> None:
    standby, lower = unharmed["standby"].machines, unharmed["lower"].machines
    same = {"standard": "stopped", "preemptible": "stopped", "critical": "running", "saved": "stopped"}
    same["persistent"] = "stopped"
    assert standby == {
        **same,
        "one-time": "terminated",
        "member-1": "stopped",
        "member-2": "stopped",
        "sizes": (0, 0),
        "members": {"member-1": "Standby", "member-2": "Standby"},
        "commands": ["saved"],
    }
    assert lower["sizes"] == (0, 0)
    assert {lower[name] for name in ("member-1", "member-2")} == {"terminated"}
    assert lower["one-time"] == "running"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plan", PLANS)
def test_a_crash_at_any_call_and_a_retry_end_in_the_same_state_with_the_same_messages(
    stage: Stage, unharmed: dict[str, Life], plan: str
) -> None:
    expected = unharmed[plan]
    made = [*expected.made, "the end"]
    points = crash_points(expected.made)
    assert points[-1] == len(made), "the last call gives the lease back"
    around_send = {made.index("ssm:SendCommand") + 1, made.index("ssm:SendCommand") + 2}
    assert around_send < set(points)
    for number in sorted(set(points) - around_send):
        life = stage.live(plan, number)
        where = f"call {number}, {made[number - 1]}"
        assert life.machines == expected.machines, where
        assert [key for key, _ in life.records] == [key for key, _ in expected.records], where
        for (key, body), (_, wanted) in zip(life.records, expected.records, strict=True):
            assert body == wanted, f"{where}: {key}"


@pytest.mark.parametrize(("more", "sent"), [(1, []), (2, ["saved"])], ids=["before", "after"])
def test_a_crash_around_the_send_of_a_command_sends_it_once_at_most_and_says_that_nothing_is_known(
    stage: Stage, unharmed: dict[str, Life], more: int, sent: list[str]
) -> None:
    expected = unharmed["standby"]
    life = stage.live("standby", expected.made.index("ssm:SendCommand") + more)
    assert life.machines == {**expected.machines, "commands": sent}
    assert [key for key, _ in life.records] == [key for key, _ in expected.records]
    told = next(body for key, body in life.records if "stopping" in key and "mail" in key)
    assert {"checkpoint", "failed", "within", "grace)"} <= set(told.split())


# What a call is to IAM where the name of the call is not the name of the action.
IAM_ACTIONS = {
    "budgets:DescribeBudget": {"budgets:ViewBudget"},
    "dynamodb:TransactWriteItems": {"dynamodb:ConditionCheckItem", "dynamodb:PutItem"},
}


def test_the_calls_that_the_guard_makes_are_exactly_what_its_role_grants(unharmed: dict[str, Life]) -> None:
    made = {call for life in unharmed.values() for call in life.made}
    used = {action for call in made for action in IAM_ACTIONS.get(call, {call})}
    assert used == handler_actions("guard_budget")
