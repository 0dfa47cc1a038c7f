"""Alarms on the Governor itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aws_cdk import App

from governor.shell.telemetry import Metric
from stacks.artifacts import Artifacts
from stacks.config import load_stage, read_context
from tests.infrastructure.conftest import Synthesis, add_stage
from tests.infrastructure.templates import Resource, StageTemplates

FUNCTIONS = ("check_settings", "guard_budget", "confirm_actions", "send_messages", "seed_settings", "check_retired")
# Deploys alone run these, so silence is their normal state.
SILENT = {"seed_settings", "check_retired"}
DEAD_AFTER_PERIODS = {"check_settings": 2, "guard_budget": 3, "confirm_actions": 3, "send_messages": 3}
SYMPTOMS = {
    "SettingsRejected": ("check_settings", "WarnTopicArn"),
    "SettingsUnreadable": ("check_settings", "PageTopicArn"),
    "PauseUnreadable": ("guard_budget", "PageTopicArn"),
    "StopFailures": ("guard_budget", "PageTopicArn"),
    "StartFailures": ("confirm_actions", "WarnTopicArn"),
    "StartsGivenUp": ("confirm_actions", "PageTopicArn"),
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
    assert len(alarms) == 34
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


# The check before a deletion -----------------------------------------------------------------------------------------


def test_the_check_waits_for_everything_in_its_stack_so_that_it_goes_before_everything(dev: StageTemplates) -> None:
    check = dev.one("Custom::RetiredCheck", "Watch")
    others = {one.logical_id for one in dev.resources if one.stack == "Watch"} - {check.logical_id}
    assert len(others) > 20
    assert set(check.attributes["DependsOn"]) == others


def test_the_function_of_the_check_lies_in_another_stack_that_outlives_a_refusal(dev: StageTemplates) -> None:
    check = dev.one("Custom::RetiredCheck")
    function = dev.functions()["check_retired"]
    assert function.stack == "Control"
    assert check.properties == {
        "ServiceToken": function.attribute("Arn"),
        "ServiceTimeout": "600",
    }
    assert function.properties["Environment"]["Variables"]["FORCE_DESTROY"] == "false"


@pytest.mark.parametrize("stage", ["prod", "tokyo", "dev"])
def test_the_stack_of_the_check_is_deployed_last_and_deleted_first(synthesis: Synthesis, stage: str) -> None:
    prefix = synthesis.stages[stage].stack_prefix
    others = {f"{prefix}-{name}" for name in synthesis.templates[stage].stacks - {"Watch"}}
    assert synthesis.waits_for[f"{prefix}-Watch"] == others
    for other in others:
        assert f"{prefix}-Watch" not in synthesis.waits_for[other]


def test_a_deploy_with_force_destroy_lets_the_stage_go(tmp_path: Path, artifacts: Artifacts) -> None:
    app = App(context=read_context(), outdir=str(tmp_path))
    add_stage(app, load_stage("dev"), artifacts, force_destroy=True)
    app.synth()
    forced = StageTemplates(tmp_path, "Governor-dev").functions()["check_retired"]
    assert forced.properties["Environment"]["Variables"]["FORCE_DESTROY"] == "true"
