"""Budget actions: deployed by a template, run at their threshold, approved, reversed and reset by people."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.client import LocalAws
from tests.contract.local.test_cloudformation import BUDGET, deploy

ACCOUNT = "123456789012"
DENY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "*"}],
}
TRUST = {
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "budgets.amazonaws.com"}, "Action": "sts:AssumeRole"}]
}


@pytest.fixture
def policy_arn(fresh: LocalAws) -> str:
    """A policy that denies launches, and the role `trainer` that it is for."""
    iam = fresh.client("iam")
    iam.create_role(RoleName="trainer", AssumeRolePolicyDocument=json.dumps(TRUST))
    answer = iam.create_policy(PolicyName="no-launches", PolicyDocument=json.dumps(DENY))
    return str(answer["Policy"]["Arn"])


def action(policy_arn: str, **changes: Any) -> dict[str, Any]:
    properties = {
        "BudgetName": {"Ref": "Budget"},
        "NotificationType": "ACTUAL",
        "ActionType": "APPLY_IAM_POLICY",
        "ActionThreshold": {"Type": "PERCENTAGE", "Value": 90},
        "ApprovalModel": "AUTOMATIC",
        "ExecutionRoleArn": f"arn:aws:iam::{ACCOUNT}:role/trainer",
        "Definition": {"IamActionDefinition": {"PolicyArn": policy_arn, "Roles": ["trainer"]}},
        "Subscribers": [{"Type": "EMAIL", "Address": "a@example.com"}],
    }
    return {"Type": "AWS::Budgets::BudgetsAction", "Properties": {**properties, **changes}}


def deployed(aws: LocalAws, resource: dict[str, Any], *, update: bool = False) -> tuple[str, str]:
    """Names of the budget and the action."""
    outputs = {"Budget": {"Ref": "Budget"}, "Action": {"Fn::GetAtt": ["Action", "ActionId"]}}
    found = deploy(aws, {"Budget": BUDGET, "Action": resource}, outputs, update=update)
    return found["Budget"], found["Action"]


def described(aws: LocalAws, budget: str) -> list[dict[str, Any]]:
    answer = aws.client("budgets").describe_budget_actions_for_budget(AccountId=ACCOUNT, BudgetName=budget)
    actions: list[dict[str, Any]] = answer["Actions"]
    return actions


def attached(aws: LocalAws) -> list[str]:
    answer = aws.client("iam").list_attached_role_policies(RoleName="trainer")
    return [one["PolicyName"] for one in answer["AttachedPolicies"]]


def execute(aws: LocalAws, budget: str, action_id: str, wish: str) -> None:
    aws.client("budgets").execute_budget_action(
        AccountId=ACCOUNT, BudgetName=budget, ActionId=action_id, ExecutionType=wish
    )


def test_action_runs_at_its_threshold_and_is_taken_back_and_watched_again(fresh: LocalAws, policy_arn: str) -> None:
    budget, action_id = deployed(fresh, action(policy_arn))
    fresh.set_clock(datetime(2027, 3, 10, tzinfo=UTC))
    [found] = described(fresh, budget)
    assert (found["ActionId"], found["Status"]) == (action_id, "STANDBY")
    assert found["ActionThreshold"] == {"ActionThresholdType": "PERCENTAGE", "ActionThresholdValue": 90.0}
    assert found["Subscribers"] == [{"SubscriptionType": "EMAIL", "Address": "a@example.com"}]
    fresh.set_spend(89.0, refresh=True)
    assert (described(fresh, budget)[0]["Status"], attached(fresh)) == ("STANDBY", [])
    fresh.set_spend(91.0, refresh=True)
    assert (described(fresh, budget)[0]["Status"], attached(fresh)) == ("EXECUTION_SUCCESS", ["no-launches"])
    execute(fresh, budget, action_id, "REVERSE_BUDGET_ACTION")
    assert (described(fresh, budget)[0]["Status"], attached(fresh)) == ("REVERSE_SUCCESS", [])
    fresh.set_spend(95.0, refresh=True)
    assert attached(fresh) == [], "an action that was taken back does not run again before it is reset"
    execute(fresh, budget, action_id, "RESET_BUDGET_ACTION")
    fresh.set_spend(96.0, refresh=True)
    assert attached(fresh) == ["no-launches"]
    history = fresh.client("budgets").describe_budget_action_histories(
        AccountId=ACCOUNT, BudgetName=budget, ActionId=action_id
    )["ActionHistories"]
    assert [one["EventType"] for one in history] == [
        "SYSTEM",
        "EXECUTE_ACTION",
        "EXECUTE_ACTION",
        "SYSTEM",
        "CREATE_ACTION",
    ]


def test_action_with_manual_approval_waits_for_a_person(fresh: LocalAws, policy_arn: str) -> None:
    budget, action_id = deployed(fresh, action(policy_arn, ApprovalModel="MANUAL"))
    fresh.set_spend(95.0, refresh=True)
    assert (described(fresh, budget)[0]["Status"], attached(fresh)) == ("PENDING", [])
    with pytest.raises(ClientError, match="ResourceLockedException"):
        execute(fresh, budget, action_id, "REVERSE_BUDGET_ACTION")
    execute(fresh, budget, action_id, "APPROVE_BUDGET_ACTION")
    assert (described(fresh, budget)[0]["Status"], attached(fresh)) == ("EXECUTION_SUCCESS", ["no-launches"])


def test_action_on_a_missing_role_fails(fresh: LocalAws, policy_arn: str) -> None:
    definition = {"IamActionDefinition": {"PolicyArn": policy_arn, "Roles": ["nobody"]}}
    budget, _ = deployed(fresh, action(policy_arn, Definition=definition))
    fresh.set_spend(95.0, refresh=True)
    assert described(fresh, budget)[0]["Status"] == "EXECUTION_FAILURE"


def test_action_changes_in_place_and_goes_with_its_stack(fresh: LocalAws, policy_arn: str) -> None:
    budget, action_id = deployed(fresh, action(policy_arn))
    higher = action(policy_arn, ActionThreshold={"Type": "ABSOLUTE_VALUE", "Value": 300})
    assert deployed(fresh, higher, update=True) == (budget, action_id)
    assert described(fresh, budget)[0]["ActionThreshold"]["ActionThresholdValue"] == 300.0
    cloudformation = fresh.client("cloudformation")
    cloudformation.delete_stack(StackName="types")
    cloudformation.get_waiter("stack_delete_complete").wait(
        StackName="types", WaiterConfig={"Delay": 1, "MaxAttempts": 20}
    )
    answer = fresh.client("budgets").describe_budget_actions_for_account(AccountId=ACCOUNT)
    assert answer["Actions"] == []


def test_unknown_action_is_an_error(fresh: LocalAws, policy_arn: str) -> None:
    budget, _ = deployed(fresh, action(policy_arn))
    with pytest.raises(ClientError, match="NotFoundException"):
        execute(fresh, budget, "0" * 36, "RESET_BUDGET_ACTION")
