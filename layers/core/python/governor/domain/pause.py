"""The pause: one parameter outside the settings, readable and writable from a phone.

Grammar: `off` | `on` | `on until 2026-12-01T06:00Z`, each optionally followed by ` because <text>`.
What cannot be read counts as paused: a brake that fails must fail closed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_PAUSE = re.compile(
    r"^\s*(?P<word>on|off)(?:\s+until\s+(?P<until>\S+))?(?:\s+because\s+(?P<why>.*?))?\s*$", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether acting is held, until when (aware UTC, None = until lifted), and why."""

    active: bool
    reason: str = ""
    until: datetime | None = None
    readable: bool = True


def parse_pause(text: str | None, now: datetime) -> Pause:
    """Read the pause parameter at `now`; missing or odd text is an active, unreadable pause. Never raises."""
    if text is None:
        return Pause(active=True, reason="the pause parameter is missing or cannot be read", readable=False)
    match = _PAUSE.match(text)
    if match is None:
        return Pause(active=True, reason=f"the pause parameter holds {text[:80]!r}", readable=False)
    why = (match["why"] or "").strip()
    until = None
    if match["until"]:
        try:
            until = datetime.fromisoformat(match["until"])
            until = until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
        except (ValueError, OverflowError):
            return Pause(active=True, reason=f"the pause parameter holds {text[:80]!r}", readable=False)
    if match["word"].lower() == "off":
        return Pause(active=False, reason=why)
    return Pause(active=until is None or now < until, reason=why, until=until)


def format_pause(active: bool, *, until: datetime | None = None, because: str = "") -> str:
    """The text for the pause parameter that `parse_pause` reads back."""
    words = ["on" if active else "off"]
    if active and until is not None:
        words.append(f"until {until.astimezone(UTC):%Y-%m-%dT%H:%MZ}")
    if because:
        words.append(f"because {because}")
    return " ".join(words)
