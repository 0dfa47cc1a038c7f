"""`python -m demo.command_line MOMENT ARGUMENT...`: the command `governor`, on the virtual clock."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_COLUMNS = "108"
_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: both streams as a terminal shows them, and the exit code."""

    printed: str
    exit_code: int


def run_governor(
    arguments: list[str], *, moment: datetime, url: str, region: str, keys: tuple[str, str], folder: Path
) -> Ended:
    """Run `governor` in a process of its own, with a person's keys, at a moment of the virtual clock.

    Raises subprocess.TimeoutExpired after two minutes.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ended = subprocess.run(
        [sys.executable, "-m", "demo.command_line", moment.isoformat(), *arguments],
        cwd=folder,
        env={
            **kept,
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": region,
            "AWS_ACCESS_KEY_ID": keys[0],
            "AWS_SECRET_ACCESS_KEY": keys[1],
            "AWS_EC2_METADATA_DISABLED": "true",
            "COLUMNS": _COLUMNS,
            "NO_COLOR": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    lines = [line.rstrip() for line in ended.stdout.splitlines()]
    return Ended("\n".join(lines).strip("\n"), ended.returncode)


def main() -> None:
    """Run the command as if it were that moment. Requests are signed with the time of this machine, as AWS wants it."""
    import cli.terminal
    from cli.main import app

    moment, *arguments = sys.argv[1:]
    cli.terminal.current_time = lambda: datetime.fromisoformat(moment)
    app(arguments, prog_name="governor")


if __name__ == "__main__":
    main()
