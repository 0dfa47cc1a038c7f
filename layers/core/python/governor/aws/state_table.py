"""The state table in DynamoDB."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from governor.ports import RECORD_VERSION, ConflictError, Key, Lease, LeaseHeldError, Record, UnreadableError, Write

T = TypeVar("T")

BATCH_TRIES = 8
BATCH_GET_KEYS = 100
BATCH_WRITE_ITEMS = 25
TRANSACTION_ITEMS = 100
"""Limits of the DynamoDB API (Service, account, and table quotas in Amazon DynamoDB)."""

FREE = "0"
"""Sorts before every moment: a lease that nobody holds."""

_CONDITIONS = {
    "absent": "attribute_not_exists(pk)",
    "newer": "attribute_not_exists(pk) OR attribute_not_exists(#sequence) OR #sequence <= :sequence",
}


class DynamoDbStateTable:
    """`RecordStore` on one DynamoDB table with keys `pk` and `sk`."""

    def __init__(self, client: Any, table_name: str) -> None:
        self._client = client
        self._table = table_name

    def get(self, key: Key) -> Record | None:
        """Strongly consistent read of one record."""
        answer = self._client.get_item(TableName=self._table, Key=_key_item(key), ConsistentRead=True)
        item = answer.get("Item")
        return record_of_item(item) if item else None

    def query(self, pk: str, prefix: str = "", *, newest_first: bool = False, limit: int | None = None) -> list[Record]:
        """Records of one partition whose sort key begins with `prefix`."""
        expression, values = "pk = :pk", {":pk": {"S": pk}}
        if prefix:
            expression += " AND begins_with(sk, :prefix)"
            values[":prefix"] = {"S": prefix}
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": expression,
            "ExpressionAttributeValues": values,
            "ConsistentRead": True,
            "ScanIndexForward": not newest_first,
        }
        if limit is not None:
            request["Limit"] = limit
        found: list[Record] = []
        while True:
            answer = self._client.query(**request)
            found.extend(record_of_item(item) for item in answer.get("Items", ()))
            if "LastEvaluatedKey" not in answer or (limit is not None and len(found) >= limit):
                return found[:limit]
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def present(self, keys: Sequence[Key]) -> frozenset[Key]:
        """Which of `keys` exist."""
        found: set[Key] = set()
        for chunk in _chunks(sorted(set(keys)), BATCH_GET_KEYS):

            def read(wanted: list[Any]) -> list[Any]:
                request = {self._table: {"Keys": wanted, "ProjectionExpression": "pk, sk", "ConsistentRead": True}}
                answer = self._client.batch_get_item(RequestItems=request)
                for item in answer.get("Responses", {}).get(self._table, ()):
                    found.add(Key(item["pk"]["S"], item["sk"]["S"]))
                left: list[Any] = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
                return left

            _until_done(read, [_key_item(key) for key in chunk])
        return frozenset(found)

    def put_all(self, records: Sequence[Record]) -> None:
        """Put any number of records unconditionally, not atomically."""
        for chunk in _chunks(list(records), BATCH_WRITE_ITEMS):

            def write(wanted: list[Any]) -> list[Any]:
                answer = self._client.batch_write_item(RequestItems={self._table: wanted})
                left: list[Any] = answer.get("UnprocessedItems", {}).get(self._table, [])
                return left

            _until_done(write, [{"PutRequest": {"Item": item_of(record)}} for record in chunk])

    def commit(self, writes: Sequence[Write], lease: Lease | None = None) -> None:
        """Write records atomically, under the fence of `lease`. Raises ConflictError, ValueError above the limit."""
        if not writes:
            return
        if len(writes) + (lease is not None) > TRANSACTION_ITEMS:
            raise ValueError(f"{len(writes)} records are more than one transaction takes")
        items: list[dict[str, Any]] = []
        if lease is not None:
            items.append(
                {
                    "ConditionCheck": {
                        "TableName": self._table,
                        "Key": _key_item(_lease_key(lease.name)),
                        "ConditionExpression": "fence = :fence",
                        "ExpressionAttributeValues": {":fence": {"N": str(lease.fence)}},
                    }
                }
            )
        items.extend({"Put": self._put(write)} for write in writes)
        try:
            self._client.transact_write_items(TransactItems=items)
        except ClientError as error:
            if _lost_a_condition(error):
                raise ConflictError(str(error)) from error
            raise

    def _put(self, write: Write) -> dict[str, Any]:
        request: dict[str, Any] = {"TableName": self._table, "Item": item_of(write.record)}
        condition = _CONDITIONS.get(write.when)
        if condition:
            request["ConditionExpression"] = condition
        if write.when == "newer":
            request["ExpressionAttributeNames"] = {"#sequence": "sequence"}
            request["ExpressionAttributeValues"] = {":sequence": {"S": write.record.sequence or ""}}
        return request

    def take_lease(self, name: str, holder: str, now: datetime, seconds: int) -> Lease:
        """Take or renew a lease. Raises LeaseHeldError while another holder has it."""
        until = now + timedelta(seconds=seconds)
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=_key_item(_lease_key(name)),
                UpdateExpression="SET holder = :holder, held_until = :until ADD fence :one",
                ConditionExpression="attribute_not_exists(pk) OR held_until <= :now OR holder = :holder",
                ExpressionAttributeValues={
                    ":holder": {"S": holder},
                    ":until": {"S": _sortable(until)},
                    ":now": {"S": _sortable(now)},
                    ":one": {"N": "1"},
                },
                ReturnValues="UPDATED_NEW",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise LeaseHeldError(f"the lease {name} is held by another run") from error
            raise
        return Lease(name, holder, int(answer["Attributes"]["fence"]["N"]), until)

    def release_lease(self, lease: Lease) -> None:
        """Let others take the lease at once; no error if it was lost meanwhile."""
        try:
            self._client.update_item(
                TableName=self._table,
                Key=_key_item(_lease_key(lease.name)),
                UpdateExpression="SET held_until = :free",
                ConditionExpression="fence = :fence",
                ExpressionAttributeValues={":free": {"S": FREE}, ":fence": {"N": str(lease.fence)}},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise


def _until_done(call: Callable[[list[Any]], list[Any]], wanted: list[Any]) -> None:
    """Call with what DynamoDB left over, waiting longer each time. Raises UnreadableError after eight calls."""
    for attempt in range(BATCH_TRIES):
        wanted = call(wanted)
        if not wanted:
            return
        time.sleep(0.05 * 2**attempt)
    raise UnreadableError(f"DynamoDB left {len(wanted)} items over {BATCH_TRIES} times")


def _lost_a_condition(error: ClientError) -> bool:
    """True where a transaction failed because somebody else wrote, and not because it was malformed or throttled."""
    if error.response["Error"]["Code"] != "TransactionCanceledException":
        return False
    reasons: Any = error.response.get("CancellationReasons", ())
    return any(reason.get("Code") in ("ConditionalCheckFailed", "TransactionConflict") for reason in reasons)


def _sortable(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _lease_key(name: str) -> Key:
    return Key(f"lease#{name}", "lease")


def _key_item(key: Key) -> dict[str, Any]:
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def item_of(record: Record) -> dict[str, Any]:
    """The DynamoDB item (attribute-value form) of a record."""
    item: dict[str, Any] = {
        **_key_item(record.key),
        "v": {"N": str(record.version)},
        "body": {"S": json.dumps(record.body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)},
    }
    if record.outbox is not None:
        item["outbox"] = {"S": record.outbox}
    if record.sequence is not None:
        item["sequence"] = {"S": record.sequence}
    if record.expires_at is not None:
        item["expires_at"] = {"N": str(record.expires_at)}
    return item


def record_of_item(item: dict[str, Any]) -> Record:
    """A record from a DynamoDB item (attribute-value form), as a stream delivers it too.

    Raises UnreadableError for a record that a newer version of the Governor has written.
    """
    version = int(item.get("v", {"N": "0"})["N"])
    key = Key(item["pk"]["S"], item["sk"]["S"])
    if version > RECORD_VERSION:
        raise UnreadableError(f"record {key.pk} {key.sk} has version {version}, newer than {RECORD_VERSION}")
    return Record(
        key=key,
        body=json.loads(item.get("body", {"S": "{}"})["S"]),
        outbox=item.get("outbox", {}).get("S"),
        sequence=item.get("sequence", {}).get("S"),
        expires_at=int(item["expires_at"]["N"]) if "expires_at" in item else None,
        version=version,
    )


def _chunks(values: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
