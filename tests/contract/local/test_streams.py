"""The table's stream to the function: filter, order, retries, the destination of what failed."""

from __future__ import annotations

import json

from tests.contract.local.conftest import Probe
from tests.contract.local.test_delivery import queue_bodies


def put(probe: Probe, key: str, count: int, outbox: str = "event") -> None:
    client = probe.aws.client("dynamodb")
    items = [
        {
            "Put": {
                "TableName": probe.outputs["TableName"],
                "Item": {"pk": {"S": key}, "sk": {"S": str(number)}, "outbox": {"S": outbox}},
            }
        }
        for number in range(count)
    ]
    client.transact_write_items(TransactItems=items)


def test_matching_records_arrive_in_order_and_others_do_not(probe: Probe) -> None:
    probe.aws.hold_deliveries(True)
    mark = probe.mark()
    put(probe, "a", 3)
    put(probe, "b", 2, outbox="run")
    put(probe, "c", 1, outbox="mail")
    probe.aws.settle()
    [batch] = probe.since(mark, "stream")
    keys = [record["dynamodb"]["NewImage"]["pk"]["S"] for record in batch.payload["Records"]]
    assert keys == ["a", "a", "a", "c"]
    assert {record["eventName"] for record in batch.payload["Records"]} == {"INSERT"}


def test_batch_that_keeps_failing_is_halved_and_ends_at_the_destination(probe: Probe) -> None:
    queue_bodies(probe, "DeadLettersUrl")
    probe.aws.hold_deliveries(True)
    mark = probe.mark()
    put(probe, "fail", 2)
    probe.aws.settle()
    records = probe.since(mark, "stream")
    assert [len(one.payload["Records"]) for one in records] == [2, 1, 1, 1, 1, 1, 1]
    assert [one.result for one in records].count("failed") == 2
    messages = [one["body"] for one in queue_bodies(probe, "DeadLettersUrl")]
    assert [one["requestContext"]["condition"] for one in messages] == ["RetryAttemptsExhausted"] * 2
    assert all(one["DDBStreamBatchInfo"]["batchSize"] == 1 for one in messages)


def test_only_records_from_the_reported_one_on_are_tried_again(probe: Probe) -> None:
    probe.aws.hold_deliveries(True)
    mark = probe.mark()
    put(probe, "partial", 3)
    probe.aws.settle()
    records = probe.since(mark, "stream")
    sizes = [len(one.payload["Records"]) for one in records]
    assert sizes[0] == 3
    assert sizes[1] == 2, json.dumps(sizes)
    assert [one.payload["Records"][0]["dynamodb"]["Keys"]["sk"]["S"] for one in records if one.result == "failed"] == [
        "1"
    ]
    assert records[-1].result == "done"
