"""Budget actions: kept, run when their threshold is crossed, approved, reversed and reset by people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from moto.moto_api._internal import mock_random

from local.emulator import Emulator
from local.patching import relied_on

Answer = tuple[int, dict[str, str], bytes]
Action = dict[str, Any]

_OPERATIONS = (
    "CreateBudgetAction",
    "DeleteBudgetAction",
    "DescribeBudgetAction",
    "DescribeBudgetActionHistories",
    "DescribeBudgetActionsForAccount",
    "DescribeBudgetActionsForBudget",
    "ExecuteBudgetAction",
    "UpdateBudgetAction",
)
_FIELDS = (
    "BudgetName",
    "NotificationType",
    "ActionType",
    "ActionThreshold",
    "Definition",
    "ExecutionRoleArn",
    "ApprovalModel",
    "Subscribers",
)
# What people may ask for in which state, and the state that follows.
_EXECUTIONS = {
    "APPROVE_BUDGET_ACTION": (("PENDING",), "EXECUTION_SUCCESS"),
    "RETRY_BUDGET_ACTION": (("EXECUTION_FAILURE",), "EXECUTION_SUCCESS"),
    "REVERSE_BUDGET_ACTION": (("EXECUTION_SUCCESS", "REVERSE_FAILURE"), "REVERSE_SUCCESS"),
    "RESET_BUDGET_ACTION": (("REVERSE_SUCCESS", "RESET_FAILURE"), "STANDBY"),
}
_TARGETS = (("Roles", "role", "RoleName"), ("Users", "user", "UserName"), ("Groups", "group", "GroupName"))


class BudgetActions:
    """Adds the operations to the emulator's Budgets API. APPLY_IAM_POLICY really attaches and detaches the policy."""

    def __init__(self, emulator: Emulator, now: Callable[[], datetime]) -> None:
        self._budgets = emulator.budgets._budgets
        self._now = now
        self._actions: dict[str, Action] = {}
        self._histories: dict[str, list[dict[str, Any]]] = {}
        self._error = relied_on(
            emulator.responses,
            "error_response_json",
            ("code", "message", "status", "extra", "message_key", "content_type"),
        )
        self._policy_calls = {
            (verb, kind): relied_on(emulator.iam, f"_{verb}_{kind}_policy", ("p",))
            for verb in ("attach", "detach")
            for _, kind, _ in _TARGETS
        }
        handlers = (
            self.create,
            self._delete,
            self._describe,
            self._describe_histories,
            self._describe_all,
            self._describe_of_budget,
            self._execute,
            self._update,
        )
        emulator.budgets._DISPATCH.update(zip(_OPERATIONS, handlers, strict=True))

    def budget_refreshed(self, budget: Mapping[str, Any], actual_usd: float, forecast_usd: float | None) -> None:
        """Run, or put before people, every action of a budget whose threshold is crossed."""
        for action in self._of(budget["BudgetName"]):
            amount_usd = actual_usd if action["NotificationType"] == "ACTUAL" else forecast_usd
            threshold_usd = _threshold_usd(action, float(budget["BudgetLimit"]["Amount"]))
            if action["Status"] == "STANDBY" and amount_usd is not None and amount_usd > threshold_usd:
                if action["ApprovalModel"] == "AUTOMATIC":
                    self._run(action, "EXECUTION_SUCCESS", "SYSTEM")
                else:
                    self._set_status(action, "PENDING", "SYSTEM")

    def period_began(self, budget_name: str) -> None:
        """An action that was taken back is watched again in a new period."""
        for action in self._of(budget_name):
            if action["Status"] == "REVERSE_SUCCESS":
                self._set_status(action, "STANDBY", "SYSTEM")

    def create(self, data: Mapping[str, Any]) -> Answer:
        """CreateBudgetAction."""
        name = data.get("BudgetName")
        if name not in self._budgets:
            return self._refuse("NotFoundException", f"Unable to get budget: {name} - the budget doesn't exist.")
        action = {field: data[field] for field in _FIELDS if field in data}
        action = {"ApprovalModel": "AUTOMATIC", **action, "ActionId": str(mock_random.uuid4()), "Status": "STANDBY"}
        self._actions[action["ActionId"]] = action
        self._set_status(action, "STANDBY", "CREATE_ACTION")
        return self._answer(data, ActionId=action["ActionId"])

    def remove(self, action_id: str) -> None:
        """Forget an action; what it attached stays, as on AWS."""
        self._actions.pop(action_id, None)

    def change(self, action_id: str, data: Mapping[str, Any]) -> None:
        """Change what an action is, not its status."""
        self._actions[action_id].update({field: data[field] for field in _FIELDS if field in data})

    def _delete(self, data: Mapping[str, Any]) -> Answer:
        action = self._actions.pop(str(data.get("ActionId")), None)
        return self._unknown(data) if action is None else self._answer(data, Action=action)

    def _update(self, data: Mapping[str, Any]) -> Answer:
        action = self._actions.get(str(data.get("ActionId")))
        if action is None:
            return self._unknown(data)
        before = dict(action)
        self.change(action["ActionId"], data)
        return self._answer(data, OldAction=before, NewAction=action)

    def _describe(self, data: Mapping[str, Any]) -> Answer:
        action = self._actions.get(str(data.get("ActionId")))
        return self._unknown(data) if action is None else self._answer(data, Action=action)

    def _describe_histories(self, data: Mapping[str, Any]) -> Answer:
        return _json({"ActionHistories": self._histories.get(str(data.get("ActionId")), [])})

    def _describe_all(self, data: Mapping[str, Any]) -> Answer:
        return _json({"Actions": list(self._actions.values())})

    def _describe_of_budget(self, data: Mapping[str, Any]) -> Answer:
        return _json({"Actions": self._of(str(data.get("BudgetName")))})

    def _execute(self, data: Mapping[str, Any]) -> Answer:
        action, wish = self._actions.get(str(data.get("ActionId"))), str(data.get("ExecutionType"))
        if action is None:
            return self._unknown(data)
        allowed, follows = _EXECUTIONS[wish]
        if action["Status"] not in allowed:
            return self._refuse("ResourceLockedException", f"{wish} is not possible in status {action['Status']}.")
        if follows == "STANDBY":
            self._set_status(action, follows, "EXECUTE_ACTION")
        else:
            self._run(action, follows, "EXECUTE_ACTION")
        return self._answer(data, ActionId=action["ActionId"], ExecutionType=wish)

    def _run(self, action: Action, status: str, event: str) -> None:
        """Do it or take it back; a role or policy that is not there makes it fail, as on AWS."""
        verb, failed = ("detach", "REVERSE_FAILURE") if status == "REVERSE_SUCCESS" else ("attach", "EXECUTION_FAILURE")
        definition = action["Definition"].get("IamActionDefinition") or {}
        answers = [
            self._policy_calls[verb, kind]({parameter: [name], "PolicyArn": [definition["PolicyArn"]]})
            for field, kind, parameter in _TARGETS
            for name in definition.get(field) or []
        ]
        is_done = all(answer[0] == 200 for answer in answers)
        self._set_status(action, status if is_done else failed, event)

    def _set_status(self, action: Action, status: str, event: str) -> None:
        action["Status"] = status
        entry = {
            "Timestamp": self._now().timestamp(),
            "Status": status,
            "EventType": event,
            "ActionHistoryDetails": {"Message": status, "Action": dict(action)},
        }
        self._histories.setdefault(action["ActionId"], []).insert(0, entry)

    def _of(self, budget_name: str) -> list[Action]:
        return [one for one in self._actions.values() if one["BudgetName"] == budget_name]

    def _answer(self, data: Mapping[str, Any], **more: Any) -> Answer:
        return _json({"AccountId": data.get("AccountId"), "BudgetName": data.get("BudgetName"), **more})

    def _unknown(self, data: Mapping[str, Any]) -> Answer:
        return self._refuse("NotFoundException", f"There is no action {data.get('ActionId')}.")

    def _refuse(self, code: str, message: str) -> Answer:
        answer: Answer = self._error(code, message, 400)
        return answer


def _threshold_usd(action: Action, limit_usd: float) -> float:
    threshold = action["ActionThreshold"]
    value = float(threshold["ActionThresholdValue"])
    return value if threshold["ActionThresholdType"] == "ABSOLUTE_VALUE" else limit_usd * value / 100


def _json(body: Mapping[str, Any]) -> Answer:
    return 200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(body).encode()
