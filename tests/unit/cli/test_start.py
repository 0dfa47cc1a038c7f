"""The command starts fast, because verbs import what they need when they run."""

from __future__ import annotations

import subprocess
import sys
import time

HEAVY = ("boto3", "botocore", "pydantic", "rich", "governor", "stacks", "aws_cdk")


def test_nothing_heavy_is_imported_before_a_verb_runs() -> None:
    code = f"import sys, cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_help_comes_within_half_a_second() -> None:
    taken = []
    for _ in range(5):
        begin = time.perf_counter()
        answer = subprocess.run(
            [sys.executable, "-m", "cli.main", "--help"], capture_output=True, text=True, check=True
        )
        taken.append(time.perf_counter() - begin)
    assert "Usage: governor" in answer.stdout
    assert min(taken) < 0.5
