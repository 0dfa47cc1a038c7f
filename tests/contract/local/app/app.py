"""A small CDK app that has one of everything the local AWS must know how to deploy and deliver."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import (
    App,
    CfnOutput,
    CustomResource,
    DefaultStackSynthesizer,
    Duration,
    Environment,
    RemovalPolicy,
    Stack,
    TimeZone,
    aws_budgets,
    aws_cloudwatch,
    aws_cloudwatch_actions,
    aws_dynamodb,
    aws_events,
    aws_events_targets,
    aws_iam,
    aws_kms,
    aws_lambda,
    aws_lambda_destinations,
    aws_lambda_event_sources,
    aws_logs,
    aws_scheduler,
    aws_scheduler_targets,
    aws_sns,
    aws_sns_subscriptions,
    aws_sqs,
)

HERE = Path(__file__).parent
RUNTIME = aws_lambda.Runtime.PYTHON_3_13


class ProbeStack(Stack):
    """Every source of events, led into one function."""

    def __init__(self, app: App) -> None:
        super().__init__(
            app,
            "Probe",
            env=Environment(account="123456789012", region="us-east-1"),
            synthesizer=DefaultStackSynthesizer(),
        )
        self.key = aws_kms.Key(self, "Key", alias="alias/probe", removal_policy=RemovalPolicy.DESTROY)
        self.key.grant_encrypt_decrypt(aws_iam.ServicePrincipal("budgets.amazonaws.com"))
        self.table = self.make_table()
        self.dead_letters = aws_sqs.Queue(self, "DeadLetters", enforce_ssl=True)
        self.rule_dead_letters = aws_sqs.Queue(self, "RuleDeadLetters")
        self.probe = self.make_function()
        self.budget_topic = self.make_budget()
        self.wake_by_events()
        self.wake_by_schedule()
        self.wake_by_stream()
        self.seed()
        self.watch()
        self.show()

    def make_table(self) -> aws_dynamodb.TableV2:
        """A global-table resource with a stream, TTL, backups and the customer's key."""
        return aws_dynamodb.TableV2(
            self,
            "Table",
            partition_key=aws_dynamodb.Attribute(name="pk", type=aws_dynamodb.AttributeType.STRING),
            sort_key=aws_dynamodb.Attribute(name="sk", type=aws_dynamodb.AttributeType.STRING),
            dynamo_stream=aws_dynamodb.StreamViewType.NEW_IMAGE,
            time_to_live_attribute="expires_at",
            point_in_time_recovery_specification=aws_dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            encryption=aws_dynamodb.TableEncryptionV2.customer_managed_key(self.key),
            removal_policy=RemovalPolicy.DESTROY,
        )

    def make_function(self) -> aws_lambda.Function:
        """The function, with a layer, its own log group, retries, an age limit and a failure destination."""
        layer = aws_lambda.LayerVersion(
            self, "Layer", code=aws_lambda.Code.from_asset(str(HERE / "layer")), compatible_runtimes=[RUNTIME]
        )
        probe = aws_lambda.Function(
            self,
            "Function",
            runtime=RUNTIME,
            handler="handler.handler",
            code=aws_lambda.Code.from_asset(str(HERE / "functions" / "probe")),
            layers=[layer],
            timeout=Duration.seconds(20),
            log_group=aws_logs.LogGroup(self, "Log", removal_policy=RemovalPolicy.DESTROY),
            environment={"TABLE_NAME": self.table.table_name},
            retry_attempts=2,
            max_event_age=Duration.minutes(5),
            on_failure=aws_lambda_destinations.SqsDestination(self.dead_letters),
        )
        self.table.grant_write_data(probe)
        tag = "ec2:ResourceTag/governor:criticality"
        probe.add_to_role_policy(
            aws_iam.PolicyStatement(
                actions=["ec2:StopInstances"],
                resources=["arn:aws:ec2:*:*:instance/*"],
                conditions={"StringEquals": {"aws:ResourceTag/governor:managed": "test"}},
            )
        )
        probe.add_to_role_policy(
            aws_iam.PolicyStatement(
                effect=aws_iam.Effect.DENY,
                actions=["ec2:StopInstances"],
                resources=["*"],
                conditions={"StringNotEquals": {tag: ["standard", "preemptible"]}},
            )
        )
        return probe

    def make_budget(self) -> aws_sns.Topic:
        """An unnamed budget with a ladder of thresholds, its topic open to AWS Budgets alone."""
        topic = aws_sns.Topic(self, "BudgetTopic", enforce_ssl=True, master_key=self.key)
        topic.add_to_resource_policy(
            aws_iam.PolicyStatement(
                principals=[aws_iam.ServicePrincipal("budgets.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": self.account},
                    "ArnLike": {"aws:SourceArn": f"arn:aws:budgets::{self.account}:*"},
                },
            )
        )
        topic.add_subscription(aws_sns_subscriptions.LambdaSubscription(self.probe))
        topic.add_subscription(aws_sns_subscriptions.EmailSubscription("finance@example.com"))
        subscriber = aws_budgets.CfnBudget.SubscriberProperty(address=topic.topic_arn, subscription_type="SNS")
        rungs = [("ACTUAL", 80), ("ACTUAL", 95), ("FORECASTED", 100)]
        self.budget = aws_budgets.CfnBudget(
            self,
            "Budget",
            budget=aws_budgets.CfnBudget.BudgetDataProperty(
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=aws_budgets.CfnBudget.SpendProperty(amount=1000, unit="USD"),
                filter_expression=aws_budgets.CfnBudget.ExpressionProperty(
                    dimensions=aws_budgets.CfnBudget.ExpressionDimensionValuesProperty(
                        key="INSTANCE_TYPE_FAMILY", values=["p4d", "g4dn"]
                    )
                ),
                metrics=["AmortizedCost"],
            ),
            notifications_with_subscribers=[
                aws_budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=aws_budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[subscriber],
                )
                for kind, percent in rungs
            ],
        )
        return topic

    def wake_by_events(self) -> None:
        """Rules on the default bus and on an own bus, each with a dead-letter queue."""
        bus = aws_events.EventBus(self, "Bus")
        self.bus = bus
        target = aws_events_targets.LambdaFunction(
            self.probe, dead_letter_queue=self.rule_dead_letters, retry_attempts=2, max_event_age=Duration.minutes(5)
        )
        for name, pattern, where in (
            (
                "Parameters",
                aws_events.EventPattern(
                    source=["aws.ssm"],
                    detail_type=["Parameter Store Change"],
                    detail={"name": [{"prefix": "/probe/"}]},
                ),
                None,
            ),
            (
                "Stopped",
                aws_events.EventPattern(
                    source=["aws.ec2"],
                    detail_type=["EC2 Instance State-change Notification"],
                    detail={"state": ["stopped", "terminated"]},
                ),
                None,
            ),
            ("Own", aws_events.EventPattern(source=["probe"]), bus),
        ):
            aws_events.Rule(self, name, event_pattern=pattern, event_bus=where, targets=[target])

    def wake_by_schedule(self) -> None:
        """A schedule in a time zone, one by rate, and a rule by cron."""
        scheduled_input = aws_scheduler.ScheduleTargetInput.from_object(
            {"source": "probe.schedule", "time": aws_scheduler.ContextAttribute.scheduled_time}
        )
        target = aws_scheduler_targets.LambdaInvoke(
            self.probe, input=scheduled_input, dead_letter_queue=self.rule_dead_letters, retry_attempts=2
        )
        aws_scheduler.Schedule(
            self,
            "Morning",
            schedule=aws_scheduler.ScheduleExpression.cron(
                minute="30", hour="7", time_zone=TimeZone.of("Asia/Shanghai")
            ),
            target=target,
        )
        aws_scheduler.Schedule(
            self,
            "Often",
            schedule=aws_scheduler.ScheduleExpression.rate(Duration.minutes(10)),
            target=aws_scheduler_targets.LambdaInvoke(
                self.probe,
                input=aws_scheduler.ScheduleTargetInput.from_object(
                    {"source": "probe.rate", "time": aws_scheduler.ContextAttribute.scheduled_time}
                ),
            ),
        )
        aws_events.Rule(
            self,
            "Noon",
            schedule=aws_events.Schedule.cron(minute="0", hour="12"),
            targets=[aws_events_targets.LambdaFunction(self.probe)],
        )

    def wake_by_stream(self) -> None:
        """The table's stream, filtered, with everything a mapping can say about failures."""
        self.probe.add_event_source(
            aws_lambda_event_sources.DynamoEventSource(
                self.table,
                starting_position=aws_lambda.StartingPosition.TRIM_HORIZON,
                batch_size=10,
                bisect_batch_on_error=True,
                report_batch_item_failures=True,
                retry_attempts=2,
                max_record_age=Duration.hours(1),
                on_failure=aws_lambda_event_sources.SqsDlq(self.dead_letters),
                filters=[
                    aws_lambda.FilterCriteria.filter(
                        {"eventName": ["INSERT"], "dynamodb": {"NewImage": {"outbox": {"S": ["mail", "event"]}}}}
                    )
                ],
            )
        )

    def seed(self) -> None:
        """A custom resource whose function answers CloudFormation itself."""
        seeder = aws_lambda.Function(
            self,
            "Seeder",
            runtime=RUNTIME,
            handler="handler.handler",
            code=aws_lambda.Code.from_asset(str(HERE / "functions" / "seed")),
            timeout=Duration.seconds(20),
        )
        seeder.add_to_role_policy(aws_iam.PolicyStatement(actions=["ssm:PutParameter"], resources=["*"]))
        self.seed_result = CustomResource(
            self, "Seed", service_token=seeder.function_arn, properties={"Name": "/probe/budget/stop-percent"}
        )

    def watch(self) -> None:
        """An alarm with a dead man's switch, one of metric math, a composite one, and a dashboard."""
        topic = aws_sns.Topic(self, "PageTopic")
        topic.add_subscription(aws_sns_subscriptions.EmailSubscription("ops@example.com"))
        runs = aws_cloudwatch.Metric(
            namespace="Probe",
            metric_name="Runs",
            dimensions_map={"service": "probe"},
            statistic="Sum",
            period=Duration.minutes(5),
        )
        dead_man = runs.create_alarm(
            self,
            "DeadMan",
            threshold=1,
            evaluation_periods=2,
            comparison_operator=aws_cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            treat_missing_data=aws_cloudwatch.TreatMissingData.BREACHING,
        )
        dead_man.add_alarm_action(aws_cloudwatch_actions.SnsAction(topic))
        math = aws_cloudwatch.MathExpression(
            expression="FILL(failed, 0) + FILL(runs, 0) * 0",
            using_metrics={"failed": self.probe.metric_errors(period=Duration.minutes(5)), "runs": runs},
            period=Duration.minutes(5),
        ).create_alarm(self, "Failures", threshold=1, evaluation_periods=1)
        aws_cloudwatch.CompositeAlarm(
            self, "Trouble", alarm_rule=aws_cloudwatch.AlarmRule.any_of(dead_man, math)
        ).add_alarm_action(aws_cloudwatch_actions.SnsAction(topic))
        aws_cloudwatch.Dashboard(self, "Dashboard", widgets=[[aws_cloudwatch.GraphWidget(left=[runs])]])

    def show(self) -> None:
        """What the tests need to know."""
        for name, value in {
            "FunctionName": self.probe.function_name,
            "TableName": self.table.table_name,
            "BudgetName": self.budget.ref,
            "BudgetTopicArn": self.budget_topic.topic_arn,
            "BusName": self.bus.event_bus_name,
            "DeadLettersUrl": self.dead_letters.queue_url,
            "RuleDeadLettersUrl": self.rule_dead_letters.queue_url,
            "Seeded": self.seed_result.get_att_string("Seeded"),
        }.items():
            CfnOutput(self, name, value=value)


app = App()
ProbeStack(app)
app.synth()
