"""Adding to a CloudFormation type of the emulator what its own create and update leave out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Complete = Callable[[str, Mapping[str, Any]], None]


def complete_type(handlers: dict[str, dict[str, Any]], resource_type: str, complete: Complete) -> None:
    """Call `complete(physical_id, properties)` after each create and update of a resource type."""
    handler = dict(handlers[resource_type])
    handler["create"] = _then(handler["create"], complete, properties_at=1)
    handler["update"] = _then(handler["update"], complete, properties_at=2)
    handlers[resource_type] = handler


def _then(original: Callable[..., Any], complete: Complete, *, properties_at: int) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        physical_id, attributes = original(*arguments)
        complete(physical_id, arguments[properties_at])
        return physical_id, attributes

    return run
