"""Custom resources: what CloudFormation asks, and the answer that it waits for."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_REASON_CHARACTERS = 1000
"""CloudFormation takes answers of at most 4096 bytes."""

TIMEOUT_SECONDS = 10
ATTEMPTS = 4


class Status(StrEnum):
    """How a request ended."""

    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class ResourceRequest(BaseModel):
    """A request of CloudFormation for a custom resource. Without an address nobody waits for an answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    request_type: Literal["Create", "Update", "Delete"] = Field(alias="RequestType")
    response_url: str = Field(default="", alias="ResponseURL", pattern=r"^(https?://.+)?$")
    stack_id: str = Field(default="", alias="StackId")
    request_id: str = Field(default="", alias="RequestId")
    logical_id: str = Field(default="", alias="LogicalResourceId")
    physical_id: str = Field(default="", alias="PhysicalResourceId")


Send = Callable[[str, bytes], None]


def compose(
    request: ResourceRequest, physical_id: str, status: Status, reason: str, data: Mapping[str, str]
) -> dict[str, Any]:
    """The answer to `request`."""
    return {
        "Status": status.value,
        "Reason": reason if len(reason) <= MAX_REASON_CHARACTERS else reason[: MAX_REASON_CHARACTERS - 3] + "...",
        "PhysicalResourceId": physical_id,
        "StackId": request.stack_id,
        "RequestId": request.request_id,
        "LogicalResourceId": request.logical_id,
        "Data": dict(data),
    }


def put(url: str, body: bytes) -> None:
    """Put `body` to the presigned address; retried. Raises OSError when it cannot be delivered."""
    # A presigned address is signed without a content type, so an empty one has to be sent.
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
                return
        except OSError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(0.5 * 2**attempt)


def answer(request: ResourceRequest, content: Mapping[str, Any], send: Send) -> None:
    """Deliver the answer where CloudFormation waits for it."""
    if request.response_url:
        send(request.response_url, json.dumps(content).encode())
