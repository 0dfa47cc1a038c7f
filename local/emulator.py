"""The pinned emulator, imported once its environment is set (it reads its settings while it is imported)."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from local.options import ACCESS_KEY_ID, LOOPBACK, SECRET_ACCESS_KEY, Options

PINNED = {"ministack": "1.5.33", "moto": "5.2.5", "awslambdaric": "4.2.2", "time-machine": "3.6.0"}

# A child of the launcher must not inherit what the developer's shell says about the real AWS.
_FOREIGN_PREFIXES = ("AWS_", "MINISTACK_", "LAMBDA_", "MOTO_")


@dataclass(frozen=True, slots=True)
class Emulator:
    """The emulator's modules that `local` replaces or calls; untyped, so every use is behind a contract test."""

    app: Any
    arn: Any
    autoscaling: Any
    budgets: Any
    cloudformation: Any
    cloudwatch: Any
    concurrency: Any
    custom_resources: Any
    dynamodb: Any
    ec2: Any
    events: Any
    iam: Any
    iam_actions: Any
    iam_evaluator: Any
    kms: Any
    lambdas: Any
    logs: Any
    provisioners: Any
    responses: Any
    router: Any
    runtime: Any
    scheduler: Any
    sigv4: Any
    sns: Any
    sqs: Any
    ssm: Any
    stack_handlers: Any
    stacks: Any
    sts: Any


def prepare_environment(options: Options, port: int) -> None:
    """Set what the emulator reads at import: loopback only, no extra listeners, temporary files in the work dir."""
    for name in [name for name in os.environ if name.startswith(_FOREIGN_PREFIXES)]:
        del os.environ[name]
    temporary = options.work_path / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        AUTH="false",
        AWS_ACCESS_KEY_ID=ACCESS_KEY_ID,
        AWS_SECRET_ACCESS_KEY=SECRET_ACCESS_KEY,
        AWS_DEFAULT_REGION=options.region,
        BIND_HOST=LOOPBACK,
        EDGE_PORT=str(port),
        GATEWAY_PORT=str(port),
        IOT_MTLS_ENABLED="0",
        LOG_LEVEL="WARNING",
        MINISTACK_ACCOUNT_ID=options.account_id,
        MINISTACK_HOST=LOOPBACK,
        MINISTACK_REGION=options.region,
        MINISTACK_TEST_NO_AUTOSTART="1",
        MOTO_ACCOUNT_ID=options.account_id,
        MOTO_EC2_LOAD_DEFAULT_AMIS="true",
        PERSIST_STATE="0",
        S3_PERSIST="0",
        SFTP_ENABLED="0",
        TMPDIR=str(temporary),
    )


def load() -> Emulator:
    """Import the emulator. Call `prepare_environment` first."""
    service = "ministack.services."
    modules = {
        "app": "ministack.app",
        "arn": "ministack.core.arn",
        "autoscaling": service + "autoscaling",
        "budgets": service + "budgets",
        "cloudformation": service + "cloudformation",
        "cloudwatch": service + "cloudwatch",
        "concurrency": "ministack.core.concurrency",
        "custom_resources": service + "cloudformation.custom_resource",
        "dynamodb": service + "dynamodb",
        "ec2": service + "ec2",
        "events": service + "eventbridge",
        "iam": service + "iam",
        "iam_actions": "ministack.core.iam_actions",
        "iam_evaluator": "ministack.core.iam_evaluator",
        "kms": service + "kms",
        "lambdas": service + "lambda_svc",
        "logs": service + "cloudwatch_logs",
        "provisioners": service + "cloudformation.provisioners",
        "responses": "ministack.core.responses",
        "router": "ministack.core.router",
        "runtime": "ministack.core.lambda_runtime",
        "scheduler": service + "scheduler",
        "sigv4": "ministack.core.sigv4",
        "sns": service + "sns",
        "sqs": service + "sqs",
        "ssm": service + "ssm",
        "stack_handlers": service + "cloudformation.handlers",
        "stacks": service + "cloudformation.stacks",
        "sts": service + "sts",
    }
    with _no_threads():
        return Emulator(**{field: importlib.import_module(name) for field, name in modules.items()})


@contextlib.contextmanager
def _no_threads() -> Iterator[None]:
    """Keep the emulator's timers off (its modules start them at import); the virtual clock does their work."""
    start = threading.Thread.start
    threading.Thread.start = _stay_still  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


def _stay_still(thread: threading.Thread) -> None:
    """Take the place of Thread.start."""
