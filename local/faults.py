"""Failures by configuration: which call of which function fails, how, and how often."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["error", "crash-before", "crash-after"]

CAPACITY = "InsufficientInstanceCapacity"


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure.

    `action` is a pattern in IAM's words (`ec2:StopInstances`, `ssm:Get*`); `function` a pattern for the deployed
    function's name, or empty for every caller; the calls `first` to `first + count - 1` that match are hit (from 1;
    count 0: all of them). Kind `error` answers `error_code` without doing the call; `crash-before` and `crash-after`
    end the calling function's process without, or with, the call done. `status` 0 leaves the service's own status.
    """

    action: str
    kind: Kind = "error"
    error_code: str = "InternalError"
    message: str = "An injected failure."
    status: int = 400
    function: str = ""
    first: int = 1
    count: int = 1

    @property
    def name(self) -> str:
        """What the log of calls shows."""
        return f"{self.kind} {self.error_code}" if self.kind == "error" else self.kind

    @property
    def stops_call(self) -> bool:
        """True when the call itself must not happen."""
        return self.kind != "crash-after"

    @property
    def crashes(self) -> bool:
        """True when the calling function ends."""
        return self.kind != "error"

    def to_dict(self) -> dict[str, Any]:
        """The fault as plain JSON."""
        return asdict(self)


def capacity_shortage(count: int = 0) -> Fault:
    """EC2 has no capacity for a launch."""
    message = "We currently do not have sufficient capacity in the Availability Zone you requested."
    return Fault("ec2:RunInstances", error_code=CAPACITY, message=message, status=500, count=count)


def throttle(action: str, *, function: str = "", first: int = 1, count: int = 1) -> Fault:
    """A service answers that it is called too often, in its own words."""
    code, status = ("RequestLimitExceeded", 503) if action.startswith("ec2:") else ("ThrottlingException", 400)
    return Fault(
        action, error_code=code, message="Rate exceeded", status=status, function=function, first=first, count=count
    )


def access_denied(action: str, *, function: str = "", first: int = 1, count: int = 0) -> Fault:
    """A service answers that the caller may not."""
    code = "UnauthorizedOperation" if action.startswith("ec2:") else "AccessDeniedException"
    message = "You are not authorized to perform this operation."
    return Fault(action, error_code=code, message=message, status=403, function=function, first=first, count=count)


def crash_after_call(function: str, nth: int, action: str = "*") -> Fault:
    """The function ends right after its nth AWS call (from 1) was done, before it sees the answer."""
    return Fault(action, kind="crash-after", function=function, first=nth, count=1)


class Faults:
    """The faults in force; each counts the calls that match it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._faults: list[tuple[Fault, int]] = []

    def set(self, faults: Sequence[Fault]) -> None:
        """Replace all faults; counting starts again."""
        with self._guard:
            self._faults = [(fault, 0) for fault in faults]

    def match(self, action: str, function: str) -> Fault | None:
        """Count one call; the first fault that hits it, or None."""
        hit: Fault | None = None
        with self._guard:
            for index, (fault, seen) in enumerate(self._faults):
                if not _concerns(fault, action, function):
                    continue
                self._faults[index] = (fault, seen + 1)
                is_hit = seen + 1 >= fault.first and (fault.count == 0 or seen + 1 < fault.first + fault.count)
                if is_hit and hit is None:
                    hit = fault
        return hit


def _concerns(fault: Fault, action: str, function: str) -> bool:
    if fault.function and not fnmatch.fnmatchcase(function, fault.function):
        return False
    return fnmatch.fnmatchcase(action.lower(), fault.action.lower())
