"""A function of the Governor with our defaults, and what wakes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import Aws, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from stacks.config import StageConfig
from stacks.constructs.acknowledged import acknowledge, acknowledge_wildcards
from stacks.constructs.dead_letter_queue import DeadLetterQueue
from stacks.constructs.policy import policy_document
from stacks.function_permissions import FUNCTIONS
from stacks.statements import Scope

# Something older is only a reason to look again, and the schedule does that anyway.
MAX_EVENT_AGE = Duration.seconds(300)
RETRY_ATTEMPTS = 2
# What a scheduled run is told; the handler takes its clock from `time`.
SCHEDULE_INPUT = '{"source": "governor.schedule", "time": "<aws.scheduler.scheduled-time>"}'


class GovernorFunction(Construct):
    """One function: own role from the permissions table, own log group, own queues with alarms.

    `failed` takes events that the function got and could not handle. `undelivered` takes events that never reached
    it; it is made with the first thing that wakes the function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        code: Path,
        stage: StageConfig,
        layers: Sequence[lambda_.ILayerVersion],
        environment: Mapping[str, str],
        permission_scope: Scope,
        alarm_topic: sns.ITopic,
        description: str,
        timeout_seconds: int,
        memory_mib: int = 512,
    ) -> None:
        """Make the function `name` from the folder `code`."""
        super().__init__(scope, construct_id)
        self.name = name
        self._alarm_topic = alarm_topic
        self._undelivered: DeadLetterQueue | None = None
        self.failed = DeadLetterQueue(
            self,
            "Failed",
            holds=f"{name} could not handle an event, also not when it was tried again.",
            alarm_topic=alarm_topic,
        )
        self.log_group = logs.LogGroup(self, "Logs", removal_policy=RemovalPolicy.DESTROY)
        log_group_resource = self.log_group.node.default_child
        assert isinstance(log_group_resource, logs.CfnLogGroup)
        log_group_resource.retention_in_days = stage.log_retention_days
        self._statements = FUNCTIONS[name]
        failure_queues = [self.failed.queue.queue_arn]
        if name in STREAM_READERS:
            self._undelivered = self._make_undelivered()
            failure_queues.append(self._undelivered.queue.queue_arn)
        scope_values = {
            **permission_scope,
            "log_group_arn": self.log_group.log_group_arn,
            "failure_queue_arns": failure_queues,
        }
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"What {name} of GPU Governor {stage.name} may do; see docs/permissions.md",
            inline_policies={"Permissions": policy_document(self._statements, scope_values)},
        )
        acknowledge_wildcards(self.role, self._statements, scope_values)
        self.function = lambda_.Function(
            self,
            "Function",
            description=description,
            runtime=_runtime(stage.runtime),
            architecture=_architecture(stage.architecture),
            code=lambda_.Code.from_asset(str(code), exclude=["**/__pycache__", "**/*.pyc"]),
            handler="handler.handler",
            layers=list(layers),
            environment=dict(environment),
            # The role is made from the table alone: what CDK would add by itself is dropped.
            role=self.role.without_policy_updates(),
            log_group=self.log_group,
            timeout=Duration.seconds(timeout_seconds),
            memory_size=memory_mib,
            on_failure=destinations.SqsDestination(self.failed.queue),
            max_event_age=MAX_EVENT_AGE,
            retry_attempts=RETRY_ATTEMPTS,
            reserved_concurrent_executions=1 if stage.reserve_concurrency else None,
        )
        acknowledge(
            self.function,
            "AwsSolutions-L1",
            "The runtime is a value of the stage: the layer holds compiled wheels for exactly that interpreter.",
        )

    @property
    def undelivered(self) -> DeadLetterQueue | None:
        """Events that never reached the function; None when only CloudFormation calls it."""
        return self._undelivered

    def wake_on(self, rule: events.Rule) -> None:
        """Let events that match a rule wake the function."""
        rule.add_target(
            targets.LambdaFunction(
                self.function,
                dead_letter_queue=self._undelivered_queue().queue,
                max_event_age=MAX_EVENT_AGE,
                retry_attempts=RETRY_ATTEMPTS,
            )
        )

    def wake_by(self, topic: sns.ITopic) -> sns.Subscription:
        """Let messages of a topic wake the function."""
        return topic.add_subscription(
            subscriptions.LambdaSubscription(self.function, dead_letter_queue=self._undelivered_queue().queue)
        )

    def wake_every(self, minutes: int, group: scheduler.CfnScheduleGroup) -> scheduler.CfnSchedule:
        """Let EventBridge Scheduler wake the function; what keeps it level-triggered when events are lost."""
        queue = self._undelivered_queue().queue
        stack = Stack.of(self)
        group_arn = f"arn:{stack.partition}:scheduler:{stack.region}:{Aws.ACCOUNT_ID}:schedule-group/{group.ref}"
        role = iam.Role(
            self,
            "ScheduleRole",
            description=f"Lets the schedule of {self.name} invoke it",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID, "aws:SourceArn": group_arn},
                },
            ),
            inline_policies={
                "Invoke": iam.PolicyDocument(
                    statements=[
                        iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[self.function.function_arn]),
                        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn]),
                    ]
                )
            },
        )
        return scheduler.CfnSchedule(
            self,
            "Schedule",
            description=f"Wakes {self.name}",
            group_name=group.ref,
            schedule_expression=f"rate({minutes} minute{'' if minutes == 1 else 's'})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=self.function.function_arn,
                role_arn=role.role_arn,
                input=SCHEDULE_INPUT,
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=MAX_EVENT_AGE.to_seconds(), maximum_retry_attempts=RETRY_ATTEMPTS
                ),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=queue.queue_arn),
            ),
        )

    def read_stream(self, table: dynamodb.ITable, filters: Sequence[Mapping[str, object]]) -> None:
        """Let new records of a table's stream that match one of the filters come to the function, in order."""
        self.function.add_event_source(
            sources.DynamoEventSource(
                table,
                starting_position=lambda_.StartingPosition.TRIM_HORIZON,
                batch_size=10,
                bisect_batch_on_error=True,
                report_batch_item_failures=True,
                retry_attempts=-1,  # as long as the record is young: a page must outlast trouble of SNS
                max_record_age=Duration.hours(1),
                on_failure=sources.SqsDlq(self._undelivered_queue().queue),
                filters=[lambda_.FilterCriteria.filter(dict(one)) for one in filters],
            )
        )

    def _undelivered_queue(self) -> DeadLetterQueue:
        if self._undelivered is None:
            self._undelivered = self._make_undelivered()
        return self._undelivered

    def _make_undelivered(self) -> DeadLetterQueue:
        return DeadLetterQueue(
            self,
            "Undelivered",
            holds=f"An event did not reach {self.name}.",
            alarm_topic=self._alarm_topic,
        )


# The stream mapping writes to its queue with the role of the function.
STREAM_READERS = frozenset({"send_messages"})


def _runtime(name: str) -> lambda_.Runtime:
    runtime: lambda_.Runtime = getattr(lambda_.Runtime, name.upper().replace("PYTHON3.", "PYTHON_3_"))
    return runtime


def _architecture(name: str) -> lambda_.Architecture:
    return lambda_.Architecture.ARM_64 if name == "arm64" else lambda_.Architecture.X86_64
