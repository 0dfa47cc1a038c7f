"""A custom resource's function that answers CloudFormation itself."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import boto3

SSM = boto3.client("ssm")


def handler(event: dict[str, Any], context: Any) -> None:
    if event["RequestType"] == "Create":
        SSM.put_parameter(
            Name=event["ResourceProperties"]["Name"], Value="95", Type="String", AllowedPattern=r"^[0-9]{1,3}$"
        )
    answer = {
        "Status": "SUCCESS",
        "PhysicalResourceId": "seed",
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": {"Seeded": "yes"},
    }
    request = urllib.request.Request(event["ResponseURL"], json.dumps(answer).encode(), method="PUT")
    with urllib.request.urlopen(request, timeout=10) as response:
        response.read()
