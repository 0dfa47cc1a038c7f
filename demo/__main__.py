"""`python -m demo`: deploy, play, write the report. The exit code says whether everything was as it had to be."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from demo.gather import tell_story
from demo.report import write_report
from demo.scenes import play
from demo.story import Lap, Story, write_story
from demo.terminal import Narrator
from demo.theatre import STAGE, Deployed, PlayError, Theatre
from local.client import REPOSITORY, LocalAws, LocalAwsError, local_aws
from local.deploy import CdkApp, DeployError, bootstrap, deploy, stack_outputs

OUT_DIR = REPOSITORY / "out" / "demo"
_PROGRESS = re.compile(r"^(Governor-\S+) \|\s*(\d+)/(\d+) \|")


def main() -> int:
    """Command line. Returns 0 when every check held, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT_DIR, help="folder for report.html and story.json")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    narrator = Narrator(console)
    began = time.monotonic()
    console.print(
        "[bold]GPU Governor, the demo.[/bold] A local AWS on this machine; no account is needed or touched.\n"
    )
    try:
        story = _perform(narrator)
    except (DeployError, LocalAwsError, PlayError, ClientError, BotoCoreError) as error:
        Console(stderr=True, soft_wrap=True).print(f"\nThe demo could not be played: {error}", markup=False)
        return 1
    folder: Path = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    write_story(story, folder / "story.json")
    write_report(story, folder / "report.html")
    narrator.summary(story)
    report = folder / "report.html"
    shown = report.relative_to(Path.cwd()) if report.is_relative_to(Path.cwd()) else report
    console.print(f"\nReport: {shown}   ({time.monotonic() - began:.0f} s in all)")
    if story.failures:
        Console(stderr=True, soft_wrap=True).print(
            f"\n{len(story.failures)} check{'s' if len(story.failures) > 1 else ''} failed; see FAILED above."
        )
        return 1
    return 0


def _perform(narrator: Narrator) -> Story:
    with contextlib.ExitStack() as stack:
        with narrator.work("Starting the local AWS"):
            aws = stack.enter_context(local_aws())
        _deploy(aws, narrator)
        deployed = Deployed(
            {
                key: value
                for stack in ("State", "Control", "Watch")
                for key, value in stack_outputs(aws, f"Governor-{STAGE}-{stack}").items()
            }
        )
        theatre = Theatre(aws, deployed, narrator)
        began = time.monotonic()
        played = play(theatre)
        narrator.laps.append(Lap("Playing nine scenes", time.monotonic() - began))
        return tell_story(theatre, played)


def _deploy(aws: LocalAws, narrator: Narrator) -> None:
    with narrator.work("Bootstrapping the CDK in the local AWS") as update:
        bootstrap(aws, on_line=update)
    with narrator.work("Deploying the app with cdk deploy") as update:

        def show(line: str) -> None:
            if match := _PROGRESS.match(line):
                update(f"{match[1]} {match[2]} of {match[3]} resources")

        deploy(aws, CdkApp(REPOSITORY, {"stage": STAGE}), on_line=show)


if __name__ == "__main__":
    sys.exit(main())
