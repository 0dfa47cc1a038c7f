"""What a row of the permissions table is, what it may be about, and how it is written for one stage. Imports no CDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Effect(StrEnum):
    """What a statement does; a Deny wins over every Allow."""

    ALLOW = "Allow"
    DENY = "Deny"


class Caller(StrEnum):
    """Who makes the call that a statement is about."""

    HANDLER = "the function's own code"
    AWS = "AWS on the function's behalf"


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of thing and its ARNs. Templates name a value of the scope in braces; `{region}` makes one per Region."""

    meaning: str
    templates: tuple[str, ...]


# Condition operator -> condition key -> value, or values of which one has to match.
Conditions = Mapping[str, Mapping[str, str | tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Statement:
    """One row of the table: actions on a kind of resource, why, and what binds it.

    `guard` says what protects the action where neither an ARN nor a tag can bind it. `only_with` names a value of the
    scope: where the stage leaves it empty, there is no such statement.
    """

    sid: str
    actions: tuple[str, ...]
    resources: str
    why: str
    bound_by: str
    effect: Effect = Effect.ALLOW
    conditions: Conditions = field(default_factory=dict)
    guard: str = ""
    caller: Caller = Caller.HANDLER
    only_with: str = ""


EVERYTHING = "everything"

CHECKPOINT_DOCUMENTS = "checkpoint_documents"
VOLUME_KEYS = "volume_key_arns"
NATIVE_BRAKE = "brake_action_id"
ONLY_WITH: Mapping[str, str] = {
    CHECKPOINT_DOCUMENTS: "only where the stage lists `checkpoint_documents`",
    VOLUME_KEYS: "only where the stage lists `volume_key_arns`",
    NATIVE_BRAKE: "only where the stage has a `native_brake`",
}
"""Value of the scope -> when a statement that needs it exists, in words."""

RESOURCE_KINDS: Mapping[str, ResourceKind] = {
    EVERYTHING: ResourceKind("everything", ("*",)),
    "instances": ResourceKind(
        "EC2 instances of this account in the listed Regions", ("arn:{partition}:ec2:{region}:{account}:instance/*",)
    ),
    "settings": ResourceKind(
        "the parameters below /governor/<stage>",
        ("arn:{partition}:ssm:{home}:{account}:parameter/governor/{stage}/*",),
    ),
    "settings tree": ResourceKind(
        "the path /governor/<stage> and the parameters below it",
        (
            "arn:{partition}:ssm:{home}:{account}:parameter/governor/{stage}",
            "arn:{partition}:ssm:{home}:{account}:parameter/governor/{stage}/*",
        ),
    ),
    "controls": ResourceKind(
        "the path /governor/<stage>/control and the parameters below it",
        (
            "arn:{partition}:ssm:{home}:{account}:parameter/governor/{stage}/control",
            "arn:{partition}:ssm:{home}:{account}:parameter/governor/{stage}/control/*",
        ),
    ),
    "keeps and overrides": ResourceKind(
        "the parameters below /governor/<stage>/control/keep and /governor/<stage>/control/override",
        (
            "arn:{partition}:ssm:{home}:{account}:parameter/governor/{stage}/control/keep/*",
            "arn:{partition}:ssm:{home}:{account}:parameter/governor/{stage}/control/override/*",
        ),
    ),
    "groups": ResourceKind(
        "Auto Scaling groups of this account in the listed Regions",
        ("arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:*:autoScalingGroupName/*",),
    ),
    "spot requests": ResourceKind(
        "spot requests of this account in the listed Regions",
        ("arn:{partition}:ec2:{region}:{account}:spot-instances-request/*",),
    ),
    "checkpoint documents": ResourceKind(
        "the SSM documents that the stage lists as `checkpoint_documents`",
        ("arn:{partition}:ssm:*:{account}:document/{checkpoint_documents}",),
    ),
    "volume keys": ResourceKind("the keys that the stage lists as `volume_key_arns`", ("{volume_key_arns}",)),
    "budget": ResourceKind("the budget of the stage", ("arn:{partition}:budgets::{account}:budget/{budget_name}",)),
    "brake": ResourceKind(
        "the native brake of the stage",
        ("arn:{partition}:budgets::{account}:budget/{budget_name}/action/{brake_action_id}",),
    ),
    "braked roles": ResourceKind(
        "the roles that the native brake names", ("arn:{partition}:iam::{account}:role/{braked_roles}",)
    ),
    "guard": ResourceKind("the function guard_budget", ("{guard_function_arn}",)),
    "function roles": ResourceKind("the roles of the functions", ("{function_role_arns}",)),
    "table": ResourceKind("the state table", ("{table_arn}",)),
    "table stream": ResourceKind("the stream of the state table", ("{stream_arn}",)),
    "key": ResourceKind("the key of the stage", ("{key_arn}",)),
    "bus": ResourceKind("the event bus of the stage", ("{bus_arn}",)),
    "message topics": ResourceKind(
        "the topics page, warn, info and slack",
        ("{page_topic_arn}", "{warn_topic_arn}", "{info_topic_arn}", "{slack_topic_arn}"),
    ),
    "own log group": ResourceKind("the function's own log group", ("{log_group_arn}",)),
    "own failure queues": ResourceKind("the function's own dead-letter queues", ("{failure_queue_arns}",)),
    "log groups": ResourceKind("the log groups of the functions", ("{log_group_arns}",)),
    "stacks": ResourceKind(
        "the stacks of the stage", ("arn:{partition}:cloudformation:{home}:{account}:stack/Governor-{stage}-*/*",)
    ),
}


Scope = Mapping[str, str | Sequence[str]]


def expand(template: str, scope: Scope) -> tuple[str, ...]:
    """Every text that a template stands for. Raises KeyError when the scope lacks a name."""
    texts: tuple[str, ...] = ("",)
    rest = template
    while "{" in rest:
        before, _, after = rest.partition("{")
        name, _, rest = after.partition("}")
        value = scope[name]
        values = (value,) if isinstance(value, str) else tuple(value)
        texts = tuple(text + before + one for text in texts for one in values)
    return tuple(text + rest for text in texts)


def applying(statements: Sequence[Statement], scope: Scope) -> tuple[Statement, ...]:
    """The statements that a stage has: without those whose resources it does not list."""
    return tuple(one for one in statements if not one.only_with or scope[one.only_with])


def resource_arns(statement: Statement, scope: Scope) -> list[str]:
    """The ARNs that a statement is about."""
    templates = RESOURCE_KINDS[statement.resources].templates
    return [arn for template in templates for arn in expand(template, scope)]


def conditions_of(statement: Statement, scope: Scope) -> dict[str, dict[str, str | list[str]]]:
    """The conditions of a statement as IAM writes them."""
    return {
        operator: {expand(key, scope)[0]: _values(value, scope) for key, value in tests.items()}
        for operator, tests in statement.conditions.items()
    }


def _values(value: str | tuple[str, ...], scope: Scope) -> str | list[str]:
    templates = (value,) if isinstance(value, str) else value
    values = [text for template in templates for text in expand(template, scope)]
    return values[0] if len(values) == 1 else values
