"""AWS Budgets, SNS and EventBridge through botocore's Stubber, which holds requests and answers to the API model."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from governor.aws.budgets import AwsBudgets
from governor.aws.outbound import AwsOutbound
from governor.domain.budget_snapshot import BudgetReading, UnknownBudget

ACCOUNT = "123456789012"


def client_of(service: str, region: str) -> Any:
    """A client whose calls never leave the process."""
    return boto3.client(service, region, aws_access_key_id="x", aws_secret_access_key="x")


def read_budget(budget: dict[str, Any]) -> BudgetReading | UnknownBudget:
    client = client_of("budgets", "us-east-1")
    base = {"BudgetName": "gpu", "BudgetType": "COST", "TimeUnit": "MONTHLY"}
    with Stubber(client) as stub:
        expected = {"AccountId": ACCOUNT, "BudgetName": "gpu"}
        stub.add_response("describe_budget", {"Budget": {**base, **budget}}, expected)
        return AwsBudgets(client, ACCOUNT, "gpu").read()


def usd(amount: str, unit: str = "USD") -> dict[str, str]:
    return {"Amount": amount, "Unit": unit}


def test_actual_limit_and_forecast_are_read() -> None:
    reading = read_budget(
        {
            "BudgetLimit": usd("1000.0"),
            "CalculatedSpend": {"ActualSpend": usd("812.5"), "ForecastedSpend": usd("1300")},
        }
    )
    assert reading == BudgetReading("gpu", 812.5, 1000.0, 1300.0)


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ({}, "no actual spend yet"),
        ({"CalculatedSpend": {"ActualSpend": usd("5", "EUR")}}, "'EUR', not in USD"),
        ({"CalculatedSpend": {"ActualSpend": usd("5")}, "BudgetLimit": usd("9", "CNY")}, "limit is in 'CNY'"),
    ],
)
def test_what_is_missing_or_in_another_currency_is_unknown(budget: dict[str, Any], why: str) -> None:
    reading = read_budget(budget)
    assert isinstance(reading, UnknownBudget)
    assert why in reading.why


@pytest.mark.parametrize("amount", ["NaN", "inf", "-5", "five"])
def test_an_amount_that_is_no_sum_of_money_is_unknown(amount: str) -> None:
    class Odd:
        def describe_budget(self, **_: Any) -> dict[str, Any]:
            return {"Budget": {"CalculatedSpend": {"ActualSpend": usd(amount)}}}

    reading = AwsBudgets(Odd(), ACCOUNT, "gpu").read()
    assert isinstance(reading, UnknownBudget)


def test_a_denied_budget_is_unknown_with_the_reason() -> None:
    client = client_of("budgets", "us-east-1")
    with Stubber(client) as stub:
        stub.add_client_error("describe_budget", "AccessDeniedException", "not allowed", 400)
        assert AwsBudgets(client, ACCOUNT, "gpu").read() == UnknownBudget("gpu", "AccessDeniedException: not allowed")


def outbound() -> tuple[AwsOutbound, Stubber, Stubber]:
    sns = client_of("sns", "eu-west-1")
    events = client_of("events", "eu-west-1")
    topics = {severity: f"arn:aws:sns:eu-west-1:{ACCOUNT}:{severity}" for severity in ("page", "warn", "info")}
    out = AwsOutbound(sns, events, topics, f"arn:aws:sns:eu-west-1:{ACCOUNT}:slack", "bus")
    return out, Stubber(sns), Stubber(events)


def test_mail_goes_to_the_topic_of_its_severity() -> None:
    out, sns, _ = outbound()
    wanted = {"TopicArn": f"arn:aws:sns:eu-west-1:{ACCOUNT}:page", "Subject": "s", "Message": "b"}
    sns.add_response("publish", {"MessageId": "1"}, wanted)
    with sns:
        out.mail("page", "s", "b")
    sns.assert_no_pending_responses()


def test_chat_gets_a_custom_notification() -> None:
    out, sns, _ = outbound()
    sent: list[str] = []
    sns.add_response("publish", {"MessageId": "1"}, {"TopicArn": ANY, "Message": ANY})
    sns.client.meta.events.register(
        "provide-client-params.sns.Publish", lambda params, **_: sent.append(params["Message"])
    )
    with sns:
        out.slack("title", "text")
    note = json.loads(sent[0])
    assert (note["version"], note["source"]) == ("1.0", "custom")
    assert note["content"] == {"textType": "client-markdown", "title": "title", "description": "text"}


def test_an_event_that_the_bus_refuses_is_an_error() -> None:
    out, _, events = outbound()
    refused = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException", "ErrorMessage": "slow"}]}
    events.add_response("put_events", refused, {"Entries": ANY})
    events.add_response("put_events", {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]}, {"Entries": ANY})
    with events:
        with pytest.raises(RuntimeError, match="refused Governor Decision: ThrottlingException"):
            out.event("Governor Decision", {"a": 1})
        out.event("Governor Decision", {"a": 1})
