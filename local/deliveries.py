"""One ordered queue for every asynchronous delivery to a function, with AWS's retries and dead letters.

SNS, EventBridge rules, EventBridge Scheduler and asynchronous invokes all end here; DynamoDB streams and SQS mappings
are read between two deliveries. One delivery runs at a time, in the order of (due time, arrival), so that the same
inputs always give the same run. A failed function is tried again 1 and then 2 virtual minutes later, as Lambda does.
"""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

_log = logging.getLogger("local.deliveries")

RETRY_AFTER = (timedelta(minutes=1), timedelta(minutes=2))
DEFAULT_RETRIES = 2
DEFAULT_MAX_AGE = timedelta(hours=6)

Result = Literal["done", "failed", "will-retry", "not-handed-over"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one function. `attempt` counts from 1."""

    sequence: int
    due_at: datetime
    first_at: datetime
    function_arn: str
    payload: Any
    source: str
    dead_letter_arn: str
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """What became of one attempt."""

    sequence: int
    at: str
    function: str
    source: str
    attempt: int
    result: Result
    error: str
    payload: Any

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FunctionRun:
    """The answer of one run: `error` is the emulator's error body, or None."""

    error: Mapping[str, Any] | None
    was_throttled: bool = False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The asynchronous invoke configuration of a function."""

    retries: int = DEFAULT_RETRIES
    max_age: timedelta = DEFAULT_MAX_AGE
    on_failure_arn: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an event could not be handed over, in EventBridge's words."""

    code: str
    message: str


class Invoker(Protocol):
    """How the queue reaches functions and their queues."""

    def refusal(self, delivery: Delivery) -> Refusal | None:
        """Why the function cannot be given this event, or None."""
        ...

    def policy(self, function_arn: str) -> RetryPolicy:
        """The function's asynchronous invoke configuration."""
        ...

    def run(self, function_arn: str, payload: Any) -> FunctionRun:
        """Run the function once, and wait for it."""
        ...

    def send_on_failure(self, delivery: Delivery, target_arn: str, error: Mapping[str, Any], condition: str) -> None:
        """Send the record of an exhausted event to the function's failure destination."""
        ...

    def send_to_rule_queue(self, delivery: Delivery, refusal: Refusal) -> None:
        """Send an event that could not be handed over to the dead-letter queue of its rule or schedule."""
        ...


class DeliveryQueue:
    """See the module. `now` is the virtual clock; `deliver_from_streams` runs one batch and says whether it did."""

    def __init__(
        self,
        invoker: Invoker,
        now: Callable[[], datetime],
        wake: threading.Event,
        deliver_from_streams: Callable[[], bool],
    ) -> None:
        self._invoker = invoker
        self._now = now
        self._wake = wake
        self._deliver_from_streams = deliver_from_streams
        self._sequence = itertools.count(1)
        self._heap: list[tuple[datetime, int, Delivery]] = []
        self._guard = threading.Lock()
        self._drain_lock = threading.Lock()
        self._records: list[DeliveryRecord] = []
        self._is_held = False
        self._background_error: Exception | None = None

    def add(self, function_arn: str, payload: Any, *, source: str, dead_letter_arn: str = "") -> None:
        """Queue one event, due now."""
        now = self._now()
        self._push(
            Delivery(
                sequence=next(self._sequence),
                due_at=now,
                first_at=now,
                function_arn=function_arn,
                payload=payload,
                source=source,
                dead_letter_arn=dead_letter_arn,
            )
        )
        self._wake.set()

    def hold(self, is_held: bool) -> None:
        """Stop the background delivery (events wait for `drain`), or let it go on."""
        self._is_held = is_held
        self._wake.set()

    def records(self, after: int = 0) -> list[DeliveryRecord]:
        """Every attempt so far, in order, skipping the first `after`."""
        with self._guard:
            return self._records[after:]

    def waiting(self) -> int:
        """Deliveries not yet run, retries that are due later included."""
        with self._guard:
            return len(self._heap)

    def drain(self) -> int:
        """Run everything that is due, in order, until nothing is left; returns how many runs that took.

        Raises what went wrong in the background since the last call (a dead-letter queue that is not there).
        """
        with self._drain_lock:
            if self._background_error is not None:
                error, self._background_error = self._background_error, None
                raise error
            runs = 0
            while True:
                delivery = self._pop_due()
                if delivery is not None:
                    self._run(delivery)
                elif not self._deliver_from_streams():
                    return runs
                runs += 1

    def keep_draining(self, stopped: threading.Event) -> None:
        """Drain whenever something arrives, until `stopped`; the body of the background thread."""
        while not stopped.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._is_held and not stopped.is_set():
                self._drain_in_background()

    def _drain_in_background(self) -> None:
        """An error here has nobody to go to; the next `drain` that somebody waits for raises it."""
        try:
            self.drain()
        except Exception as error:  # noqa: BLE001 - raised again by the next drain
            _log.exception("a delivery failed")
            self._background_error = error

    def record(self, record: DeliveryRecord) -> None:
        """Keep what became of a batch that did not come through this queue."""
        with self._guard:
            self._records.append(record)

    def _push(self, delivery: Delivery) -> None:
        with self._guard:
            heapq.heappush(self._heap, (delivery.due_at, delivery.sequence, delivery))

    def _pop_due(self) -> Delivery | None:
        with self._guard:
            if self._heap and self._heap[0][0] <= self._now():
                return heapq.heappop(self._heap)[2]
            return None

    def _run(self, delivery: Delivery) -> None:
        refusal = self._invoker.refusal(delivery)
        if refusal is not None:
            self._invoker.send_to_rule_queue(delivery, refusal)
            self._keep(delivery, "not-handed-over", f"{refusal.code}: {refusal.message}")
            return
        run = self._invoker.run(delivery.function_arn, delivery.payload)
        if run.error is None:
            self._keep(delivery, "done", "")
        else:
            self._retry_or_give_up(delivery, run.error)

    def _retry_or_give_up(self, delivery: Delivery, error: Mapping[str, Any]) -> None:
        policy = self._invoker.policy(delivery.function_arn)
        text = json.dumps(error)
        if delivery.attempt <= policy.retries:
            due_at = self._now() + RETRY_AFTER[min(delivery.attempt, len(RETRY_AFTER)) - 1]
            if due_at - delivery.first_at <= policy.max_age:
                self._keep(delivery, "will-retry", text)
                self._push(replace(delivery, due_at=due_at, attempt=delivery.attempt + 1))
                return
            condition = "EventAgeExceeded"
        else:
            condition = "RetriesExhausted"
        self._keep(delivery, "failed", text)
        if policy.on_failure_arn:
            self._invoker.send_on_failure(delivery, policy.on_failure_arn, error, condition)

    def _keep(self, delivery: Delivery, result: Result, error: str) -> None:
        self.record(
            DeliveryRecord(
                sequence=delivery.sequence,
                at=self._now().isoformat(),
                function=delivery.function_arn.split(":")[6],
                source=delivery.source,
                attempt=delivery.attempt,
                result=result,
                error=error,
                payload=delivery.payload,
            )
        )
