"""The stage's budget in AWS Budgets. Reading it is free; its figures are 8 to 24 hours late."""

from __future__ import annotations

import math
from typing import Any

from governor.aws.errors import AWS_ERRORS, error_sentence
from governor.domain.budget_snapshot import BudgetReading, UnknownBudget


class AwsBudgets:
    """`Budgets` on AWS Budgets."""

    def __init__(self, client: Any, account_id: str, budget_name: str) -> None:
        self._client = client
        self._account_id = account_id
        self._name = budget_name

    def read(self) -> BudgetReading | UnknownBudget:
        """The budget as it stands now; what cannot be read, or is not in USD, is unknown, with why."""
        try:
            budget = self._client.describe_budget(AccountId=self._account_id, BudgetName=self._name)["Budget"]
        except AWS_ERRORS as error:
            return UnknownBudget(self._name, error_sentence(error))
        spend = budget.get("CalculatedSpend") or {}
        try:
            actual = _usd(spend.get("ActualSpend"), "actual spend")
            if actual is None:
                return UnknownBudget(self._name, "AWS Budgets has no actual spend yet")
            limit = _usd(budget.get("BudgetLimit"), "limit")
            forecast = _usd(spend.get("ForecastedSpend"), "forecast")
        except ValueError as error:
            return UnknownBudget(self._name, str(error))
        return BudgetReading(self._name, actual, limit, forecast)


def _usd(spend: Any, what: str) -> float | None:
    if not spend:
        return None
    if spend.get("Unit") != "USD":
        raise ValueError(f"the {what} is in {spend.get('Unit')!r}, not in USD")
    try:
        amount = float(spend.get("Amount", ""))
    except ValueError:
        raise ValueError(f"the {what} is {spend.get('Amount')!r}, not a number") from None
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(f"the {what} is {spend.get('Amount')!r}, out of range")
    return amount
