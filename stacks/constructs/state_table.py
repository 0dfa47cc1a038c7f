"""The state table."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct


class StateTable(Construct):
    """One table for everything that must outlive a run; its stream carries the outbox."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey, removal_policy: RemovalPolicy) -> None:
        """Make the table; when it is kept, it also refuses to be deleted by hand."""
        super().__init__(scope, construct_id)
        self.table = dynamodb.Table(
            self,
            "Resource",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED,
            encryption_key=key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="expires_at",
            stream=dynamodb.StreamViewType.NEW_IMAGE,
            deletion_protection=removal_policy is RemovalPolicy.RETAIN,
            removal_policy=removal_policy,
        )
