"""The account and the Region of the usual AWS variables (also AWS_ENDPOINT_URL, for a local AWS)."""

from __future__ import annotations

import os
from typing import Any

from cli.errors import NO_REGION, CliError


def region_or_none() -> str | None:
    """The Region of AWS_REGION, AWS_DEFAULT_REGION or the profile; None where there is none."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named:
        return named
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.Session().region_name
    except BotoCoreError:
        return None


def home_region() -> str:
    """The Region to work in. Raises CliError where none is set."""
    region = region_or_none()
    if region is None:
        raise CliError(NO_REGION)
    return region


GUARD_SECONDS = 330
"""guard_budget may take 300 s, and waits half a minute for another run."""


def patient_lambda(region: str) -> Any:
    """A Lambda client that waits for the answer of the longest function, and never asks twice."""
    import boto3
    from botocore.config import Config

    from governor.aws.clients import CONFIG

    patient = Config(read_timeout=GUARD_SECONDS, retries={"total_max_attempts": 1}, tcp_keepalive=True)
    return boto3.client("lambda", region_name=region, config=CONFIG.merge(patient))


def aws(service: str, region: str | None = None) -> Any:
    """A client of a service in a Region (default: the one to work in). Create clients in the main thread only."""
    from governor.aws.clients import client

    return client(service, region or home_region())
