"""WatchStack: who watches the Governor. Its alarms reach people without any Lambda."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.config import StageConfig
from stacks.constructs.governor_alarm import GovernorAlarm
from stacks.constructs.governor_function import GovernorFunction
from stacks.constructs.retired_check import RetiredCheck
from stacks.control import ControlStack
from stacks.environment import stack_options
from stacks.state import StateStack

NAMESPACE = "GpuGovernor"
# After that long without a completed run a function counts as dead. Deploys alone run the seeder and the check.
DEAD_AFTER_MINUTES: Mapping[str, int] = {
    "check_settings": 10,
    "guard_budget": 15,
    "confirm_actions": 15,
    "send_messages": 15,
}
OUTBOX_AGE_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Symptom:
    """A metric of our own by which a function says that something is wrong."""

    metric: str
    function: str
    pages: bool
    description: str


SYMPTOMS = (
    Symptom(
        "SettingsRejected",
        "check_settings",
        False,
        "The tree of settings is not valid; everything goes on with the last good settings. "
        "The message in the warn topic names the parameter and the rule.",
    ),
    Symptom(
        "SettingsUnreadable",
        "check_settings",
        True,
        "The settings cannot be read; everything goes on with the last good settings, and edits do nothing. "
        "Look at the log of check_settings for the error.",
    ),
    Symptom(
        "PauseUnreadable",
        "guard_budget",
        True,
        "The pause parameter cannot be read or understood, so the budget guard stops nothing. "
        "Write `off` or `on` into it.",
    ),
    Symptom(
        "StopFailures",
        "guard_budget",
        True,
        "Instances that had to be stopped for the budget still run and cost money. "
        "Look at the decision for the reason of each.",
    ),
    Symptom(
        "StartFailures",
        "confirm_actions",
        False,
        "Instances that are to be started again did not start yet; it is tried again, more seldom each time. "
        "The message in the warn topic names the reason, such as missing capacity or a key that may not be used.",
    ),
    Symptom(
        "StartsGivenUp",
        "confirm_actions",
        True,
        "Instances that are to be started again did not start for `restore/give-up-hours` and stay stopped. "
        "Look at the message for the reason, mend it, and run `governor restore`.",
    ),
    Symptom(
        "UnreadableBudgetNotice",
        "guard_budget",
        False,
        "AWS Budgets sent a notice that could not be understood. The guard reads the budget anyway; "
        "the text is in the message.",
    ),
)


class WatchStack(Stack):
    """Alarms on the Governor itself, its dashboard, and what keeps a stage from being deleted half done.

    It is the last stack that is deployed and the first that is deleted, so that the refusal leaves everything in place.
    """

    def __init__(self, scope: Construct, stage: StageConfig, *, state: StateStack, control: ControlStack) -> None:
        """Make the stack of a stage in its home Region."""
        super().__init__(
            scope,
            f"{stage.stack_prefix}-Watch",
            **stack_options(stage, stage.home_region, "alarms on the Governor itself, and its dashboard"),
        )
        self._stage = stage
        self._state = state
        self._functions = {one.name: one for one in control.functions}
        self.alarms: list[cloudwatch.IAlarm] = []
        for one in control.functions:
            self._watch_calls(one)
        for name, minutes in DEAD_AFTER_MINUTES.items():
            self._watch_life(name, minutes)
        for symptom in SYMPTOMS:
            self._watch_symptom(symptom)
        self._watch_outbox()
        queues = [one.failed for one in control.functions]
        queues += [one.undelivered for one in control.functions if one.undelivered is not None]
        dashboard = self._make_dashboard([*self.alarms, *(queue.alarm for queue in queues)])
        # Ref, and not `dashboard_name`, which is empty for a dashboard that CloudFormation names.
        CfnOutput(self, "DashboardName", value=_ref(dashboard))
        RetiredCheck(self, "Retired", function=control.check_retired.function).go_last(self)

    def _own_metric(self, name: str, function: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": function, "stage": self._stage.name},
            period=Duration.minutes(5),
            statistic="Sum",
        )

    def _watch_calls(self, one: GovernorFunction) -> None:
        name = _pascal_case(one.name)
        self._raise_alarm(
            f"{name}Errors",
            metric=one.function.metric_errors(period=Duration.minutes(5), statistic="Sum"),
            description=f"{one.name} ended with an error. Look at its log; what was not handled is tried again.",
            pages=False,
        )
        self._raise_alarm(
            f"{name}Throttles",
            metric=one.function.metric_throttles(period=Duration.minutes(5), statistic="Sum"),
            description=(
                f"{one.name} was not started at once, because one run was still at work or the account runs too many "
                "functions. Lambda tries again for five minutes."
            ),
            pages=False,
        )

    def _watch_life(self, function: str, minutes: int) -> None:
        """The dead-man alarm: no completed run is the symptom, so missing data is what it waits for."""
        alarm = GovernorAlarm(
            self,
            f"{_pascal_case(function)}Dead",
            metric=self._own_metric("RunCompleted", function),
            threshold=1,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=minutes // 5,
            missing=cloudwatch.TreatMissingData.BREACHING,
            description=(
                f"{function} has not completed a run for {minutes} minutes, so nobody does its work. "
                "Look at its log and its schedule."
            ),
            topic=self._state.page_topic,
        ).alarm
        self.alarms.append(alarm)

    def _watch_symptom(self, symptom: Symptom) -> None:
        self._raise_alarm(
            symptom.metric,
            metric=self._own_metric(symptom.metric, symptom.function),
            description=symptom.description,
            pages=symptom.pages,
        )

    def _watch_outbox(self) -> None:
        sender = self._functions["send_messages"]
        self._raise_alarm(
            "OutboxLate",
            metric=sender.function.metric(
                "IteratorAge", period=Duration.minutes(1), statistic="Maximum", unit=cloudwatch.Unit.MILLISECONDS
            ),
            threshold=Duration.minutes(OUTBOX_AGE_MINUTES).to_milliseconds(),
            description=(
                f"Messages have waited for more than {OUTBOX_AGE_MINUTES} minutes and do not reach people. "
                "Look at the log of send_messages."
            ),
            pages=True,
        )

    def _raise_alarm(
        self, construct_id: str, *, metric: cloudwatch.IMetric, description: str, pages: bool, threshold: float = 1
    ) -> None:
        alarm = GovernorAlarm(
            self,
            construct_id,
            metric=metric,
            threshold=threshold,
            comparison=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            description=description,
            topic=self._state.page_topic if pages else self._state.warn_topic,
        ).alarm
        self.alarms.append(alarm)

    def _make_dashboard(self, alarms: list[cloudwatch.IAlarm]) -> cloudwatch.Dashboard:
        functions = list(self._functions.values())
        stage = self._stage
        help_text = (
            f"# GPU Governor {stage.name}\n"
            f"Pause everything: set the parameter `/governor/{stage.name}/control/pause` to `on`. "
            f"Thresholds: the parameters below `/governor/{stage.name}/`."
        )
        return cloudwatch.Dashboard(
            self,
            "Dashboard",
            default_interval=Duration.hours(24),
            widgets=[
                [cloudwatch.TextWidget(markdown=help_text, width=24, height=3)],
                [cloudwatch.AlarmStatusWidget(title="Alarms", alarms=alarms, width=24, height=6)],
                [
                    self._graph("Completed runs", [self._own_metric("RunCompleted", one.name) for one in functions]),
                    self._graph("What is wrong", [self._own_metric(one.metric, one.function) for one in SYMPTOMS]),
                ],
                [
                    self._graph("Errors", [one.function.metric_errors(label=one.name) for one in functions]),
                    self._graph(
                        "Duration (p99)",
                        [one.function.metric_duration(label=one.name, statistic="p99") for one in functions],
                    ),
                ],
            ],
        )

    def _graph(self, title: str, metrics: list[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
        return cloudwatch.GraphWidget(title=title, left=metrics, width=12, height=6)


def _ref(dashboard: cloudwatch.Dashboard) -> str:
    resource = dashboard.node.default_child
    assert isinstance(resource, cloudwatch.CfnDashboard)
    return resource.ref


def _pascal_case(snake: str) -> str:
    return "".join(word.capitalize() for word in snake.split("_"))
