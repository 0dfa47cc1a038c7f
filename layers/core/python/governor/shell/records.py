"""The layout of the state table: which record lies under which key, and what it holds.

| partition key | sort key | what |
| --- | --- | --- |
| `settings` | `current`, `version#<n>`, `rejection` | snapshot of the settings, its history, the last rejection |
| `run#<function>` | `state` | what a function remembers; also its heartbeat (outbox `run`) |
| `lease#<name>` | `lease` | the right to act |
| `ledger` | `<instance>#<reason>#<launch time>` | stop ledger |
| `ledger-group` | `<region>#<group>` | what we changed of an Auto Scaling group |
| `checkpoint` | `<instance>#<launch time>#<sent>` | documents that saved work before a stop |
| `taken` | `tag#...`, `group#...` | what people let the command change, with what was before |
| `retired` | `retired` | the stage was given back |
| `day#<date>` | `<time>#<function>` | decisions, by day |
| `instance#<id>`, `pool#<name>` | `<time>#<function>` | what a decision said of one instance or pool |
| `message#<key>` | `mail`, `slack`, `event` | messages on their way out |
| `decision#<id>`, `event#<id>` | `event` | events on their way to the bus |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from governor.domain.budget_snapshot import Checkpoint, GuardState
from governor.domain.decisions import Decision, InstanceVerdict, Message
from governor.domain.groups import GroupHold
from governor.domain.ledger import StopEntry, StopStatus
from governor.ports import Key, Record

KEEP_DAYS = 400
"""Decisions, messages and their indexes are kept a little over a year."""

MAX_STORED_BYTES = 300_000
MAX_STORED_VERDICTS = 500
MAX_INDEXED_VERDICTS = 1000
"""A DynamoDB item holds at most 400 KB, so a decision keeps the first verdicts (victims first) and counts the rest."""

INDEXED_LEVELS = frozenset({"warn", "stop"})
"""Below the warning nothing is decided about single instances, so nothing is indexed by instance."""

EVENT_SOURCE = "governor"
DECISION_EVENT = "Governor Decision"
MESSAGE_EVENT = "Governor Message"
SETTINGS_CHANGED_EVENT = "Settings Changed"
SETTINGS_REJECTED_EVENT = "Settings Rejected"

_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)
_VERDICT: TypeAdapter[InstanceVerdict] = TypeAdapter(InstanceVerdict)
_ENTRY: TypeAdapter[StopEntry] = TypeAdapter(StopEntry)
_GUARD_STATE: TypeAdapter[GuardState] = TypeAdapter(GuardState)

_HOLD: TypeAdapter[GroupHold] = TypeAdapter(GroupHold)
_CHECKPOINT: TypeAdapter[Checkpoint] = TypeAdapter(Checkpoint)

LEDGER = "ledger"
GROUP_HOLDS = "ledger-group"
CHECKPOINTS = "checkpoint"


def expiry(now: datetime, days: int = KEEP_DAYS) -> int:
    """Epoch seconds at which DynamoDB may delete a record."""
    return int((now + timedelta(days=days)).timestamp())


def event_record(pk: str, detail_type: str, detail: Mapping[str, Any], now: datetime) -> Record:
    """An event on its way to the project's bus."""
    body = {"detail_type": detail_type, "detail": dict(detail)}
    return Record(Key(pk, "event"), body, outbox="event", expires_at=expiry(now))


def message_records(message: Message, stage: str, now: datetime) -> tuple[Record, ...]:
    """The three ways out of a message, each exactly one call: e-mail, chat, bus."""
    pk = f"message#{message.key}"
    body = {
        "severity": message.severity.value,
        "subject": message.subject,
        "body": message.body,
        "facts": dict(message.facts),
        "at": now.isoformat(),
    }
    detail = {"key": message.key, "stage": stage, **body}
    return (
        Record(Key(pk, "mail"), body, outbox="mail", expires_at=expiry(now)),
        Record(Key(pk, "slack"), body, outbox="slack", expires_at=expiry(now)),
        event_record(pk, MESSAGE_EVENT, detail, now),
    )


def decision_key(function: str, decided_at: datetime) -> Key:
    """Where a decision lies: its day, then its moment."""
    return Key(f"day#{decided_at:%Y-%m-%d}", f"{decided_at.isoformat()}#{function}")


def decision_key_of_id(decision_id: str) -> Key | None:
    """The key of a decision named `<function>@<moment>`; None where the name is none."""
    function, _, moment = decision_id.partition("@")
    try:
        return decision_key(function, datetime.fromisoformat(moment))
    except ValueError:
        return None


def decision_records(decision: Decision, stage: str) -> tuple[Record, Record]:
    """A decision under its day, and as an event on its way to the bus. Messages are stored apart."""
    kept = replace(decision, verdicts=_first_that_fit(decision.verdicts), messages=())
    counts: dict[str, int] = {}
    for verdict in decision.verdicts:
        counts[verdict.reason.code.value] = counts.get(verdict.reason.code.value, 0) + 1
    body = {
        **_DECISION.dump_python(kept, mode="json"),
        "messages": [message.key for message in decision.messages],
        "verdict_counts": dict(sorted(counts.items())),
    }
    now = decision.decided_at
    key = decision_key(decision.function, now)
    detail = {
        "decision_id": decision.decision_id,
        "stage": stage,
        "function": decision.function,
        "decided_at": now.isoformat(),
        "mode": decision.mode.value,
        "level": decision.level,
        "settings_version": decision.settings_version,
        "stops": [stop.instance_id for stop in decision.stops],
        "holds": [hold.code.value for hold in decision.holds],
        "restores": [restore.instance_id for restore in decision.restores],
        "restore_count": len(decision.restores),
    }
    stored = Record(key, body, expires_at=expiry(now))
    return stored, event_record(f"decision#{decision.decision_id}", DECISION_EVENT, detail, now)


def _first_that_fit(verdicts: tuple[InstanceVerdict, ...]) -> tuple[InstanceVerdict, ...]:
    """The first verdicts that an item has room for, whatever names and tags people gave."""
    room = MAX_STORED_BYTES
    kept: list[InstanceVerdict] = []
    for verdict in verdicts[:MAX_STORED_VERDICTS]:
        room -= len(_VERDICT.dump_json(verdict))
        if room < 0:
            break
        kept.append(verdict)
    return tuple(kept)


def index_records(decision: Decision) -> Iterable[Record]:
    """What a decision said of each instance, findable by instance and by pool; nothing below the warning level."""
    if decision.level not in INDEXED_LEVELS:
        return
    moment = f"{decision.decided_at.isoformat()}#{decision.function}"
    holds = [{"code": h.code.value, "facts": dict(h.facts)} for h in decision.holds]
    for verdict in decision.verdicts[:MAX_INDEXED_VERDICTS]:
        body = {
            **_VERDICT.dump_python(verdict, mode="json"),
            "decision_id": decision.decision_id,
            "level": decision.level,
            "mode": decision.mode.value,
            "holds": holds,
        }
        yield Record(Key(f"instance#{verdict.instance_id}", moment), body, expires_at=expiry(decision.decided_at))
    for pool in sorted({v.pool for v in decision.verdicts if v.pool}):
        body = {"decision_id": decision.decision_id, "level": decision.level, "mode": decision.mode.value}
        yield Record(Key(f"pool#{pool}", moment), body, expires_at=expiry(decision.decided_at))


CLOSED_STATUSES = frozenset(
    {StopStatus.GONE, StopStatus.WITHHELD, StopStatus.RESTARTED, StopStatus.TERMINATED, StopStatus.RESTORED}
)
"""Nothing more comes of these; they are kept for two months, for the digest and for people's grace."""


def group_hold_record(hold: GroupHold) -> Record:
    """What we changed of a group; closed ones expire after a while."""
    expires = None if hold.open else expiry(hold.updated_at, days=62)
    return Record(
        Key(GROUP_HOLDS, f"{hold.region}#{hold.name}"), _HOLD.dump_python(hold, mode="json"), expires_at=expires
    )


def group_hold_of(record: Record) -> GroupHold:
    """What we changed of a group. Raises pydantic.ValidationError for a record that is none."""
    return _HOLD.validate_python(record.body)


def checkpoint_record(checkpoint: Checkpoint) -> Record:
    """A run of a checkpoint document."""
    sort = f"{checkpoint.instance_id}#{checkpoint.launched_at.isoformat()}#{checkpoint.sent_at.isoformat()}"
    body = _CHECKPOINT.dump_python(checkpoint, mode="json")
    return Record(Key(CHECKPOINTS, sort), body, expires_at=expiry(checkpoint.sent_at, days=7))


def checkpoint_of(record: Record) -> Checkpoint:
    """A run of a checkpoint document. Raises pydantic.ValidationError for a record that is none."""
    return _CHECKPOINT.validate_python(record.body)


def ledger_record(entry: StopEntry) -> Record:
    """An entry of the stop ledger. Ended ones that can no longer matter expire after a while."""
    sort = f"{entry.instance_id}#{entry.reason}#{entry.launched_at.isoformat()}"
    closed = entry.status in CLOSED_STATUSES
    expires = expiry(entry.updated_at, days=62) if closed else None
    return Record(Key(LEDGER, sort), _ENTRY.dump_python(entry, mode="json"), expires_at=expires)


def entry_of(record: Record) -> StopEntry:
    """The ledger entry of a record. Raises pydantic.ValidationError for a record that is none."""
    return _ENTRY.validate_python(record.body)


def guard_state_record(function: str, state: GuardState) -> Record:
    """What the guard remembers; also the heartbeat that wakes `send_messages`."""
    sequence = state.decided_at.isoformat(timespec="microseconds")
    body = _GUARD_STATE.dump_python(state, mode="json")
    return Record(Key(f"run#{function}", "state"), body, outbox="run", sequence=sequence)


def guard_state_of(record: Record) -> GuardState:
    """The guard's memory of a record. Raises pydantic.ValidationError for a record that is none."""
    return _GUARD_STATE.validate_python(record.body)
