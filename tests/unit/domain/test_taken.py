"""What may be put back: examples of one place, and laws for any sequence of takes by two reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.domain.taken import (
    SUSPENDED,
    TAG_WHY,
    Layer,
    Place,
    PlaceKind,
    ResourceKind,
    Taken,
    Value,
    Wanted,
    adopt_why,
    changes_of,
    describe,
    group_of_why,
    inherited,
    put_back,
    record_change,
)

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
REGION = "us-east-1"
ADOPT = adopt_why(REGION, "workers")
BY = "arn:aws:iam::123456789012:user/alice"
MACHINE = Place(PlaceKind.TAG, REGION, "i-0a", "governor:pool")
GROUP = Place(PlaceKind.TAG, REGION, "workers", "governor:pool", ResourceKind.GROUP)
PROCESS = Place(PlaceKind.PROCESS, REGION, "workers", "AlarmNotification", ResourceKind.GROUP)
ANY = None
TAG = frozenset({TAG_WHY})
ADOPTION = frozenset({ADOPT})


@dataclass
class World:
    """Places with their values, and the records of what was taken; both as the command leaves them."""

    present: dict[Place, Value]
    known: dict[Place, Taken] = field(default_factory=dict)
    now: datetime = START

    def take(self, place: Place, text: str, why: str, *, dies: bool = False, members: tuple[str, ...] = ()) -> None:
        """Record, then change; one that dies has recorded only."""
        self.now += timedelta(minutes=1)
        for change in changes_of([Wanted(place, text, members)], self.present):
            self.known[place] = record_change(change, self.known.get(place), self.now, BY, why)
            if not dies:
                self.present[place] = Value(text, place.goes_on or None)

    def give_back(self, whys: frozenset[str] | None, *, dies: bool = False) -> list[str]:
        """Change, then record; one that dies has changed only. Findings, in words."""
        self.now += timedelta(minutes=1)
        findings = []
        for place, taken in list(self.known.items()):
            step = put_back(taken, self.present.get(place), whys, self.now)
            if step is None:
                continue
            if step.writes:
                self.present[place] = step.target
            if not dies:
                self.known[place] = step.left
            findings += [step.finding] if step.finding else []
        return findings


def a_layer(before: str | None, after: str | None, why: str = TAG_WHY, propagated: bool | None = None) -> Layer:
    return Layer(before, after, START, BY, why, propagated)


# --- One place --------------------------------------------------------------------------------------------------------


def test_the_group_of_an_adoption_is_read_back_from_its_reason_and_no_other_reason_names_one() -> None:
    assert group_of_why(adopt_why("eu-west-1", "my group 1")) == ("eu-west-1", "my group 1")
    assert group_of_why(TAG_WHY) is None


@pytest.mark.parametrize(
    ("place", "goes_on", "words"),
    [
        (MACHINE, False, "tag governor:pool of instance i-0a in us-east-1"),
        (GROUP, True, "tag governor:pool of group workers in us-east-1"),
        (PROCESS, False, "process AlarmNotification of group workers in us-east-1"),
    ],
)
def test_a_place_says_what_it_is_and_only_the_tag_of_a_group_goes_on_to_new_members(
    place: Place, goes_on: bool, words: str
) -> None:
    assert (place.goes_on, place.words) == (goes_on, words)


def test_nothing_and_an_empty_value_read_differently() -> None:
    assert (describe(None), describe("")) == ("nothing", "''")


@pytest.mark.parametrize(
    ("present", "changes"),
    [
        ({MACHINE: Value(None)}, True),
        ({MACHINE: Value("")}, True),
        ({MACHINE: Value("render")}, False),
        ({}, False),
    ],
    ids=["nothing there", "empty", "set already", "gone"],
)
def test_only_what_does_not_hold_what_is_wanted_and_still_exists_is_changed(
    present: dict[Place, Value], changes: bool
) -> None:
    assert bool(changes_of([Wanted(MACHINE, "render")], present)) is changes


@pytest.mark.parametrize(("propagates", "changes"), [(True, False), (False, True)])
def test_a_tag_of_a_group_with_the_wanted_value_is_changed_only_where_it_does_not_go_on(
    propagates: bool, changes: bool
) -> None:
    assert bool(changes_of([Wanted(GROUP, "x")], {GROUP: Value("x", propagates)})) is changes


@pytest.mark.parametrize("before", [Value(None), Value(""), Value("old", True), Value("old", False)])
def test_a_tag_of_a_group_gets_its_value_and_its_propagation_back(before: Value) -> None:
    world = World({GROUP: before})
    world.take(GROUP, "new", TAG_WHY)
    assert world.present == {GROUP: Value("new", True)}
    assert world.give_back(TAG) == []
    assert world.present == {GROUP: before}


def test_a_tag_of_a_group_whose_value_was_right_gets_only_its_propagation_back() -> None:
    world = World({GROUP: Value("same", False)})
    world.take(GROUP, "same", ADOPT)
    assert world.present == {GROUP: Value("same", True)}
    assert world.give_back(ADOPTION) == []
    assert world.present == {GROUP: Value("same", False)}


def test_a_propagation_that_somebody_switched_off_is_a_finding_that_says_so() -> None:
    world = World({GROUP: Value(None)})
    world.take(GROUP, "x", ADOPT)
    world.present[GROUP] = Value("x", False)
    (finding,) = world.give_back(ANY)
    assert "does not go on to new members" in finding
    assert world.present == {GROUP: Value("x", False)}


@pytest.mark.parametrize("theirs", [None, "theirs", ""])
def test_what_somebody_else_changed_is_left_and_named_with_all_three_values(theirs: str | None) -> None:
    world = World({MACHINE: Value("before")})
    world.take(MACHINE, "ours", TAG_WHY)
    world.present[MACHINE] = Value(theirs)
    (finding,) = world.give_back(TAG)
    assert MACHINE.words in finding
    assert all(describe(one) in finding for one in ("before", "ours", theirs))
    assert world.present == {MACHINE: Value(theirs)}
    assert world.known[MACHINE].layers, "it can be tried again"


def test_what_somebody_else_put_back_themselves_is_no_finding_and_comes_to_its_end() -> None:
    world = World({PROCESS: Value(None)})
    world.take(PROCESS, SUSPENDED, ADOPT)
    world.present[PROCESS] = Value(None)
    assert world.give_back(ADOPTION) == []
    assert world.known[PROCESS] == Taken(PROCESS, (), world.now)


def test_a_value_of_somebody_else_is_what_was_before_a_later_take() -> None:
    world = World({MACHINE: Value(None)})
    world.take(MACHINE, "first", TAG_WHY)
    world.present[MACHINE] = Value("theirs")
    world.take(MACHINE, "second", TAG_WHY)
    assert world.give_back(ANY) == []
    assert world.present == {MACHINE: Value("theirs")}


def test_an_older_reason_waits_below_a_newer_one_and_says_which() -> None:
    world = World({MACHINE: Value(None)})
    world.take(MACHINE, "tagged", TAG_WHY)
    world.take(MACHINE, "adopted", ADOPT)
    (finding,) = world.give_back(TAG)
    assert ADOPT in finding
    assert world.present == {MACHINE: Value("adopted")}
    assert world.give_back(ADOPTION) == []
    assert world.present == {MACHINE: Value("tagged")}
    assert world.give_back(TAG) == []
    assert world.present == {MACHINE: Value(None)}


def test_a_newest_reason_is_put_back_even_where_an_older_layer_of_it_has_to_wait() -> None:
    world = World({MACHINE: Value(None)})
    for text, why in (("a", TAG_WHY), ("b", ADOPT), ("c", TAG_WHY)):
        world.take(MACHINE, text, why)
    (finding,) = world.give_back(TAG)
    assert "take that back first" in finding
    assert world.present == {MACHINE: Value("b")}
    assert [layer.after for layer in world.known[MACHINE].layers] == ["a", "b"]


def test_a_resource_that_is_gone_ends_the_layers_of_the_reason_and_keeps_those_of_others() -> None:
    taken = Taken(MACHINE, (a_layer(None, "a"), a_layer("a", "b", ADOPT)))
    of_one = put_back(taken, None, TAG, START)
    of_all = put_back(taken, None, ANY, START)
    assert of_one is not None
    assert of_all is not None
    assert (of_one.gone, of_one.writes, of_one.left) == (True, False, Taken(MACHINE, (a_layer("a", "b", ADOPT),)))
    assert (of_all.gone, of_all.writes, of_all.left) == (True, False, Taken(MACHINE, (), START))


@pytest.mark.parametrize("whys", [TAG, ADOPTION, ANY])
def test_there_is_nothing_to_put_back_of_a_place_that_was_given_back(whys: frozenset[str] | None) -> None:
    assert put_back(Taken(MACHINE, (), START), Value("x"), whys, START) is None


# --- After a crash ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [MACHINE, GROUP, PROCESS])
@pytest.mark.parametrize("crashes", [1, 3])
def test_a_take_that_is_repeated_after_a_crash_adds_no_layer(place: Place, crashes: int) -> None:
    world = World({place: Value(None)})
    for _ in range(crashes):
        world.take(place, "x", TAG_WHY, dies=True)
    world.take(place, "x", TAG_WHY)
    assert [(layer.before, layer.after) for layer in world.known[place].layers] == [(None, "x")]


def test_a_take_that_was_recorded_and_never_made_is_replaced_by_another_wish_and_lower_layers_stay() -> None:
    world = World({MACHINE: Value(None)})
    world.take(MACHINE, "a", TAG_WHY)
    world.take(MACHINE, "b", ADOPT, dies=True)
    world.take(MACHINE, "c", TAG_WHY)
    assert [(layer.before, layer.after, layer.why) for layer in world.known[MACHINE].layers] == [
        (None, "a", TAG_WHY),
        ("a", "c", TAG_WHY),
    ]


def test_members_that_came_between_a_crash_and_the_repeated_take_are_no_later_ones() -> None:
    world = World({GROUP: Value(None)})
    world.take(GROUP, "x", TAG_WHY, dies=True, members=("i-1",))
    world.take(GROUP, "x", TAG_WHY, members=("i-1", "i-2"))
    assert inherited(world.known.values(), "i-2", {}) == ()


# --- Later members ----------------------------------------------------------------------------------------------------


def a_group(*layers: Layer) -> list[Taken]:
    return [Taken(GROUP, layers), Taken(PROCESS, (a_layer(None, SUSPENDED, ADOPT),))]


@pytest.mark.parametrize(
    ("before", "propagated", "without_us"),
    [(None, None, None), ("old", True, "old"), ("old", False, None)],
)
def test_a_later_member_gets_what_it_would_have_without_us(
    before: str | None, propagated: bool | None, without_us: str | None
) -> None:
    (of_member,) = inherited(a_group(a_layer(before, "x", propagated=propagated)), "i-new", {})
    assert of_member.place == Place(PlaceKind.TAG, REGION, "i-new", "governor:pool")
    step = put_back(of_member, Value("x"), ANY, START)
    assert step is not None
    assert (step.writes, step.target, step.finding) == (without_us != "x", Value(without_us), "")


def test_a_member_of_then_inherits_only_from_changes_that_came_before_it() -> None:
    first = Layer(None, "a", START, BY, TAG_WHY, None, ("i-1",))
    second = Layer("a", "b", START, BY, TAG_WHY, True, ("i-1", "i-2"))
    assert inherited(a_group(first, second), "i-1", {}) == ()
    (of_second,) = inherited(a_group(first, second), "i-2", {})
    assert [(layer.before, layer.after) for layer in of_second.layers] == [(None, "a")]


def test_what_was_recorded_for_a_later_member_itself_comes_off_first_and_then_what_it_got_from_its_group() -> None:
    own = Taken(Place(PlaceKind.TAG, REGION, "i-new", "governor:pool"), (a_layer("x", "y", ADOPT),))
    (of_member,) = inherited(a_group(a_layer(None, "x")), "i-new", {own.place: own})
    assert [(layer.before, layer.after) for layer in of_member.layers] == [(None, "x"), ("x", "y")]
    whole = put_back(of_member, Value("y"), ANY, START)
    blocked = put_back(of_member, Value("y"), TAG, START)
    assert whole is not None
    assert blocked is not None
    assert (whole.target, whole.left.layers) == (Value(None), ())
    assert (blocked.writes, blocked.finding != "") == (False, True)


def test_what_a_later_member_got_from_its_group_counts_once_where_it_has_been_recorded_for_it() -> None:
    (once,) = inherited(a_group(a_layer(None, "x")), "i-new", {})
    assert inherited(a_group(a_layer(None, "x")), "i-new", {once.place: once}) == (once,)


def test_a_member_whose_own_record_began_with_another_value_never_got_the_tag_of_the_group() -> None:
    own = Taken(Place(PlaceKind.TAG, REGION, "i-new", "governor:pool"), (a_layer("theirs", "y"),))
    assert inherited(a_group(a_layer(None, "x")), "i-new", {own.place: own}) == ()


# --- Laws -------------------------------------------------------------------------------------------------------------

PLACES = (MACHINE, GROUP, PROCESS)
TEXTS = st.sampled_from(["a", "b", "c"])
WHYS = st.sampled_from([TAG_WHY, ADOPT])
TAKES = st.lists(st.tuples(st.sampled_from(PLACES), TEXTS, WHYS, st.booleans()), max_size=8)


@st.composite
def worlds(draw: st.DrawFn) -> dict[Place, Value]:
    texts = st.sampled_from([None, "", "a", "b"])
    of_group = draw(texts)
    return {
        MACHINE: Value(draw(texts)),
        GROUP: Value(of_group, None if of_group is None else draw(st.booleans())),
        PROCESS: Value(draw(texts)),
    }


def take_all(world: World, takes: Sequence[tuple[Place, str, str, bool]]) -> None:
    for place, text, why, dies in takes:
        world.take(place, text, why, dies=dies)


@given(worlds(), TAKES)
def test_giving_everything_back_makes_the_world_what_it_was_whatever_was_taken_and_cut_off(
    before: dict[Place, Value], takes: list[tuple[Place, str, str, bool]]
) -> None:
    world = World(dict(before))
    take_all(world, takes)
    assert world.give_back(ANY) == []
    assert world.present == before
    assert not any(taken.layers for taken in world.known.values())


@given(worlds(), TAKES, st.lists(WHYS, max_size=4))
def test_giving_back_by_reason_in_any_order_ends_in_the_world_as_it_was(
    before: dict[Place, Value], takes: list[tuple[Place, str, str, bool]], order: list[str]
) -> None:
    world = World(dict(before))
    take_all(world, takes)
    for why in (*order, *[TAG_WHY, ADOPT] * (len(takes) + 1)):
        world.give_back(frozenset({why}))
    assert world.present == before
    assert not any(taken.layers for taken in world.known.values())


@given(worlds(), TAKES, st.sampled_from([TAG, ADOPTION, ANY]))
def test_giving_back_that_is_cut_off_before_its_record_and_repeated_ends_as_without_the_crash(
    before: dict[Place, Value], takes: list[tuple[Place, str, str, bool]], whys: frozenset[str] | None
) -> None:
    unharmed, cut_off = World(dict(before)), World(dict(before))
    for world in (unharmed, cut_off):
        take_all(world, takes)
    cut_off.give_back(whys, dies=True)
    cut_off.give_back(whys)
    unharmed.give_back(whys)
    assert cut_off.present == unharmed.present
    layers = [{place: taken.layers for place, taken in world.known.items()} for world in (cut_off, unharmed)]
    assert layers[0] == layers[1]


@given(worlds(), TAKES, st.sampled_from(PLACES), st.booleans(), TAKES)
def test_a_value_of_somebody_else_is_never_overwritten_and_is_a_finding_while_it_stands_over_ours(
    before: dict[Place, Value],
    takes: list[tuple[Place, str, str, bool]],
    place: Place,
    propagates: bool,
    later: list[tuple[Place, str, str, bool]],
) -> None:
    world = World(dict(before))
    take_all(world, takes)
    had_layers = bool(world.known.get(place, Taken(place)).layers)
    theirs = Value("theirs", propagates if place.goes_on else None)
    world.present[place] = theirs
    assert bool(world.give_back(ANY)) is had_layers
    assert world.present == {**before, place: theirs}
    take_all(world, later)
    world.give_back(ANY)
    assert world.present == {**before, place: theirs}


@given(worlds(), TAKES, st.sampled_from(PLACES), TEXTS, WHYS, st.integers(1, 3))
def test_repeating_a_cut_off_take_leaves_the_record_that_one_take_leaves(
    before: dict[Place, Value],
    takes: list[tuple[Place, str, str, bool]],
    place: Place,
    text: str,
    why: str,
    crashes: int,
) -> None:
    once, repeated = World(dict(before)), World(dict(before))
    for world in (once, repeated):
        take_all(world, takes)
    for _ in range(crashes):
        repeated.take(place, text, why, dies=True)
    for world in (once, repeated):
        world.take(place, text, why)
    layers = [
        [(layer.before, layer.after, layer.why, layer.propagated) for layer in world.known[place].layers]
        for world in (once, repeated)
        if place in world.known
    ]
    assert len(layers) in (0, 2)
    assert layers == [] or layers[0] == layers[1]
