"""SSM Run Command on moto's instances: what was sent is kept, and how it ends is set by a test."""

from __future__ import annotations

import fnmatch
import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from local.calls import current_request
from local.emulator import Emulator
from local.moto_bridge import Moto
from local.patching import relied_on, replace

Answer = tuple[int, dict[str, str], bytes]

_DETAILS = {"TimedOut": "ExecutionTimedOut"}
_RESPONSE_CODES = {"Success": 0, "Failed": 1}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ends on an instance; `instance` and `document` are patterns.

    `status` is SSM's word (`Success`, `Failed`, `TimedOut`, `Cancelled`), reached after `minutes` virtual minutes of
    `InProgress`; a word that begins with `Invalid` (`InvalidInstanceId`, `InvalidDocument`) refuses the call itself.
    """

    status: str = "Success"
    instance: str = "*"
    document: str = "*"
    minutes: float = 0.0
    output: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SentCommand:
    """One SendCommand that was accepted. `function` is the deployed function that sent it, or empty."""

    sequence: int
    at: str
    function: str
    caller_arn: str
    region: str
    command_id: str
    document: str
    instance_ids: tuple[str, ...]
    comment: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The command as plain JSON."""
        return asdict(self)


class Commands:
    """Takes the place of the emulator's Run Command, which knows none of moto's instances."""

    def __init__(self, emulator: Emulator, moto: Moto, account_id: str, now: Callable[[], datetime]) -> None:
        self._moto = moto
        self._account_id = account_id
        self._now = now
        self._guard = threading.Lock()
        self._outcomes: list[Outcome] = []
        self._sent: list[SentCommand] = []
        self._ends: dict[tuple[str, str, str], Outcome] = {}
        self._region = relied_on(emulator.responses, "get_region", ())
        self._error = relied_on(
            emulator.responses,
            "error_response_json",
            ("code", "message", "status", "extra", "message_key", "content_type"),
        )
        replace(emulator.ssm, "_send_command", ("data",), self._send)
        replace(emulator.ssm, "_get_command_invocation", ("data",), self._describe)
        replace(emulator.ssm, "_list_commands", ("data",), self._list)

    def set_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Replace how commands sent from now on end; the first that matches counts."""
        self._outcomes = list(outcomes)

    def all(self) -> list[SentCommand]:
        """Every command accepted so far, in order."""
        with self._guard:
            return list(self._sent)

    def _send(self, data: Mapping[str, Any]) -> Answer:
        document, ids = str(data.get("DocumentName") or ""), target_ids(data)
        if not document or not ids:
            return self._refuse("ValidationException", "DocumentName and InstanceIds are required")
        ends = {instance_id: self._outcome_of(instance_id, document) for instance_id in ids}
        away = sorted(one for one in ids if not self._runs(one) or ends[one].status == "InvalidInstanceId")
        if away:
            message = f"Instances [[{', '.join(away)}]] not in a valid state for account {self._account_id}"
            return self._refuse("InvalidInstanceId", message)
        for end in ends.values():
            if end.status.startswith("Invalid"):
                return self._refuse(end.status, f"Document with name {document} does not exist.")
        return self._accept(data, document, ids, ends)

    def _accept(
        self, data: Mapping[str, Any], document: str, ids: Sequence[str], ends: Mapping[str, Outcome]
    ) -> Answer:
        request = current_request()
        with self._guard:
            sent = SentCommand(
                sequence=len(self._sent) + 1,
                at=self._now().isoformat(),
                function=request.function if request else "",
                caller_arn=request.caller_arn if request else "",
                region=self._region(),
                command_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{document} {len(self._sent)} {' '.join(ids)}")),
                document=document,
                instance_ids=tuple(ids),
                comment=str(data.get("Comment", "")),
                parameters=dict(data.get("Parameters") or {}),
            )
            self._sent.append(sent)
            self._ends.update({(sent.region, sent.command_id, one): end for one, end in ends.items()})
        return _json({"Command": self._command(sent)})

    def _describe(self, data: Mapping[str, Any]) -> Answer:
        command_id, instance_id = str(data.get("CommandId")), str(data.get("InstanceId"))
        end = self._ends.get((self._region(), command_id, instance_id))
        if end is None:
            return self._refuse("InvocationDoesNotExist", f"Invocation not found for {command_id}, {instance_id}")
        sent = next(one for one in self.all() if one.command_id == command_id)
        status = self._status(sent, end)
        return _json(
            {
                "CommandId": command_id,
                "InstanceId": instance_id,
                "Comment": sent.comment,
                "DocumentName": sent.document,
                "ResponseCode": _RESPONSE_CODES.get(status, -1),
                "ExecutionStartDateTime": sent.at,
                "ExecutionEndDateTime": "" if status == "InProgress" else self._end_of(sent, end).isoformat(),
                "Status": status,
                "StatusDetails": _DETAILS.get(status, status),
                "StandardOutputContent": "" if status == "InProgress" else end.output,
                "StandardErrorContent": "",
            }
        )

    def _list(self, data: Mapping[str, Any]) -> Answer:
        wanted, region = data.get("CommandId"), self._region()
        found = [one for one in self.all() if one.region == region and wanted in (None, one.command_id)]
        return _json({"Commands": [self._command(one) for one in reversed(found)]})

    def _command(self, sent: SentCommand) -> dict[str, Any]:
        statuses = {self._status(sent, self._ends[sent.region, sent.command_id, one]) for one in sent.instance_ids}
        is_going_on = "InProgress" in statuses
        status = "InProgress" if is_going_on else statuses.pop() if len(statuses) == 1 else "Failed"
        return {
            "CommandId": sent.command_id,
            "DocumentName": sent.document,
            "Comment": sent.comment,
            "InstanceIds": list(sent.instance_ids),
            "Parameters": sent.parameters,
            "RequestedDateTime": datetime.fromisoformat(sent.at).timestamp(),
            "Status": status,
            "StatusDetails": status,
            "TargetCount": len(sent.instance_ids),
        }

    def _status(self, sent: SentCommand, end: Outcome) -> str:
        return "InProgress" if self._now() < self._end_of(sent, end) else end.status

    def _end_of(self, sent: SentCommand, end: Outcome) -> datetime:
        return datetime.fromisoformat(sent.at) + timedelta(minutes=end.minutes)

    def _outcome_of(self, instance_id: str, document: str) -> Outcome:
        for one in self._outcomes:
            if fnmatch.fnmatchcase(instance_id, one.instance) and fnmatch.fnmatchcase(document, one.document):
                return one
        return Outcome()

    def _runs(self, instance_id: str) -> bool:
        with self._moto.lock:
            found = self._moto.ec2(self._region()).get_instance_by_id(instance_id)
            return found is not None and found.state == "running"

    def _refuse(self, code: str, message: str) -> Answer:
        answer: Answer = self._error(code, message, 400)
        return answer


def target_ids(data: Mapping[str, Any]) -> list[str]:
    """The instances a SendCommand names, by id or by the target `InstanceIds`; other targets are not simulated."""
    ids = [str(one) for one in data.get("InstanceIds") or []]
    for target in data.get("Targets") or []:
        if target.get("Key", "").lower() == "instanceids":
            ids.extend(str(one) for one in target.get("Values") or [])
    return list(dict.fromkeys(ids))


def document_arn(name: str, region: str, account_id: str) -> str:
    """The ARN of a document; those of AWS belong to no account."""
    if name.startswith("arn:"):
        return name
    owner = "" if name.startswith(("AWS-", "AWSEC2-")) else account_id
    return f"arn:aws:ssm:{region}:{owner}:document/{name}"


def _json(body: Mapping[str, Any]) -> Answer:
    return 200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(body).encode()
