"""`governor unpause`: let the Governor act again."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import JsonOption, StageOption


def unpause(
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; others read it. Required.")],
    stage: StageOption = None,
    as_json: JsonOption = False,
) -> None:
    """End the pause, and show what it held back. It starts nothing.

    **Examples:**

    - `governor unpause --because "release is out"`
    - `governor unpause --because "checked with the ML team" --stage prod --json`
    """
    from cli.outlook import held_by_pause
    from cli.pause import read_reason, report, write_pause
    from cli.stage import find_stage
    from cli.terminal import current_time

    now = current_time()
    reason = read_reason(because)
    found = find_stage(stage)
    held = held_by_pause(found, now)
    change = write_pause(found, active=False, until=None, because=reason)
    report(found, change, held, now, as_json=as_json)
