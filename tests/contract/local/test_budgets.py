"""AWS Budgets: true text, true lag, once a threshold and period."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from local.budgets import Notice
from local.client import LocalAws, LocalAwsError
from local.spend import covers, read_prices
from tests.contract.local.conftest import Probe

# Captured form of AWS's own notice, with the figures of the test below.
TEXT = """AWS Budget Notification February 3, 2027
AWS Account 123456789012

Dear AWS Customer,

You requested that we alert you when the ACTUAL Cost associated with your {name} budget is greater than \
$800.00 for the current month. The ACTUAL Cost associated with this budget is $1,234.50. You can find \
additional details below and by accessing the AWS Budgets dashboard [1].

Budget Name: {name}
Budget Type: Cost
Budgeted Amount: $1,000.00
Alert Type: ACTUAL
Alert Threshold: > $800.00
ACTUAL Amount: $1,234.50

[1] https://console.aws.amazon.com/costmanagement/home#/budgets
"""


def notice(**changed: Any) -> Notice:
    facts = {
        "budget_name": "gpu",
        "account_id": "123456789012",
        "day": datetime(2027, 2, 3, tzinfo=UTC),
        "kind": "ACTUAL",
        "time_unit": "MONTHLY",
        "limit_usd": 1000.0,
        "threshold_usd": 800.0,
        "amount_usd": 1234.5,
    }
    return Notice(**{**facts, **changed})


@pytest.fixture
def month(probe: Probe) -> Probe:
    """The probe at the start of a month that no test has used."""
    probe.aws.remove_fleet()
    now = probe.aws.now()
    probe.aws.set_clock(datetime(now.year + now.month // 12, now.month % 12 + 1, 3, tzinfo=UTC))
    probe.aws.set_spend(0.0, refresh=True)
    return probe


def described(probe: Probe) -> dict[str, Any]:
    budgets = probe.aws.client("budgets")
    budget: dict[str, Any] = budgets.describe_budget(AccountId="123456789012", BudgetName=probe.outputs["BudgetName"])
    return budget["Budget"]  # type: ignore[no-any-return]


def notified(probe: Probe, mark: int) -> list[str]:
    """The kind and threshold of each notice that reached the function."""
    texts = [one.payload["Records"][0]["Sns"]["Message"] for one in probe.since(mark, "sns")]
    lines = [dict(line.split(": ", 1) for line in text.splitlines() if ": " in line) for text in texts]
    return [f"{one['Alert Type']} {one['Alert Threshold']}" for one in lines]


def test_text_is_that_of_aws() -> None:
    assert notice().body() == TEXT.format(name="gpu")
    assert notice().subject() == "AWS Budgets: gpu has exceeded your alert threshold"


def test_daily_text_speaks_of_yesterday() -> None:
    sentence = notice(time_unit="DAILY").body().splitlines()[5]
    assert (
        "is greater than $800.00 per day. Yesterday, the ACTUAL Cost associated with this budget is $1,234.50."
        in sentence
    )


def test_notice_reaches_the_function_over_the_encrypted_topic(month: Probe) -> None:
    mark = month.mark()
    month.aws.set_spend(850.0, refresh=True)
    month.aws.settle()
    [record] = month.since(mark, "sns")
    sns = record.payload["Records"][0]["Sns"]
    assert sns["Subject"] == f"AWS Budgets: {month.outputs['BudgetName']} has exceeded your alert threshold"
    assert "\nACTUAL Amount: $850.00\n" in sns["Message"]
    assert sns["MessageAttributes"] == {}


def test_each_threshold_fires_once_a_period_and_again_in_the_next(month: Probe) -> None:
    mark = month.mark()
    for amount in (700.0, 810.0, 820.0, 960.0, 970.0):
        month.aws.set_spend(amount, refresh=True)
    month.aws.settle()
    assert notified(month, mark) == ["ACTUAL > $800.00", "ACTUAL > $950.00"]
    mark = month.mark()
    month.aws.set_clock((month.aws.now() + timedelta(days=31)).replace(day=1))
    month.aws.set_spend(801.0, refresh=True)
    month.aws.settle()
    assert notified(month, mark) == ["ACTUAL > $800.00"]


def test_forecast_needs_to_be_set_and_may_cross_again(month: Probe) -> None:
    mark = month.mark()
    assert "ForecastedSpend" not in described(month)["CalculatedSpend"]
    for forecast in (1100.0, 900.0, 1200.0):
        month.aws.set_spend(10.0, forecast_usd=forecast, refresh=True)
    month.aws.settle()
    assert notified(month, mark) == ["FORECASTED > $1,000.00"] * 2
    assert described(month)["CalculatedSpend"]["ForecastedSpend"] == {"Amount": "1200.000", "Unit": "USD"}


def test_figures_come_after_a_lag_of_8_to_24_hours(month: Probe) -> None:
    aws = month.aws
    mark = month.mark()
    aws.advance(timedelta(minutes=1))
    aws.set_spend(900.0)
    due = aws.bill().next_refresh[month.outputs["BudgetName"]]
    assert timedelta(hours=7, minutes=59) <= due - aws.now() <= timedelta(hours=24)
    aws.set_clock(due - timedelta(minutes=3))  # a jump starts the lag anew
    due = next(iter(_after_one_minute(month).values()))
    aws.advance_to(due - timedelta(minutes=1))
    assert described(month)["CalculatedSpend"]["ActualSpend"]["Amount"] == "0.000"
    aws.advance(timedelta(minutes=2))
    assert described(month)["CalculatedSpend"]["ActualSpend"]["Amount"] == "900.000"
    assert notified(month, mark) == ["ACTUAL > $800.00"]


def _after_one_minute(probe: Probe) -> dict[str, datetime]:
    probe.aws.advance(timedelta(minutes=1))
    return dict(probe.aws.bill().next_refresh)


def test_states_of_notifications_can_be_read(month: Probe) -> None:
    month.aws.set_spend(810.0, refresh=True)
    answer = month.aws.client("budgets").describe_notifications_for_budget(
        AccountId="123456789012", BudgetName=month.outputs["BudgetName"]
    )
    states = {(one["NotificationType"], one["Threshold"]): one["NotificationState"] for one in answer["Notifications"]}
    assert states == {("ACTUAL", 80.0): "ALARM", ("ACTUAL", 95.0): "OK", ("FORECASTED", 100.0): "OK"}


def test_budget_keeps_its_limit_filter_and_metrics(probe: Probe) -> None:
    answer = probe.aws.client("budgets").describe_budget(
        AccountId="123456789012", BudgetName=probe.outputs["BudgetName"], ShowFilterExpression=True
    )["Budget"]
    assert answer["BudgetLimit"] == {"Amount": "1000", "Unit": "USD"}
    assert answer["FilterExpression"]["Dimensions"] == {"Key": "INSTANCE_TYPE_FAMILY", "Values": ["p4d", "g4dn"]}
    assert answer["Metrics"] == ["AmortizedCost"]
    assert (answer["TimeUnit"], answer["BudgetType"]) == ("MONTHLY", "COST")


def test_topic_that_does_not_let_budgets_publish_is_reported(month: Probe) -> None:
    sns, topic = month.aws.client("sns"), month.outputs["BudgetTopicArn"]
    policy = sns.get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"]
    closed = policy.replace("budgets.amazonaws.com", "events.amazonaws.com")
    sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=closed)
    try:
        with pytest.raises(LocalAwsError, match="does not let AWS Budgets publish"):
            month.aws.set_spend(990.0, refresh=True)
    finally:
        sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=policy)


@pytest.mark.parametrize(
    ("expression", "is_covered"),
    [
        ({"Dimensions": {"Key": "INSTANCE_TYPE_FAMILY", "Values": ["p4d"]}}, True),
        ({"Dimensions": {"Key": "INSTANCE_TYPE_FAMILY", "Values": ["g5"]}}, False),
        ({"Not": {"Dimensions": {"Key": "REGION", "Values": ["us-east-1"]}}}, False),
        ({"Not": {"Dimensions": {"Key": "RECORD_TYPE", "Values": ["Credit"]}}}, True),
        (
            {
                "And": [
                    {"Dimensions": {"Key": "INSTANCE_TYPE", "Values": ["p4d.24xlarge"]}},
                    {"Or": [{"Dimensions": {"Key": "REGION", "Values": ["eu-west-1"]}}]},
                ]
            },
            False,
        ),
    ],
)
def test_filter_covers_what_it_names(expression: dict[str, Any], is_covered: bool) -> None:
    assert covers(expression, "us-east-1", "p4d.24xlarge") is is_covered


def test_prices_are_read_from_the_catalogue() -> None:
    catalogue = Path(__file__).parents[3] / "layers" / "core" / "python" / "governor" / "data" / "prices.csv"
    assert read_prices(catalogue)["g4dn.xlarge"] == pytest.approx(0.526)


def plain_budget(aws: LocalAws) -> Callable[[], float]:
    """A budget of 1000 USD a month with a notification at 80 %; what its actual figure is."""
    notification = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80}
    address = {"SubscriptionType": "EMAIL", "Address": "a@example.com"}
    budgets = aws.client("budgets")
    budgets.create_budget(
        AccountId="123456789012",
        Budget={
            "BudgetName": "plain",
            "BudgetType": "COST",
            "TimeUnit": "MONTHLY",
            "BudgetLimit": {"Amount": "1000", "Unit": "USD"},
        },
        NotificationsWithSubscribers=[{"Notification": notification, "Subscribers": [address]}],
    )

    def actual_usd() -> float:
        budget = budgets.describe_budget(AccountId="123456789012", BudgetName="plain")["Budget"]
        return float(budget["CalculatedSpend"]["ActualSpend"]["Amount"])

    return actual_usd


def test_old_months_figure_stays_for_8_to_24_hours_of_the_new_month(fresh: LocalAws) -> None:
    actual_usd = plain_budget(fresh)
    turn = datetime(2027, 2, 1, tzinfo=UTC)
    fresh.set_clock(turn - timedelta(hours=9))
    fresh.set_spend(700.0, refresh=True)
    fresh.advance(timedelta(hours=8))
    fresh.set_spend(900.0)  # seen only by a refresh in the new month
    fresh.advance_to(turn)
    fresh.set_spend(5.0)
    figures = []
    for _ in range(25):
        figures.append(actual_usd())
        fresh.advance(timedelta(hours=1))
    assert list(dict.fromkeys(figures)) == [700.0, 900.0, 5.0]
    assert 8 <= figures.index(5.0) <= 24


def test_late_figure_of_the_old_month_crosses_its_threshold_and_the_new_month_begins_anew(fresh: LocalAws) -> None:
    plain_budget(fresh)
    budgets = fresh.client("budgets")

    def state() -> str:
        answer = budgets.describe_notifications_for_budget(AccountId="123456789012", BudgetName="plain")
        return str(answer["Notifications"][0]["NotificationState"])

    turn = datetime(2027, 2, 1, tzinfo=UTC)
    fresh.set_clock(turn - timedelta(hours=9))
    fresh.set_spend(700.0, refresh=True)
    fresh.set_spend(900.0)
    fresh.advance_to(turn)
    fresh.set_spend(5.0)
    states = []
    for _ in range(25):
        states.append(state())
        fresh.advance(timedelta(hours=1))
    assert [one for one, _ in groupby(states)] == ["OK", "ALARM", "OK"]


def test_jump_into_the_next_month_shows_its_first_figure_after_one_lag(fresh: LocalAws) -> None:
    actual_usd = plain_budget(fresh)
    fresh.set_clock(datetime(2027, 1, 20, tzinfo=UTC))
    fresh.set_spend(700.0, refresh=True)
    fresh.set_clock(datetime(2027, 2, 20, tzinfo=UTC))
    fresh.set_spend(40.0)
    assert actual_usd() == 700.0
    fresh.advance(timedelta(hours=24, minutes=1))
    assert actual_usd() == 40.0
