"""What a local AWS answers about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of a run. `now` is the virtual time."""

    now: datetime
    minutes_run: int
    deliveries: int
    waiting: int
    calls: int
    cold_starts: int
    function_processes: Mapping[str, int]
    roles_enforced: bool


@dataclass(frozen=True, slots=True)
class Bill:
    """The true bill, which budgets learn of later."""

    month_to_date_usd: float
    run_rate_usd_per_hour: float
    next_refresh: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class FleetInstance:
    """One instance of the sample fleet; `role` says what it stands for."""

    role: str
    instance_id: str
    instance_type: str
    tags: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The instance as plain JSON."""
        return {
            "role": self.role,
            "instance_id": self.instance_id,
            "instance_type": self.instance_type,
            "tags": dict(self.tags),
        }
