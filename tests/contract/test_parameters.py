"""One suite for Parameter Store: on the fake, and on SSM as moto has it; what moto lacks on botocore's Stubber."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import Stubber
from moto import mock_aws

from governor.aws.parameter_store import ControlParameters, ParameterTree
from governor.ports import ControlTexts, UnreadableError
from governor.shell.seeding import CreatableParameters
from tests.fakes.fleet import FakeControls
from tests.fakes.parameters import InMemoryParameters

STAGE = "test"
ROOT = f"/governor/{STAGE}/"
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def _client() -> Any:
    config = Config(retries={"total_max_attempts": 1})
    return boto3.client("ssm", "eu-west-1", aws_access_key_id="x", aws_secret_access_key="x", config=config)


class World(Protocol):
    """Parameters under test, and what a person does to them."""

    parameters: CreatableParameters

    def put(self, name: str, value: str) -> None: ...
    def delete(self, name: str) -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self.fake = InMemoryParameters(STAGE)
        self.parameters: CreatableParameters = self.fake

    def put(self, name: str, value: str) -> None:
        self.fake.put(name, value)

    def delete(self, name: str) -> None:
        self.fake.delete(name)


class SsmWorld:
    def __init__(self) -> None:
        self.client = _client()
        self.parameters: CreatableParameters = ParameterTree(self.client, STAGE)
        # Another stage whose name begins with ours is not ours.
        self.client.put_parameter(Name=f"/governor/{STAGE}2/budget/limit-usd", Value="1", Type="String")

    def put(self, name: str, value: str) -> None:
        self.client.put_parameter(Name=ROOT + name, Value=value, Type="String", Overwrite=True)

    def delete(self, name: str) -> None:
        self.client.delete_parameter(Name=ROOT + name)


@pytest.fixture(params=[FakeWorld, SsmWorld])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with mock_aws():
        yield request.param()


def test_an_empty_tree_is_empty(world: World) -> None:
    assert world.parameters.read_tree() == ()


def test_the_whole_tree_is_read_over_several_pages_in_the_order_of_names(world: World) -> None:
    names = [f"area-{number % 3}/name-{number:02d}" for number in range(37)]
    for name in names:
        world.put(name, f"value of {name}")
    found = world.parameters.read_tree()
    assert [parameter.name for parameter in found] == sorted(ROOT + name for name in names)
    assert {parameter.name.removeprefix(ROOT): parameter.value for parameter in found} == {
        name: f"value of {name}" for name in names
    }
    assert {parameter.version for parameter in found} == {1}
    assert all(parameter.changed_at.tzinfo is not None for parameter in found)


def test_an_edit_raises_the_version_and_history_says_what_was_before(world: World) -> None:
    world.put("budget/limit-usd", "1000")
    first = world.parameters.last_change(ROOT + "budget/limit-usd")
    assert first is not None
    assert first.before is None
    for value in ("1100", "900"):
        world.put("budget/limit-usd", value)
    (found,) = world.parameters.read_tree()
    assert (found.value, found.version) == ("900", 3)
    change = world.parameters.last_change(ROOT + "budget/limit-usd")
    assert change is not None
    assert change.before == "1100"
    assert change.by
    assert change.at == found.changed_at


def test_the_newest_entry_of_a_long_history_is_found(world: World) -> None:
    for number in range(73):
        world.put("budget/limit-usd", str(number))
    change = world.parameters.last_change(ROOT + "budget/limit-usd")
    assert change is not None
    assert change.before == "71"


def test_history_of_what_is_not_there_is_none(world: World) -> None:
    assert world.parameters.last_change(ROOT + "budget/nothing") is None
    world.put("budget/limit-usd", "1")
    world.delete("budget/limit-usd")
    assert world.parameters.last_change(ROOT + "budget/limit-usd") is None
    assert world.parameters.read_tree() == ()


def test_create_makes_what_is_missing_and_never_overwrites(world: World) -> None:
    kind = {"description": "d", "allowed_pattern": "^[0-9]+$"}
    assert world.parameters.create(ROOT + "budget/limit-usd", "1000", **kind) is True
    assert world.parameters.create(ROOT + "budget/limit-usd", "2000", **kind) is False
    (found,) = world.parameters.read_tree()
    assert (found.value, found.version) == ("1000", 1)


# --- What only AWS does -----------------------------------------------------------------------------------------------


def _page(*names: str, token: str | None = None) -> Mapping[str, Any]:
    items = [{"Name": ROOT + n, "Value": "1", "Version": 1, "LastModifiedDate": AT, "Type": "String"} for n in names]
    return {"Parameters": items, **({"NextToken": token} if token else {})}


def test_empty_pages_with_a_token_are_not_the_end() -> None:
    client = _client()
    request = {"Path": ROOT.rstrip("/"), "Recursive": True, "MaxResults": 10}
    with Stubber(client) as stub:
        stub.add_response("get_parameters_by_path", dict(_page(token="1")), request)
        stub.add_response("get_parameters_by_path", dict(_page("a", token="2")), {**request, "NextToken": "1"})
        stub.add_response("get_parameters_by_path", dict(_page(token="3")), {**request, "NextToken": "2"})
        stub.add_response("get_parameters_by_path", dict(_page("b")), {**request, "NextToken": "3"})
        found = ParameterTree(client, STAGE).read_tree()
        stub.assert_no_pending_responses()
    assert [parameter.name for parameter in found] == [ROOT + "a", ROOT + "b"]


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException", "InternalServerError"])
def test_throttled_denied_and_broken_are_unreadable_even_on_a_later_page(code: str) -> None:
    client = _client()
    with Stubber(client) as stub:
        stub.add_response("get_parameters_by_path", dict(_page("a", token="1")))
        stub.add_client_error("get_parameters_by_path", code)
        with pytest.raises(UnreadableError, match=code):
            ParameterTree(client, STAGE).read_tree()
        stub.add_client_error("get_parameter_history", code)
        assert ParameterTree(client, STAGE).last_change(ROOT + "a") is None
        stub.add_client_error("get_parameters_by_path", code)
        assert ControlParameters(client, STAGE).read() is None


def _cut_off(**_: object) -> None:
    raise EndpointConnectionError(endpoint_url="https://ssm.eu-west-1.amazonaws.com")


def test_a_connection_that_fails_is_unreadable() -> None:
    client = _client()
    client.meta.events.register("before-send.ssm", _cut_off)
    with pytest.raises(UnreadableError):
        ParameterTree(client, STAGE).read_tree()
    assert ControlParameters(client, STAGE).read() is None


def test_create_asks_for_a_standard_parameter_that_is_not_overwritten_and_other_errors_get_out() -> None:
    client = _client()
    request = {
        "Name": ROOT + "a",
        "Value": "1",
        "Description": "d",
        "AllowedPattern": "^1$",
        "Type": "String",
        "Tier": "Standard",
        "Overwrite": False,
    }
    with Stubber(client) as stub:
        stub.add_response("put_parameter", {"Version": 1}, request)
        assert ParameterTree(client, STAGE).create(ROOT + "a", "1", description="d", allowed_pattern="^1$")
        stub.add_client_error("put_parameter", "ParameterLimitExceeded")
        with pytest.raises(ClientError, match="ParameterLimitExceeded"):
            ParameterTree(client, STAGE).create(ROOT + "a", "1", description="d", allowed_pattern="^1$")


# --- The controls -----------------------------------------------------------------------------------------------------


class FakeControlWorld:
    """The fake, written as a person writes parameters."""

    def __init__(self) -> None:
        self.fake = FakeControls({})
        self.controls: ControlTexts = self.fake

    def put(self, name: str, text: str) -> None:
        self.fake.put(name, text)

    def delete(self, name: str) -> None:
        self.fake.delete(name)


class SsmControlWorld:
    """SSM, with settings beside the controls and another stage whose name begins alike."""

    def __init__(self) -> None:
        self.client = _client()
        self.controls: ControlTexts = ControlParameters(self.client, STAGE)
        for name in (f"{ROOT}budget/limit-usd", f"{ROOT}controls", f"/governor/{STAGE}2/control/pause"):
            self.client.put_parameter(Name=name, Value="other", Type="String")

    def put(self, name: str, text: str) -> None:
        self.client.put_parameter(Name=f"{ROOT}control/{name}", Value=text, Type="String", Overwrite=True)

    def delete(self, name: str) -> None:
        self.client.delete_parameter(Name=f"{ROOT}control/{name}")


@pytest.fixture(params=[FakeControlWorld, SsmControlWorld])
def held(request: pytest.FixtureRequest) -> Iterator[FakeControlWorld | SsmControlWorld]:
    with mock_aws():
        yield request.param()


def test_controls_are_empty_until_somebody_writes_one(held: FakeControlWorld | SsmControlWorld) -> None:
    assert held.controls.read() == {}


def test_controls_are_read_anew_each_time_over_all_pages_and_levels(held: FakeControlWorld | SsmControlWorld) -> None:
    wanted = {f"keep/i-{number:02}": f"on because {number}" for number in range(23)}
    wanted |= {"pause": "off", "override/demo": "budget until 2026-12-01T06:00Z"}
    for name, text in wanted.items():
        held.put(name, text)
    assert held.controls.read() == wanted
    for text in ("on because the auditors are here", "nonsense"):
        held.put("pause", text)
        assert held.controls.read() == {**wanted, "pause": text}
    held.delete("pause")
    assert "pause" not in (held.controls.read() or {})


def test_controls_of_which_one_page_is_missing_cannot_be_read() -> None:
    client = _client()
    request = {"Path": f"{ROOT}control", "Recursive": True, "MaxResults": 10}
    with Stubber(client) as stub:
        stub.add_response("get_parameters_by_path", dict(_page(token="1")), request)
        stub.add_response(
            "get_parameters_by_path", dict(_page("control/pause", token="2")), {**request, "NextToken": "1"}
        )
        stub.add_response("get_parameters_by_path", dict(_page("control/keep/i-1")), {**request, "NextToken": "2"})
        assert ControlParameters(client, STAGE).read() == {"pause": "1", "keep/i-1": "1"}
        stub.add_response("get_parameters_by_path", dict(_page("control/pause", token="1")), request)
        stub.add_client_error("get_parameters_by_path", "ThrottlingException")
        assert ControlParameters(client, STAGE).read() is None
        stub.assert_no_pending_responses()
