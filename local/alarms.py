"""CloudWatch alarms on the virtual clock: dimensions, M of N, missing data, metric math; state changes on the bus.

Takes the place of the emulator's own evaluator, which looks at one window and ignores dimensions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from local.cloudformation import ResourceTypes
from local.emulator import Emulator
from local.events import Bus
from local.metric_math import evaluate
from local.options import Options
from local.patching import relied_on, replace

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """How the datapoints of an alarm become its state."""

    comparison: str
    threshold: float
    evaluation_periods: int
    datapoints_to_alarm: int
    treat_missing: str


def decide_state(rule: AlarmRule, datapoints: Sequence[float | None], before: State) -> State:
    """The state after the last `evaluation_periods` datapoints, oldest first; None is a missing one."""
    breaches = _COMPARISONS[rule.comparison]
    if all(point is None for point in datapoints):
        if rule.treat_missing == "missing":
            return "INSUFFICIENT_DATA"
        if rule.treat_missing == "ignore":
            return before
    is_missing_breach = rule.treat_missing == "breaching"
    breaching = [is_missing_breach if point is None else breaches(point, rule.threshold) for point in datapoints]
    return "ALARM" if sum(breaching) >= rule.datapoints_to_alarm else "OK"


class Alarms:
    """Evaluates every metric alarm once a virtual minute, and the composite alarms above it."""

    def __init__(
        self,
        emulator: Emulator,
        bus: Bus,
        resource_types: ResourceTypes,
        now: Callable[[], datetime],
        options: Options,
    ) -> None:
        self._cloudwatch = emulator.cloudwatch
        self._sqs = emulator.sqs
        self._bus = bus
        self._math = resource_types.math_metrics
        self._now = now
        self._options = options
        self._not_before: datetime | None = None
        self._scope = relied_on(emulator.responses, "request_scope", ("account_id", "region"))
        self._statistics = relied_on(emulator.cloudwatch, "_calc_stats", ("points",))
        self._statistic = relied_on(emulator.cloudwatch, "_stat_value", ("stats", "stat_name", "points"))
        self._dimensions_key = relied_on(emulator.cloudwatch, "_dims_key", ("dims",))
        self._keep_history = relied_on(
            emulator.cloudwatch,
            "_record_history",
            ("alarm_name", "old_state", "new_state", "reason", "alarm_type", "reason_data"),
        )
        self._evaluate_parents = relied_on(emulator.cloudwatch, "_evaluate_parent_alarms", ("child", "seen"))
        self._record_metric = relied_on(
            emulator.cloudwatch, "record_metric", ("namespace", "metric_name", "value", "unit", "dimensions")
        )
        self._dispatch = replace(
            emulator.cloudwatch,
            "_dispatch_alarm_actions",
            ("alarm", "old_state", "new_state", "reason"),
            self._dispatch_and_announce,
        )
        replace(emulator.cloudwatch, "_evaluate_all_alarms", (), _do_nothing)

    def clock_jumped(self, now: datetime) -> None:
        """Nothing before a jump counts: no alarm is judged on time that was never run."""
        self._not_before = now

    def run_minute(self, minute: datetime) -> None:
        """Measure the queues, then evaluate every metric alarm at this minute boundary."""
        if self._not_before is None:
            self._not_before = minute
        self._measure_queues()
        for (account_id, region, _), alarm in sorted(
            self._cloudwatch._alarms._data.items(), key=lambda one: str(one[0])
        ):
            with self._scope(account_id, region):
                self._evaluate(alarm, minute)

    def _measure_queues(self) -> None:
        for (account_id, region, _), queue in list(self._sqs._queues._data.items()):
            with self._scope(account_id, region):
                name = queue["attributes"]["QueueArn"].rsplit(":", 1)[1]
                now = self._now().timestamp()
                visible = [one for one in queue["messages"] if one.get("visible_at", 0) <= now]
                self._record_metric(
                    "AWS/SQS", "ApproximateNumberOfMessagesVisible", len(visible), "Count", {"QueueName": name}
                )

    def _evaluate(self, alarm: dict[str, Any], minute: datetime) -> None:
        periods = int(alarm.get("EvaluationPeriods") or 1)
        period = timedelta(seconds=self._period_seconds(alarm))
        if self._not_before is None or minute - periods * period < self._not_before:
            return
        rule = AlarmRule(
            comparison=alarm["ComparisonOperator"],
            threshold=float(alarm["Threshold"]),
            evaluation_periods=periods,
            datapoints_to_alarm=int(alarm.get("DatapointsToAlarm") or periods),
            treat_missing=alarm.get("TreatMissingData") or "missing",
        )
        starts = [minute - (periods - index) * period for index in range(periods)]
        datapoints = [self._datapoint(alarm, start, start + period) for start in starts]
        before: State = alarm["StateValue"]
        after = decide_state(rule, datapoints, before)
        if after != before:
            self._change(alarm, before, after, f"Threshold {rule.threshold} ({rule.comparison}): {datapoints}")

    def _change(self, alarm: dict[str, Any], before: State, after: State, reason: str) -> None:
        alarm.update(StateValue=after, StateReason=reason, StateUpdatedTimestamp=int(self._now().timestamp()))
        self._keep_history(alarm["AlarmName"], before, after, reason)
        self._cloudwatch._dispatch_alarm_actions(alarm, before, after, reason)
        self._evaluate_parents(alarm)

    def _period_seconds(self, alarm: Mapping[str, Any]) -> int:
        math = self._math.get(alarm["AlarmName"])
        if math is None:
            return int(alarm.get("Period") or 60)
        periods = [int(one["MetricStat"]["Period"]) for one in math if "MetricStat" in one]
        return max(periods, default=60)

    def _datapoint(self, alarm: Mapping[str, Any], start: datetime, end: datetime) -> float | None:
        math = self._math.get(alarm["AlarmName"])
        if math is None:
            statistic = alarm.get("ExtendedStatistic") or alarm.get("Statistic") or "Average"
            dimensions = _dimensions(alarm.get("Dimensions"))
            return self._measure(alarm["Namespace"], alarm["MetricName"], dimensions, statistic, start, end)
        values = {
            one["Id"]: self._measure(
                one["MetricStat"]["Metric"]["Namespace"],
                one["MetricStat"]["Metric"]["MetricName"],
                _dimensions(one["MetricStat"]["Metric"].get("Dimensions")),
                one["MetricStat"]["Stat"],
                start,
                end,
            )
            for one in math
            if "MetricStat" in one
        }
        return evaluate({one["Id"]: one["Expression"] for one in math if "Expression" in one}, values, _returned(math))

    def _measure(
        self, namespace: str, name: str, dimensions: dict[str, str], statistic: str, start: datetime, end: datetime
    ) -> float | None:
        points = self._cloudwatch._metrics.get((namespace, name, self._dimensions_key(dimensions))) or []
        inside = []
        for point in reversed(points):
            if point["Timestamp"] < start.timestamp():
                break
            if point["Timestamp"] < end.timestamp():
                inside.append(point)
        if not inside:
            return None
        value = self._statistic(self._statistics(inside), statistic, inside)
        return None if value is None else float(value)

    def _dispatch_and_announce(self, alarm: Mapping[str, Any], old_state: str, new_state: str, reason: str) -> None:
        self._dispatch(alarm, old_state, new_state, reason)
        arn = alarm["AlarmArn"]
        self._bus.put(
            source="aws.cloudwatch",
            detail_type="CloudWatch Alarm State Change",
            detail={
                "alarmName": alarm["AlarmName"],
                "state": {"value": new_state, "reason": reason, "timestamp": self._now().isoformat()},
                "previousState": {"value": old_state},
                "configuration": {"description": alarm.get("AlarmDescription", "")},
            },
            region=arn.split(":")[3],
            resources=[arn],
        )


def _dimensions(dimensions: Any) -> dict[str, str]:
    if isinstance(dimensions, Mapping):
        return dict(dimensions)
    return {one["Name"]: one["Value"] for one in dimensions or []}


def _returned(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Id of the one entry whose data the alarm looks at."""
    returning = [str(one["Id"]) for one in metrics if one.get("ReturnData", True)]
    return returning[0]


def _do_nothing() -> None:
    """Take the place of the emulator's evaluator."""
