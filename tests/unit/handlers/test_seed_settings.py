"""seed_settings on the fakes: creates what is missing, overwrites and deletes nothing, always answers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.domain.pause import format_pause, parse_pause
from governor.domain.settings import SETTINGS
from governor.ports import UnreadableError
from governor.shell import cloudformation
from governor.shell.seeding import PAUSE, SECONDS_BETWEEN_CALLS, SeedDeps, SeedError, seeds
from governor.shell.settings import parse_tree
from lambdas.seed_settings.handler import PHYSICAL_ID, handler
from tests.fakes.parameters import InMemoryParameters

STAGE = "test"
DEFAULTS = {spec.name: spec.default for spec in SETTINGS}
EVENT = {
    "RequestType": "Create",
    "ResponseURL": "https://cloudformation.example/answer?signature=x",
    "StackId": "arn:aws:cloudformation:eu-west-1:123456789012:stack/Governor-test-Control/1",
    "RequestId": "r-1",
    "LogicalResourceId": "Settings",
    "ResourceType": "Custom::SettingsSeed",
    "ServiceToken": "arn:aws:lambda:eu-west-1:123456789012:function:seed",
    "ResourceProperties": {"SchemaHash": "abc"},
}


class World:
    """The seeder with its fakes; `answers` is what CloudFormation was told."""

    def __init__(self, initial: dict[str, str] | None = None) -> None:
        self.parameters = InMemoryParameters(STAGE)
        self.naps: list[float] = []
        self.answers: list[dict[str, Any]] = []
        self.deps = SeedDeps(STAGE, self.parameters, initial or {}, self.naps.append, self._receive)

    def _receive(self, url: str, body: bytes) -> None:
        assert url == EVENT["ResponseURL"]
        assert len(body) <= 4096
        self.answers.append(json.loads(body))

    def run(self, request_type: str = "Create") -> dict[str, Any]:
        answer = handler({**EVENT, "RequestType": request_type}, None, self.deps)
        assert self.answers[-1] == answer
        assert answer["PhysicalResourceId"] == PHYSICAL_ID
        for name in ("StackId", "RequestId", "LogicalResourceId"):
            assert answer[name] == EVENT[name]
        return answer


def test_everything_is_created_with_its_meaning_and_pattern() -> None:
    world = World()
    answer = world.run()
    assert (answer["Status"], answer["Data"]) == ("SUCCESS", {"Created": str(len(SETTINGS) + 1), "Kept": "0"})
    assert world.parameters.values() == {**DEFAULTS, "control/pause": "off"}
    for spec in SETTINGS:
        description, pattern = world.parameters.descriptions[f"/governor/{STAGE}/{spec.name}"]
        assert spec.description in description
        assert spec.unit in description
        assert spec.rule in description
        assert pattern == spec.allowed_pattern


def test_what_is_seeded_is_valid_as_a_whole() -> None:
    world = World({"budget/mode": "enforce", "budget/limit-usd": "250", "budget/grace-minutes": "0"})
    world.run()
    values = world.parameters.values()
    assert values.pop("control/pause") == "off"
    settings, errors = parse_tree(values)
    assert errors == ()
    assert (settings.budget.mode.value, settings.budget.limit_usd, settings.budget.grace_minutes) == ("enforce", 250, 0)


def test_a_redeploy_keeps_every_edit() -> None:
    world = World()
    world.run()
    world.parameters.put("budget/stop-percent", "60")
    world.parameters.put("control/pause", "on because of the audit")
    before, creates = world.parameters.values(), world.parameters.calls.count("create")
    answer = world.run("Update")
    assert world.parameters.values() == before
    assert world.parameters.calls.count("create") == creates
    assert answer["Data"] == {"Created": "0", "Kept": str(len(SETTINGS) + 1)}


def test_a_new_setting_appears_with_its_first_value_beside_kept_ones() -> None:
    world = World({"budget/limit-usd": "777"})
    world.run()
    world.parameters.delete("budget/limit-usd")
    world.parameters.put("budget/stop-percent", "60")
    assert world.run("Update")["Data"] == {"Created": "1", "Kept": str(len(SETTINGS))}
    assert world.parameters.values()["budget/limit-usd"] == "777"
    assert world.parameters.values()["budget/stop-percent"] == "60"


def test_deleting_the_stack_keeps_everything_and_says_so() -> None:
    world = World()
    world.run()
    before, calls = world.parameters.values(), list(world.parameters.calls)
    answer = world.run("Delete")
    assert answer["Status"] == "SUCCESS"
    assert "kept" in answer["Reason"]
    assert (world.parameters.values(), world.parameters.calls) == (before, calls)


def test_a_failure_halfway_is_answered_and_a_retry_completes() -> None:
    world = World()

    def break_at_the_fifth(call: str) -> None:
        if world.parameters.calls.count("create") == 5:
            raise UnreadableError("throttled")

    world.parameters.before = break_at_the_fifth
    answer = world.run()
    assert (answer["Status"], answer["Reason"]) == ("FAILED", "UnreadableError: throttled")
    assert len(world.parameters.values()) == 4
    world.parameters.before = lambda call: None
    assert world.run()["Data"]["Created"] == str(len(SETTINGS) + 1 - 4)
    assert world.parameters.values() == {**DEFAULTS, "control/pause": "off"}


def test_a_parameter_that_somebody_creates_meanwhile_is_kept() -> None:
    world = World()

    def create_first(call: str) -> None:
        if call == "create" and "budget/limit-usd" not in world.parameters.values():
            world.parameters.put("budget/limit-usd", "42")

    world.parameters.before = create_first
    answer = world.run()
    assert answer["Status"] == "SUCCESS"
    assert world.parameters.values()["budget/limit-usd"] == "42"
    assert answer["Data"]["Kept"] == "1"


def test_calls_stay_under_twenty_a_second() -> None:
    world = World()
    world.run()
    creates = world.parameters.calls.count("create")
    assert len(world.naps) == creates
    assert all(nap >= SECONDS_BETWEEN_CALLS for nap in world.naps)
    assert 1 / SECONDS_BETWEEN_CALLS < 20


@pytest.mark.parametrize(
    ("initial", "said"),
    [
        ({"budget/stop-percnt": "60"}, "budget/stop-percnt is not a setting: did you mean budget/stop-percent?"),
        ({"budget/limit-usd": "many"}, "budget/limit-usd is 'many': must be a number from 1"),
        ({"budget/warn-percent": "96"}, "budget/warn-percent is '96': must be below budget/stop-percent (95)."),
    ],
)
def test_initial_values_that_cannot_be_used_reach_cloudformation_as_a_sentence(
    initial: dict[str, str], said: str
) -> None:
    world = World(initial)
    answer = world.run()
    assert answer["Status"] == "FAILED"
    assert said in answer["Reason"]
    assert world.parameters.values() == {}


def test_a_long_reason_still_fits_into_an_answer() -> None:
    world = World({f"budget/odd-{number}": "x" * 500 for number in range(100)})
    assert world.run()["Status"] == "FAILED"


def test_an_odd_environment_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bytes] = []
    monkeypatch.setattr("lambdas.seed_settings.handler.put", lambda url, body: answers.append(body))
    handler(EVENT, None)
    (answer,) = map(json.loads, answers)
    assert answer["Status"] == "FAILED"
    assert "The environment variable ACCOUNT_ID is missing" in answer["Reason"]


def test_a_stack_that_is_deleted_is_answered_even_with_an_odd_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bytes] = []
    monkeypatch.setattr("lambdas.seed_settings.handler.put", lambda url, body: answers.append(body))
    handler({**EVENT, "RequestType": "Delete"}, None)
    assert json.loads(answers[0])["Status"] == "SUCCESS"


def test_an_answer_that_cannot_be_delivered_is_an_error_so_that_the_request_comes_back() -> None:
    world = World()

    def unreachable(url: str, body: bytes) -> None:
        raise OSError("unreachable")

    deps = SeedDeps(STAGE, world.parameters, {}, world.naps.append, unreachable)
    with pytest.raises(OSError, match="unreachable"):
        handler(EVENT, None, deps)
    assert world.run()["Data"]["Created"] == "0"


# --- The answer over HTTP ---------------------------------------------------------------------------------------------


class Receiver(BaseHTTPRequestHandler):
    """Takes answers; refuses the first `refusals` of them."""

    received: list[tuple[str, str | None, bytes]]
    refusals = 0

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).received.append((self.path, self.headers["Content-Type"], body))
        self.send_response(503 if len(type(self).received) <= type(self).refusals else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture
def receiver() -> Iterator[tuple[type[Receiver], str]]:
    kind = type("OneReceiver", (Receiver,), {"received": []})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield kind, f"http://127.0.0.1:{server.server_address[1]}/answer?signature=a%2Fb"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("refusals", [0, 2])
def test_an_answer_is_put_without_a_content_type_and_again_when_refused(
    receiver: tuple[type[Receiver], str], refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, url = receiver
    kind.refusals = refusals
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    cloudformation.put(url, b'{"Status": "SUCCESS"}')
    assert len(kind.received) == refusals + 1
    assert kind.received[-1] == ("/answer?signature=a%2Fb", "", b'{"Status": "SUCCESS"}')


def test_an_answer_that_is_always_refused_is_an_error(
    receiver: tuple[type[Receiver], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, url = receiver
    kind.refusals = 100
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(OSError, match="503"):
        cloudformation.put(url, b"{}")
    assert len(kind.received) == cloudformation.ATTEMPTS


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.com/x"])
def test_only_web_addresses_are_answered(url: str) -> None:
    with pytest.raises(ValueError, match="ResponseURL"):
        handler({**EVENT, "ResponseURL": url}, None, World().deps)


# --- The pause --------------------------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
UNTIL = st.none() | st.datetimes(
    min_value=datetime(2026, 1, 1),
    max_value=datetime(2099, 12, 31),
    timezones=st.just(UTC),
)
WHY = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.just(" "), max_size=80).map(str.strip)


def test_the_pause_starts_off_and_is_seeded_last() -> None:
    assert seeds({})[-1] is PAUSE
    assert PAUSE.value == "off"
    assert not parse_pause(PAUSE.value, NOW).active
    assert len(PAUSE.description) <= 1024


@given(st.booleans(), UNTIL, WHY)
def test_every_pause_that_the_governor_writes_passes_the_pattern(
    active: bool, until: datetime | None, why: str
) -> None:
    text = format_pause(active, until=until, because=why)
    assert re.fullmatch(PAUSE.allowed_pattern, text)
    assert parse_pause(text, NOW).readable


@given(st.from_regex(PAUSE.allowed_pattern.replace("$", r"\Z")))
def test_what_the_pattern_lets_through_is_read_or_holds_everything(text: str) -> None:
    pause = parse_pause(text, NOW)
    assert pause.readable or pause.active
    if not pause.readable:
        assert " until " in text, "only a day that does not exist passes the pattern and cannot be read"


@pytest.mark.parametrize("text", ["", "yes", "onn", "on until tomorrow", "until 2026-12-01T06:00Z", "off until later"])
def test_texts_that_mean_nothing_do_not_pass_the_pattern(text: str) -> None:
    assert re.fullmatch(PAUSE.allowed_pattern, text) is None


def test_seeds_refuse_what_cannot_be_used_together() -> None:
    with pytest.raises(SeedError, match="below budget/stop-percent"):
        seeds({"budget/stop-percent": "50"})
