"""guard_budget is cut off at every AWS call, before and after its effect, and the same event is delivered again.

Rule 10: at-least-once is assumed. The end state and the messages equal the run without a crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
import time_machine
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from moto import mock_aws
from moto.moto_api._internal import mock_random

from governor.aws.budgets import AwsBudgets
from governor.aws.catalogue import load_catalogue
from governor.aws.ec2_fleet import Ec2Fleet
from governor.aws.parameter_store import PauseParameter
from governor.aws.state_table import DynamoDbStateTable
from governor.domain.settings import Settings, as_texts
from governor.domain.tags import TagKeys
from governor.ports import Key, Record
from governor.shell.budget_guard import GuardDeps
from lambdas.guard_budget.handler import handler
from local import wildcards
from stacks.permissions import handler_actions
from tests.builders import some_settings

REGION = "eu-west-1"
TABLE = "state"
STAGE = "test"


class Crash(BaseException):
    """The process died here."""


@dataclass
class Calls:
    """Counts AWS calls of the function under test and dies at one of them."""

    die_at: int | None = None
    after_effect: bool = False
    armed: bool = False
    made: list[str] = field(default_factory=list)

    def watch(self, client: Any) -> Any:
        client.meta.events.register("before-call", self._before)
        client.meta.events.register("after-call", self._after)
        return client

    def _before(self, model: Any, **_: Any) -> None:
        if not self.armed:
            return
        self.made.append(f"{model.service_model.endpoint_prefix}:{model.name}")
        if not self.after_effect:
            self._die()

    def _after(self, **_: Any) -> None:
        if self.armed and self.after_effect:
            self._die()

    def _die(self) -> None:
        if self.die_at is not None and len(self.made) == self.die_at:
            self.armed = False
            raise Crash(self.made[-1])


def answer_budget(spent: str) -> Callable[..., AWSResponse]:
    """A DescribeBudget that reports `spent` USD; the emulation of moto always reports zero."""

    def respond(request: Any, **_: Any) -> AWSResponse:
        spend = {"ActualSpend": {"Amount": spent, "Unit": "USD"}}
        limit = {"Amount": "1000", "Unit": "USD"}
        body = json.dumps({"Budget": {"BudgetName": "gpu", "BudgetLimit": limit, "CalculatedSpend": spend}}).encode()

        class Raw:
            def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
                yield body

        return AWSResponse(request.url, 200, HTTPHeaders(), Raw())

    return respond


@dataclass
class World:
    """moto with a fleet, a table and a pause, and the guard's dependencies on it."""

    calls: Calls

    def __post_init__(self) -> None:
        self.ec2 = boto3.client("ec2", REGION)
        self.table = boto3.client("dynamodb", REGION)
        self.table.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        ssm = boto3.client("ssm", REGION)
        ssm.put_parameter(Name=f"/governor/{STAGE}/control/pause", Value="off", Type="String")
        for criticality in ("standard", "preemptible", "critical"):
            self.launch(criticality)
        settings = some_settings()
        body = {
            "version": 1,
            "read_at": "2026-11-20T00:00:00+00:00",
            "schema": "",
            "values": as_texts(Settings(budget=settings)),
            "edits": {},
        }
        self.store = DynamoDbStateTable(self.table, TABLE)
        self.store.put_all([Record(Key("settings", "current"), body)])
        budgets = self.calls.watch(boto3.client("budgets", "us-east-1"))
        budgets.meta.events.register_first("before-send.budgets.DescribeBudget", answer_budget("960.00"))
        ec2 = self.calls.watch(boto3.client("ec2", REGION))
        self.deps = GuardDeps(
            stage=STAGE,
            home_region=REGION,
            account_id="123456789012",
            budget_name="gpu",
            store=DynamoDbStateTable(self.calls.watch(boto3.client("dynamodb", REGION)), TABLE),
            fleet=Ec2Fleet([REGION], lambda region: ec2, TagKeys(), STAGE),
            budgets=AwsBudgets(budgets, "123456789012", "gpu"),
            pause=PauseParameter(self.calls.watch(boto3.client("ssm", REGION)), STAGE),
            prices=load_catalogue(),
            clock=lambda: datetime(2026, 11, 20, 12, tzinfo=UTC),
        )

    def launch(self, criticality: str) -> None:
        tags = [
            {"Key": "governor:managed", "Value": STAGE},
            {"Key": "governor:criticality", "Value": criticality},
            {"Key": "Name", "Value": criticality},
        ]
        self.ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType="g4dn.xlarge",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )

    def run(self, at: datetime) -> None:
        self.calls.armed = True
        try:
            handler({"source": "governor.schedule", "time": at.isoformat()}, None, self.deps)
        finally:
            self.calls.armed = False

    def end_state(self) -> dict[str, Any]:
        """Instances by name, and every record but the lease, whose fence counts the runs."""
        states = {
            next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == "Name"): instance["State"]["Name"]
            for reservation in self.ec2.describe_instances()["Reservations"]
            for instance in reservation["Instances"]
        }
        records = {
            f"{item['pk']['S']} {item['sk']['S']}": _without_update_time(item["body"]["S"])
            for item in self.table.scan(TableName=TABLE)["Items"]
            if not item["pk"]["S"].startswith("lease#")
        }
        return {"instances": states, "records": records}


def _without_update_time(body: str) -> Any:
    """When an answer was noted may differ by a run; that it was noted may not."""
    read = json.loads(body)
    if isinstance(read, dict):
        read.pop("updated_at", None)
        read.pop("accepted_at", None)
    return read


FIRST = datetime(2026, 11, 20, 12, tzinfo=UTC)


def live(calls: Calls) -> tuple[dict[str, Any], list[str]]:
    """Run an event until it is through (the platform delivers it again after a crash), then the next tick."""
    with time_machine.travel(FIRST - timedelta(days=1), tick=False), mock_aws():
        mock_random.seed(20261120)
        world = World(calls)
        try:
            world.run(FIRST)
        except Crash:
            world.run(FIRST)
        made = list(calls.made)
        world.run(FIRST + timedelta(minutes=5))
        world.run(FIRST + timedelta(minutes=10))
        return world.end_state(), made


@pytest.fixture(scope="module", autouse=True)
def wildcard_filters() -> Iterator[None]:
    """EC2 matches `p*` in filter values; moto learns it for these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moto.ec2.utils.instance_value_in_filter_values", wildcards.matches)
        yield


@pytest.fixture(scope="module")
def unharmed() -> tuple[dict[str, Any], list[str]]:
    return live(Calls())


def test_the_run_without_a_crash_stops_the_right_ones_and_tells_it_once(
    unharmed: tuple[dict[str, Any], list[str]],
) -> None:
    state, made = unharmed
    assert state["instances"] == {"standard": "stopped", "preemptible": "stopped", "critical": "running"}
    mails = [key for key in state["records"] if key.startswith("message#") and key.endswith(" mail")]
    assert sorted(key.split("#")[3] for key in mails) == ["stopping", "stops-seen"]
    assert "ec2:StopInstances" in made
    assert len(made) >= 10


@pytest.mark.parametrize("after_effect", [False, True], ids=["before the call", "after its effect"])
def test_a_crash_at_any_call_and_a_retry_end_in_the_same_state_with_the_same_messages(
    unharmed: tuple[dict[str, Any], list[str]], after_effect: bool
) -> None:
    expected, made = unharmed
    for number in range(1, len(made) + 1):
        state, _ = live(Calls(die_at=number, after_effect=after_effect))
        assert state["instances"] == expected["instances"], f"call {number}, {made[number - 1]}"
        assert sorted(state["records"]) == sorted(expected["records"]), f"call {number}, {made[number - 1]}"
        for key, body in expected["records"].items():
            assert state["records"][key] == body, f"call {number}, {made[number - 1]}: {key}"


# What a call is to IAM where the name of the call is not the name of the action.
IAM_ACTIONS = {
    "budgets:DescribeBudget": {"budgets:ViewBudget"},
    "dynamodb:TransactWriteItems": {"dynamodb:ConditionCheckItem", "dynamodb:PutItem"},
}


def test_the_calls_that_the_guard_makes_are_exactly_what_its_role_grants(
    unharmed: tuple[dict[str, Any], list[str]],
) -> None:
    _, made = unharmed
    used = {action for call in made for action in IAM_ACTIONS.get(call, {call})}
    assert used == handler_actions("guard_budget")
