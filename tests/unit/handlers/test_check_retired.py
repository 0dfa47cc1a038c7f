"""check_retired on a fake marker: refuses to go before the stage was given back, and always answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from governor.aws.retired_marker import RETIRED, RetiredMarker
from governor.ports import Key, Record
from governor.shell import retirement
from governor.shell.environment import CheckRetiredEnvironment, OddEnvironmentError, read_environment
from governor.shell.retirement import NOT_CREATED_ID, PHYSICAL_ID, RetirementDeps, refusal, retirement_deps
from lambdas.check_retired import handler as module
from lambdas.check_retired.handler import handler

STAGE = "test"
EVENT = {
    "RequestType": "Delete",
    "ResponseURL": "https://cloudformation.example/answer?signature=x",
    "StackId": "arn:aws:cloudformation:eu-west-1:123456789012:stack/Governor-test-Watch/1",
    "RequestId": "r-1",
    "LogicalResourceId": "RetiredResource",
    "PhysicalResourceId": PHYSICAL_ID,
    "ResourceType": "Custom::RetiredCheck",
    "ServiceToken": "arn:aws:lambda:eu-west-1:123456789012:function:check",
    "ResourceProperties": {"ServiceToken": "arn:aws:lambda:eu-west-1:123456789012:function:check"},
}
ENVIRONMENT = {
    "GOVERNOR_STAGE": STAGE,
    "TABLE_NAME": "state",
    "GOVERNOR_REGIONS": "eu-west-1",
    "ACCOUNT_ID": "123456789012",
    "POWERTOOLS_SERVICE_NAME": "check_retired",
    "TAG_KEYS": '{"managed": "m", "criticality": "c", "project": "p", "pool": "o"}',
    "FORCE_DESTROY": "false",
}
DENIED = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetItem")


class FakeMarker:
    """The record `retired`; `error` is raised by whatever is asked."""

    def __init__(self, *, there: bool = False, error: Exception | None = None) -> None:
        self.there = there
        self.stopped: tuple[str, ...] = ()
        self.error = error
        self.calls: list[str] = []

    def exists(self) -> bool:
        self._call("exists")
        return self.there

    def stopped_since(self) -> tuple[str, ...]:
        self._call("stopped_since")
        return self.stopped

    def remove(self) -> None:
        self._call("remove")
        self.there = False

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.error is not None:
            raise self.error


class World:
    """The check with its fakes; `answers` is what CloudFormation was told."""

    def __init__(self, marker: FakeMarker, *, forced: bool = False) -> None:
        self.marker = marker
        self.answers: list[dict[str, Any]] = []
        self.deps = RetirementDeps(STAGE, marker, forced, self._receive)

    def _receive(self, url: str, body: bytes) -> None:
        assert url == EVENT["ResponseURL"]
        assert len(body) <= 4096
        self.answers.append(json.loads(body))

    def run(self, request_type: str, **changes: str) -> dict[str, Any]:
        event = {**EVENT, "RequestType": request_type, **changes}
        if request_type == "Create":
            del event["PhysicalResourceId"]
        answer = handler(event, None, self.deps)
        assert self.answers[-1] == answer
        for name in ("StackId", "RequestId", "LogicalResourceId"):
            assert answer[name] == EVENT[name]
        return answer


def test_a_stage_that_stopped_something_after_it_was_given_back_may_not_go() -> None:
    marker = FakeMarker(there=True)
    marker.stopped = tuple(f"i-{n:02}" for n in range(12))
    answer = World(marker).run("Delete")
    assert answer["Status"] == "FAILED"
    assert "Since stage test was retired it has stopped i-00, i-01" in answer["Reason"]
    assert "i-09 and 2 more. Stage test is not retired" in answer["Reason"]


def test_a_stage_that_is_in_use_does_not_go_and_one_sentence_says_what_to_do() -> None:
    world = World(FakeMarker())
    for _ in range(2):
        answer = world.run("Delete")
        assert (answer["Status"], answer["PhysicalResourceId"]) == ("FAILED", PHYSICAL_ID)
        assert answer["Reason"] == (
            "Stage test is not retired: machines may still be stopped and groups lowered by the Governor. "
            "Run `governor retire --plan`, then `governor retire --apply`, and destroy again; "
            "or deploy Governor-test-Control once with -c force-destroy=true to delete it as it stands."
        )
    assert world.marker.calls == ["exists", "exists"]


def test_a_retired_stage_goes() -> None:
    world = World(FakeMarker(there=True))
    assert world.run("Delete")["Status"] == "SUCCESS"
    assert world.marker.there, "a deletion that fails elsewhere can be repeated"


def test_a_forced_deletion_goes_even_without_the_table() -> None:
    world = World(FakeMarker(error=DENIED), forced=True)
    answer = world.run("Delete")
    assert answer["Status"] == "SUCCESS"
    assert "force-destroy" in answer["Reason"]
    assert world.marker.calls == []


def test_a_new_deploy_of_a_retired_stage_counts_as_in_use() -> None:
    world = World(FakeMarker(there=True))
    answer = world.run("Create")
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", PHYSICAL_ID)
    assert world.run("Delete")["Status"] == "FAILED"


@pytest.mark.parametrize("there", [True, False])
def test_an_update_changes_nothing(there: bool) -> None:
    world = World(FakeMarker(there=there))
    answer = world.run("Update")
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", PHYSICAL_ID)
    assert (world.marker.calls, world.marker.there) == ([], there)


def test_a_creation_that_failed_is_rolled_back_although_nothing_was_retired() -> None:
    world = World(FakeMarker(error=DENIED))
    answer = world.run("Create")
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("FAILED", NOT_CREATED_ID)
    assert "AccessDeniedException" in answer["Reason"]
    rolled_back = world.run("Delete", PhysicalResourceId=answer["PhysicalResourceId"])
    assert (rolled_back["Status"], rolled_back["PhysicalResourceId"]) == ("SUCCESS", NOT_CREATED_ID)


def test_a_creation_without_any_answer_is_rolled_back_too() -> None:
    # CloudFormation makes up a name where none was answered in time.
    world = World(FakeMarker())
    assert world.run("Delete", PhysicalResourceId="Governor-test-Watch-Retired-1ABC")["Status"] == "SUCCESS"


def test_a_table_that_cannot_be_read_refuses_and_says_why() -> None:
    answer = World(FakeMarker(error=DENIED)).run("Delete")
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith("It could not be read whether the stage is retired; try again. ClientError: ")


@pytest.mark.parametrize("name", ["a-stage-of-16-abc", "x"])
def test_the_sentence_fits_into_an_answer(name: str) -> None:
    assert len(refusal(name)) < 500


def test_an_environment_that_cannot_be_used_is_answered_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, bytes]] = []
    monkeypatch.setattr(module, "put", lambda url, body: sent.append((url, body)))
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    answer = handler(EVENT, None)
    assert answer["Status"] == "FAILED"
    assert OddEnvironmentError.__name__ in answer["Reason"]
    assert [(url, json.loads(body)) for url, body in sent] == [(EVENT["ResponseURL"], answer)]


@pytest.mark.parametrize(("text", "forced"), [("true", True), ("false", False)])
def test_the_environment_says_whether_the_stage_may_go(
    monkeypatch: pytest.MonkeyPatch, text: str, forced: bool
) -> None:
    monkeypatch.setattr(retirement, "client", lambda service: service)
    deps = retirement_deps(read_environment(CheckRetiredEnvironment, {**ENVIRONMENT, "FORCE_DESTROY": text}))
    assert (deps.stage, deps.forced) == (STAGE, forced)


class FakeDynamoDb:
    """One table in memory that knows whole items only."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}

    def get_item(self, **request: Any) -> dict[str, Any]:
        assert (request["TableName"], request["ConsistentRead"]) == ("state", True)
        found = self.items.get(json.dumps(request["Key"], sort_keys=True))
        return {} if found is None else {"Item": found}

    def delete_item(self, **request: Any) -> dict[str, Any]:
        assert request["TableName"] == "state"
        self.items.pop(json.dumps(request["Key"], sort_keys=True), None)
        return {}


def test_the_marker_is_the_record_that_retire_writes() -> None:
    table = FakeDynamoDb()
    marker = RetiredMarker(table, "state")
    assert not marker.exists()
    record = Record(Key("retired", "retired"), {"at": "2026-11-03T09:00:00+00:00"})
    key = {"pk": {"S": record.key.pk}, "sk": {"S": record.key.sk}}
    table.items[json.dumps(key, sort_keys=True)] = {**key, "v": {"N": "1"}}
    assert marker.exists()
    assert record.key == Key(RETIRED, RETIRED)
    marker.remove()
    marker.remove()
    assert not marker.exists()
