"""Cutting a function off in the middle: its AWS calls are counted, and it dies before one of them.

A process that dies after a read leaves behind what one that died before it does, so each stretch of reads is cut once:
before its first call, which is after the effect of the change before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_READS = ("Describe", "Get", "BatchGet", "Query", "List")


class Crash(BaseException):
    """The process died here."""


@dataclass
class Calls:
    """Counts AWS calls of the function under test, while armed, and dies before the one of number `die_at`."""

    die_at: int | None = None
    armed: bool = False
    made: list[str] = field(default_factory=list)

    def watch(self, client: Any) -> Any:
        """Let a client's calls count."""
        client.meta.events.register("before-call", lambda **event: self.before(**event))
        return client

    def before(self, model: Any, **_: Any) -> None:
        """A call is about to be made."""
        if not self.armed:
            return
        self.made.append(f"{model.service_model.endpoint_prefix}:{model.name}")
        self.die_if_due()

    def die_if_due(self, *, ended: bool = False) -> None:
        """Die before this call, or (`ended`) after the last one."""
        if self.die_at is not None and len(self.made) + ended == self.die_at:
            self.armed, self.die_at = False, None
            raise Crash(self.made[-1])


def crash_points(made: Sequence[str]) -> list[int]:
    """Numbers of the calls before which to die: the first, and each that follows a change; then the end."""
    after_changes = [n + 1 for n, call in enumerate(made, start=1) if not call.partition(":")[2].startswith(_READS)]
    return [1, *after_changes]
