"""AWS Budgets as it behaves: figures come hours late, one plain-text notice a threshold and period over SNS."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from local.budget_actions import BudgetActions
from local.emulator import Emulator
from local.moto_bridge import Moto
from local.options import Options
from local.patching import relied_on
from local.spend import Spend, read_prices

SERVICE_PRINCIPAL = "budgets.amazonaws.com"
_PERIOD_WORDS = {
    "MONTHLY": "for the current month",
    "QUARTERLY": "for the current quarter",
    "ANNUALLY": "for the current year",
}


class NoticeRefusedError(RuntimeError):
    """The topic's policy does not let AWS Budgets publish."""


@dataclass(frozen=True, slots=True)
class Notice:
    """The facts of one budget notice; amounts in USD, `threshold_usd` always absolute as AWS prints it."""

    budget_name: str
    account_id: str
    day: datetime
    kind: str
    time_unit: str
    limit_usd: float
    threshold_usd: float
    amount_usd: float

    def subject(self) -> str:
        """The SNS subject."""
        return f"AWS Budgets: {self.budget_name} has exceeded your alert threshold"

    def body(self) -> str:
        """The SNS message, line by line as AWS Budgets writes it."""
        threshold, amount = dollars(self.threshold_usd), dollars(self.amount_usd)
        if self.time_unit == "DAILY":
            period = f"per day. Yesterday, the {self.kind} Cost associated with this budget is {amount}"
        else:
            period = f"{_PERIOD_WORDS[self.time_unit]}. The {self.kind} Cost associated with this budget is {amount}"
        return "\n".join(
            (
                f"AWS Budget Notification {self.day:%B} {self.day.day}, {self.day.year}",
                f"AWS Account {self.account_id}",
                "",
                "Dear AWS Customer,",
                "",
                f"You requested that we alert you when the {self.kind} Cost associated with your {self.budget_name} "
                f"budget is greater than {threshold} {period}. You can find additional details below and by "
                "accessing the AWS Budgets dashboard [1].",
                "",
                f"Budget Name: {self.budget_name}",
                "Budget Type: Cost",
                f"Budgeted Amount: {dollars(self.limit_usd)}",
                f"Alert Type: {self.kind}",
                f"Alert Threshold: > {threshold}",
                f"{self.kind} Amount: {amount}",
                "",
                "[1] https://console.aws.amazon.com/costmanagement/home#/budgets",
                "",
            )
        )


def dollars(amount_usd: float) -> str:
    """An amount as AWS Budgets prints it."""
    return f"${amount_usd:,.2f}"


class Budgets:
    """Refreshes every budget after a seeded lag and sends its notices. `now` is the virtual clock."""

    def __init__(
        self,
        emulator: Emulator,
        moto: Moto,
        actions: BudgetActions,
        now: Callable[[], datetime],
        options: Options,
    ) -> None:
        self._emulator = emulator
        self._actions = actions
        self._now = now
        self._options = options
        self._random = random.Random(options.seed)
        self.spend = Spend(moto, read_prices(Path(options.prices_csv)))
        self._forecast_usd: float | None = None
        self._refresh_at: dict[str, datetime] = {}
        self._period_of: dict[str, str] = {}
        self._seen_period: dict[str, str] = {}
        self._turns_at: dict[str, datetime] = {}
        self._fanout = relied_on(
            emulator.sns,
            "publish_internal",
            (
                "topic_arn",
                "message",
                "subject",
                "message_structure",
                "message_attributes",
                "message_group_id",
                "message_deduplication_id",
            ),
        )
        self._key = relied_on(emulator.kms, "_resolve_key", ("key_id_or_arn",))
        self._topic = relied_on(emulator.sns, "_topic_by_arn_any_scope", ("topic_arn",))
        self._evaluate_policy = relied_on(
            emulator.iam_evaluator, "evaluate_resource_policy", ("doc", "ctx", "service", "named_only", "direct_only")
        )
        self._scope = relied_on(emulator.responses, "request_scope", ("account_id", "region"))

    def run_minute(self, minute: datetime) -> None:
        """Charge the minute and refresh the budgets whose time has come."""
        self.spend.accrue(minute)
        with self._scope(self._options.account_id, self._options.region):
            for name in self._names():
                self._notice_turn(name, minute)
                if minute >= self._next_refresh(name, minute):
                    self._refresh_at[name] = minute + self._lag()
                    if self._is_in_old_period(name, minute):
                        self._refresh_at[name] = min(self._refresh_at[name], self._turns_at[name])
                    self._refresh(name, minute)

    def clock_jumped(self, now: datetime) -> None:
        """Start the lag of every budget anew and charge nothing for the jump; the first figures are of its period."""
        self._refresh_at.clear()
        self._seen_period.clear()
        self._turns_at.clear()
        self.spend.jump(now)

    def set_spend(self, amount_usd: float, forecast_usd: float | None) -> None:
        """Set the true month-to-date cost, and the forecast (None: too little history for one, as at first)."""
        self.spend.set(self._now(), amount_usd)
        self._forecast_usd = forecast_usd

    def refresh_now(self) -> None:
        """Let every budget see the true cost at once, without waiting for the lag."""
        self.spend.accrue(self._now())
        with self._scope(self._options.account_id, self._options.region):
            for name in self._names():
                self._turns_at.pop(name, None)
                self._refresh_at[name] = self._now() + self._lag()
                self._refresh(name, self._now())

    def next_refreshes(self) -> dict[str, str]:
        """When each budget sees new figures next, ISO times by budget name."""
        return {name: moment.isoformat() for name, moment in sorted(self._refresh_at.items())}

    def _names(self) -> list[str]:
        return sorted(self._emulator.budgets._budgets.keys())

    def _next_refresh(self, name: str, minute: datetime) -> datetime:
        return self._refresh_at.setdefault(name, minute + self._lag())

    def _notice_turn(self, name: str, minute: datetime) -> None:
        """At the turn of its period a budget goes on with the old one for 8 to 24 hours, as its figures do."""
        period = _period(self._emulator.budgets._budgets[name]["TimeUnit"], minute)
        if self._seen_period.setdefault(name, period) != period:
            self._seen_period[name] = period
            self._turns_at[name] = minute + self._lag()
            self._refresh_at[name] = min(self._next_refresh(name, minute), self._turns_at[name])

    def _is_in_old_period(self, name: str, now: datetime) -> bool:
        return name in self._turns_at and now < self._turns_at[name]

    def _lag(self) -> timedelta:
        return timedelta(
            hours=self._random.uniform(self._options.budget_lag_min_hours, self._options.budget_lag_max_hours)
        )

    def _refresh(self, name: str, now: datetime) -> None:
        budget = self._emulator.budgets._budgets[name]
        is_old = self._is_in_old_period(name, now)
        read = self.spend.last_month_usd if is_old else self.spend.month_to_date_usd
        actual_usd = read(budget.get("FilterExpression"))
        budget["CalculatedSpend"] = {"ActualSpend": _amount(actual_usd)}
        if self._forecast_usd is not None:
            budget["CalculatedSpend"]["ForecastedSpend"] = _amount(self._forecast_usd)
        budget["LastUpdatedTime"] = now.timestamp()
        entries = self._emulator.budgets._notification_store.get(name, [])
        period = _period(budget["TimeUnit"], now)
        if not is_old and self._period_of.get(name) != period:
            self._period_of[name] = period
            self._actions.period_began(name)
            for entry in entries:
                entry["notification"]["NotificationState"] = "OK"
        self._actions.budget_refreshed(budget, actual_usd, self._forecast_usd)
        for entry in entries:
            self._check(budget, entry, actual_usd, now)

    def _check(self, budget: Mapping[str, Any], entry: Mapping[str, Any], actual_usd: float, now: datetime) -> None:
        notification = entry["notification"]
        kind = notification["NotificationType"]
        amount_usd = actual_usd if kind == "ACTUAL" else self._forecast_usd
        limit_usd = float(budget["BudgetLimit"]["Amount"])
        threshold_usd = _threshold_usd(notification, limit_usd)
        if amount_usd is None or amount_usd <= threshold_usd:
            if kind == "FORECASTED":
                notification["NotificationState"] = "OK"  # a forecast may cross again in the same period
            return
        if notification["NotificationState"] == "ALARM":
            return
        notification["NotificationState"] = "ALARM"
        notice = Notice(
            budget_name=budget["BudgetName"],
            account_id=self._options.account_id,
            day=now,
            kind=kind,
            time_unit=budget["TimeUnit"],
            limit_usd=limit_usd,
            threshold_usd=threshold_usd,
            amount_usd=amount_usd,
        )
        for subscriber in entry["subscribers"]:
            if subscriber["SubscriptionType"] == "SNS":
                self._publish(subscriber["Address"], notice)

    def _publish(self, topic_arn: str, notice: Notice) -> None:
        self._require_permission(topic_arn, notice.budget_name)
        self._require_key_permission(topic_arn)
        if self._fanout(topic_arn, notice.body(), notice.subject()) is None:
            raise NoticeRefusedError(f"budget {notice.budget_name}: there is no topic {topic_arn}")

    def _require_permission(self, topic_arn: str, budget_name: str) -> None:
        """AWS Budgets publishes only where the topic's policy lets it; a stack that forgot that must not pass here."""
        topic = self._topic(topic_arn)
        context = self._service_context("sns:Publish", topic_arn, topic_arn, budget_name)
        policy = (topic or {}).get("attributes", {}).get("Policy") or "{}"
        if self._evaluate_policy(policy, context, service=SERVICE_PRINCIPAL).decision != "Allow":
            raise NoticeRefusedError(f"the policy of {topic_arn} does not let AWS Budgets publish")

    def _require_key_permission(self, topic_arn: str) -> None:
        """An encrypted topic takes a notice only if its key lets AWS Budgets use it; the AWS-managed key never does."""
        key_id = (self._topic(topic_arn) or {}).get("attributes", {}).get("KmsMasterKeyId")
        if not key_id:
            return
        with self._scope(self._options.account_id, topic_arn.split(":")[3]):
            key = self._key(key_id) or {}
        for action in ("kms:Decrypt", "kms:GenerateDataKey"):
            context = self._service_context(action, key.get("Arn", "*"), topic_arn)
            policy = key.get("Policy") or "{}"
            if self._evaluate_policy(policy, context, service=SERVICE_PRINCIPAL).decision != "Allow":
                raise NoticeRefusedError(f"the key of {topic_arn} does not let AWS Budgets do {action}")

    def _service_context(self, action: str, resource_arn: str, topic_arn: str, budget_name: str = "*") -> Any:
        account_id = self._options.account_id
        return self._emulator.iam_evaluator.EvalContext(
            principal_arn="*",
            principal_type="Service",
            principal_account="",
            action=action,
            resource_arn=resource_arn,
            region=topic_arn.split(":")[3],
            secure_transport=True,
            service_context={
                "aws:sourcearn": f"arn:aws:budgets::{account_id}:budget/{budget_name}",
                "aws:sourceaccount": account_id,
            },
        )


def _threshold_usd(notification: Mapping[str, Any], limit_usd: float) -> float:
    threshold = float(notification["Threshold"])
    return threshold if notification.get("ThresholdType") == "ABSOLUTE_VALUE" else limit_usd * threshold / 100


def _period(time_unit: str, now: datetime) -> str:
    if time_unit == "DAILY":
        return f"{now:%Y-%m-%d}"
    if time_unit == "QUARTERLY":
        return f"{now.year}-Q{(now.month - 1) // 3 + 1}"
    return f"{now:%Y}" if time_unit == "ANNUALLY" else f"{now:%Y-%m}"


def _amount(amount_usd: float) -> dict[str, str]:
    return {"Amount": f"{amount_usd:.3f}", "Unit": "USD"}
