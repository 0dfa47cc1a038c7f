"""`governor pause`: hold every stop, release, launch and purchase."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption

if TYPE_CHECKING:
    from cli.outlook import HeldBack
    from cli.parameters import ParameterChange
    from cli.stage import Stage

PAUSE = "control/pause"
DESCRIPTION = (
    "Holds everything the Governor would change: off | on | on until 2026-12-01T06:00Z, each optionally followed by "
    "because and a text. Anything else counts as on."
)
MAX_REASON_CHARACTERS = 500
_DURATION = re.compile(r"^(?:(?P<days>\d{1,3})d)?(?:(?P<hours>\d{1,4})h)?(?:(?P<minutes>\d{1,5})m)?$")


def pause(
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; others read it. Required.")],
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="When it ends: 2026-12-01T06:00Z (UTC where no zone is given)."),
    ] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long it lasts: 90m, 4h, 2d or 1d12h.")
    ] = None,
    stage: StageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold everything the Governor would change, from now on. It goes on looking, and tells people what it holds.

    Without --until or --for it lasts until `governor unpause`. It needs nothing but the parameter, so it also works
    while settings are wrong or functions are broken.

    **Examples:**

    - `governor pause --because "release tonight" --for 4h`
    - `governor pause --because "demo at the customer" --until 2026-12-01T06:00Z --stage prod`
    """
    from cli.outlook import held_by_pause
    from cli.stage import find_stage
    from cli.terminal import current_time

    now = current_time()
    ends = read_end(until, lasting, now)
    reason = read_reason(because)
    found = find_stage(stage)
    change = write_pause(found, active=True, until=ends, because=reason)
    report(found, change, held_by_pause(found, now), now, as_json=as_json)


def read_end(until: str | None, lasting: str | None, now: datetime) -> datetime | None:
    """When a pause ends, to the minute (rounded up); None without an end. Raises typer.BadParameter."""
    if until is not None and lasting is not None:
        raise typer.BadParameter("give one of --until and --for, not both", param_hint="--until")
    if lasting is not None:
        match = _DURATION.match(lasting.strip())
        parts = {name: int(value) for name, value in match.groupdict().items() if value} if match else {}
        if not any(parts.values()):
            raise typer.BadParameter(f"{lasting!r} is no duration; write 90m, 4h, 2d or 1d12h", param_hint="--for")
        return _whole_minute(now + timedelta(**parts))
    if until is None:
        return None
    try:
        moment = datetime.fromisoformat(until.strip())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        _whole_minute(moment)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{until!r} is no moment; write it like 2026-12-01T06:00Z", param_hint="--until"
        ) from None
    if moment <= now:
        raise typer.BadParameter(f"{until} has passed; write a moment that is still to come", param_hint="--until")
    return _whole_minute(moment)


def _whole_minute(moment: datetime) -> datetime:
    """The parameter holds minutes: a pause may end a little later than said, never earlier."""
    return datetime.fromtimestamp(math.ceil(moment.timestamp() / 60) * 60, UTC)


def read_reason(text: str) -> str:
    """A reason on one line. Raises typer.BadParameter where there is none."""
    reason = " ".join(text.split())
    if not reason:
        raise typer.BadParameter("say why; others read it", param_hint="--because")
    if len(reason) > MAX_REASON_CHARACTERS:
        raise typer.BadParameter(f"is longer than {MAX_REASON_CHARACTERS} characters", param_hint="--because")
    return reason


def write_pause(stage: Stage, *, active: bool, until: datetime | None, because: str) -> ParameterChange:
    """Write the pause parameter, and nothing else."""
    from cli.parameters import overwrite
    from governor.domain.pause import format_pause

    text = format_pause(active, until=until, because=because)
    return overwrite(stage, PAUSE, text, description=DESCRIPTION)


def report(stage: Stage, change: ParameterChange, held: HeldBack, now: datetime, *, as_json: bool) -> None:
    """Say what the parameter held and holds, and which stops the pause keeps (or kept) from happening."""
    from cli.status import describe_pause
    from cli.terminal import console, iso, print_json
    from governor.domain.pause import parse_pause

    before, after = change.before, change.after
    if as_json:
        was = None
        if before is not None:
            was = {"text": before.text, "by": before.by, "at": iso(before.at)}
            was |= describe_pause(parse_pause(before.text, now))
        print_json(
            {
                "stage": stage.name,
                "parameter": stage.parameter(PAUSE),
                "before": was,
                "after": {"text": after, **describe_pause(parse_pause(after, now))},
                "held": {
                    "level": held.level,
                    "instances": [v.instance_id for v in held.instances],
                    "usd_per_hour": held.usd_per_hour if held.unknown is None else None,
                    "unknown": held.unknown,
                },
            }
        )
        return
    screen = console()
    screen.print(f"{stage.parameter(PAUSE)}", style="strong", markup=False)
    screen.print(f"  was: {_words(before)}", markup=False)
    screen.print(f"  is:  {after}", markup=False)
    _show_held(screen, held, paused=parse_pause(after, now).active)


def _words(before: Any) -> str:
    from cli.terminal import clock, who

    if before is None:
        return "missing, which counts as paused"
    return f"{before.text} (written {clock(before.at)} by {who(before.by)})"


def _show_held(screen: Any, held: HeldBack, *, paused: bool) -> None:
    from cli.terminal import count, table, text, usd

    if held.unknown is not None:
        screen.print(f"Which stops that concerns is unknown: {held.unknown}", style="warn", markup=False)
        return
    if not held.instances:
        screen.print("No stop is due at this moment.", markup=False)
        return
    verb = "It holds back" if paused else "It held back"
    screen.print(
        f"{verb} {count(len(held.instances), 'stop')}, {usd(held.usd_per_hour)}/h"
        + (
            "."
            if paused
            else "; the next run, within 5 minutes, gives notice of them and stops after budget/grace-minutes."
        ),
        style="warn",
        markup=False,
    )
    shown = table("instance", "type", "$/h", "Region", right=["$/h"])
    for verdict in held.instances:
        shown.add_row(text(verdict.instance_id), verdict.instance_type, usd(verdict.usd_per_hour), verdict.region)
    screen.print(shown)
