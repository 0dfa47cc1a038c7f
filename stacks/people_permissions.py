"""What people may do who have one of the three policies, and what AWS Budgets may do for the native brake, as data."""

from __future__ import annotations

from collections.abc import Mapping

from stacks.function_permissions import USE_TABLE_KEY, only_partitions
from stacks.statements import EVERYTHING, NATIVE_BRAKE, Conditions, Statement

_ONLY_OUR_TAGS: Conditions = {
    "ForAllValues:StringEquals": {"aws:TagKeys": "{tag_keys}"},
    "Null": {"aws:TagKeys": "false"},
}

PEOPLE: Mapping[str, tuple[Statement, ...]] = {
    "Reader": (
        Statement(
            sid="SeeFleet",
            actions=(
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeInstanceRefreshes",
                "autoscaling:DescribePolicies",
                "autoscaling:DescribeScheduledActions",
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
            why="`governor status` and `doctor`: see whether somebody gets the messages.",
            bound_by="the ARNs of the four topics",
        ),
        Statement(
            sid="SeeCostTags",
            actions=("ce:ListCostAllocationTags",),
            resources=EVERYTHING,
            why="`governor doctor`: see whether the bill can be split by the project tag.",
            bound_by="nothing",
            guard="Cost Explorer cannot bind this action to a resource; it only reads the names of tags.",
        ),
        Statement(
            sid="AskWhatRolesMayDo",
            actions=("iam:SimulatePrincipalPolicy",),
            resources="function roles",
            why="`governor doctor`: see whether something in the account keeps the functions from their work.",
            bound_by="the ARNs of the roles of the functions",
        ),
        Statement(
            sid="SeeNativeBrake",
            actions=("budgets:DescribeBudgetActionsForBudget",),
            resources="budget",
            why="`governor status` and `doctor`: see whether the native brake is on.",
            bound_by="the ARN of the budget",
            only_with=NATIVE_BRAKE,
        ),
    ),
    "Operator": (
        Statement(
            sid="EditSettings",
            actions=("ssm:PutParameter",),
            resources="settings",
            why="`governor settings set`, `arm`, `pause`, `keep` and `override`: edit settings and controls.",
            bound_by="the path of the stage; each parameter refuses values that break its pattern",
        ),
        Statement(
            sid="LiftControls",
            actions=("ssm:DeleteParameter",),
            resources="keeps and overrides",
            why="`governor keep --lift` and `override --lift`: let the Governor go on.",
            bound_by="the paths of keeps and overrides; the pause and the settings cannot be deleted",
        ),
        Statement(
            sid="AskForRestore",
            actions=("lambda:InvokeFunction",),
            resources="guard",
            why="`governor restore`: ask the guard to start again what it stopped; the guard checks what is asked.",
            bound_by="the ARN of that one function",
        ),
        Statement(
            sid="TagInstances",
            actions=("ec2:CreateTags", "ec2:DeleteTags"),
            resources="instances",
            why="`governor tag`, `adopt` and `unadopt`: say what may be stopped, and take it back.",
            bound_by="this account, the listed Regions, and the tag keys of the stage",
            conditions=_ONLY_OUR_TAGS,
        ),
        Statement(
            sid="TagGroups",
            actions=("autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags"),
            resources="groups",
            why="`governor tag`, `adopt` and `unadopt`: the same for groups.",
            bound_by="this account, the listed Regions, and the tag keys of the stage",
            conditions=_ONLY_OUR_TAGS,
        ),
        Statement(
            sid="HoldGroups",
            actions=("autoscaling:ResumeProcesses", "autoscaling:SuspendProcesses"),
            resources="groups",
            why="`governor adopt` and `unadopt`: keep a group from scaling itself, and let it scale again.",
            bound_by="this account and the listed Regions",
            guard=(
                "A person's own act on a group that is only about to be tagged. It ends and starts nothing, and what "
                "was suspended is recorded, so that it can be put back."
            ),
        ),
        Statement(
            sid="RecordWhatWasTaken",
            actions=("dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:PutItem"),
            resources="table",
            why="`governor tag`, `adopt` and `unadopt`: keep what was before, so that it can be put back.",
            bound_by="the ARN of the table, and only the records `taken`",
            conditions=only_partitions("taken"),
        ),
        Statement(
            sid="SendTestMessages",
            actions=("dynamodb:PutItem",),
            resources="table",
            why="`governor doctor --send-test`: put a test message into the outbox, the only way to the topics.",
            bound_by="the ARN of the table, and only records whose partition key starts with `message#test@`",
            conditions=only_partitions("message#test@*"),
        ),
        USE_TABLE_KEY,
        Statement(
            sid="AnswerNativeBrake",
            actions=("budgets:ExecuteBudgetAction",),
            resources="brake",
            why="Release the native brake, or put it on.",
            bound_by="the ARN of that one action",
            only_with=NATIVE_BRAKE,
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
            sid="RecordRetirement",
            actions=("dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"),
            resources="table",
            why="`governor retire`: record what was given back, and at the end that the stage is retired.",
            bound_by="the ARN of the table, and only the records `taken`, `retired` and `ledger-group` and the lease",
            conditions=only_partitions("ledger-group", "lease#guard_budget", "retired", "taken"),
        ),
        USE_TABLE_KEY,
        Statement(
            sid="GiveGroupsBack",
            actions=("autoscaling:ExitStandby", "autoscaling:UpdateAutoScalingGroup"),
            resources="groups",
            why="`governor retire`: bring members back from standby, and give groups their old least size again.",
            bound_by="the listed Regions and the tag of the group: managed by this stage",
            conditions={"StringEquals": {"aws:ResourceTag/{managed_key}": "{stage}"}},
        ),
        Statement(
            sid="DeleteSettings",
            actions=("ssm:DeleteParameter", "ssm:DeleteParameters"),
            resources="settings",
            why="`governor retire`: delete what stays when the stacks are deleted.",
            bound_by="the path of the stage",
        ),
    ),
}

NATIVE_BRAKE_ROLE: tuple[Statement, ...] = (
    Statement(
        sid="PutBrakeOn",
        actions=("iam:AttachRolePolicy", "iam:DetachRolePolicy"),
        resources="braked roles",
        why="Attach the policy that forbids new GPU instances when the budget is used up, and detach it again.",
        bound_by="the names of the roles, and only this one policy (iam:PolicyARN)",
        conditions={"ArnEquals": {"iam:PolicyARN": "{brake_policy_arn}"}},
    ),
)
"""What AWS Budgets may do for the native brake."""

# A scope gives the values that templates name: one text, or several of which each makes its own text.
