"""Replacing functions of a pinned emulator so that an upgrade that moves one fails loudly."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


class PatchedPointMovedError(RuntimeError):
    """The emulator no longer has the function we replace, or it takes other parameters."""


@dataclass(frozen=True, slots=True)
class PatchedPoint:
    """One function of the emulator that this package replaces or relies on."""

    owner: str
    name: str
    parameters: tuple[str, ...]


_seen: list[PatchedPoint] = []


def patched_points() -> Sequence[PatchedPoint]:
    """Every point touched so far in this process, in order."""
    return tuple(_seen)


def relied_on(owner: Any, name: str, parameters: tuple[str, ...]) -> Callable[..., Any]:
    """The function `name` of `owner`. Raises PatchedPointMovedError when it is gone or its parameters changed."""
    label = getattr(owner, "__name__", type(owner).__name__)
    function = getattr(owner, name, None)
    if not callable(function):
        raise PatchedPointMovedError(f"{label}.{name} is gone; the pinned emulator version has moved")
    found = tuple(inspect.signature(function).parameters)
    if found != parameters:
        raise PatchedPointMovedError(f"{label}.{name} takes {found}, expected {parameters}")
    _seen.append(PatchedPoint(label, name, parameters))
    return function  # type: ignore[no-any-return]


def replace(owner: Any, name: str, parameters: tuple[str, ...], new: Callable[..., Any]) -> Callable[..., Any]:
    """Put `new` in the place of `owner.name` and return the original. Raises PatchedPointMovedError."""
    original = relied_on(owner, name, parameters)
    setattr(owner, name, new)
    return original


def add(owner: Any, name: str, new: Callable[..., Any]) -> None:
    """Give `owner` an operation that the emulator lacks. Raises PatchedPointMovedError where it has one by now."""
    label = getattr(owner, "__name__", type(owner).__name__)
    if hasattr(owner, name):
        raise PatchedPointMovedError(f"{label}.{name} exists by now; ours may go")
    _seen.append(PatchedPoint(label, name, ()))
    setattr(owner, name, new)
