"""Notices of AWS Budgets: the real layout is read, and nothing else is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.domain.budget_notice import BudgetNotice, UnreadableNotice, objection_to, parse_budget_notice

ACCOUNT = "123456789012"
ACTUAL = f"""AWS Budget Notification November 20, 2026
AWS Account {ACCOUNT}

Dear AWS Customer,

You requested that we alert you when the ACTUAL Cost associated with your gpu month budget is greater than $9,500.00 \
for the current month. The ACTUAL Cost associated with this budget is $9,612.40. You can find additional details below \
and by accessing the AWS Budgets dashboard [1].

Budget Name: gpu month
Budget Type: Cost
Budgeted Amount: $10,000.00
Alert Type: ACTUAL
Alert Threshold: > $9,500.00
ACTUAL Amount: $9,612.40

[1] https://console.aws.amazon.com/costmanagement/home#/budgets
"""


def test_the_layout_of_aws_is_read_line_by_line_with_commas_and_spaces_in_names() -> None:
    notice = parse_budget_notice(ACTUAL)
    assert notice == BudgetNotice(ACCOUNT, "gpu month", "ACTUAL", 10_000.0, 9_500.0, 9_612.4, "$", ACTUAL)
    assert objection_to(notice, ACCOUNT, "gpu month") is None


def test_a_forecast_and_windows_line_ends_are_read() -> None:
    text = ACTUAL.replace("ACTUAL", "FORECASTED").replace("\n", "\r\n")
    notice = parse_budget_notice(text)
    assert isinstance(notice, BudgetNotice)
    assert notice.alert_type == "FORECASTED"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (ACCOUNT, "999999999999", "account 999999999999"),
        ("Budget Name: gpu month", "Budget Name: other", "the budget 'other'"),
        ("ACTUAL Amount: $", "ACTUAL Amount: €", "'€'"),
        ("Budget Name: gpu month\n", "", "no the line 'Budget Name'"),
        ("Alert Threshold: > $9,500.00", "Alert Threshold: soon", "no the line 'Alert Threshold'"),
    ],
)
def test_what_is_not_about_our_budget_is_named(before: str, after: str, why: str) -> None:
    objection = objection_to(parse_budget_notice(ACTUAL.replace(before, after)), ACCOUNT, "gpu month")
    assert objection is not None
    assert why in objection


@pytest.mark.parametrize("prefix", ["> ", "  ", "x"])
def test_lines_are_anchored_so_that_quoted_text_is_no_notice(prefix: str) -> None:
    quoted = "\n".join(prefix + line for line in ACTUAL.splitlines())
    assert isinstance(parse_budget_notice(quoted), UnreadableNotice)


@given(st.text(max_size=400))
def test_any_text_is_read_without_error(text: str) -> None:
    parse_budget_notice(text)
    parse_budget_notice(ACTUAL + text)
    parse_budget_notice(text + ACTUAL)
