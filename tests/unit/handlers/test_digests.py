"""The digests on their way out: once each, also where a run dies, is delivered twice, or is late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from governor.domain.settings import DigestSettings, Mode, Settings, as_texts
from governor.ports import Key, LeaseHeldError, Record
from tests.builders import an_instance, some_settings
from tests.fakes.fleet import FakeBudgets, FakeControls, FakeFleet
from tests.fakes.records import InMemoryRecords
from tests.unit.handlers.test_guard_budget import World

TURN = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ALL = ["daily#2026-12-01", "monthly#2026-12", "weekly#2026-W49"]


class CrashError(Exception):
    """The function died here."""


def configure(world: World, *, hour_utc: int = 7, mode: Mode = Mode.OBSERVE) -> None:
    """Store what check_settings stores."""
    values = as_texts(Settings(budget=some_settings(mode=mode), digest=DigestSettings(hour_utc)))
    body = {"version": 1, "read_at": TURN.isoformat(), "schema": "", "values": values, "edits": {}}
    world.store.put_all([Record(Key("settings", "current"), body)])


@pytest.fixture
def world() -> World:
    """A guard that has observed since the middle of November, and did not run since Sunday evening."""
    made = World(FakeFleet(), FakeBudgets(100.0), FakeControls(), InMemoryRecords())
    made.fleet.add(an_instance())
    configure(made)
    made.tick(TURN - 15 * 24 * HOUR)
    made.tick(TURN - 28 * HOUR)
    made.budgets.spent = 3.0
    made.store.records = {key: r for key, r in made.store.records.items() if r.outbox != "mail"}
    return made


def digests(world: World) -> list[str]:
    """Kind and period of every digest in the outbox."""
    return sorted(r.key.pk.partition("#digest#")[2] for r in world.mails() if "#digest#" in r.key.pk)


def test_all_that_is_due_goes_out_in_one_run_with_the_hour_of_the_settings(world: World) -> None:
    configure(world, hour_utc=9)
    world.tick(TURN + 9 * HOUR - timedelta(seconds=1))
    # Those of Monday were missed until now.
    assert digests(world) == ["daily#2026-11-30", "weekly#2026-W49"]
    world.tick(TURN + 9 * HOUR)
    assert digests(world) == ["daily#2026-11-30", "daily#2026-12-01", "monthly#2026-12", "weekly#2026-W49"]


def test_the_same_digests_do_not_go_out_again_in_later_runs_and_other_deliveries(world: World) -> None:
    for minutes in (0, 0, 5, 10, 60, 600):
        world.tick(TURN + 7 * HOUR + timedelta(minutes=minutes))
    assert digests(world) == ALL


def test_armed_there_is_no_daily_one(world: World) -> None:
    configure(world, mode=Mode.ENFORCE)
    world.tick(TURN + 7 * HOUR)
    assert digests(world) == ["monthly#2026-12", "weekly#2026-W49"]


def test_switched_off_there_is_none(world: World) -> None:
    configure(world, mode=Mode.OFF)
    world.tick(TURN + 7 * HOUR)
    assert digests(world) == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_run_that_dies_at_a_write_leaves_each_digest_to_be_sent_once(world: World, when: str, number: int) -> None:
    left = number

    def die(call: str) -> None:
        nonlocal left
        left -= call in ("commit", "put_all")
        if left == 0 and call in ("commit", "put_all"):
            raise CrashError(call)

    setattr(world.store, when, die)
    at = TURN + 7 * HOUR
    with pytest.raises(CrashError):
        world.tick(at)
    setattr(world.store, when, lambda call: None)
    world.store.leases.clear()
    sent = {record.key: dict(record.body) for record in world.mails()}
    world.tick(at)
    world.tick(at + timedelta(minutes=5))
    assert digests(world) == ALL
    now = {record.key: dict(record.body) for record in world.mails()}
    assert {key: now[key] for key in sent} == sent, "what was on its way out is not written anew"


def test_digests_whose_memory_was_lost_are_known_by_the_outbox(world: World) -> None:
    memory = world.store.records[Key("run#guard_budget", "state")]
    world.tick(TURN + 7 * HOUR)
    first = {record.key: dict(record.body) for record in world.mails()}
    world.store.records[memory.key] = memory
    world.tick(TURN + 8 * HOUR)
    assert {record.key: dict(record.body) for record in world.mails()} == first
    assert digests(world) == ALL


def test_a_run_that_waits_for_another_sends_nothing_and_the_next_makes_up_for_it(world: World) -> None:
    world.store.take_lease("guard_budget", "another", TURN + 7 * HOUR, 330)
    with pytest.raises(LeaseHeldError):
        world.tick(TURN + 7 * HOUR)
    assert digests(world) == []
    world.tick(TURN + 8 * HOUR)
    assert digests(world) == ALL
