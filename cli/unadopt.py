"""`governor unadopt`: give an Auto Scaling group back as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption, YesOption

if TYPE_CHECKING:
    from cli.stage import Scope, Stage
    from governor.domain.taken import Place, PutBack, Taken
    from governor.ports import RecordStore
    from governor.shell.taken import Places


def unadopt(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the Auto Scaling group.")],
    region: Annotated[
        str | None, typer.Option("--region", metavar="REGION", help="Where it is; not needed if only one was adopted.")
    ] = None,
    stage: StageOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give a group back: tags and suspended processes as they were before `governor adopt`, new members included.

    Only what still is as we left it is put back; what somebody else changed is named and left. Refused while machines
    of the group are stopped by the Governor.

    **Examples:**

    - `governor unadopt training`
    - `governor unadopt training --region us-east-1 --yes`
    """
    from cli.places import AwsPlaces
    from cli.stage import find_scope, find_stage
    from cli.terminal import ask, count, current_time
    from governor.domain.taken import adopt_why
    from governor.shell.taken import load_taken, plan_give_back

    found = find_stage(stage)
    scope = find_scope(found)
    store, places, now = found.store(), AwsPlaces(), current_time()
    known = load_taken(store)
    where = _region_of(scope, known, group, region)
    _refuse_held(found, where, group)
    whys = frozenset({adopt_why(where, group)})
    mine = with_late_members([one for one in known.values() if one.has(whys)], known)
    steps = plan_give_back(places, mine, whys, now)
    writes = [one for one in steps if one.writes]
    if not as_json:
        _show(group, where, steps)
    if writes:
        ask(f"Put {count(len(writes), 'change')} back?", yes=yes)
        _refuse_held(found, where, group)
    done = give_back_with_late_members(store, places, mine, known, whys)
    _end(found, group, where, done, as_json=as_json)


def late_members(taken: Sequence[Taken], known: Mapping[Place, Taken]) -> tuple[Taken, ...]:
    """What later members have got from the changed tags of the groups among `taken`, with what is recorded of them."""
    from cli.places import read_group_items
    from governor.domain.taken import inherited

    of_groups = [one for one in taken if one.place.goes_on and one.layers]
    found: list[Taken] = []
    for region in sorted({one.place.region for one in of_groups}):
        names = sorted({one.place.resource for one in of_groups if one.place.region == region})
        for name, item in sorted(read_group_items(region, names).items()):
            mine = [one for one in of_groups if (one.place.region, one.place.resource) == (region, name)]
            for member in sorted(one["InstanceId"] for one in item.get("Instances") or ()):
                found += inherited(mine, member, known)
    return tuple(found)


def with_late_members(taken: Sequence[Taken], known: Mapping[Place, Taken]) -> tuple[Taken, ...]:
    """These, and what later members of their groups have got from them; one of each place."""
    return tuple({one.place: one for one in (*taken, *late_members(taken, known))}.values())


def give_back_with_late_members(
    store: RecordStore,
    places: Places,
    mine: Sequence[Taken],
    known: Mapping[Place, Taken],
    whys: frozenset[str] | None,
) -> tuple[PutBack, ...]:
    """Give back, then once more for members that groups have launched meanwhile: they carry the groups' tags."""
    from cli.terminal import current_time
    from governor.shell.taken import give_back

    done = give_back(store, places, mine, whys, current_time())
    seen = {one.place for one in mine}
    new = [one for one in late_members(mine, known) if one.place not in seen]
    return (*done, *give_back(store, places, new, whys, current_time()))


def adopted_groups(known: Iterable[Taken]) -> tuple[tuple[str, str], ...]:
    """(Region, name) of every group that was adopted and not given back."""
    from governor.domain.taken import group_of_why

    whys = {layer.why for one in known for layer in one.layers}
    return tuple(sorted(group for group in map(group_of_why, whys) if group is not None))


def _region_of(scope: Scope, known: Mapping[Place, Taken], name: str, region: str | None) -> str:
    """Where the adopted group is. Raises CliError where that is not clear."""
    from cli.errors import CliError

    if region is not None and region not in scope.regions:
        raise CliError(f"{region} is not a Region of this stage; write one of {', '.join(scope.regions)} at --region.")
    found = [where for where, group in adopted_groups(known.values()) if group == name and region in (None, where)]
    if len(found) > 1:
        raise CliError(f"Groups {name} of several Regions were adopted ({', '.join(found)}); choose one with --region.")
    if found:
        return found[0]
    given_back = [p.region for p in known if p.resource == name and p.goes_on and region in (None, p.region)]
    if given_back:
        return given_back[0]
    raise CliError(
        f"The group {name} was not adopted by this command, so there is nothing to give back; tags that others have "
        "set are theirs to remove."
    )


def _refuse_held(stage: Stage, region: str, name: str) -> None:
    """Without its tags the Governor could not bring the group's machines back."""
    from cli.errors import CliError

    if (region, name) in held_groups(stage):
        raise CliError(
            f"Machines of the group {name} in {region} are stopped by the Governor, which could not bring them back "
            f"without its tags; first run governor restore --all --stage {stage.name}."
        )


def held_groups(stage: Stage) -> frozenset[tuple[str, str]]:
    """(Region, name) of the groups of which something is stopped or lowered by us."""
    from governor.shell.records import GROUP_HOLDS, group_hold_of

    holds = (group_hold_of(record) for record in stage.store().query(GROUP_HOLDS))
    return frozenset((hold.region, hold.name) for hold in holds if hold.open)


def _show(name: str, region: str, steps: Sequence[PutBack]) -> None:
    from cli.taken_view import show_put_backs
    from cli.terminal import console

    screen = console()
    screen.print(f"Group {name} in {region}", style="strong", markup=False)
    if not any(one.writes or one.finding for one in steps):
        screen.print("Everything is as it was before; nothing has to be put back.", markup=False)
    show_put_backs(screen, steps)


def _end(stage: Stage, name: str, region: str, done: Sequence[PutBack], *, as_json: bool) -> None:
    from cli.taken_view import describe_put_back
    from cli.terminal import count, print_json

    if not as_json:
        written: list[Any] = [one for one in done if one.writes]
        if written:
            typer.echo(f"{count(len(written), 'change')} put back.")
        return
    print_json(
        {
            "stage": stage.name,
            "group": name,
            "region": region,
            "put_back": [describe_put_back(one) for one in done if not one.finding],
            "findings": [describe_put_back(one) for one in done if one.finding],
        }
    )
