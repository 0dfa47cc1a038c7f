"""What a local AWS is started with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

LOOPBACK = "127.0.0.1"
ACCESS_KEY_ID = "test"
SECRET_ACCESS_KEY = "test"


@dataclass(frozen=True, slots=True)
class Options:
    """Fixed for the life of one local AWS.

    Units: `budget_lag_*_hours` in virtual hours between two refreshes of a budget.
    """

    work_dir: str
    lambda_runtime_dir: str
    prices_csv: str
    port: int = 0
    account_id: str = "123456789012"
    region: str = "us-east-1"
    seed: int = 1
    budget_lag_min_hours: float = 8.0
    budget_lag_max_hours: float = 24.0
    empty_parameter_pages: bool = False

    def to_json(self) -> str:
        """The options as one JSON object."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Options:
        """Inverse of `to_json`. Raises TypeError on an unknown field."""
        return Options(**json.loads(text))

    @property
    def work_path(self) -> Path:
        return Path(self.work_dir)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a running local AWS answers."""

    url: str
    account_id: str
    region: str

    def environment(self) -> dict[str, str]:
        """The usual AWS variables that point an SDK, the CDK CLI or the `governor` CLI at it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
