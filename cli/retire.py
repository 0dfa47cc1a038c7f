"""`governor retire`: give everything back, so that the world is as it was before the install."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption, YesOption

if TYPE_CHECKING:
    from cli.retire_plan import RetirePlan
    from cli.returning import Return
    from cli.stage import Scope, Stage
    from governor.domain.taken import PutBack

IN_FORCE_MINUTES = 5
"""check_settings takes an edit over within a minute."""

PARAMETERS_GONE = "because the parameters of the stage are being deleted, so that its guard starts nothing"

ROUNDS = 3
"""A stop that was under way when the pause was written is brought back in the next round."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What was done: machines that run again, what was put back, what was left and why."""

    started: tuple[str, ...]
    put_back: tuple[PutBack, ...]
    left: tuple[str, ...]
    deleted: tuple[str, ...]


def retire(
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be given back, and change nothing.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Give it back, after showing it and asking.")] = False,
    leave_stopped: Annotated[
        bool, typer.Option("--leave-stopped", help="Do not start what the Governor stopped; it stays as it is.")
    ] = False,
    wait_minutes: Annotated[
        int, typer.Option("--wait-minutes", min=1, max=240, metavar="N", help="Wait at most so long for machines.")
    ] = 20,
    stage: StageOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the world what it was before the install: machines, groups, tags, parameters. Then the stacks may go.

    In order: nothing more is stopped; what the Governor stopped runs again and groups have their sizes; pause; adopted
    groups and tags as they were before; parameters deleted. It may be cut off and repeated. What somebody else changed
    is named and left.

    **Examples:**

    - `governor retire --plan`
    - `governor retire --apply --stage dev`
    - `governor retire --apply --leave-stopped`
    """
    from cli.places import AwsPlaces
    from cli.retire_plan import read_plan
    from cli.stage import find_scope, find_stage
    from cli.terminal import ask, current_time

    if plan == apply:
        raise typer.BadParameter("give one of --plan and --apply", param_hint="--plan")
    found = find_stage(stage)
    scope = find_scope(found)
    seen = read_plan(found, AwsPlaces(), current_time())
    leave = "as you said" if leave_stopped else PARAMETERS_GONE if seen.starts_nothing else ""
    if not as_json:
        _show(found, seen, leave_stopped=bool(leave))
    ended = None
    if apply:
        ask(f"Retire the stage {found.name}?", yes=yes)
        ended = _retire(found, scope, leave=leave, minutes=wait_minutes)
    if as_json:
        _print(found, seen, ended, leave_stopped=bool(leave))
    elif ended is None:
        typer.echo(f"\nNothing was changed; governor retire --apply --stage {found.name} does it.")
    else:
        _show_end(found, ended)


def destroy_commands(stage: str) -> tuple[str, ...]:
    """What takes the stacks away."""
    return (f"npx cdk destroy --all -c stage={stage}",)


# --- Doing it ---------------------------------------------------------------------------------------------------------


def _retire(stage: Stage, scope: Scope, *, leave: str, minutes: float) -> Ended:
    """`leave` is why nothing is started; empty where everything is."""
    from cli.places import AwsPlaces, caller_arn
    from cli.retire_plan import all_taken, delete_parameters, mark_retired, read_plan
    from cli.terminal import current_time, note
    from cli.unadopt import give_back_with_late_members
    from governor.shell.taken import load_taken

    by = caller_arn(stage.home_region)
    places, store = AwsPlaces(), stage.store()
    started: list[str] = []
    left = _come_to_rest(stage, scope, leave=leave, minutes=minutes, started=started)
    note("Putting tags and groups back")
    known = load_taken(store)
    put_back = give_back_with_late_members(store, places, all_taken(known), known, None)
    left += [one.finding for one in put_back if one.finding]
    note("Deleting the parameters")
    now_there = read_plan(stage, places, current_time())
    delete_parameters(stage, now_there.parameters)
    if not now_there.retired:
        mark_retired(stage, current_time(), by)
    return Ended(tuple(started), put_back, tuple(left), now_there.parameters)


def _come_to_rest(stage: Stage, scope: Scope, *, leave: str, minutes: float, started: list[str]) -> list[str]:
    """Nothing is stopped any more, everything is back, and the pause is on. Returns what is left, in words."""
    from cli.returning import what_is_away

    left: list[str] = []
    for _ in range(ROUNDS):
        away = what_is_away(stage)
        if leave or not (away.entries or away.holds):
            break
        found = _bring_back(stage, scope, minutes)
        started += sorted(found.started)
        left += [f"{one} {why}" for one, why in sorted(found.left.items())]
        left += [f"the group {name} in {where}: {why}" for (where, name), why in sorted(found.groups_left.items())]
        _hold_everything(stage)
        if not _is_news(what_is_away(stage), found):
            break
    _hold_everything(stage)
    if leave:
        left += _left_stopped(stage, leave)
    return left


def _is_news(away: Any, found: Return) -> bool:
    """True where something was stopped while everything came back."""
    entries = [entry for entry in away.entries if entry.instance_id not in found.left]
    return bool(entries or [hold for hold in away.holds if (hold.region, hold.name) not in found.groups_left])


def _bring_back(stage: Stage, scope: Scope, minutes: float) -> Return:
    from cli.errors import CliError
    from cli.pause import write_pause
    from cli.places import AwsPlaces
    from cli.retire_plan import read_plan, set_mode
    from cli.returning import PAUSE_WORDS, bring_back
    from cli.terminal import current_time, note

    seen = read_plan(stage, AwsPlaces(), current_time())
    # While off the guard starts nothing; while it observes it stops nothing.
    set_mode(stage, "observe", seen.mode)
    try:
        if seen.pause is not None and seen.pause.active and seen.pause.reason == PAUSE_WORDS:
            write_pause(stage, active=False, until=None, because=PAUSE_WORDS)
        _wait_until_observing(stage)
        return bring_back(stage, scope, minutes, note)
    except CliError as error:
        if seen.mode in (None, "observe"):
            raise
        raise CliError(
            f"{error} The guard of stage {stage.name} observes now, it was at {seen.mode}; to go on with the stage: "
            f"governor settings set budget/mode {seen.mode} --stage {stage.name}."
        ) from error


def _wait_until_observing(stage: Stage) -> None:
    """Raises CliError where the mode does not come into force: something else would be stopped meanwhile."""
    from cli.errors import CliError
    from cli.returning import POLL_SECONDS
    from cli.terminal import current_time, note
    from governor.domain.settings import Mode
    from governor.shell.settings import load_snapshot

    until = current_time() + timedelta(minutes=IN_FORCE_MINUTES)
    told = False
    while True:
        snapshot = load_snapshot(stage.store())
        if snapshot is None or snapshot.settings.budget.mode is Mode.OBSERVE:
            return
        if current_time() >= until:
            raise CliError(
                f"The mode observe of stage {stage.name} is not in force after {IN_FORCE_MINUTES} minutes; see why "
                f"with governor settings validate --stage {stage.name}, put it right and try again."
            )
        if not told:
            note("Waiting until mode observe is in force")
            told = True
        time.sleep(POLL_SECONDS)


def _hold_everything(stage: Stage) -> None:
    """The pause is read before every change; the mode keeps the next runs from planning any."""
    from cli.pause import write_pause
    from cli.places import AwsPlaces
    from cli.retire_plan import read_plan, set_mode
    from cli.returning import PAUSE_WORDS
    from cli.terminal import current_time

    seen = read_plan(stage, AwsPlaces(), current_time())
    if seen.pause is not None and not (seen.pause.active and seen.pause.until is None):
        write_pause(stage, active=True, until=None, because=PAUSE_WORDS)
    set_mode(stage, "off", seen.mode)


def _left_stopped(stage: Stage, why: str) -> list[str]:
    from cli.returning import what_is_away

    away = what_is_away(stage)
    left = [f"{e.instance_id} in {e.region} stays {e.status.value}, {why}" for e in away.entries]
    left += [
        f"the group {hold.name} in {hold.region} keeps its sizes (MinSize {hold.min_set}, before {hold.min_before}; "
        f"desired before {hold.desired_before}), {why}"
        for hold in away.holds
    ]
    return left


# --- Showing it -------------------------------------------------------------------------------------------------------


def _steps(stage: Stage, seen: RetirePlan, *, leave_stopped: bool) -> list[tuple[str, str, bool]]:
    """(What, how it stands, whether something is to be done), in order."""
    from cli.terminal import count

    away = seen.away
    machines = [entry.instance_id for entry in away.entries]
    if leave_stopped and machines:
        how = f"{count(len(machines))} left as they are: {', '.join(machines)}"
    else:
        how = f"start {count(len(machines))}: {', '.join(machines)}" if machines else "none is stopped by us"
    holds = [f"{hold.name} (MinSize {hold.min_before}, desired {hold.desired_before})" for hold in away.holds]
    writes = [one for one in seen.takings if one.writes]
    groups = ", ".join(f"{name} in {region}" for region, name in seen.groups)
    starts = bool(machines or holds) and not leave_stopped and seen.mode != "observe"
    mode = f"mode {seen.mode or 'missing'}" + (" -> observe, then off" if starts else " -> off")
    if seen.mode in (None, "off") and not starts:
        mode = f"mode {seen.mode or 'missing'}"
    paused = seen.pause is None or (seen.pause.active and seen.pause.until is None)
    return [
        (
            "nothing more is stopped",
            mode,
            " -> " in mode,
        ),
        ("machines", how, bool(machines) and not leave_stopped),
        (
            "sizes of groups",
            ("left as they are: " if leave_stopped and holds else "") + (", ".join(holds) or "none is held"),
            bool(holds) and not leave_stopped,
        ),
        ("pause", "on" if paused else "off -> on", not paused),
        ("adopted groups", groups or "none", bool(seen.groups)),
        ("tags and processes", f"{count(len(writes), 'change')} put back" if writes else "as before", bool(writes)),
        (
            "parameters",
            f"delete {len(seen.parameters)} below {stage.parameter('')}" if seen.parameters else "all deleted",
            bool(seen.parameters),
        ),
        ("marker", "retired" if seen.retired else "mark the stage as retired", not seen.retired),
        ("stacks", f"then you run: {destroy_commands(stage.name)[0]}", True),
    ]


def _show(stage: Stage, seen: RetirePlan, *, leave_stopped: bool) -> None:
    from cli.taken_view import show_put_backs
    from cli.terminal import console, table, text

    screen = console()
    screen.print(f"To retire the stage {stage.name}, in this order:", style="strong", markup=False)
    shown = table("", "what", "how")
    for number, (what, how, due) in enumerate(_steps(stage, seen, leave_stopped=leave_stopped), 1):
        shown.add_row(str(number), what, text(how, "warn" if due else "good"))
    screen.print(shown)
    if seen.takings:
        show_put_backs(screen, seen.takings)


def _show_end(stage: Stage, ended: Ended) -> None:
    from cli.terminal import console, count

    screen = console()
    writes = sum(one.writes for one in ended.put_back)
    screen.print(
        f"The stage {stage.name} is retired: {count(len(ended.started))} started again, "
        f"{count(writes, 'change')} put back, {count(len(ended.deleted), 'parameter')} deleted.",
        style="good",
        markup=False,
    )
    for words in ended.left:
        screen.print(f"Left: {words}", style="warn", markup=False)
    screen.print("Now take the stacks away:", markup=False)
    for command in destroy_commands(stage.name):
        screen.print(f"    {command}", style="strong", markup=False)


def _print(stage: Stage, seen: RetirePlan, ended: Ended | None, *, leave_stopped: bool) -> None:
    from cli.taken_view import describe_put_back
    from cli.terminal import print_json

    steps = [
        {"step": what, "words": how, "due": due} for what, how, due in _steps(stage, seen, leave_stopped=leave_stopped)
    ]
    print_json(
        {
            "stage": stage.name,
            "applied": ended is not None,
            "retired": seen.retired or ended is not None,
            "steps": steps,
            "machines": [_machine(entry) for entry in seen.away.entries],
            "groups_held": [{"region": hold.region, "group": hold.name} for hold in seen.away.holds],
            "adopted_groups": [{"region": region, "group": name} for region, name in seen.groups],
            "takings": [describe_put_back(one) for one in seen.takings],
            "parameters": list(seen.parameters),
            "outcome": None if ended is None else _outcome(ended),
            "destroy": list(destroy_commands(stage.name)),
        }
    )


def _machine(entry: Any) -> Mapping[str, Any]:
    return {
        "instance_id": entry.instance_id,
        "region": entry.region,
        "group": entry.group,
        "status": entry.status.value,
        "detail": entry.detail,
    }


def _outcome(ended: Ended) -> Mapping[str, Sequence[Any]]:
    from cli.taken_view import describe_put_back

    return {
        "started": list(ended.started),
        "put_back": [describe_put_back(one) for one in ended.put_back if one.writes],
        "left": list(ended.left),
        "deleted": list(ended.deleted),
    }
