"""boto3 clients with one retry policy and time-outs that fit a Lambda function."""

from __future__ import annotations

from functools import cache
from typing import Any

import boto3
from botocore.config import Config

CONFIG = Config(
    retries={"mode": "standard", "max_attempts": 3},
    connect_timeout=3,
    read_timeout=15,
    user_agent_extra="gpu-governor",
)


@cache
def client(service: str, region: str | None = None) -> Any:
    """A shared client of a service; created once a process, since creating one is slow."""
    return boto3.client(service, region_name=region, config=CONFIG)
