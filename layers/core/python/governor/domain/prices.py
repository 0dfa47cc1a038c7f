"""List prices of instance types. An unknown price is None: never zero, never a guess without its label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Price:
    """USD per instance-hour, when it was read, and the Region it holds for."""

    usd_per_hour: float
    dated: date
    region: str


@dataclass(frozen=True, slots=True)
class PriceCatalogue:
    """On-demand Linux list prices of one Region, used for the others as an approximation that says so."""

    region: str
    dated: date
    usd_per_hour: Mapping[str, float]

    def price_of(self, instance_type: str) -> Price | None:
        """Price of a type, or None where the catalogue has none."""
        usd = self.usd_per_hour.get(instance_type)
        return None if usd is None else Price(usd, self.dated, self.region)
