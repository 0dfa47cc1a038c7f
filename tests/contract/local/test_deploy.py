"""The real CDK CLI deploys one of everything, and functions run as on Lambda."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.local.conftest import Probe


def invoke(probe: Probe, payload: Any) -> Any:
    answer = probe.aws.client("lambda").invoke(FunctionName=probe.function, Payload=json.dumps(payload))
    assert "FunctionError" not in answer, answer["Payload"].read()
    return json.loads(answer["Payload"].read())


def aws_function(probe: Probe) -> Any:
    return probe.aws.client("lambda").get_function_configuration(FunctionName=probe.function)


def test_function_runs_with_its_layer(probe: Probe) -> None:
    assert invoke(probe, {})["layer"] == "from the layer"


def test_function_has_lambdas_environment_and_no_more(probe: Probe) -> None:
    found = set(invoke(probe, {"wish": "environment"})["environment"])
    aws_own = {
        "AWS_ACCESS_KEY_ID",
        "AWS_DEFAULT_REGION",
        "AWS_EXECUTION_ENV",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
        "AWS_LAMBDA_FUNCTION_NAME",
        "AWS_LAMBDA_FUNCTION_VERSION",
        "AWS_LAMBDA_INITIALIZATION_TYPE",
        "AWS_LAMBDA_LOG_GROUP_NAME",
        "AWS_LAMBDA_LOG_STREAM_NAME",
        "AWS_LAMBDA_RUNTIME_API",
        "AWS_REGION",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "LAMBDA_RUNTIME_DIR",
        "LAMBDA_TASK_ROOT",
        "LANG",
        "PATH",
        "PYTHONPATH",
        "TZ",
        "_HANDLER",
    }
    of_this_place = {"AWS_ENDPOINT_URL", "HOME", "PYTHONDONTWRITEBYTECODE", "TMPDIR"}
    of_the_interpreter = {"LC_CTYPE", "_X_AMZN_TRACE_ID"}
    assert aws_own <= found
    assert found - aws_own - of_this_place - of_the_interpreter == {"TABLE_NAME"}


def test_function_sees_no_package_of_the_development_environment(probe: Probe) -> None:
    path = invoke(probe, {"wish": "environment"})["path"]
    assert not [entry for entry in path if "site-packages" in entry]


def test_one_warm_process_serves_all_invokes_of_a_function(probe: Probe) -> None:
    invoke(probe, {})
    before = probe.aws.stats()
    for _ in range(3):
        invoke(probe, {})
    after = probe.aws.stats()
    assert after.cold_starts == before.cold_starts
    assert after.function_processes[probe.function] == before.function_processes[probe.function]


def test_logs_are_kept_and_reach_cloudwatch_logs(probe: Probe) -> None:
    invoke(probe, {"word": "shibboleth"})
    assert "shibboleth" in probe.aws.function_log(probe.function)
    logs = probe.aws.client("logs")
    group = aws_function(probe)["LoggingConfig"]["LogGroup"]
    messages = [one["message"] for one in logs.filter_log_events(logGroupName=group)["events"]]
    assert any("shibboleth" in message for message in messages)


def test_custom_resource_answered_and_created_its_parameter(probe: Probe) -> None:
    assert probe.outputs["Seeded"] == "yes"
    parameter = probe.aws.client("ssm").get_parameter(Name="/probe/budget/stop-percent")["Parameter"]
    assert parameter["Value"].isdigit()


def test_table_has_stream_backups_key_and_time_to_live(probe: Probe) -> None:
    dynamodb, name = probe.aws.client("dynamodb"), probe.outputs["TableName"]
    table = dynamodb.describe_table(TableName=name)["Table"]
    assert table["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    assert table["SSEDescription"]["SSEType"] == "KMS"
    backups = dynamodb.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    expiry = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


def test_dashboard_queue_policies_and_asynchronous_settings_are_there(probe: Probe) -> None:
    aws = probe.aws
    assert aws.client("cloudwatch").list_dashboards()["DashboardEntries"]
    attributes = aws.client("sqs").get_queue_attributes(
        QueueUrl=probe.outputs["RuleDeadLettersUrl"], AttributeNames=["Policy"]
    )
    assert "events.amazonaws.com" in attributes["Attributes"]["Policy"]
    config = aws.client("lambda").get_function_event_invoke_config(FunctionName=probe.function, Qualifier="$LATEST")
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (2, 300)
    assert ":Probe-DeadLetters" in config["DestinationConfig"]["OnFailure"]["Destination"]
