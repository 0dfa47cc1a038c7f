"""One process: a fleet of the given size, one run of guard_budget; prints CPU seconds of the run and peak memory."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
import time

from bench.world import EVENT, make_deps
from lambdas.guard_budget.handler import handler


def main(size: int, spent_usd: float) -> None:
    """Print a JSON object: level, stops, CPU seconds of a second run with nothing new, peak memory of the process."""
    deps = make_deps(size, spent_usd)
    with contextlib.redirect_stdout(io.StringIO()):
        began = time.process_time()
        first = handler(EVENT, None, deps)
        first_seconds = time.process_time() - began
        began = time.process_time()
        handler({**EVENT, "time": "2026-11-20T12:05:00+00:00"}, None, deps)
        second_seconds = time.process_time() - began
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "level": first["level"],
                "stopped": len(first["stopped"]),
                "first_cpu_seconds": first_seconds,
                "second_cpu_seconds": second_seconds,
                "peak_memory_mib": peak_mib,
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
