"""Alarms on the virtual clock: dimensions, missing data, M of N, math, composites, and what they send."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from local.alarms import AlarmRule, State, decide_state
from local.metric_math import UnsupportedMathError, evaluate
from local.metrics import embedded_metrics
from tests.contract.local.conftest import Probe


def rule(treat_missing: str = "missing", to_alarm: int = 2) -> AlarmRule:
    return AlarmRule("GreaterThanThreshold", 10.0, 3, to_alarm, treat_missing)


@pytest.mark.parametrize(
    ("treat_missing", "datapoints", "expected"),
    [
        ("missing", [11.0, 9.0, 12.0], "ALARM"),
        ("missing", [11.0, 9.0, 9.0], "OK"),
        ("missing", [None, None, None], "INSUFFICIENT_DATA"),
        ("ignore", [None, None, None], "OK"),
        ("breaching", [None, None, 1.0], "ALARM"),
        ("notBreaching", [None, None, 11.0], "OK"),
    ],
)
def test_state_follows_m_of_n_and_missing_data(
    treat_missing: str, datapoints: list[float | None], expected: State
) -> None:
    assert decide_state(rule(treat_missing), datapoints, "OK") == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + b * 2", 7.0),
        ("FILL(missing, 4) - a", 3.0),
        ("missing + a", None),
        ("IF(a > b, 1, 2)", 2.0),
        ("MAX([a, b])", 3.0),
        ("SUM(METRICS())", 4.0),
        ("a / 0", None),
    ],
)
def test_math_on_datapoints(expression: str, expected: float | None) -> None:
    assert evaluate({"e": expression}, {"a": 1.0, "b": 3.0, "missing": None}, "e") == expected


def test_math_that_is_not_simulated_is_refused() -> None:
    with pytest.raises(UnsupportedMathError, match="ANOMALY_DETECTION_BAND"):
        evaluate({"e": "ANOMALY_DETECTION_BAND(a, 2)"}, {"a": 1.0}, "e")


def test_embedded_metrics_are_found_between_other_lines() -> None:
    metric = {
        "_aws": {"CloudWatchMetrics": [{"Namespace": "N", "Dimensions": [["d"]], "Metrics": [{"Name": "m"}]}]},
        "d": "x",
        "m": [1, 2],
    }
    log = f'plain line\n{json.dumps(metric)}\nhalf a {{ "_aws" line'
    assert [(namespace, datum["Value"]) for namespace, datum in embedded_metrics(log)] == [("N", 1.0), ("N", 2.0)]


def test_dead_man_alarm_pages_when_the_function_has_not_run_and_comes_back(probe: Probe) -> None:
    cloudwatch = probe.aws.client("cloudwatch")

    def dead_man() -> str:
        alarms = cloudwatch.describe_alarms(AlarmTypes=["MetricAlarm"])["MetricAlarms"]
        return next(str(one["StateValue"]) for one in alarms if one["AlarmName"].startswith("Probe-DeadMan"))

    def run() -> None:
        event = json.dumps({"wish": "metric"})
        probe.aws.client("lambda").invoke(FunctionName=probe.function, Payload=event)

    for _ in range(12):
        run()
        probe.aws.advance(timedelta(minutes=1))
    assert dead_man() == "OK"
    before = len(probe.aws.mails())
    probe.aws.advance(timedelta(minutes=12))
    assert dead_man() == "ALARM"
    mails = [one for one in probe.aws.mails()[before:] if one.to == "ops@example.com"]
    alarms = [json.loads(one.body)["AlarmName"].replace("-", "")[5:12] for one in mails]
    assert sorted(alarms) == ["DeadMan", "Trouble"]
    run()
    probe.aws.advance(timedelta(minutes=1))
    assert dead_man() == "OK"


def test_alarm_of_a_jump_is_not_raised(probe: Probe) -> None:
    before = len(probe.aws.mails())
    probe.aws.set_clock(probe.aws.now() + timedelta(days=20))
    probe.aws.advance(timedelta(minutes=3))
    assert [one for one in probe.aws.mails()[before:] if one.to == "ops@example.com"] == []


def test_state_change_is_an_event_on_the_bus(probe: Probe) -> None:
    events, sqs = probe.aws.client("events"), probe.aws.client("sqs")
    queue = sqs.create_queue(QueueName="alarm-events")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="alarms", EventPattern=json.dumps({"detail-type": ["CloudWatch Alarm State Change"]}))
    events.put_targets(Rule="alarms", Targets=[{"Id": "queue", "Arn": arn}])
    name = next(
        one["AlarmName"]
        for one in probe.aws.client("cloudwatch").describe_alarms()["MetricAlarms"]
        if one["AlarmName"].startswith("Probe-Failures")
    )
    probe.aws.client("lambda").invoke(FunctionName=probe.function, Payload=json.dumps({"wish": "fail"}))
    probe.aws.advance(timedelta(minutes=6))
    bodies = [
        json.loads(one["Body"])
        for one in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
    ]
    changes = [one["detail"] for one in bodies if one["detail"]["alarmName"] == name]
    assert changes[0]["state"]["value"] in ("OK", "ALARM")
    assert any(one["state"]["value"] == "ALARM" for one in changes)
