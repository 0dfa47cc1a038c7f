"""The command starts fast, because verbs import what they need when they run."""

from __future__ import annotations

import os
import subprocess
import sys

HEAVY = ("boto3", "botocore", "pydantic", "rich", "governor", "stacks", "aws_cdk")


def test_nothing_heavy_is_imported_before_a_verb_runs() -> None:
    code = f"import sys, cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_help_comes_within_half_a_second() -> None:
    """Measured as processor time: on an idle machine that is the wait, and a busy one does not change it much."""
    taken = []
    for _ in range(5):
        before = os.times()
        answer = subprocess.run(
            [sys.executable, "-m", "cli.main", "--help"], capture_output=True, text=True, check=True
        )
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
        assert "Usage: governor" in answer.stdout
    assert min(taken) < 0.5
