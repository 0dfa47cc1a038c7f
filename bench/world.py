"""A guard on in-memory ports with a fleet of any size, the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from governor.aws.catalogue import load_catalogue
from governor.domain.fleet import Instance, InstanceKind, InstanceState
from governor.domain.settings import BudgetSettings, Mode, Settings, as_texts
from governor.domain.tags import TagKeys, read_governance
from governor.ports import Key, Record
from governor.shell.budget_guard import GuardDeps
from tests.fakes.commands import FakeCommands
from tests.fakes.fleet import FakeBudgets, FakeControls, FakeFleet
from tests.fakes.records import InMemoryRecords

STAGE = "bench"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
EVENT = {"source": "governor.schedule", "time": NOW.isoformat()}
TYPES = ("p4d.24xlarge", "g4dn.xlarge", "g5.xlarge", "g6e.12xlarge")
CRITICALITIES = ("standard", "preemptible", "critical")


def make_fleet(size: int) -> FakeFleet:
    """`size` running instances of four types; a tenth is not managed, a third of the rest is critical."""
    fleet = FakeFleet()
    keys = TagKeys()
    for number in range(size):
        tags = [("Name", f"node-{number}"), (keys.project, f"project-{number % 20}")]
        if number % 10:
            tags += [(keys.managed, STAGE), (keys.criticality, CRITICALITIES[number % 3])]
        fleet.add(
            Instance(
                instance_id=f"i-{number:017x}",
                region="eu-west-1",
                instance_type=TYPES[number % 4],
                state=InstanceState.RUNNING,
                launched_at=NOW - timedelta(hours=number % 500),
                kind=InstanceKind.PLAIN,
                governance=read_governance(tags, keys, STAGE),
                name=f"node-{number}",
                tags=tuple(sorted(tags)),
                stop_protected=False,
            )
        )
    return fleet


def make_deps(size: int, spent_usd: float, clock: Callable[[], datetime] = lambda: NOW) -> GuardDeps:
    """Dependencies of an armed guard with `size` instances and `spent_usd` of 1000 USD spent."""
    store = InMemoryRecords()
    settings = Settings(budget=BudgetSettings(mode=Mode.ENFORCE, grace_minutes=0, confirm_minutes=0))
    body = {
        "version": 1,
        "read_at": NOW.isoformat(),
        "schema": "",
        "values": as_texts(settings),
        "edits": {},
    }
    store.put_all([Record(Key("settings", "current"), body)])
    fleet = make_fleet(size)
    return GuardDeps(
        stage=STAGE,
        home_region="eu-west-1",
        account_id="123456789012",
        budget_name="gpu",
        store=store,
        fleet=fleet,
        actions=fleet,
        commands=FakeCommands(),
        budgets=FakeBudgets(spent_usd),
        controls=FakeControls(),
        prices=load_catalogue(),
        clock=clock,
    )
