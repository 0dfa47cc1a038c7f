"""The record that says that a stage was given back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

RETIRED = "retired"
"""Partition key and sort key of the record (see governor.shell.records)."""

LEDGER = "ledger"
"""Partition key of the stop ledger."""

ENDED = frozenset({"gone", "withheld", "restarted", "terminated", "restored", "failed"})
"""States of the ledger in which nothing is stopped, or nothing can come back."""

_KEY = {"pk": {"S": RETIRED}, "sk": {"S": RETIRED}}


class RetiredMarker:
    """The record `retired` of one state table, and whether the stage has stopped anything since."""

    def __init__(self, client: Any, table_name: str) -> None:
        self._client = client
        self._table = table_name

    def exists(self) -> bool:
        """True once `governor retire` has ended. Strongly consistent. Raises botocore's errors."""
        answer = self._client.get_item(TableName=self._table, Key=_KEY, ConsistentRead=True)
        return bool(answer.get("Item"))

    def stopped_since(self) -> tuple[str, ...]:
        """Instances that were stopped after the stage was given back, and that are not back, sorted.

        Raises botocore's errors.
        """
        marker = self._client.get_item(TableName=self._table, Key=_KEY, ConsistentRead=True).get("Item")
        given_back_at = "" if marker is None else str(json.loads(marker["body"]["S"]).get("at", ""))
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": LEDGER}},
            "ConsistentRead": True,
        }
        found: set[str] = set()
        while True:
            answer = self._client.query(**request)
            for item in answer.get("Items", ()):
                entry = json.loads(item["body"]["S"])
                late = _moment(entry["decided_at"]) > _moment(given_back_at)
                if late and entry["status"] not in ENDED:
                    found.add(str(entry["instance_id"]))
            if "LastEvaluatedKey" not in answer:
                return tuple(sorted(found))
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def remove(self) -> None:
        """Forget it; no error where there is none. Raises botocore's errors."""
        self._client.delete_item(TableName=self._table, Key=_KEY)


def _moment(text: str) -> datetime:
    """A moment of a record; the beginning of time for none."""
    return datetime.fromisoformat(text) if text else datetime.min.replace(tzinfo=UTC)
