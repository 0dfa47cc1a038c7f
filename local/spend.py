"""The account's true bill: running GPU instances times list price on the virtual clock, or an amount that was set."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from local.moto_bridge import Moto

EC2_SERVICE = "Amazon Elastic Compute Cloud - Compute"


def read_prices(path: Path) -> dict[str, float]:
    """List price in USD per hour by instance type; every price the same in all Regions."""
    with path.open(encoding="utf-8") as lines:
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        return {row["instance_type"]: float(row["usd_per_hour"]) for row in rows}


def month_of(moment: datetime) -> str:
    """The billing month of a UTC moment."""
    return moment.strftime("%Y-%m")


class Spend:
    """Month-to-date cost in USD by (Region, instance type)."""

    def __init__(self, moto: Moto, prices_usd_per_hour: Mapping[str, float]) -> None:
        self._moto = moto
        self._prices = prices_usd_per_hour
        self._month = ""
        self._accrued_until: datetime | None = None
        self._base_usd = 0.0
        self._accrued: dict[tuple[str, str], float] = {}
        self._last_base_usd = 0.0
        self._last_accrued: dict[tuple[str, str], float] = {}

    def jump(self, now: datetime) -> None:
        """The clock jumped: nothing is charged for the time in between."""
        self._accrued_until = now
        self._begin_month(now)

    def accrue(self, now: datetime) -> None:
        """Charge what runs now for the time since the last call."""
        self._begin_month(now)
        if self._accrued_until is not None and now > self._accrued_until:
            hours = (now - self._accrued_until) / timedelta(hours=1)
            for region, instance_type in self._running():
                key = (region, instance_type)
                self._accrued[key] = self._accrued.get(key, 0.0) + hours * self._prices.get(instance_type, 0.0)
        self._accrued_until = now

    def set(self, now: datetime, amount_usd: float) -> None:
        """From now on the month has cost `amount_usd`, for every budget alike; running instances add to it."""
        self._begin_month(now)
        self._accrued_until = now
        self._accrued.clear()
        self._base_usd = amount_usd

    def month_to_date_usd(self, filter_expression: Mapping[str, Any] | None) -> float:
        """The cost of this month that a budget's filter covers."""
        return self._base_usd + _covered_usd(self._accrued, filter_expression)

    def last_month_usd(self, filter_expression: Mapping[str, Any] | None) -> float:
        """The final cost of the month before, as far as this run has seen it."""
        return self._last_base_usd + _covered_usd(self._last_accrued, filter_expression)

    def run_rate_usd_per_hour(self) -> float:
        """What runs now, in USD per hour."""
        return sum(self._prices.get(instance_type, 0.0) for _, instance_type in self._running())

    def _begin_month(self, now: datetime) -> None:
        if month_of(now) != self._month:
            self._last_base_usd, self._last_accrued = self._base_usd, self._accrued
            self._month = month_of(now)
            self._base_usd = 0.0
            self._accrued = {}

    def _running(self) -> list[tuple[str, str]]:
        with self._moto.lock:
            return [
                (region, instance.instance_type)
                for region in self._moto.used_regions()
                for reservation in self._moto.ec2(region).reservations.values()
                for instance in reservation.instances
                if instance.state == "running"
            ]


def _covered_usd(costs: Mapping[tuple[str, str], float], filter_expression: Mapping[str, Any] | None) -> float:
    return sum(usd for key, usd in costs.items() if filter_expression is None or covers(filter_expression, *key))


def covers(expression: Mapping[str, Any], region: str, instance_type: str) -> bool:
    """Whether a budget's FilterExpression covers an instance; dimensions that are not simulated cover everything."""
    if "And" in expression:
        return all(covers(one, region, instance_type) for one in expression["And"])
    if "Or" in expression:
        return any(covers(one, region, instance_type) for one in expression["Or"])
    if "Not" in expression:
        return not _is_simulated(expression["Not"]) or not covers(expression["Not"], region, instance_type)
    dimension = expression.get("Dimensions") or {}
    facts = _facts(region, instance_type)
    return dimension.get("Key") not in facts or facts[dimension["Key"]] in dimension["Values"]


def _facts(region: str, instance_type: str) -> dict[str, str]:
    return {
        "INSTANCE_TYPE": instance_type,
        "INSTANCE_TYPE_FAMILY": instance_type.partition(".")[0],
        "REGION": region,
        "SERVICE": EC2_SERVICE,
    }


def _is_simulated(expression: Mapping[str, Any]) -> bool:
    return (expression.get("Dimensions") or {}).get("Key") in _facts("", "")
