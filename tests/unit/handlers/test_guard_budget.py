"""guard_budget, from the event to the outbox, on fakes of the ports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from governor.domain.fleet import Instance, InstanceState
from governor.domain.ledger import StopStatus
from governor.domain.settings import BudgetSettings, Settings, as_texts
from governor.ports import Key, LeaseHeldError, Record
from governor.shell import budget_guard, records
from governor.shell.budget_guard import GuardDeps, load_ledger
from lambdas.guard_budget.handler import handler
from tests.builders import NOW, PRICES, STAGE, an_instance, some_settings
from tests.fakes.commands import FakeCommands
from tests.fakes.fleet import THE_SAME, FakeBudgets, FakeControls, FakeFleet
from tests.fakes.records import InMemoryRecords

ACCOUNT = "123456789012"
Facts = Mapping[str, Instance]


@dataclass
class World:
    """One guard with its fakes."""

    fleet: FakeFleet
    budgets: FakeBudgets
    controls: FakeControls
    store: InMemoryRecords
    commands: FakeCommands = field(default_factory=FakeCommands)
    waits: list[float] = field(default_factory=list)

    @property
    def deps(self) -> GuardDeps:
        return GuardDeps(
            stage=STAGE,
            home_region="eu-west-1",
            account_id=ACCOUNT,
            budget_name="gpu",
            store=self.store,
            fleet=self.fleet,
            actions=self.fleet,
            commands=self.commands,
            budgets=self.budgets,
            controls=self.controls,
            prices=PRICES,
            clock=lambda: NOW,
            sleep=self.waits.append,
        )

    def configure(self, settings: BudgetSettings, version: int = 3, edits: dict[str, Any] | None = None) -> None:
        """Store a snapshot of settings, as check_settings does."""
        body = {
            "version": version,
            "read_at": NOW.isoformat(),
            "schema": "",
            "values": as_texts(Settings(budget=settings)),
            "edits": edits or {},
        }
        self.store.put_all([Record(Key("settings", "current"), body)])

    def tick(self, at: datetime = NOW) -> dict[str, Any]:
        """A scheduled run."""
        return handler({"source": "governor.schedule", "time": at.isoformat()}, None, self.deps)

    def mails(self) -> list[Record]:
        """Every e-mail in the outbox, in order of its key."""
        return sorted((r for r in self.store.records.values() if r.outbox == "mail"), key=lambda r: r.key)

    def told(self) -> list[str]:
        """Kinds of the facts that were told."""
        return [record.key.pk.removeprefix("message#").split("#")[2] for record in self.mails()]


@pytest.fixture
def world() -> World:
    made = World(FakeFleet(), FakeBudgets(), FakeControls(), InMemoryRecords())
    made.fleet.add(
        an_instance("i-standard"),
        an_instance("i-critical", criticality="critical"),
        an_instance("i-unmanaged", managed=None),
    )
    made.configure(some_settings())
    return made


def notice(amount: str = "960.00", *, account: str = ACCOUNT, name: str = "gpu", at: datetime = NOW) -> dict[str, Any]:
    text = (
        f"AWS Budget Notification November 20, 2026\nAWS Account {account}\n\nDear AWS Customer,\n\n"
        f"You requested ...\n\nBudget Name: {name}\nBudget Type: Cost\nBudgeted Amount: $1,000.00\n"
        f"Alert Type: ACTUAL\nAlert Threshold: > $950.00\nACTUAL Amount: ${amount}\n\n[1] https://console\n"
    )
    return sns(text, at=at)


def sns(*texts: str, at: datetime = NOW) -> dict[str, Any]:
    stamp = at.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    topic = f"arn:aws:sns:eu-west-1:{ACCOUNT}:budget"
    return {
        "Records": [
            {"EventSource": "aws:sns", "Sns": {"Message": t, "Timestamp": stamp, "TopicArn": topic}} for t in texts
        ]
    }


def test_the_stop_is_stored_before_the_call_and_done_when_seen(world: World) -> None:
    world.budgets.spent = 960
    answer = world.tick()
    assert answer["stopped"] == ("i-standard",)
    assert world.fleet.calls == [("stop", "eu-west-1", ("i-standard",))]
    assert [entry.status for entry in load_ledger(world.store)[0]] == [StopStatus.ACCEPTED]
    world.fleet.settle()
    world.tick(NOW + timedelta(minutes=5))
    assert [entry.status for entry in load_ledger(world.store)[0]] == [StopStatus.STOPPED]
    assert sorted(world.told()) == ["stopping", "stops-seen"]


def test_the_same_sns_message_five_times_changes_nothing_more(world: World) -> None:
    world.budgets.spent = 960
    handler(notice(), None, world.deps)
    once = {record.key: record for record in world.store.records.values()}
    for _ in range(4):
        handler(notice(), None, world.deps)
    again = {record.key: record for record in world.store.records.values()}
    assert world.fleet.calls == [("stop", "eu-west-1", ("i-standard",))]
    assert {k: r for k, r in once.items() if r.outbox in ("mail", "slack", "event")} == {
        k: r for k, r in again.items() if r.outbox in ("mail", "slack", "event")
    }


def test_the_message_is_only_a_trigger_and_the_budget_is_read_again(world: World) -> None:
    world.budgets.spent = 100
    handler(notice("999999.00"), None, world.deps)
    assert world.fleet.calls == []
    assert world.mails() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "{}",
        json.dumps({"AlarmName": "x"}),
        "Budget Name: gpu\nACTUAL Amount: $1",
        "\x00\ud83d\ude00" * 50,
        "Budget Name: gpu" * 2000,
    ],
)
def test_text_that_is_no_notice_is_forwarded_once_and_never_raises(world: World, text: str) -> None:
    world.budgets.spent = 100
    handler(sns(text), None, world.deps)
    answer = handler(sns(text), None, world.deps)
    assert answer["odd_notices"] == 1
    (mail,) = world.mails()
    assert "cannot be used" in mail.body["subject"]


@pytest.mark.parametrize(
    "event", [notice(account="999999999999"), notice(name="another"), sns("Budget Name: x"), {"Records": []}]
)
def test_foreign_notices_wake_the_guard_but_are_not_believed(world: World, event: dict[str, Any]) -> None:
    world.budgets.spent = 100
    handler(event, None, world.deps)
    assert world.fleet.calls == []


@pytest.mark.parametrize("event", [None, [], "text", 7, {"Records": 3}, {"time": "yesterday"}, {"detail": None}])
def test_nonsense_events_wake_the_guard_and_never_raise(world: World, event: Any) -> None:
    world.budgets.spent = 960
    assert handler(event, None, world.deps)["stopped"] == ("i-standard",)


def test_several_records_are_one_run(world: World) -> None:
    world.budgets.spent = 960
    answer = handler(sns("nonsense", notice()["Records"][0]["Sns"]["Message"]), None, world.deps)
    assert (answer["odd_notices"], answer["stopped"]) == (1, ("i-standard",))


def test_a_pause_set_between_the_decision_and_the_call_withholds_it(world: World) -> None:
    world.budgets.spent = 960
    world.controls.later = {"pause": "on because maintenance"}
    answer = world.tick()
    assert (answer["stopped"], answer["withheld"]) == ((), ("i-standard",))
    assert world.fleet.calls == []
    assert sorted(world.told()) == ["stopping", "withheld"]
    world.controls.later = THE_SAME
    assert world.tick(NOW + timedelta(minutes=5))["stopped"] == ("i-standard",)


def test_an_instance_that_became_critical_in_between_is_left_alone(world: World) -> None:
    world.budgets.spent = 960

    class Late(FakeFleet):
        def look_again(
            self, region: str, instance_ids: Sequence[str], *, protection: bool = True
        ) -> Mapping[str, Instance]:
            return {i: an_instance(i, criticality="critical") for i in instance_ids}

    world.fleet = Late(world.fleet.instances)
    assert world.tick()["withheld"] == ("i-standard",)
    assert world.fleet.calls == []


def test_facts_that_cannot_be_read_again_withhold_the_stop(world: World) -> None:
    world.budgets.spent = 960
    world.fleet.unreadable = "RequestLimitExceeded"
    assert world.tick()["withheld"] == ("i-standard",)


def test_one_refused_stop_is_paged_once_and_tried_again(world: World) -> None:
    world.fleet.add(an_instance("i-other"))
    world.fleet.refuse["i-other"] = "UnauthorizedOperation: denied"
    world.budgets.spent = 960
    first = world.tick()
    assert (first["stopped"], first["failed"]) == (("i-standard",), ("i-other",))
    world.fleet.settle()
    world.tick(NOW + timedelta(minutes=5))
    assert world.told().count("stop-failed") == 1
    assert len(world.fleet.calls) == 2
    world.fleet.refuse.clear()
    assert world.tick(NOW + timedelta(minutes=10))["stopped"] == ("i-other",)


def test_without_settings_nothing_is_done(world: World) -> None:
    world.store = InMemoryRecords()
    world.budgets.spent = 2000
    assert world.tick()["holds"] == ("settings-unknown",)
    assert world.fleet.calls == []


def test_a_run_that_finds_the_lease_taken_is_to_be_delivered_again(world: World) -> None:
    world.store.take_lease("guard_budget", "another", NOW, 330)
    with pytest.raises(LeaseHeldError):
        world.tick(NOW + timedelta(minutes=1))
    assert sum(world.waits) == pytest.approx(28)
    assert world.tick(NOW + timedelta(minutes=6))["level"] == "below"


def test_an_event_older_than_the_last_run_is_only_a_wake_up(world: World) -> None:
    world.budgets.spent = 100
    world.tick(NOW)
    world.budgets.spent = 960
    answer = handler(notice(at=NOW - timedelta(minutes=3)), None, world.deps)
    assert answer["stopped"] == ("i-standard",)
    state = budget_guard.load_state(world.store)
    assert state is not None
    assert state.decided_at > NOW


def test_an_event_of_a_clock_that_is_ahead_makes_the_others_older_for_no_longer(world: World) -> None:
    ahead = NOW + timedelta(minutes=4)
    event = {"source": "governor.restore", "id": "1", "time": ahead.isoformat()}
    older = {"source": "governor.schedule", "time": (NOW + timedelta(minutes=2)).isoformat()}
    moments = []
    for sent in (event, event, older):
        handler(sent, None, world.deps)
        state = budget_guard.load_state(world.store)
        assert state is not None
        moments.append(state.decided_at)
    assert moments[:2] == [ahead, ahead], "a retry has the moment of the first try"
    assert ahead < moments[2] < ahead + timedelta(seconds=1)
    world.tick(NOW + timedelta(minutes=5))
    state = budget_guard.load_state(world.store)
    assert state is not None
    assert state.decided_at == NOW + timedelta(minutes=5)


def test_decisions_are_found_by_instance_by_day_and_put_on_the_bus(world: World) -> None:
    world.budgets.spent = 960
    answer = world.tick()
    (seen,) = world.store.query("instance#i-critical")
    assert seen.body["reason"]["code"] == "critical"
    assert seen.body["decision_id"] == answer["decision_id"]
    key = records.decision_key_of_id(answer["decision_id"])
    assert key is not None
    stored = world.store.get(key)
    assert stored is not None
    assert stored.body["settings_version"] == 3
    event = world.store.get(Key(f"decision#{answer['decision_id']}", "event"))
    assert event is not None
    assert event.body["detail"]["stops"] == ["i-standard"]


def test_the_same_decision_every_five_minutes_is_recorded_once(world: World) -> None:
    for minutes in range(0, 60, 5):
        world.tick(NOW + timedelta(minutes=minutes))
    assert len(world.store.query(f"day#{NOW:%Y-%m-%d}")) == 1


def test_more_stops_than_one_transaction_takes_are_all_recorded(world: World) -> None:
    world.fleet.add(*(an_instance(f"i-{n:03}") for n in range(120)))
    world.budgets.spent = 960
    for run in range(3):
        world.tick(NOW + timedelta(minutes=5 * run))
        world.fleet.settle()
    world.tick(NOW + timedelta(minutes=20))
    ledger, _ = load_ledger(world.store)
    assert len(ledger) == 121
    assert {entry.status for entry in ledger} == {StopStatus.STOPPED}
    stopped = [i for i in world.fleet.instances.values() if i.state is InstanceState.STOPPED]
    assert len(stopped) == 121


def test_an_edit_is_held_with_the_name_of_who_made_it(world: World) -> None:
    edits = {
        "budget/stop-percent": {
            "at": (NOW - timedelta(minutes=1)).isoformat(),
            "written_at": (NOW - timedelta(minutes=1)).isoformat(),
            "by": "arn:aws:iam::123456789012:user/ops",
            "before": "95",
            "version": 2,
        }
    }
    world.configure(some_settings(stop_percent=60.0, confirm_minutes=10, warn_percent=50.0), 4, edits)
    world.budgets.spent = 650
    assert world.tick()["holds"] == ("threshold-edited",)
    (mail,) = world.mails()
    assert "user/ops" in mail.body["body"]
    assert world.tick(NOW + timedelta(minutes=10))["stopped"] == ("i-standard",)


def test_a_restart_by_a_person_is_respected(world: World) -> None:
    world.budgets.spent = 960
    world.tick()
    world.fleet.settle()
    world.tick(NOW + timedelta(minutes=5))
    back = replace(
        world.fleet.instances["i-standard"], state=InstanceState.RUNNING, launched_at=NOW + timedelta(minutes=7)
    )
    world.fleet.add(back)
    for minutes in (10, 15, 400):
        assert world.tick(NOW + timedelta(minutes=minutes))["stopped"] == ()
    assert world.told().count("started-again") == 1


def test_a_decision_on_ten_thousand_instances_fits_into_a_dynamodb_item(world: World) -> None:
    world.fleet.add(*(an_instance(f"i-{n:017x}", managed=None) for n in range(10_000)))
    world.budgets.spent = 960
    answer = world.tick()
    key = records.decision_key_of_id(answer["decision_id"])
    assert key is not None
    stored = world.store.get(key)
    assert stored is not None
    assert len(json.dumps(stored.body)) < 380_000
    assert stored.body["verdict_counts"]["not-managed"] == 10_001
    assert stored.body["stops"][0]["instance_id"] == "i-standard"
    messages = [len(json.dumps(dict(mail.body))) for mail in world.mails()]
    assert max(messages) < 200_000


def test_two_events_of_the_same_moment_are_two_runs_with_a_decision_each(world: World) -> None:
    world.budgets.spent = 100
    first = world.tick()
    world.budgets.spent = 960
    second = handler({"source": "governor", "id": "e-1", "time": NOW.isoformat()}, None, world.deps)
    assert second["stopped"] == ("i-standard",)
    assert second["decision_id"] != first["decision_id"]
    assert [seen.body["decision_id"] for seen in world.store.query("instance#i-standard")] == [second["decision_id"]]
    again = handler({"source": "governor", "id": "e-1", "time": NOW.isoformat()}, None, world.deps)
    assert again["decision_id"] == second["decision_id"], "a repeated delivery is the same run"


class ProtectedSince(FakeFleet):
    """Somebody protects an instance between the decision and the call."""

    def look_again(
        self, region: str, instance_ids: Sequence[str], *, protection: bool = True
    ) -> Mapping[str, Instance]:
        facts = dict(super().look_again(region, instance_ids, protection=protection))
        if "i-protected" in facts:
            facts["i-protected"] = replace(facts["i-protected"], stop_protected=True)
        return facts


def test_a_protected_machine_makes_room_for_the_next(world: World) -> None:
    world.fleet.add(an_instance("i-protected", criticality="preemptible", stop_protected=True))
    world.configure(some_settings(max_stops_per_run=1))
    world.budgets.spent = 960
    answer = world.tick()
    assert (answer["stopped"], answer["withheld"]) == (("i-standard",), ())
    assert world.fleet.calls == [("stop", "eu-west-1", ("i-standard",))]


def test_a_machine_whose_protection_cannot_be_read_is_left(world: World) -> None:
    world.fleet.add(an_instance("i-unread", stop_protected=None))
    world.budgets.spent = 960
    answer = world.tick()
    assert (answer["stopped"], answer["withheld"]) == (("i-standard",), ("i-unread",))


def test_one_protected_in_between_is_told_once_and_does_not_take_the_place_of_others(world: World) -> None:
    world.fleet = ProtectedSince(dict(world.fleet.instances))
    world.fleet.add(an_instance("i-protected", criticality="preemptible"))
    world.configure(some_settings(max_stops_per_run=1))
    world.budgets.spent = 960
    assert world.tick()["withheld"] == ("i-protected",)
    assert world.tick(NOW + timedelta(minutes=5))["stopped"] == ("i-standard",)
    world.fleet.settle()
    for minutes in range(10, 180, 5):
        world.tick(NOW + timedelta(minutes=minutes))
    assert sorted(world.told()) == ["stopping", "stopping", "stops-seen", "withheld"]


def test_machines_that_refuse_do_not_keep_the_others_from_their_turn(world: World) -> None:
    world.fleet.add(*(an_instance(f"i-{n}", criticality="preemptible") for n in range(2)))
    world.fleet.refuse = {f"i-{n}": "OperationNotPermitted: no" for n in range(2)}
    world.configure(some_settings(max_stops_per_run=2))
    world.budgets.spent = 960
    assert sorted(world.tick()["failed"]) == ["i-0", "i-1"]
    assert world.tick(NOW + timedelta(minutes=5))["stopped"] == ("i-standard",)


def test_fifty_stops_that_fail_alike_are_one_page(world: World) -> None:
    world.fleet.add(*(an_instance(f"i-{n:02}") for n in range(60)))
    world.fleet.refuse = dict.fromkeys(world.fleet.instances, "UnauthorizedOperation: not allowed")
    world.budgets.spent = 960
    world.tick()
    assert world.told().count("stop-failed") == 1


def test_a_region_whose_facts_cannot_be_read_again_is_told_once(world: World) -> None:
    world.fleet.unreadable = "RequestLimitExceeded"
    world.budgets.spent = 960
    for minutes in range(0, 60, 5):
        world.tick(NOW + timedelta(minutes=minutes))
    assert sorted(world.told()) == ["stopping", "withheld"]


def test_long_names_in_every_script_fit_into_an_item(world: World) -> None:
    name = "訓練" * 120
    world.fleet.add(*(replace(an_instance(f"i-{n:017x}"), name=name) for n in range(600)))
    world.budgets.spent = 960
    answer = world.tick()
    key = records.decision_key_of_id(answer["decision_id"])
    assert key is not None
    stored = world.store.get(key)
    assert stored is not None
    assert len(json.dumps(dict(stored.body), ensure_ascii=False).encode()) < 390_000


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00"])
def test_a_moment_at_the_end_of_time_is_no_moment(world: World, time: str) -> None:
    answer = handler({"source": "governor.schedule", "time": time}, None, world.deps)
    assert answer["decision_id"] == f"guard_budget@{NOW.isoformat()}"


def test_a_protected_machine_is_not_announced_as_the_next_one_to_go(world: World) -> None:
    world.configure(some_settings(max_stops_per_run=1))
    world.fleet.add(an_instance("i-zz-protected", stop_protected=True))
    world.budgets.spent = 960
    assert world.tick()["stopped"] == ("i-standard",)
    body = next(r for r in world.mails() if "#stopping#" in r.key.pk).body["body"]
    assert "follows in the next run" not in body
    assert "has stop protection, which the Governor never clears: i-zz-protected" in body
