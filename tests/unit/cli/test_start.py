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


def processor_seconds(*arguments: str) -> float:
    """What one run of Python takes of the processor: a busy machine does not change it much."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_help_takes_little_more_than_loading_what_draws_it() -> None:
    """As a ratio, taken in turns; about 0.45 s in all on a machine on which an empty Python takes 0.02 s."""
    drawing, asking = [], []
    for _ in range(5):
        drawing.append(processor_seconds("-c", "import typer.rich_utils"))
        asking.append(processor_seconds("-m", "cli.main", "--help"))
    assert min(asking) < 1.6 * min(drawing)
