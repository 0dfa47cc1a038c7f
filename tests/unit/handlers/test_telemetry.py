"""Metrics are one line of the log in CloudWatch's embedded format; the log carries function and stage."""

from __future__ import annotations

import json

import pytest

from governor.shell.telemetry import NAMESPACE, Metric, Telemetry


def test_a_completed_run_is_one_line_with_its_metrics_and_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = Telemetry("guard_budget", "dev")
    telemetry.complete({Metric.STOP_FAILURES: 2, Metric.PAUSE_UNREADABLE: 0})
    telemetry.complete()
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    (declared,) = first["_aws"]["CloudWatchMetrics"]
    assert declared["Namespace"] == NAMESPACE == "GpuGovernor"
    assert [sorted(names) for names in declared["Dimensions"]] == [["service", "stage"]]
    assert {(metric["Name"], metric["Unit"]) for metric in declared["Metrics"]} == {
        ("StopFailures", "Count"), ("PauseUnreadable", "Count"), ("RunCompleted", "Count"),
    }  # fmt: skip
    assert (first["service"], first["stage"]) == ("guard_budget", "dev")
    assert (first["StopFailures"], first["PauseUnreadable"], first["RunCompleted"]) == ([2.0], [0.0], [1.0])
    assert [metric["Name"] for metric in second["_aws"]["CloudWatchMetrics"][0]["Metrics"]] == ["RunCompleted"]


def test_a_log_line_is_json_with_function_stage_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    Telemetry("some_function", "dev").logger.warning("looked", extra={"count": 3})
    line = json.loads(capsys.readouterr().out)
    assert (line["level"], line["message"], line["service"], line["stage"], line["count"]) == (
        "WARNING", "looked", "some_function", "dev", 3,
    )  # fmt: skip
