"""A custom resource whose function fails is reported at once; AWS would wait for its answer for up to an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local.emulator import Emulator
from local.patching import relied_on

RESPONSE_PATH = "/_ministack/cfn-response/"


class CustomResources:
    """Answers CloudFormation in the place of a function that ended without an answer."""

    def __init__(self, emulator: Emulator) -> None:
        self._deliver = relied_on(emulator.custom_resources, "deliver_response", ("token", "response"))

    def report_failure(self, event: Any, error: Mapping[str, Any]) -> None:
        """Answer FAILED if `event` is CloudFormation's to a custom resource; anything else is left alone."""
        if not isinstance(event, Mapping) or "ResponseURL" not in event or "RequestType" not in event:
            return
        reason = f"the function failed: {error.get('errorType')}: {error.get('errorMessage')}"
        answer = {
            "Status": "FAILED",
            "Reason": reason,
            "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
            "StackId": event["StackId"],
            "RequestId": event["RequestId"],
            "LogicalResourceId": event["LogicalResourceId"],
        }
        self._deliver(event["ResponseURL"].rpartition(RESPONSE_PATH)[2], answer)
