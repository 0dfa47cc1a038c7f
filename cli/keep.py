"""`governor keep`: keep one instance running, whatever the budget guard decides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import JsonOption, StageOption

if TYPE_CHECKING:
    from datetime import datetime

    from cli.stage import Stage

DESCRIPTION = (
    "Keeps this instance running. Write: until 2026-12-01T06:00Z, or on, each optionally followed by: because <why>. "
    "Delete the parameter to lift it; anything else counts as kept."
)
_INSTANCE = re.compile(r"^i-[0-9a-f]{8,17}$")


def keep(
    instance: Annotated[
        str | None, typer.Argument(metavar="INSTANCE", help="The instance to keep.", show_default=False)
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="When it ends: 2026-12-01T06:00Z (UTC where no zone is given)."),
    ] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long it lasts: 90m, 4h, 2d or 1d12h.")
    ] = None,
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; others read it.")] = "",
    lift: Annotated[bool, typer.Option("--lift", help="End the keep of this instance.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show every keep.")] = False,
    stage: StageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep an instance running until a time, whatever the budget guard decides. It is read again before every stop.

    The tag `governor:keep` of an instance does the same, for people who may tag but not write parameters.

    **Examples:**

    - `governor keep i-0123456789abcdef0 --for 4h --because "demo at noon"`
    - `governor keep i-0123456789abcdef0 --lift`
    - `governor keep --list`
    """
    from cli.pause import read_end, read_reason
    from cli.stage import find_stage
    from cli.terminal import current_time

    now = current_time()
    if listing:
        if instance is not None or lift or until or lasting:
            raise typer.BadParameter("--list shows all keeps and takes nothing else", param_hint="--list")
        _list(find_stage(stage), now, as_json=as_json)
        return
    if instance is None or not _INSTANCE.match(instance.strip()):
        raise typer.BadParameter(f"{instance!r} is no instance id (i-0abc...)", param_hint="INSTANCE")
    instance_id = instance.strip()
    ends = read_end(until, lasting, now)
    if lift and ends is not None:
        raise typer.BadParameter("--lift takes no time", param_hint="--lift")
    if not lift and ends is None:
        raise typer.BadParameter("say how long: --for 4h or --until TIME (or --lift to end it)", param_hint="--for")
    reason = read_reason(because) if because.strip() else ""
    _change(find_stage(stage), instance_id, ends, reason, now, as_json=as_json)


def _change(
    stage: Stage, instance_id: str, ends: datetime | None, reason: str, now: datetime, *, as_json: bool
) -> None:
    from cli.controls import describe_version, lift_control, show_change, write_control
    from cli.terminal import console, print_json
    from governor.domain.controls import KEEP_PREFIX, format_keep

    name = f"{KEEP_PREFIX}{instance_id}"
    parameter = f"control/{name}"
    if ends is None:
        before, after = lift_control(stage, parameter), None
    else:
        _check_exists(stage, instance_id)
        after = format_keep(ends, reason)
        before = write_control(stage, parameter, after, DESCRIPTION)
    if as_json:
        print_json(
            {
                "stage": stage.name,
                "instance_id": instance_id,
                "parameter": stage.parameter(parameter),
                "before": describe_version(before),
                "after": after,
            }
        )
        return
    screen = console()
    show_change(screen, stage.parameter(parameter), before, after)
    if after is not None:
        screen.print("The budget guard leaves it running; it is read again before every stop.", markup=False)
    elif before is None:
        screen.print("There was no such keep.", markup=False)


def _check_exists(stage: Stage, instance_id: str) -> None:
    """Raises CliError for an instance that is in none of the listed Regions."""
    from botocore.exceptions import ClientError

    from cli.account import aws
    from cli.errors import CliError
    from cli.stage import find_scope

    regions = find_scope(stage).regions
    for region in regions:
        filters = [{"Name": "instance-id", "Values": [instance_id]}]
        try:
            answer = aws("ec2", region).describe_instances(Filters=filters)
        except ClientError:
            return  # whether it exists is unknown: a keep too many harms nobody
        if any(reservation["Instances"] for reservation in answer["Reservations"]):
            return
    raise CliError(
        f"{instance_id} is in none of the Regions of stage {stage.name} ({', '.join(regions)}); check the id "
        "(governor plan lists the instances)."
    )


def _list(stage: Stage, now: datetime, *, as_json: bool) -> None:
    from cli.controls import read_controls
    from cli.status import describe_controls
    from cli.terminal import clock, console, print_json, table, text

    rows = describe_controls(read_controls(stage, now), now, None)["keeps"]
    if as_json:
        print_json({"stage": stage.name, "keeps": rows})
        return
    screen = console()
    if not rows:
        screen.print(f"Stage {stage.name} keeps no instance by a parameter.", markup=False)
        return
    shown = table("instance", "until", "holds", "why")
    for row in rows:
        ends = clock(row["until"]) if row["until"] else "until lifted"
        holds = "yes" if row["in_force"] else "over"
        shown.add_row(row["instance_id"], ends, text(holds, "warn" if row["in_force"] else ""), text(row["reason"]))
    screen.print(shown)
