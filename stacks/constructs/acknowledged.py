"""cdk-nag findings that are accepted, each on its construct, with a reason."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Acknowledgment, Stack, Token, Validations
from constructs import IConstruct

from stacks.statements import EVERYTHING, Effect, Scope, Statement, applying, resource_arns


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept one finding of a rule on this construct and what it holds."""
    _accept(construct, rule, reason)


def acknowledge_wildcards(construct: IConstruct, statements: Sequence[Statement], scope: Scope) -> None:
    """Accept the wildcards in resources of a policy that was built from `statements`.

    The ids are made from the table, so they follow it and no logical id stands in them.
    """
    account = Stack.of(construct).account
    written_account = "<AWS::AccountId>" if Token.is_unresolved(account) else account
    written_scope = {**scope, "account": written_account}
    reasons: dict[str, str] = {}
    for statement in applying(statements, written_scope):
        if statement.effect is Effect.DENY:
            continue
        reason = statement.guard if statement.resources == EVERYTHING else f"Bound by {statement.bound_by}."
        for arn in resource_arns(statement, written_scope):
            if "*" in arn and not Token.is_unresolved(arn):
                reasons[arn] = f"{reasons[arn]} {reason}" if arn in reasons else reason
    for arn, reason in reasons.items():
        acknowledge(construct, f"AwsSolutions-IAM5[Resource::{arn}]", reason)


def _accept(construct: IConstruct, rule: str, reason: str) -> None:
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
