"""DynamoDB streams and SQS queues read for their event source mappings, batch by batch, in the delivery queue's turn.

A failed stream batch is tried again at once, as often as its mapping allows; with unlimited retries, once per turn of
the virtual clock's minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from local.deliveries import DeliveryRecord, Result
from local.emulator import Emulator
from local.patching import relied_on, replace

UNLIMITED = -1

Condition = Literal["RetryAttemptsExhausted", "MaxRecordAgeExceeded"]


@dataclass(slots=True)
class _Shard:
    """The reading position of one mapping: records from `position` up to `limit` are the batch being tried."""

    position: int
    attempts: int = 0
    limit: int | None = None
    waits_since: datetime | None = None


class EventSourceMappings:
    """Reads every enabled mapping. `now` is the virtual clock; `keep` records what became of a batch."""

    def __init__(self, emulator: Emulator, now: Callable[[], datetime], keep: Callable[[DeliveryRecord], None]) -> None:
        self._emulator = emulator
        self._now = now
        self._keep = keep
        self._shards: dict[str, _Shard] = {}
        lambdas, dynamodb = emulator.lambdas, emulator.dynamodb
        self._mappings = relied_on(lambdas, "_iter_all_esms", ())
        self._function = relied_on(lambdas, "_get_func_record_for_qualifier", ("name", "qualifier"))
        self._filter = relied_on(lambdas, "_apply_filter_criteria", ("records", "esm"))
        self._execute = relied_on(lambdas, "_execute_function", ("func", "event"))
        self._report_failure = relied_on(
            lambdas,
            "_send_ddb_stream_failure_record",
            ("esm", "func_rec", "batch", "stream_arn", "result", "condition"),
        )
        self._start = relied_on(dynamodb, "stream_start_position", ("table_name", "account_id", "region"))
        self._end = relied_on(dynamodb, "stream_end_position", ("table_name", "account_id", "region"))
        self._since = relied_on(
            dynamodb, "stream_records_since", ("table_name", "position", "limit", "account_id", "region")
        )
        self._scope = relied_on(emulator.responses, "request_scope", ("account_id", "region"))
        self._poll_sqs = relied_on(lambdas, "_poll_sqs", ())
        replace(lambdas, "_dispatch_esm_batch", ("esm_id", "fn", "args"), _run_batch_here)

    def deliver_next(self) -> bool:
        """Run one batch of one mapping; False when no mapping has anything to do now."""
        for account_id, region, mapping in sorted(self._mappings(), key=lambda one: one[2]["EventSourceArn"]):
            if not mapping.get("Enabled", True) or ":dynamodb:" not in mapping["EventSourceArn"]:
                continue
            with self._scope(account_id, region):
                if self._deliver_stream_batch(mapping):
                    return True
        return bool(self._poll_sqs())

    def _deliver_stream_batch(self, mapping: Mapping[str, Any]) -> bool:
        function, _ = self._function(mapping["FunctionName"], mapping.get("Qualifier"))
        table_name = mapping["EventSourceArn"].split("/")[1]
        table = self._emulator.dynamodb._tables.get(table_name)
        if function is None or not table or table.get("LatestStreamArn") != mapping["EventSourceArn"]:
            return False
        shard = self._shard(mapping, table_name)
        shard.position = max(shard.position, self._start(table_name))
        if shard.waits_since is not None and shard.waits_since == self._now():
            return False
        shard.waits_since = None
        batch = self._since(table_name, shard.position, shard.limit or int(mapping.get("BatchSize") or 100))
        if not batch:
            return False
        wanted = self._filter(batch, mapping)
        if not wanted:
            _advance(shard, len(batch))
            return True
        self._run(mapping, function, shard, batch, wanted)
        return True

    def _shard(self, mapping: Mapping[str, Any], table_name: str) -> _Shard:
        if mapping["UUID"] not in self._shards:
            from_start = mapping.get("StartingPosition") == "TRIM_HORIZON"
            position = self._start(table_name) if from_start else self._position_at_creation(mapping, table_name)
            self._shards[mapping["UUID"]] = _Shard(position)
        return self._shards[mapping["UUID"]]

    def _position_at_creation(self, mapping: Mapping[str, Any], table_name: str) -> int:
        kept = self._emulator.lambdas._dynamodb_stream_positions.get(mapping["UUID"])
        return int(kept) if kept is not None else int(self._end(table_name))

    def _run(
        self,
        mapping: Mapping[str, Any],
        function: Mapping[str, Any],
        shard: _Shard,
        batch: Sequence[Mapping[str, Any]],
        wanted: Sequence[Mapping[str, Any]],
    ) -> None:
        shard.attempts += 1
        event = {"Records": list(wanted)}
        result = self._execute(function, event)
        failed_at = _first_failure(mapping, result, batch, wanted)
        if failed_at is None:
            self._record(mapping, shard, event, "done", "")
            _advance(shard, len(batch))
            return
        error = json.dumps(result.get("body"))
        if failed_at > 0:
            self._record(mapping, shard, event, "will-retry", error)
            _advance(shard, failed_at)
            return
        condition = self._give_up_condition(mapping, shard, wanted)
        if condition is None:
            self._record(mapping, shard, event, "will-retry", error)
            self._prepare_retry(mapping, shard, len(batch))
            return
        self._record(mapping, shard, event, "failed", error)
        self._report_failure(mapping, function, list(wanted), mapping["EventSourceArn"], result, condition)
        _advance(shard, len(batch))

    def _prepare_retry(self, mapping: Mapping[str, Any], shard: _Shard, batch_size: int) -> None:
        if mapping.get("BisectBatchOnFunctionError") and batch_size > 1:
            shard.limit = batch_size // 2
            shard.attempts = 0
        elif _retries(mapping) == UNLIMITED:
            shard.waits_since = self._now()

    def _give_up_condition(
        self, mapping: Mapping[str, Any], shard: _Shard, wanted: Sequence[Mapping[str, Any]]
    ) -> Condition | None:
        max_age_seconds = int(mapping.get("MaximumRecordAgeInSeconds") or UNLIMITED)
        oldest = min(float(record["dynamodb"]["ApproximateCreationDateTime"]) for record in wanted)
        if max_age_seconds > 0 and self._now().timestamp() - oldest > max_age_seconds:
            return "MaxRecordAgeExceeded"
        bisects = bool(mapping.get("BisectBatchOnFunctionError")) and len(wanted) > 1
        if not bisects and _retries(mapping) != UNLIMITED and shard.attempts > _retries(mapping):
            return "RetryAttemptsExhausted"
        return None

    def _record(
        self, mapping: Mapping[str, Any], shard: _Shard, event: Mapping[str, Any], result: Result, error: str
    ) -> None:
        self._keep(
            DeliveryRecord(
                sequence=0,
                at=self._now().isoformat(),
                function=mapping["FunctionName"],
                source=f"stream {mapping['EventSourceArn']}",
                attempt=shard.attempts,
                result=result,
                error=error,
                payload=event,
            )
        )


def _retries(mapping: Mapping[str, Any]) -> int:
    retries = mapping.get("MaximumRetryAttempts")
    return UNLIMITED if retries is None else int(retries)


def _advance(shard: _Shard, count: int) -> None:
    shard.position += count
    shard.attempts = 0
    shard.limit = None


def _first_failure(
    mapping: Mapping[str, Any],
    result: Mapping[str, Any],
    batch: Sequence[Mapping[str, Any]],
    wanted: Sequence[Mapping[str, Any]],
) -> int | None:
    """Index in `batch` of the first record that was not done, or None when all were."""
    if result.get("error"):
        return 0
    body = result.get("body")
    if "ReportBatchItemFailures" not in (mapping.get("FunctionResponseTypes") or []) or not isinstance(body, Mapping):
        return None
    failed = {one.get("itemIdentifier") for one in body.get("batchItemFailures") or []}
    if not failed:
        return None
    for index, record in enumerate(batch):
        if record["dynamodb"]["SequenceNumber"] in failed:
            return index
    return 0  # an identifier that is none of the batch fails all of it, as on Lambda


def _run_batch_here(esm_id: str, fn: Callable[..., None], *args: Any) -> None:
    """Run an SQS batch in the queue's own turn instead of on a thread."""
    fn(*args)
