"""Changes one member of a JSON text and leaves every other byte as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _Member:
    key: str
    start: int
    end: int


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """`text` with the member at `path` (an object's keys, from the root) set to `value`, indented by two spaces.

    A new member is added after the others. Raises ValueError where the text is no JSON or the parent is no object.
    """
    _DECODER.decode(text)
    start = _skip(text, 0)
    for key in path[:-1]:
        found = _find(text, start, key)
        if found is None:
            raise ValueError(f"there is no member {key!r}")
        start = found.start
    depth = len(path)
    written = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n" + "  " * depth)
    found = _find(text, start, path[-1])
    if found is not None:
        return text[: found.start] + written + text[found.end :]
    members = list(_members(text, start))
    line = "\n" + "  " * depth + json.dumps(path[-1], ensure_ascii=False) + ": " + written
    if members:
        return text[: members[-1].end] + "," + line + text[members[-1].end :]
    return text[: start + 1] + line + "\n" + "  " * (depth - 1) + text[_skip(text, start + 1) :]


def _find(text: str, start: int, key: str) -> _Member | None:
    """The member of that key in the object at `start`; the last one counts, as for every JSON reader."""
    found = None
    for member in _members(text, start):
        if member.key == key:
            found = member
    return found


def _members(text: str, start: int) -> Iterator[_Member]:
    if text[start : start + 1] != "{":
        raise ValueError("the parent is no object")
    place = _skip(text, start + 1)
    while text[place] != "}":
        key, after_key = _DECODER.raw_decode(text, place)
        value_start = _skip(text, _skip(text, after_key) + 1)
        _, value_end = _DECODER.raw_decode(text, value_start)
        yield _Member(key, value_start, value_end)
        place = _skip(text, value_end)
        if text[place] == ",":
            place = _skip(text, place + 1)


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    assert match is not None
    return match.end()
