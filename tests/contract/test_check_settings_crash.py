"""check_settings is cut off at every AWS call, before and after its effect, and the same event is delivered again.

Rule 10: at-least-once is assumed. The end state and the messages equal the run without a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import boto3
import pytest
import time_machine
from botocore.config import Config
from moto import mock_aws

from governor.aws.parameter_store import ParameterTree
from governor.aws.state_table import DynamoDbStateTable
from governor.domain.settings import SETTINGS
from governor.domain.settings_review import Place
from governor.shell.settings import CheckDeps
from lambdas.check_settings.handler import handler

REGION = "eu-west-1"
STAGE = "test"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
EVENT = {"source": "aws.ssm", "detail-type": "Parameter Store Change", "time": (NOW + timedelta(minutes=5)).isoformat()}
GRANTED = {
    "ssm:GetParametersByPath",
    "ssm:GetParameterHistory",
    "dynamodb:GetItem",
    "dynamodb:TransactWriteItems",
}


class Crash(BaseException):
    """The process died here."""


@dataclass
class Calls:
    """Records AWS calls of the function under test and dies at one of them."""

    die_at: int | None = None
    after_effect: bool = False
    made: list[str] = field(default_factory=list)

    def watch(self, client: Any) -> Any:
        client.meta.events.register("before-call", self._before)
        client.meta.events.register("after-call", self._after)
        return client

    def _before(self, model: Any, **_: Any) -> None:
        self.made.append(f"{model.service_model.service_name}:{model.name}")
        if not self.after_effect:
            self._die()

    def _after(self, **_: Any) -> None:
        if self.after_effect:
            self._die()

    def _die(self) -> None:
        if self.die_at == len(self.made):
            raise Crash(self.made[-1])


@cache
def new_session() -> boto3.Session:
    """One session for all worlds: it keeps the service models that clients are made from."""
    return boto3.Session("x", "x", region_name=REGION)


def new_clients() -> tuple[Any, Any]:
    """Parameter Store and DynamoDB, without retries: a crash must stay one."""
    config = Config(retries={"total_max_attempts": 1})
    return new_session().client("ssm", config=config), new_session().client("dynamodb", config=config)


SCENES: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "first reading": ({}, {}),
    "an edit": ({"budget/grace-minutes": "5"}, {"budget/grace-minutes": "1", "budget/limit-usd": "2000"}),
    "a mistake": ({"budget/grace-minutes": "5"}, {"budget/warn-percent": "99", "budget/limit-usd": "2000"}),
    "valid again": ({"budget/warn-percent": "99"}, {"budget/warn-percent": "80"}),
    "valid again and changed": ({"budget/warn-percent": "99"}, {"budget/warn-percent": "70"}),
    "nothing new": ({"budget/grace-minutes": "5"}, {}),
}
"""Edits before the run under test, each with a run of its own after the first reading, and edits that wake it."""


class World:
    """moto with a seeded tree and a state table, brought to where a scene begins."""

    def __init__(self, scene: str) -> None:
        self.ssm, self.table = new_clients()
        self.table.create_table(
            TableName="state",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        for spec in SETTINGS:
            self.put(spec.name, spec.default)
        self.put("control/pause", "off")
        before, edits = SCENES[scene]
        if before:
            self.run(Calls(), NOW)
            self.edit(before)
            self.run(Calls(), NOW + timedelta(minutes=1))
        self.edit(edits)

    def put(self, name: str, value: str) -> None:
        self.ssm.put_parameter(Name=f"/governor/{STAGE}/{name}", Value=value, Type="String", Overwrite=True)

    def edit(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            self.put(name, value)

    def run(self, calls: Calls, at: datetime | None = None) -> None:
        """One run in a process of its own: fresh clients on the same world."""
        ssm, table = new_clients()
        store = DynamoDbStateTable(calls.watch(table), "state")
        deps = CheckDeps(Place(STAGE, REGION), store, ParameterTree(calls.watch(ssm), STAGE), lambda: NOW)
        handler({**EVENT, "time": at.isoformat()} if at else EVENT, None, deps)

    def end_state(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Every record of the table as it is stored."""
        items = self.table.scan(TableName="state")["Items"]
        return {(item["pk"]["S"], item["sk"]["S"]): item for item in items}


@pytest.fixture(autouse=True)
def still_clock() -> Iterator[None]:
    """Parameter Store dates each write; two worlds are compared, so the clock stands."""
    with time_machine.travel(NOW, tick=False):
        yield


@pytest.mark.parametrize("scene", SCENES)
def test_a_crash_at_any_call_and_a_retry_ends_like_a_run_without_a_crash(scene: str) -> None:
    with mock_aws():
        calm, calls = World(scene), Calls()
        calm.run(calls)
        expected = calm.end_state()
    assert set(calls.made) <= GRANTED
    assert calls.made[-1] == "dynamodb:TransactWriteItems"
    for number in range(1, len(calls.made) + 1):
        for after_effect in (False, True):
            with mock_aws():
                world = World(scene)
                with pytest.raises(Crash):
                    world.run(Calls(number, after_effect))
                world.run(Calls())
                assert world.end_state() == expected, f"{calls.made[number - 1]} after_effect={after_effect}"


@pytest.mark.parametrize("scene", SCENES)
def test_the_same_event_five_times_ends_like_once(scene: str) -> None:
    with mock_aws():
        world = World(scene)
        world.run(Calls())
        expected = world.end_state()
        for _ in range(4):
            world.run(Calls())
        assert world.end_state() == expected


def test_the_calls_are_those_that_the_role_grants() -> None:
    made: set[str] = set()
    for scene in SCENES:
        with mock_aws():
            world, calls = World(scene), Calls()
            world.run(calls)
            made.update(calls.made)
    assert made == GRANTED
