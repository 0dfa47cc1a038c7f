"""The shape of a JSON answer, and the shapes that cli/README.md promises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[3] / "cli" / "README.md"
OPAQUE = frozenset({"facts", "subscribers", "running_after_seconds", "members_could"})
"""Objects whose keys are data."""

Shape = dict[str, frozenset[str]]


def shape_of(answer: Any, path: str = ".") -> Shape:
    """Path of each object -> its keys. Every item of a list must have the same keys."""
    found: Shape = {}
    if isinstance(answer, dict):
        found[path] = frozenset(answer)
        for key, value in answer.items():
            if key not in OPAQUE:
                found |= shape_of(value, f"{path}.{key}".replace("..", ""))
    elif isinstance(answer, list):
        for item in answer:
            for where, keys in shape_of(item, f"{path}[]").items():
                assert found.setdefault(where, keys) == keys, f"{where} has items with different keys"
    return found


def promised_shapes() -> dict[str, Shape]:
    """Verb -> shape, as the page says."""
    found: dict[str, Shape] = {}
    for section in re.split(r"^### ", README.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        block = re.search(r"```text\n(.*?)```", body, re.DOTALL)
        assert block is not None, f"no block of keys below {title}"
        text = re.sub(r"\n {2,}", " ", block[1])
        lines = [line.partition(": ") for line in text.splitlines() if line.strip()]
        found[title.strip("` ")] = {path: frozenset(keys.split(", ")) for path, _, keys in lines}
    return found
