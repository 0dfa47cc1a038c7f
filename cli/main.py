"""The command `governor`. Verbs are imported with little; what they need is imported when they run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from cli import (
    adopt,
    arm,
    doctor,
    explain,
    init,
    keep,
    override,
    pause,
    plan,
    restore,
    retire,
    scan,
    settings,
    status,
    tag,
    unadopt,
    unpause,
)
from cli.errors import sentence_of

if TYPE_CHECKING:
    from typer._click.core import Context

TRACE = "GOVERNOR_TRACE"


class GovernorGroup(TyperGroup):
    """Turns every error of a verb into one sentence on stderr and exit code 1."""

    def invoke(self, ctx: Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
            raise
        except Exception as error:
            sentence = sentence_of(error)
            if os.environ.get(TRACE):
                raise
            if sentence is None:
                what = " ".join(str(error).split())
                sentence = (
                    f"governor has a fault ({type(error).__name__}: {what}); nothing more was done. "
                    f"Set {TRACE}=1 to see where, and report it."
                )
            typer.echo(f"governor: {sentence}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="governor",
    cls=GovernorGroup,
    help="See and steer the GPU Governor: what it watches, what it would do, why it did something, and how to hold it.",
    epilog=(
        "The account, Region and endpoint are those of the usual AWS variables (AWS_PROFILE, AWS_REGION, "
        "AWS_ENDPOINT_URL). Errors are one sentence on stderr with exit code 1; wrong usage ends with 2."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
BEFORE, SEE, STEER, TAKE = "Before an install", "See", "Steer", "Take in and give back"
app.command("scan", rich_help_panel=BEFORE)(scan.scan)
app.command("init", rich_help_panel=BEFORE)(init.init)
app.command("status", rich_help_panel=SEE)(status.status)
app.command("plan", rich_help_panel=SEE)(plan.plan)
app.command("explain", rich_help_panel=SEE)(explain.explain)
app.command("doctor", rich_help_panel=SEE)(doctor.doctor)
app.command("pause", rich_help_panel=STEER)(pause.pause)
app.command("unpause", rich_help_panel=STEER)(unpause.unpause)
app.command("override", rich_help_panel=STEER)(override.override)
app.command("keep", rich_help_panel=STEER)(keep.keep)
app.command("restore", rich_help_panel=STEER)(restore.restore)
app.command("arm", rich_help_panel=STEER)(arm.arm)
app.add_typer(settings.app, name="settings", rich_help_panel=STEER)
app.command("tag", rich_help_panel=TAKE)(tag.tag)
app.command("adopt", rich_help_panel=TAKE)(adopt.adopt)
app.command("unadopt", rich_help_panel=TAKE)(unadopt.unadopt)
app.command("retire", rich_help_panel=TAKE)(retire.retire)


def main() -> None:
    """Entry point of the command."""
    app(prog_name="governor")


if __name__ == "__main__":
    main()
