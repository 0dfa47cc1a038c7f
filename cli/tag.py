"""`governor tag`: set the tags that say what may be stopped, from a file, and take them back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption, YesOption

if TYPE_CHECKING:
    from cli.reach import Reach, Reader, ResourceId
    from cli.stage import Stage
    from cli.tag_file import BadRow, Row
    from governor.domain.fleet import FleetSnapshot
    from governor.domain.tags import TagKeys
    from governor.domain.taken import Change, Place, PutBack, Value, Wanted


@dataclass(frozen=True, slots=True)
class Scene:
    """Where tags are read and written. Without a deployed stage they can only be looked at."""

    stage: Stage | None
    name: str
    keys: TagKeys
    regions: tuple[str, ...]
    home_region: str


@dataclass(frozen=True, slots=True)
class TagPlan:
    """What a file comes to: the changes, the present tags of what it names, and the reach before and after."""

    changes: tuple[Change, ...]
    wanted: tuple[Wanted, ...]
    present: Mapping[Place, Value]
    could: Mapping[ResourceId, str]
    usd_by_resource: Mapping[ResourceId, float]
    before: Reach
    after: Reach
    unknown_regions: Mapping[str, str]

    @property
    def gained_usd_per_hour(self) -> float:
        """Dollars per hour that come within reach (negative: that leave it)."""
        return self.after.total_usd_per_hour - self.before.total_usd_per_hour


def tag(
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", show_default=False, help="CSV file: resource,region,key,value."),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Set the tags, after showing them and asking.")] = False,
    revert: Annotated[
        bool, typer.Option("--revert", help="Put back what this command changed: all of it, or what FILE names.")
    ] = False,
    template: Annotated[
        bool, typer.Option("--template", help="Print a file with every GPU instance that has no tags yet.")
    ] = False,
    stage: StageOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set the tags that say what may be stopped, from a CSV file: shows what each tag would allow, and applies it.

    A resource is the id of an instance or the name of an Auto Scaling group; tags of a group go on to new members.
    What was there before is recorded first, so that --revert puts back exactly that. One bad row, and nothing is done.

    **Examples:**

    - `governor tag --template > tags.csv`
    - `governor tag --plan tags.csv`
    - `governor tag --plan tags.csv --apply`
    - `governor tag --revert`
    """
    if template and (plan or apply or revert):
        raise typer.BadParameter("--template takes nothing else", param_hint="--template")
    if apply and revert:
        raise typer.BadParameter("give one of --apply and --revert", param_hint="--apply")
    if plan is None and not template and not revert:
        raise typer.BadParameter("name a file, or give --template or --revert", param_hint="--plan")
    if template:
        _print_template(_find_scene(stage), as_json=as_json)
    elif revert:
        _revert(_find_deployed(stage), plan, yes=yes, as_json=as_json)
    elif plan is not None:
        _change(_find_deployed(stage) if apply else _find_scene(stage), plan, apply=apply, yes=yes, as_json=as_json)


def _find_scene(name: str | None) -> Scene:
    """The deployed stage, or the defaults in the Region to work in."""
    from cli.account import home_region
    from cli.scan import DEFAULT_STAGE
    from cli.stage import seek_stage
    from governor.domain.tags import TagKeys

    found = seek_stage(name)
    if found is not None:
        return _scene_of(found)
    home = home_region()
    return Scene(None, name or DEFAULT_STAGE, TagKeys(), (home,), home)


def _find_deployed(name: str | None) -> Scene:
    from cli.stage import find_stage

    return _scene_of(find_stage(name))


def _scene_of(stage: Stage) -> Scene:
    from cli.stage import find_scope

    scope = find_scope(stage)
    return Scene(stage, stage.name, scope.keys, scope.regions, stage.home_region)


# --- Template ---------------------------------------------------------------------------------------------------------


def _print_template(scene: Scene, *, as_json: bool) -> None:
    """Untagged instances with `critical`: whoever sends the file back unread allows nothing."""
    from cli.reach import read_fleet
    from cli.tag_file import write_rows
    from cli.terminal import count, note, print_json

    fleet = read_fleet(scene.regions, scene.keys, scene.name)
    untagged = [instance for instance in fleet.instances if not instance.governance.managed]
    resources = dict.fromkeys((one.instance_id, one.region) for one in untagged)
    groups = [g for g in fleet.groups if not g.governance.managed]
    resources |= dict.fromkeys((one.name, one.region) for one in groups)
    tags = ((scene.keys.managed, scene.name), (scene.keys.criticality, "critical"))
    rows = [(resource, region, key, value) for resource, region in resources for key, value in tags]
    unknown = {one.region: one.why for one in fleet.unknown_regions}
    if as_json:
        listed = [dict(zip(("resource", "region", "key", "value"), row, strict=True)) for row in rows]
        print_json({"stage": scene.name, "rows": listed, "unknown_regions": _regions(unknown)})
        return
    typer.echo(write_rows(rows), nl=False)
    note(
        f"{count(len(untagged), 'GPU instance')} without the tag {scene.keys.managed} in {', '.join(scene.regions)}. "
        "They are written as critical: change that to standard or preemptible where a stop is allowed."
    )
    for region, why in unknown.items():
        note(f"Unknown, not empty: {region} ({why})")


def _regions(unknown: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"region": region, "why": why} for region, why in sorted(unknown.items())]


# --- Plan and apply ---------------------------------------------------------------------------------------------------


def _change(scene: Scene, file: Path, *, apply: bool, yes: bool, as_json: bool) -> None:
    from cli.places import caller_arn
    from cli.reach import Reader
    from cli.taking import take_as_shown
    from cli.terminal import ask, count, current_time
    from governor.domain.taken import TAG_WHY

    now = current_time()
    rows, items = _read_good_rows(scene, file)
    plan = _plan(scene, Reader(scene.name, scene.keys, scene.home_region, now), rows, items)
    if not as_json:
        _show_plan(scene, plan)
    if apply and scene.stage is not None:
        _refuse_away(scene.stage, [change.place for change in plan.changes])
    done: tuple[Change, ...] | None = None
    if apply and plan.changes and scene.stage is not None:
        ask(f"Set {count(len(plan.changes), 'tag')}?", yes=yes)
        _refuse_away(scene.stage, [change.place for change in plan.changes])
        by = caller_arn(scene.home_region)
        done = take_as_shown(scene.stage, plan.wanted, plan.present, now=now, by=by, why=TAG_WHY)
    if as_json:
        _print_plan(scene, plan if done is None else replace(plan, changes=done), applied=done is not None)
    elif done is not None:
        again = f"governor tag --plan {shlex.quote(str(file))} --revert --stage {scene.name}"
        typer.echo(f"{count(len(done), 'tag')} set. To put back what was before: {again}")
        gone = sorted({c.place.resource for c in plan.changes} - {c.place.resource for c in done})
        if gone:
            typer.echo(f"Not set, because they are gone or hold it by now: {', '.join(gone)}")
    elif plan.changes and not apply:
        again = f"governor tag --plan {shlex.quote(str(file))} --apply --stage {scene.name}"
        typer.echo(f"Nothing was changed; {again} sets them.")


def _read_good_rows(scene: Scene, file: Path) -> tuple[list[Row], dict[ResourceId, Mapping[str, Any]]]:
    """The rows, and what they name as AWS describes it. Raises CliError that names every bad row."""
    from cli.group_adoption import tags_of
    from cli.tag_file import Rules, check_resources, read_file, read_rows

    lines = read_file(file)
    rows, bad = read_rows(lines, Rules(scene.name, scene.keys, scene.regions))
    items = _describe_resources(rows)
    missing = check_resources(rows, {resource: tags_of(item) for resource, item in items.items()})
    _refuse(file, sorted([*bad, *missing], key=lambda one: one.line))
    return rows, items


def _refuse(file: Path, bad: Sequence[BadRow]) -> None:
    from cli.errors import CliError
    from cli.terminal import count

    if bad:
        said = "\n  ".join(one.sentence for one in bad)
        raise CliError(f"{file} has {count(len(bad), 'bad row')}, so nothing was changed:\n  {said}")


def _describe_resources(rows: Sequence[Row]) -> dict[ResourceId, Mapping[str, Any]]:
    """Instances and groups that are there."""
    from cli.places import read_group_items, read_instances

    found: dict[ResourceId, Mapping[str, Any]] = {}
    for region in sorted({row.region for row in rows}):
        ids = sorted({row.resource for row in rows if row.region == region and row.is_instance})
        names = sorted({row.resource for row in rows if row.region == region and not row.is_instance})
        items = {**read_instances(region, ids), **read_group_items(region, names)}
        found |= {(region, name): item for name, item in items.items()}
    return found


def _plan(scene: Scene, reader: Reader, rows: Sequence[Row], items: Mapping[ResourceId, Mapping[str, Any]]) -> TagPlan:
    from cli.group_adoption import tags_of
    from cli.places import AwsPlaces
    from cli.reach import judge_reach, read_fleet, with_tags
    from governor.domain.taken import changes_of

    ordered = sorted(rows, key=lambda row: (row.region, row.resource, row.line))
    wanted = tuple(row.wanted(_members(items[row.region, row.resource])) for row in ordered)
    values = AwsPlaces().read(one.place for one in wanted)
    changes = changes_of(wanted, values)
    changed: dict[ResourceId, dict[str, str]] = {}
    for one in wanted:
        changed.setdefault((one.place.region, one.place.resource), {})[one.place.name] = one.text
    present = {resource: tags_of(item) for resource, item in items.items()}
    fleet = read_fleet(scene.regions, scene.keys, scene.name)
    later = with_tags(fleet, reader, changed, present)
    before, after = judge_reach(fleet, reader), judge_reach(later, reader)
    could = {resource: _could(resource, later, after) for resource in changed}
    usd = {resource: _usd(resource, later, after) for resource in changed}
    unknown = {one.region: one.why for one in fleet.unknown_regions}
    return TagPlan(changes, wanted, values, could, usd, before, after, unknown)


def _members(item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(one["InstanceId"] for one in item.get("Instances") or ()))


def _could(resource: ResourceId, fleet: FleetSnapshot, reach: Reach) -> str:
    """What the Governor could then do with an instance or a group."""
    from cli.terminal import count

    _, name = resource
    if name in reach.words:
        return reach.words[name]
    group = next((g for g in fleet.groups if (g.region, g.name) == resource), None)
    if group is None:
        return "nothing: it has no GPU, or no member with one"
    if not group.governance.stoppable:
        return "nothing with its members: its tags do not allow it"
    if group.scales_itself:
        return f"nothing with its members: it scales itself ({', '.join(group.scales_itself)})"
    reached = [member for member, _ in group.members if member in reach.usd_per_hour]
    return f"stop {len(reached)} of its {count(len(group.members), 'member')}, one by one"


def _usd(resource: ResourceId, fleet: FleetSnapshot, reach: Reach) -> float:
    group = next((g for g in fleet.groups if (g.region, g.name) == resource), None)
    ids = [resource[1]] if group is None else [member for member, _ in group.members]
    return sum(reach.usd_per_hour.get(one, 0.0) for one in ids)


def _show_plan(scene: Scene, plan: TagPlan) -> None:
    from cli.taken_view import show_changes
    from cli.terminal import console, count, usd

    screen = console()
    if not plan.changes:
        screen.print("Every tag of the file is set already.", markup=False)
    else:
        same = len(plan.wanted) - len(plan.changes)
        also = f"; {count(same, 'further tag')} are set already" if same else ""
        screen.print(f"{count(len(plan.changes), 'tag')} would change{also}:", style="strong", markup=False)
        show_changes(screen, plan.changes, plan.could)
    gained = plan.gained_usd_per_hour
    what = f"{usd(gained)}/h come within reach" if gained >= 0 else f"{usd(-gained)}/h leave the reach"
    screen.print(
        f"\n{what}: {usd(plan.before.total_usd_per_hour)}/h now, {usd(plan.after.total_usd_per_hour)}/h then.",
        style="strong",
        markup=False,
    )
    for region, why in sorted(plan.unknown_regions.items()):
        screen.print(f"Unknown, not empty: {region} ({why})", style="warn", markup=False)


def _print_plan(scene: Scene, plan: TagPlan, *, applied: bool) -> None:
    from cli.taken_view import describe_change
    from cli.terminal import print_json

    changes = [
        {
            **describe_change(change),
            "could": plan.could[change.place.region, change.place.resource],
        }
        for change in plan.changes
    ]
    reach = [
        {"region": region, "resource": name, "could": could, "usd_per_hour": plan.usd_by_resource[region, name]}
        for (region, name), could in sorted(plan.could.items())
    ]
    print_json(
        {
            "stage": scene.name,
            "applied": applied,
            "changes": changes,
            "resources": reach,
            "within_reach_usd_per_hour": {
                "before": plan.before.total_usd_per_hour,
                "after": plan.after.total_usd_per_hour,
            },
            "unknown_regions": _regions(plan.unknown_regions),
        }
    )


# --- Revert -----------------------------------------------------------------------------------------------------------


def _revert(scene: Scene, file: Path | None, *, yes: bool, as_json: bool) -> None:
    from cli.places import AwsPlaces
    from cli.terminal import ask, count, current_time
    from cli.unadopt import give_back_with_late_members, with_late_members
    from governor.domain.taken import TAG_WHY
    from governor.shell.taken import load_taken, plan_give_back

    assert scene.stage is not None
    store, places, now = scene.stage.store(), AwsPlaces(), current_time()
    whys = frozenset({TAG_WHY})
    wanted = None if file is None else _places_of(scene, file)
    known = load_taken(store)
    recorded = [one for one in known.values() if one.has(whys) and (wanted is None or one.place in wanted)]
    mine = with_late_members(recorded, known)
    steps = plan_give_back(places, mine, whys, now)
    writes = [one for one in steps if one.writes]
    if not as_json:
        _show_revert(steps)
    _refuse_away(scene.stage, [one.place for one in writes])
    if writes:
        ask(f"Put {count(len(writes), 'tag')} back?", yes=yes)
        _refuse_away(scene.stage, [one.place for one in writes])
    done = give_back_with_late_members(store, places, mine, known, whys)
    if as_json:
        _print_revert(scene, done)
    elif writes:
        typer.echo(f"{count(len([one for one in done if one.writes]), 'tag')} put back.")


def _refuse_away(stage: Stage, places: Sequence[Place]) -> None:
    """With other tags the Governor could not bring back what it has stopped. Raises CliError that names it."""
    from cli.errors import CliError
    from cli.returning import what_is_away

    away = what_is_away(stage)
    stopped = {(entry.region, entry.instance_id) for entry in away.entries}
    stopped |= {(entry.region, entry.group) for entry in away.entries if entry.group}
    stopped |= {(hold.region, hold.name) for hold in away.holds}
    names = sorted({place.resource for place in places if (place.region, place.resource) in stopped})
    if names:
        raise CliError(
            f"The Governor has stopped {', '.join(names)} or members of it, and could not bring them back with other "
            f"tags, so nothing was changed; first run governor restore --all --stage {stage.name}."
        )


def _places_of(scene: Scene, file: Path) -> frozenset[Any]:
    """The places that a file names; whether its values are still allowed does not matter to take them back."""
    from cli.tag_file import Rules, read_file, read_rows

    rows, bad = read_rows(read_file(file), Rules(scene.name, scene.keys, scene.regions))
    _refuse(file, bad)
    return frozenset(row.wanted().place for row in rows)


def _show_revert(steps: Sequence[PutBack]) -> None:
    from cli.taken_view import show_put_backs
    from cli.terminal import console

    screen = console()
    if not steps:
        screen.print("This command has changed no tag that could be put back.", markup=False)
    else:
        show_put_backs(screen, steps)


def _print_revert(scene: Scene, done: Sequence[PutBack]) -> None:
    from cli.taken_view import describe_put_back
    from cli.terminal import print_json

    print_json(
        {
            "stage": scene.name,
            "put_back": [describe_put_back(one) for one in done if not one.finding],
            "findings": [describe_put_back(one) for one in done if one.finding],
        }
    )
