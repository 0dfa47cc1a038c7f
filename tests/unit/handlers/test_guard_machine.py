"""The budget guard and confirm_actions together, over any order of what people, AWS and faults may do to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from governor.domain.controls import format_keep, format_override, parse_controls
from governor.domain.fleet import Instance, InstanceKind, InstanceState, SpotKind, SpotRequest
from governor.domain.ledger import STOP_PATIENCE, StopEntry, StopStatus
from governor.domain.settings import (
    BudgetSettings,
    GroupAction,
    Mode,
    RestoreAtPeriod,
    Settings,
    StopPolicy,
    Switch,
    as_texts,
)
from governor.ports import CallAnswer, Key, Record, StopAnswer
from governor.shell import budget_guard, confirm_actions, records
from governor.shell.budget_guard import GuardDeps
from governor.shell.confirm_actions import ConfirmDeps
from governor.shell.events import read_trigger
from tests.builders import NOW, PRICES, STAGE, a_group, an_instance, some_settings
from tests.fakes.commands import FakeCommands
from tests.fakes.fleet import FakeBudgets, FakeControls, FakeFleet
from tests.fakes.records import InMemoryRecords

START = NOW.replace(day=3, hour=0)


class CrashError(Exception):
    """The function's process ends here."""


@dataclass
class WatchedFleet(FakeFleet):
    """A fleet that checks each call at the moment at which it is made."""

    check: Callable[[str, Sequence[str]], None] = field(default=lambda name, ids: None)

    def stop(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        self.check("stop", instance_ids)
        return super().stop(region, instance_ids)

    def terminate(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        self.check("terminate", instance_ids)
        return super().terminate(region, instance_ids)

    def enter_standby(self, region: str, group: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        self.check("enter_standby", instance_ids)
        return super().enter_standby(region, group, instance_ids)

    def lower(self, region: str, group: str, instance_id: str) -> StopAnswer:
        self.check("lower", [instance_id])
        return super().lower(region, group, instance_id)

    def start(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        self.check("start", instance_ids)
        return super().start(region, instance_ids)

    def exit_standby(self, region: str, group: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        self.check("exit_standby", instance_ids)
        return super().exit_standby(region, group, instance_ids)

    def cancel_spot_request(self, region: str, request_id: str) -> CallAnswer:
        mine = [i.instance_id for i in self.instances.values() if i.spot and i.spot.request_id == request_id]
        self.check("terminate", mine)
        return super().cancel_spot_request(region, request_id)


def a_fleet(clock: Callable[[], datetime]) -> WatchedFleet:
    """One of each kind that matters."""
    fleet = WatchedFleet(clock=clock, regions=("eu-west-1",))
    members = [
        an_instance(f"i-a{n}", kind=InstanceKind.GROUP_MEMBER, owner="workers", launched_at=START - timedelta(days=n))
        for n in (1, 2, 3)
    ]
    mixed = [
        an_instance("i-b1", kind=InstanceKind.GROUP_MEMBER, owner="mixed", launched_at=START),
        an_instance("i-b2", kind=InstanceKind.GROUP_MEMBER, owner="mixed", criticality="critical", launched_at=START),
    ]
    persistent = SpotRequest("sir-1", SpotKind.PERSISTENT, stoppable=True)
    fleet.add(
        an_instance("i-01", launched_at=START - timedelta(days=1)),
        an_instance("i-02", criticality="preemptible", launched_at=START - timedelta(days=2)),
        an_instance("i-03", instance_type="p4d.24xlarge", launched_at=START - timedelta(days=3)),
        an_instance("i-0c", criticality="critical", launched_at=START),
        an_instance("i-0d", managed=None, launched_at=START),
        an_instance("i-0e", criticality="Standard", launched_at=START),
        an_instance("i-0f", stop_protected=True, launched_at=START),
        an_instance("i-51", kind=InstanceKind.SPOT, spot=persistent, launched_at=START),
        an_instance("i-52", kind=InstanceKind.SPOT, spot=SpotRequest("sir-2", SpotKind.ONE_TIME), launched_at=START),
        *members,
        *mixed,
    )
    fleet.add_group(
        a_group(*members, min_size=2, desired=3, max_size=4), a_group(*mixed, name="mixed", min_size=0, desired=2)
    )
    return fleet


class GuardMachine(RuleBasedStateMachine):
    """Whatever happens: nothing critical, unmanaged, kept or overridden is touched; only what is ours comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.fleet = a_fleet(lambda: self.now)
        self.fleet.check = self.check_call
        self.budgets = FakeBudgets(18_000.0)
        self.controls = FakeControls()
        self.commands = FakeCommands()
        self.store = InMemoryRecords()
        self.version = 0
        self.budget = some_settings()
        self.events: list[dict[str, Any]] = []
        self.crash_in = 0
        self.ours: dict[str, datetime | None] = {}
        """Machines that our stop call was for -> the launch that it was for."""
        self.standing: set[str] = set()
        """Members that we put into standby."""
        self.restored_by_itself: list[tuple[str, str]] = []
        self.touched: set[str] = set()
        """Machines that people started, stopped or changed since our last call about them."""
        self.fleet.before = self.maybe_crash
        self.fleet.after = self.maybe_crash
        self.store.before = self.maybe_crash_of_store

    # --- Checking each call -------------------------------------------------------------------------------------------

    def check_call(self, name: str, ids: Sequence[str]) -> None:
        controls = parse_controls(self.controls.texts, self.now)
        assert not controls.pause.active, name
        for instance_id in ids:
            instance = self.fleet.instances[instance_id]
            assert instance.governance.stoppable, (name, instance_id)
            if name in ("start", "exit_standby"):
                self.check_return(name, instance)
            else:
                self.check_stop(name, instance)

    def check_stop(self, name: str, instance: Instance) -> None:
        instance_id = instance.instance_id
        controls = parse_controls(self.controls.texts, self.now)
        assert self.budget.mode is Mode.ENFORCE
        assert controls.keep_of(instance_id, self.now) is None
        assert controls.override_of_budget(self.now, self.budgets.spent) is None
        assert controls.override_of(instance_id, "", self.now, self.budgets.spent) is None
        assert not instance.stop_protected
        assert instance.family in self.budget.stop_families
        if instance.owner:
            group = self.fleet.group(instance.owner)
            members = [self.fleet.instances[i] for i, state in group.members if not state.startswith("Terminat")]
            assert all(member.governance.stoppable for member in members)
            state = group.state_of(instance_id)
            assert state == ("Standby" if name == "stop" else "InService"), (name, instance_id)
        if name == "enter_standby":
            self.standing.add(instance_id)
        if name == "terminate":
            assert self.budget.terminate_one_time_spot is Switch.ON
        self.ours[instance_id] = instance.launched_at
        self.touched.discard(instance_id)

    def check_return(self, name: str, instance: Instance) -> None:
        instance_id = instance.instance_id
        entries = [e for e in self.entries() if e.instance_id == instance_id]
        if name == "start":
            assert instance.state is InstanceState.STOPPED
            assert self.ours.get(instance_id) == instance.launched_at, "not stopped by us, or started since"
            assert instance_id not in self.touched
            assert not [e for e in entries if e.reason != "budget" and e.status is StopStatus.STOPPED]
        else:
            assert instance_id in self.standing
            assert instance.state is InstanceState.RUNNING

    def entries(self) -> list[StopEntry]:
        return [records.entry_of(r) for k, r in self.store.records.items() if k.pk == records.LEDGER]

    # --- Faults -------------------------------------------------------------------------------------------------------

    def maybe_crash(self, call: str) -> None:
        if self.crash_in:
            self.crash_in -= 1
            if self.crash_in == 0:
                raise CrashError(call)

    def maybe_crash_of_store(self, call: str) -> None:
        if call in ("commit", "put_all"):
            self.maybe_crash(call)

    # --- The functions ------------------------------------------------------------------------------------------------

    def guard_deps(self) -> GuardDeps:
        return GuardDeps(
            stage=STAGE,
            home_region="eu-west-1",
            account_id="123456789012",
            budget_name="gpu",
            store=self.store,
            fleet=self.fleet,
            actions=self.fleet,
            commands=self.commands,
            budgets=self.budgets,
            controls=self.controls,
            prices=PRICES,
            clock=lambda: self.now,
            sleep=lambda _: None,
        )

    def confirm_deps(self) -> ConfirmDeps:
        return ConfirmDeps(
            stage=STAGE,
            home_region="eu-west-1",
            budget_name="gpu",
            store=self.store,
            fleet=self.fleet,
            actions=self.fleet,
            controls=self.controls,
            clock=lambda: self.now,
            sleep=lambda _: None,
        )

    def run_guard(self, event: dict[str, Any]) -> None:
        """One delivery and, after a crash, one more, as Lambda does."""
        self.events = [*self.events[-4:], event]
        for _ in range(2):
            try:
                budget_guard.run(self.guard_deps(), read_trigger(event, lambda: self.now))
                return
            except CrashError:
                self.store.leases.clear()  # its time runs out before anybody else takes it
        self.crash_in = 0

    def run_confirm(self) -> None:
        event = {"source": "governor.schedule", "time": self.now.isoformat(), "id": "confirm"}
        for _ in range(2):
            try:
                confirm_actions.run(self.confirm_deps(), read_trigger(event, lambda: self.now))
                return
            except CrashError:
                self.store.leases.clear()
        self.crash_in = 0

    def configure(self, changed: BudgetSettings, edited: str = "") -> None:
        self.version += 1
        self.budget = changed
        edits = {edited: {"at": self.now.isoformat(), "by": "someone", "before": "", "version": self.version}}
        body = {
            "version": self.version,
            "read_at": self.now.isoformat(),
            "schema": "",
            "values": as_texts(Settings(budget=changed)),
            "edits": edits if edited else {},
        }
        self.store.records[Key("settings", "current")] = Record(Key("settings", "current"), body)

    # --- What happens -------------------------------------------------------------------------------------------------

    @initialize(
        policy=st.sampled_from(StopPolicy),
        action=st.sampled_from(GroupAction),
        spot=st.sampled_from(Switch),
        back=st.sampled_from(RestoreAtPeriod),
        grace=st.sampled_from([0, 5]),
        early=st.sampled_from([None, 85.0]),
    )
    def begin(
        self,
        policy: StopPolicy,
        action: GroupAction,
        spot: Switch,
        back: RestoreAtPeriod,
        grace: int,
        early: float | None,
    ) -> None:
        self.configure(
            some_settings(
                limit_usd=20_000.0,
                stop_policy=policy,
                group_action=action,
                terminate_one_time_spot=spot,
                restore_at_period=back,
                grace_minutes=grace,
                stop_preemptible_percent=early,
                manual_start_grace_hours=2,
            )
        )
        self.tick(5)

    @rule(minutes=st.sampled_from([1, 5, 5, 5, 16, 61, 600, 3000]))
    def tick(self, minutes: int) -> None:
        """Time passes, and the schedules run."""
        self.now += timedelta(minutes=minutes)
        self.run_guard({"source": "governor.schedule", "time": self.now.isoformat(), "id": f"g{self.now}"})
        self.run_confirm()

    @rule()
    def aws_settles(self) -> None:
        """What is under way in EC2 and Auto Scaling comes to its end, and its events arrive."""
        self.fleet.settle()
        self.now += timedelta(seconds=30)
        self.run_confirm()

    @rule(which=st.integers(0, 3))
    def an_event_comes_twice_or_late(self, which: int) -> None:
        if self.events:
            self.run_guard(self.events[which % len(self.events)])

    @rule(percent=st.sampled_from([10, 82, 88, 94, 96, 97, 99, 99, 130]))
    def the_spend_moves(self, percent: int) -> None:
        self.budgets.spent = 20_000.0 * percent / 100

    @rule(percent=st.sampled_from([96, 97, 99]), ticks=st.integers(1, 4), settles=st.booleans())
    def the_stop_level_is_reached(self, percent: int, ticks: int, settles: bool) -> None:
        self.budgets.spent = self.budget.limit_usd * percent / 100
        for _ in range(ticks):
            self.tick(5)
            if settles:
                self.aws_settles()

    @rule(settles=st.booleans())
    def somebody_clears_the_way_and_it_is_reached(self, settles: bool) -> None:
        self.controls.texts = {"pause": "off"}
        self.configure(replace(self.budget, mode=Mode.ENFORCE))
        self.the_stop_level_is_reached(97, 3, settles)

    @rule()
    def the_budget_cannot_be_read(self) -> None:
        self.budgets.spent = None

    @rule(percent=st.sampled_from([60.0, 95.0, 98.0]), confirm=st.sampled_from([0, 10]))
    def somebody_edits_the_threshold(self, percent: float, confirm: int) -> None:
        early = None if self.budget.stop_preemptible_percent is None or percent < 85 else 85.0
        changed = replace(
            self.budget,
            stop_percent=percent,
            warn_percent=50.0,
            confirm_minutes=confirm,
            stop_preemptible_percent=early,
        )
        self.configure(changed, "budget/stop-percent")

    @rule(limit=st.sampled_from([10_000.0, 20_000.0, 40_000.0, 400_000.0]))
    def somebody_edits_the_limit(self, limit: float) -> None:
        self.configure(replace(self.budget, limit_usd=limit), "budget/limit-usd")

    @rule(mode=st.sampled_from([*[Mode.ENFORCE] * 4, Mode.OBSERVE, Mode.OFF]))
    def somebody_changes_the_mode(self, mode: Mode) -> None:
        self.configure(replace(self.budget, mode=mode))

    @rule(action=st.sampled_from(GroupAction), policy=st.sampled_from(StopPolicy))
    def somebody_changes_the_policy(self, action: GroupAction, policy: StopPolicy) -> None:
        self.configure(replace(self.budget, group_action=action, stop_policy=policy))

    @rule(index=st.integers(0, 20), hours=st.sampled_from([1, 12]))
    def somebody_keeps_one(self, index: int, hours: int) -> None:
        instance_id = sorted(self.fleet.instances)[index % len(self.fleet.instances)]
        self.controls.put(f"keep/{instance_id}", format_keep(self.now + timedelta(hours=hours)))

    @rule()
    def somebody_lifts_all_keeps(self) -> None:
        self.controls.texts = {k: v for k, v in (self.controls.texts or {}).items() if not k.startswith("keep/")}

    @rule(hours=st.sampled_from([1, 30]))
    def somebody_overrides_the_budget(self, hours: int) -> None:
        self.controls.put("override/budget", format_override("budget", until=self.now + timedelta(hours=hours)))

    @rule()
    def somebody_lifts_the_override(self) -> None:
        self.controls.delete("override/budget")

    @rule(text=st.sampled_from(["on", "off", "off", "off", "off", "nonsense"]))
    def somebody_pauses(self, text: str) -> None:
        self.controls.put("pause", text)

    @rule(index=st.integers(0, 20))
    def somebody_starts_a_stopped_one(self, index: int) -> None:
        stopped = sorted(i for i, one in self.fleet.instances.items() if one.state is InstanceState.STOPPED)
        if stopped:
            instance_id = stopped[index % len(stopped)]
            instance = self.fleet.instances[instance_id]
            self.fleet.add(replace(instance, state=InstanceState.RUNNING, launched_at=self.now))
            self.touched.add(instance_id)

    @rule(index=st.integers(0, 20))
    def somebody_stops_a_running_one(self, index: int) -> None:
        running = sorted(
            i for i, one in self.fleet.instances.items() if one.state is InstanceState.RUNNING and not one.owner
        )
        if running:
            instance_id = running[index % len(running)]
            self.fleet.add(replace(self.fleet.instances[instance_id], state=InstanceState.STOPPED))
            self.touched.add(instance_id)

    @rule(index=st.integers(0, 20), word=st.sampled_from(["critical", "standard"]))
    def somebody_retags_one(self, index: int, word: str) -> None:
        instance_id = sorted(self.fleet.instances)[index % len(self.fleet.instances)]
        instance = self.fleet.instances[instance_id]
        fresh = an_instance(instance_id, criticality=word)
        self.fleet.add(replace(instance, governance=fresh.governance, tags=fresh.tags))

    @rule(index=st.integers(0, 20))
    def another_reason_holds_one(self, index: int) -> None:
        mine = [e for e in self.entries() if e.reason == "budget" and e.status is StopStatus.STOPPED]
        if mine:
            entry = replace(mine[index % len(mine)], reason="quota")
            record = records.ledger_record(entry)
            self.store.records[record.key] = record

    @rule()
    def the_other_reason_is_over(self) -> None:
        for key in [k for k in self.store.records if k.pk == records.LEDGER and "#quota#" in k.sk]:
            del self.store.records[key]

    @rule(index=st.integers(0, 20))
    def somebody_asks_one_back(self, index: int) -> None:
        instance_id = sorted(self.fleet.instances)[index % len(self.fleet.instances)]
        self.now += timedelta(seconds=1)
        detail = {"instances": [instance_id], "by": "arn:aws:iam::123456789012:user/ops"}
        event = {"source": "governor.restore", "time": self.now.isoformat(), "id": f"r{self.now}", "detail": detail}
        self.run_guard(event)
        self.run_confirm()

    @rule(percent=st.sampled_from([1, 3]), readable=st.booleans())
    def a_new_month_begins(self, percent: int, readable: bool) -> None:
        """Two days into it, AWS Budgets shows little; sometimes people had let the restore run by itself."""
        first = (self.now.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self.now = first + timedelta(hours=1)
        self.run_guard({"source": "governor.schedule", "time": self.now.isoformat(), "id": f"g{self.now}"})
        self.now = first + timedelta(hours=40)
        self.budgets.spent = self.budget.limit_usd * percent / 100 if readable else self.budgets.spent
        self.tick(5)

    @rule()
    def some_ticks_in_which_everything_settles(self) -> None:
        for _ in range(4):
            self.tick(5)
            self.aws_settles()

    @rule()
    def somebody_asks_everything_back(self) -> None:
        self.now += timedelta(seconds=1)
        detail = {"all": True, "by": "arn:aws:iam::123456789012:user/ops"}
        event = {"source": "governor.restore", "time": self.now.isoformat(), "id": f"r{self.now}", "detail": detail}
        self.run_guard(event)
        self.run_confirm()

    @rule(calls=st.integers(1, 12))
    def the_next_run_dies(self, calls: int) -> None:
        self.crash_in = calls

    @rule(index=st.integers(0, 20), reason=st.sampled_from(["InsufficientInstanceCapacity: no", ""]))
    def a_call_is_refused(self, index: int, reason: str) -> None:
        instance_id = sorted(self.fleet.instances)[index % len(self.fleet.instances)]
        if reason:
            self.fleet.refuse[instance_id] = reason
        else:
            self.fleet.refuse.clear()

    @rule(why=st.sampled_from(["", "", "", "eu-west-1: RequestLimitExceeded"]))
    def facts_cannot_be_read(self, why: str) -> None:
        self.fleet.unreadable = why

    @rule(slow=st.booleans())
    def standby_takes_its_time(self, slow: bool) -> None:
        self.fleet.slow_standby = slow

    @invariant()
    def at_most_one_return_by_itself_an_instance_and_month(self) -> None:
        by_itself = [
            (e.instance_id, f"{e.restore_asked_at:%Y-%m}", e.launched_at)
            for e in self.entries()
            if e.restore_asked_at is not None
            and e.restore_asked_by.startswith(("period", "limit"))
            and e.reason == "budget"
        ]
        once = {(instance_id, month) for instance_id, month, _ in by_itself}
        assert len(once) == len(by_itself), by_itself

    def teardown(self) -> None:
        """Once the faults cease, everything comes to its end."""
        self.crash_in = 0
        self.fleet.refuse.clear()
        self.fleet.unreadable = ""
        self.fleet.slow_standby = False
        self.controls.texts = {"pause": "off"}
        self.budgets.spent = self.budget.limit_usd * 0.97 if self.budgets.spent is None else self.budgets.spent
        self.configure(replace(self.budget, mode=Mode.ENFORCE))
        for _ in range(40):
            self.now += timedelta(minutes=6)
            self.run_guard({"source": "governor.schedule", "time": self.now.isoformat(), "id": f"g{self.now}"})
            self.fleet.settle()
            self.run_confirm()
        under_way = {StopStatus.INTENDED, StopStatus.ACCEPTED, StopStatus.RESTORING, StopStatus.STARTING}
        late = [
            (e.instance_id, e.status, e.detail, e.method)
            for e in self.entries()
            if e.status in under_way and e.reason == "budget" and self.now - e.updated_at > STOP_PATIENCE
        ]
        blocked = {i for i, one in self.fleet.instances.items() if not one.governance.stoppable}
        assert [one for one in late if one[0] not in blocked] == []
        self.groups_are_consistent()

    def groups_are_consistent(self) -> None:
        """A group whose members are all in service has its sizes back."""
        group = self.fleet.group("workers")
        open_holds = [r for k, r in self.store.records.items() if k.pk == records.GROUP_HOLDS]
        holds = [h for h in (records.group_hold_of(r) for r in open_holds) if h.open]
        standing = [i for i, state in group.members if state == "Standby"]
        if not standing and not [e for e in self.entries() if e.method == "lower"]:
            assert group.min_size == 2, (group, holds)
            assert group.desired == 3, (group, holds)
        if holds:
            ours = [e.instance_id for e in self.entries() if e.group == "workers"]
            assert standing or ours, holds


GuardMachine.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestGuardMachine = GuardMachine.TestCase
