"""What the product needs from the outside, as protocols. Adapters are in `governor.aws`, fakes in `tests/fakes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from governor.domain.budget_snapshot import BudgetReading, UnknownBudget
from governor.domain.fleet import FleetSnapshot, Group, Instance

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

    def look_again(
        self, region: str, instance_ids: Sequence[str], *, protection: bool = True
    ) -> Mapping[str, Instance]:
        """Fresh facts about some instances, spot request and group state included; missing ones are left out.

        With `protection` also whether each has stop protection; one whose protection cannot be read has None there.
        Raises UnreadableError.
        """
        ...

    def look_at_groups(self, region: str, names: Sequence[str]) -> Mapping[str, Group]:
        """Fresh facts about some Auto Scaling groups; missing ones are left out. Raises UnreadableError."""
        ...

    def read_protection(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, bool | None]:
        """Whether each has stop protection; None where that cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What AWS said to one call about a group or a request: accepted, or the error code and message."""

    accepted: bool
    error: str = ""


class FleetActions(Protocol):
    """What changes instances and groups. One bad id costs one failure: one answer an id, in the order of the ids."""

    def stop(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Stop instances, never hibernating."""
        ...

    def terminate(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Terminate instances."""
        ...

    def cancel_spot_request(self, region: str, request_id: str) -> CallAnswer:
        """Cancel a spot request, so that terminating its instance starts no other. A cancelled one is accepted."""
        ...

    def enter_standby(self, region: str, group: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Put members into standby and lower the desired capacity by as many; at most 20 ids a call are sent."""
        ...

    def lower(self, region: str, group: str, instance_id: str) -> StopAnswer:
        """Terminate exactly this member and lower the desired capacity by one."""
        ...

    def set_group_size(
        self, region: str, group: str, *, min_size: int | None = None, desired: int | None = None
    ) -> CallAnswer:
        """Set MinSize, the desired capacity, or both; what is None stays."""
        ...


class StartActions(Protocol):
    """What brings instances back. One answer an id, in the order of the ids."""

    def start(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Start instances; ids that EC2 refuses are tried one by one."""
        ...

    def exit_standby(self, region: str, group: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Bring members back from standby, which raises the desired capacity by as many."""
        ...

    def set_group_size(
        self, region: str, group: str, *, min_size: int | None = None, desired: int | None = None
    ) -> CallAnswer:
        """Set MinSize, the desired capacity, or both; what is None stays."""
        ...

    def volume_keys(self, region: str, instance_id: str) -> tuple[str, ...]:
        """ARNs of the KMS keys of its volumes, sorted; empty where none is encrypted or they cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How far a command on one instance has come: `pending`, `success` or `failed`, and what SSM says."""

    status: str
    detail: str = ""


class Commands(Protocol):
    """SSM Run Command."""

    def send(self, region: str, instance_id: str, document: str, comment: str) -> tuple[str, str]:
        """(command id, "") once SSM took it, or ("", error sentence). Never raises for what AWS refuses."""
        ...

    def outcome(self, region: str, instance_id: str, command_id: str) -> CommandOutcome:
        """How far it has come; what cannot be read is pending."""
        ...


class ControlTexts(Protocol):
    """The parameters below `control/`: pause, keeps, overrides."""

    def read(self) -> Mapping[str, str] | None:
        """Name without `control/` -> text, read uncached; None where they cannot be read."""
        ...


class Budgets(Protocol):
    """AWS Budgets."""

    def read(self) -> BudgetReading | UnknownBudget:
        """The stage's budget as it stands now; what cannot be read is unknown, with why."""
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
