"""RelayStack: brings the events of one further Region to the home Region."""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.config import StageConfig
from stacks.environment import stack_options

# What happens to instances. Each event keeps its own Region, so that functions see no difference.
RELAYED_DETAIL_TYPES = ("EC2 Instance State-change Notification",)


class RelayStack(Stack):
    """One rule to the default bus of the home Region, where the events of the home Region are as well.

    It has no dead-letter queue: such events are best effort by nature, an old one is worthless, and the schedules see
    whatever was missed.
    """

    def __init__(self, scope: Construct, stage: StageConfig, region: str) -> None:
        """Make the stack of a stage in a further Region."""
        super().__init__(
            scope,
            f"{stage.stack_prefix}-Relay-{region}",
            **stack_options(stage, region, f"relays events to {stage.home_region}"),
        )
        own_rules = f"arn:{stage.partition}:events:{region}:{Aws.ACCOUNT_ID}:rule/{stage.stack_prefix}-*"
        home_bus = f"arn:{stage.partition}:events:{stage.home_region}:{Aws.ACCOUNT_ID}:event-bus/default"
        role = iam.Role(
            self,
            "Role",
            description=f"Lets the relay of GPU Governor {stage.name} put events on the bus of {stage.home_region}",
            assumed_by=iam.ServicePrincipal(
                "events.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                    "ArnLike": {"aws:SourceArn": own_rules},
                },
            ),
            inline_policies={
                "Relay": iam.PolicyDocument(
                    statements=[iam.PolicyStatement(actions=["events:PutEvents"], resources=[home_bus])]
                )
            },
        )
        events.CfnRule(
            self,
            "Rule",
            description=f"What happens to instances in {region}",
            event_pattern={"source": ["aws.ec2"], "detail-type": list(RELAYED_DETAIL_TYPES)},
            targets=[events.CfnRule.TargetProperty(id="home", arn=home_bus, role_arn=role.role_arn)],
        )
