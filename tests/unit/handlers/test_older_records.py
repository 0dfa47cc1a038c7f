"""The records of the version before `restore` are read: what was stopped stays so, edits stay, and it can come back.

`records/before_restore.json` is the state table as that version wrote it in five runs: three machines stopped and seen
so, two whose stop EC2 has just accepted, one critical machine that runs, and stop-percent edited to 90.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from governor.aws.state_table import record_of_item
from governor.domain.fleet import InstanceState
from governor.domain.ledger import StopStatus
from governor.shell.budget_guard import RESTORE_SOURCE, load_ledger
from governor.shell.settings import load_snapshot
from lambdas.confirm_actions.handler import handler as confirm
from lambdas.guard_budget.handler import handler as guard
from tests.builders import an_instance
from tests.unit.handlers.test_confirm_actions import ALICE, World

RECORDS = Path(__file__).parent / "records" / "before_restore.json"
LAST_RUN = datetime(2026, 11, 20, 12, 15, 1, 591478, tzinfo=UTC)
REGION = "us-east-1"
CRITICAL = "i-0000000000000000c"
SEEN = ("i-0000000000000000a", "i-0000000000000000b", "i-0000000000000000d")
UNDERWAY = ("i-0000000000000000e", "i-0000000000000000f")


@pytest.fixture
def world() -> World:
    """That table, and the fleet as it stands five minutes after its last run."""
    made = World(at=LAST_RUN + timedelta(minutes=5))
    made.store.put_all([record_of_item(item) for item in json.loads(RECORDS.read_text())])
    entries, _ = load_ledger(made.store)
    for entry in entries:
        made.fleet.add(
            an_instance(
                entry.instance_id,
                instance_type=entry.instance_type,
                region=REGION,
                state=InstanceState.STOPPED,
                launched_at=entry.launched_at,
            )
        )
    made.fleet.add(an_instance(CRITICAL, region=REGION, criticality="critical"))
    made.budgets.spent = 960
    return made


def event(at: datetime, **more: object) -> dict[str, object]:
    return {"source": "governor.schedule", "time": at.isoformat(), **more}


def test_the_settings_stay_in_force_with_defaults_for_what_is_new(world: World) -> None:
    snapshot = load_snapshot(world.store)
    assert snapshot is not None
    budget = snapshot.settings.budget
    assert (budget.stop_percent, budget.mode.value, budget.wave_percent) == (90.0, "enforce", 50)


def test_what_was_stopped_stays_so_and_is_not_told_again(world: World) -> None:
    before = set(world.store.records)
    confirm(event(world.at), None, world.deps)
    guard(event(world.at), None, world.guard_deps)
    assert world.fleet.calls == []
    statuses = {entry.instance_id: entry.status for entry in load_ledger(world.store)[0]}
    assert statuses == dict.fromkeys((*SEEN, *UNDERWAY), StopStatus.STOPPED)
    told = [key.pk for key in world.store.records if key not in before and key.pk.startswith("message#")]
    assert told
    assert all("#stops-seen#" in name for name in told), "only the outcome of the two that were under way"


def test_all_of_it_can_be_brought_back_and_nothing_else(world: World) -> None:
    confirm(event(world.at), None, world.deps)
    detail = {"instances": [], "decision_id": "", "all": True, "by": ALICE}
    asked = {"source": RESTORE_SOURCE, "id": "one", "detail-type": "Restore Wanted", "detail": detail}
    answer = guard({**event(world.at), **asked}, None, world.guard_deps)
    assert set(answer["restores"]) == {*SEEN, *UNDERWAY}
    confirm(event(world.at), None, world.deps)
    world.fleet.settle()
    world.at += timedelta(minutes=5)
    confirm(event(world.at), None, world.deps)
    started = {one for name, _, ids in world.fleet.calls if name == "start" for one in ids}
    assert started == {*SEEN, *UNDERWAY}
    states = {one.instance_id: one.state for one in world.fleet.instances.values()}
    assert set(states.values()) == {InstanceState.RUNNING}
