"""What a decision is made of: verdicts on instances, actions, messages, and the reasons for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from governor.domain.reasons import Reason
from governor.domain.settings import Mode


class Severity(StrEnum):
    """Who must look: wake somebody, look today, good to know. Each has its own topic."""

    PAGE = "page"
    WARN = "warn"
    INFO = "info"


class Verdict(StrEnum):
    """What a decision says about one instance."""

    STOP = "stop"
    SPARE = "spare"


@dataclass(frozen=True, slots=True)
class InstanceVerdict:
    """One instance in a decision: what happens to it, why, and what it is worth (USD per hour; None = unknown)."""

    instance_id: str
    region: str
    instance_type: str
    verdict: Verdict
    reason: Reason
    usd_per_hour: float | None
    launched_at: datetime | None
    name: str = ""
    project: str = ""
    pool: str = ""
    loses: tuple[str, ...] = ()
    method: StopMethod | None = None
    notes: tuple[Reason, ...] = ()
    """What else is to be said of it: may not come back, its checkpoint failed."""


class StopMethod(StrEnum):
    """How an instance is stopped. The first two can be undone."""

    STOP = "stop"
    STANDBY_AND_STOP = "standby-and-stop"
    LOWER = "lower"
    CANCEL_AND_TERMINATE = "cancel-and-terminate"


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Stop one running instance that was launched at `launched_at`."""

    instance_id: str
    region: str
    launched_at: datetime
    ledger_reason: str
    rule: str
    usd_per_hour: float | None
    method: StopMethod = StopMethod.STOP
    group: str = ""
    spot_request_id: str = ""


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """Run an SSM document on an instance before it is stopped, so that its work is saved."""

    instance_id: str
    region: str
    launched_at: datetime
    document: str


@dataclass(frozen=True, slots=True)
class RestoreInstance:
    """Start again an instance that we stopped: the launch that the ledger entry is about, and who or what asked."""

    instance_id: str
    region: str
    launched_at: datetime
    asked_by: str
    usd_per_hour: float | None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One fact for people. The same key is never sent twice."""

    key: str
    severity: Severity
    subject: str
    body: str
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Money:
    """What a decision knows about money: USD, USD per hour; None = unknown."""

    limit_usd: float
    actual_usd: float | None
    percent: float | None
    run_rate_usd_per_hour: float
    spent_at_least_usd: float
    forecast_low_usd: float | None
    forecast_high_usd: float | None
    reachable_usd_per_hour: float
    untagged_usd_per_hour: float
    saves_usd_per_hour: float
    prices_dated: str
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one run of a function, before anything was done. `holds` say why stops do not happen now."""

    function: str
    decided_at: datetime
    settings_version: int
    mode: Mode
    level: str
    reasons: tuple[Reason, ...]
    holds: tuple[Reason, ...] = ()
    verdicts: tuple[InstanceVerdict, ...] = ()
    stops: tuple[StopInstance, ...] = ()
    messages: tuple[Message, ...] = ()
    money: Money | None = None
    checkpoints: tuple[RunCheckpoint, ...] = ()
    restores: tuple[RestoreInstance, ...] = ()

    @property
    def decision_id(self) -> str:
        """Names the decision; a retry of the same event has the same one."""
        return f"{self.function}@{self.decided_at.isoformat()}"
