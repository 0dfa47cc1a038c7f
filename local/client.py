"""The typed client of a local AWS, and the context manager that starts one and ends it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from local.answers import Bill, FleetInstance, Stats
from local.calls import Call
from local.commands import Outcome, SentCommand
from local.deliveries import DeliveryRecord
from local.faults import Fault
from local.mail import Mail
from local.options import ACCESS_KEY_ID, LOOPBACK, SECRET_ACCESS_KEY, Endpoint, Options
from local.starts import Start

REPOSITORY = Path(__file__).resolve().parent.parent
LAMBDA_RUNTIME_DIR = REPOSITORY / "build" / "lambda-runtime"
PRICES_CSV = REPOSITORY / "layers" / "core" / "python" / "governor" / "data" / "prices.csv"
START_TIMEOUT_SECONDS = 60.0
END_TIMEOUT_SECONDS = 20.0


class LocalAwsError(RuntimeError):
    """The local AWS did not start, or a control request failed; the text says why."""


class LocalAws:
    """A running local AWS. Every method waits until what it asked for has happened."""

    def __init__(self, endpoint: Endpoint, pid: int, work_dir: Path) -> None:
        self.endpoint = endpoint
        self.pid = pid
        self.work_dir = work_dir
        self._clients: dict[tuple[Any, ...], Any] = {}

    def environment(self) -> dict[str, str]:
        """The AWS_* variables that point an SDK, the CDK CLI or the `governor` CLI at it."""
        return self.endpoint.environment()

    def client(self, service: str, *, region: str | None = None, retries: int = 0, **credentials: Any) -> Any:
        """A boto3 client of it (kept), as the account's root unless `credentials` (boto3's names) say otherwise."""
        key = (service, region, retries, *sorted(credentials.items()))
        if key not in self._clients:
            self._clients[key] = self._make_client(service, region, retries, credentials)
        return self._clients[key]

    def _make_client(self, service: str, region: str | None, retries: int, credentials: Mapping[str, Any]) -> Any:
        config = Config(retries={"total_max_attempts": retries + 1, "mode": "standard"}, parameter_validation=True)
        keys = {"aws_access_key_id": ACCESS_KEY_ID, "aws_secret_access_key": SECRET_ACCESS_KEY, **credentials}
        return boto3.client(
            service,
            endpoint_url=self.endpoint.url,
            region_name=region or self.endpoint.region,
            config=config,
            **keys,
        )

    # the clock

    def now(self) -> datetime:
        """The virtual time."""
        return datetime.fromisoformat(self.control("clock")["now"])

    def set_clock(self, moment: datetime) -> None:
        """Jump to an aware moment: no schedule fires for the time in between. Deploy first, then set the clock."""
        self.control("clock", now=moment.isoformat())

    def advance(self, duration: timedelta) -> int:
        """Run `duration` of virtual time, minute by minute and in order; returns how many function runs that took."""
        return int(self.control("advance", minutes=duration / timedelta(minutes=1))["runs"])

    def advance_to(self, moment: datetime) -> int:
        """Like `advance`, up to an aware moment."""
        return int(self.control("advance", to=moment.isoformat())["runs"])

    def pace(self, minute_seconds: float) -> None:
        """Let the clock run by itself, one virtual minute every `minute_seconds` of real time, from now to the end."""
        self.control("pace", minute_seconds=minute_seconds)

    def settle(self) -> int:
        """Wait until everything due now was delivered; returns how many runs that took."""
        return int(self.control("settle")["runs"])

    def hold_deliveries(self, on: bool) -> None:
        """Hold the background delivery until `settle` or `advance`, or let it go on."""
        self.control("hold", on=on)

    # the world

    def emit(self, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str] = ()) -> None:
        """Put one event on the default bus; sources of AWS (`aws.ec2`) are allowed here."""
        self.control("emit", source=source, detail_type=detail_type, detail=detail, resources=list(resources))

    def enforce_roles(self, on: bool) -> None:
        """Evaluate the policies of every caller from now on, tags of instances included. Only after the deploy."""
        self.control("roles", on=on)

    def set_faults(self, *faults: Fault) -> None:
        """Replace the faults in force; none clears them. Makers: `local.faults`."""
        self.control("faults", faults=[fault.to_dict() for fault in faults])

    def set_spend(self, amount_usd: float, *, forecast_usd: float | None = None, refresh: bool = False) -> None:
        """Set the true month-to-date cost; budgets see it at their next refresh, or at once with `refresh`."""
        self.control("spend", amount_usd=amount_usd, forecast_usd=forecast_usd)
        if refresh:
            self.refresh_budgets()

    def bill(self) -> Bill:
        """The true bill so far."""
        answer = self.control("spend")
        refreshes = {name: datetime.fromisoformat(moment) for name, moment in answer["next_refresh"].items()}
        return Bill(answer["month_to_date_usd"], answer["run_rate_usd_per_hour"], refreshes)

    def refresh_budgets(self) -> None:
        """Let every budget see the true bill now; notices go out."""
        self.control("budgets/refresh")

    def set_empty_parameter_pages(self, on: bool) -> None:
        """Make every first page of GetParametersByPath empty, with a token."""
        self.control("parameters", empty_pages=on)

    def create_fleet(
        self, stage: str, *, region: str | None = None, group: bool = True, everything: bool = False
    ) -> list[FleetInstance]:
        """Create the sample fleet of GPU instances, managed by `stage`; with `everything` one of every kind."""
        answer = self.control("fleet", stage=stage, region=region, group=group, everything=everything)
        return [FleetInstance(**one) for one in answer["instances"]]

    def remove_fleet(self) -> int:
        """End and forget every instance, group and spot request, and what was set for them; returns how many ended.

        Nothing comes back. The events of it are delivered with the next `settle`.
        """
        return int(self.control("fleet/remove")["ended"])

    def set_starts(self, *starts: Start) -> None:
        """Replace what becomes of StartInstances; none: everything runs at once. Makers: `local.starts`."""
        self.control("starts", starts=[start.to_dict() for start in starts])

    def set_reserved_instances(self, *items: Mapping[str, Any], region: str | None = None) -> None:
        """Replace what DescribeReservedInstances lists, in its own words; `State` is active unless given."""
        self.control("commitments", kind="reserved", region=region, items=list(items))

    def set_capacity_reservations(self, *items: Mapping[str, Any], region: str | None = None) -> None:
        """Replace what DescribeCapacityReservations lists; free places are counted unless given."""
        self.control("commitments", kind="capacity", region=region, items=list(items))

    def set_command_outcomes(self, *outcomes: Outcome) -> None:
        """Replace how commands sent from now on end; the first that matches counts, none: Success at once."""
        self.control("commands/outcomes", outcomes=[outcome.to_dict() for outcome in outcomes])

    def confirm_subscriptions(self, confirmed: bool, endpoint: str = "*") -> int:
        """Confirm e-mail subscriptions whose address matches, or make them wait; returns how many that changed."""
        return int(self.control("subscriptions", confirmed=confirmed, endpoint=endpoint)["changed"])

    # what happened

    def mails(self) -> list[Mail]:
        """Every SNS message to e-mail, HTTP and SMS subscribers, in order."""
        return [Mail(**one) for one in self.control("mails")["mails"]]

    def deliveries(self, after: int = 0) -> list[DeliveryRecord]:
        """Every attempt to run a function asynchronously, in order, skipping the first `after`."""
        return [DeliveryRecord(**one) for one in self.control("deliveries", after=after)["deliveries"]]

    def calls(self, after: int = 0) -> list[Call]:
        """Every AWS request seen (who, which action, with what status), in order, skipping the first `after`."""
        return [
            Call(**{**one, "permissions": tuple(one["permissions"])})
            for one in self.control("calls", after=after)["calls"]
        ]

    def commands(self) -> list[SentCommand]:
        """Every command sent over SSM Run Command, in order."""
        return [
            SentCommand(**{**one, "instance_ids": tuple(one["instance_ids"])})
            for one in self.control("commands")["commands"]
        ]

    def function_log(self, function_name: str) -> str:
        """All that a function wrote so far."""
        return str(self.control("logs", function=function_name)["log"])

    def stats(self) -> Stats:
        """Figures of the run so far."""
        answer = self.control("stats")
        return Stats(**{**answer, "now": datetime.fromisoformat(answer["now"])})

    def control(self, path: str, **body: Any) -> dict[str, Any]:
        """One control request. Raises LocalAwsError with the other side's traceback."""
        address = self.endpoint.url.removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=3600)
        try:
            connection.request("POST", f"/_local/{path}", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise LocalAwsError(f"{path}: {answer['error']}\n{answer['traceback']}")
        return answer


@contextlib.contextmanager
def local_aws(
    *,
    work_dir: Path | None = None,
    lambda_runtime_dir: Path = LAMBDA_RUNTIME_DIR,
    prices_csv: Path = PRICES_CSV,
    **options: Any,
) -> Iterator[LocalAws]:
    """Start a local AWS in a process of its own, and end it, all its functions and its temporary files with the block.

    `options` are fields of `local.options.Options` (port, seed, budget_lag_min_hours, ...). With `work_dir` the logs
    stay there. Raises LocalAwsError when it does not start.
    """
    with contextlib.ExitStack() as stack:
        if work_dir is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="local-aws-")))
        else:
            folder = work_dir.resolve()
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        settings = Options(
            work_dir=str(folder),
            lambda_runtime_dir=str(lambda_runtime_dir.resolve()),
            prices_csv=str(prices_csv.resolve()),
            **options,
        )
        process = stack.enter_context(_launcher(settings))
        ready = _wait_until_ready(process, folder)
        endpoint = Endpoint(ready["url"], settings.account_id, settings.region)
        yield LocalAws(endpoint, process.pid, folder)


@contextlib.contextmanager
def _launcher(options: Options) -> Iterator[subprocess.Popen[bytes]]:
    with (options.work_path / "launcher.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "local.launcher", "--options", options.to_json()],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=END_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _wait_until_ready(process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    if process.stdout is None:
        raise LocalAwsError("the launcher has no standard output")
    line = process.stdout.readline()
    if not line:
        process.wait(timeout=START_TIMEOUT_SECONDS)
        text = (folder / "launcher.log").read_text(errors="replace")
        raise LocalAwsError(f"the local AWS did not start ({LOOPBACK}):\n{text[-4000:]}")
    ready: dict[str, Any] = json.loads(line)
    return ready
