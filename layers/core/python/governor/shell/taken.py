"""Taking resources in and giving them back, in small batches: first the record of what was before, then the change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pydantic import TypeAdapter

from governor.domain.taken import (
    Change,
    Place,
    PlaceKind,
    PutBack,
    Taken,
    Value,
    Wanted,
    changes_of,
    put_back,
    record_change,
)
from governor.ports import Key, Record, RecordStore, Write
from governor.shell.records import expiry

TAKEN = "taken"
PLACES_PER_BATCH = 24
"""A crash leaves at most so many places recorded but not changed, and an error message is about so many."""

_TAKEN: TypeAdapter[Taken] = TypeAdapter(Taken)


@dataclass(frozen=True, slots=True)
class Step:
    """A place, what it holds, and what it is set to (nothing: removed)."""

    place: Place
    before: Value
    target: Value


class Places(Protocol):
    """Tags of instances and groups, and processes of groups."""

    def read(self, places: Iterable[Place]) -> Mapping[Place, Value]:
        """What each holds now; places of resources that are gone are left out. Raises botocore's errors."""
        ...

    def write(self, steps: Sequence[Step]) -> None:
        """Set places, in as few calls as go. Raises botocore's errors."""
        ...


def taken_record(taken: Taken) -> Record:
    """What was changed of a place; one that was put back expires after a while."""
    place = taken.place
    sort = f"{place.kind.value}#{place.region}#{place.resource}#{place.name}"
    expires = expiry(taken.ended_at) if taken.ended_at is not None else None
    return Record(Key(TAKEN, sort), _TAKEN.dump_python(taken, mode="json"), expires_at=expires)


def taken_of(record: Record) -> Taken:
    """What was changed of a place. Raises pydantic.ValidationError for a record that is none."""
    return _TAKEN.validate_python(record.body)


def load_taken(store: RecordStore) -> dict[Place, Taken]:
    """Everything that was ever taken and is not yet forgotten, by place."""
    found = (taken_of(record) for record in store.query(TAKEN))
    return {taken.place: taken for taken in found}


class ChangedMeanwhileError(Exception):
    """A place no longer holds what the person saw who said yes; the text names resource, tag and value."""


def take(
    store: RecordStore,
    places: Places,
    wanted: Sequence[Wanted],
    *,
    shown: Mapping[Place, Value],
    now: datetime,
    by: str,
    why: str,
) -> tuple[Change, ...]:
    """Set what is wanted, each batch recorded before it is changed; what was changed. Safe to repeat after a crash.

    `shown` is what each place held when a person agreed. Raises ChangedMeanwhileError where one holds something else
    now (it may say `critical`), and botocore's errors; batches before the error are done and recorded.
    """
    known = load_taken(store)
    done: list[Change] = []
    for start in range(0, len(wanted), PLACES_PER_BATCH):
        batch = wanted[start : start + PLACES_PER_BATCH]
        changes = changes_of(batch, places.read(one.place for one in batch))
        other = [c for c in changes if c.place not in shown or shown[c.place] != c.before]
        if other:
            said = ", ".join(f"{c.place.name} of {c.place.resource} is {c.before.text or 'not set'} now" for c in other)
            raise ChangedMeanwhileError(said)
        records = [record_change(change, known.get(change.place), now, by, why) for change in changes]
        store.commit([Write(taken_record(one)) for one in records])
        places.write([Step(c.place, c.before, Value(c.wanted.text, c.place.goes_on or None)) for c in changes])
        done += changes
    return tuple(done)


def plan_give_back(
    places: Places, taken: Iterable[Taken], whys: frozenset[str] | None, now: datetime
) -> tuple[PutBack, ...]:
    """What giving these back would come to. Reads only. Raises botocore's errors."""
    mine = sorted((one for one in taken if one.has(whys)), key=_order)
    present = places.read(one.place for one in mine)
    planned = (put_back(one, present.get(one.place), whys, now) for one in mine)
    return tuple(one for one in planned if one is not None)


def give_back(
    store: RecordStore, places: Places, taken: Iterable[Taken], whys: frozenset[str] | None, now: datetime
) -> tuple[PutBack, ...]:
    """Put back what still is as we left it; each batch is read again just before. Safe to repeat after a crash.

    What a later member got from its group joins its own record where it has to wait: the group's record may end.
    Raises botocore's errors; batches before the error are done and recorded.
    """
    mine = sorted((one for one in taken if one.has(whys)), key=_order)
    known = load_taken(store)
    done: list[PutBack] = []
    for start in range(0, len(mine), PLACES_PER_BATCH):
        planned = plan_give_back(places, mine[start : start + PLACES_PER_BATCH], whys, now)
        places.write([Step(one.place, one.before, one.target) for one in planned if one.writes])
        left = [one.left for one in planned if one.place in known and one.left.layers != known[one.place].layers]
        store.commit([Write(taken_record(one)) for one in left])
        done += planned
    return tuple(done)


def _order(taken: Taken) -> tuple[int, str, str, str]:
    """Members, then their groups, whose records say what later members got from them; processes last."""
    place = taken.place
    rank = 2 if place.kind is PlaceKind.PROCESS else 1 if place.goes_on else 0
    return rank, place.region, place.resource, place.name
