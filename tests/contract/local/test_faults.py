"""Failures by configuration reach exactly the call they name."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from local.client import LocalAws
from local.faults import Fault, Faults, access_denied, capacity_shortage, crash_after_call, throttle
from tests.contract.local.conftest import Probe
from tests.contract.local.test_ec2 import launch, states


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def test_fault_hits_its_calls_by_number() -> None:
    faults = Faults()
    faults.set([Fault("ssm:Get*", first=2, count=2, function="guard*")])
    hits = [faults.match("ssm:GetParameter", "guard_budget") is not None for _ in range(4)]
    assert hits == [False, True, True, False]
    assert faults.match("ssm:GetParameter", "other") is None
    assert faults.match("ssm:PutParameter", "guard_budget") is None


@pytest.mark.parametrize(
    ("service", "method", "action", "expected"),
    [
        ("ec2", "describe_instances", "ec2:DescribeInstances", "RequestLimitExceeded"),
        ("ssm", "describe_parameters", "ssm:DescribeParameters", "ThrottlingException"),
        ("dynamodb", "list_tables", "dynamodb:ListTables", "ThrottlingException"),
        ("sns", "list_topics", "sns:ListTopics", "ThrottlingException"),
        ("sqs", "list_queues", "sqs:ListQueues", "ThrottlingException"),
        ("events", "list_rules", "events:ListRules", "ThrottlingException"),
        ("cloudwatch", "list_dashboards", "cloudwatch:ListDashboards", "ThrottlingException"),
        ("autoscaling", "describe_auto_scaling_groups", "autoscaling:Describe*", "ThrottlingException"),
        ("lambda", "list_functions", "lambda:ListFunctions", "ThrottlingException"),
        ("budgets", "describe_budgets", "budgets:*", "ThrottlingException"),
    ],
)
def test_throttle_comes_in_each_services_own_form(
    probe: Probe, service: str, method: str, action: str, expected: str
) -> None:
    probe.aws.set_faults(throttle(action))
    call = getattr(probe.aws.client(service), method)
    arguments = {"AccountId": "123456789012"} if service == "budgets" else {}
    with pytest.raises(ClientError) as error:
        call(**arguments)
    assert code(error) == expected
    call(**arguments)


def test_client_with_retries_gets_through_a_throttle(probe: Probe) -> None:
    probe.aws.set_faults(throttle("ssm:DescribeParameters", count=1))
    answer = probe.aws.client("ssm", retries=2).describe_parameters()
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1


def test_denied_stop_does_not_happen(probe: Probe) -> None:
    instance_id = launch(probe.aws)
    probe.aws.set_faults(access_denied("ec2:StopInstances"))
    with pytest.raises(ClientError) as error:
        probe.aws.client("ec2").stop_instances(InstanceIds=[instance_id])
    assert code(error) == "UnauthorizedOperation"
    assert states(probe.aws)[instance_id] == "running"


def test_no_capacity_for_a_launch_and_for_a_groups_launch(fresh: LocalAws) -> None:
    member = next(one for one in fresh.create_fleet("test") if one.role == "group-member").instance_id
    fresh.set_faults(capacity_shortage())
    with pytest.raises(ClientError) as error:
        launch(fresh)
    assert code(error) == "InsufficientInstanceCapacity"
    fresh.client("ec2").stop_instances(InstanceIds=[member])
    fresh.advance(timedelta(minutes=1))
    [group] = fresh.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert group["Instances"] == []
    fresh.set_faults()
    fresh.advance(timedelta(minutes=1))
    [group] = fresh.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert len(group["Instances"]) == group["DesiredCapacity"] == 1


@pytest.mark.parametrize(("kind", "state"), [("crash-after", "stopped"), ("crash-before", "running")])
def test_function_that_crashes_at_a_call_is_run_again(probe: Probe, kind: str, state: str) -> None:
    instance_id = launch(probe.aws)
    mark = probe.mark()
    probe.aws.hold_deliveries(True)
    if kind == "crash-after":
        probe.aws.set_faults(crash_after_call(probe.function, nth=1))
    else:
        probe.aws.set_faults(Fault("ec2:StopInstances", kind="crash-before", function=probe.function))
    event = {"wish": "stop", "instances": [instance_id]}
    probe.aws.client("lambda").invoke(FunctionName=probe.function, InvocationType="Event", Payload=json.dumps(event))
    probe.aws.settle()
    [first] = probe.since(mark, "invoke")
    assert first.result == "will-retry"
    assert "Runtime.ExitError" in first.error
    assert states(probe.aws)[instance_id] == state
    probe.aws.advance(timedelta(minutes=1))
    assert [one.result for one in probe.since(mark, "invoke")] == ["will-retry", "done"]
    assert states(probe.aws)[instance_id] == "stopped"


def test_log_of_calls_names_function_action_and_fault(probe: Probe) -> None:
    instance_id = launch(probe.aws)
    before = len(probe.aws.calls())
    probe.aws.set_faults(throttle("ec2:StopInstances", function=probe.function))
    event = json.dumps({"wish": "stop", "instances": [instance_id]})
    probe.aws.client("lambda").invoke(FunctionName=probe.function, Payload=event)
    calls = [one for one in probe.aws.calls(before) if one.function == probe.function]
    assert [(one.action, one.fault) for one in calls] == [
        ("ec2:StopInstances", "error RequestLimitExceeded"),
        ("ec2:StopInstances", ""),
    ]
    assert f"/{probe.function}" in calls[0].caller_arn
    assert calls[0].caller_arn.startswith("arn:aws:sts::123456789012:assumed-role/Probe-")
