"""The state table in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from governor.ports import RECORD_VERSION, ConflictError, Key, Lease, LeaseHeldError, Record, UnreadableError, Write

TRANSACTION_ITEMS = 100


@dataclass
class _LeaseState:
    holder: str
    until: datetime
    fence: int


class InMemoryRecords:
    """`RecordStore` in memory.

    `calls` lists what was called, in order. `before` is run with the name of each call before it has any effect, so
    that a test can raise there or let somebody else write in between; `after` likewise once it has had its effect.
    """

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.leases: dict[str, _LeaseState] = {}
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda call: None
        self.after: Callable[[str], None] = lambda call: None

    def get(self, key: Key) -> Record | None:
        """Read one record."""
        self._begin("get")
        found = self.records.get(key)
        self.after("get")
        return None if found is None else _readable(found)

    def query(self, pk: str, prefix: str = "", *, newest_first: bool = False, limit: int | None = None) -> list[Record]:
        """Records of one partition whose sort key begins with `prefix`."""
        self._begin("query")
        keys = sorted(
            (key for key in self.records if key.pk == pk and key.sk.startswith(prefix)),
            key=lambda key: key.sk.encode(),
            reverse=newest_first,
        )
        found = [_readable(self.records[key]) for key in keys[:limit]]
        self.after("query")
        return found

    def present(self, keys: Sequence[Key]) -> frozenset[Key]:
        """Which of `keys` exist."""
        self._begin("present")
        found = frozenset(key for key in keys if key in self.records)
        self.after("present")
        return found

    def put_all(self, records: Sequence[Record]) -> None:
        """Put any number of records unconditionally."""
        self._begin("put_all")
        for record in records:
            self._put(record)
        self.after("put_all")

    def commit(self, writes: Sequence[Write], lease: Lease | None = None) -> None:
        """Write records atomically, under the fence of `lease`."""
        if not writes:
            return
        if len(writes) + (lease is not None) > TRANSACTION_ITEMS:
            raise ValueError(f"{len(writes)} records are more than one transaction takes")
        keys = [write.record.key for write in writes]
        if len(set(keys)) != len(keys):
            raise ValueError("a transaction cannot hold one record twice")
        self._begin("commit")
        if lease is not None:
            state = self.leases.get(lease.name)
            if state is None or state.fence != lease.fence:
                raise ConflictError(f"the lease {lease.name} is under another fence")
        for write in writes:
            if not self._allows(write):
                raise ConflictError(f"{write.record.key} is not {write.when}")
        for write in writes:
            self._put(write.record)
        self.after("commit")

    def take_lease(self, name: str, holder: str, now: datetime, seconds: int) -> Lease:
        """Take or renew a lease."""
        self._begin("take_lease")
        state = self.leases.get(name)
        if state is not None and state.until > now and state.holder != holder:
            raise LeaseHeldError(f"the lease {name} is held by another run")
        until = now + timedelta(seconds=seconds)
        fence = 1 if state is None else state.fence + 1
        self.leases[name] = _LeaseState(holder, until, fence)
        self.after("take_lease")
        return Lease(name, holder, fence, until)

    def release_lease(self, lease: Lease) -> None:
        """Let others take the lease at once; no error if it was lost meanwhile."""
        self._begin("release_lease")
        state = self.leases.get(lease.name)
        if state is not None and state.fence == lease.fence:
            state.until = datetime.min.replace(tzinfo=UTC)
        self.after("release_lease")

    def outbox(self, *ways: str) -> list[Record]:
        """Records on their way out by one of `ways` (none: all ways), in the order of their keys. For tests."""
        found = [record for record in self.records.values() if record.outbox in (ways or ("mail", "slack", "event"))]
        return sorted(found, key=lambda record: record.key)

    def _begin(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)

    def _allows(self, write: Write) -> bool:
        there = self.records.get(write.record.key)
        if there is None or write.when == "always":
            return True
        if write.when == "newer":
            return there.sequence is None or there.sequence <= (write.record.sequence or "")
        return False

    def _put(self, record: Record) -> None:
        body: dict[str, Any] = json.loads(json.dumps(record.body, sort_keys=True))
        self.records[record.key] = replace(record, body=body)


def _readable(record: Record) -> Record:
    if record.version > RECORD_VERSION:
        raise UnreadableError(f"record {record.key} has version {record.version}, newer than {RECORD_VERSION}")
    return record
