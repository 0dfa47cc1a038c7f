"""SSM Run Command: the documents that save work before a stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from governor.aws.errors import AWS_ERRORS, error_code, error_sentence
from governor.ports import CommandOutcome

DELIVERY_SECONDS = 60
"""So long SSM tries to reach the agent; a machine that does not answer has no checkpoint within a grace anyway."""

COMMENT_CHARACTERS = 100
"""Limit of SendCommand (AWS Systems Manager API Reference)."""

_PENDING = frozenset({"Pending", "InProgress", "Delayed", "Cancelling"})


class RunCommand:
    """`Commands` on Systems Manager; `ssm_of` gives the client of a Region."""

    def __init__(self, ssm_of: Callable[[str], Any]) -> None:
        self._ssm_of = ssm_of

    def send(self, region: str, instance_id: str, document: str, comment: str) -> tuple[str, str]:
        """(command id, "") once SSM took it, or ("", error sentence)."""
        try:
            answer = self._ssm_of(region).send_command(
                DocumentName=document,
                InstanceIds=[instance_id],
                TimeoutSeconds=DELIVERY_SECONDS,
                Comment=comment[:COMMENT_CHARACTERS],
            )
        except AWS_ERRORS as error:
            return "", error_sentence(error)
        return str(answer["Command"]["CommandId"]), ""

    def outcome(self, region: str, instance_id: str, command_id: str) -> CommandOutcome:
        """How far a command has come. One that SSM does not know yet, or that cannot be read, is pending."""
        try:
            answer = self._ssm_of(region).get_command_invocation(CommandId=command_id, InstanceId=instance_id)
        except ClientError as error:
            known = "not known yet" if error_code(error) == "InvocationDoesNotExist" else error_sentence(error)
            return CommandOutcome("pending", known)
        except AWS_ERRORS as error:
            return CommandOutcome("pending", error_sentence(error))
        status = str(answer.get("Status", ""))
        detail = str(answer.get("StatusDetails") or status)
        if status in _PENDING:
            return CommandOutcome("pending", detail)
        if status == "Success":
            return CommandOutcome("success", detail)
        code = answer.get("ResponseCode")
        return CommandOutcome("failed", f"{detail}, exit code {code}" if code not in (None, -1) else detail)
