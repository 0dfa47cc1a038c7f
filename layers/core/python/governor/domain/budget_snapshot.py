"""What the budget guard looks at, and what it remembers from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from governor.domain.controls import Controls
from governor.domain.fleet import FleetSnapshot
from governor.domain.groups import GroupHold
from governor.domain.ledger import StopEntry
from governor.domain.prices import PriceCatalogue
from governor.domain.settings import DigestSettings, RestoreSettings

FUNCTION = "guard_budget"

LEDGER_REASON = "budget"


@dataclass(frozen=True, slots=True)
class BudgetReading:
    """What AWS Budgets says: USD of the period so far, its own limit and forecast. Hours behind the spend."""

    name: str
    actual_usd: float
    aws_limit_usd: float | None
    aws_forecast_usd: float | None = None


@dataclass(frozen=True, slots=True)
class UnknownBudget:
    """The budget could not be read, or holds something we do not understand."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class ThresholdEdit:
    """A setting that moves the stop level was changed by somebody."""

    name: str
    at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One run of a checkpoint document on one launch of an instance. `status` is pending, success or failed."""

    instance_id: str
    region: str
    launched_at: datetime
    document: str
    sent_at: datetime
    command_id: str = ""
    status: str = "pending"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A person asks for machines back: the named ones, those of one decision, or all that we stopped."""

    asked_by: str
    instances: tuple[str, ...] = ()
    decision_id: str = ""
    everything: bool = False


@dataclass(frozen=True, slots=True)
class GuardState:
    """What the guard remembers from one run to the next."""

    period: str
    decided_at: datetime
    actual_usd: float | None = None
    actual_moved_at: datetime | None = None
    last_period_actual_usd: float | None = None
    last_period: str = ""
    """The month of which that is the last figure; not always the one before, where the spend was unknown for long."""
    stop_reached_at: datetime | None = None
    """Since when the level has been reached with the guard armed and not paused: grace counts from here."""
    paused_since: datetime | None = None
    pause_unread_since: datetime | None = None
    new_month: bool = False
    """True while a reading may still be the old month's: it has to be explained by what this month can have cost."""
    doubted: bool = False
    """True where the reading of the last run was not believed."""
    unknown_since: datetime | None = None
    fell_at: datetime | None = None
    blind_regions: tuple[tuple[str, datetime], ...] = ()
    """Regions that cannot be read, each with the first run that could not."""
    jump_at: datetime | None = None
    jump_usd: float = 0.0
    believable_usd: float = 0.0
    stop_scope: str = ""
    """`preemptible` or `all`: who was to be stopped at the level that `stop_reached_at` is about."""
    noticed_at: datetime | None = None
    """Since when the run rate predicts that the stop level is crossed within the grace, with the notice sent."""
    running_since: datetime | None = None
    observing_since: datetime | None = None
    digests: tuple[str, ...] = ()
    """Keys of the digests that went out last."""
    fingerprint: str = ""
    trigger: str = ""
    """Name of the event of the last run, by which a retry of it is known."""


@dataclass(frozen=True, slots=True)
class BudgetSnapshot:
    """Everything the guard looks at, gathered before it decides."""

    stage: str
    home_region: str
    fleet: FleetSnapshot
    budget: BudgetReading | UnknownBudget
    prices: PriceCatalogue
    controls: Controls
    settings_version: int
    ledger: tuple[StopEntry, ...] = ()
    state: GuardState | None = None
    edits: tuple[ThresholdEdit, ...] = ()
    counted_families: frozenset[str] | None = None
    """Families that the AWS budget counts; the meter counts the same ones (None: all)."""
    holds: tuple[GroupHold, ...] = ()
    """Groups of which we changed something that is not put back yet."""
    other_reasons: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Instance -> reasons of others in the stop ledger, because of which it must stay stopped."""
    checkpoints: tuple[Checkpoint, ...] = ()
    checkpoint_documents: frozenset[str] = frozenset()
    """SSM documents that the stage allows as checkpoints."""
    restore_settings: RestoreSettings = field(default_factory=RestoreSettings)
    digest_settings: DigestSettings = field(default_factory=DigestSettings)
    request: RestoreRequest | None = None
