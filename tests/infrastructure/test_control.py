"""The functions, what wakes them, and the budget."""

from __future__ import annotations

import json
from typing import Any

import pytest

from governor.shell.environment import MODELS, variable_names
from governor.shell.seeding import seeds
from stacks.config import GPU_FAMILIES
from stacks.initial_settings import initial_settings
from tests.infrastructure.conftest import Synthesis
from tests.infrastructure.templates import ACCOUNT, Resource, StageTemplates

STAGES = ("dev", "prod", "local", "china", "frankfurt", "tokyo")
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
    "send_messages": EVERY_FUNCTION
    | {"BUS_NAME", "INFO_TOPIC_ARN", "PAGE_TOPIC_ARN", "SLACK_TOPIC_ARN", "WARN_TOPIC_ARN"},
    "seed_settings": EVERY_FUNCTION | {"INITIAL_SETTINGS"},
}
FUNCTIONS = tuple(ENVIRONMENT)
# CloudFormation alone calls the seeder, and it has no dead-letter queue for what it could not deliver.
WITHOUT_DELIVERY = {"seed_settings"}
OUTPUTS = {
    "ApproverPolicyArn",
    "BudgetFamilies",
    "BudgetName",
    "Regions",
    "TagKeys",
    "CheckSettingsFunctionName",
    "GuardBudgetFunctionName",
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


def test_control_tells_the_cli_what_it_tells_the_functions(prod: StageTemplates) -> None:
    told, said = variables(prod, "guard_budget"), prod.outputs["Control"]
    assert said["BudgetName"]["Value"] == told["BUDGET_NAME"]
    assert said["BudgetFamilies"]["Value"] == told["BUDGET_FAMILIES"] == ",".join(GPU_FAMILIES)
    assert said["Regions"]["Value"] == told["GOVERNOR_REGIONS"]
    assert json.loads(said["TagKeys"]["Value"]) == json.loads(told["TAG_KEYS"])


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_told_exactly_the_names_of_the_contract(synthesis: Synthesis, stage: str, function: str) -> None:
    assert set(variables(synthesis.templates[stage], function)) == ENVIRONMENT[function]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_reads_every_variable_that_it_is_told(function: str) -> None:
    read_by_powertools = {"POWERTOOLS_LOG_LEVEL", "POWERTOOLS_METRICS_NAMESPACE", "POWERTOOLS_SERVICE_NAME"}
    assert variable_names(MODELS[function]) | read_by_powertools == ENVIRONMENT[function]


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
    }
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


@pytest.mark.parametrize("detail_type", ["Parameter Store Change", "Settings Changed"])
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
    found = {
        (one.properties["FunctionName"], one.properties["Principal"], one.properties["SourceArn"])
        for one in dev.of("AWS::Lambda::Permission")
    }
    assert found == {
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
    ("function", "expression"), [("check_settings", "rate(1 minute)"), ("guard_budget", "rate(5 minutes)")]
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


@pytest.mark.parametrize("function", ["check_settings", "guard_budget"])
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
    assert len(woken_by) == 5
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
