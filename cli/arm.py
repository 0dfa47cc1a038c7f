"""`governor arm`: let an area act, after showing what it would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cli.options import JsonOption, StageOption, YesOption

if TYPE_CHECKING:
    from cli.outlook import Outlook
    from cli.stage import Stage
    from governor.domain.decisions import Decision

NEEDED_TOPICS = ("page", "warn")


def arm(
    area: Annotated[str, typer.Argument(metavar="AREA", help="The area to arm; in this version: budget.")],
    mode: Annotated[
        Literal["enforce", "observe", "off"],
        typer.Option("--mode", metavar="enforce|observe|off", help="enforce arms it; observe and off disarm it."),
    ] = "enforce",
    without_subscribers: Annotated[
        bool,
        typer.Option("--without-subscribers", help="Arm it although nobody would get its pages and warnings."),
    ] = False,
    stage: StageOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let an area act (or only observe, or do nothing). First shows what would happen in the next five minutes.

    Refused while the page or warn topic has no confirmed subscription: a stop that nobody hears of helps nobody.

    **Examples:**

    - `governor arm budget`
    - `governor arm budget --yes --stage prod`
    - `governor arm budget --mode observe`
    """
    from cli.parameters import overwrite, read_history
    from cli.stage import find_stage
    from cli.terminal import ask, current_time
    from governor.domain.settings import SETTINGS, SPEC_BY_NAME, Mode

    areas = sorted(spec.area for spec in SETTINGS if spec.attribute == "mode")
    if area not in areas:
        raise typer.BadParameter(f"{area!r} is no area; write one of {', '.join(areas)}", param_hint="AREA")
    found = find_stage(stage)
    wanted, name = Mode(mode), f"{area}/mode"
    subscribers = _check_subscribers(found, wanted, without_subscribers)
    outlook, first, later = _look(found, wanted, current_time())
    if not as_json:
        _show(found, outlook, wanted, first, later)
    versions = read_history(found, name)
    before = versions[-1].text if versions else None
    if before != wanted.value:
        ask(f"Set {found.parameter(name)} to {wanted.value}?", yes=yes)
        spec = SPEC_BY_NAME[name]
        overwrite(found, name, wanted.value, description=spec.description, allowed_pattern=spec.allowed_pattern)
    if as_json:
        _print(found, area, before, wanted, subscribers, first, later)
    elif before == wanted.value:
        typer.echo(f"{found.parameter(name)} is {before} already; nothing was changed.")
    else:
        typer.echo(f"{found.parameter(name)}: {before or 'missing'} -> {wanted.value}")
        typer.echo(f"check_settings takes it over within a minute; see governor status --stage {found.name}.")


def _check_subscribers(stage: Stage, mode: Any, without: bool) -> dict[str, dict[str, int]]:
    """Subscriptions of the topics that a stop needs. Raises CliError where nobody would hear of one."""
    from cli.errors import CliError
    from cli.status import TOPICS, count_subscribers
    from governor.domain.settings import Mode

    if mode is not Mode.ENFORCE:
        return {}
    found = {name: count_subscribers(stage, TOPICS[name]) for name in NEEDED_TOPICS}
    deaf = [name for name, counts in found.items() if not counts["confirmed"]]
    if deaf and not without:
        waiting = sum(found[name]["waiting"] for name in deaf)
        todo = (
            f"confirm the {waiting} that wait (the link is in the mail of AWS Notifications)"
            if waiting
            else f"add addresses to subscribers of stage {stage.name} in cdk.json, deploy, and confirm them"
        )
        topics = " and ".join(deaf)
        raise CliError(
            f"Nobody would hear of a stop: the topic{'s' if len(deaf) > 1 else ''} {topics} of stage {stage.name} in "
            f"{stage.home_region} {'have' if len(deaf) > 1 else 'has'} no confirmed subscription; {todo}, "
            "or arm it all the same with --without-subscribers."
        )
    return found


def _look(stage: Stage, mode: Any, now: Any) -> tuple[Outlook, Decision, Decision]:
    from cli.outlook import in_mode, look_ahead
    from cli.stage import find_scope

    outlook = look_ahead(stage, find_scope(stage), now)
    return outlook, *in_mode(outlook, mode)


def _show(stage: Stage, outlook: Outlook, mode: Any, first: Decision, later: Decision) -> None:
    from cli.decision_view import show_decision
    from cli.terminal import clock, console, count, usd

    screen = console()
    screen.print(
        f"Stage {stage.name}, with mode {mode.value} from {clock(outlook.now)} on, within five minutes:",
        style="strong",
        markup=False,
    )
    shown = first if first.stops or not later.stops else later
    show_decision(screen, shown)
    ids = {stop.instance_id for decision in (first, later) for stop in decision.stops}
    rate = sum(v.usd_per_hour or 0.0 for v in shown.verdicts if v.instance_id in ids)
    if ids:
        screen.print(f"\nIt stops {count(len(ids))} ({usd(rate)}/h).", style="bad", markup=False)
    else:
        screen.print("\nIt stops nothing within five minutes.", style="strong", markup=False)


def _print(
    stage: Stage,
    area: str,
    before: str | None,
    mode: Any,
    subscribers: dict[str, dict[str, int]],
    first: Decision,
    later: Decision,
) -> None:
    from cli.decision_view import describe_decision
    from cli.terminal import print_json

    stops = sorted({stop.instance_id for decision in (first, later) for stop in decision.stops})
    print_json(
        {
            "stage": stage.name,
            "area": area,
            "parameter": stage.parameter(f"{area}/mode"),
            "before": before,
            "after": mode.value,
            "subscribers": subscribers,
            "stops_within_five_minutes": stops,
            "decision": describe_decision(first),
        }
    )
