"""A local AWS listens on loopback alone, and everything of it ends: with its block, and with its parent."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

import pytest

from local.client import REPOSITORY, LocalAwsError, local_aws
from local.options import Endpoint, Options
from tests.contract.local.test_cloudformation import deploy

FUNCTION = {
    "Role": {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": {
                "Statement": [
                    {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
                ]
            }
        },
    },
    "Function": {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Runtime": "python3.13",
            "Handler": "index.handler",
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "Code": {"ZipFile": "def handler(event, context):\n    return 'here'\n"},
        },
    },
}


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    if not status.exists():
        return False
    return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def is_open(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_everything_ends_with_the_block(lambda_runtime_dir: Path) -> None:
    with local_aws(lambda_runtime_dir=lambda_runtime_dir) as aws:
        name = deploy(aws, FUNCTION, {"Name": {"Ref": "Function"}})["Name"]
        answer = aws.client("lambda").invoke(FunctionName=name)
        assert answer["Payload"].read() == b'"here"'
        [function_pid] = aws.stats().function_processes.values()
        port = urlparse(aws.endpoint.url).port
        assert port is not None
        assert is_open(port)
        assert is_alive(aws.pid)
        assert is_alive(function_pid)
    assert not is_open(port)
    assert not is_alive(aws.pid)
    assert not is_alive(function_pid)
    assert not aws.work_dir.exists()


def test_everything_ends_when_the_parent_is_killed(lambda_runtime_dir: Path, tmp_path: Path) -> None:
    script = (
        "import time; from pathlib import Path; from local.client import local_aws\n"
        f"world, runtime = Path({str(tmp_path / 'world')!r}), Path({str(lambda_runtime_dir)!r})\n"
        "with local_aws(work_dir=world, lambda_runtime_dir=runtime) as aws:\n"
        "    print(aws.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    watched = os.pidfd_open(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    poller = select.poll()
    poller.register(watched, select.POLLIN)
    assert poller.poll(15_000), "the local AWS outlived its parent"
    os.close(watched)


def test_listens_on_loopback_alone(lambda_runtime_dir: Path) -> None:
    with local_aws(lambda_runtime_dir=lambda_runtime_dir) as aws:
        port = urlparse(aws.endpoint.url).port
        listening = "0A"
        tables = [Path(f"/proc/{aws.pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
        rows = [row.split() for table in tables for row in table]
        addresses = {row[1] for row in rows if row[3] == listening and int(row[1].rsplit(":", 1)[1], 16) == port}
        assert addresses == {f"0100007F:{port:04X}"}


def test_missing_runtime_client_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(LocalAwsError, match='run "make build STAGE=local"'), local_aws(lambda_runtime_dir=tmp_path):
        pass


def test_options_survive_the_way_to_the_launcher() -> None:
    options = Options(work_dir="/w", lambda_runtime_dir="/r", prices_csv="/p", seed=5, budget_lag_min_hours=1.5)
    assert Options.from_json(options.to_json()) == options


def test_environment_points_at_the_endpoint() -> None:
    environment = Endpoint("http://127.0.0.1:1", "123456789012", "eu-west-1").environment()
    assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
    assert environment["AWS_REGION"] == environment["AWS_DEFAULT_REGION"] == "eu-west-1"
