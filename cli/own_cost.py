"""What the Governor itself costs a month: counts of what is deployed, times list price.

List prices of us-east-1 without any free tier, so the true bill of a small account is lower. Read from the AWS price
pages (Lambda, EventBridge, CloudWatch, DynamoDB, KMS, SQS, SNS, S3; for DynamoDB the rates since its cut of November
2024) as quoted in March and June 2026. The counts are those of a stage at rest: the schedules of the control stack,
the alarms and the dashboard of the watch stack. A test compares them with the synthesised templates.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

PRICES_DATED = date(2026, 6, 13)
PRICES_SOURCE = "AWS price pages, us-east-1, list price without free tier"

MINUTES_PER_MONTH = 730 * 60
CHECK_SETTINGS_EVERY_MINUTES = 1
GUARD_BUDGET_EVERY_MINUTES = 5
CONFIRM_ACTIONS_EVERY_MINUTES = 5
ALARMS = 34
"""Errors and throttles of 6 functions, 4 dead-man alarms, 7 symptoms, the late outbox, and 10 dead-letter queues."""
METRICS = 11
"""RunCompleted of the 4 functions that run by themselves, and the 7 symptoms."""

LAMBDA_USD_PER_REQUEST = 0.20 / 1e6
LAMBDA_USD_PER_GB_SECOND = 0.0000133334
SCHEDULER_USD_PER_CALL = 1.00 / 1e6
ALARM_USD = 0.10
METRIC_USD = 0.30
DASHBOARD_USD = 3.00
KEY_USD = 1.00
KEY_USD_PER_REQUEST = 0.03 / 1e4
WRITE_USD = 0.625 / 1e6
READ_USD = 0.125 / 1e6
TABLE_USD_PER_GB = 0.25 + 0.20
LOG_USD_PER_GB = 0.50

CHECK_GB_SECONDS = 0.5 * 0.5
GUARD_GB_SECONDS = 1.0 * 1.5
GUARD_GB_SECONDS_PER_FURTHER_REGION = 1.0 * 0.5
CONFIRM_GB_SECONDS = 0.5 * 0.5
SEND_GB_SECONDS = 0.5 * 0.2
"""Memory of the function times seconds of a usual run."""

CHECK_READS, CHECK_WRITES = 2, 2
GUARD_READS, GUARD_WRITES = 8, 8
CONFIRM_READS, CONFIRM_WRITES = 3, 4
"""Request units of a run with nothing new; a transactional write counts twice."""

LOG_GB_PER_RUN = 2_000 / 1e9
KEY_REQUESTS_PER_RUN = 0.5
"""DynamoDB keeps a key for minutes, so that not each run asks for it."""
TABLE_GB = 1.0


@dataclass(frozen=True, slots=True)
class CostItem:
    """One line of the bill: so many units a month at a price."""

    what: str
    quantity: float
    unit: str
    unit_price_usd: float

    @property
    def usd_per_month(self) -> float:
        """Quantity times price."""
        return self.quantity * self.unit_price_usd


def estimate_own_cost(regions: int) -> tuple[CostItem, ...]:
    """The lines of the bill of one stage that watches so many Regions (1 or more)."""
    checks = MINUTES_PER_MONTH / CHECK_SETTINGS_EVERY_MINUTES
    guards = MINUTES_PER_MONTH / GUARD_BUDGET_EVERY_MINUTES
    confirms = MINUTES_PER_MONTH / CONFIRM_ACTIONS_EVERY_MINUTES
    sends = checks + guards + confirms
    runs = checks + guards + confirms + sends
    guard_gb_seconds = GUARD_GB_SECONDS + GUARD_GB_SECONDS_PER_FURTHER_REGION * max(0, regions - 1)
    gb_seconds = checks * CHECK_GB_SECONDS + guards * guard_gb_seconds
    gb_seconds += confirms * CONFIRM_GB_SECONDS + sends * SEND_GB_SECONDS
    writes = checks * CHECK_WRITES + guards * GUARD_WRITES + confirms * CONFIRM_WRITES
    reads = checks * CHECK_READS + guards * GUARD_READS + confirms * CONFIRM_READS
    return (
        CostItem("Lambda requests", runs, "request", LAMBDA_USD_PER_REQUEST),
        CostItem("Lambda time", gb_seconds, "GB-second", LAMBDA_USD_PER_GB_SECOND),
        CostItem("Scheduler", checks + guards + confirms, "call", SCHEDULER_USD_PER_CALL),
        CostItem("CloudWatch alarms", ALARMS, "alarm", ALARM_USD),
        CostItem("CloudWatch metrics", METRICS, "metric", METRIC_USD),
        CostItem("CloudWatch dashboard", 1, "dashboard", DASHBOARD_USD),
        CostItem("CloudWatch logs", runs * LOG_GB_PER_RUN, "GB", LOG_USD_PER_GB),
        CostItem("KMS key", 1, "key", KEY_USD),
        CostItem("KMS requests", runs * KEY_REQUESTS_PER_RUN, "request", KEY_USD_PER_REQUEST),
        CostItem("DynamoDB writes", writes, "write unit", WRITE_USD),
        CostItem("DynamoDB reads", reads, "read unit", READ_USD),
        CostItem("DynamoDB storage and backup", TABLE_GB, "GB", TABLE_USD_PER_GB),
    )
