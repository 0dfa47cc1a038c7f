"""Alarms on the Governor itself."""

from __future__ import annotations

import json

import pytest

from governor.shell.telemetry import Metric
from tests.infrastructure.conftest import Synthesis
from tests.infrastructure.templates import Resource, StageTemplates

FUNCTIONS = ("check_settings", "guard_budget", "send_messages", "seed_settings")
# A deploy runs the seeder, so silence is its normal state.
SILENT = {"seed_settings"}
DEAD_AFTER_PERIODS = {"check_settings": 2, "guard_budget": 3, "send_messages": 3}
SYMPTOMS = {
    "SettingsRejected": ("check_settings", "WarnTopicArn"),
    "SettingsUnreadable": ("check_settings", "PageTopicArn"),
    "PauseUnreadable": ("guard_budget", "PageTopicArn"),
    "StopFailures": ("guard_budget", "PageTopicArn"),
    "UnreadableBudgetNotice": ("guard_budget", "WarnTopicArn"),
}
STAGES = ("dev", "prod", "local", "china")


def topic(stage: StageTemplates, output: str) -> str:
    arn: str = stage.outputs["State"][output]["Value"]
    return arn


def own_dimensions(function: str, stage: str) -> list[dict[str, str]]:
    return [{"Name": "service", "Value": function}, {"Name": "stage", "Value": stage}]


def alarms_on(stage: StageTemplates, namespace: str, metric: str) -> list[Resource]:
    return [
        one
        for one in stage.of("AWS::CloudWatch::Alarm")
        if (one.properties["Namespace"], one.properties["MetricName"]) == (namespace, metric)
    ]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_that_does_not_run_pages_people_without_any_lambda(
    synthesis: Synthesis, stage: str, function: str
) -> None:
    templates = synthesis.templates[stage]
    found = [
        one.properties
        for one in alarms_on(templates, "GpuGovernor", "RunCompleted")
        if one.properties["Dimensions"] == own_dimensions(function, stage)
    ]
    if function in SILENT:
        assert found == []
        return
    (alarm,) = found
    assert alarm["TreatMissingData"] == "breaching"
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert (alarm["Statistic"], alarm["Period"]) == ("Sum", 300)
    assert alarm["EvaluationPeriods"] == alarm["DatapointsToAlarm"] == DEAD_AFTER_PERIODS[function]
    assert alarm["AlarmActions"] == [topic(templates, "PageTopicArn")]
    assert "ActionsEnabled" not in alarm


@pytest.mark.parametrize("metric", ["Errors", "Throttles"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_errors_and_throttles_of_each_function_warn(dev: StageTemplates, function: str, metric: str) -> None:
    (alarm,) = [
        one.properties
        for one in alarms_on(dev, "AWS/Lambda", metric)
        if one.properties["Dimensions"] == [{"Name": "FunctionName", "Value": dev.functions()[function].ref}]
    ]
    assert alarm["Threshold"] == 1
    assert alarm["Statistic"] == "Sum"
    assert alarm["AlarmActions"] == [topic(dev, "WarnTopicArn")]


@pytest.mark.parametrize("metric", SYMPTOMS)
def test_each_symptom_that_a_function_tells_has_an_alarm(dev: StageTemplates, metric: str) -> None:
    function, output = SYMPTOMS[metric]
    (alarm,) = alarms_on(dev, "GpuGovernor", metric)
    properties = alarm.properties
    assert properties["Dimensions"] == own_dimensions(function, "dev")
    assert (properties["Statistic"], properties["Threshold"]) == ("Sum", 1)
    assert properties["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert properties["TreatMissingData"] == "notBreaching"
    assert properties["AlarmActions"] == [topic(dev, output)]


def test_every_metric_that_functions_write_is_watched() -> None:
    assert {str(metric) for metric in Metric} == {"RunCompleted", *SYMPTOMS}


def test_messages_that_wait_in_the_outbox_page(dev: StageTemplates) -> None:
    (alarm,) = alarms_on(dev, "AWS/Lambda", "IteratorAge")
    properties = alarm.properties
    assert properties["Dimensions"] == [{"Name": "FunctionName", "Value": dev.functions()["send_messages"].ref}]
    assert properties["Statistic"] == "Maximum"
    assert properties["Threshold"] == 5 * 60 * 1000
    assert properties["AlarmActions"] == [topic(dev, "PageTopicArn")]


@pytest.mark.parametrize("stage", STAGES)
def test_every_alarm_tells_a_person_what_it_means(synthesis: Synthesis, stage: str) -> None:
    templates = synthesis.templates[stage]
    people = {topic(templates, "PageTopicArn"), topic(templates, "WarnTopicArn")}
    alarms = templates.of("AWS::CloudWatch::Alarm")
    assert len(alarms) == 24
    for alarm in alarms:
        assert set(alarm.properties["AlarmActions"]) <= people
        assert len(alarm.properties["AlarmDescription"]) > 40
        assert "Metrics" not in alarm.properties
        assert "OKActions" not in alarm.properties, "each new alarm would send a mail when it first becomes OK"


def test_the_dashboard_shows_every_alarm_and_how_to_pause(dev: StageTemplates) -> None:
    dashboard = dev.one("AWS::CloudWatch::Dashboard")
    assert dev.outputs["Watch"]["DashboardName"]["Value"] == dashboard.ref
    widgets = json.loads(dashboard.properties["DashboardBody"])["widgets"]
    text, status = widgets[0], widgets[1]
    assert "/governor/dev/control/pause" in text["properties"]["markdown"]
    shown = set(status["properties"]["alarms"])
    assert shown == {alarm.attribute("Arn") for alarm in dev.of("AWS::CloudWatch::Alarm")}
