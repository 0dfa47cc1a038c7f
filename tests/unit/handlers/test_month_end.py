"""The turn of a month with the true lag of AWS Budgets: 8 to 24 hours, and the old month's figure until the refresh."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from governor.domain.fleet import InstanceState
from governor.domain.meter import period_of, period_start
from governor.domain.settings import RestoreAtPeriod, Settings, as_texts
from governor.ports import Key, Record
from governor.shell import budget_guard, confirm_actions
from governor.shell.budget_guard import GuardDeps
from governor.shell.confirm_actions import ConfirmDeps
from governor.shell.events import read_trigger
from tests.builders import PRICES, STAGE, an_instance, some_settings
from tests.fakes.commands import FakeCommands
from tests.fakes.fleet import FakeBudgets, FakeControls, FakeFleet
from tests.fakes.records import InMemoryRecords

BEGIN = datetime(2026, 11, 22, tzinfo=UTC)
TURN = datetime(2026, 12, 1, tzinfo=UTC)
END = datetime(2026, 12, 5, tzinfo=UTC)
LIMIT_USD = 20_000.0
STEP = timedelta(minutes=30)


@dataclass
class Bill:
    """What really was spent, month by month, and what AWS Budgets shows of it: late, and in refreshes."""

    random: random.Random
    true_usd: dict[str, float] = field(default_factory=lambda: {"2026-11": 16_000.0})
    history: list[tuple[datetime, dict[str, float]]] = field(default_factory=list)
    shown: float = 16_000.0
    next_refresh: datetime = BEGIN

    def spend(self, now: datetime, usd: float) -> None:
        """Add to the month of `now`."""
        period = period_of(now)
        self.true_usd[period] = self.true_usd.get(period, 0.0) + usd
        self.history.append((now, dict(self.true_usd)))

    def refresh(self, now: datetime) -> None:
        """Three times a day at most the figure becomes that of 8 to 24 hours ago, in the month that it is then."""
        if now < self.next_refresh:
            return
        self.next_refresh = now + timedelta(hours=self.random.uniform(8, 12))
        seen = now - timedelta(hours=self.random.uniform(8, 24))
        known: dict[str, float] = {"2026-11": 16_000.0}
        for at, figures in self.history:
            if at <= seen:
                known = figures
        self.shown = known.get(period_of(seen), 0.0)


class World:
    """Both functions every few minutes, over the turn of the month."""

    def __init__(self, seed: int, policy: RestoreAtPeriod) -> None:
        self.now = BEGIN
        self.bill = Bill(random.Random(seed))
        self.fleet = FakeFleet(clock=lambda: self.now, regions=("eu-west-1",))
        # One that is critical goes on and on; the others burn what brings November to its stop level.
        self.fleet.add(
            an_instance("i-0c", criticality="critical", launched_at=BEGIN),
            *(an_instance(f"i-0{n}", launched_at=BEGIN) for n in range(4)),
            an_instance("i-0p", instance_type="p4d.24xlarge", launched_at=BEGIN),
        )
        self.budgets = FakeBudgets(self.bill.shown, LIMIT_USD)
        self.store = InMemoryRecords()
        settings = some_settings(limit_usd=LIMIT_USD, restore_at_period=policy, grace_minutes=5, confirm_minutes=10)
        body = {
            "version": 1,
            "read_at": BEGIN.isoformat(),
            "schema": "",
            "values": as_texts(Settings(budget=settings)),
            "edits": {},
        }
        self.store.put_all([Record(Key("settings", "current"), body)])
        self.controls, self.commands = FakeControls(), FakeCommands()
        self.calls: list[tuple[datetime, str, str]] = []

    def rate(self) -> float:
        running = [i for i in self.fleet.instances.values() if i.state is InstanceState.RUNNING]
        return sum(PRICES.usd_per_hour[i.instance_type] for i in running)

    def live(self, until: datetime) -> None:
        while self.now < until:
            self.bill.spend(self.now, self.rate() * STEP.total_seconds() / 3600)
            self.now += STEP
            self.bill.refresh(self.now)
            self.budgets.spent = self.bill.shown
            self.run()

    def run(self) -> None:
        before = len(self.fleet.calls)
        event = {"source": "governor.schedule", "time": self.now.isoformat(), "id": "tick"}
        trigger = read_trigger(event, lambda: self.now)
        budget_guard.run(
            GuardDeps(
                STAGE,
                "eu-west-1",
                "123456789012",
                "gpu",
                self.store,
                self.fleet,
                self.fleet,
                self.commands,
                self.budgets,
                self.controls,
                PRICES,
                lambda: self.now,
                sleep=lambda _: None,
            ),
            trigger,
        )
        for _ in range(2):
            confirm_actions.run(
                ConfirmDeps(
                    STAGE,
                    "eu-west-1",
                    "gpu",
                    self.store,
                    self.fleet,
                    self.fleet,
                    self.controls,
                    lambda: self.now,
                    sleep=lambda _: None,
                ),
                trigger,
            )
            self.fleet.settle()
        self.calls += [(self.now, name, i) for name, _, ids in self.fleet.calls[before:] for i in ids]

    def told(self, part: str) -> list[str]:
        return sorted(k.pk for k in self.store.records if k.sk == "mail" and part in k.pk)


@pytest.mark.parametrize("policy", [RestoreAtPeriod.ALL, RestoreAtPeriod.PROPOSE, RestoreAtPeriod.CRITICAL_FIRST])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_stopped_or_started_at_the_turn_that_a_perfect_observer_would_not(
    seed: int, policy: RestoreAtPeriod
) -> None:
    world = World(seed, policy)
    world.live(TURN)
    stopped = [(name, i) for _, name, i in world.calls if name == "stop"]
    assert {i for _, i in stopped} == {"i-00", "i-01", "i-02", "i-03", "i-0p"}, "November reached its stop level"
    world.live(END)
    in_december = [(at, name, i) for at, name, i in world.calls if at >= TURN]
    # A perfect observer sees a December that is far below every threshold: it stops nothing.
    assert world.bill.true_usd["2026-12"] < 0.8 * LIMIT_USD
    assert [call for call in in_december if call[1] == "stop"] == []
    starts = [i for _, name, i in in_december if name == "start"]
    assert len(starts) == len(set(starts)), "at most one return an instance and month"
    if policy is RestoreAtPeriod.PROPOSE:
        assert starts == []
        assert len(world.told("restore-proposed")) == 1
    else:
        assert set(starts) == {i for _, i in stopped}
        assert world.told("restore-proposed") == []
    assert period_start(END) == TURN


def test_before_the_turn_nothing_comes_back_however_the_figure_wobbles() -> None:
    world = World(3, RestoreAtPeriod.ALL)
    world.live(TURN - timedelta(hours=1))
    assert [call for call in world.calls if call[1] == "start"] == []
