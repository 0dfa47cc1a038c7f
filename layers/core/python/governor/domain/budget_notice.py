"""What AWS Budgets writes to its topic: plain text, read line by line. It is only a trigger, never the facts.

The layout is not a contract (AWS documents none), so whatever cannot be read is an `UnreadableNotice`, never an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ACCOUNT = re.compile(r"^AWS Account ([0-9]{12})\s*$", re.MULTILINE)
_NAME = re.compile(r"^Budget Name: (.+?)\s*$", re.MULTILINE)
_TYPE = re.compile(r"^Alert Type: (ACTUAL|FORECASTED)\s*$", re.MULTILINE)
_MONEY = r"(?P<currency>[^0-9\s,.\-]{1,4})?\s?(?P<amount>[0-9][0-9,]*(?:\.[0-9]+)?)"
_BUDGETED = re.compile(rf"^Budgeted Amount: {_MONEY}\s*$", re.MULTILINE)
_THRESHOLD = re.compile(rf"^Alert Threshold: > {_MONEY}\s*$", re.MULTILINE)
_AMOUNT = re.compile(rf"^(?:ACTUAL|FORECASTED) Amount: {_MONEY}\s*$", re.MULTILINE)

MAX_READ_CHARACTERS = 16_384


@dataclass(frozen=True, slots=True)
class BudgetNotice:
    """A notification of AWS Budgets: amounts in the budget's currency (`$` unless said otherwise)."""

    account_id: str
    budget_name: str
    alert_type: str
    budgeted: float
    threshold: float
    amount: float
    currency: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class UnreadableNotice:
    """A text that is no notification we know, and why."""

    text: str
    why: str


def parse_budget_notice(text: str) -> BudgetNotice | UnreadableNotice:
    """Read the `Key: value` lines of a notification. Total: never raises."""
    body = text[:MAX_READ_CHARACTERS].replace("\r\n", "\n")
    found = {
        "the line 'AWS Account'": _ACCOUNT.search(body),
        "the line 'Budget Name'": _NAME.search(body),
        "the line 'Alert Type'": _TYPE.search(body),
        "the line 'Budgeted Amount'": _BUDGETED.search(body),
        "the line 'Alert Threshold'": _THRESHOLD.search(body),
        "the line 'ACTUAL Amount' or 'FORECASTED Amount'": _AMOUNT.search(body),
    }
    missing = [what for what, match in found.items() if match is None]
    matches = [match for match in found.values() if match is not None]
    if missing:
        return UnreadableNotice(text[:MAX_READ_CHARACTERS], "no " + ", no ".join(missing))
    account, name, alert_type, budgeted, threshold, amount = matches

    def number(match: re.Match[str]) -> float:
        return float(match["amount"].replace(",", ""))

    return BudgetNotice(
        account_id=account[1],
        budget_name=name[1],
        alert_type=alert_type[1],
        budgeted=number(budgeted),
        threshold=number(threshold),
        amount=number(amount),
        currency=amount["currency"] or "$",
        text=text[:MAX_READ_CHARACTERS],
    )


def objection_to(notice: BudgetNotice | UnreadableNotice, account_id: str, budget_name: str) -> str | None:
    """Why a notice is not one about our budget, or None. It wakes the guard all the same; it is never believed."""
    if isinstance(notice, UnreadableNotice):
        return notice.why
    if notice.account_id != account_id:
        return f"it is about account {notice.account_id}"
    if notice.budget_name != budget_name:
        return f"it is about the budget {notice.budget_name!r}"
    if notice.currency != "$":
        return f"its amounts are in {notice.currency!r}, not in USD"
    return None
