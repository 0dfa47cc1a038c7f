"""`governor adopt`: let the Governor stop members of an Auto Scaling group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.options import JsonOption, StageOption, YesOption

if TYPE_CHECKING:
    from cli.group_adoption import Adoption, GroupView
    from cli.reach import Reach, Reader
    from cli.stage import Scope, Stage
    from governor.domain.taken import Change


def adopt(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the Auto Scaling group.")],
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="Pool that it belongs to. Required.")],
    criticality: Annotated[
        Literal["standard", "preemptible"],
        typer.Option("--criticality", metavar="standard|preemptible", help="How much its members matter."),
    ] = "standard",
    suspend: Annotated[
        bool, typer.Option("--suspend", help="Suspend scaling policies and scheduled actions of the group.")
    ] = False,
    region: Annotated[
        str | None, typer.Option("--region", metavar="REGION", help="Where it is; not needed if only one has it.")
    ] = None,
    stage: StageOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take an Auto Scaling group in: tags for the group and its members, shown first and recorded.

    Refused for groups of clusters, for those with a critical member, and for those that scale themselves: a stop would
    be undone. `governor unadopt` puts back what was there.

    **Examples:**

    - `governor adopt training --pool research`
    - `governor adopt batch --pool nightly --criticality preemptible --suspend --region us-east-1`
    """
    from cli.errors import CliError
    from cli.group_adoption import Adoption, find_group, present_of, refuse_what_cannot, wanted_of
    from cli.places import caller_arn
    from cli.reach import Reader
    from cli.stage import find_scope, find_stage
    from cli.taking import take_as_shown
    from cli.terminal import ask, count, current_time
    from governor.domain.taken import adopt_why, changes_of

    if not group.strip():
        raise typer.BadParameter("name the Auto Scaling group", param_hint="GROUP")
    wish = Adoption(_read_pool(pool), criticality, suspend)
    found = find_stage(stage)
    scope = find_scope(found)
    now = current_time()
    reader = Reader(found.name, scope.keys, found.home_region, now)
    view = find_group(scope, group, region)
    refuse_what_cannot(view, reader, wish)
    wanted = wanted_of(view, scope.keys, found.name, wish)
    present = present_of(view, wanted)
    changes = changes_of(wanted, present)
    before, after = _reach(scope, reader, view, wish)
    if not as_json:
        _show(view, changes, before, after)
    if changes:
        ask(f"Make {count(len(changes), 'change')} to {view.name}?", yes=yes)
        # Whoever agreed has seen this group; it may have a critical member, or scale itself, by now.
        again = find_group(scope, view.name, view.region)
        refuse_what_cannot(again, reader, wish)
        if sorted(again.members) != sorted(view.members):
            raise CliError(
                f"The members of {view.name} changed while the question stood, so nothing was changed; run it again."
            )
        by = caller_arn(found.home_region)
        take_as_shown(found, wanted, present, now=now, by=by, why=adopt_why(view.region, view.name))
    _end(found, scope, view, wish, changes, before, after, as_json=as_json)


def _read_pool(text: str) -> str:
    from cli.tag_file import MAX_VALUE_CHARACTERS, is_tag_value

    pool = text.strip()
    if not pool or not is_tag_value(pool):
        allowed = "letters, digits, spaces and . : / = + - @ _"
        raise typer.BadParameter(f"write at most {MAX_VALUE_CHARACTERS} {allowed}", param_hint="--pool")
    return pool


def _reach(scope: Scope, reader: Reader, view: GroupView, wish: Adoption) -> tuple[Reach, Reach]:
    """What the Governor could stop of the group's Region, before and after."""
    from cli.group_adoption import tags_of
    from cli.reach import judge_reach, read_fleet, with_tags, without_scaling

    keys = scope.keys
    tags = {keys.managed: reader.stage, keys.criticality: wish.criticality, keys.pool: wish.pool}
    fleet = read_fleet((view.region,), keys, reader.stage)
    names = (view.name, *view.members)
    changed = with_tags(
        fleet,
        reader,
        {(view.region, name): tags for name in names},
        {(view.region, view.name): tags_of(view.item)},
    )
    if wish.suspends:
        changed = without_scaling(changed, view.region, view.name)
    return judge_reach(fleet, reader), judge_reach(changed, reader)


def _show(view: GroupView, changes: tuple[Change, ...], before: Reach, after: Reach) -> None:
    from cli.taken_view import show_changes
    from cli.terminal import console, count, usd

    screen = console()
    item = view.item
    sizes = f"MinSize {item['MinSize']}, desired {item['DesiredCapacity']}, MaxSize {item['MaxSize']}"
    members = count(len(view.members), "member")
    screen.print(f"Group {view.name} in {view.region}: {members}, {sizes}", style="strong", markup=False)
    if not changes:
        screen.print("It has been taken in already; nothing would change.", markup=False)
    else:
        could = {(view.region, one): after.words.get(one, "nothing: it has no GPU") for one in view.members}
        show_changes(screen, changes, could)
    gained = after.total_usd_per_hour - before.total_usd_per_hour
    screen.print(
        f"\n{usd(gained)}/h come within reach: {usd(before.total_usd_per_hour)}/h of {view.region} now, "
        f"{usd(after.total_usd_per_hour)}/h then.",
        style="strong",
        markup=False,
    )


def _end(
    stage: Stage,
    scope: Scope,
    view: GroupView,
    wish: Adoption,
    changes: tuple[Change, ...],
    before: Reach,
    after: Reach,
    *,
    as_json: bool,
) -> None:
    from cli.group_adoption import code_lines
    from cli.taken_view import describe_change
    from cli.terminal import console, print_json

    code = code_lines(stage.name, scope.keys, wish)
    if as_json:
        print_json(
            {
                "stage": stage.name,
                "group": view.name,
                "region": view.region,
                "members": sorted(view.members),
                "changes": [describe_change(change) for change in changes],
                "members_could": {one: after.words.get(one) for one in sorted(view.members)},
                "within_reach_usd_per_hour": {
                    "before": before.total_usd_per_hour,
                    "after": after.total_usd_per_hour,
                },
                "code": [{"tool": tool, "lines": list(lines)} for tool, lines in code],
            }
        )
        return
    screen = console()
    screen.print("\nSo that a deploy does not undo it:", style="strong", markup=False)
    for tool, lines in code:
        screen.print(f"{tool}:", markup=False)
        for line in lines:
            screen.print(f"    {line}", markup=False, soft_wrap=True)
    if changes:
        back = f"governor unadopt {view.name} --region {view.region} --stage {stage.name}"
        screen.print(f"To give it back: {back}", style="strong", markup=False)
