"""What people say outside the settings, one parameter each: pause, keeps and overrides. Read before every change.

Grammar, each optionally followed by ` because <text>`:

- `pause`: see `governor.domain.pause`.
- `keep/<instance id>`, and the keep tag of an instance: `on` or `until 2026-12-01T06:00Z`.
- `override/<any name>`: `budget`, `project <name>` or `instance <id>`, then ` until <time>`, ` up to <n> usd`, or both;
  `n` is the month's spend at which it ends, 0.01 to 999999999.99. A project of more than one word stands in double
  quotes, so that no slip of the pen becomes a part of its name.

Unreadable means held: an odd keep keeps its instance, an odd override holds the whole budget, and where nothing can be
read everything is paused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from governor.domain.pause import Pause, parse_pause

KEEP_PREFIX = "keep/"
OVERRIDE_PREFIX = "override/"

MIN_USD, MAX_USD = 0.01, 999_999_999.99
"""Bounds of the amount up to which an override may go, USD."""

_BECAUSE = re.compile(r"\sbecause\s", re.IGNORECASE)
_SUBJECT = re.compile(
    r'(?:budget|project\s+(?:"(?P<quoted>[^"\x00-\x1f]+)"|(?P<project>[^\s"]+))|instance\s+(?P<instance>i-[0-9a-f]+))'
    r"(?=\s|$)",
    re.IGNORECASE,
)
_END = re.compile(
    r"(?:\s+until\s+(?P<until>\S+))?(?:\s+up\s+to\s+(?P<usd>[0-9]{1,9}(?:\.[0-9]{1,2})?)\s+usd)?", re.IGNORECASE
)
_RESERVED = ("until", "up", "because")
_PLAIN_PROJECT = re.compile(r'^[^\s"]+$')
_INSTANCE_ID = re.compile(r"^i-[0-9a-z]+$")


@dataclass(frozen=True, slots=True)
class Keep:
    """One instance is kept running, until then (aware UTC, None = until lifted), and why."""

    instance_id: str
    until: datetime | None = None
    reason: str = ""
    readable: bool = True

    def holds(self, now: datetime) -> bool:
        """True while it is in force; one that cannot be read always is."""
        return not self.readable or self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Override:
    """A person says "keep going": for the budget, a project or an instance, until a time or an amount of the month.

    `up_to_usd` is compared with the month's spend. `source` names the parameter that says so.
    """

    scope: str
    """`budget`, `project` or `instance`."""
    subject: str = ""
    until: datetime | None = None
    up_to_usd: float | None = None
    reason: str = ""
    source: str = ""
    readable: bool = True

    def holds(self, now: datetime, spent_usd: float | None) -> bool:
        """True while it is in force. An unknown spend does not end it; one that cannot be read always is in force."""
        if not self.readable:
            return True
        in_time = self.until is None or now < self.until
        within = self.up_to_usd is None or spent_usd is None or spent_usd < self.up_to_usd
        return in_time and within


@dataclass(frozen=True, slots=True)
class Controls:
    """Everything that people hold at one moment."""

    pause: Pause
    keeps: tuple[Keep, ...] = ()
    overrides: tuple[Override, ...] = ()

    def keep_of(self, instance_id: str, now: datetime) -> Keep | None:
        """The keep of an instance that is in force."""
        return next((k for k in self.keeps if k.instance_id == instance_id and k.holds(now)), None)

    def override_of_budget(self, now: datetime, spent_usd: float | None) -> Override | None:
        """The override of the whole budget that is in force."""
        return next((o for o in self.overrides if o.scope == "budget" and o.holds(now, spent_usd)), None)

    def override_of(self, instance_id: str, project: str, now: datetime, spent_usd: float | None) -> Override | None:
        """The override of an instance or its project that is in force."""
        for override in self.overrides:
            mine = (override.scope == "instance" and override.subject == instance_id) or (
                override.scope == "project" and bool(project) and override.subject == project
            )
            if mine and override.holds(now, spent_usd):
                return override
        return None


def _moment(text: str) -> datetime | None:
    """A moment in UTC; None for what is none. A time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _head_and_reason(text: str) -> tuple[str, str]:
    """What stands before the first `because`, and what after it."""
    head, *reason = _BECAUSE.split(text.strip(), maxsplit=1)
    return head.strip(), "".join(reason).strip()


def parse_keep(instance_id: str, text: str) -> Keep:
    """Read a keep. Odd text is an unreadable keep, which holds. Never raises."""
    head, reason = _head_and_reason(text)
    words = head.lower().split()
    if words == ["on"]:
        return Keep(instance_id, None, reason)
    until = _moment(head.split()[1]) if len(words) == 2 and words[0] == "until" else None
    if until is None:
        return Keep(instance_id, reason=f"the keep holds {text[:80]!r}", readable=False)
    return Keep(instance_id, until, reason)


def parse_override(source: str, text: str) -> Override:
    """Read an override. Odd text is an unreadable override of the whole budget, which holds. Never raises."""
    odd = Override("budget", reason=f"control/{source} holds {text[:80]!r}", source=source, readable=False)
    head, reason = _head_and_reason(text)
    named = _SUBJECT.match(head)
    end = _END.fullmatch(head, named.end()) if named else None
    if named is None or end is None or not (end["until"] or end["usd"]):
        return odd
    until = _moment(end["until"]) if end["until"] else None
    usd = float(end["usd"]) if end["usd"] else None
    project = named["quoted"] or named["project"]
    reserved = (named["project"] or "").lower() in _RESERVED
    if (end["until"] and until is None) or (usd is not None and usd < MIN_USD) or reserved:
        return odd
    scope = "project" if project else "instance" if named["instance"] else "budget"
    return Override(scope, project or (named["instance"] or "").lower(), until, usd, reason, source)


def parse_controls(texts: Mapping[str, str] | None, now: datetime) -> Controls:
    """Read every text below `control/` (name without that prefix -> text; None: unreadable). Never raises."""
    pause = parse_pause(None if texts is None else texts.get("pause"), now)
    keeps: list[Keep] = []
    overrides: list[Override] = []
    for name, text in sorted((texts or {}).items()):
        if name.startswith(KEEP_PREFIX) and _INSTANCE_ID.match(name[len(KEEP_PREFIX) :]):
            keeps.append(parse_keep(name[len(KEEP_PREFIX) :], text))
        elif name.startswith((KEEP_PREFIX, OVERRIDE_PREFIX)):
            # A keep of nothing that is an instance cannot be honoured one by one, so it holds everything.
            overrides.append(parse_override(name, text))
    return Controls(pause, tuple(keeps), tuple(overrides))


def _time_words(until: datetime | None) -> str:
    return f" until {until.astimezone(UTC):%Y-%m-%dT%H:%MZ}" if until is not None else ""


def is_project_name(name: str) -> bool:
    """True for a name that an override can be written for: no double quote, no control character, no `because`."""
    plain = bool(name) and '"' not in name and name.isprintable() and name.strip() == name
    return plain and _BECAUSE.search(name) is None


def format_keep(until: datetime | None, because: str = "") -> str:
    """The text of a keep that `parse_keep` reads back, to the minute."""
    words = _time_words(until).strip() or "on"
    return f"{words} because {because}" if because else words


def format_override(
    scope: str, subject: str = "", *, until: datetime | None = None, up_to_usd: float | None = None, because: str = ""
) -> str:
    """The text of an override that `parse_override` reads back, to the minute and cent.

    Raises ValueError where neither an end nor an amount is given, or one of them or the name cannot be written.
    """
    if until is None and up_to_usd is None:
        raise ValueError("an override needs a time or an amount at which it ends")
    if up_to_usd is not None and not MIN_USD <= up_to_usd <= MAX_USD:
        raise ValueError(f"an override goes up to {MIN_USD} to {MAX_USD:.2f} USD")
    if scope == "project" and not is_project_name(subject):
        raise ValueError(f"{subject!r} cannot be written as a project")
    quoted = scope == "project" and (not _PLAIN_PROJECT.match(subject) or subject.lower() in _RESERVED)
    named = f'"{subject}"' if quoted else subject
    words = scope if scope == "budget" else f"{scope} {named}"
    words += _time_words(until)
    if up_to_usd is not None:
        words += f" up to {up_to_usd:.2f} usd"
    return f"{words} because {because}" if because else words
