"""`make local`: a local AWS with the app deployed and a small GPU fleet, up until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

from local.answers import FleetInstance
from local.client import REPOSITORY, LocalAws, LocalAwsError, local_aws
from local.deploy import CdkApp, DeployError, bootstrap, deploy
from local.pacing import REAL_MINUTE_SECONDS

FOLDER = REPOSITORY / "build" / "local"
STAGE = "local"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--minute-seconds",
        type=float,
        default=REAL_MINUTE_SECONDS,
        help="real seconds that one minute of the local AWS takes (default: 60, its clock is then the machine's)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of ids and of the lag of budgets")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(arguments.port, arguments.minute_seconds, arguments.seed)
    except (DeployError, LocalAwsError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("\nThe local AWS has ended.")


def run(port: int, minute_seconds: float, seed: int) -> None:
    """Start, deploy, launch the fleet, say how to use it, and wait."""
    started_at = time.monotonic()

    def say(line: str) -> None:
        if line.strip():
            print(f"{time.monotonic() - started_at:6.1f} s  {line}", flush=True)

    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="world-", dir=FOLDER) as folder,
        local_aws(work_dir=Path(folder) / "aws", port=port, seed=seed) as aws,
    ):
        say(f"local AWS at {aws.endpoint.url}")
        bootstrap(aws, say)
        deploy(aws, CdkApp(REPOSITORY, context={"stage": STAGE}), say)
        fleet = aws.create_fleet(STAGE)
        say(f"{len(fleet)} GPU instances launched")
        aws.advance(timedelta(minutes=5))
        say("first runs of the functions done; the clock is five minutes ahead of yours")
        aws.pace(minute_seconds)
        print(instructions(aws, fleet), flush=True)
        threading.Event().wait()


def instructions(aws: LocalAws, fleet: list[FleetInstance]) -> str:
    """What a person needs to know to play with it."""
    exports = "\n".join(f"export {name}={value}" for name, value in sorted(aws.environment().items()))
    instances = "\n".join(f"  {one.instance_id}  {one.instance_type:14} {one.role}" for one in fleet)
    return f"""
The fleet:
{instances}

In another terminal, for any AWS SDK, the AWS CLI and the governor CLI:

{exports}

  .venv/bin/governor status --stage {STAGE}
  .venv/bin/governor plan --stage {STAGE}

Spend, time and failures are set through the control endpoints, for example:

  curl -d '{{"amount_usd": 960}}' {aws.endpoint.url}/_local/spend
  curl -d '{{}}' {aws.endpoint.url}/_local/budgets/refresh
  curl -d '{{"minutes": 10}}' {aws.endpoint.url}/_local/advance
  curl -d '{{}}' {aws.endpoint.url}/_local/mails

Logs of functions: {_shown(aws.work_dir / "functions")}. Ctrl-C ends everything.
"""


def _shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)


if __name__ == "__main__":
    main()
