"""A CloudWatch alarm on the Governor itself that tells people without any Lambda."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct


class GovernorAlarm(Construct):
    """One alarm that publishes to a topic when it rises.

    It says nothing when it is over: each new alarm goes from no data to OK once, and that would be a mail an alarm.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        metric: cloudwatch.IMetric,
        threshold: float,
        comparison: cloudwatch.ComparisonOperator,
        description: str,
        topic: sns.ITopic,
        periods: int = 1,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        """Make the alarm; it rises after `periods` breaching periods of the metric in a row."""
        super().__init__(scope, construct_id)
        self.alarm = cloudwatch.Alarm(
            self,
            "Resource",
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            datapoints_to_alarm=periods,
            treat_missing_data=missing,
            alarm_description=description,
        )
        self.alarm.add_alarm_action(actions.SnsAction(topic))
