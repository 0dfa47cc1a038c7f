"""Managed policies for people."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.constructs.acknowledged import acknowledge_wildcards
from stacks.constructs.policy import policy_document
from stacks.people_permissions import PEOPLE
from stacks.statements import Scope

DESCRIPTIONS = {
    "Reader": "GPU Governor: see fleet, decisions, settings and spend",
    "Operator": "GPU Governor: settings, controls, tags and restores (attach Reader as well)",
    "Approver": "GPU Governor: answer proposals, retire the stage (attach Reader as well)",
}


class ManagedPolicies(Construct):
    """Reader, Operator and Approver, to be attached to people's roles."""

    def __init__(self, scope: Construct, construct_id: str, *, permission_scope: Scope) -> None:
        """Make one policy for each part of the table."""
        super().__init__(scope, construct_id)
        self.policies: dict[str, iam.ManagedPolicy] = {}
        for name, statements in PEOPLE.items():
            policy = iam.ManagedPolicy(
                self,
                name,
                description=DESCRIPTIONS[name],
                document=policy_document(statements, permission_scope),
            )
            acknowledge_wildcards(policy, statements, permission_scope)
            self.policies[name] = policy
