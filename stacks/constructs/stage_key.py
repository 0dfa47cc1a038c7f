"""The customer-managed key of a stage."""

from __future__ import annotations

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

# Services that publish to encrypted topics on their own; everything else uses the key through a role.
PUBLISHING_SERVICES = {"AllowBudgets": "budgets.amazonaws.com", "AllowAlarms": "cloudwatch.amazonaws.com"}


class StageKey(Construct):
    """One key for table, bucket and topics. An AWS-managed key would lock Budgets out of its topic."""

    def __init__(self, scope: Construct, construct_id: str, *, stage_name: str, removal_policy: RemovalPolicy) -> None:
        """Make the key, rotated every year."""
        super().__init__(scope, construct_id)
        self.key = kms.Key(
            self,
            "Resource",
            description=f"GPU Governor {stage_name}: table, bucket and topics",
            enable_key_rotation=True,
            pending_window=Duration.days(30 if removal_policy is RemovalPolicy.RETAIN else 7),
            removal_policy=removal_policy,
        )
        for sid, service in PUBLISHING_SERVICES.items():
            self.key.add_to_resource_policy(
                iam.PolicyStatement(
                    sid=sid,
                    principals=[iam.ServicePrincipal(service)],
                    actions=["kms:Decrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext"],
                    resources=["*"],
                    conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
                )
            )
