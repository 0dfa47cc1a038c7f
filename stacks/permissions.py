"""Who may do what to which: one table as data. Roles and policies are built from it, and so is docs/permissions.md.

`python -m stacks.permissions > docs/permissions.md` writes the page. Imports no CDK.
"""

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

    `guard` says what protects the action where neither an ARN nor a tag can bind it.
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


EVERYTHING = "everything"

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
    "pause": ResourceKind(
        "the pause parameter", ("arn:{partition}:ssm:{home}:{account}:parameter/governor/{stage}/control/pause",)
    ),
    "budget": ResourceKind("the budget of the stage", ("arn:{partition}:budgets::{account}:budget/{budget_name}",)),
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

_TABLE_KEY_ACTIONS = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)

_KEEP_TAGS = Statement(
    sid="NeverTouchTags",
    effect=Effect.DENY,
    actions=("autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags", "ec2:CreateTags", "ec2:DeleteTags"),
    resources=EVERYTHING,
    why="The tags are people's word on what may be stopped; no function may change it.",
    bound_by="the whole action: a request that deletes all tags at once names no tag key to bind to",
)

_WRITE_LOGS = Statement(
    sid="WriteLogs",
    actions=("logs:CreateLogStream", "logs:PutLogEvents"),
    resources="own log group",
    why="Write the log and the metrics that are in it.",
    bound_by="the ARN of the function's own log group",
    caller=Caller.AWS,
)

_KEEP_FAILURES = Statement(
    sid="KeepFailures",
    actions=("sqs:SendMessage",),
    resources="own failure queues",
    why="Keep an event that could not be handled.",
    bound_by="the ARNs of the function's own queues",
    caller=Caller.AWS,
)

_BASE = (_WRITE_LOGS, _KEEP_FAILURES, _KEEP_TAGS)

_USE_TABLE_KEY = Statement(
    sid="UseTableKey",
    actions=_TABLE_KEY_ACTIONS,
    resources="key",
    why="The table is encrypted with the key of the stage.",
    bound_by="the ARN of the key, and only through DynamoDB",
    conditions={"StringEquals": {"kms:ViaService": "dynamodb.{home}.{dns_suffixes}"}},
    caller=Caller.AWS,
)

_READ_INSTANCES = Statement(
    sid="SeeInstances",
    actions=("ec2:DescribeInstances",),
    resources=EVERYTHING,
    why="See the fleet.",
    bound_by="the listed Regions (aws:RequestedRegion)",
    conditions={"StringEquals": {"aws:RequestedRegion": "{regions}"}},
    guard="EC2 cannot bind this action to a resource; it only reads.",
)

FUNCTIONS: Mapping[str, tuple[Statement, ...]] = {
    "check_settings": (
        Statement(
            sid="ReadSettings",
            actions=("ssm:GetParameterHistory", "ssm:GetParametersByPath"),
            resources="settings tree",
            why="Read the whole tree of settings, and who changed what from what to what.",
            bound_by="the path of the stage",
        ),
        Statement(
            sid="KeepSnapshot",
            actions=("dynamodb:GetItem", "dynamodb:PutItem"),
            resources="table",
            why="Read the last good settings; write snapshot and messages in one transaction.",
            bound_by="the ARN of the table",
        ),
        _USE_TABLE_KEY,
        *_BASE,
    ),
    "guard_budget": (
        Statement(
            sid="ReadBudget",
            actions=("budgets:ViewBudget",),
            resources="budget",
            why="Read the spend again: the notice is only a trigger.",
            bound_by="the ARN of the budget",
        ),
        _READ_INSTANCES,
        Statement(
            sid="SeeStopProtection",
            actions=("ec2:DescribeInstanceAttribute",),
            resources="instances",
            why="See stop protection before a stop is tried.",
            bound_by="this account and the listed Regions",
            guard="It only reads, and instances without our tags must be counted as well.",
        ),
        Statement(
            sid="StopWhatMayBeStopped",
            actions=("ec2:StopInstances",),
            resources="instances",
            why="Stop non-critical GPU instances when the stop level is reached.",
            bound_by="the listed Regions and the tags: managed by this stage, and standard or preemptible",
            conditions={
                "StringEquals": {
                    "aws:ResourceTag/{managed_key}": "{stage}",
                    "aws:ResourceTag/{criticality_key}": ("standard", "preemptible"),
                }
            },
        ),
        Statement(
            sid="ReadPause",
            actions=("ssm:GetParameter",),
            resources="pause",
            why="Ask before each batch whether everything is paused.",
            bound_by="the ARN of that one parameter",
        ),
        Statement(
            sid="UseState",
            actions=(
                "dynamodb:BatchGetItem",
                "dynamodb:BatchWriteItem",
                "dynamodb:ConditionCheckItem",
                "dynamodb:GetItem",
                "dynamodb:PutItem",
                "dynamodb:Query",
                "dynamodb:UpdateItem",
            ),
            resources="table",
            why="Take the lease, read settings and ledger; write decision, ledger and messages in one transaction.",
            bound_by="the ARN of the table",
        ),
        _USE_TABLE_KEY,
        # Two statements, since conditions in one are joined by AND. A negated operator also matches a missing tag.
        Statement(
            sid="NeverStopUnmanaged",
            effect=Effect.DENY,
            actions=("ec2:StopInstances", "ec2:TerminateInstances"),
            resources=EVERYTHING,
            why="What is not managed by this stage is never stopped, whatever else is allowed.",
            bound_by="the managed tag: any other value, or none",
            conditions={"StringNotEquals": {"aws:ResourceTag/{managed_key}": "{stage}"}},
        ),
        Statement(
            sid="NeverStopCritical",
            effect=Effect.DENY,
            actions=("ec2:StopInstances", "ec2:TerminateInstances"),
            resources=EVERYTHING,
            why="Critical instances are never stopped, nor those that do not say how critical they are.",
            bound_by="the criticality tag: anything but exactly standard or preemptible, or none",
            conditions={"StringNotEquals": {"aws:ResourceTag/{criticality_key}": ("standard", "preemptible")}},
        ),
        *_BASE,
    ),
    "send_messages": (
        Statement(
            sid="ReadOutbox",
            actions=("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
            resources="table stream",
            why="Lambda reads new records of the outbox.",
            bound_by="the ARN of the stream",
            caller=Caller.AWS,
        ),
        Statement(
            sid="ListStreams",
            actions=("dynamodb:ListStreams",),
            resources=EVERYTHING,
            why="Lambda demands it before it connects a stream.",
            bound_by="nothing",
            guard="DynamoDB cannot bind this action to a resource; it only lists names.",
            caller=Caller.AWS,
        ),
        Statement(
            sid="ReadOutboxKey",
            actions=("kms:Decrypt",),
            resources="key",
            why="The stream is encrypted with the key of the stage.",
            bound_by="the ARN of the key, and only through DynamoDB",
            conditions={"StringEquals": {"kms:ViaService": "dynamodb.{home}.{dns_suffixes}"}},
            caller=Caller.AWS,
        ),
        Statement(
            sid="SendMessages",
            actions=("sns:Publish",),
            resources="message topics",
            why="Send each message of the outbox to its topic.",
            bound_by="the ARNs of the four topics; the topics take messages from no other function",
        ),
        Statement(
            sid="UseTopicKey",
            actions=("kms:Decrypt", "kms:GenerateDataKey"),
            resources="key",
            why="The topics are encrypted with the key of the stage.",
            bound_by="the ARN of the key, and only through SNS",
            conditions={"StringEquals": {"kms:ViaService": "sns.{home}.{dns_suffixes}"}},
            caller=Caller.AWS,
        ),
        Statement(
            sid="PutEvents",
            actions=("events:PutEvents",),
            resources="bus",
            why="Put decisions and changes of settings on the bus.",
            bound_by="the ARN of the bus",
        ),
        *_BASE,
    ),
    "seed_settings": (
        Statement(
            sid="ReadSettings",
            actions=("ssm:GetParametersByPath",),
            resources="settings tree",
            why="See which parameters exist already.",
            bound_by="the path of the stage",
        ),
        Statement(
            sid="CreateSettings",
            actions=("ssm:PutParameter",),
            resources="settings",
            why="Create the parameters that are missing.",
            bound_by="the path of the stage",
        ),
        Statement(
            sid="NeverDeleteSettings",
            effect=Effect.DENY,
            actions=("ssm:DeleteParameter", "ssm:DeleteParameters"),
            resources=EVERYTHING,
            why="A parameter holds an operator's decision; a deploy never deletes it.",
            bound_by="the whole action",
        ),
        Statement(
            sid="NeverOverwrite",
            effect=Effect.DENY,
            actions=("ssm:PutParameter",),
            resources=EVERYTHING,
            why="A parameter holds an operator's decision; a deploy never overwrites it.",
            bound_by="requests that ask to overwrite (ssm:Overwrite)",
            conditions={"StringEquals": {"ssm:Overwrite": "true"}},
        ),
        *_BASE,
    ),
}

PEOPLE: Mapping[str, tuple[Statement, ...]] = {
    "Reader": (
        Statement(
            sid="SeeFleet",
            actions=(
                "autoscaling:DescribeAutoScalingGroups",
                "ec2:DescribeCapacityReservations",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeInstances",
                "ec2:DescribeRegions",
                "ec2:DescribeReservedInstances",
                "ec2:DescribeSpotInstanceRequests",
            ),
            resources=EVERYTHING,
            why="`governor scan`, `status` and `plan`: see the fleet in every Region.",
            bound_by="nothing",
            guard="EC2 and Auto Scaling cannot bind these actions to a resource; they only read.",
        ),
        Statement(
            sid="SeeStopProtection",
            actions=("ec2:DescribeInstanceAttribute",),
            resources="instances",
            why="`governor plan`: see stop protection.",
            bound_by="this account and the listed Regions",
        ),
        Statement(
            sid="ReadBudget",
            actions=("budgets:ViewBudget",),
            resources="budget",
            why="`governor status`: read the spend.",
            bound_by="the ARN of the budget",
        ),
        Statement(
            sid="ReadSettings",
            actions=("ssm:GetParameter", "ssm:GetParameterHistory", "ssm:GetParametersByPath"),
            resources="settings tree",
            why="`governor settings get|diff|history`: read settings and the pause.",
            bound_by="the path of the stage",
        ),
        Statement(
            sid="ReadState",
            actions=("dynamodb:GetItem", "dynamodb:Query"),
            resources="table",
            why="`governor explain`: read decisions and outcomes.",
            bound_by="the ARN of the table",
        ),
        Statement(
            sid="ReadTableKey",
            actions=("kms:Decrypt", "kms:DescribeKey"),
            resources="key",
            why="The table is encrypted with the key of the stage.",
            bound_by="the ARN of the key, and only through DynamoDB",
            conditions={"StringEquals": {"kms:ViaService": "dynamodb.{home}.{dns_suffixes}"}},
        ),
        Statement(
            sid="ReadLogs",
            actions=("logs:FilterLogEvents", "logs:GetLogEvents"),
            resources="log groups",
            why="Read what a function wrote.",
            bound_by="the ARNs of the functions' log groups",
        ),
        Statement(
            sid="SeeMetrics",
            actions=(
                "cloudwatch:DescribeAlarms",
                "cloudwatch:GetDashboard",
                "cloudwatch:GetMetricData",
                "cloudwatch:ListMetrics",
            ),
            resources=EVERYTHING,
            why="Look at the dashboard and the alarms.",
            bound_by="nothing",
            guard="CloudWatch cannot bind reading metrics to a resource; these actions only read.",
        ),
        Statement(
            sid="FindStacks",
            actions=("cloudformation:DescribeStacks",),
            resources="stacks",
            why="Find the table, the topics and the dashboard of the stage.",
            bound_by="the names of the stacks",
        ),
        Statement(
            sid="SeeSubscriptions",
            actions=("sns:ListSubscriptionsByTopic",),
            resources="message topics",
            why="`governor status`: see whether somebody gets the messages.",
            bound_by="the ARNs of the four topics",
        ),
    ),
    "Operator": (
        Statement(
            sid="EditSettings",
            actions=("ssm:PutParameter",),
            resources="settings",
            why="`governor settings set`, `arm`, `pause` and `unpause`: edit settings and the pause.",
            bound_by="the path of the stage; each parameter refuses values that break its pattern",
        ),
    ),
    "Approver": (
        Statement(
            sid="Approve",
            actions=("dynamodb:PutItem",),
            resources="table",
            why="Record a person's yes or no to a proposal.",
            bound_by="the ARN of the table, and only records whose partition key starts with `approval#`",
            conditions={
                "ForAllValues:StringLike": {"dynamodb:LeadingKeys": "approval#*"},
                "Null": {"dynamodb:LeadingKeys": "false"},
            },
        ),
        Statement(
            sid="UseTableKey",
            actions=_TABLE_KEY_ACTIONS,
            resources="key",
            why="The table is encrypted with the key of the stage.",
            bound_by="the ARN of the key, and only through DynamoDB",
            conditions={"StringEquals": {"kms:ViaService": "dynamodb.{home}.{dns_suffixes}"}},
        ),
    ),
}

# A scope gives the values that templates name: one text, or several of which each makes its own text.
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


def handler_actions(function: str) -> frozenset[str]:
    """The actions that the function's own code may call: what tests compare with the calls that it makes."""
    return frozenset(
        action
        for statement in FUNCTIONS[function]
        if statement.effect is Effect.ALLOW and statement.caller is Caller.HANDLER
        for action in statement.actions
    )


def unbound_statements() -> dict[tuple[str, str], str]:
    """(function or policy, sid) -> what guards it, for each Allow on everything."""
    return {
        (owner, statement.sid): statement.guard
        for table in (FUNCTIONS, PEOPLE)
        for owner, statements in table.items()
        for statement in statements
        if statement.effect is Effect.ALLOW and statement.resources == EVERYTHING
    }


_HEAD = """\
# Permissions

Generated from `stacks/permissions.py` by `python -m stacks.permissions`; a test keeps it true. The roles and the
policies are built from the same table, so what stands here is what is deployed. `<stage>` is the name of the stage;
the tag keys are those of the stage in `cdk.json`.

- No function has an action with a wildcard, and each has a role of its own.
- A Deny wins over every Allow, also over one that somebody attaches to the role later.
- EventBridge Scheduler has one role a schedule, which may invoke that one function and fill its dead-letter queue; a
  relay of events has one role a Region, which may put events on the default bus of the home Region.
"""


def describe() -> str:
    """The page docs/permissions.md."""
    parts = [_HEAD, "## Functions"]
    parts += [_section(f"`{name}`", statements) for name, statements in FUNCTIONS.items()]
    parts += [
        "## People",
        "Three managed policies, to be attached to people's roles. Operator and Approver add to Reader.\n",
    ]
    parts += [_section(name, statements) for name, statements in PEOPLE.items()]
    parts += ["## What cannot be bound to a tag or an ARN", _unbound_table()]
    return "\n".join(parts)


def _section(title: str, statements: Sequence[Statement]) -> str:
    allowed = [s for s in statements if s.effect is Effect.ALLOW]
    denied = [s for s in statements if s.effect is Effect.DENY]
    lines = [f"### {title}\n", "| may | on | bound by | why | called by |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {_row(s)} | {s.caller.value} |" for s in allowed]
    if denied:
        lines += ["", "| may never | on | when | why |", "| --- | --- | --- | --- |"]
        lines += [f"| {_row(s)} |" for s in denied]
    return "\n".join([*lines, ""])


def _row(statement: Statement) -> str:
    actions = "<br>".join(f"`{action}`" for action in statement.actions)
    return f"{actions} | {RESOURCE_KINDS[statement.resources].meaning} | {statement.bound_by} | {statement.why}"


def _unbound_table() -> str:
    lines = ["| who | actions | what guards it |", "| --- | --- | --- |"]
    for owner, statements in [*FUNCTIONS.items(), *PEOPLE.items()]:
        lines += [
            f"| {owner} | {', '.join(f'`{action}`' for action in s.actions)} | {s.guard} |"
            for s in statements
            if s.guard
        ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(describe(), end="")
