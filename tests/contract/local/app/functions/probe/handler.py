"""A function that writes down what woke it, and does what the event asks."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import boto3
from probe_layer import LAYER_WORD

TABLE = boto3.resource("dynamodb").Table(os.environ["TABLE_NAME"])
EC2 = boto3.client("ec2")


def handler(event: Any, context: Any) -> dict[str, Any]:
    print(json.dumps({"woken": event}))
    wish = event.get("wish") if isinstance(event, dict) else None
    if wish == "fail":
        raise RuntimeError("asked to fail")
    if wish == "environment":
        return {"environment": sorted(os.environ), "path": sys.path, "layer": LAYER_WORD}
    if wish == "metric":
        metric = {"Namespace": "Probe", "Dimensions": [["service"]], "Metrics": [{"Name": "Runs", "Unit": "Count"}]}
        print(json.dumps({"_aws": {"Timestamp": 0, "CloudWatchMetrics": [metric]}, "service": "probe", "Runs": 1}))
    if wish == "stop":
        EC2.stop_instances(InstanceIds=event["instances"])
    if wish == "read":
        TABLE.scan()
    if wish == "write":
        for number in range(event["count"]):
            TABLE.put_item(Item={"pk": event["key"], "sk": str(number), "outbox": event.get("outbox", "event")})
    if isinstance(event, dict) and "dynamodb" in event.get("Records", [{}])[0]:
        return read_stream(event["Records"])
    return {"layer": LAYER_WORD, "request_id": context.aws_request_id}


def read_stream(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Fails on key `fail`; on key `partial` reports the item with the sort key 1 as not done."""
    images = [(one["dynamodb"]["NewImage"], one["dynamodb"]["SequenceNumber"]) for one in records]
    if any(image["pk"]["S"] == "fail" for image, _ in images):
        raise RuntimeError("asked to fail")
    failed = [number for image, number in images if (image["pk"]["S"], image["sk"]["S"]) == ("partial", "1")]
    return {"batchItemFailures": [{"itemIdentifier": number} for number in failed]}
