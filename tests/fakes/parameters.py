"""Parameter Store in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from governor.ports import Parameter, ParameterChange

CREATED_AT = datetime(2026, 1, 1, tzinfo=UTC)
SEEDER = "arn:aws:sts::123456789012:assumed-role/SeedSettings/seed_settings"
ALICE = "arn:aws:sts::123456789012:assumed-role/Admin/alice"


@dataclass(frozen=True, slots=True)
class _Entry:
    value: str
    by: str
    at: datetime


class InMemoryParameters:
    """`Parameters` in memory, with the writing that people and the seeder do.

    `calls` lists what was called; `before` is run with the name of each call before it has any effect and may raise.
    `readable_history` False makes `last_change` find nothing.
    """

    def __init__(self, stage: str, values: Mapping[str, str] | None = None) -> None:
        self._root = f"/governor/{stage}/"
        self._history: dict[str, list[_Entry]] = {}
        self.descriptions: dict[str, tuple[str, str]] = {}
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda call: None
        self.readable_history = True
        for name, value in (values or {}).items():
            self.put(name, value, by=SEEDER, at=CREATED_AT)

    def put(self, name: str, value: str, *, by: str = ALICE, at: datetime = CREATED_AT) -> None:
        """Write a parameter, named without the root, as a person would."""
        self._history.setdefault(self._root + name, []).append(_Entry(value, by, at))

    def delete(self, name: str) -> None:
        """Delete a parameter, named without the root, with its history."""
        del self._history[self._root + name]

    def values(self) -> dict[str, str]:
        """Every parameter as name without root -> text."""
        return {name.removeprefix(self._root): entries[-1].value for name, entries in self._history.items()}

    def read_tree(self) -> tuple[Parameter, ...]:
        """Every parameter below the root."""
        self._begin("read_tree")
        return tuple(
            Parameter(name, entries[-1].value, len(entries), entries[-1].at)
            for name, entries in sorted(self._history.items())
        )

    def last_change(self, name: str) -> ParameterChange | None:
        """Newest entry of a parameter's history."""
        self._begin("last_change")
        entries = self._history.get(name, [])
        if not entries or not self.readable_history:
            return None
        before = entries[-2].value if len(entries) > 1 else None
        return ParameterChange(entries[-1].by, entries[-1].at, before)

    def create(self, name: str, value: str, *, description: str, allowed_pattern: str) -> bool:
        """Create a parameter; False where there is one already."""
        self._begin("create")
        if name in self._history:
            return False
        self._history[name] = [_Entry(value, SEEDER, CREATED_AT)]
        self.descriptions[name] = (description, allowed_pattern)
        return True

    def _begin(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)
