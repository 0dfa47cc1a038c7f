"""What AWS authorises where the emulator asks for something else: other action names, other resources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from local.emulator import Emulator
from local.patching import relied_on, replace

# AWS Budgets has two coarse permissions for its whole API (tags and budget actions apart).
_BUDGET_READS = ("budgets:Describe",)
_BUDGET_WRITES = ("budgets:Create", "budgets:Update", "budgets:Delete")


def permission_of(action: str) -> str:
    """The permission that an API operation needs, in IAM's words; most are called like the operation."""
    if action.startswith("budgets:") and "BudgetAction" not in action:
        if action.startswith(_BUDGET_READS):
            return "budgets:ViewBudget"
        if action.startswith(_BUDGET_WRITES):
            return "budgets:ModifyBudget"
    return action


class Authorisation:
    """Corrects what the emulator takes from a request for its policy check."""

    def __init__(self, emulator: Emulator) -> None:
        self.operation_of = relied_on(
            emulator.iam_actions,
            "extract_iam_action",
            ("service", "method", "path", "headers", "body", "query_params"),
        )
        self._transaction = relied_on(
            emulator.iam_actions, "dynamodb_transaction_checks", ("iam_action", "body", "region", "account_id")
        )
        emulator.iam_actions.extract_iam_action = self._permission
        self._resource = replace(
            emulator.iam_actions,
            "extract_resource_arn",
            ("service", "method", "path", "headers", "body", "query_params", "region", "account_id"),
            self._resource_arn,
        )

    def permissions_of(self, action: str, body: bytes, region: str, account_id: str) -> tuple[str, ...]:
        """Every permission that a request needs: a DynamoDB transaction needs those of its items."""
        if action.startswith("dynamodb:"):
            items = self._transaction(action, body, region, account_id)
            if items:
                return tuple(dict.fromkeys(str(one[0]) for one in items))
        return (permission_of(action),)

    def _permission(self, *arguments: Any, **named: Any) -> str | None:
        action = self.operation_of(*arguments, **named)
        return None if action is None else permission_of(action)

    def _resource_arn(
        self,
        service: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        query_params: Mapping[str, Any],
        region: str,
        account_id: str,
    ) -> str:
        target = headers.get("x-amz-target", "").rpartition(".")[2]
        if service == "ssm" and target == "GetParametersByPath":
            name = str(json.loads(body)["Path"]).strip("/")
            return f"arn:aws:ssm:{region}:{account_id}:parameter/{name}"
        if service == "budgets":
            request = json.loads(body or b"{}")
            action = f"/action/{request['ActionId']}" if "ActionId" in request else ""
            return f"arn:aws:budgets::{account_id}:budget/{_budget_name(request)}{action}"
        resource: str = self._resource(service, method, path, headers, body, query_params, region, account_id)
        return resource


def _budget_name(request: Mapping[str, Any]) -> str:
    budget = request.get("Budget") or request.get("NewBudget") or {}
    return str(request.get("BudgetName") or budget.get("BudgetName") or "*")
