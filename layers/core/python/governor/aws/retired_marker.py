"""The record that says that a stage was given back."""

from __future__ import annotations

from typing import Any

RETIRED = "retired"
"""Partition key and sort key of the record (see governor.shell.records)."""

_KEY = {"pk": {"S": RETIRED}, "sk": {"S": RETIRED}}


class RetiredMarker:
    """The record `retired` of one state table. Reads and deletes nothing else."""

    def __init__(self, client: Any, table_name: str) -> None:
        self._client = client
        self._table = table_name

    def exists(self) -> bool:
        """True once `governor retire` has ended. Strongly consistent. Raises botocore's errors."""
        answer = self._client.get_item(TableName=self._table, Key=_KEY, ConsistentRead=True)
        return bool(answer.get("Item"))

    def remove(self) -> None:
        """Forget it; no error where there is none. Raises botocore's errors."""
        self._client.delete_item(TableName=self._table, Key=_KEY)
