"""What people let the command change of a resource, and what of it may be put back.

Every change is a layer over what was there before it. A layer is recorded before its change is made, and put back only
while the resource still holds what the layer has set: a value of somebody else is a finding, never overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

SUSPENDED = "suspended"
"""What a suspended process of a group holds; a running one holds nothing (None)."""

TAG_WHY = "tag"
"""Reason of the changes that `governor tag` makes."""


_ADOPT = "adopt "


def adopt_why(region: str, group: str) -> str:
    """Reason of the changes that the adoption of a group makes."""
    return f"{_ADOPT}{region} {group}"


def group_of_why(why: str) -> tuple[str, str] | None:
    """(Region, name) of the group whose adoption is the reason; None for other reasons."""
    if not why.startswith(_ADOPT):
        return None
    region, _, group = why.removeprefix(_ADOPT).partition(" ")
    return region, group


class PlaceKind(StrEnum):
    """What of a resource is changed."""

    TAG = "tag"
    PROCESS = "process"


class ResourceKind(StrEnum):
    """What a resource is."""

    INSTANCE = "instance"
    GROUP = "group"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One tag of one resource (`name` is its key), or one process of one Auto Scaling group (`name` is its name)."""

    kind: PlaceKind
    region: str
    resource: str
    name: str
    resource_kind: ResourceKind = ResourceKind.INSTANCE

    @property
    def goes_on(self) -> bool:
        """True for a tag of a group, which new members get too."""
        return self.kind is PlaceKind.TAG and self.resource_kind is ResourceKind.GROUP

    @property
    def words(self) -> str:
        """The place for people."""
        what = "tag" if self.kind is PlaceKind.TAG else "process"
        return f"{what} {self.name} of {self.resource_kind.value} {self.resource} in {self.region}"


@dataclass(frozen=True, slots=True)
class Value:
    """What a place holds (None: nothing); `propagates` is PropagateAtLaunch of a tag of a group, None elsewhere."""

    text: str | None
    propagates: bool | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One change of a place: its value before and after, when (aware UTC), by whom (ARN) and why.

    `propagated` is what a tag of a group said of PropagateAtLaunch before; afterwards it is always true. `members` are
    the instances that the group had then: later ones got the tag from the group.
    """

    before: str | None
    after: str | None
    at: datetime
    by: str
    why: str
    propagated: bool | None = None
    members: tuple[str, ...] = ()

    def was_before(self, value: Value) -> bool:
        """True where the place holds what it held before: the change was never made, or was taken back."""
        return value.text == self.before and self.propagated in (None, value.propagates)

    def is_after(self, value: Value) -> bool:
        """True where the place holds what we have set."""
        return value.text == self.after and value.propagates is not False


@dataclass(frozen=True, slots=True)
class Taken:
    """A place and what we changed of it, oldest layer first; none left: everything was put back."""

    place: Place
    layers: tuple[Layer, ...] = ()
    ended_at: datetime | None = None

    def has(self, whys: frozenset[str] | None) -> bool:
        """True where something was changed for one of these reasons (None: for any)."""
        return any(_is_of(layer, whys) for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a place should hold; for a tag of a group also the members that it has now."""

    place: Place
    text: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A place that does not yet hold what is wanted, and what it holds."""

    wanted: Wanted
    before: Value

    @property
    def place(self) -> Place:
        """The place."""
        return self.wanted.place


@dataclass(frozen=True, slots=True)
class PutBack:
    """What giving one place back comes to: what it holds, what it is set to, and what is left of the record.

    `writes` is False where nothing has to be set. `finding` says what somebody else changed, which is left to them;
    `gone` that the resource no longer exists.
    """

    place: Place
    before: Value
    target: Value
    writes: bool
    left: Taken
    finding: str = ""
    gone: bool = False


def changes_of(wanted: Iterable[Wanted], present: Mapping[Place, Value]) -> tuple[Change, ...]:
    """What has to change, in order; places that hold it already are left out, and so are resources that are gone.

    A tag of a group counts only where it goes on to new members.
    """
    seen = ((one, present[one.place]) for one in wanted if one.place in present)
    return tuple(Change(one, now) for one, now in seen if now.text != one.text or now.propagates is False)


def record_change(change: Change, known: Taken | None, now: datetime, by: str, why: str) -> Taken:
    """The record to store before `change` is made.

    A layer that was never made, or was taken back, is replaced. Where somebody else changed the place since, their
    value is what was before, and older layers have come to their end. Every other layer stays below.
    """
    wanted, layers = change.wanted, known.layers if known is not None else ()
    layer = Layer(change.before.text, wanted.text, now, by, why, change.before.propagates, wanted.members)
    return Taken(change.place, (*(_standing(layers, change.before) or ()), layer))


def put_back(taken: Taken, present: Value | None, whys: frozenset[str] | None, now: datetime) -> PutBack | None:
    """How to put back what was changed for one of `whys` (None: for any reason). None where nothing was.

    `present` is None where the resource no longer exists. Layers come off from the newest on, each only while the place
    holds what it has set; a newer layer of another reason keeps those below it.
    """
    if not taken.has(whys):
        return None
    place = taken.place
    if present is None:
        left = tuple(layer for layer in taken.layers if not _is_of(layer, whys))
        return PutBack(place, Value(None), Value(None), False, _left(place, left, now), gone=True)
    value, layers, finding = present, taken.layers, ""
    while layers:
        standing = _standing(layers, value)
        if standing is None:
            finding = _changed_by_others(place, layers[-1], value) if _is_of(layers[-1], whys) else ""
            break
        if not standing or not _is_of(standing[-1], whys):
            layers = standing
            break
        value, layers = Value(standing[-1].before, standing[-1].propagated), standing[:-1]
    left_over = _left(place, layers, now)
    if not finding and left_over.has(whys):
        finding = f"{place.words} was changed again since ({layers[-1].why}); take that back first"
    return PutBack(place, present, value, value != present, left_over, finding)


def inherited(group: Iterable[Taken], member_id: str, known: Mapping[Place, Taken]) -> tuple[Taken, ...]:
    """What a later member of a group got from the tags that we gave the group, below what is recorded for itself.

    Without our change it would carry what the group's tag said before, where that went on to new members. Where its
    own record began with another value, it never got the tag, or somebody changed it since: that is not counted.
    """
    found = []
    for one in group:
        if not one.place.goes_on:
            continue
        place = Place(PlaceKind.TAG, one.place.region, member_id, one.place.name)
        layers = tuple(
            Layer(layer.before if layer.propagated else None, layer.after, layer.at, layer.by, layer.why)
            for layer in one.layers
            if member_id not in layer.members
        )
        recorded = known[place].layers if place in known else ()
        own = tuple(layer for layer in recorded if layer not in layers)
        if layers and (not own or own[0].before == layers[-1].after):
            found.append(Taken(place, (*layers, *own)))
    return tuple(found)


def _is_of(layer: Layer, whys: frozenset[str] | None) -> bool:
    return whys is None or layer.why in whys


def _standing(layers: tuple[Layer, ...], value: Value) -> tuple[Layer, ...] | None:
    """Layers that are made while the place holds `value`; None where somebody else has set it.

    Where it holds what a layer found, that one and all above it were never made, or were taken back: by hand, or by a
    way back that was cut off before its record.
    """
    if not layers or layers[-1].is_after(value):
        return layers
    for number in reversed(range(len(layers))):
        if layers[number].was_before(value):
            return layers[:number]
    return None


def describe(text: str | None) -> str:
    """A value for people."""
    return "nothing" if text is None else repr(text)


def _changed_by_others(place: Place, layer: Layer, value: Value) -> str:
    goes_on = " and does not go on to new members" if value.text == layer.after else ""
    return (
        f"{place.words} holds {describe(value.text)}{goes_on}, we had set {describe(layer.after)} "
        f"(before that {describe(layer.before)}); it is left as it is"
    )


def _left(place: Place, layers: tuple[Layer, ...], now: datetime) -> Taken:
    return Taken(place, layers, None if layers else now)
