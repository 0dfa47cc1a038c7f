"""Compares the tree of settings as read with what was last accepted: a new version or a rejection, and who is told.

The whole tree is accepted or nothing of it. A rejection warns, and does not page: what was in force stays in force, and
whoever wrote the value is awake. It pages only where there is no earlier version, because then nothing is guarded.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from governor.domain.budget_messages import console_url, subject_of
from governor.domain.decisions import Message, Severity
from governor.domain.settings import SPEC_BY_NAME, SettingError, schema_hash

KEEP_EDITS = timedelta(hours=24)
"""The guard looks back `budget/confirm-minutes`, at most four hours; a day lets people look too."""

SHOWN_CHARACTERS = 100
MAX_ERRORS = 40
"""A message, an event and a stored rejection name at most this many errors."""

MAX_REMEMBERED_STATES = 100


@dataclass(frozen=True, slots=True)
class MissingSettingError(SettingError):
    """A parameter that was there and is gone."""

    @property
    def sentence(self) -> str:
        """One sentence for an operator."""
        return f"{self.name} is missing: it must be {self.rule}"


@dataclass(frozen=True, slots=True)
class UnknownSettingError(SettingError):
    """A parameter that is no setting; `rule` is what to do."""

    @property
    def sentence(self) -> str:
        """One sentence for an operator."""
        return f"{self.name} is not a setting: {self.rule}"


def missing(name: str) -> MissingSettingError:
    """The error of a known setting that is not in the tree."""
    return MissingSettingError(name, "", SPEC_BY_NAME[name].rule)


def unknown(name: str, value: str) -> UnknownSettingError:
    """The error of a name that is no setting, with the nearest one that is."""
    near = difflib.get_close_matches(name[:SHOWN_CHARACTERS], SPEC_BY_NAME, n=1, cutoff=0.6)
    rule = f"did you mean {near[0]}?" if near else "delete it"
    return UnknownSettingError(name, value, rule)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote the value of a parameter, when, as which version, and over which text (None: unknown, or none)."""

    by: str
    at: datetime
    version: int
    before: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """A setting that people changed: in force since `at`, written at `written_at` over `before` (None: unknown)."""

    at: datetime
    by: str
    before: str | None
    version: int
    written_at: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One accepted version of the settings: setting -> text, and the edits of the last day."""

    version: int
    read_at: datetime
    schema: str
    values: Mapping[str, str]
    edits: Mapping[str, Edit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RejectedError:
    """One error as stored and sent; `value` is shortened, None where the parameter is missing; `by` an ARN."""

    name: str
    value: str | None
    rule: str
    sentence: str
    by: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Rejection:
    """A time of invalid settings: since when, the latest state, the states people were told of, whether it lasts."""

    since: datetime
    at: datetime
    open: bool
    state: str
    told: tuple[str, ...]
    errors: tuple[RejectedError, ...]
    in_force: int


@dataclass(frozen=True, slots=True)
class TreeReading:
    """The tree as read: every text, the known settings that can be used (in their canonical form), and the errors."""

    texts: Mapping[str, str]
    usable: Mapping[str, str]
    errors: tuple[SettingError, ...]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """Who changed what from what to what. `before` is None for a setting that is new."""

    name: str
    before: str | None
    after: str
    by: str
    written_at: datetime | None

    @property
    def sentence(self) -> str:
        """One sentence for an operator."""
        when = f" at {_clock(self.written_at)}" if self.written_at else ""
        if self.before is None:
            return f"{self.name} is new: {self.after} (by {person(self.by)}{when})"
        return f"{person(self.by)} changed {self.name} from {self.before} to {self.after}{when}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the settings live: the stage and its home Region."""

    stage: str
    home_region: str

    def parameter(self, name: str) -> str:
        """Full name of the parameter of a setting."""
        return f"/governor/{self.stage}/{name}"


@dataclass(frozen=True, slots=True)
class Review:
    """What a reading leads to. None: nothing new. `waiting` means that the seeder has not finished yet."""

    snapshot: Snapshot | None = None
    rejection: Rejection | None = None
    changes: tuple[SettingChange, ...] = ()
    message: Message | None = None
    rejected: bool = False
    waiting: bool = False


def texts_to_validate(texts: Mapping[str, str], last: Snapshot | None) -> dict[str, str]:
    """What of the tree has to be valid, given what was accepted before.

    A setting that this version has added counts with its default until the seeder has created it; a parameter that an
    earlier version accepted and this one no longer knows is left alone.
    """
    if last is None:
        return dict(texts)
    chosen = {name: text for name, text in texts.items() if name in SPEC_BY_NAME or name not in last.values}
    for name, spec in SPEC_BY_NAME.items():
        if name not in texts and name not in last.values:
            chosen[name] = spec.default
    return chosen


def names_in_question(reading: TreeReading, last: Snapshot | None) -> tuple[str, ...]:
    """Parameters of which a message will say who wrote them: wrong ones first, then those that differ."""
    wrong = [error.name for error in reading.errors if error.name in reading.texts]
    different = [] if last is None else _differing(reading, last)
    return tuple(dict.fromkeys([*wrong, *different]))[:MAX_ERRORS]


def review(
    reading: TreeReading,
    last: Snapshot | None,
    rejection: Rejection | None,
    writers: Mapping[str, Writer],
    place: Place,
    now: datetime,
) -> Review:
    """Accept the tree as a new version, find it unchanged, or reject it. Pure; `now` is aware UTC."""
    if not reading.errors:
        return _accept(reading, last, rejection, writers, place, now)
    if last is None and all(isinstance(error, MissingSettingError) for error in reading.errors):
        return Review(waiting=True)
    return _reject(reading, last, rejection, writers, place, now)


def _differing(reading: TreeReading, last: Snapshot) -> list[str]:
    return [name for name, text in reading.usable.items() if name in reading.texts and last.values.get(name) != text]


def _accept(
    reading: TreeReading,
    last: Snapshot | None,
    rejection: Rejection | None,
    writers: Mapping[str, Writer],
    place: Place,
    now: datetime,
) -> Review:
    ended = replace(rejection, open=False, at=now) if rejection is not None and rejection.open else None
    values = {name: reading.usable.get(name, text) for name, text in reading.texts.items()}
    if last is None:
        message = None if ended is None else _valid_again(ended, 1, place)
        return Review(snapshot=Snapshot(1, now, schema_hash(), values), rejection=ended, message=message)
    changes = tuple(_change(name, reading.usable[name], last, writers.get(name)) for name in _differing(reading, last))
    if not changes:
        message = None if ended is None else _valid_again(ended, last.version, place)
        return Review(rejection=ended, message=message)
    edits = {name: edit for name, edit in last.edits.items() if edit.at >= now - KEEP_EDITS}
    for change in changes:
        writer = writers.get(change.name)
        if change.before is not None or (writer is not None and writer.version > 1):
            edits[change.name] = _edit(change, writer, now)
    snapshot = Snapshot(last.version + 1, now, schema_hash(), values, edits)
    message = _changed(snapshot, changes, ended, place)
    return Review(snapshot=snapshot, rejection=ended, changes=changes, message=message)


def _change(name: str, text: str, last: Snapshot, writer: Writer | None) -> SettingChange:
    before = last.values.get(name)
    return SettingChange(name, before, text, writer.by if writer else "", writer.at if writer else None)


def _edit(change: SettingChange, writer: Writer | None, now: datetime) -> Edit:
    before = change.before if change.before is not None or writer is None else writer.before
    written_at = change.written_at or now
    return Edit(at=now, by=change.by, before=before, version=writer.version if writer else 0, written_at=written_at)


def _reject(
    reading: TreeReading,
    last: Snapshot | None,
    rejection: Rejection | None,
    writers: Mapping[str, Writer],
    place: Place,
    now: datetime,
) -> Review:
    waiting = (
        ()
        if last is None
        else tuple(_change(name, reading.usable[name], last, writers.get(name)) for name in _differing(reading, last))
    )
    state = _state_of(reading.errors, waiting)
    ongoing = rejection if rejection is not None and rejection.open else None
    if ongoing is not None and ongoing.state == state:
        return Review(rejected=True)
    told = ongoing.told if ongoing else ()
    renewed = Rejection(
        since=ongoing.since if ongoing else now,
        at=now,
        open=True,
        state=state,
        told=told if state in told else (*told, state)[-MAX_REMEMBERED_STATES:],
        errors=tuple(_rejected(error, writers.get(error.name)) for error in reading.errors[:MAX_ERRORS]),
        in_force=last.version if last else 0,
    )
    message = None if state in told else _rejected_message(renewed, len(reading.errors), waiting, last, place)
    return Review(rejection=renewed, message=message, rejected=True)


def _state_of(errors: Iterable[SettingError], waiting: Iterable[SettingChange]) -> str:
    """Names a bad state: what is wrong, and which edits wait for it. Who wrote it may be unknown, so it is left out."""
    parts = sorted(repr((error.name, error.value, error.rule)) for error in errors)
    parts += sorted(repr((change.name, change.after)) for change in waiting)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _rejected(error: SettingError, writer: Writer | None) -> RejectedError:
    shown = replace(error, name=shorten(error.name), value=shorten(error.value))
    by, at = (writer.by, writer.at) if writer else (None, None)
    value = None if isinstance(error, MissingSettingError) else shown.value
    return RejectedError(shown.name, value, shown.rule, shown.sentence, by, at)


def shorten(text: str) -> str:
    """`text`, or its beginning and how long it is."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}... ({len(text)} characters)"


def person(identity: str) -> str:
    """Who an ARN is, in short: `assumed-role/Admin/alice`. Unknown where there is none."""
    return identity.split(":", 5)[-1] if identity else "somebody unknown"


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _message(severity: Severity, key: str, title: str, lines: list[str], place: Place, **facts: str) -> Message:
    subject = subject_of(f"[Governor {place.stage}] {title}")
    return Message(key, severity, subject, "\n".join(lines) + "\n", tuple(sorted(facts.items())))


def _put_back(name: str, text: str, place: Place) -> list[str]:
    return [
        f"  governor settings set {name} {text} --stage {place.stage}",
        f"  or in the console: {console_url(place.home_region, place.parameter(name))}",
    ]


def _changed(snapshot: Snapshot, changes: tuple[SettingChange, ...], ended: Rejection | None, place: Place) -> Message:
    lines = ["The settings are valid again.", ""] if ended else []
    for change in changes:
        spec = SPEC_BY_NAME[change.name]
        lines += [f"{change.sentence}.", f"  {spec.description} Unit: {spec.unit}."]
    lines += ["", f"In force since {_clock(snapshot.read_at)} as version {snapshot.version} of the settings."]
    if any(SPEC_BY_NAME[change.name].moves_stop_level and change.name in snapshot.edits for change in changes):
        minutes = snapshot.values.get("budget/confirm-minutes", SPEC_BY_NAME["budget/confirm-minutes"].default)
        if minutes != "0":
            lines.append(f"A stop that follows from it is held for {minutes} minutes first (budget/confirm-minutes).")
    undo = [line for c in changes if c.before is not None for line in _put_back(c.name, c.before, place)]
    lines += ["", "To undo:", *undo] if undo else []
    first = changes[0]
    if len(changes) > 1:
        title = f"{len(changes)} settings changed"
    elif first.before is None:
        title = f"new setting {first.name} = {first.after}"
    else:
        title = f"{first.name} changed from {first.before} to {first.after}"
    facts = {f"change {change.name}": f"{change.before or ''} -> {change.after}" for change in changes}
    key = f"settings#changed#{snapshot.version}"
    return _message(Severity.INFO, key, title, lines, place, version=str(snapshot.version), **facts)


def _valid_again(ended: Rejection, version: int, place: Place) -> Message:
    lines = [
        f"The settings are valid again. Version {version} is in force.",
        f"Since {_clock(ended.since)} this was wrong:",
        *[f"  {error.sentence}." for error in ended.errors],
    ]
    key = f"settings#valid-again#{ended.since.isoformat()}#{ended.at.isoformat()}"
    return _message(Severity.INFO, key, "settings are valid again", lines, place, version=str(version))


def _rejected_message(
    rejection: Rejection, count: int, waiting: tuple[SettingChange, ...], last: Snapshot | None, place: Place
) -> Message:
    if last is None:
        lines = [
            "The settings have an error and there is no earlier version: "
            "the Governor does nothing until it is corrected.",
        ]
    else:
        lines = [
            "The settings have an error, so none of the new values is used. "
            f"Version {last.version} of {_clock(last.read_at)} stays in force.",
        ]
    lines.append("")
    for error in rejection.errors:
        lines.append(f"{error.sentence}.")
        if error.by is not None and error.at is not None:
            lines.append(f"  Written by {person(error.by)} at {_clock(error.at)}.")
    if count > len(rejection.errors):
        lines.append(
            f"... and {count - len(rejection.errors)} more (governor settings validate --stage {place.stage})."
        )
    held = [change for change in waiting if change.name not in {error.name for error in rejection.errors}]
    if held:
        lines += ["", "These edits wait until that is corrected:", *[f"  {change.sentence}." for change in held]]
    lines += ["", "To correct it:"]
    for error in rejection.errors:
        lines += _correction(error, last, place)
    if held and last is not None:
        lines.append("or take back the edits that wait:")
        for change in held:
            lines += _put_back(change.name, last.values.get(change.name, change.after), place)
    first = rejection.errors[0]
    title = f"{count} settings are wrong" if count > 1 else f"setting not used: {first.sentence}"
    severity = Severity.PAGE if last is None else Severity.WARN
    key = f"settings#rejected#{rejection.since.isoformat()}#{rejection.state}"
    return _message(
        severity, key, title, lines, place, errors=str(count), parameter=place.parameter(first.name), rule=first.rule,
        value=first.value or "", written_by=first.by or "", version=str(rejection.in_force),
    )  # fmt: skip


def _correction(error: RejectedError, last: Snapshot | None, place: Place) -> list[str]:
    parameter = place.parameter(error.name)
    spec = SPEC_BY_NAME.get(error.name)
    if spec is None:
        return [
            f"  aws ssm delete-parameter --region {place.home_region} --name {parameter}",
            f"  or in the console: {console_url(place.home_region, parameter)}",
        ]
    text = last.values.get(error.name, spec.default) if last else spec.default
    if error.value is None:
        return [
            f"  aws ssm put-parameter --region {place.home_region} --name {parameter} --type String --value {text}",
        ]
    return _put_back(error.name, text, place)
