"""The estimate of the Governor's own cost counts what the stacks really make."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from aws_cdk import App

from cli import own_cost
from stacks.config import load_stage, read_context
from tests.infrastructure.conftest import add_stage, make_artifacts


def test_counts_are_those_of_the_synthesised_stacks(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path / "cdk.out"), context=read_context())
    add_stage(app, load_stage("dev"), make_artifacts(tmp_path))
    resources: list[dict[str, Any]] = [
        resource for stack in app.synth().stacks for resource in stack.template["Resources"].values()
    ]
    kinds = Counter(resource["Type"] for resource in resources)
    items = {item.what: item.quantity for item in own_cost.estimate_own_cost(1)}
    assert kinds["AWS::CloudWatch::Alarm"] == items["CloudWatch alarms"]
    assert kinds["AWS::CloudWatch::Dashboard"] == items["CloudWatch dashboard"]
    assert kinds["AWS::KMS::Key"] == items["KMS key"]
    own_metrics = {
        (alarm["Properties"]["MetricName"], str(alarm["Properties"]["Dimensions"]))
        for alarm in resources
        if alarm["Type"] == "AWS::CloudWatch::Alarm" and alarm["Properties"].get("Namespace") == "GpuGovernor"
    }
    assert len(own_metrics) == items["CloudWatch metrics"]
    rates = [r["Properties"]["ScheduleExpression"] for r in resources if r["Type"] == "AWS::Scheduler::Schedule"]
    expected = (
        own_cost.CHECK_SETTINGS_EVERY_MINUTES,
        own_cost.GUARD_BUDGET_EVERY_MINUTES,
        own_cost.CONFIRM_ACTIONS_EVERY_MINUTES,
    )
    assert sorted(rates) == sorted(f"rate({minutes} minute{'' if minutes == 1 else 's'})" for minutes in expected)
