"""Parameter Store as AWS has it where the emulator does not: events, allowed patterns, empty pages, who wrote what."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from local.emulator import Emulator
from local.events import Bus
from local.patching import relied_on, replace

Answer = tuple[int, dict[str, str], bytes]


class Parameters:
    """Wraps the emulator's calls. `caller_arn` names who makes the current request."""

    def __init__(
        self, emulator: Emulator, bus: Bus, account_id: str, caller_arn: Callable[[], str], *, empty_pages: bool
    ) -> None:
        self._emulator = emulator
        self._bus = bus
        self._account_id = account_id
        self._caller_arn = caller_arn
        self.empty_pages = empty_pages
        self._error = relied_on(
            emulator.responses,
            "error_response_json",
            ("code", "message", "status", "extra", "message_key", "content_type"),
        )
        self._region = relied_on(emulator.responses, "get_region", ())
        self._put = replace(emulator.ssm, "_put_parameter", ("data",), self._put_parameter)
        self._delete = replace(emulator.ssm, "_delete_parameter", ("data",), self._delete_parameter)
        self._delete_many = replace(emulator.ssm, "_delete_parameters", ("data",), self._delete_parameters)
        self._label = replace(emulator.ssm, "_label_parameter_version", ("data",), self._label_version)
        self._by_path = replace(emulator.ssm, "_get_parameters_by_path", ("data",), self._get_by_path)

    def _put_parameter(self, data: Mapping[str, Any]) -> Answer:
        name, pattern = str(data.get("Name")), data.get("AllowedPattern")
        if pattern and re.fullmatch(pattern, str(data.get("Value", ""))) is None:
            return self._pattern_mismatch(name, pattern)
        existed = name in self._emulator.ssm._parameters
        answer: Answer = self._put(data)
        if answer[0] == 200:
            record = self._emulator.ssm._parameters[name]
            record["LastModifiedUser"] = self._caller_arn()
            self._emulator.ssm._parameter_history[name][-1]["LastModifiedUser"] = self._caller_arn()
            self._announce("Update" if existed else "Create", name, record)
        return answer

    def _pattern_mismatch(self, name: str, pattern: str) -> Answer:
        message = f"Parameter value, cannot be validated against allowedPattern: {pattern} (parameter {name})"
        answer: Answer = self._error("ParameterPatternMismatchException", message, 400)
        return answer

    def _delete_parameter(self, data: Mapping[str, Any]) -> Answer:
        record = self._emulator.ssm._parameters.get(data.get("Name"))
        answer: Answer = self._delete(data)
        if answer[0] == 200 and record is not None:
            self._announce("Delete", record["Name"], record)
        return answer

    def _delete_parameters(self, data: Mapping[str, Any]) -> Answer:
        records = {name: self._emulator.ssm._parameters.get(name) for name in data.get("Names", [])}
        answer: Answer = self._delete_many(data)
        for name in json.loads(answer[2]).get("DeletedParameters", []):
            if records.get(name) is not None:
                self._announce("Delete", name, records[name])
        return answer

    def _label_version(self, data: Mapping[str, Any]) -> Answer:
        answer: Answer = self._label(data)
        record = self._emulator.ssm._parameters.get(data.get("Name"))
        if answer[0] == 200 and record is not None:
            self._announce("LabelParameterVersion", record["Name"], record)
        return answer

    def _get_by_path(self, data: Mapping[str, Any]) -> Answer:
        """With empty pages on, every first page is empty and has a token, as AWS allows itself."""
        if self.empty_pages and not data.get("NextToken"):
            token = self._emulator.ssm._encode_next_token(0)
            return (
                200,
                {"Content-Type": "application/x-amz-json-1.1"},
                json.dumps({"Parameters": [], "NextToken": token}).encode(),
            )
        answer: Answer = self._by_path(data)
        return answer

    def _announce(self, operation: str, name: str, record: Mapping[str, Any]) -> None:
        detail = {"operation": operation, "name": name, "type": record["Type"]}
        if record.get("Description"):
            detail["description"] = record["Description"]
        region = self._region()
        self._bus.put(
            source="aws.ssm",
            detail_type="Parameter Store Change",
            detail=detail,
            region=region,
            resources=[f"arn:aws:ssm:{region}:{self._account_id}:parameter/{name.lstrip('/')}"],
        )
