"""The price catalogue that is shipped with the layer."""

from __future__ import annotations

import csv
from datetime import date
from functools import cache
from pathlib import Path

from governor.domain.prices import PriceCatalogue

CATALOGUE_REGION = "us-east-1"
CATALOGUE_DATE = date(2026, 7, 20)
_FILE = Path(__file__).parent.parent / "data" / "prices.csv"


@cache
def load_catalogue() -> PriceCatalogue:
    """On-demand Linux list prices of `CATALOGUE_REGION` at `CATALOGUE_DATE`, USD per hour."""
    with _FILE.open(encoding="utf-8") as lines:
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        prices = {row["instance_type"]: float(row["usd_per_hour"]) for row in rows}
    return PriceCatalogue(CATALOGUE_REGION, CATALOGUE_DATE, prices)
