"""Encrypted topics and who may publish to them."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

BUDGETS = "budgets.amazonaws.com"
ALARMS = "cloudwatch.amazonaws.com"


class MessageTopic(Construct):
    """A topic that people subscribe to. Who may publish is said by `TopicPublishers`, beside the function."""

    def __init__(
        self, scope: Construct, construct_id: str, *, title: str, key: kms.IKey, emails: Sequence[str] = ()
    ) -> None:
        """Make the topic; `title` stands in the mails."""
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", display_name=title, master_key=key)
        for email in emails:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))


class BudgetTopic(Construct):
    """The topic that wakes the budget guard: AWS Budgets of this account may publish, and nobody else."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey) -> None:
        """Make the topic and its policy."""
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", display_name="GPU Governor budget", master_key=key)
        sns.CfnTopicPolicy(
            self,
            "Policy",
            topics=[self.topic.topic_arn],
            policy_document=iam.PolicyDocument(
                statements=[
                    _allow_service(
                        "AllowBudgets",
                        BUDGETS,
                        f"arn:{Stack.of(self).partition}:budgets::{Aws.ACCOUNT_ID}:*",
                        self.topic,
                    ),
                    _deny("DenyEveryPrincipal", {"Bool": {"aws:PrincipalIsAWSService": "false"}}, self.topic),
                    _deny_without_tls(self.topic),
                ]
            ),
        )


class TopicPublishers(Construct):
    """The policy of one message topic: one function, alarms and AWS Budgets of this account if wished."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        topic: sns.ITopic,
        publisher: iam.IRole,
        alarms: bool,
        budgets: bool = False,
    ) -> None:
        """Write the policy; it replaces the default one, by which the whole account may publish."""
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        statements = [
            iam.PolicyStatement(
                sid="AllowSendMessages",
                principals=[iam.ArnPrincipal(publisher.role_arn)],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
            )
        ]
        if alarms:
            source = f"arn:{stack.partition}:cloudwatch:{stack.region}:{Aws.ACCOUNT_ID}:alarm:*"
            statements.append(_allow_service("AllowAlarms", ALARMS, source, topic))
        if budgets:
            source = f"arn:{stack.partition}:budgets::{Aws.ACCOUNT_ID}:*"
            statements.append(_allow_service("AllowBudgets", BUDGETS, source, topic))
        statements += [
            _deny(
                "DenyOtherPrincipals",
                {
                    "Bool": {"aws:PrincipalIsAWSService": "false"},
                    "ArnNotEquals": {"aws:PrincipalArn": publisher.role_arn},
                },
                topic,
            ),
            _deny_without_tls(topic),
        ]
        sns.CfnTopicPolicy(
            self,
            "Resource",
            topics=[topic.topic_arn],
            policy_document=iam.PolicyDocument(statements=statements),
        )


def _allow_service(sid: str, service: str, source_arn: str, topic: sns.ITopic) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=sid,
        principals=[iam.ServicePrincipal(service)],
        actions=["sns:Publish"],
        resources=[topic.topic_arn],
        conditions={
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
            "ArnLike": {"aws:SourceArn": source_arn},
        },
    )


def _deny(sid: str, conditions: dict[str, dict[str, str]], topic: sns.ITopic) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=sid,
        effect=iam.Effect.DENY,
        principals=[iam.AnyPrincipal()],
        actions=["sns:Publish"],
        resources=[topic.topic_arn],
        conditions=conditions,
    )


def _deny_without_tls(topic: sns.ITopic) -> iam.PolicyStatement:
    return _deny("DenyWithoutTls", {"Bool": {"aws:SecureTransport": "false"}}, topic)
