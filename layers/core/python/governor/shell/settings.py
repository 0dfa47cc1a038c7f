"""The tree of settings: read as one, validated as one, kept as one versioned snapshot that every function reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)

from governor.aws.clients import client
from governor.aws.parameter_store import ParameterTree
from governor.aws.state_table import DynamoDbStateTable
from governor.domain.budget_snapshot import ThresholdEdit
from governor.domain.settings import (
    ANY,
    NONE,
    SAME,
    SETTINGS,
    SPEC_BY_NAME,
    SettingError,
    Settings,
    SettingSpec,
    ValueKind,
    as_texts,
    cross_field_errors,
)
from governor.domain.settings_review import (
    Place,
    Rejection,
    Review,
    SettingChange,
    Snapshot,
    TreeReading,
    UnknownSettingError,
    Writer,
    missing,
    names_in_question,
    review,
    shorten,
    texts_to_validate,
    unknown,
)
from governor.ports import ConflictError, Key, Parameter, Parameters, Record, RecordStore, UnreadableError, Write
from governor.shell.environment import CheckSettingsEnvironment
from governor.shell.records import (
    SETTINGS_CHANGED_EVENT,
    SETTINGS_REJECTED_EVENT,
    event_record,
    expiry,
    message_records,
)

FUNCTION = "check_settings"
CURRENT = Key("settings", "current")
REJECTION = Key("settings", "rejection")
RUN = Key(f"run#{FUNCTION}", "state")

CONTROL = "control/"
"""Below this are switches that each function reads for itself, such as the pause; they are no settings."""

HEARTBEAT_SECONDS = 60
ATTEMPTS = 3
"""A run that lost to another one starts again from what that one wrote, at most so many times in all."""


# --- Text to typed settings -------------------------------------------------------------------------------------------


def _matching(spec: SettingSpec) -> Callable[[object], object]:
    pattern = re.compile(spec.allowed_pattern)

    def check(value: object) -> object:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise ValueError(spec.rule)
        if spec.kind is ValueKind.OPTIONAL_NUMBER and value == SAME:
            return None
        if (spec.kind is ValueKind.TAGS and value == ANY) or (spec.kind is ValueKind.PAIRS and value == NONE):
            return ()
        if spec.kind not in (ValueKind.WORDS, ValueKind.TAGS, ValueKind.PAIRS):
            return value
        words = tuple(word.strip() for word in value.split(","))
        if len(set(words)) != len(words):
            raise ValueError(f"{spec.rule}, each one once")
        if spec.kind is not ValueKind.WORDS and not all(word.partition("=")[0].strip() for word in words):
            raise ValueError(f"{spec.rule}, each with a name")
        if spec.kind is not ValueKind.WORDS:
            return tuple((key.strip(), text.strip()) for key, _, text in (word.partition("=") for word in words))
        return words

    return check


_TYPES: Mapping[ValueKind, Any] = {
    ValueKind.NUMBER: float,
    ValueKind.INTEGER: int,
    ValueKind.WORDS: tuple[str, ...],
    ValueKind.OPTIONAL_NUMBER: float | None,
    ValueKind.TAGS: tuple[tuple[str, str], ...],
    ValueKind.PAIRS: tuple[tuple[str, str], ...],
}
"""A choice has the type of its choices."""


def _field(spec: SettingSpec) -> Any:
    bounds = (
        Field(alias=spec.name, ge=spec.minimum, le=spec.maximum) if spec.minimum is not None else Field(alias=spec.name)
    )
    kind = type(spec.choices[0]) if spec.kind is ValueKind.CHOICE else _TYPES[spec.kind]
    return (Annotated[kind, BeforeValidator(_matching(spec))], bounds)


_TREE: type[BaseModel] = create_model(
    "SettingsTree",
    __config__=ConfigDict(extra="forbid", defer_build=True),
    **{f"{spec.area}__{spec.attribute}": _field(spec) for spec in SETTINGS},
)
"""The whole tree, keyed by parameter name below the stage; made from the declarations in `governor.domain.settings`."""


def parse_tree(values: Mapping[str, str]) -> tuple[Settings, tuple[SettingError, ...]]:
    """Read setting -> text as typed settings; a setting with an error has its default in them. Never raises.

    Every setting has to be there and no other name may be. Rules between settings are checked once each can be read.
    """
    errors: dict[str, SettingError] = {}
    readable = dict(values)
    try:
        _TREE.model_validate(readable)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            name = str(detail["loc"][0])
            errors.setdefault(name, _error(name, values, detail["type"], detail.get("ctx", {})))
            readable.pop(name, None)
    known = {**{spec.name: spec.default for spec in SETTINGS}, **readable}
    settings = _typed(_TREE.model_validate(known))
    if all(isinstance(found, UnknownSettingError) for found in errors.values()):
        errors.update({found.name: found for found in cross_field_errors(settings)})
    return settings, tuple(errors[name] for name in sorted(errors))


def _error(name: str, values: Mapping[str, str], kind: str, context: Mapping[str, Any]) -> SettingError:
    if kind == "extra_forbidden":
        return unknown(name, values[name])
    if kind == "missing":
        return missing(name)
    rule = str(context["error"]) if kind == "value_error" else SPEC_BY_NAME[name].rule
    return SettingError(name, values[name], rule)


def _typed(tree: BaseModel) -> Settings:
    areas: dict[str, dict[str, Any]] = {}
    for spec in SETTINGS:
        areas.setdefault(spec.area, {})[spec.attribute] = getattr(tree, f"{spec.area}__{spec.attribute}")
    defaults = Settings()
    return Settings(**{area: type(getattr(defaults, area))(**fields) for area, fields in areas.items()})


# --- The stored snapshot ----------------------------------------------------------------------------------------------

# Built when first used: most functions only load the snapshot.
_DEFERRED = ConfigDict(defer_build=True)


@cache
def _snapshot_adapter() -> TypeAdapter[Snapshot]:
    return TypeAdapter(Snapshot)


@cache
def _rejection_adapter() -> TypeAdapter[Rejection]:
    return TypeAdapter(Rejection)


@dataclass(frozen=True, slots=True)
class SettingsSnapshot:
    """What a function works with: the settings, their version, and recent edits that move the stop level."""

    settings: Settings
    version: int
    edits: tuple[ThresholdEdit, ...] = ()


def stored_snapshot(store: RecordStore) -> Snapshot | None:
    """The accepted settings as they are stored, with every text; None before the first reading."""
    record = store.get(CURRENT)
    return None if record is None else _snapshot_adapter().validate_python(record.body)


def stored_history(store: RecordStore, limit: int) -> tuple[Snapshot, ...]:
    """The last `limit` versions, newest first."""
    records = store.query(CURRENT.pk, "version#", newest_first=True, limit=limit)
    return tuple(_snapshot_adapter().validate_python(record.body) for record in records)


def stored_rejection(store: RecordStore) -> Rejection | None:
    """The last rejection, lasting or over; None where there was never one."""
    record = store.get(REJECTION)
    return None if record is None else _rejection_adapter().validate_python(record.body)


class _EditInForce(BaseModel):
    model_config = _DEFERRED

    at: AwareDatetime
    by: str = ""


class _InForce(BaseModel):
    """The parts of a stored snapshot that functions work with."""

    model_config = _DEFERRED

    version: int
    values: dict[str, str]
    edits: dict[str, _EditInForce] = Field(default_factory=dict)


def load_snapshot(store: RecordStore) -> SettingsSnapshot | None:
    """The settings in force; None before the first reading. Raises UnreadableError for values this version cannot use.

    A setting that is newer than the snapshot has its default.
    """
    record = store.get(CURRENT)
    if record is None:
        return None
    try:
        stored = _InForce.model_validate(record.body)
    except ValidationError as error:
        raise UnreadableError(f"the stored settings cannot be read: {error}") from error
    settings, errors = parse_tree({spec.name: stored.values.get(spec.name, spec.default) for spec in SETTINGS})
    if errors:
        raise UnreadableError("the stored settings cannot be used: " + "; ".join(error.sentence for error in errors))
    edits = tuple(
        ThresholdEdit(name, edit.at, edit.by)
        for name, edit in sorted(stored.edits.items())
        if name in SPEC_BY_NAME and SPEC_BY_NAME[name].moves_stop_level
    )
    return SettingsSnapshot(settings, stored.version, edits)


# --- One run of check_settings ----------------------------------------------------------------------------------------


class RunState(BaseModel):
    """What `check_settings` remembers: when it last ran, and the time of its last reading that worked."""

    model_config = _DEFERRED

    ran_at: AwareDatetime
    read_at: AwareDatetime | None = None
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What a run found. None: not looked at, or not known. `version` is in force after it (0: none yet)."""

    version: int = 0
    changes: tuple[SettingChange, ...] = ()
    rejected: bool | None = None
    unreadable: str | None = None
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class CheckDeps:
    """What `check_settings` works with."""

    place: Place
    store: RecordStore
    parameters: Parameters
    clock: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class _Memory:
    run: RunState | None
    last: Snapshot | None
    rejection: Rejection | None

    @property
    def read_at(self) -> datetime | None:
        """Time of the newest reading on record."""
        moments = [
            self.run.read_at if self.run else None,
            self.last.read_at if self.last else None,
            self.rejection.at if self.rejection else None,
        ]
        return max((moment for moment in moments if moment is not None), default=None)


def check_tree(deps: CheckDeps, now: datetime) -> CheckOutcome:
    """Read the tree, compare it with the last snapshot, and write what follows in one transaction.

    `now` is the time of the event that woke us. An event older than the last reading on record ends at once; one of
    the same second is looked at, because Parameter Store events carry whole seconds. Raises ConflictError when other
    runs win again and again, and whatever the state table raises.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _check_once(deps, now)
        except ConflictError:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _check_once(deps: CheckDeps, now: datetime) -> CheckOutcome:
    store, parameters, place = deps.store, deps.parameters, deps.place
    # What was accepted is read before the tree: so the tree is never older than the snapshot it is compared with, and
    # of two runs at once the one with the older tree loses its transaction.
    memory = _recall(store)
    version = memory.last.version if memory.last else 0
    if memory.read_at is not None and now < memory.read_at:
        return CheckOutcome(version=version, skipped=True)
    try:
        tree = parameters.read_tree()
    except UnreadableError as error:
        store.commit(
            _heartbeat(memory.run, RunState(ran_at=now, read_at=memory.read_at, unreadable=shorten(str(error))))
        )
        return CheckOutcome(version=version, unreadable=str(error))
    reading, found = _judge(tree, memory, parameters, place, now)
    writes = [*_writes(found, reading, place, now), *_heartbeat(memory.run, RunState(ran_at=now, read_at=now))]
    store.commit(writes)
    if found.waiting:
        return CheckOutcome(unreadable="the settings are not all there yet: the seeder has not finished")
    return CheckOutcome(
        version=found.snapshot.version if found.snapshot else version,
        changes=found.changes,
        rejected=found.rejected,
        unreadable="",
    )


def _recall(store: RecordStore) -> _Memory:
    record = store.get(RUN)
    run = None if record is None else RunState.model_validate(record.body)
    return _Memory(run, stored_snapshot(store), stored_rejection(store))


def _judge(
    tree: Iterable[Parameter], memory: _Memory, parameters: Parameters, place: Place, now: datetime
) -> tuple[TreeReading, Review]:
    root = place.parameter("")
    by_name = {found.name.removeprefix(root): found for found in tree}
    by_name = {name: found for name, found in by_name.items() if not name.startswith(CONTROL)}
    texts = {name: found.value for name, found in by_name.items()}
    settings, errors = parse_tree(texts_to_validate(texts, memory.last))
    wrong = {error.name for error in errors}
    usable = {name: text for name, text in as_texts(settings).items() if name not in wrong}
    reading = TreeReading(texts, usable, errors)
    found = review(reading, memory.last, memory.rejection, {}, place, now)
    if found.snapshot is None and found.rejection is None:
        return reading, found
    # Only what is new is looked up: a bad state that lasts costs no calls.
    writers = {name: _writer(by_name[name], parameters) for name in names_in_question(reading, memory.last)}
    return reading, review(reading, memory.last, memory.rejection, writers, place, now)


def _writer(parameter: Parameter, parameters: Parameters) -> Writer:
    change = parameters.last_change(parameter.name)
    by, before = (change.by, change.before) if change else ("", None)
    return Writer(by, parameter.changed_at, parameter.version, before)


def _heartbeat(before: RunState | None, state: RunState) -> list[Write]:
    """The heartbeat, at most once a minute."""
    if before is not None and state.ran_at - before.ran_at < timedelta(seconds=HEARTBEAT_SECONDS):
        return []
    body = state.model_dump(mode="json")
    return [Write(Record(RUN, body, outbox="run", sequence=_sequence(state.ran_at)), when="newer")]


def _sequence(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _writes(found: Review, reading: TreeReading, place: Place, now: datetime) -> list[Write]:
    writes: list[Write] = []
    if found.snapshot is not None:
        body = _snapshot_adapter().dump_python(found.snapshot, mode="json")
        history = Key(CURRENT.pk, f"version#{found.snapshot.version:08d}")
        writes.append(Write(Record(history, body, expires_at=expiry(now)), when="absent"))
        writes.append(Write(Record(CURRENT, body, sequence=_sequence(now)), when="newer"))
        writes.append(Write(_changed_event(found, place, now), when="absent"))
    if found.rejection is not None:
        body = _rejection_adapter().dump_python(found.rejection, mode="json")
        writes.append(Write(Record(REJECTION, body, sequence=_sequence(now)), when="newer"))
        if found.rejected and found.message is not None:
            writes.append(Write(_rejected_event(found.rejection, len(reading.errors), place, now), when="absent"))
    if found.message is not None:
        writes.extend(Write(record, when="absent") for record in message_records(found.message, place.stage, now))
    return writes


def _changed_event(found: Review, place: Place, now: datetime) -> Record:
    assert found.snapshot is not None
    version = found.snapshot.version
    changes = [
        {
            "name": change.name,
            "from": change.before,
            "to": change.after,
            "by": change.by,
            "at": change.written_at.isoformat() if change.written_at else None,
        }
        for change in found.changes
    ]
    detail = {"stage": place.stage, "version": version, "at": now.isoformat(), "changes": changes}
    return event_record(f"event#settings-changed#{version}", SETTINGS_CHANGED_EVENT, detail, now)


def _rejected_event(rejection: Rejection, count: int, place: Place, now: datetime) -> Record:
    errors = [
        {**asdict(error), "at": error.at.isoformat() if error.at else None, "parameter": place.parameter(error.name)}
        for error in rejection.errors
    ]
    detail = {
        "stage": place.stage,
        "version_in_force": rejection.in_force,
        "at": now.isoformat(),
        "since": rejection.since.isoformat(),
        "count": count,
        "errors": errors,
    }
    key = f"event#settings-rejected#{rejection.since.isoformat()}#{rejection.state}"
    return event_record(key, SETTINGS_REJECTED_EVENT, detail, now)


def check_deps(environment: CheckSettingsEnvironment) -> CheckDeps:
    """Dependencies of `check_settings` in its environment."""
    return CheckDeps(
        place=Place(environment.stage, environment.home_region),
        store=DynamoDbStateTable(client("dynamodb"), environment.table_name),
        parameters=ParameterTree(client("ssm"), environment.stage),
        clock=lambda: datetime.now(UTC),
    )
