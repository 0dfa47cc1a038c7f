"""What the product needs from the outside, as protocols. Adapters are in `governor.aws`, fakes in `tests/fakes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from governor.domain.budget_snapshot import BudgetReading, UnknownBudget
from governor.domain.fleet import FleetSnapshot, Instance

RECORD_VERSION = 1
"""Version of the shape of stored records; readers refuse newer ones."""


class ConflictError(Exception):
    """A conditional write lost: somebody else wrote in between, or the lease is no longer ours."""


class LeaseHeldError(Exception):
    """Another run holds the lease; the caller should be retried."""


class UnreadableError(Exception):
    """The outside did not answer in a way that can be used: throttled, denied, broken."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Primary key of a record in the state table."""

    pk: str
    sk: str


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the state table.

    `body` is JSON; `outbox` names the way it leaves (`mail`, `slack`, `event`, or `run` for the heartbeat);
    `sequence` is compared by `Condition.NEWER`; `expires_at` is epoch seconds (TTL).
    """

    key: Key
    body: Mapping[str, Any] = field(default_factory=dict)
    outbox: str | None = None
    sequence: str | None = None
    expires_at: int | None = None
    version: int = RECORD_VERSION


@dataclass(frozen=True, slots=True)
class Write:
    """Put a record: always, only where there is none, or only over one whose sequence is not greater."""

    record: Record
    when: str = "always"  # "always" | "absent" | "newer"


@dataclass(frozen=True, slots=True)
class Lease:
    """Right to act, fenced: a write under an older fence is refused."""

    name: str
    holder: str
    fence: int
    until: datetime


class RecordStore(Protocol):
    """The state table."""

    def get(self, key: Key) -> Record | None:
        """Strongly consistent read of one record."""
        ...

    def query(self, pk: str, prefix: str = "", *, newest_first: bool = False, limit: int | None = None) -> list[Record]:
        """Records of one partition whose sort key begins with `prefix`, in order of the sort key."""
        ...

    def present(self, keys: Sequence[Key]) -> frozenset[Key]:
        """Which of `keys` exist."""
        ...

    def put_all(self, records: Sequence[Record]) -> None:
        """Put any number of records unconditionally, not atomically."""
        ...

    def commit(self, writes: Sequence[Write], lease: Lease | None = None) -> None:
        """Write at most 99 records atomically, under the fence of `lease`. Raises ConflictError."""
        ...

    def take_lease(self, name: str, holder: str, now: datetime, seconds: int) -> Lease:
        """Take or renew a lease. Raises LeaseHeldError while another holder has it."""
        ...

    def release_lease(self, lease: Lease) -> None:
        """Let others take the lease at once; no error if it was lost meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class StopAnswer:
    """What EC2 said to the stop of one instance: accepted, or the error code and message."""

    instance_id: str
    accepted: bool
    error: str = ""


class Fleet(Protocol):
    """EC2 in the listed Regions."""

    def observe(self) -> FleetSnapshot:
        """Every GPU instance that is not terminated; Regions that cannot be read are named, never left out."""
        ...

    def look_again(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Fresh facts about some instances, stop protection included; missing ones are left out.

        Raises UnreadableError.
        """
        ...

    def stop(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Stop instances; one bad id costs one failure. One answer an id."""
        ...


class Budgets(Protocol):
    """AWS Budgets."""

    def read(self) -> BudgetReading | UnknownBudget:
        """The stage's budget as it stands now; what cannot be read is unknown, with why."""
        ...


class PauseSwitch(Protocol):
    """The pause parameter."""

    def read_text(self) -> str | None:
        """Its text, read uncached; None where it is missing or cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """One SSM parameter as it is stored: its full name, text, version, and when it was last changed."""

    name: str
    value: str
    version: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ParameterChange:
    """Who last changed a parameter, when, and what it held before (None: it was created)."""

    by: str
    at: datetime
    before: str | None


class Parameters(Protocol):
    """Parameter Store below `/governor/<stage>/`."""

    def read_tree(self) -> tuple[Parameter, ...]:
        """Every parameter below the root, all pages. Raises UnreadableError when throttled or denied."""
        ...

    def last_change(self, name: str) -> ParameterChange | None:
        """Newest entry of a parameter's history; None where it cannot be had."""
        ...


class Outbound(Protocol):
    """Ways out of the account's controller: topics and the bus."""

    def mail(self, severity: str, subject: str, body: str) -> None:
        """Publish to the topic of a severity."""
        ...

    def slack(self, title: str, text: str) -> None:
        """Publish a custom notification for chat clients."""
        ...

    def event(self, detail_type: str, detail: Mapping[str, Any]) -> None:
        """Put an event on the project's bus."""
        ...
