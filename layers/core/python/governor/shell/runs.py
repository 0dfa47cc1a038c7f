"""What every acting function does alike: take the lease, find out what was told already, write under the fence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from governor.domain.decisions import Message
from governor.ports import Lease, LeaseHeldError, Record, RecordStore, Write
from governor.shell import records

LEDGER_LEASE = "guard_budget"
"""Whoever writes the stop ledger holds this one, so that there is one writer at a time."""

LEASE_SECONDS = 330
"""Longer than a function may run (300 s), so that nobody acts beside a run that is still at work."""

LEASE_TRIES = 15
LEASE_PAUSE_SECONDS = 2.0
"""AWS Budgets sends a notice for each step it crosses, all at once: the later runs wait for the first."""

COMMIT_RECORDS = 90


def take_lease(store: RecordStore, holder: str, now: Callable[[], datetime], sleep: Callable[[float], None]) -> Lease:
    """Take the lease of the ledger, waiting for another run to end.

    `now` is asked anew for each try. Raises LeaseHeldError where the other run does not end within half a minute.
    """
    for attempt in range(1, LEASE_TRIES + 1):
        try:
            return store.take_lease(LEDGER_LEASE, holder, now(), LEASE_SECONDS)
        except LeaseHeldError:
            if attempt == LEASE_TRIES:
                raise
            sleep(LEASE_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def find_unsent(
    store: RecordStore, messages: Iterable[Message], stage: str, now: datetime
) -> list[tuple[Message, tuple[Record, ...]]]:
    """Messages whose fact has not been told yet, with their records."""
    built = {message.key: (message, records.message_records(message, stage, now)) for message in messages}
    keys = [record.key for _, found in built.values() for record in found]
    present = store.present(keys) if keys else frozenset()
    return [(message, found) for message, found in built.values() if found[0].key not in present]


def commit_all(
    store: RecordStore,
    writes: Sequence[Write],
    unsent: Sequence[tuple[Message, tuple[Record, ...]]],
    lease: Lease,
) -> None:
    """All in one transaction where it fits; else messages first, so that no fact is stored that nobody was told."""
    ordered = [Write(record, "absent") for _, found in unsent for record in found] + list(writes)
    for start in range(0, len(ordered), COMMIT_RECORDS):
        store.commit(ordered[start : start + COMMIT_RECORDS], lease)
