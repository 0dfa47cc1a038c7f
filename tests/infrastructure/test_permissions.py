"""What functions and people may do, read from the templates and not from the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stacks import function_permissions, permissions, statements
from tests.infrastructure.conftest import VOLUME_KEYS, Synthesis
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

SEE_FLEET = {
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeInstanceRefreshes",
    "autoscaling:DescribePolicies",
    "autoscaling:DescribeScheduledActions",
    "ec2:DescribeInstances",
    "ec2:DescribeSpotInstanceRequests",
}

# What the code of a function calls, and what it needs beyond that.
OWN_ACTIONS: Mapping[str, set[str]] = {
    "check_settings": {
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "ssm:GetParameterHistory",
        "ssm:GetParametersByPath",
    },
    "guard_budget": SEE_FLEET
    | {
        "autoscaling:EnterStandby",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        "autoscaling:UpdateAutoScalingGroup",
        "budgets:ViewBudget",
        "dynamodb:BatchGetItem",
        "dynamodb:BatchWriteItem",
        "dynamodb:ConditionCheckItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "ec2:CancelSpotInstanceRequests",
        "ec2:DescribeInstanceAttribute",
        "ec2:DescribeReservedInstances",
        "ec2:StopInstances",
        "ec2:TerminateInstances",
        "ssm:GetParametersByPath",
    },
    "confirm_actions": SEE_FLEET
    | {
        "autoscaling:ExitStandby",
        "autoscaling:UpdateAutoScalingGroup",
        "dynamodb:BatchGetItem",
        "dynamodb:ConditionCheckItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "ec2:DescribeVolumes",
        "ec2:StartInstances",
        "ssm:GetParametersByPath",
    },
    "send_messages": {"events:PutEvents", "sns:Publish"},
    "seed_settings": {"ssm:GetParametersByPath", "ssm:PutParameter"},
    "check_retired": {"dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:Query"},
}
# What a function may do only where the stage lists documents or keys; the first are calls of its own code.
OPTIONAL_ACTIONS: Mapping[str, set[str]] = {"guard_budget": {"ssm:GetCommandInvocation", "ssm:SendCommand"}}
OPTIONAL_FURTHER_ACTIONS: Mapping[str, set[str]] = {"confirm_actions": {"kms:CreateGrant"}}
FURTHER_ACTIONS: Mapping[str, set[str]] = {
    "check_settings": BASE_ACTIONS | TABLE_KEY_ACTIONS,
    "guard_budget": BASE_ACTIONS | TABLE_KEY_ACTIONS,
    "send_messages": BASE_ACTIONS | STREAM_ACTIONS | {"kms:Decrypt", "kms:GenerateDataKey"},
    "seed_settings": BASE_ACTIONS,
    "confirm_actions": BASE_ACTIONS | TABLE_KEY_ACTIONS,
    "check_retired": BASE_ACTIONS | TABLE_KEY_ACTIONS,
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
    ("guard_budget", "AWS cannot bind these actions to a resource; they only read."): SEE_FLEET
    | {"ec2:DescribeReservedInstances"},
    ("confirm_actions", "AWS cannot bind these actions to a resource; they only read."): SEE_FLEET
    | {"ec2:DescribeVolumes"},
    ("send_messages", "DynamoDB cannot bind this action to a resource; it only lists names."): {"dynamodb:ListStreams"},
    ("Reader", "EC2 and Auto Scaling cannot bind these actions to a resource; they only read."): {
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
    },
    ("Reader", "CloudWatch cannot bind reading metrics to a resource; these actions only read."): {
        "cloudwatch:DescribeAlarms",
        "cloudwatch:GetDashboard",
        "cloudwatch:GetMetricData",
        "cloudwatch:ListMetrics",
    },
    ("Reader", "Cost Explorer cannot bind this action to a resource; it only reads the names of tags."): {
        "ce:ListCostAllocationTags"
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
def test_documents_and_keys_of_a_stage_add_exactly_the_actions_of_this_table(
    full: StageTemplates, function: str
) -> None:
    added = OPTIONAL_ACTIONS.get(function, set()) | OPTIONAL_FURTHER_ACTIONS.get(function, set())
    always = OWN_ACTIONS[function] | FURTHER_ACTIONS[function]
    assert actions_of(full.role_documents(function)) == always | added


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_function_calls_itself_is_told_apart_from_what_aws_calls_for_it(function: str) -> None:
    assert permissions.handler_actions(function) == OWN_ACTIONS[function] | OPTIONAL_ACTIONS.get(function, set())


def test_the_table_here_names_every_function(dev: StageTemplates) -> None:
    assert set(dev.functions()) == set(FUNCTIONS) == set(function_permissions.FUNCTIONS)


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
    open_statements: dict[tuple[str, str], set[str]] = {}
    for owner, found in documents.items():
        for one in statements_of(found, "Allow"):
            if "*" in as_list(one["Resource"]):
                place = (owner, permissions.unbound_statements()[owner, one["Sid"]])
                open_statements.setdefault(place, set()).update(as_list(one["Action"]))
    assert open_statements == ALLOWED_ON_EVERYTHING


def test_roles_of_schedules_and_relays_are_bound_to_one_target(prod: StageTemplates) -> None:
    of_functions = {one.properties["Role"] for one in prod.functions().values()}
    others = [role for role in prod.of("AWS::IAM::Role") if role.attribute("Arn") not in of_functions]
    assert len(others) == 4
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


# Who may act on a machine or on a group that is managed and not critical: exactly these, and nobody else.
MAY_ACT: Mapping[str, set[str]] = {
    "guard_budget": {
        "ec2:StopInstances",
        "ec2:TerminateInstances",
        "autoscaling:EnterStandby",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        "autoscaling:UpdateAutoScalingGroup",
    },
    "confirm_actions": {"ec2:StartInstances", "autoscaling:ExitStandby", "autoscaling:UpdateAutoScalingGroup"},
}
ACTS = sorted({action for actions in MAY_ACT.values() for action in actions} | {"autoscaling:SetDesiredCapacity"})


def group(region: str = "us-east-1", account: str = ACCOUNT) -> str:
    return f"arn:aws:autoscaling:{region}:{account}:autoScalingGroup:0a1b-2c:autoScalingGroupName/training-group"


def target(action: str, region: str = "us-east-1", account: str = ACCOUNT) -> str:
    return group(region, account) if action.startswith("autoscaling:") else instance(region, account)


@pytest.mark.parametrize("action", ACTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_act_on_a_machine_or_a_group_belongs_to_the_functions_of_this_table(
    prod: StageTemplates, function: str, action: str
) -> None:
    expected = Answer.ALLOWED if action in MAY_ACT.get(function, set()) else Answer.NOT_ALLOWED
    for region in ("us-east-1", "us-west-2"):
        for criticality in ("standard", "preemptible"):
            tags = {MANAGED: "prod", CRITICALITY: criticality}
            assert ask(prod.role_documents(function), Request(action, target(action, region), tags)) is expected
    foreign = (target(action, "eu-west-1"), target(action, account="999999999999"))
    for resource in foreign:
        assert ask(prod.role_documents(function), Request(action, resource, MAY_STOP)) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("action", ACTS)
@pytest.mark.parametrize("function", MAY_ACT)
@pytest.mark.parametrize("tags", UNTOUCHABLE.values(), ids=UNTOUCHABLE.keys())
def test_what_is_not_exactly_managed_and_noncritical_is_denied_even_to_an_admin(
    prod: StageTemplates, tags: Mapping[str, str], function: str, action: str
) -> None:
    request = Request(action, target(action), tags)
    assert ask([*prod.role_documents(function), ALLOW_ALL], request) is Answer.DENIED
    allows = {"Statement": statements_of(prod.role_documents(function), "Allow")}
    assert ask([allows], request) is Answer.NOT_ALLOWED


def test_the_guard_cancels_spot_requests_of_its_regions_and_nothing_else(prod: StageTemplates) -> None:
    documents = prod.role_documents("guard_budget")
    answers = {
        resource: ask(documents, Request("ec2:CancelSpotInstanceRequests", resource))
        for resource in (
            f"arn:aws:ec2:us-west-2:{ACCOUNT}:spot-instances-request/sir-1",
            f"arn:aws:ec2:eu-west-1:{ACCOUNT}:spot-instances-request/sir-1",
            instance(),
        )
    }
    assert list(answers.values()) == [Answer.ALLOWED, Answer.NOT_ALLOWED, Answer.NOT_ALLOWED]


# Documents and keys of a stage --------------------------------------------------------------------------------------

SSM_MANAGED = "ssm:resourceTag/governor:managed"
SSM_CRITICALITY = "ssm:resourceTag/governor:criticality"


def document(name: str, region: str = "us-east-1", account: str = ACCOUNT) -> str:
    return f"arn:aws:ssm:{region}:{account}:document/{name}"


@pytest.mark.parametrize(
    ("name", "region", "answer"),
    [
        ("Governor-SaveCheckpoint", "us-east-1", Answer.ALLOWED),
        ("SaveModel", "us-west-2", Answer.ALLOWED),
        ("SaveModelAndMore", "us-east-1", Answer.NOT_ALLOWED),
        ("AWS-RunShellScript", "us-east-1", Answer.NOT_ALLOWED),
    ],
)
def test_the_guard_runs_only_documents_that_the_stage_lists(
    full: StageTemplates, name: str, region: str, answer: Answer
) -> None:
    request = Request("ssm:SendCommand", document(name, region))
    assert ask(full.role_documents("guard_budget"), request) is answer
    public = Request("ssm:SendCommand", document(name, region, ""))
    assert ask(full.role_documents("guard_budget"), public) is Answer.NOT_ALLOWED


def test_the_guard_runs_documents_only_on_what_it_may_stop(full: StageTemplates) -> None:
    documents = full.role_documents("guard_budget")
    tags = {SSM_MANAGED: "full", SSM_CRITICALITY: "standard"}
    assert ask(documents, Request("ssm:SendCommand", instance(), tags)) is Answer.ALLOWED
    refused: list[dict[str, str]] = [{}, {**tags, SSM_MANAGED: "dev"}, {**tags, SSM_CRITICALITY: "critical"}]
    for other in refused:
        assert ask(documents, Request("ssm:SendCommand", instance(), other)) is Answer.NOT_ALLOWED
    assert ask(documents, Request("ssm:SendCommand", instance("eu-west-1"), tags)) is Answer.NOT_ALLOWED


GRANT = {"kms:GrantIsForAWSResource": "true", "kms:ViaService": "ec2.us-east-1.amazonaws.com"}


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, Answer.ALLOWED),
        ({"kms:GrantIsForAWSResource": "false"}, Answer.NOT_ALLOWED),
        ({"kms:ViaService": "rds.us-east-1.amazonaws.com"}, Answer.NOT_ALLOWED),
        ({"kms:ViaService": "ec2.eu-west-1.amazonaws.com"}, Answer.NOT_ALLOWED),
    ],
)
def test_a_start_may_give_volumes_grants_on_the_listed_keys_alone(
    full: StageTemplates, changes: dict[str, str], answer: Answer
) -> None:
    documents = full.role_documents("confirm_actions")
    for key in VOLUME_KEYS:
        assert ask(documents, Request("kms:CreateGrant", key, GRANT | changes)) is answer
    other = Request("kms:CreateGrant", VOLUME_KEYS[0].replace("1234abcd", "00000000"), GRANT | changes)
    assert ask(documents, other) is Answer.NOT_ALLOWED
    own = Request("kms:CreateGrant", full.outputs["State"]["KeyArn"]["Value"], GRANT | changes)
    assert ask(documents, own) is Answer.NOT_ALLOWED


def test_a_statement_without_what_it_is_about_is_left_out_and_never_open(dev: StageTemplates) -> None:
    for function in FUNCTIONS:
        for statement in statements_of(dev.role_documents(function), "Allow"):
            assert statement["Resource"]
        sids = {one["Sid"] for one in dev.role_documents(function)[0]["Statement"]}
        assert not sids & {"RunCheckpointDocuments", "CheckpointWhatMayBeStopped", "SeeCheckpoints", "LetVolumesBeRead"}


@pytest.mark.parametrize("action", sorted(DENIED_TO_ALL))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_function_may_create_or_delete_tags_even_as_admin(prod: StageTemplates, function: str, action: str) -> None:
    # A request that deletes all tags at once names no tag key, so the context is empty.
    request = Request(action, instance())
    assert ask([*prod.role_documents(function), ALLOW_ALL], request) is Answer.DENIED


def test_the_conditions_follow_the_tag_keys_of_the_stage() -> None:
    scope = {"managed_key": "acme:gpu", "criticality_key": "acme:level", "stage": "dev"}
    for function, actions in MAY_ACT.items():
        rows = [row for row in function_permissions.FUNCTIONS[function] if set(row.actions) & actions]
        assert len(rows) == 4
        keys = {key for row in rows for tests in statements.conditions_of(row, scope).values() for key in tests}
        assert keys == {"aws:ResourceTag/acme:gpu", "aws:ResourceTag/acme:level"}


# Other bounds -------------------------------------------------------------------------------------------------------


def parameter(name: str, stage: str = "prod") -> str:
    return f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/governor/{stage}/{name}"


@pytest.mark.parametrize("function", ["guard_budget", "confirm_actions"])
def test_who_acts_reads_the_controls_and_no_other_parameter(prod: StageTemplates, function: str) -> None:
    documents = prod.role_documents(function)
    for name in ("control", "control/pause", "control/keep/i-0abc"):
        assert ask(documents, Request("ssm:GetParametersByPath", parameter(name))) is Answer.ALLOWED
        assert ask(documents, Request("ssm:GetParametersByPath", parameter(name, "dev"))) is Answer.NOT_ALLOWED
        assert ask(documents, Request("ssm:GetParameter", parameter(name))) is Answer.NOT_ALLOWED
    for name in ("budget", "budget/limit-usd", "controlled"):
        assert ask(documents, Request("ssm:GetParametersByPath", parameter(name))) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("keys", [["retired"], ["ledger"], ["retired", "ledger"], None])
def test_the_check_before_a_deletion_touches_its_own_record_alone(prod: StageTemplates, keys: list[str] | None) -> None:
    table = prod.one("AWS::DynamoDB::Table").attribute("Arn")
    context = {} if keys is None else {"dynamodb:LeadingKeys": keys}
    answer = Answer.ALLOWED if keys == ["retired"] else Answer.NOT_ALLOWED
    for action in ("dynamodb:GetItem", "dynamodb:DeleteItem"):
        assert ask(prod.role_documents("check_retired"), Request(action, table, context)) is answer


@pytest.mark.parametrize("function", ["guard_budget", "confirm_actions"])
def test_who_acts_sees_instances_in_the_listed_regions_alone(prod: StageTemplates, function: str) -> None:
    documents = prod.role_documents(function)
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
            assert statement["Sid"] != "LetVolumesBeRead", "keys of volumes are not those of the stage"
            (via,) = statement["Condition"]["StringEquals"].values()
            assert as_list(via) in (
                [f"{service}.{home}.{suffix}" for suffix in suffixes] for service in ("dynamodb", "sns")
            )
            assert statement["Resource"] == templates.outputs["State"]["KeyArn"]["Value"]


# People -------------------------------------------------------------------------------------------------------------


def test_there_are_three_policies_for_people(dev: StageTemplates) -> None:
    assert set(people_documents(dev)) == {"Reader", "Operator", "Approver"}


def test_a_reader_changes_nothing(dev: StageTemplates) -> None:
    reads = ("Describe", "Filter", "Get", "List", "Query", "Simulate", "View", "Decrypt")
    actions = actions_of([people_documents(dev)["Reader"]])
    assert [action for action in actions if not action.partition(":")[2].startswith(reads)] == []


def test_a_reader_asks_only_what_the_roles_of_the_functions_may_do(dev: StageTemplates) -> None:
    document = people_documents(dev)["Reader"]
    for one in dev.functions().values():
        assert ask([document], Request("iam:SimulatePrincipalPolicy", one.properties["Role"])) is Answer.ALLOWED
    admin = Request("iam:SimulatePrincipalPolicy", f"arn:aws:iam::{ACCOUNT}:role/admin")
    assert ask([document], admin) is Answer.NOT_ALLOWED


TAG_ACTIONS = {
    "autoscaling:CreateOrUpdateTags",
    "autoscaling:DeleteTags",
    "ec2:CreateTags",
    "ec2:DeleteTags",
}
OPERATOR_ACTIONS = {
    "autoscaling:ResumeProcesses",
    "autoscaling:SuspendProcesses",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:PutItem",
    "lambda:InvokeFunction",
    "ssm:DeleteParameter",
    "ssm:PutParameter",
}


def test_an_operator_has_exactly_these_actions(dev: StageTemplates) -> None:
    assert actions_of([people_documents(dev)["Operator"]]) == OPERATOR_ACTIONS | TAG_ACTIONS | TABLE_KEY_ACTIONS


def test_an_operator_edits_settings_and_controls_of_the_stage_and_nothing_else(dev: StageTemplates) -> None:
    document = people_documents(dev)["Operator"]
    for name in ("budget/stop-percent", "control/pause", "control/keep/i-0abc", "control/override/budget"):
        assert ask([document], Request("ssm:PutParameter", parameter(name, "dev"))) is Answer.ALLOWED
        assert ask([document], Request("ssm:PutParameter", parameter(name, "prod"))) is Answer.NOT_ALLOWED


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("control/keep/i-0abc", Answer.ALLOWED),
        ("control/override/budget", Answer.ALLOWED),
        ("control/pause", Answer.NOT_ALLOWED),
        ("budget/stop-percent", Answer.NOT_ALLOWED),
    ],
)
def test_an_operator_lifts_keeps_and_overrides_and_deletes_no_other_parameter(
    dev: StageTemplates, name: str, answer: Answer
) -> None:
    document = people_documents(dev)["Operator"]
    assert ask([document], Request("ssm:DeleteParameter", parameter(name, "dev"))) is answer
    assert ask([document], Request("ssm:DeleteParameter", parameter(name, "prod"))) is Answer.NOT_ALLOWED


def test_an_operator_may_ask_the_guard_and_no_other_function(dev: StageTemplates) -> None:
    document = people_documents(dev)["Operator"]
    answers = {
        name: ask([document], Request("lambda:InvokeFunction", one.attribute("Arn")))
        for name, one in dev.functions().items()
    }
    assert {name for name, answer in answers.items() if answer is Answer.ALLOWED} == {"guard_budget"}


@pytest.mark.parametrize("action", sorted(TAG_ACTIONS))
@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["governor:managed", "governor:criticality", "governor:keep", "governor:checkpoint"], Answer.ALLOWED),
        (["governor:project", "governor:pool"], Answer.ALLOWED),
        (["Name"], Answer.NOT_ALLOWED),
        (["governor:managed", "Name"], Answer.NOT_ALLOWED),
        (None, Answer.NOT_ALLOWED),
    ],
)
def test_an_operator_writes_the_tags_of_the_stage_and_no_others(
    dev: StageTemplates, keys: list[str] | None, answer: Answer, action: str
) -> None:
    document = people_documents(dev)["Operator"]
    context = {} if keys is None else {"aws:TagKeys": keys}
    assert ask([document], Request(action, target(action), context)) is answer
    assert ask([document], Request(action, target(action, "eu-west-1"), context)) is Answer.NOT_ALLOWED


# Partition keys of the table that a policy for people may write.
WRITABLE: Mapping[str, set[str]] = {
    "Operator": {"message#test@now", "taken"},
    "Approver": {"approval#1", "ledger-group", "lease#guard_budget", "retired", "taken"},
}
PARTITIONS = {
    "approval#1",
    "ledger",
    "ledger-group",
    "lease#guard_budget",
    "message#stop",
    "message#test@now",
    "retired",
    "settings",
    "taken",
}


@pytest.mark.parametrize("policy", WRITABLE)
def test_people_write_only_the_records_that_are_theirs(dev: StageTemplates, policy: str) -> None:
    document = people_documents(dev)[policy]
    table = dev.one("AWS::DynamoDB::Table").attribute("Arn")

    def answer(*keys: str) -> Answer:
        context = {"dynamodb:LeadingKeys": keys} if keys else {}
        return ask([document], Request("dynamodb:PutItem", table, context))

    assert {key for key in PARTITIONS if answer(key) is Answer.ALLOWED} == WRITABLE[policy]
    assert answer("taken", "ledger") is Answer.NOT_ALLOWED
    assert answer() is Answer.NOT_ALLOWED


def test_an_approver_has_exactly_these_actions(dev: StageTemplates) -> None:
    assert (
        actions_of([people_documents(dev)["Approver"]])
        == {
            "autoscaling:ExitStandby",
            "autoscaling:UpdateAutoScalingGroup",
            "dynamodb:ConditionCheckItem",
            "dynamodb:DeleteItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
            "ssm:DeleteParameter",
            "ssm:DeleteParameters",
        }
        | TABLE_KEY_ACTIONS
    )


def test_an_approver_gives_back_the_groups_and_parameters_of_the_stage_alone(dev: StageTemplates) -> None:
    document = people_documents(dev)["Approver"]
    for action in ("autoscaling:ExitStandby", "autoscaling:UpdateAutoScalingGroup"):
        assert ask([document], Request(action, group(), {MANAGED: "dev"})) is Answer.ALLOWED
        assert ask([document], Request(action, group(), {MANAGED: "prod"})) is Answer.NOT_ALLOWED
        assert ask([document], Request(action, group())) is Answer.NOT_ALLOWED
    for action in ("ssm:DeleteParameter", "ssm:DeleteParameters"):
        assert ask([document], Request(action, parameter("budget/mode", "dev"))) is Answer.ALLOWED
        assert ask([document], Request(action, parameter("budget/mode", "prod"))) is Answer.NOT_ALLOWED


def test_a_brake_lets_people_see_it_and_operators_answer_it(dev: StageTemplates, full: StageTemplates) -> None:
    added = {
        name: actions_of([document]) - actions_of([people_documents(dev)[name]])
        for name, document in people_documents(full).items()
    }
    assert added == {
        "Reader": {"budgets:DescribeBudgetActionsForBudget"},
        "Operator": {"budgets:ExecuteBudgetAction"},
        "Approver": set(),
    }
    budget = f"arn:aws:budgets::{ACCOUNT}:budget/{full.one('AWS::Budgets::Budget').ref}"
    action = full.outputs["Control"]["NativeBrakeActionId"]["Value"]
    operator = people_documents(full)["Operator"]
    assert ask([operator], Request("budgets:ExecuteBudgetAction", f"{budget}/action/{action}")) is Answer.ALLOWED
    assert ask([operator], Request("budgets:ExecuteBudgetAction", f"{budget}/action/x")) is Answer.NOT_ALLOWED


# IAM counts the characters of a policy without white space (IAM and STS quotas).
ROLE_CHARACTERS, POLICY_CHARACTERS = 10_240, 6_144
NAMES_ARE_LONGER = 1_000


@pytest.mark.parametrize("stage", ["dev", "full", "tokyo", "china", "wide"])
def test_every_policy_is_small_enough_for_iam(synthesis: Synthesis, stage: str) -> None:
    templates = synthesis.templates[stage]
    for function in FUNCTIONS:
        (document,) = templates.role_documents(function)
        assert len(json.dumps(document, separators=(",", ":"))) < ROLE_CHARACTERS - NAMES_ARE_LONGER, function
    for name, document in people_documents(templates).items():
        assert len(json.dumps(document, separators=(",", ":"))) < POLICY_CHARACTERS - NAMES_ARE_LONGER, name


def test_the_page_of_permissions_is_what_the_table_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "permissions.md"
    written = page.read_text(encoding="utf-8")
    assert written == permissions.describe(), "run: python -m stacks.permissions > docs/permissions.md"


def test_whatever_cannot_be_bound_has_a_guard_in_the_table() -> None:
    assert [key for key, guard in permissions.unbound_statements().items() if not guard] == []
