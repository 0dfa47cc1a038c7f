"""Resource types that the emulator lacks: created, changed, replaced and deleted by CloudFormation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local.client import LocalAws

BUDGET: dict[str, Any] = {
    "Type": "AWS::Budgets::Budget",
    "Properties": {
        "Budget": {"BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetLimit": {"Amount": 100, "Unit": "USD"}},
        "NotificationsWithSubscribers": [
            {
                "Notification": {
                    "NotificationType": "ACTUAL",
                    "ComparisonOperator": "GREATER_THAN",
                    "Threshold": 80,
                    "ThresholdType": "PERCENTAGE",
                },
                "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "a@example.com"}],
            }
        ],
    },
}


def deploy(
    aws: LocalAws, resources: dict[str, Any], outputs: dict[str, Any], *, update: bool = False
) -> dict[str, str]:
    """Create or update the stack `types`; its outputs."""
    cloudformation = aws.client("cloudformation")
    body = json.dumps({"Resources": resources, "Outputs": {name: {"Value": value} for name, value in outputs.items()}})
    operation = cloudformation.update_stack if update else cloudformation.create_stack
    operation(StackName="types", TemplateBody=body)
    waiter = "stack_update_complete" if update else "stack_create_complete"
    cloudformation.get_waiter(waiter).wait(StackName="types", WaiterConfig={"Delay": 1, "MaxAttempts": 20})
    stack = cloudformation.describe_stacks(StackName="types")["Stacks"][0]
    return {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}


def budget_names(aws: LocalAws) -> list[str]:
    answer = aws.client("budgets").describe_budgets(AccountId="123456789012")
    return [one["BudgetName"] for one in answer["Budgets"]]


def test_budget_limit_changes_in_place_and_notifications_replace(fresh: LocalAws) -> None:
    first = deploy(fresh, {"Budget": BUDGET}, {"Name": {"Ref": "Budget"}})["Name"]
    assert budget_names(fresh) == [first]
    changed = json.loads(json.dumps(BUDGET))
    changed["Properties"]["Budget"]["BudgetLimit"]["Amount"] = 200
    assert deploy(fresh, {"Budget": changed}, {"Name": {"Ref": "Budget"}}, update=True)["Name"] == first
    budget = fresh.client("budgets").describe_budget(AccountId="123456789012", BudgetName=first)["Budget"]
    assert budget["BudgetLimit"]["Amount"] == "200"
    changed["Properties"]["NotificationsWithSubscribers"][0]["Notification"]["Threshold"] = 90
    second = deploy(fresh, {"Budget": changed}, {"Name": {"Ref": "Budget"}}, update=True)["Name"]
    assert second != first
    assert budget_names(fresh) == [second]
    fresh.client("cloudformation").delete_stack(StackName="types")
    fresh.client("cloudformation").get_waiter("stack_delete_complete").wait(
        StackName="types", WaiterConfig={"Delay": 1, "MaxAttempts": 20}
    )
    assert budget_names(fresh) == []


def test_group_with_template_hook_warm_pool_and_alarms(fresh: LocalAws) -> None:
    group = {"Ref": "Group"}
    resources = {
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {"LaunchTemplateData": {"ImageId": "ami-12c6146b", "InstanceType": "g4dn.xlarge"}},
        },
        "Group": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": {
                "MinSize": "0",
                "MaxSize": "2",
                "DesiredCapacity": "1",
                "AvailabilityZones": ["us-east-1a"],
                "LaunchTemplate": {
                    "LaunchTemplateId": {"Ref": "Template"},
                    "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
                },
            },
        },
        "Hook": {
            "Type": "AWS::AutoScaling::LifecycleHook",
            "Properties": {
                "AutoScalingGroupName": group,
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                "HeartbeatTimeout": 300,
            },
        },
        "WarmPool": {
            "Type": "AWS::AutoScaling::WarmPool",
            "Properties": {"AutoScalingGroupName": group, "MinSize": 1, "PoolState": "Stopped"},
        },
        "Math": {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {
                "ComparisonOperator": "GreaterThanThreshold",
                "EvaluationPeriods": 1,
                "Threshold": 1,
                "Metrics": [
                    {"Id": "ratio", "Expression": "errors / runs"},
                    *(
                        {
                            "Id": name,
                            "ReturnData": False,
                            "MetricStat": {
                                "Metric": {"Namespace": "Test", "MetricName": name},
                                "Period": 60,
                                "Stat": "Sum",
                            },
                        }
                        for name in ("errors", "runs")
                    ),
                ],
            },
        },
        "Composite": {
            "Type": "AWS::CloudWatch::CompositeAlarm",
            "Properties": {"AlarmRule": {"Fn::Sub": 'ALARM("${Math}")'}},
        },
    }
    names = deploy(fresh, resources, {"Group": group, "Composite": {"Ref": "Composite"}})
    groups = fresh.client("autoscaling")
    [made] = groups.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (made["AutoScalingGroupName"], len(made["Instances"])) == (names["Group"], 1)
    [hook] = groups.describe_lifecycle_hooks(AutoScalingGroupName=names["Group"])["LifecycleHooks"]
    assert hook["HeartbeatTimeout"] == 300
    pool = groups.describe_warm_pool(AutoScalingGroupName=names["Group"])["WarmPoolConfiguration"]
    assert (pool["MinSize"], pool["PoolState"]) == (1, "Stopped")
    alarms = fresh.client("cloudwatch").describe_alarms(AlarmTypes=["CompositeAlarm"])["CompositeAlarms"]
    assert [one["AlarmName"] for one in alarms] == [names["Composite"]]


def test_custom_resource_whose_function_fails_fails_the_stack_at_once(fresh: LocalAws) -> None:
    resources = {
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": "lambda.amazonaws.com"},
                            "Action": "sts:AssumeRole",
                        }
                    ]
                }
            },
        },
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Runtime": "python3.13",
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Code": {"ZipFile": "def handler(event, context):\n    raise RuntimeError('no seed')\n"},
            },
        },
        "Seed": {
            "Type": "AWS::CloudFormation::CustomResource",
            "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}},
        },
    }
    cloudformation = fresh.client("cloudformation")
    cloudformation.create_stack(StackName="types", TemplateBody=json.dumps({"Resources": resources}))
    with pytest.raises(Exception, match="ROLLBACK"):
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName="types", WaiterConfig={"Delay": 1, "MaxAttempts": 20}
        )
    reasons = [
        one.get("ResourceStatusReason", "")
        for one in cloudformation.describe_stack_events(StackName="types")["StackEvents"]
    ]
    assert any("no seed" in reason for reason in reasons)
