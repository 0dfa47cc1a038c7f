"""Every AWS request seen once on its way in: who calls what; logged, and failed where a fault says so."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from local.authorisation import Authorisation
from local.emulator import Emulator
from local.faults import Fault, Faults
from local.functions import Functions
from local.patching import relied_on, replace

Answer = tuple[int, dict[str, str], Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `function` is the deployed function that made it, or empty.

    `action` is the API operation (`budgets:DescribeBudget`), `permissions` what it needs in IAM's words
    (`budgets:ViewBudget`; a DynamoDB transaction needs those of its items).
    """

    sequence: int
    at: str
    function: str
    caller_arn: str
    action: str
    status: int
    fault: str
    permissions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The call as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Request:
    """The request being served, for what needs more than the emulator passes on."""

    service: str
    action: str
    caller_arn: str
    function: str
    region: str
    parameters: Mapping[str, list[str]]
    permissions: tuple[str, ...]
    body: bytes = b""


_current: contextvars.ContextVar[Request | None] = contextvars.ContextVar("_current", default=None)


def current_request() -> Request | None:
    """The request being served on this path of execution, or None outside of one."""
    return _current.get()


class Calls:
    """Sits before the emulator's own dispatch."""

    def __init__(
        self,
        emulator: Emulator,
        faults: Faults,
        now: Callable[[], datetime],
        functions: Functions,
        authorisation: Authorisation,
    ) -> None:
        self._faults = faults
        self._now = now
        self._functions = functions
        self._guard = threading.Lock()
        self._calls: list[Call] = []
        self._account_id = relied_on(emulator.responses, "get_account_id", ())
        self._region = relied_on(emulator.responses, "get_region", ())
        self._parameters = relied_on(
            emulator.app, "_routing_params", ("method", "path", "headers", "body", "query_params")
        )
        self._detect_service = relied_on(
            emulator.router, "detect_service", ("method", "path", "headers", "query_params")
        )
        self._authorisation = authorisation
        self._caller = relied_on(emulator.iam_evaluator, "request_caller_arn", ("headers", "query_params"))
        self._error = relied_on(
            emulator.iam_actions,
            "access_denied_response",
            (
                "service",
                "action",
                "principal_arn",
                "request_id",
                "error_code",
                "message",
                "headers",
                "resource_arn",
                "explicit_deny",
                "resource_policy_arn",
            ),
        )
        self._dispatch = replace(
            emulator.app,
            "_dispatch_service_request",
            ("method", "path", "headers", "body", "query_params", "request_id"),
            self._serve,
        )

    def all(self, after: int = 0) -> list[Call]:
        """Every call so far, in order, skipping the first `after`."""
        with self._guard:
            return self._calls[after:]

    def caller_arn(self) -> str:
        """Who makes the request being served; the account's root outside of one."""
        request = _current.get()
        return request.caller_arn if request else f"arn:aws:iam::{self._account_id()}:root"

    async def _serve(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        query_params: dict[str, list[str]],
        request_id: str,
    ) -> Answer:
        request = self._describe(method, path, headers, body, query_params)
        token = _current.set(request)
        try:
            fault = self._faults.match(request.action, request.function)
            if fault is not None and fault.stops_call:
                answer = self._fail(request, fault, request_id, headers)
            else:
                answer = await self._dispatch(method, path, headers, body, query_params, request_id)
            self._log(request, answer[0], fault)
            if fault is not None and fault.crashes and request.function:
                self._functions.crash(request.function)
        finally:
            _current.reset(token)
        return answer

    def _describe(
        self, method: str, path: str, headers: dict[str, str], body: bytes, query_params: dict[str, list[str]]
    ) -> Request:
        parameters = self._parameters(method, path, headers, body, query_params)
        service = self._detect_service(method, path, headers, parameters)
        action = (
            self._authorisation.operation_of(service, method, path, headers, body, parameters)
            or f"{service}:{method} {path}"
        )
        identity = self._functions.identity_of(headers.get("x-amz-security-token", ""))
        return Request(
            service=service,
            action=action,
            caller_arn=identity.session_arn if identity else self._caller(headers, query_params),
            function=identity.function if identity else "",
            region=self._region(),
            parameters=parameters,
            permissions=self._authorisation.permissions_of(action, body, self._region(), self._account_id()),
            body=body,
        )

    def _fail(self, request: Request, fault: Fault, request_id: str, headers: dict[str, str]) -> Answer:
        status, answer_headers, body = self._error(
            request.service,
            request.action,
            request.caller_arn,
            request_id,
            error_code=fault.error_code,
            message=fault.message,
            headers=headers,
        )
        return fault.status or status, answer_headers, body

    def _log(self, request: Request, status: int, fault: Fault | None) -> None:
        with self._guard:
            self._calls.append(
                Call(
                    sequence=len(self._calls) + 1,
                    at=self._now().isoformat(),
                    function=request.function,
                    caller_arn=request.caller_arn,
                    action=request.action,
                    status=status,
                    fault=fault.name if fault else "",
                    permissions=request.permissions,
                )
            )
