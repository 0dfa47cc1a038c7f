"""confirm_actions, from the event to the outbox, on fakes of the ports; what it works on is made by guard_budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from governor.domain.fleet import Instance, InstanceKind, InstanceState
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.settings import (
    BudgetSettings,
    GroupAction,
    Mode,
    RestoreAtPeriod,
    RestoreSettings,
    Settings,
    as_texts,
)
from governor.ports import Key, LeaseHeldError, Record
from governor.shell import confirm_actions, records
from governor.shell.budget_guard import GuardDeps, load_ledger
from governor.shell.confirm_actions import ConfirmDeps
from lambdas.confirm_actions.handler import handler
from lambdas.guard_budget.handler import handler as guard
from tests.builders import NOW, PRICES, STAGE, a_group, an_instance, some_settings
from tests.fakes.commands import FakeCommands
from tests.fakes.fleet import FakeBudgets, FakeControls, FakeFleet
from tests.fakes.records import InMemoryRecords

ALICE = "arn:aws:sts::123456789012:assumed-role/Operator/alice"
REGION = "eu-west-1"
NO_CAPACITY = "InsufficientInstanceCapacity: We currently do not have sufficient g4dn.xlarge capacity"


@dataclass
class World:
    """Both functions with their fakes; `at` is the moment of the next event."""

    fleet: FakeFleet = field(default_factory=FakeFleet)
    budgets: FakeBudgets = field(default_factory=FakeBudgets)
    controls: FakeControls = field(default_factory=FakeControls)
    store: InMemoryRecords = field(default_factory=InMemoryRecords)
    at: datetime = NOW
    waits: list[float] = field(default_factory=list)
    settles: bool = False
    """Whether what is under way comes to its end while a run waits."""

    def __post_init__(self) -> None:
        self.fleet.clock = lambda: self.at

    @property
    def deps(self) -> ConfirmDeps:
        return ConfirmDeps(
            stage=STAGE,
            home_region=REGION,
            budget_name="gpu",
            store=self.store,
            fleet=self.fleet,
            actions=self.fleet,
            controls=self.controls,
            clock=lambda: self.at,
            sleep=self._sleep,
        )

    @property
    def guard_deps(self) -> GuardDeps:
        return GuardDeps(
            stage=STAGE,
            home_region=REGION,
            account_id="123456789012",
            budget_name="gpu",
            store=self.store,
            fleet=self.fleet,
            actions=self.fleet,
            commands=FakeCommands(),
            budgets=self.budgets,
            controls=self.controls,
            prices=PRICES,
            clock=lambda: self.at,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if self.settles:
            self.fleet.settle()

    def configure(self, settings: BudgetSettings | None = None, restore: RestoreSettings | None = None) -> None:
        """Store a snapshot of settings, as check_settings does."""
        values = as_texts(Settings(budget=settings or some_settings(), restore=restore or RestoreSettings()))
        body = {"version": 3, "read_at": NOW.isoformat(), "schema": "", "values": values, "edits": {}}
        self.store.put_all([Record(Key("settings", "current"), body)])

    def confirm(self, minutes: float = 5) -> dict[str, Any]:
        """A scheduled run of confirm_actions, so many minutes after the last event."""
        self.at += timedelta(minutes=minutes)
        return handler({"source": "governor.schedule", "time": self.at.isoformat()}, None, self.deps)

    def guard(self, minutes: float = 5) -> dict[str, Any]:
        """A scheduled run of the guard."""
        self.at += timedelta(minutes=minutes)
        return guard({"source": "governor.schedule", "time": self.at.isoformat()}, None, self.guard_deps)

    def restore(self, *ids: str, minutes: float = 5, **detail: object) -> dict[str, Any]:
        """A person asks for machines back."""
        self.at += timedelta(minutes=minutes)
        asked = {"instances": list(ids), "by": ALICE, **detail}
        event = {"source": "governor.restore", "id": "r1", "time": self.at.isoformat(), "detail": asked}
        return guard(event, None, self.guard_deps)

    def stop_all(self) -> None:
        """The stop level is reached, and everything comes to rest."""
        self.budgets.spent = 960
        self.guard()
        self.fleet.settle()
        self.confirm()
        self.fleet.calls.clear()

    def statuses(self) -> dict[str, str]:
        return {entry.instance_id: entry.status.value for entry in load_ledger(self.store)[0]}

    def entry(self, instance_id: str) -> StopEntry:
        return next(e for e in load_ledger(self.store)[0] if e.instance_id == instance_id)

    def put(self, entry: StopEntry) -> None:
        self.store.put_all([records.ledger_record(entry)])

    def states(self) -> Mapping[str, str]:
        return {one: instance.state.value for one, instance in self.fleet.instances.items()}

    def names_of_calls(self) -> list[str]:
        return [f"{name} {' '.join(what)}" for name, _, what in self.fleet.calls]

    def mails(self) -> dict[str, str]:
        """Kind of fact -> body of its e-mail (the last one of a kind)."""
        found = {r.key.pk.removeprefix("message#").split("#")[2]: r for r in self.store.outbox("mail")}
        return {kind: f"{r.body['subject']}\n{r.body['body']}" for kind, r in found.items()}

    def told(self) -> list[str]:
        return sorted(r.key.pk.removeprefix("message#").split("#")[2] for r in self.store.outbox("mail"))


@pytest.fixture
def world() -> World:
    made = World()
    made.fleet.add(an_instance("i-a"), an_instance("i-b", criticality="preemptible"))
    made.fleet.add(an_instance("i-critical", criticality="critical"))
    made.configure()
    return made


class Crash(BaseException):
    """The process died here."""


def die_at(call: str) -> Callable[[str], None]:
    """A hook that dies at a call of this name."""

    def die(made: str) -> None:
        if made == call:
            raise Crash(made)

    return die


def a_member(instance_id: str, **changes: object) -> Instance:
    kind = InstanceKind.GROUP_MEMBER
    return an_instance(instance_id, kind=kind, owner="workers", **changes)  # type: ignore[arg-type]


@pytest.fixture
def group_world() -> World:
    """Two members in service in a group of MinSize 1."""
    made = World()
    members = (a_member("i-m1"), a_member("i-m2"))
    made.fleet.add(*members)
    made.fleet.add_group(a_group(*members, min_size=1, max_size=3))
    made.configure()
    return made


def test_a_run_with_nothing_in_the_ledger_reads_no_more_than_the_ledger(world: World) -> None:
    world.confirm()
    assert world.controls.reads == 0
    assert world.fleet.calls == []
    assert "query" in world.store.calls
    assert world.store.calls.count("get") == 1


def test_the_stop_is_told_when_it_is_seen_and_only_once(world: World) -> None:
    world.budgets.spent = 960
    world.guard()
    assert world.confirm()["moved"] == ()
    world.fleet.settle()
    assert world.confirm()["moved"] == ("i-a:stopped", "i-b:stopped")
    world.confirm()
    world.guard()
    assert world.told().count("stops-seen") == 1
    assert "governor restore --decision" in world.mails()["stops-seen"]


def test_one_command_brings_back_exactly_what_was_stopped(world: World) -> None:
    world.stop_all()
    answer = world.restore(all=True)
    assert sorted(answer["restores"]) == ["i-a", "i-b"]
    assert world.statuses() == {"i-a": "restoring", "i-b": "restoring"}
    assert world.confirm(0.1)["started"] == ("i-a", "i-b")
    assert world.statuses() == {"i-a": "starting", "i-b": "starting"}
    world.fleet.settle()
    world.confirm(1)
    assert world.statuses() == {"i-a": "restored", "i-b": "restored"}
    assert set(world.states().values()) == {"running"}
    assert world.told().count("restoring") == world.told().count("restores-seen") == 1
    told = world.mails()["restoring"]
    assert f"Asked for by: {ALICE}" in told
    assert "The stop level stands" in told
    assert "12 hours (budget/manual-start-grace-hours)" in told
    world.guard()
    world.confirm()
    assert world.states()["i-a"] == "running", "the grace of a manual start protects it"


def test_a_start_that_was_never_asked_for_does_not_happen(world: World) -> None:
    world.stop_all()
    for _ in range(3):
        world.confirm()
    assert world.fleet.calls == []


def test_a_pause_holds_the_start_until_it_is_lifted(world: World) -> None:
    world.stop_all()
    world.restore("i-a")
    world.controls.put("pause", "on because of the audit")
    world.confirm()
    assert world.names_of_calls() == []
    world.controls.put("pause", "off")
    world.confirm()
    assert world.names_of_calls() == ["start i-a"]


def test_a_pause_between_the_look_and_the_call_holds_it(world: World) -> None:
    world.stop_all()
    world.restore("i-a")
    world.controls.reads = 0
    world.controls.later = {"pause": "on"}
    world.confirm()
    assert world.names_of_calls() == []
    assert world.entry("i-a").start_tries == 0


def test_controls_that_cannot_be_read_hold_the_start_and_count(world: World) -> None:
    world.stop_all()
    world.restore("i-a")
    world.controls.texts = None
    assert world.confirm()["pause_unreadable"] is True
    assert world.names_of_calls() == []


@pytest.mark.parametrize(("mode", "starts"), [(Mode.OFF, False), (Mode.OBSERVE, True), (Mode.ENFORCE, True)])
def test_while_switched_off_nothing_starts_and_while_observing_only_what_a_person_asks(
    world: World, mode: Mode, starts: bool
) -> None:
    world.stop_all()
    world.restore("i-a")
    world.configure(some_settings(mode=mode))
    world.confirm()
    assert (world.names_of_calls() == ["start i-a"]) is starts
    if not starts:
        assert world.statuses()["i-a"] == "stopped"
        assert "switched off" in world.mails()["start-withheld"]


def test_what_we_start_by_ourselves_waits_for_the_mode_enforce(world: World) -> None:
    world.stop_all()
    asked = {"restore_asked_at": world.at, "restore_asked_by": "period 2026-12", "restore_decision_id": "d"}
    world.put(replace(world.entry("i-a"), status=StopStatus.RESTORING, **asked))  # type: ignore[arg-type]
    world.configure(some_settings(mode=Mode.OBSERVE))
    world.confirm()
    assert world.names_of_calls() == []
    assert world.statuses()["i-a"] == "stopped"


def test_a_changed_type_or_tag_between_the_request_and_the_call_withholds_the_start(world: World) -> None:
    world.stop_all()
    world.restore("i-a", "i-b")
    world.fleet.add(replace(world.fleet.instances["i-a"], instance_type="g5.xlarge"))
    world.fleet.add(an_instance("i-b", criticality="critical", state=InstanceState.STOPPED))
    world.confirm()
    assert world.names_of_calls() == []
    assert world.statuses() == {"i-a": "stopped", "i-b": "stopped"}
    assert world.told().count("start-withheld") == 2


def test_another_reason_in_the_ledger_keeps_it_stopped(world: World) -> None:
    world.stop_all()
    world.restore("i-a")
    world.put(replace(world.entry("i-a"), reason="operator", status=StopStatus.STOPPED))
    world.confirm()
    assert world.names_of_calls() == []
    assert "operator" in world.mails()["start-withheld"]


def test_who_is_started_by_a_person_in_between_is_not_fought(world: World) -> None:
    world.stop_all()
    world.restore("i-a")
    world.fleet.start(REGION, ["i-a"])
    world.fleet.settle()
    world.fleet.calls.clear()
    world.confirm()
    assert world.names_of_calls() == []
    assert world.statuses()["i-a"] == "restarted"
    assert "budget/manual-start-grace-hours" in world.mails()["started-again"]


def test_who_is_stopped_again_by_a_person_after_our_start_stays_stopped(world: World) -> None:
    world.stop_all()
    world.restore("i-a")
    world.confirm()
    reason = "Client.UserInitiatedShutdown: User initiated shutdown"
    world.fleet.add(replace(world.fleet.instances["i-a"], state=InstanceState.STOPPED, state_reason=reason))
    world.fleet.calls.clear()
    world.confirm()
    world.confirm()
    assert world.names_of_calls() == []
    assert world.statuses()["i-a"] == "gone"


def test_a_lack_of_capacity_is_tried_again_at_growing_intervals_and_given_up_with_one_page(world: World) -> None:
    world.stop_all()
    world.fleet.refuse["i-a"] = NO_CAPACITY
    world.restore("i-a")
    asked_at = world.at
    tried: list[int] = []
    for _ in range(49 * 12):
        if world.confirm()["failed"]:
            tried.append(round((world.at - asked_at).total_seconds() / 60))
    gaps = [after - before for before, after in pairwise(tried)]
    assert gaps[:5] == [5, 10, 20, 40, 60]
    assert set(gaps[5:]) == {60}
    assert tried[-1] <= 48 * 60
    assert world.statuses()["i-a"] == "gave-up"
    assert world.told().count("start-refused") == 1
    assert world.told().count("gave-up") == 1
    assert "capacity" in world.mails()["start-refused"]
    page = next(r for r in world.store.outbox("mail") if "#gave-up#" in r.key.pk)
    assert page.body["severity"] == "page"


def test_who_gave_up_can_be_asked_for_again(world: World) -> None:
    world.stop_all()
    world.configure(restore=RestoreSettings(give_up_hours=1))
    world.fleet.refuse["i-a"] = NO_CAPACITY
    world.restore("i-a")
    for _ in range(14):
        world.confirm()
    assert world.statuses()["i-a"] == "gave-up"
    del world.fleet.refuse["i-a"]
    assert world.restore("i-a")["restores"] == ("i-a",)
    world.confirm()
    world.fleet.settle()
    world.confirm()
    assert world.statuses()["i-a"] == "restored"


def test_a_start_that_falls_back_is_tried_again_although_its_launch_time_is_new(world: World) -> None:
    world.stop_all()
    world.fleet.fall_back["i-a"] = "Server.InsufficientInstanceCapacity: Insufficient instance capacity"
    world.restore("i-a")
    world.confirm(1)
    world.fleet.settle()
    answer = world.confirm(2)
    assert answer["failed"] == ("i-a",)
    assert world.statuses()["i-a"] == "restoring"
    assert "(capacity)" in world.mails()["start-refused"]
    del world.fleet.fall_back["i-a"]
    world.confirm(5)
    world.fleet.settle()
    world.confirm(1)
    assert world.statuses()["i-a"] == "restored"


def test_a_start_that_the_guard_sees_falling_back_is_told_by_confirm_actions_with_key_and_role(world: World) -> None:
    key = "arn:aws:kms:eu-west-1:123456789012:key/1"
    world.stop_all()
    world.fleet.keys["i-a"] = (key,)
    world.fleet.fall_back["i-a"] = "Client.InternalError: Client error on launch"
    world.restore("i-a")
    world.confirm(1)
    world.fleet.settle()
    world.guard(2)
    world.confirm(1)
    told = world.mails()["start-refused"]
    for named in (key, "confirm_actions in stage test", "kms:CreateGrant", "volume_key_arns", "cdk.json"):
        assert named in told
    world.confirm(1)
    assert world.told().count("start-refused") == 1


def test_an_internal_error_without_an_encrypted_volume_is_not_blamed_on_a_key(world: World) -> None:
    world.stop_all()
    world.fleet.fall_back["i-a"] = "Client.InternalError: Client error on launch"
    world.restore("i-a")
    world.confirm(1)
    world.fleet.settle()
    world.confirm(2)
    assert "(other)" in world.mails()["start-refused"]


def test_starts_go_in_waves_the_standard_and_the_dear_ones_first(world: World) -> None:
    world.fleet.add(an_instance("i-dear", instance_type="p4d.24xlarge"))
    world.configure(some_settings(max_stop_percent=100.0), RestoreSettings(max_starts_per_run=1))
    world.stop_all()
    world.restore(all=True)
    for _ in range(3):
        world.confirm()
        world.confirm()
        world.fleet.settle()
    assert world.names_of_calls() == ["start i-dear", "start i-a", "start i-b"]


def test_a_region_that_cannot_be_read_is_not_taken_for_gone(world: World) -> None:
    world.stop_all()
    world.restore("i-a")
    world.fleet.unreadable = "eu-west-1: RequestLimitExceeded"
    world.confirm()
    assert world.statuses()["i-a"] == "restoring"
    world.fleet.unreadable = ""
    world.confirm()
    assert world.names_of_calls() == ["start i-a"]


def test_the_lease_is_that_of_the_guard(world: World) -> None:
    world.store.take_lease("guard_budget", "another run", NOW, 3600)
    with pytest.raises(LeaseHeldError):
        world.confirm()


def test_an_event_older_than_the_last_run_comes_just_after_it(world: World) -> None:
    world.confirm()
    late = {"source": "aws.ec2", "id": "x", "time": (world.at - timedelta(hours=1)).isoformat()}
    handler(late, None, world.deps)
    last = confirm_actions.load_run(world.store)
    assert last is not None
    assert last[0] > world.at


# --- Members of Auto Scaling groups -----------------------------------------------------------------------------------


def test_a_member_starts_then_runs_then_leaves_standby_and_min_size_comes_back_last(group_world: World) -> None:
    world = group_world
    world.stop_all()
    assert world.fleet.group("workers").min_size == 0
    world.restore(all=True)
    world.confirm(0.1)
    assert world.names_of_calls() == ["start i-m1 i-m2"], "a stopped member must not leave standby"
    assert dict(world.fleet.group("workers").members) == {"i-m1": "Standby", "i-m2": "Standby"}
    world.fleet.settle()
    world.confirm(1)
    assert world.names_of_calls() == ["start i-m1 i-m2", "exit_standby i-m1 i-m2", "set_group_size workers min=1"]
    group = world.fleet.group("workers")
    assert (group.min_size, group.desired, dict(group.members)) == (1, 2, {"i-m1": "InService", "i-m2": "InService"})
    assert world.statuses() == {"i-m1": "restored", "i-m2": "restored"}
    assert sorted(world.fleet.instances) == ["i-m1", "i-m2"], "nothing was replaced"
    (hold,) = world.store.query(records.GROUP_HOLDS)
    assert records.group_hold_of(hold).open is False


def test_min_size_waits_until_the_last_member_of_ours_is_back(group_world: World) -> None:
    world = group_world
    world.stop_all()
    world.restore("i-m1")
    world.confirm()
    world.fleet.settle()
    world.confirm()
    assert world.statuses() == {"i-m1": "restored", "i-m2": "stopped"}
    assert world.fleet.group("workers").min_size == 0
    world.restore("i-m2")
    world.confirm()
    world.fleet.settle()
    world.confirm()
    assert world.fleet.group("workers").min_size == 1


def test_a_slow_group_is_waited_for_and_finished_in_a_later_run(group_world: World) -> None:
    world = group_world
    world.stop_all()
    world.restore(all=True)
    world.confirm()
    world.fleet.settle()
    world.fleet.slow_standby = True
    world.confirm()
    assert world.statuses() == {"i-m1": "starting", "i-m2": "starting"}
    assert len(world.waits) == confirm_actions.ROUNDS, "each look follows a short wait"
    assert world.fleet.group("workers").min_size == 0
    world.settles = True
    world.fleet.settle()
    world.confirm()
    assert world.statuses() == {"i-m1": "restored", "i-m2": "restored"}
    assert world.fleet.group("workers").min_size == 1


def test_a_group_that_does_not_take_its_member_back_is_told_and_tried_until_given_up(group_world: World) -> None:
    world = group_world
    world.configure(restore=RestoreSettings(give_up_hours=2))
    world.stop_all()
    world.restore(all=True)
    world.confirm()
    world.fleet.settle()
    group = world.fleet.group("workers")
    world.fleet.add_group(replace(group, max_size=0))
    for _ in range(30):
        world.confirm()
    assert world.statuses() == {"i-m1": "gave-up", "i-m2": "gave-up"}
    assert world.told().count("start-refused") == 2
    assert "exit-standby" in world.mails()["start-refused"]
    assert len([call for call in world.names_of_calls() if call.startswith("exit_standby")]) <= 2 * 25
    world.fleet.add_group(replace(world.fleet.group("workers"), max_size=3))
    world.configure(some_settings(limit_usd=2000.0), RestoreSettings(give_up_hours=2))
    assert sorted(world.restore(all=True)["restores"]) == ["i-m1", "i-m2"]
    world.confirm()
    assert world.statuses() == {"i-m1": "restored", "i-m2": "restored"}


def test_min_size_that_somebody_changed_is_a_finding_and_not_fought(group_world: World) -> None:
    world = group_world
    world.stop_all()
    world.restore(all=True)
    world.confirm()
    world.fleet.settle()
    world.fleet.add_group(replace(world.fleet.group("workers"), min_size=2, max_size=5))
    for _ in range(3):
        world.confirm()
    assert world.fleet.group("workers").min_size == 2
    assert world.told().count("sizes-not-put-back") == 1
    assert "MinSize to 2" in world.mails()["sizes-not-put-back"]


def test_min_size_does_not_come_back_where_it_would_launch_a_machine(group_world: World) -> None:
    world = group_world
    world.fleet.add_group(replace(world.fleet.group("workers"), min_size=2))
    world.stop_all()
    world.restore("i-m1")
    world.confirm()
    world.fleet.settle()
    world.fleet.groups.put(replace(world.fleet.group("workers"), members=(("i-m1", "Standby"),)))
    world.fleet.add(replace(world.fleet.instances["i-m2"], state=InstanceState.TERMINATED))
    for _ in range(3):
        world.confirm()
        world.fleet.settle()
    assert world.fleet.group("workers").min_size == 0
    assert sorted(world.fleet.instances) == ["i-m1", "i-m2"]
    assert "machines that nobody stopped" in world.mails()["sizes-not-put-back"]


def test_a_member_that_a_person_started_in_our_standby_goes_back_into_service(group_world: World) -> None:
    world = group_world
    world.stop_all()
    world.fleet.start(REGION, ["i-m1", "i-m2"])
    world.fleet.settle()
    world.fleet.calls.clear()
    world.confirm()
    assert world.statuses() == {"i-m1": "restarted", "i-m2": "restarted"}
    assert world.fleet.group("workers").min_size == 1
    assert set(dict(world.fleet.group("workers").members).values()) == {"InService"}
    assert "takes it back into service" in world.mails()["started-again"]


def test_a_member_that_was_never_stopped_leaves_our_standby_when_the_level_is_over(group_world: World) -> None:
    world = group_world
    world.budgets.spent = 960
    world.fleet.before = die_at("stop")
    with pytest.raises(Crash):
        world.guard()
    world.fleet.before = lambda call: None
    world.store.leases.clear()
    assert set(dict(world.fleet.group("workers").members).values()) == {"Standby"}
    world.fleet.calls.clear()
    world.configure(some_settings(limit_usd=2000.0))
    world.guard()
    assert world.statuses() == {"i-m1": "restoring", "i-m2": "restoring"}
    assert "restoring" not in world.told(), "nothing is started, so nothing of the kind is told"
    world.confirm()
    assert world.names_of_calls() == ["exit_standby i-m1 i-m2", "set_group_size workers min=1"]
    assert world.statuses() == {"i-m1": "restored", "i-m2": "restored"}
    assert "restores-seen" not in world.told()


def test_a_place_that_was_taken_out_is_given_back_to_its_group(group_world: World) -> None:
    world = group_world
    world.configure(some_settings(group_action=GroupAction.LOWER))
    world.fleet.add(a_member("i-m3"))
    members = [world.fleet.instances[one] for one in ("i-m1", "i-m2", "i-m3")]
    world.fleet.add_group(a_group(*members, min_size=2, max_size=3))
    world.controls.put("keep/i-m3", "on")
    world.stop_all()
    lowered = [one for one, status in world.statuses().items() if status == "terminated"]
    assert lowered == ["i-m1", "i-m2"]
    left = world.fleet.group("workers").desired
    answer = world.restore(all=True)
    assert sorted(answer["restores"]) == sorted(lowered)
    world.confirm()
    group = world.fleet.group("workers")
    assert (group.desired, group.min_size) == (3, 2)
    assert left + len(lowered) == 3
    assert {world.statuses()[one] for one in lowered} == {"restored"}
    world.fleet.settle()
    assert sum(i.state is InstanceState.RUNNING for i in world.fleet.instances.values()) == 3


# --- A new month ------------------------------------------------------------------------------------------------------


def test_a_new_month_proposes_once_and_starts_nothing_by_itself(world: World) -> None:
    del world.fleet.instances["i-critical"]
    world.stop_all()
    new_month(world)
    world.guard()
    world.confirm()
    assert world.names_of_calls() == []
    assert world.told().count("restore-proposed") == 1
    assert "governor restore --all --stage test" in world.mails()["restore-proposed"]


def test_a_new_month_brings_all_back_where_the_setting_says_so(world: World) -> None:
    world.configure(some_settings(restore_at_period=RestoreAtPeriod.ALL))
    del world.fleet.instances["i-critical"]
    world.stop_all()
    new_month(world)
    world.confirm()
    world.fleet.settle()
    world.confirm()
    assert world.statuses() == {"i-a": "restored", "i-b": "restored"}
    assert "period 2026-12" in world.mails()["restoring"]


def new_month(world: World) -> None:
    """The month turns, and AWS Budgets shows the new one's first spend a day later."""
    world.at = datetime.fromisoformat("2026-12-01T00:00:00+00:00")
    world.guard()
    world.budgets.spent = 5.0
    world.guard(60 * 20)
    world.guard(5)
