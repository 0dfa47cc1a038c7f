"""A queue for what could not be delivered or handled, with an alarm."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.governor_alarm import GovernorAlarm


class DeadLetterQueue(Construct):
    """Keeps events for 14 days and raises an alarm as soon as one lies in it.

    It is encrypted by SQS and not with the key of the stage: the last resort must not depend on the key.
    """

    def __init__(self, scope: Construct, construct_id: str, *, holds: str, alarm_topic: sns.ITopic) -> None:
        """Make the queue; `holds` says in words what lies in it."""
        super().__init__(scope, construct_id)
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        acknowledge(self.queue, "AwsSolutions-SQS3", "This is a dead-letter queue.")
        self.alarm = GovernorAlarm(
            self,
            "Alarm",
            metric=self.queue.metric_approximate_number_of_messages_visible(
                period=Duration.minutes(1), statistic="Maximum"
            ),
            threshold=1,
            comparison=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            description=f"{holds} Look at the messages in the queue, and at the log of the function for the reason.",
            topic=alarm_topic,
        ).alarm
