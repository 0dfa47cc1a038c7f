"""Measure, print a table, and end non-zero when a limit is passed."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from bench.cold_start import ROOT, measure

FLEET = 10_000
MAX_CPU_SECONDS = 3.0
MAX_MEMORY_MIB = 256.0
MAX_COLD_START_RATIO = 1.5
COLD_START_RUNS = 9


def main() -> int:
    """Run every measurement; 0 when all limits hold."""
    lines: list[tuple[str, str, str, bool]] = []
    for name, spent in (("nothing to do", 100.0), ("stop level", 960.0)):
        seen = _scale(spent)
        cpu = max(seen["first_cpu_seconds"], seen["second_cpu_seconds"])
        memory = seen["peak_memory_mib"]
        limited = spent < 800
        lines.append(
            (
                f"{FLEET:,} instances, {name}: CPU of a run",
                f"{cpu:.2f} s",
                f"at most {MAX_CPU_SECONDS:g} s" if limited else "",
                cpu <= MAX_CPU_SECONDS or not limited,
            )
        )
        lines.append(
            (
                f"{FLEET:,} instances, {name}: peak memory",
                f"{memory:.0f} MiB",
                f"at most {MAX_MEMORY_MIB:g} MiB",
                memory <= MAX_MEMORY_MIB,
            )
        )
    for compiled in (True, False):
        start = measure(COLD_START_RUNS, compiled=compiled)
        what = "with bytecode" if compiled else "without bytecode"
        figures = f"{statistics.median(start.guard_seconds):.3f} / {statistics.median(start.empty_seconds):.3f} s"
        lines.append(
            (
                f"cold start {what}: guard_budget / empty function",
                f"{start.ratio:.2f}  ({figures})",
                f"at most {MAX_COLD_START_RATIO:g}",
                start.ratio <= MAX_COLD_START_RATIO,
            )
        )
    width = max(len(line[0]) for line in lines)
    for name, value, limit, holds in lines:
        print(f"{name:<{width}}  {value:<28} {limit:<18} {'ok' if holds else 'TOO MUCH'}")
    return 0 if all(holds for *_, holds in lines) else 1


def _scale(spent_usd: float) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.scale_run", str(FLEET), str(spent_usd)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(ROOT))
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
