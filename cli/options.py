"""Options that several verbs have in common."""

from __future__ import annotations

from typing import Annotated

import typer

StageOption = Annotated[
    str | None,
    typer.Option(
        "--stage",
        envvar="GOVERNOR_STAGE",
        metavar="NAME",
        show_default=False,
        help="Stage to work on; not needed where exactly one is deployed.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else (cli/README.md).")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
