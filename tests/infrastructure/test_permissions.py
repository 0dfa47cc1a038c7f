"""What functions and people may do, read from the templates and not from the table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stacks import permissions
from tests.infrastructure.conftest import Synthesis
from tests.infrastructure.iam import Answer, Request, as_list, ask
from tests.infrastructure.templates import ACCOUNT, StageTemplates

TABLE_KEY_ACTIONS = {
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
}
BASE_ACTIONS = {"logs:CreateLogStream", "logs:PutLogEvents", "sqs:SendMessage"}
STREAM_ACTIONS = {
    "dynamodb:DescribeStream",
    "dynamodb:GetRecords",
    "dynamodb:GetShardIterator",
    "dynamodb:ListStreams",
}

# What the code of a function calls, and what it needs beyond that.
OWN_ACTIONS: Mapping[str, set[str]] = {
    "check_settings": {
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "ssm:GetParameterHistory",
        "ssm:GetParametersByPath",
    },
    "guard_budget": {
        "budgets:ViewBudget",
        "dynamodb:BatchGetItem",
        "dynamodb:BatchWriteItem",
        "dynamodb:ConditionCheckItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "ec2:DescribeInstanceAttribute",
        "ec2:DescribeInstances",
        "ec2:StopInstances",
        "ssm:GetParameter",
    },
    "send_messages": {"events:PutEvents", "sns:Publish"},
    "seed_settings": {"ssm:GetParametersByPath", "ssm:PutParameter"},
}
FURTHER_ACTIONS: Mapping[str, set[str]] = {
    "check_settings": BASE_ACTIONS | TABLE_KEY_ACTIONS,
    "guard_budget": BASE_ACTIONS | TABLE_KEY_ACTIONS,
    "send_messages": BASE_ACTIONS | STREAM_ACTIONS | {"kms:Decrypt", "kms:GenerateDataKey"},
    "seed_settings": BASE_ACTIONS,
}
FUNCTIONS = tuple(OWN_ACTIONS)

DENIED_TO_ALL = {
    "autoscaling:CreateOrUpdateTags",
    "autoscaling:DeleteTags",
    "ec2:CreateTags",
    "ec2:DeleteTags",
}

# Every Allow on everything, with the reason why it cannot be bound.
ALLOWED_ON_EVERYTHING: Mapping[tuple[str, str], set[str]] = {
    ("guard_budget", "EC2 cannot bind this action to a resource; it only reads."): {"ec2:DescribeInstances"},
    ("send_messages", "DynamoDB cannot bind this action to a resource; it only lists names."): {"dynamodb:ListStreams"},
    ("Reader", "EC2 and Auto Scaling cannot bind these actions to a resource; they only read."): {
        "autoscaling:DescribeAutoScalingGroups",
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribeRegions",
        "ec2:DescribeReservedInstances",
        "ec2:DescribeSpotInstanceRequests",
    },
    ("Reader", "CloudWatch cannot bind reading metrics to a resource; these actions only read."): {
        "cloudwatch:DescribeAlarms",
        "cloudwatch:GetDashboard",
        "cloudwatch:GetMetricData",
        "cloudwatch:ListMetrics",
    },
}


def statements_of(documents: list[Mapping[str, Any]], effect: str) -> list[Mapping[str, Any]]:
    return [one for document in documents for one in document["Statement"] if one["Effect"] == effect]


def actions_of(documents: list[Mapping[str, Any]], effect: str = "Allow") -> set[str]:
    return {action for one in statements_of(documents, effect) for action in as_list(one["Action"])}


def people_documents(stage: StageTemplates) -> dict[str, Mapping[str, Any]]:
    return {
        key.removesuffix("PolicyArn"): stage.at(output["Value"]).properties["PolicyDocument"]
        for key, output in stage.outputs["Control"].items()
        if key.endswith("PolicyArn")
    }


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_has_exactly_the_actions_of_this_table(dev: StageTemplates, function: str) -> None:
    assert actions_of(dev.role_documents(function)) == OWN_ACTIONS[function] | FURTHER_ACTIONS[function]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_function_calls_itself_is_told_apart_from_what_aws_calls_for_it(function: str) -> None:
    assert permissions.handler_actions(function) == OWN_ACTIONS[function]


def test_the_table_here_names_every_function(dev: StageTemplates) -> None:
    assert set(dev.functions()) == set(FUNCTIONS) == set(permissions.FUNCTIONS)


def test_every_function_has_a_role_of_its_own(dev: StageTemplates) -> None:
    roles = [one.properties["Role"] for one in dev.functions().values()]
    assert len(set(roles)) == len(roles)


@pytest.mark.parametrize("stage", ["dev", "prod", "local", "china"])
def test_no_role_or_policy_allows_an_action_with_a_wildcard(synthesis: Synthesis, stage: str) -> None:
    templates = synthesis.templates[stage]
    documents = [
        policy["PolicyDocument"] for role in templates.of("AWS::IAM::Role") for policy in role.properties["Policies"]
    ]
    documents += [one.properties["PolicyDocument"] for one in templates.of("AWS::IAM::ManagedPolicy")]
    assert documents
    assert [action for action in actions_of(documents) if "*" in action] == []


def test_an_allow_on_everything_is_named_here_with_its_reason(dev: StageTemplates) -> None:
    documents = {name: dev.role_documents(name) for name in FUNCTIONS}
    documents |= {name: [document] for name, document in people_documents(dev).items()}
    open_statements = {
        (owner, permissions.unbound_statements()[owner, one["Sid"]]): set(as_list(one["Action"]))
        for owner, found in documents.items()
        for one in statements_of(found, "Allow")
        if "*" in as_list(one["Resource"])
    }
    assert open_statements == ALLOWED_ON_EVERYTHING


def test_roles_of_schedules_and_relays_are_bound_to_one_target(prod: StageTemplates) -> None:
    of_functions = {one.properties["Role"] for one in prod.functions().values()}
    others = [role for role in prod.of("AWS::IAM::Role") if role.attribute("Arn") not in of_functions]
    assert len(others) == 3
    for role in others:
        for policy in role.properties["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                assert "*" not in str(statement["Resource"])
        (trust,) = role.properties["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Condition"]["StringEquals"]["aws:SourceAccount"] == ACCOUNT


# Rule 9 -------------------------------------------------------------------------------------------------------------

MANAGED = "aws:ResourceTag/governor:managed"
CRITICALITY = "aws:ResourceTag/governor:criticality"
MAY_STOP = {MANAGED: "prod", CRITICALITY: "standard"}
ALLOW_ALL = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


def instance(region: str = "us-east-1", account: str = ACCOUNT) -> str:
    return f"arn:aws:ec2:{region}:{account}:instance/i-0abc"


@pytest.mark.parametrize("criticality", ["standard", "preemptible"])
@pytest.mark.parametrize("region", ["us-east-1", "us-west-2"])
def test_the_guard_may_stop_managed_noncritical_instances_in_each_listed_region(
    prod: StageTemplates, criticality: str, region: str
) -> None:
    request = Request("ec2:StopInstances", instance(region), {MANAGED: "prod", CRITICALITY: criticality})
    assert ask(prod.role_documents("guard_budget"), request) is Answer.ALLOWED


UNTOUCHABLE: Mapping[str, Mapping[str, str]] = {
    "no tags": {},
    "not managed": {CRITICALITY: "standard"},
    "managed by another stage": {MANAGED: "dev", CRITICALITY: "standard"},
    "managed with other case": {MANAGED: "Prod", CRITICALITY: "standard"},
    "managed with a space": {MANAGED: "prod ", CRITICALITY: "standard"},
    "managed as true": {MANAGED: "true", CRITICALITY: "standard"},
    "critical": {MANAGED: "prod", CRITICALITY: "critical"},
    "no criticality": {MANAGED: "prod"},
    "empty criticality": {MANAGED: "prod", CRITICALITY: ""},
    "criticality with other case": {MANAGED: "prod", CRITICALITY: "Standard"},
    "criticality with a space": {MANAGED: "prod", CRITICALITY: " standard"},
    "unknown criticality": {MANAGED: "prod", CRITICALITY: "low"},
    "two values in one": {MANAGED: "prod", CRITICALITY: "standard,preemptible"},
    "a wildcard": {MANAGED: "*", CRITICALITY: "*"},
}


@pytest.mark.parametrize("action", ["ec2:StopInstances", "ec2:TerminateInstances"])
@pytest.mark.parametrize("tags", UNTOUCHABLE.values(), ids=UNTOUCHABLE.keys())
def test_all_other_instances_are_denied_even_to_a_role_that_somebody_made_admin(
    prod: StageTemplates, tags: Mapping[str, str], action: str
) -> None:
    request = Request(action, instance(), tags)
    assert ask([*prod.role_documents("guard_budget"), ALLOW_ALL], request) is Answer.DENIED


@pytest.mark.parametrize("tags", UNTOUCHABLE.values(), ids=UNTOUCHABLE.keys())
def test_the_allow_alone_already_leaves_them_out(prod: StageTemplates, tags: Mapping[str, str]) -> None:
    allows = {"Statement": statements_of(prod.role_documents("guard_budget"), "Allow")}
    assert ask([allows], Request("ec2:StopInstances", instance(), tags)) is Answer.NOT_ALLOWED


@pytest.mark.parametrize(
    "resource",
    [instance("eu-west-1"), instance(account="999999999999"), "arn:aws:ec2:us-east-1:111122223333:volume/vol-1"],
    ids=["another Region", "another account", "not an instance"],
)
def test_the_guard_may_stop_nothing_outside_of_its_regions_and_account(prod: StageTemplates, resource: str) -> None:
    request = Request("ec2:StopInstances", resource, MAY_STOP)
    assert ask(prod.role_documents("guard_budget"), request) is Answer.NOT_ALLOWED


def test_the_guard_may_not_terminate(prod: StageTemplates) -> None:
    request = Request("ec2:TerminateInstances", instance(), MAY_STOP)
    assert ask(prod.role_documents("guard_budget"), request) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if name != "guard_budget"])
def test_no_other_function_may_stop_anything(prod: StageTemplates, function: str) -> None:
    request = Request("ec2:StopInstances", instance(), MAY_STOP)
    assert ask(prod.role_documents(function), request) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("action", sorted(DENIED_TO_ALL))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_function_may_create_or_delete_tags_even_as_admin(prod: StageTemplates, function: str, action: str) -> None:
    # A request that deletes all tags at once names no tag key, so the context is empty.
    request = Request(action, instance())
    assert ask([*prod.role_documents(function), ALLOW_ALL], request) is Answer.DENIED


def test_the_conditions_follow_the_tag_keys_of_the_stage() -> None:
    scope = {"managed_key": "acme:gpu", "criticality_key": "acme:level", "stage": "dev"}
    rows = [row for row in permissions.FUNCTIONS["guard_budget"] if "ec2:StopInstances" in row.actions]
    keys = {key for row in rows for tests in permissions.conditions_of(row, scope).values() for key in tests}
    assert keys == {"aws:ResourceTag/acme:gpu", "aws:ResourceTag/acme:level"}


# Other bounds -------------------------------------------------------------------------------------------------------


def parameter(name: str, stage: str = "prod") -> str:
    return f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/governor/{stage}/{name}"


def test_the_guard_reads_no_parameter_but_the_pause(prod: StageTemplates) -> None:
    documents = prod.role_documents("guard_budget")
    assert ask(documents, Request("ssm:GetParameter", parameter("control/pause"))) is Answer.ALLOWED
    assert ask(documents, Request("ssm:GetParameter", parameter("budget/limit-usd"))) is Answer.NOT_ALLOWED
    assert ask(documents, Request("ssm:GetParametersByPath", parameter("control/pause"))) is Answer.NOT_ALLOWED


def test_the_guard_sees_instances_in_the_listed_regions_alone(prod: StageTemplates) -> None:
    documents = prod.role_documents("guard_budget")
    answers = {
        region: ask(documents, Request("ec2:DescribeInstances", "*", {"aws:RequestedRegion": region}))
        for region in ("us-east-1", "us-west-2", "eu-west-1")
    }
    assert answers == {
        "us-east-1": Answer.ALLOWED,
        "us-west-2": Answer.ALLOWED,
        "eu-west-1": Answer.NOT_ALLOWED,
    }


def test_the_guard_reads_the_budget_of_its_stage_alone(prod: StageTemplates) -> None:
    documents = prod.role_documents("guard_budget")
    budgets = f"arn:aws:budgets::{ACCOUNT}:budget/"
    name = prod.one("AWS::Budgets::Budget").ref
    assert ask(documents, Request("budgets:ViewBudget", budgets + name)) is Answer.ALLOWED
    assert ask(documents, Request("budgets:ViewBudget", budgets + "other")) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("function", ["check_settings", "seed_settings"])
def test_settings_of_other_stages_are_out_of_reach(prod: StageTemplates, function: str) -> None:
    documents = prod.role_documents(function)
    for action in actions_of(documents) & {"ssm:GetParametersByPath", "ssm:GetParameterHistory", "ssm:PutParameter"}:
        assert ask(documents, Request(action, parameter("budget/limit-usd"))) is Answer.ALLOWED
        for other in ("dev", "prod2"):
            assert ask(documents, Request(action, parameter("budget/limit-usd", other))) is Answer.NOT_ALLOWED


def test_a_deploy_can_neither_overwrite_nor_delete_a_parameter(prod: StageTemplates) -> None:
    documents = [*prod.role_documents("seed_settings"), ALLOW_ALL]
    name = parameter("budget/limit-usd")
    create = Request("ssm:PutParameter", name, {"ssm:Overwrite": "false"})
    overwrite = Request("ssm:PutParameter", name, {"ssm:Overwrite": "true"})
    assert ask(documents, create) is Answer.ALLOWED
    assert ask(documents, overwrite) is Answer.DENIED
    assert ask(documents, Request("ssm:DeleteParameter", name)) is Answer.DENIED
    assert ask(documents, Request("ssm:DeleteParameters", name)) is Answer.DENIED


@pytest.mark.parametrize("stage", ["dev", "china"])
def test_a_function_uses_the_key_only_through_the_service_that_holds_the_data(synthesis: Synthesis, stage: str) -> None:
    templates = synthesis.templates[stage]
    home = synthesis.stages[stage].home_region
    suffixes = ["amazonaws.com.cn", "amazonaws.com"] if stage == "china" else ["amazonaws.com"]
    for function in FUNCTIONS:
        for statement in statements_of(templates.role_documents(function), "Allow"):
            if not any(action.startswith("kms:") for action in as_list(statement["Action"])):
                continue
            (via,) = statement["Condition"]["StringEquals"].values()
            assert as_list(via) in (
                [f"{service}.{home}.{suffix}" for suffix in suffixes] for service in ("dynamodb", "sns")
            )
            assert statement["Resource"] == templates.outputs["State"]["KeyArn"]["Value"]


# People -------------------------------------------------------------------------------------------------------------


def test_there_are_three_policies_for_people(dev: StageTemplates) -> None:
    assert set(people_documents(dev)) == {"Reader", "Operator", "Approver"}


def test_a_reader_changes_nothing(dev: StageTemplates) -> None:
    reads = ("Describe", "Filter", "Get", "List", "Query", "View", "Decrypt")
    actions = actions_of([people_documents(dev)["Reader"]])
    assert [action for action in actions if not action.partition(":")[2].startswith(reads)] == []


def test_an_operator_edits_settings_and_pause_of_the_stage_and_nothing_else(dev: StageTemplates) -> None:
    document = people_documents(dev)["Operator"]
    assert actions_of([document]) == {"ssm:PutParameter"}
    for name in ("budget/stop-percent", "control/pause"):
        assert ask([document], Request("ssm:PutParameter", parameter(name, "dev"))) is Answer.ALLOWED
    assert ask([document], Request("ssm:PutParameter", parameter("control/pause", "prod"))) is Answer.NOT_ALLOWED


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["approval#1"], Answer.ALLOWED),
        (["ledger#i-0abc"], Answer.NOT_ALLOWED),
        (["approval#1", "ledger#i-0abc"], Answer.NOT_ALLOWED),
        (None, Answer.NOT_ALLOWED),
    ],
)
def test_an_approver_writes_approvals_and_nothing_else(
    dev: StageTemplates, keys: list[str] | None, answer: Answer
) -> None:
    document = people_documents(dev)["Approver"]
    table = dev.one("AWS::DynamoDB::Table").attribute("Arn")
    context = {} if keys is None else {"dynamodb:LeadingKeys": keys}
    assert ask([document], Request("dynamodb:PutItem", table, context)) is answer
    assert actions_of([document]) == {"dynamodb:PutItem"} | TABLE_KEY_ACTIONS


def test_the_page_of_permissions_is_what_the_table_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "permissions.md"
    written = page.read_text(encoding="utf-8")
    assert written == permissions.describe(), "run: python -m stacks.permissions > docs/permissions.md"


def test_whatever_cannot_be_bound_has_a_guard_in_the_table() -> None:
    assert [key for key, guard in permissions.unbound_statements().items() if not guard] == []
