"""The operator's thresholds: one typed model, from which patterns, validation, seeding and the reference are made.

Every threshold is one SSM parameter `/governor/<stage>/<area>/<name>`. The dataclass below is the only place where a
threshold is declared; `SETTINGS` lists the declarations as data.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Mode(StrEnum):
    """What an area may do: nothing, decide and report, or act."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class ValueKind(StrEnum):
    """How the text of a parameter is read."""

    NUMBER = "number"
    INTEGER = "integer"
    CHOICE = "choice"
    WORDS = "words"
    OPTIONAL_NUMBER = "optional-number"
    TAGS = "tags"
    PAIRS = "pairs"


SAME = "same"
"""What an optional number holds where it follows another threshold."""

ANY = "any"
"""What a list of tags holds where it restricts nothing."""

NONE = "none"
"""What a list of pairs holds where it has none."""

_PATTERNS: Mapping[ValueKind, str] = {
    ValueKind.NUMBER: r"^[0-9]{1,8}(\.[0-9]{1,4})?$",
    ValueKind.INTEGER: r"^[0-9]{1,8}$",
    ValueKind.WORDS: r"^[a-z0-9-]+(,[a-z0-9-]+)*$",
    ValueKind.OPTIONAL_NUMBER: r"^(same|[0-9]{1,8}(\.[0-9]{1,4})?)$",
    ValueKind.TAGS: r"^(any|[^=,]{1,128}=[^=,]{0,256}(,[^=,]{1,128}=[^=,]{0,256})*)$",
    ValueKind.PAIRS: r"^(none|[^=,]{1,128}=[A-Za-z0-9_.:/-]{1,128}(,[^=,]{1,128}=[A-Za-z0-9_.:/-]{1,128})*)$",
}


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """One threshold: its parameter name, unit, range (inclusive), default and meaning."""

    name: str
    area: str
    attribute: str
    kind: ValueKind
    unit: str
    default: str
    description: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    moves_stop_level: bool = False

    @property
    def allowed_pattern(self) -> str:
        """Regular expression that Parameter Store checks before a value is accepted."""
        if self.kind is ValueKind.CHOICE:
            return "^(" + "|".join(self.choices) + ")$"
        return _PATTERNS[self.kind]

    @property
    def rule(self) -> str:
        """The range in words, as an operator reads it in a message."""
        if self.kind is ValueKind.CHOICE:
            return "one of " + ", ".join(self.choices)
        if self.kind is ValueKind.WORDS:
            return "lower-case words separated by commas, without spaces"
        if self.kind is ValueKind.TAGS:
            return "any, or tags as key=value separated by commas"
        if self.kind is ValueKind.PAIRS:
            return "none, or pairs as name=value separated by commas"
        if self.kind is ValueKind.OPTIONAL_NUMBER:
            return f"same, or a number from {to_text(self.minimum)} to {to_text(self.maximum)}"
        noun = "a whole number" if self.kind is ValueKind.INTEGER else "a number"
        return f"{noun} from {to_text(self.minimum)} to {to_text(self.maximum)}"


def _setting(
    kind: ValueKind,
    default: Any,
    unit: str,
    description: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    moves_stop_level: bool = False,
) -> Any:
    metadata = {
        "kind": kind,
        "unit": unit,
        "description": description,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
        "moves_stop_level": moves_stop_level,
    }
    return field(default=default, metadata=metadata)


class StopPolicy(StrEnum):
    """How many are stopped at the stop level."""

    ALL = "all"
    ENOUGH = "enough"


class GroupAction(StrEnum):
    """What is done with members of Auto Scaling groups."""

    STANDBY_AND_STOP = "standby-and-stop"
    LOWER = "lower"
    REPORT = "report"


class Switch(StrEnum):
    """On or off."""

    OFF = "off"
    ON = "on"


class RestoreAtPeriod(StrEnum):
    """What happens to stopped machines when there is money again."""

    PROPOSE = "propose"
    CRITICAL_FIRST = "critical-first"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Thresholds of the budget guard (`budget/...`)."""

    mode: Mode = _setting(
        ValueKind.CHOICE,
        Mode.OBSERVE,
        "mode",
        "What the budget guard may do: off (nothing), observe (decide and report), enforce (stop instances).",
        choices=tuple(Mode),
    )
    limit_usd: float = _setting(
        ValueKind.NUMBER,
        1000.0,
        "USD per calendar month (UTC)",
        "The month's limit for GPU spend. All percentages are of this figure.",
        minimum=1,
        maximum=10_000_000,
        moves_stop_level=True,
    )
    warn_percent: float = _setting(
        ValueKind.NUMBER,
        80.0,
        "percent of budget/limit-usd",
        "At this share of the limit one warning is sent. Nothing is stopped. Must be below budget/stop-percent.",
        minimum=1,
        maximum=200,
    )
    stop_percent: float = _setting(
        ValueKind.NUMBER,
        95.0,
        "percent of budget/limit-usd",
        "At this share of the limit managed, non-critical instances of budget/stop-families are stopped.",
        minimum=2,
        maximum=500,
        moves_stop_level=True,
    )
    stop_families: tuple[str, ...] = _setting(
        ValueKind.WORDS,
        ("p4d", "g4dn"),
        "instance families",
        "Instance families that the budget guard may stop. Others are counted and reported, never stopped.",
        moves_stop_level=True,
    )
    grace_minutes: int = _setting(
        ValueKind.INTEGER,
        5,
        "minutes",
        "Time between the notice of a stop and the stop. 0 stops at once.",
        minimum=0,
        maximum=120,
    )
    confirm_minutes: int = _setting(
        ValueKind.INTEGER,
        10,
        "minutes",
        "How long a stop is held, with a page, after an edit of a threshold that moves the stop level, or after the "
        "spend jumped beyond what the fleet can burn. 0 never holds.",
        minimum=0,
        maximum=240,
    )
    max_stop_percent: float = _setting(
        ValueKind.NUMBER,
        100.0,
        "percent of the managed, non-critical instances",
        "At most this share of what is not critical is stopped by the budget guard; the rest needs a person.",
        minimum=0,
        maximum=100,
    )
    max_stops_per_run: int = _setting(
        ValueKind.INTEGER,
        50,
        "instances",
        "At most this many instances are stopped in one run; the next run, minutes later, goes on.",
        minimum=1,
        maximum=50,
    )
    stop_policy: StopPolicy = _setting(
        ValueKind.CHOICE,
        StopPolicy.ALL,
        "policy",
        "all stops everything within reach at the stop level; enough stops as many, in order of regret, as bring the "
        "month's forecast under the limit.",
        choices=tuple(StopPolicy),
        moves_stop_level=True,
    )
    stop_preemptible_percent: float | None = _setting(
        ValueKind.OPTIONAL_NUMBER,
        None,
        "percent of budget/limit-usd",
        "At this share of the limit preemptible instances are stopped already; same means at budget/stop-percent. "
        "Must not be above it.",
        minimum=2,
        maximum=500,
        moves_stop_level=True,
    )
    min_saving_usd: float = _setting(
        ValueKind.NUMBER,
        1.0,
        "USD to the end of the month",
        "An instance whose stop would save less than this to the end of the month is not stopped.",
        minimum=0,
        maximum=100_000,
    )
    stop_tags: tuple[tuple[str, str], ...] = _setting(
        ValueKind.TAGS,
        (),
        "tags",
        "Only instances with one of these tags are stopped; any means that tags do not restrict it further.",
        moves_stop_level=True,
    )
    group_action: GroupAction = _setting(
        ValueKind.CHOICE,
        GroupAction.STANDBY_AND_STOP,
        "action",
        "Members of Auto Scaling groups: standby-and-stop puts them into standby and stops them, lower terminates them "
        "and lowers the group, report leaves them.",
        choices=tuple(GroupAction),
    )
    terminate_one_time_spot: Switch = _setting(
        ValueKind.CHOICE,
        Switch.OFF,
        "on or off",
        "One-time spot instances cannot be stopped. on terminates them at the stop level, which cannot be undone.",
        choices=tuple(Switch),
    )
    wave_percent: float = _setting(
        ValueKind.NUMBER,
        50.0,
        "percent of what is within reach",
        "After a hold (an edited threshold, a jump in spend) at most this share is stopped in one run, for an hour.",
        minimum=1,
        maximum=100,
    )
    manual_start_grace_hours: int = _setting(
        ValueKind.INTEGER,
        12,
        "hours",
        "A machine that a person started after our stop is left alone for so long, then it is stopped again.",
        minimum=0,
        maximum=744,
    )
    checkpoint_documents: tuple[tuple[str, str], ...] = _setting(
        ValueKind.PAIRS,
        (),
        "pool=document",
        "SSM documents that save the work of a pool before its machines are stopped, run within budget/grace-minutes. "
        "The tag governor:checkpoint of an instance comes first. Each must stand in checkpoint_documents in cdk.json.",
    )
    restore_at_period: RestoreAtPeriod = _setting(
        ValueKind.CHOICE,
        RestoreAtPeriod.PROPOSE,
        "policy",
        "What happens to the machines we stopped in a new month or at a raised limit: propose sends one message with "
        "one command, critical-first starts the standard ones, all starts all, as far as the forecast stays within "
        "the limit.",
        choices=tuple(RestoreAtPeriod),
    )

    @property
    def stop_preemptible_at_percent(self) -> float:
        """The share of the limit at which preemptible instances are stopped."""
        return self.stop_percent if self.stop_preemptible_percent is None else self.stop_preemptible_percent


@dataclass(frozen=True, slots=True)
class RestoreSettings:
    """Thresholds of the way back (`restore/...`)."""

    max_starts_per_run: int = _setting(
        ValueKind.INTEGER,
        10,
        "instances",
        "At most this many instances are started in one run; the next run, minutes later, goes on.",
        minimum=1,
        maximum=50,
    )
    give_up_hours: int = _setting(
        ValueKind.INTEGER,
        48,
        "hours",
        "A start that fails (no capacity, an unusable key) is tried again for so long, then a person is told.",
        minimum=1,
        maximum=744,
    )


@dataclass(frozen=True, slots=True)
class DigestSettings:
    """When the digests are sent (`digest/...`)."""

    hour_utc: int = _setting(
        ValueKind.INTEGER,
        7,
        "hour of the day, UTC",
        "From this hour on the digests go out: daily while observing, on Mondays, and on the first of a month.",
        minimum=0,
        maximum=23,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree as one value."""

    budget: BudgetSettings = field(default_factory=BudgetSettings)
    restore: RestoreSettings = field(default_factory=RestoreSettings)
    digest: DigestSettings = field(default_factory=DigestSettings)


_AREAS: Mapping[str, Callable[..., Any]] = {
    "budget": BudgetSettings,
    "restore": RestoreSettings,
    "digest": DigestSettings,
}


def to_text(value: object) -> str:
    """The text of a value as it stands in a parameter: 95.0 is `95`, a tuple is comma-separated."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return str(value)


def value_text(spec_kind: ValueKind, value: object) -> str:
    """The text of a value of that kind as it stands in a parameter."""
    if spec_kind is ValueKind.OPTIONAL_NUMBER and value is None:
        return SAME
    if spec_kind is ValueKind.TAGS and isinstance(value, tuple):
        return ",".join(f"{key}={text}" for key, text in value) or ANY
    if spec_kind is ValueKind.PAIRS and isinstance(value, tuple):
        return ",".join(f"{key}={text}" for key, text in value) or NONE
    return to_text(value)


def _specs() -> tuple[SettingSpec, ...]:
    found = []
    for area, model in _AREAS.items():
        for declared in dataclasses.fields(model):  # type: ignore[arg-type]
            found.append(
                SettingSpec(
                    name=f"{area}/{declared.name.replace('_', '-')}",
                    area=area,
                    attribute=declared.name,
                    default=value_text(declared.metadata["kind"], declared.default),
                    **declared.metadata,
                )
            )
    return tuple(found)


SETTINGS: tuple[SettingSpec, ...] = _specs()
SPEC_BY_NAME: Mapping[str, SettingSpec] = {spec.name: spec for spec in SETTINGS}


@dataclass(frozen=True, slots=True)
class SettingError:
    """One parameter that cannot be used: which, what it holds, and the rule it breaks."""

    name: str
    value: str
    rule: str

    @property
    def sentence(self) -> str:
        """One sentence for an operator."""
        return f"{self.name} is {self.value!r}: must be {self.rule}"


def cross_field_errors(settings: Settings) -> tuple[SettingError, ...]:
    """Rules between parameters: the warning must come before the stop."""
    budget = settings.budget
    if budget.warn_percent >= budget.stop_percent:
        rule = f"below budget/stop-percent ({to_text(budget.stop_percent)})"
        return (SettingError("budget/warn-percent", to_text(budget.warn_percent), rule),)
    early = budget.stop_preemptible_at_percent
    if early > budget.stop_percent:
        rule = f"at most budget/stop-percent ({to_text(budget.stop_percent)}), or same"
        return (SettingError("budget/stop-preemptible-percent", to_text(early), rule),)
    if early <= budget.warn_percent:
        rule = f"above budget/warn-percent ({to_text(budget.warn_percent)}), or same"
        return (SettingError("budget/stop-preemptible-percent", to_text(early), rule),)
    return ()


def as_texts(settings: Settings) -> dict[str, str]:
    """Every threshold of `settings` as parameter name -> text, in the order of `SETTINGS`."""
    return {
        spec.name: value_text(spec.kind, getattr(getattr(settings, spec.area), spec.attribute)) for spec in SETTINGS
    }


def schema_hash() -> str:
    """Hex digest that changes when a threshold is added, removed, or its range, default or words change."""
    described = [dataclasses.asdict(spec) for spec in SETTINGS]
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()
