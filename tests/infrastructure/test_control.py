"""The functions, what wakes them, and the budget."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from governor.domain.decisions import Decision
from governor.domain.settings import Mode
from governor.shell.environment import MODELS, GuardBudgetEnvironment, read_environment, variable_names
from governor.shell.records import DECISION_EVENT, decision_records
from governor.shell.seeding import seeds
from stacks.initial_settings import initial_settings
from stacks.sections import GPU_FAMILIES
from tests.infrastructure.conftest import Synthesis
from tests.infrastructure.iam import Answer, Request, ask
from tests.infrastructure.templates import ACCOUNT, Resource, StageTemplates

STAGES = ("dev", "prod", "local", "china", "frankfurt", "tokyo", "full")
EVERY_FUNCTION = {
    "ACCOUNT_ID",
    "GOVERNOR_REGIONS",
    "GOVERNOR_STAGE",
    "POWERTOOLS_LOG_LEVEL",
    "POWERTOOLS_METRICS_NAMESPACE",
    "POWERTOOLS_SERVICE_NAME",
    "TABLE_NAME",
    "TAG_KEYS",
}
ENVIRONMENT = {
    "check_settings": EVERY_FUNCTION,
    "guard_budget": EVERY_FUNCTION | {"BUDGET_FAMILIES", "BUDGET_NAME"},
    "confirm_actions": EVERY_FUNCTION | {"BUDGET_NAME"},
    "send_messages": EVERY_FUNCTION
    | {"BUS_NAME", "INFO_TOPIC_ARN", "PAGE_TOPIC_ARN", "SLACK_TOPIC_ARN", "WARN_TOPIC_ARN"},
    "seed_settings": EVERY_FUNCTION | {"INITIAL_SETTINGS"},
    "check_retired": EVERY_FUNCTION | {"FORCE_DESTROY"},
}
# Stages that list documents tell the guard of them; the others leave the variable out.
OPTIONAL = {"guard_budget": {"CHECKPOINT_DOCUMENTS"}}
WITH_DOCUMENTS = {"local", "full"}
FUNCTIONS = tuple(ENVIRONMENT)
# CloudFormation alone calls these, and it has no dead-letter queue for what it could not deliver.
WITHOUT_DELIVERY = {"seed_settings", "check_retired"}
OUTPUTS = {
    "ApproverPolicyArn",
    "BudgetFamilies",
    "BudgetName",
    "Regions",
    "TagKeys",
    "CheckRetiredFunctionName",
    "CheckSettingsFunctionName",
    "ConfirmActionsFunctionName",
    "ConfirmActionsRoleArn",
    "GuardBudgetFunctionName",
    "GuardBudgetRoleArn",
    "KeptOnDelete",
    "OperatorPolicyArn",
    "ReaderPolicyArn",
    "SeedSettingsFunctionName",
    "SendMessagesFunctionName",
}


def variables(stage: StageTemplates, function: str) -> dict[str, Any]:
    found: dict[str, Any] = stage.functions()[function].properties["Environment"]["Variables"]
    return found


def queue_alarms(stage: StageTemplates, queue: str) -> list[Resource]:
    name = stage.at(queue).attribute("QueueName")
    return [
        alarm
        for alarm in stage.of("AWS::CloudWatch::Alarm", "Control")
        if {"Name": "QueueName", "Value": name} in alarm.properties.get("Dimensions", [])
    ]


def invoke_config(stage: StageTemplates, function: str) -> dict[str, Any]:
    (config,) = [
        one.properties
        for one in stage.of("AWS::Lambda::EventInvokeConfig")
        if one.properties["FunctionName"] == stage.functions()[function].ref
    ]
    return dict(config)


def rule_target(stage: StageTemplates, detail_type: str) -> tuple[Resource, dict[str, Any]]:
    (rule,) = [
        one
        for one in stage.of("AWS::Events::Rule", "Control")
        if one.properties["EventPattern"]["detail-type"] == [detail_type]
    ]
    (target,) = rule.properties["Targets"]
    return rule, target


def schedule_of(stage: StageTemplates, function: str) -> dict[str, Any]:
    (schedule,) = [
        one.properties
        for one in stage.of("AWS::Scheduler::Schedule")
        if one.properties["Target"]["Arn"] == stage.functions()[function].attribute("Arn")
    ]
    return dict(schedule)


def test_control_says_what_cli_and_tests_read(dev: StageTemplates) -> None:
    assert set(dev.outputs["Control"]) == OUTPUTS
    for function in FUNCTIONS:
        pascal = function.replace("_", " ").title().replace(" ", "")
        assert dev.outputs["Control"][f"{pascal}FunctionName"]["Value"] == dev.functions()[function].ref
        if f"{pascal}RoleArn" in OUTPUTS:
            assert dev.outputs["Control"][f"{pascal}RoleArn"]["Value"] == dev.functions()[function].properties["Role"]


def test_a_stage_with_documents_and_a_brake_says_so(full: StageTemplates) -> None:
    said = full.outputs["Control"]
    assert set(said) == OUTPUTS | {"CheckpointDocuments", "NativeBrakeActionId"}
    assert said["CheckpointDocuments"]["Value"] == variables(full, "guard_budget")["CHECKPOINT_DOCUMENTS"]
    assert said["CheckpointDocuments"]["Value"] == "Governor-SaveCheckpoint,SaveModel"
    assert said["NativeBrakeActionId"]["Value"] == full.one("AWS::Budgets::BudgetsAction").attribute("ActionId")


def test_control_tells_the_cli_what_it_tells_the_functions(prod: StageTemplates) -> None:
    told, said = variables(prod, "guard_budget"), prod.outputs["Control"]
    assert said["BudgetName"]["Value"] == told["BUDGET_NAME"]
    assert said["BudgetFamilies"]["Value"] == told["BUDGET_FAMILIES"] == ",".join(GPU_FAMILIES)
    assert said["Regions"]["Value"] == told["GOVERNOR_REGIONS"]
    assert json.loads(said["TagKeys"]["Value"]) == json.loads(told["TAG_KEYS"])


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_told_exactly_the_names_of_the_contract(synthesis: Synthesis, stage: str, function: str) -> None:
    optional = OPTIONAL.get(function, set()) if stage in WITH_DOCUMENTS else set()
    assert set(variables(synthesis.templates[stage], function)) == ENVIRONMENT[function] | optional


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_reads_every_variable_that_it_is_told(function: str) -> None:
    read_by_powertools = {"POWERTOOLS_LOG_LEVEL", "POWERTOOLS_METRICS_NAMESPACE", "POWERTOOLS_SERVICE_NAME"}
    told = ENVIRONMENT[function] | OPTIONAL.get(function, set())
    assert variable_names(MODELS[function]) | read_by_powertools == told


@pytest.mark.parametrize(("stage", "documents"), [("dev", ()), ("full", ("Governor-SaveCheckpoint", "SaveModel"))])
def test_the_guard_understands_the_documents_that_it_is_told(
    synthesis: Synthesis, stage: str, documents: tuple[str, ...]
) -> None:
    told = variables(synthesis.templates[stage], "guard_budget")
    assert read_environment(GuardBudgetEnvironment, told).checkpoint_documents == documents


def test_the_values_lead_to_the_resources_of_the_stage(prod: StageTemplates) -> None:
    guard = variables(prod, "guard_budget")
    assert guard["GOVERNOR_STAGE"] == "prod"
    assert guard["GOVERNOR_REGIONS"] == "us-east-1,us-west-2"
    assert guard["ACCOUNT_ID"] == ACCOUNT
    assert guard["TABLE_NAME"] == prod.one("AWS::DynamoDB::Table").ref
    assert guard["BUDGET_NAME"] == prod.one("AWS::Budgets::Budget").ref
    assert json.loads(guard["TAG_KEYS"]) == {
        "managed": "governor:managed",
        "criticality": "governor:criticality",
        "project": "governor:project",
        "pool": "governor:pool",
        "keep": "governor:keep",
        "checkpoint": "governor:checkpoint",
    }
    assert variables(prod, "confirm_actions")["BUDGET_NAME"] == guard["BUDGET_NAME"]
    sender = variables(prod, "send_messages")
    assert sender["BUS_NAME"] == prod.one("AWS::Events::EventBus").ref
    for severity in ("Page", "Warn", "Info", "Slack"):
        assert sender[f"{severity.upper()}_TOPIC_ARN"] == prod.outputs["State"][f"{severity}TopicArn"]["Value"]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("prod", {"budget/mode": "observe", "budget/limit-usd": "10000"}),
        (
            "local",
            {
                "budget/mode": "enforce",
                "budget/limit-usd": "1000",
                "budget/grace-minutes": "0",
                "budget/confirm-minutes": "0",
            },
        ),
    ],
)
def test_the_seeder_starts_with_the_values_of_the_stage(
    synthesis: Synthesis, stage: str, expected: dict[str, str]
) -> None:
    assert json.loads(variables(synthesis.templates[stage], "seed_settings")["INITIAL_SETTINGS"]) == expected


def test_the_seeder_takes_the_initial_values_of_every_stage(synthesis: Synthesis) -> None:
    for stage in synthesis.stages.values():
        assert {seed.name for seed in seeds(initial_settings(stage))} > set(initial_settings(stage))


@pytest.mark.parametrize("stage", ["dev", "prod", "china"])
def test_only_the_stage_local_enforces_from_the_first_deploy(synthesis: Synthesis, stage: str) -> None:
    values = json.loads(variables(synthesis.templates[stage], "seed_settings")["INITIAL_SETTINGS"])
    assert {value for name, value in values.items() if name.endswith("/mode")} == {"observe"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_has_both_layers_and_no_tracing(dev: StageTemplates, function: str) -> None:
    properties = dev.functions()[function].properties
    assert properties["Handler"] == "handler.handler"
    assert len(properties["Layers"]) == 2
    assert {dev.at(layer).type for layer in properties["Layers"]} == {"AWS::Lambda::LayerVersion"}
    assert "TracingConfig" not in properties


@pytest.mark.parametrize("stage", ["dev", "prod", "local"])
def test_runtime_and_architecture_are_values_of_the_stage(synthesis: Synthesis, stage: str) -> None:
    config = synthesis.stages[stage]
    for function in synthesis.templates[stage].functions().values():
        assert function.properties["Runtime"] == config.runtime
        assert function.properties["Architectures"] == [config.architecture]


@pytest.mark.parametrize(("stage", "reserved"), [("dev", None), ("local", None), ("prod", 1)])
def test_concurrency_is_reserved_only_where_the_stage_says_so(
    synthesis: Synthesis, stage: str, reserved: int | None
) -> None:
    functions = synthesis.templates[stage].functions().values()
    assert {one.properties.get("ReservedConcurrentExecutions") for one in functions} == {reserved}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("stage", "days"), [("dev", 30), ("prod", 365), ("local", 1)])
def test_a_function_has_a_log_group_of_its_own_that_forgets(
    synthesis: Synthesis, stage: str, days: int, function: str
) -> None:
    templates = synthesis.templates[stage]
    log_group = templates.at(templates.functions()[function].properties["LoggingConfig"]["LogGroup"])
    assert log_group.type == "AWS::Logs::LogGroup"
    assert log_group.properties["RetentionInDays"] == days
    (writes,) = [
        one
        for one in templates.role_documents(function)[0]["Statement"]
        if one["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    ]
    assert writes["Resource"] == log_group.attribute("Arn")


# Both kinds of dead-letter queue ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_event_that_a_function_cannot_handle_is_kept_and_raises_an_alarm(
    synthesis: Synthesis, stage: str, function: str
) -> None:
    templates = synthesis.templates[stage]
    config = invoke_config(templates, function)
    assert config["MaximumEventAgeInSeconds"] == 300
    assert config["MaximumRetryAttempts"] == 2
    queue = config["DestinationConfig"]["OnFailure"]["Destination"]
    assert templates.at(queue).type == "AWS::SQS::Queue"
    assert_alarm_on(templates, queue, function)


def delivery_queues(stage: StageTemplates, function: str) -> set[str]:
    """Where what could not be delivered to a function is kept, over everything that wakes it."""
    resource = stage.functions()[function]
    queues: list[str] = []
    for rule in stage.of("AWS::Events::Rule", "Control"):
        for target in rule.properties["Targets"]:
            if target["Arn"] == resource.attribute("Arn"):
                queues.append(target["DeadLetterConfig"]["Arn"])
    for schedule in stage.of("AWS::Scheduler::Schedule"):
        if schedule.properties["Target"]["Arn"] == resource.attribute("Arn"):
            queues.append(schedule.properties["Target"]["DeadLetterConfig"]["Arn"])
    for subscription in stage.of("AWS::SNS::Subscription"):
        if subscription.properties["Endpoint"] == resource.attribute("Arn"):
            queues.append(subscription.properties["RedrivePolicy"]["deadLetterTargetArn"])
    for mapping in stage.of("AWS::Lambda::EventSourceMapping"):
        if mapping.properties["FunctionName"] == resource.ref:
            queues.append(mapping.properties["DestinationConfig"]["OnFailure"]["Destination"])
    return set(queues)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_event_that_does_not_reach_a_function_is_kept_and_raises_an_alarm(
    synthesis: Synthesis, stage: str, function: str
) -> None:
    templates = synthesis.templates[stage]
    queues = delivery_queues(templates, function)
    if function in WITHOUT_DELIVERY:
        assert queues == set()
        return
    (queue,) = queues
    assert queue != invoke_config(templates, function)["DestinationConfig"]["OnFailure"]["Destination"]
    assert_alarm_on(templates, queue, function)


def assert_alarm_on(stage: StageTemplates, queue: str, function: str) -> None:
    (alarm,) = queue_alarms(stage, queue)
    properties = alarm.properties
    assert properties["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert properties["Statistic"] == "Maximum"
    assert properties["Threshold"] == 1
    assert properties["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    severity = "Page" if function == "send_messages" else "Warn"
    assert properties["AlarmActions"] == [stage.outputs["State"][f"{severity}TopicArn"]["Value"]]


def test_no_queue_lies_around_that_nothing_writes_to(dev: StageTemplates) -> None:
    used = {queue for function in FUNCTIONS for queue in delivery_queues(dev, function)}
    used |= {invoke_config(dev, function)["DestinationConfig"]["OnFailure"]["Destination"] for function in FUNCTIONS}
    assert used == {queue.attribute("Arn") for queue in dev.of("AWS::SQS::Queue")}


def test_events_and_topics_may_write_to_the_queues_that_they_are_told(dev: StageTemplates) -> None:
    allowed = {
        (statement["Principal"]["Service"], statement["Resource"], statement["Condition"]["ArnEquals"]["aws:SourceArn"])
        for policy in dev.of("AWS::SQS::QueuePolicy")
        for statement in policy.properties["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    }
    parameter_changed, parameter_target = rule_target(dev, "Parameter Store Change")
    settings_changed, settings_target = rule_target(dev, "Settings Changed")
    assert allowed == {
        *(
            ("events.amazonaws.com", target["DeadLetterConfig"]["Arn"], rule.attribute("Arn"))
            for rule, target in (rule_target(dev, one) for one in CONFIRM_EVENTS)
        ),
        (
            "events.amazonaws.com",
            parameter_target["DeadLetterConfig"]["Arn"],
            parameter_changed.attribute("Arn"),
        ),
        (
            "events.amazonaws.com",
            settings_target["DeadLetterConfig"]["Arn"],
            settings_changed.attribute("Arn"),
        ),
        (
            "sns.amazonaws.com",
            settings_target["DeadLetterConfig"]["Arn"],
            dev.outputs["State"]["BudgetTopicArn"]["Value"],
        ),
    }


# What wakes the functions -------------------------------------------------------------------------------------------


def test_a_parameter_of_this_stage_wakes_check_settings(dev: StageTemplates) -> None:
    rule, target = rule_target(dev, "Parameter Store Change")
    assert target["Arn"] == dev.functions()["check_settings"].attribute("Arn")
    assert rule.properties["EventPattern"] == {
        "source": ["aws.ssm"],
        "detail-type": ["Parameter Store Change"],
        "detail": {"name": [{"prefix": "/governor/dev/"}]},
    }
    assert "EventBusName" not in rule.properties


def test_new_settings_wake_the_guard_over_the_bus_of_the_project(dev: StageTemplates) -> None:
    rule, target = rule_target(dev, "Settings Changed")
    assert target["Arn"] == dev.functions()["guard_budget"].attribute("Arn")
    assert rule.properties["EventPattern"] == {"source": ["governor"], "detail-type": ["Settings Changed"]}
    assert rule.properties["EventBusName"] == dev.one("AWS::Events::EventBus").ref


CONFIRM_EVENTS = ("EC2 Instance State-change Notification", "Governor Decision")


def test_a_new_state_of_an_instance_wakes_confirm_actions(dev: StageTemplates) -> None:
    rule, target = rule_target(dev, "EC2 Instance State-change Notification")
    assert target["Arn"] == dev.functions()["confirm_actions"].attribute("Arn")
    assert rule.properties["EventPattern"] == {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": ["running", "stopped", "terminated", "shutting-down"]},
    }
    assert "EventBusName" not in rule.properties


def test_a_decision_wakes_confirm_actions_only_where_it_restores_something(dev: StageTemplates) -> None:
    rule, target = rule_target(dev, "Governor Decision")
    assert target["Arn"] == dev.functions()["confirm_actions"].attribute("Arn")
    assert rule.properties["EventPattern"] == {
        "source": ["governor"],
        "detail-type": ["Governor Decision"],
        "detail": {"restore_count": [{"numeric": [">", 0]}]},
    }
    assert rule.properties["EventBusName"] == dev.one("AWS::Events::EventBus").ref


def test_the_event_of_a_decision_has_what_the_rule_looks_at() -> None:
    decision = Decision("guard_budget", datetime(2026, 11, 3, tzinfo=UTC), 1, Mode.ENFORCE, "ok", ())
    (_, event) = decision_records(decision, "dev")
    assert (event.body["detail_type"], event.body["detail"]["restore_count"]) == (DECISION_EVENT, 0)
    assert DECISION_EVENT in CONFIRM_EVENTS


@pytest.mark.parametrize("detail_type", ["Parameter Store Change", "Settings Changed", *CONFIRM_EVENTS])
def test_a_rule_gives_up_on_old_events(dev: StageTemplates, detail_type: str) -> None:
    _, target = rule_target(dev, detail_type)
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 300, "MaximumRetryAttempts": 2}


def test_only_the_guard_listens_to_the_budget_topic(dev: StageTemplates) -> None:
    (subscription,) = dev.of("AWS::SNS::Subscription")
    assert subscription.properties["Protocol"] == "lambda"
    assert subscription.properties["Endpoint"] == dev.functions()["guard_budget"].attribute("Arn")
    assert subscription.properties["TopicArn"] == dev.outputs["State"]["BudgetTopicArn"]["Value"]


def test_who_wakes_a_function_may_invoke_it_and_nobody_else(dev: StageTemplates) -> None:
    parameter_changed, _ = rule_target(dev, "Parameter Store Change")
    settings_changed, _ = rule_target(dev, "Settings Changed")
    functions = dev.functions()
    confirm = functions["confirm_actions"].attribute("Arn")
    found = {
        (one.properties["FunctionName"], one.properties["Principal"], one.properties["SourceArn"])
        for one in dev.of("AWS::Lambda::Permission")
    }
    assert found == {
        *((confirm, "events.amazonaws.com", rule_target(dev, one)[0].attribute("Arn")) for one in CONFIRM_EVENTS),
        (
            functions["check_settings"].attribute("Arn"),
            "events.amazonaws.com",
            parameter_changed.attribute("Arn"),
        ),
        (
            functions["guard_budget"].attribute("Arn"),
            "events.amazonaws.com",
            settings_changed.attribute("Arn"),
        ),
        (
            functions["guard_budget"].attribute("Arn"),
            "sns.amazonaws.com",
            dev.outputs["State"]["BudgetTopicArn"]["Value"],
        ),
    }


@pytest.mark.parametrize(
    ("function", "expression"),
    [
        ("check_settings", "rate(1 minute)"),
        ("guard_budget", "rate(5 minutes)"),
        ("confirm_actions", "rate(5 minutes)"),
    ],
)
def test_a_schedule_makes_certain_what_events_only_make_sooner(
    dev: StageTemplates, function: str, expression: str
) -> None:
    schedule = schedule_of(dev, function)
    assert schedule["ScheduleExpression"] == expression
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["Target"]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 300, "MaximumRetryAttempts": 2}
    assert json.loads(schedule["Target"]["Input"]) == {
        "source": "governor.schedule",
        "time": "<aws.scheduler.scheduled-time>",
    }


@pytest.mark.parametrize("function", ["check_settings", "guard_budget", "confirm_actions"])
def test_a_schedule_invokes_its_function_and_only_schedules_of_this_stage_may_do_so(
    dev: StageTemplates, function: str
) -> None:
    schedule = schedule_of(dev, function)
    role = dev.at(schedule["Target"]["RoleArn"])
    (policy,) = role.properties["Policies"]
    granted = {one["Action"]: one["Resource"] for one in policy["PolicyDocument"]["Statement"]}
    assert granted == {
        "lambda:InvokeFunction": dev.functions()[function].attribute("Arn"),
        "sqs:SendMessage": schedule["Target"]["DeadLetterConfig"]["Arn"],
    }
    (trust,) = role.properties["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {
        "aws:SourceAccount": ACCOUNT,
        "aws:SourceArn": f"arn:aws:scheduler:us-east-1:{ACCOUNT}:schedule-group/{schedule['GroupName']}",
    }


def test_the_outbox_reaches_send_messages_in_order_and_bad_records_do_not_block_it(dev: StageTemplates) -> None:
    properties = dict(dev.one("AWS::Lambda::EventSourceMapping").properties)
    filters = [json.loads(one["Pattern"]) for one in properties.pop("FilterCriteria")["Filters"]]
    assert filters == [
        {"eventName": ["INSERT"], "dynamodb": {"NewImage": {"outbox": {"S": ["mail", "slack", "event"]}}}},
        {"dynamodb": {"NewImage": {"outbox": {"S": ["run"]}}}},
    ]
    properties.pop("DestinationConfig")
    assert properties == {
        "FunctionName": dev.functions()["send_messages"].ref,
        "EventSourceArn": dev.one("AWS::DynamoDB::Table").attribute("StreamArn"),
        "StartingPosition": "TRIM_HORIZON",
        "BatchSize": 10,
        "BisectBatchOnFunctionError": True,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "MaximumRetryAttempts": -1,
        "MaximumRecordAgeInSeconds": 3600,
    }


def test_send_messages_may_keep_failures_of_the_stream(dev: StageTemplates) -> None:
    (keeps,) = [
        one for one in dev.role_documents("send_messages")[0]["Statement"] if one["Action"] == "sqs:SendMessage"
    ]
    failed = invoke_config(dev, "send_messages")["DestinationConfig"]["OnFailure"]["Destination"]
    assert set(keeps["Resource"]) == {failed, *delivery_queues(dev, "send_messages")}


# The seeder ---------------------------------------------------------------------------------------------------------


def test_the_seeder_runs_again_when_schema_or_initial_values_change(synthesis: Synthesis) -> None:
    properties = {
        stage: dict(synthesis.templates[stage].one("Custom::SettingsSeed").properties) for stage in ("dev", "prod")
    }
    assert set(properties["dev"]) == {"ServiceToken", "ServiceTimeout", "SchemaHash", "InitialSettingsHash"}
    assert properties["dev"]["SchemaHash"] == properties["prod"]["SchemaHash"]
    assert properties["dev"]["InitialSettingsHash"] != properties["prod"]["InitialSettingsHash"]


def test_a_seeder_that_never_answers_does_not_block_a_deploy_for_an_hour(dev: StageTemplates) -> None:
    assert dev.one("Custom::SettingsSeed").properties["ServiceTimeout"] == "600"


def test_nothing_wakes_before_the_parameters_exist(dev: StageTemplates) -> None:
    seed = dev.one("Custom::SettingsSeed").logical_id
    woken_by = (
        *dev.of("AWS::Events::Rule", "Control"),
        *dev.of("AWS::Scheduler::Schedule"),
        *dev.of("AWS::SNS::Subscription"),
    )
    assert len(woken_by) == 8
    for one in woken_by:
        assert seed in one.attributes["DependsOn"]


# The budget ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_the_budget_has_no_name_since_a_fixed_one_breaks_updates(synthesis: Synthesis, stage: str) -> None:
    assert "BudgetName" not in synthesis.templates[stage].one("AWS::Budgets::Budget").properties["Budget"]


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_in_another_stack_depends_on_the_name_of_the_budget(synthesis: Synthesis, stage: str) -> None:
    templates = synthesis.templates[stage]
    budget = templates.one("AWS::Budgets::Budget")
    for name, text in templates.raw.items():
        if name != budget.stack:
            assert budget.logical_id not in text


def test_the_budget_is_a_ladder_of_actual_steps_and_one_forecast_to_the_topic_alone(synthesis: Synthesis) -> None:
    for stage, templates in synthesis.templates.items():
        config = synthesis.stages[stage].budget
        notices = templates.one("AWS::Budgets::Budget").properties["NotificationsWithSubscribers"]
        steps = [(one["Notification"]["NotificationType"], one["Notification"]["Threshold"]) for one in notices]
        assert steps == [
            *(("ACTUAL", percent) for percent in config.threshold_percents),
            ("FORECASTED", config.forecast_percent),
        ]
        topic = templates.outputs["State"]["BudgetTopicArn"]["Value"]
        for one in notices:
            assert one["Notification"]["ComparisonOperator"] == "GREATER_THAN"
            assert one["Notification"]["ThresholdType"] == "PERCENTAGE"
            assert one["Subscribers"] == [{"SubscriptionType": "SNS", "Address": topic}]


def test_the_budget_counts_the_same_as_the_meter(prod: StageTemplates) -> None:
    budget = prod.one("AWS::Budgets::Budget").properties["Budget"]
    assert budget == {
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": 10000, "Unit": "USD"},
        "Metrics": ["AmortizedCost"],
        "FilterExpression": {
            "And": [
                {"Dimensions": {"Key": "INSTANCE_TYPE_FAMILY", "Values": list(GPU_FAMILIES)}},
                {"Dimensions": {"Key": "LINKED_ACCOUNT", "Values": [ACCOUNT]}},
                {"Not": {"Dimensions": {"Key": "RECORD_TYPE", "Values": ["Credit", "Refund"]}}},
            ]
        },
    }


# The native brake ---------------------------------------------------------------------------------------------------


def launch(instance_type: str) -> Request:
    arn = f"arn:aws:ec2:eu-west-1:{ACCOUNT}:instance/*"
    return Request("ec2:RunInstances", arn, {"ec2:InstanceType": instance_type})


@pytest.mark.parametrize("stage", ["dev", "prod", "local"])
def test_a_stage_that_wants_no_brake_has_none(synthesis: Synthesis, stage: str) -> None:
    templates = synthesis.templates[stage]
    assert templates.of("AWS::Budgets::BudgetsAction") == []
    assert len(templates.of("AWS::IAM::ManagedPolicy")) == 3
    assert all("iam:AttachRolePolicy" not in text for text in templates.raw.values())


def test_the_brake_is_put_on_by_aws_alone_at_the_percent_of_the_stage(full: StageTemplates) -> None:
    action = full.one("AWS::Budgets::BudgetsAction")
    assert dict(action.properties) == {
        "ActionThreshold": {"Type": "PERCENTAGE", "Value": 110},
        "ActionType": "APPLY_IAM_POLICY",
        "ApprovalModel": "AUTOMATIC",
        "BudgetName": full.one("AWS::Budgets::Budget").ref,
        "Definition": {
            "IamActionDefinition": {"PolicyArn": brake_policy(full).ref, "Roles": ["TrainingLauncher", "notebooks"]}
        },
        "ExecutionRoleArn": brake_role(full).attribute("Arn"),
        "NotificationType": "ACTUAL",
        "Subscribers": [{"Address": full.outputs["State"]["PageTopicArn"]["Value"], "Type": "SNS"}],
    }


def brake_policy(stage: StageTemplates) -> Resource:
    people = {output["Value"] for key, output in stage.outputs["Control"].items() if key.endswith("PolicyArn")}
    (policy,) = [one for one in stage.of("AWS::IAM::ManagedPolicy") if one.ref not in people]
    return policy


def brake_role(stage: StageTemplates) -> Resource:
    return stage.at(stage.one("AWS::Budgets::BudgetsAction").properties["ExecutionRoleArn"])


@pytest.mark.parametrize(
    ("instance_type", "answer"),
    [
        ("p4d.24xlarge", Answer.DENIED),
        ("g4dn.xlarge", Answer.DENIED),
        ("p4de.24xlarge", Answer.ALLOWED),
        ("m5.large", Answer.ALLOWED),
    ],
)
def test_the_brake_denies_new_gpu_instances_and_nothing_else(
    full: StageTemplates, instance_type: str, answer: Answer
) -> None:
    document = brake_policy(full).properties["PolicyDocument"]
    allow_all = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    assert ask([document, allow_all], launch(instance_type)) is answer
    assert ask([document, allow_all], Request("ec2:StartInstances", "arn:aws:ec2:::instance/i-1")) is Answer.ALLOWED


def test_aws_budgets_may_attach_that_policy_to_those_roles_and_nothing_else(full: StageTemplates) -> None:
    role = brake_role(full)
    (policy,) = role.properties["Policies"]
    document = policy["PolicyDocument"]
    policy_arn = brake_policy(full).ref
    for action in ("iam:AttachRolePolicy", "iam:DetachRolePolicy"):
        for name in ("TrainingLauncher", "notebooks"):
            arn = f"arn:aws:iam::{ACCOUNT}:role/{name}"
            assert ask([document], Request(action, arn, {"iam:PolicyARN": policy_arn})) is Answer.ALLOWED
            admin = {"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"}
            assert ask([document], Request(action, arn, admin)) is Answer.NOT_ALLOWED
        other = Request(action, f"arn:aws:iam::{ACCOUNT}:role/admin", {"iam:PolicyARN": policy_arn})
        assert ask([document], other) is Answer.NOT_ALLOWED
    (trust,) = role.properties["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "budgets.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {"aws:SourceAccount": ACCOUNT},
        "ArnLike": {"aws:SourceArn": f"arn:aws:budgets::{ACCOUNT}:budget/*"},
    }


def test_the_brake_is_made_once_its_topic_takes_messages_of_budgets(full: StageTemplates) -> None:
    page = full.outputs["State"]["PageTopicArn"]["Value"]
    (policy,) = [one for one in full.of("AWS::SNS::TopicPolicy") if page in one.properties["Topics"]]
    assert policy.logical_id in full.one("AWS::Budgets::BudgetsAction").attributes["DependsOn"]
