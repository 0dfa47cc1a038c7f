"""StateStack: what must outlive a deploy."""

from __future__ import annotations

from aws_cdk import CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from constructs import Construct

from stacks.config import StageConfig
from stacks.constructs.snapshot_bucket import SnapshotBucket
from stacks.constructs.stage_key import StageKey
from stacks.constructs.state_table import StateTable
from stacks.constructs.topic import BudgetTopic, MessageTopic
from stacks.environment import stack_options


class StateStack(Stack):
    """Key, table, bucket, bus and topics."""

    def __init__(self, scope: Construct, stage: StageConfig) -> None:
        """Make the stack of a stage in its home Region."""
        super().__init__(
            scope,
            f"{stage.stack_prefix}-State",
            **stack_options(stage, stage.home_region, "table, bucket, bus, topics and their key"),
        )
        removal_policy = RemovalPolicy.RETAIN if stage.keep_state else RemovalPolicy.DESTROY
        self.key = StageKey(self, "Key", stage_name=stage.name, removal_policy=removal_policy).key
        self.table = StateTable(self, "Table", key=self.key, removal_policy=removal_policy).table
        self.bucket = SnapshotBucket(self, "Snapshots", key=self.key, removal_policy=removal_policy).bucket
        self.bus = events.EventBus(self, "Bus", description=f"What GPU Governor {stage.name} decided and did")
        title = f"GPU Governor {stage.name}"
        self.page_topic = MessageTopic(
            self, "Page", title=f"{title} page", key=self.key, emails=stage.subscribers.page
        ).topic
        self.warn_topic = MessageTopic(
            self, "Warn", title=f"{title} warn", key=self.key, emails=stage.subscribers.warn
        ).topic
        self.info_topic = MessageTopic(
            self, "Info", title=f"{title} info", key=self.key, emails=stage.subscribers.info
        ).topic
        self.slack_topic = MessageTopic(self, "Slack", title=f"{title} slack", key=self.key).topic
        self.budget_topic = BudgetTopic(self, "BudgetTopic", key=self.key).topic
        self._say_outputs(stage)

    def _say_outputs(self, stage: StageConfig) -> None:
        outputs = {
            "TableName": self.table.table_name,
            "BusName": self.bus.event_bus_name,
            "BudgetTopicArn": self.budget_topic.topic_arn,
            "PageTopicArn": self.page_topic.topic_arn,
            "WarnTopicArn": self.warn_topic.topic_arn,
            "InfoTopicArn": self.info_topic.topic_arn,
            "SlackTopicArn": self.slack_topic.topic_arn,
            "SnapshotBucketName": self.bucket.bucket_name,
            "KeyArn": self.key.key_arn,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
        if stage.keep_state:
            kept = f"{self.table.table_name} {self.bucket.bucket_name} {self.key.key_id}"
            why = (
                "Table, bucket and key stay when this stack is deleted: they hold which instances were stopped and "
                "why, and without the key neither can be read. Delete them by hand, the key last."
            )
        else:
            kept = "nothing"
            why = (
                "Table, bucket and key go when this stack is deleted (keep_state is false for this stage); a bucket "
                "that is not empty has to be emptied first."
            )
        CfnOutput(self, "KeptOnDelete", value=kept, description=why)
