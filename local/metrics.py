"""Metrics that functions write into their log in CloudWatch's embedded form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from local.emulator import Emulator
from local.patching import relied_on, replace
from local.runtime_api import Outcome


def embedded_metrics(log: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each (namespace, datum) of a log text; lines that are no embedded metric are skipped."""
    for line in log.splitlines():
        start = line.find("{")
        if start < 0 or '"_aws"' not in line:
            continue
        try:
            record = json.loads(line[start:])
        except json.JSONDecodeError:
            continue  # text that only looks like a metric is just a log line, as on CloudWatch
        yield from _data_of(record)


def _data_of(record: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for directive in record.get("_aws", {}).get("CloudWatchMetrics", []):
        for names in directive.get("Dimensions") or [[]]:
            dimensions = [{"Name": name, "Value": str(record[name])} for name in names]
            for metric in directive["Metrics"]:
                value = record[metric["Name"]]
                values = value if isinstance(value, list) else [value]
                for one in values:
                    yield (
                        directive["Namespace"],
                        {
                            "MetricName": metric["Name"],
                            "Dimensions": dimensions,
                            "Value": float(one),
                            "Unit": metric.get("Unit", "None"),
                        },
                    )


class FunctionMetrics:
    """Puts what CloudWatch knows of a run: AWS/Lambda's own figures, and the embedded metrics of its log."""

    def __init__(self, emulator: Emulator) -> None:
        self._put = relied_on(emulator.cloudwatch, "_put_metric_data", ("params", "cbor_data", "is_cbor", "is_json"))
        # The emulator counts only direct invokes; every run is counted here instead.
        replace(emulator.lambdas, "_emit_lambda_metrics", ("function_name", "duration_ms", "error", "throttle"), _skip)

    def publish(self, function_name: str, outcome: Outcome) -> None:
        """Put the metrics of one run at the current virtual time."""
        by_namespace: dict[str, list[dict[str, Any]]] = {"AWS/Lambda": _platform_metrics(function_name, outcome)}
        for namespace, datum in embedded_metrics(outcome.log):
            by_namespace.setdefault(namespace, []).append(datum)
        for namespace, data in by_namespace.items():
            status, _, body = self._put({}, {"Namespace": namespace, "MetricData": data}, False, True)
            if status != 200:
                raise RuntimeError(f"CloudWatch refused metrics of {namespace}: {body!r}")


def _platform_metrics(function_name: str, outcome: Outcome) -> list[dict[str, Any]]:
    values = {"Invocations": 1.0, "Errors": 1.0 if outcome.failed else 0.0, "Throttles": 0.0}
    dimensions = [{"Name": "FunctionName", "Value": function_name}]
    return [
        {"MetricName": name, "Dimensions": dimensions, "Value": value, "Unit": "Count"}
        for name, value in values.items()
    ]


def _skip(function_name: str, duration_ms: float, error: bool, throttle: bool = False) -> None:
    """Take the place of the emulator's own count."""
