"""Ten thousand instances are a run of seconds and of little memory (see `make bench` for the figures)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("spent_usd", [100.0, 960.0], ids=["nothing to do", "stop level"])
def test_a_run_over_ten_thousand_instances_takes_at_most_3_seconds_of_cpu_and_256_mib(spent_usd: float) -> None:
    command = [sys.executable, "-m", "bench.scale_run", "10000", str(spent_usd)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["level"] == ("below" if spent_usd < 800 else "stop")
    assert max(seen["first_cpu_seconds"], seen["second_cpu_seconds"]) <= 3.0
    assert seen["peak_memory_mib"] <= 256.0
