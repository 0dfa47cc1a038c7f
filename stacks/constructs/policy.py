"""IAM policy documents from rows of the permissions table."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam

from stacks.statements import Effect, Scope, Statement, applying, conditions_of, resource_arns


def policy_document(statements: Sequence[Statement], scope: Scope) -> iam.PolicyDocument:
    """One document with one IAM statement a row that applies to the stage."""
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                sid=row.sid,
                effect=iam.Effect.ALLOW if row.effect is Effect.ALLOW else iam.Effect.DENY,
                actions=list(row.actions),
                resources=resource_arns(row, scope),
                conditions=conditions_of(row, scope) or None,
            )
            for row in applying(statements, scope)
        ]
    )
