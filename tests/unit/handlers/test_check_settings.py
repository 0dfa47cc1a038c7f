"""check_settings on the fakes: what is stored, what leaves through the outbox, and what a second run adds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from governor.domain.settings import SETTINGS, as_texts
from governor.domain.settings_review import Place
from governor.ports import ConflictError, Key, Record, UnreadableError, Write
from governor.shell.settings import (
    ATTEMPTS,
    CURRENT,
    REJECTION,
    RUN,
    CheckDeps,
    check_tree,
    load_snapshot,
    stored_history,
    stored_rejection,
    stored_snapshot,
)
from lambdas.check_settings.handler import handler
from tests.fakes.parameters import ALICE, InMemoryParameters
from tests.fakes.records import InMemoryRecords

STAGE = "test"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
DEFAULTS = {spec.name: spec.default for spec in SETTINGS}


class World:
    """check_settings with its fakes; `run` wakes it at some seconds after noon."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.store = InMemoryRecords()
        self.parameters = InMemoryParameters(STAGE, {**DEFAULTS, "control/pause": "off"})
        self.deps = CheckDeps(Place(STAGE, "eu-west-1"), self.store, self.parameters, lambda: NOW)
        self.metrics: dict[str, float] = {}

    def run(self, seconds: float = 0, *, name: str | None = None) -> dict[str, Any]:
        at = (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
        event: dict[str, Any] = {"source": "governor.schedule", "time": at}
        if name is not None:
            detail = {"operation": "Update", "name": f"/governor/{STAGE}/{name}", "type": "String"}
            event = {"source": "aws.ssm", "detail-type": "Parameter Store Change", "time": at, "detail": detail}
        self.capsys.readouterr()
        answer = handler(event, None, self.deps)
        json.dumps(answer)
        lines = [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]
        (emf,) = [line for line in lines if "_aws" in line]
        assert (emf["service"], emf["stage"]) == ("check_settings", STAGE)
        (declared,) = emf["_aws"]["CloudWatchMetrics"]
        assert (declared["Namespace"], sorted(declared["Dimensions"][0])) == ("GpuGovernor", ["service", "stage"])
        self.metrics = {metric["Name"]: emf[metric["Name"]][0] for metric in declared["Metrics"]}
        assert self.metrics["RunCompleted"] == 1
        return answer

    def edit(self, name: str, value: str, seconds: float) -> None:
        self.parameters.put(name, value, at=NOW + timedelta(seconds=seconds))

    def mails(self) -> list[str]:
        found = sorted(self.store.outbox("mail"), key=lambda record: record.body["at"])
        return [f"{record.body['severity']}: {record.body['subject']}" for record in found]

    def events(self) -> list[dict[str, Any]]:
        return [
            dict(record.body)
            for record in self.store.outbox("event")
            if record.body["detail_type"] != "Governor Message"
        ]


@pytest.fixture
def world(capsys: pytest.CaptureFixture[str]) -> World:
    return World(capsys)


def test_the_first_reading_stores_version_one_wakes_the_guard_and_mails_nobody(world: World) -> None:
    assert world.run()["version"] == 1
    snapshot = load_snapshot(world.store)
    assert snapshot is not None
    assert (as_texts(snapshot.settings), snapshot.version, snapshot.edits) == (DEFAULTS, 1, ())
    assert world.mails() == []
    (event,) = world.events()
    assert event["detail_type"] == "Settings Changed"
    assert event["detail"] == {"stage": STAGE, "version": 1, "at": NOW.isoformat(), "changes": []}
    assert world.metrics == {"RunCompleted": 1, "SettingsRejected": 0, "SettingsUnreadable": 0}


def test_a_version_is_stored_as_the_contract_says_and_kept_as_history(world: World) -> None:
    world.run()
    world.edit("budget/stop-percent", "90", 100)
    world.run(120)
    current, history = world.store.get(CURRENT), world.store.get(Key("settings", "version#00000002"))
    assert current is not None
    assert history is not None
    assert current.body == history.body
    assert set(current.body) == {"version", "read_at", "schema", "values", "edits"}
    assert current.body["values"] == {**DEFAULTS, "budget/stop-percent": "90"}
    assert current.body["edits"]["budget/stop-percent"] == {
        "at": "2026-11-20T12:02:00Z", "by": ALICE, "before": "95", "version": 2, "written_at": "2026-11-20T12:01:40Z",
    }  # fmt: skip
    assert [snapshot.version for snapshot in stored_history(world.store, 5)] == [2, 1]
    assert [snapshot.version for snapshot in stored_history(world.store, 1)] == [2]


def test_an_edit_makes_a_version_one_mail_one_event_and_an_edit_for_the_guard(world: World) -> None:
    world.run()
    world.edit("budget/stop-percent", "90", 65)
    world.edit("budget/grace-minutes", "0", 66)
    answer = world.run(67, name="budget/stop-percent")
    assert answer["version"] == 2
    assert world.mails() == ["info: [Governor test] 2 settings changed"]
    event = world.events()[-1]
    assert event["detail_type"] == "Settings Changed"
    assert event["detail"]["changes"][1] == {
        "name": "budget/grace-minutes", "from": "5", "to": "0", "by": ALICE, "at": "2026-11-20T12:01:06+00:00",
    }  # fmt: skip
    snapshot = load_snapshot(world.store)
    assert snapshot is not None
    assert snapshot.settings.budget.stop_percent == 90
    # Only what moves the stop level concerns the guard.
    assert [(edit.name, edit.by) for edit in snapshot.edits] == [("budget/stop-percent", ALICE)]


def test_the_same_event_again_adds_nothing(world: World) -> None:
    world.run()
    world.edit("budget/stop-percent", "90", 65)
    world.run(67, name="budget/stop-percent")
    before = dict(world.store.records)
    for _ in range(4):
        world.run(67, name="budget/stop-percent")
    assert world.store.records == before


def test_an_event_older_than_the_last_reading_ends_before_the_tree_is_read(world: World) -> None:
    world.run(60)
    reads = world.parameters.calls.count("read_tree")
    assert world.run(59, name="budget/limit-usd")["skipped"]
    assert world.parameters.calls.count("read_tree") == reads
    assert world.metrics == {"RunCompleted": 1}


def test_an_event_of_the_same_second_is_looked_at(world: World) -> None:
    # Parameter Store events carry whole seconds: the edit may have come after that second's reading.
    world.run(60)
    world.edit("budget/limit-usd", "2000", 60.9)
    assert world.run(60, name="budget/limit-usd")["version"] == 2


def test_below_control_nothing_is_a_setting(world: World) -> None:
    world.run()
    world.parameters.put("control/pause", "on because of a fire")
    world.parameters.put("control/else", "odd")
    answer = world.run(60, name="control/pause")
    assert (answer["version"], answer["rejected"]) == (1, False)


def test_an_invalid_tree_keeps_the_last_good_settings_and_is_told_once(world: World) -> None:
    world.run()
    world.edit("budget/warn-percent", "99", 60)
    world.edit("budget/grace-minutes", "1", 61)
    for minute in range(2, 6):
        assert world.run(minute * 60)["rejected"]
        assert world.metrics["SettingsRejected"] == 1
    snapshot = load_snapshot(world.store)
    assert snapshot is not None
    assert (as_texts(snapshot.settings), snapshot.version) == (DEFAULTS, 1)
    (mail,) = world.mails()
    assert mail.startswith("warn: [Governor test] setting not used: budget/warn-percent is '99'")
    (body,) = [record.body["body"] for record in world.store.outbox("mail")]
    assert "Written by assumed-role/Admin/alice at 2026-11-20 12:01 UTC." in body
    rejected = [event for event in world.events() if event["detail_type"] == "Settings Rejected"]
    assert len(rejected) == 1
    assert rejected[0]["detail"]["errors"][0]["parameter"] == "/governor/test/budget/warn-percent"
    assert rejected[0]["detail"]["errors"][0]["by"] == ALICE
    assert rejected[0]["detail"]["version_in_force"] == 1
    rejection = stored_rejection(world.store)
    assert rejection is not None
    assert rejection.open


def test_a_bad_state_that_lasts_costs_no_look_ups_of_who_wrote_it(world: World) -> None:
    world.run()
    world.edit("budget/warn-percent", "99", 60)
    world.run(60)
    asked = world.parameters.calls.count("last_change")
    assert asked == 1
    world.run(120)
    assert world.parameters.calls.count("last_change") == asked


def test_a_corrected_tree_is_told_once_and_is_in_force(world: World) -> None:
    world.run()
    world.edit("budget/warn-percent", "99", 60)
    world.run(60)
    world.edit("budget/warn-percent", "80", 120)
    for minute in (2, 3, 4):
        assert world.run(minute * 60) == {
            "version": 1, "changes": [], "rejected": False, "unreadable": "", "skipped": False,
        }  # fmt: skip
    assert world.metrics["SettingsRejected"] == 0
    assert world.mails()[1:] == ["info: [Governor test] settings are valid again"]
    rejection = stored_rejection(world.store)
    assert rejection is not None
    assert not rejection.open


def test_a_deleted_and_a_misspelt_parameter_are_rejected_and_the_last_good_stays(world: World) -> None:
    world.run()
    world.parameters.delete("budget/limit-usd")
    world.edit("budget/limit-us", "5", 60)
    assert world.run(60)["rejected"]
    (body,) = [record.body["body"] for record in world.store.outbox("mail")]
    assert "budget/limit-usd is missing" in body
    assert "budget/limit-us is not a setting: did you mean budget/limit-usd?" in body
    snapshot = load_snapshot(world.store)
    assert snapshot is not None
    assert snapshot.settings.budget.limit_usd == 1000


def test_an_unreadable_tree_keeps_the_last_good_settings_and_raises_a_metric(world: World) -> None:
    world.run()

    def throttle(call: str) -> None:
        raise UnreadableError("ThrottlingException")

    world.parameters.before = throttle
    world.edit("budget/limit-usd", "2000", 61)
    answer = world.run(62, name="budget/limit-usd")
    assert (answer["version"], answer["unreadable"], answer["rejected"]) == (1, "ThrottlingException", None)
    assert world.metrics == {"RunCompleted": 1, "SettingsUnreadable": 1}
    assert world.mails() == []
    # A run that could not read is no reading: even an event from before it is looked at once the tree can be read.
    world.parameters.before = lambda call: None
    assert world.run(61, name="budget/limit-usd")["version"] == 2
    assert world.metrics["SettingsUnreadable"] == 0


def test_a_tree_that_is_not_seeded_yet_is_waited_for(world: World) -> None:
    for name in DEFAULTS:
        world.parameters.delete(name)
    answer = world.run()
    assert "seeder" in answer["unreadable"]
    assert world.metrics == {"RunCompleted": 1, "SettingsUnreadable": 1}
    assert load_snapshot(world.store) is None
    assert world.mails() == []
    for name, value in DEFAULTS.items():
        world.edit(name, value, 5)
    assert world.run(6, name="budget/limit-usd")["version"] == 1


def test_history_that_cannot_be_read_holds_nothing_up(world: World) -> None:
    world.run()
    world.parameters.readable_history = False
    world.edit("budget/limit-usd", "2000", 61)
    assert world.run(62)["version"] == 2
    assert world.mails() == ["info: [Governor test] budget/limit-usd changed from 1000 to 2000"]


def test_the_heartbeat_is_written_at_most_once_a_minute_and_leaves_through_the_outbox(world: World) -> None:
    beats = []
    for seconds in (0, 1, 30, 59, 60, 61, 119.5, 120):
        world.run(seconds)
        record = world.store.get(RUN)
        assert record is not None
        assert record.outbox == "run"
        beats.append(record.sequence)
    minutes = [(NOW + timedelta(minutes=m)).isoformat(timespec="microseconds") for m in range(3)]
    assert beats == [minutes[0]] * 4 + [minutes[1]] * 3 + [minutes[2]]


def test_a_run_that_loses_to_another_one_starts_again_from_what_that_one_wrote(world: World) -> None:
    world.run()
    world.edit("budget/limit-usd", "2000", 61)
    other = CheckDeps(world.deps.place, world.store, world.parameters, world.deps.clock)

    def overtake(call: str) -> None:
        if call == "commit":
            world.store.before = lambda call: None
            world.edit("budget/limit-usd", "3000", 62)
            check_tree(other, NOW + timedelta(seconds=62))

    world.store.before = overtake
    answer = world.run(62)
    assert answer["version"] == 2
    snapshot = stored_snapshot(world.store)
    assert snapshot is not None
    assert (snapshot.version, snapshot.values["budget/limit-usd"]) == (2, "3000")
    assert world.mails() == ["info: [Governor test] budget/limit-usd changed from 1000 to 3000"]


def test_an_older_tree_never_replaces_a_newer_one(world: World) -> None:
    # We read the tree, then another run reads a newer one and commits first, with a later time.
    world.run()
    world.edit("budget/limit-usd", "2000", 61)
    other = CheckDeps(world.deps.place, world.store, world.parameters, world.deps.clock)

    def overtake(call: str) -> None:
        if call == "commit":
            world.store.before = lambda call: None
            world.edit("budget/limit-usd", "3000", 62)
            check_tree(other, NOW + timedelta(seconds=63))

    world.store.before = overtake
    assert world.run(61)["skipped"]
    snapshot = stored_snapshot(world.store)
    assert snapshot is not None
    assert (snapshot.version, snapshot.values["budget/limit-usd"]) == (2, "3000")


def test_losing_again_and_again_is_an_error_so_that_the_event_comes_back(world: World) -> None:
    def lose(call: str) -> None:
        if call == "commit":
            raise ConflictError

    world.store.before = lose
    with pytest.raises(ConflictError):
        handler({"source": "governor.schedule", "time": NOW.isoformat()}, None, world.deps)
    assert world.store.calls.count("commit") == ATTEMPTS


def test_values_that_this_version_cannot_use_are_unreadable_and_never_a_default(world: World) -> None:
    world.run()
    stored = world.store.get(CURRENT)
    assert stored is not None
    body = {**stored.body, "values": {**DEFAULTS, "budget/limit-usd": "-1"}}
    world.store.commit([Write(Record(CURRENT, body))])
    with pytest.raises(UnreadableError, match=r"budget/limit-usd is '-1'"):
        load_snapshot(world.store)
    world.store.commit([Write(Record(CURRENT, {"version": 1}))])
    with pytest.raises(UnreadableError, match="values"):
        load_snapshot(world.store)


def test_a_setting_that_is_newer_than_the_snapshot_has_its_default(world: World) -> None:
    values = {name: text for name, text in DEFAULTS.items() if name != "budget/grace-minutes"}
    body = {"version": 7, "values": {**values, "budget/gone": "1"}, "edits": {}}
    world.store.commit([Write(Record(CURRENT, body))])
    snapshot = load_snapshot(world.store)
    assert snapshot is not None
    assert (snapshot.version, snapshot.settings.budget.grace_minutes) == (7, 5)


def test_there_is_no_rejection_on_record_at_first(world: World) -> None:
    assert stored_rejection(world.store) is None
    world.run()
    assert world.store.get(REJECTION) is None
