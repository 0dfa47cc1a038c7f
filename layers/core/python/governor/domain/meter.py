"""A first meter: what runs, times its list price. It knows the spend now, where the bill knows it tomorrow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from governor.domain.fleet import Instance, InstanceState
from governor.domain.prices import PriceCatalogue

BILLING_LAG_HOURS = 24.0
"""AWS Budgets data is 8 to 24 hours behind the spend (AWS documentation, "Managing your costs with AWS Budgets")."""

BILLED_STATES = frozenset({InstanceState.RUNNING})
"""EC2 bills instance hours while `running` (Amazon EC2 User Guide, "Instance lifecycle")."""


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Run rate (USD per hour) and least spend of the period (USD), at list price, with what had no price."""

    run_rate_usd_per_hour: float
    spent_at_least_usd: float
    unpriced: tuple[str, ...]


def period_of(now: datetime) -> str:
    """The budget period of `now`: its calendar month in UTC, such as `2026-11`."""
    return f"{now:%Y-%m}"


def period_start(now: datetime) -> datetime:
    """First moment of the month of `now`."""
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def period_end(now: datetime) -> datetime:
    """First moment of the next month."""
    return period_start(period_start(now) + timedelta(days=32))


def hours_left(now: datetime) -> float:
    """Hours from `now` to the end of its month."""
    return (period_end(now) - now).total_seconds() / 3600


def is_billed(instance: Instance) -> bool:
    """True while EC2 charges for the instance's hours."""
    return instance.state in BILLED_STATES


def read_meter(instances: tuple[Instance, ...], prices: PriceCatalogue, now: datetime) -> MeterReading:
    """Sum of running seconds times list price since the later of launch and the start of the month.

    Lower bound: instances that already ended are not seen by it.
    """
    rate = spent = 0.0
    unpriced: set[str] = set()
    begin = period_start(now)
    for instance in instances:
        if not is_billed(instance):
            continue
        price = prices.price_of(instance.instance_type)
        if price is None:
            unpriced.add(instance.instance_type)
            continue
        rate += price.usd_per_hour
        if instance.launched_at is not None:
            seconds = (now - max(instance.launched_at, begin)).total_seconds()
            spent += max(seconds, 0.0) * price.usd_per_hour / 3600
    return MeterReading(rate, spent, tuple(sorted(unpriced)))
