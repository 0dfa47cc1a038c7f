"""What each function may do to which, as data."""

from __future__ import annotations

from collections.abc import Mapping

from stacks.statements import CHECKPOINT_DOCUMENTS, EVERYTHING, VOLUME_KEYS, Caller, Conditions, Effect, Statement

TABLE_KEY_ACTIONS = (
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


def only_partitions(*names: str) -> Conditions:
    """Only records whose partition key is one of `names`; a request that names no key does not pass."""
    return {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": names},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


USE_TABLE_KEY = Statement(
    sid="UseTableKey",
    actions=TABLE_KEY_ACTIONS,
    resources="key",
    why="The table is encrypted with the key of the stage.",
    bound_by="the ARN of the key, and only through DynamoDB",
    conditions={"StringEquals": {"kms:ViaService": "dynamodb.{home}.{dns_suffixes}"}},
    caller=Caller.AWS,
)

_SEE_FLEET_ACTIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeInstanceRefreshes",
    "autoscaling:DescribePolicies",
    "autoscaling:DescribeScheduledActions",
    "ec2:DescribeInstances",
    "ec2:DescribeReservedInstances",
    "ec2:DescribeSpotInstanceRequests",
)


def _see(sid: str, actions: tuple[str, ...], why: str, only_with: str = "") -> Statement:
    return Statement(
        sid=sid,
        actions=actions,
        resources=EVERYTHING,
        why=why,
        bound_by="the listed Regions (aws:RequestedRegion)",
        conditions={"StringEquals": {"aws:RequestedRegion": "{regions}"}},
        guard="AWS cannot bind these actions to a resource; they only read.",
        only_with=only_with,
    )


_NONCRITICAL = ("standard", "preemptible")
# On an instance or on a group, whichever the action is about.
_MAY_BE_ACTED_ON: Conditions = {
    "StringEquals": {
        "aws:ResourceTag/{managed_key}": "{stage}",
        "aws:ResourceTag/{criticality_key}": _NONCRITICAL,
    }
}
_BOUND_BY_TAGS = "the listed Regions and the tags: managed by this stage, and standard or preemptible"
_BOUND_BY_GROUP_TAGS = (
    "the listed Regions and the tags of the group: managed by this stage, and standard or preemptible"
)

# Whatever acts on machines. Auto Scaling asks for the group, EC2 for the instance.
_ACTS = (
    "autoscaling:EnterStandby",
    "autoscaling:ExitStandby",
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "autoscaling:UpdateAutoScalingGroup",
    "ec2:StartInstances",
    "ec2:StopInstances",
    "ec2:TerminateInstances",
)

# Two statements, since conditions in one are joined by AND. A negated operator also matches a missing tag.
_NEVER_ACT = (
    Statement(
        sid="NeverActOnUnmanaged",
        effect=Effect.DENY,
        actions=_ACTS,
        resources=EVERYTHING,
        why="What is not managed by this stage is neither stopped nor started nor resized, whatever else is allowed.",
        bound_by="the managed tag of the instance or the group: any other value, or none",
        conditions={"StringNotEquals": {"aws:ResourceTag/{managed_key}": "{stage}"}},
    ),
    Statement(
        sid="NeverActOnCritical",
        effect=Effect.DENY,
        actions=_ACTS,
        resources=EVERYTHING,
        why="Nor what is critical, nor what does not say how critical it is.",
        bound_by="the criticality tag of instance or group: anything but exactly standard or preemptible, or none",
        conditions={"StringNotEquals": {"aws:ResourceTag/{criticality_key}": _NONCRITICAL}},
    ),
)

_READ_CONTROLS = Statement(
    sid="ReadControls",
    actions=("ssm:GetParametersByPath",),
    resources="controls",
    why="Ask before each batch what people hold: the pause, what is kept, and overrides.",
    bound_by="the path of the stage's controls",
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
        USE_TABLE_KEY,
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
        _see("SeeFleet", _SEE_FLEET_ACTIONS, "See the fleet, and what each machine belongs to."),
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
            actions=("ec2:StopInstances", "ec2:TerminateInstances"),
            resources="instances",
            why=(
                "Stop non-critical GPU instances when the stop level is reached; terminate one-time spot, which cannot "
                "be stopped, where `budget/terminate-one-time-spot` is on."
            ),
            bound_by=_BOUND_BY_TAGS,
            conditions=_MAY_BE_ACTED_ON,
        ),
        Statement(
            sid="LowerGroups",
            actions=(
                "autoscaling:EnterStandby",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
                "autoscaling:UpdateAutoScalingGroup",
            ),
            resources="groups",
            why="Put a member into standby before it is stopped, or end exactly this member, so that none is replaced.",
            bound_by=_BOUND_BY_GROUP_TAGS,
            conditions=_MAY_BE_ACTED_ON,
        ),
        Statement(
            sid="CancelSpotRequests",
            actions=("ec2:CancelSpotInstanceRequests",),
            resources="spot requests",
            why="Cancel the request of a one-time spot instance before it is terminated.",
            bound_by="this account and the listed Regions",
            guard=(
                "A request does not carry the tags of its instance. The guard cancels only the request of an instance "
                "that it read again just before, managed and not critical, where `budget/terminate-one-time-spot` is "
                "on; a cancelled request ends no instance."
            ),
        ),
        Statement(
            sid="RunCheckpointDocuments",
            actions=("ssm:SendCommand",),
            resources="checkpoint documents",
            why="Let a machine save its work before it is stopped.",
            bound_by="the names of the documents, which belong to this account; the Region is that of the instance",
            only_with=CHECKPOINT_DOCUMENTS,
        ),
        Statement(
            sid="CheckpointWhatMayBeStopped",
            actions=("ssm:SendCommand",),
            resources="instances",
            why="A command needs both: the document, and the instance that it runs on.",
            bound_by=_BOUND_BY_TAGS,
            conditions={
                "StringEquals": {
                    "ssm:resourceTag/{managed_key}": "{stage}",
                    "ssm:resourceTag/{criticality_key}": _NONCRITICAL,
                }
            },
            only_with=CHECKPOINT_DOCUMENTS,
        ),
        _see(
            "SeeCheckpoints",
            ("ssm:GetCommandInvocation",),
            "See whether the work is saved.",
            only_with=CHECKPOINT_DOCUMENTS,
        ),
        _READ_CONTROLS,
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
        USE_TABLE_KEY,
        *_NEVER_ACT,
        *_BASE,
    ),
    "confirm_actions": (
        _see(
            "SeeFleet",
            tuple(action for action in _SEE_FLEET_ACTIONS if action != "ec2:DescribeReservedInstances"),
            "See what became of each machine and of its group.",
        ),
        _see("SeeVolumeKeys", ("ec2:DescribeVolumes",), "Name the key that kept a machine from starting."),
        Statement(
            sid="StartWhatWasStopped",
            actions=("ec2:StartInstances",),
            resources="instances",
            why="Start again what the Governor stopped, once a restore was decided or asked for.",
            bound_by=_BOUND_BY_TAGS,
            conditions=_MAY_BE_ACTED_ON,
        ),
        Statement(
            sid="PutGroupsBack",
            actions=("autoscaling:ExitStandby", "autoscaling:UpdateAutoScalingGroup"),
            resources="groups",
            why="Bring a member back from standby, and give the group its old least size again.",
            bound_by=_BOUND_BY_GROUP_TAGS,
            conditions=_MAY_BE_ACTED_ON,
        ),
        Statement(
            sid="LetVolumesBeRead",
            actions=("kms:CreateGrant",),
            resources="volume keys",
            why="A start of a machine with encrypted volumes needs it: EC2 gives the volume a grant on its key.",
            bound_by="the ARNs of the keys, only through EC2 of the listed Regions, and only for AWS resources",
            conditions={
                "Bool": {"kms:GrantIsForAWSResource": "true"},
                "StringEquals": {"kms:ViaService": "ec2.{region}.{dns_suffixes}"},
            },
            caller=Caller.AWS,
            only_with=VOLUME_KEYS,
        ),
        _READ_CONTROLS,
        Statement(
            sid="UseState",
            actions=(
                "dynamodb:BatchGetItem",
                "dynamodb:ConditionCheckItem",
                "dynamodb:GetItem",
                "dynamodb:PutItem",
                "dynamodb:Query",
                "dynamodb:UpdateItem",
            ),
            resources="table",
            why="Take the lease, read settings and ledger; write ledger and messages in one transaction.",
            bound_by="the ARN of the table",
        ),
        USE_TABLE_KEY,
        *_NEVER_ACT,
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
    "check_retired": (
        Statement(
            sid="UseRetiredMarker",
            actions=("dynamodb:DeleteItem", "dynamodb:GetItem"),
            resources="table",
            why="See whether the stage was given back; forget it when the stage is deployed anew.",
            bound_by="the ARN of the table, and only the record `retired`",
            conditions=only_partitions("retired"),
        ),
        Statement(
            sid="ReadLedger",
            actions=("dynamodb:Query",),
            resources="table",
            why="See whether anything was stopped after the stage was given back.",
            bound_by="the ARN of the table, and only the stop ledger",
            conditions=only_partitions("ledger"),
        ),
        USE_TABLE_KEY,
        *_BASE,
    ),
}
