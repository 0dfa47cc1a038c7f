"""The brake of AWS itself: a budget action that needs none of our code."""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.config import StageConfig
from stacks.constructs.policy import policy_document
from stacks.people_permissions import NATIVE_BRAKE_ROLE
from stacks.sections import NativeBrake as NativeBrakeConfig
from stacks.statements import Scope


class NativeBrake(Construct):
    """At `percent` of the limit AWS Budgets attaches a policy to roles, so that they launch no more GPU instances.

    It stops nothing, and AWS takes it off when a new month begins. Auto Scaling launches with its own role, which no
    policy of ours can bind.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageConfig,
        config: NativeBrakeConfig,
        budget_name: str,
        topic: sns.ITopic,
        permission_scope: Scope,
    ) -> None:
        """Make policy, role and action; `topic` hears when the brake is put on or taken off."""
        super().__init__(scope, construct_id)
        partition = Stack.of(self).partition
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            description=f"GPU Governor {stage.name}: no new GPU instances while the budget is used up",
            statements=[
                iam.PolicyStatement(
                    sid="NoNewGpuInstances",
                    effect=iam.Effect.DENY,
                    actions=["ec2:RunInstances"],
                    resources=[f"arn:{partition}:ec2:*:{Aws.ACCOUNT_ID}:instance/*"],
                    conditions={"StringLike": {"ec2:InstanceType": [f"{family}.*" for family in config.families]}},
                )
            ],
        )
        scope_values: Scope = {
            **permission_scope,
            "braked_roles": config.role_names,
            "brake_policy_arn": self.policy.managed_policy_arn,
        }
        self.role = iam.Role(
            self,
            "Role",
            description=f"Lets AWS Budgets put the native brake of GPU Governor {stage.name} on and off",
            assumed_by=iam.ServicePrincipal(
                "budgets.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                    "ArnLike": {"aws:SourceArn": f"arn:{partition}:budgets::{Aws.ACCOUNT_ID}:budget/*"},
                },
            ),
            inline_policies={"Brake": policy_document(NATIVE_BRAKE_ROLE, scope_values)},
        )
        self.action = budgets.CfnBudgetsAction(
            self,
            "Action",
            budget_name=budget_name,
            notification_type="ACTUAL",
            action_type="APPLY_IAM_POLICY",
            approval_model="AUTOMATIC",
            action_threshold=budgets.CfnBudgetsAction.ActionThresholdProperty(type="PERCENTAGE", value=config.percent),
            definition=budgets.CfnBudgetsAction.DefinitionProperty(
                iam_action_definition=budgets.CfnBudgetsAction.IamActionDefinitionProperty(
                    policy_arn=self.policy.managed_policy_arn, roles=list(config.role_names)
                )
            ),
            execution_role_arn=self.role.role_arn,
            subscribers=[budgets.CfnBudgetsAction.SubscriberProperty(type="SNS", address=topic.topic_arn)],
        )

    @property
    def action_id(self) -> str:
        """The id that AWS Budgets gave the action."""
        return self.action.attr_action_id
