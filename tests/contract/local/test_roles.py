"""Deployed roles are enforced, and tag conditions are evaluated against the instances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from local.authorisation import permission_of
from tests.contract.local.conftest import Probe
from tests.contract.local.test_ec2 import launch, states


def tagged(probe: Probe, **tags: str) -> str:
    """An instance with `governor:<name>` tags."""
    listed = [{"Key": f"governor:{name}", "Value": value} for name, value in tags.items()]
    specification = [{"ResourceType": "instance", "Tags": listed}] if listed else []
    return launch(probe.aws, TagSpecifications=specification)


def stop_by_function(probe: Probe, *ids: str) -> str:
    """The error message of the function's attempt, or an empty text."""
    event = json.dumps({"wish": "stop", "instances": list(ids)})
    answer = probe.aws.client("lambda").invoke(FunctionName=probe.function, Payload=event)
    body = json.loads(answer["Payload"].read())
    return str(body.get("errorMessage", ""))


def test_without_enforcement_the_function_may_do_anything(probe: Probe) -> None:
    critical = tagged(probe, managed="test", criticality="critical")
    assert stop_by_function(probe, critical) == ""
    assert states(probe.aws)[critical] == "stopped"


@pytest.mark.parametrize("criticality", ["standard", "preemptible"])
def test_role_may_stop_what_is_managed_and_not_critical(probe: Probe, criticality: str) -> None:
    instance_id = tagged(probe, managed="test", criticality=criticality)
    probe.aws.enforce_roles(True)
    assert stop_by_function(probe, instance_id) == ""
    assert states(probe.aws)[instance_id] == "stopped"


@pytest.mark.parametrize(
    "tags",
    [
        {"managed": "test", "criticality": "critical"},
        {"managed": "test", "criticality": "Standard"},
        {"managed": "test"},
        {"managed": "another", "criticality": "standard"},
        {"criticality": "standard"},
        {},
    ],
)
def test_role_cannot_stop_critical_foreign_or_untagged_instances(probe: Probe, tags: dict[str, str]) -> None:
    instance_id = tagged(probe, **tags)
    probe.aws.enforce_roles(True)
    assert "UnauthorizedOperation" in stop_by_function(probe, instance_id)
    assert states(probe.aws)[instance_id] == "running"


def test_one_critical_instance_blocks_the_whole_call(probe: Probe) -> None:
    allowed = tagged(probe, managed="test", criticality="standard")
    critical = tagged(probe, managed="test", criticality="critical")
    probe.aws.enforce_roles(True)
    assert "explicit deny" in stop_by_function(probe, allowed, critical)
    assert states(probe.aws)[allowed] == "running"


def test_topic_that_demands_tls_takes_messages_of_allowed_callers(probe: Probe) -> None:
    probe.aws.enforce_roles(True)
    mark = probe.mark()
    probe.aws.client("sns").publish(TopicArn=probe.outputs["BudgetTopicArn"], Message="over loopback")
    probe.aws.settle()
    assert [one.result for one in probe.since(mark, "sns")] == ["done"]


def test_call_that_the_role_does_not_have_is_denied(probe: Probe) -> None:
    probe.aws.enforce_roles(True)
    event = json.dumps({"wish": "write", "key": "role", "count": 1})
    client = probe.aws.client("lambda")
    assert "FunctionError" not in client.invoke(FunctionName=probe.function, Payload=event)
    answer = client.invoke(FunctionName=probe.function, Payload=json.dumps({"wish": "read"}))
    assert "AccessDeniedException" in json.loads(answer["Payload"].read())["errorMessage"]


def test_enforcement_works_with_the_clock_years_ahead_of_the_machine(probe: Probe) -> None:
    instance_id = tagged(probe, managed="test", criticality="standard")
    probe.aws.enforce_roles(True)
    before = probe.aws.now()
    probe.aws.set_clock(before.replace(year=before.year + 3, day=1))
    try:
        assert stop_by_function(probe, instance_id) == ""
    finally:
        probe.aws.set_clock(before)


def user_with(probe: Probe, name: str, *statements: dict[str, Any]) -> dict[str, Any]:
    """Keys (boto3's names) of a new user with an inline policy."""
    iam = probe.aws.client("iam")
    iam.create_user(UserName=name)
    document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **one} for one in statements]})
    iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=document)
    keys = iam.create_access_key(UserName=name)["AccessKey"]
    return {"aws_access_key_id": keys["AccessKeyId"], "aws_secret_access_key": keys["SecretAccessKey"]}


def test_reading_a_tree_of_parameters_is_authorised_on_its_path(probe: Probe) -> None:
    resource = "arn:aws:ssm:us-east-1:123456789012:parameter/probe"
    keys = user_with(probe, "reader", {"Action": "ssm:GetParametersByPath", "Resource": resource})
    probe.aws.enforce_roles(True)
    ssm = probe.aws.client("ssm", **keys)
    assert ssm.get_parameters_by_path(Path="/probe", Recursive=True)["Parameters"]
    with pytest.raises(ClientError, match="AccessDenied"):
        ssm.get_parameters_by_path(Path="/other", Recursive=True)


def test_reading_a_budget_needs_view_budget_on_it(probe: Probe) -> None:
    name = probe.outputs["BudgetName"]
    resource = f"arn:aws:budgets::123456789012:budget/{name}"
    keys = user_with(probe, "accountant", {"Action": "budgets:ViewBudget", "Resource": resource})
    probe.aws.enforce_roles(True)
    budgets = probe.aws.client("budgets", **keys)
    assert budgets.describe_budget(AccountId="123456789012", BudgetName=name)["Budget"]["BudgetName"] == name
    with pytest.raises(ClientError, match="AccessDenied"):
        budgets.describe_budget(AccountId="123456789012", BudgetName="another")
    with pytest.raises(ClientError, match="budgets:ModifyBudget"):
        budgets.delete_budget(AccountId="123456789012", BudgetName=name)


@pytest.mark.parametrize(
    ("operation", "permission"),
    [
        ("budgets:DescribeNotificationsForBudget", "budgets:ViewBudget"),
        ("budgets:UpdateBudget", "budgets:ModifyBudget"),
        ("budgets:DescribeBudgetActionsForAccount", "budgets:DescribeBudgetActionsForAccount"),
        ("ec2:StopInstances", "ec2:StopInstances"),
    ],
)
def test_operations_need_the_permissions_of_aws(operation: str, permission: str) -> None:
    assert permission_of(operation) == permission


def test_log_of_calls_names_the_permissions_of_a_transaction(probe: Probe) -> None:
    before = len(probe.aws.calls())
    table = probe.outputs["TableName"]
    item = {"pk": {"S": "permissions"}, "sk": {"S": "0"}}
    probe.aws.client("dynamodb").transact_write_items(
        TransactItems=[
            {"Put": {"TableName": table, "Item": item}},
            {
                "ConditionCheck": {
                    "TableName": table,
                    "Key": {"pk": {"S": "none"}, "sk": {"S": "0"}},
                    "ConditionExpression": "attribute_not_exists(pk)",
                }
            },
        ]
    )
    [call] = [one for one in probe.aws.calls(before) if one.action == "dynamodb:TransactWriteItems"]
    assert call.permissions == ("dynamodb:PutItem", "dynamodb:ConditionCheckItem")


GROUP_ACTIONS = {
    "EnterStandby": {"InstanceIds": ["{member}"], "ShouldDecrementDesiredCapacity": True},
    "UpdateAutoScalingGroup": {"MinSize": 0},
    "SetDesiredCapacity": {"DesiredCapacity": 1},
    "TerminateInstanceInAutoScalingGroup": {"InstanceId": "{member}", "ShouldDecrementDesiredCapacity": True},
    "CreateOrUpdateTags": {
        "Tags": [{"ResourceId": "{group}", "Key": "seen", "Value": "1", "PropagateAtLaunch": False}]
    },
    "DeleteTags": {"Tags": [{"ResourceId": "{group}", "Key": "seen"}]},
    "ExitStandby": {"InstanceIds": ["{member}"]},
}


@pytest.fixture
def two_groups(probe: Probe) -> Iterator[tuple[str, str]]:
    """A group managed by `test` and one managed by another, each with two members."""
    groups, ec2 = probe.aws.client("autoscaling"), probe.aws.client("ec2")
    data = {"ImageId": "ami-12c6146b", "InstanceType": "g4dn.xlarge"}
    template = ec2.create_launch_template(LaunchTemplateName="roles", LaunchTemplateData=data)["LaunchTemplate"]
    for managed in ("test", "other"):
        groups.create_auto_scaling_group(
            AutoScalingGroupName=f"roles-{managed}",
            MinSize=0,
            MaxSize=3,
            DesiredCapacity=2,
            AvailabilityZones=["us-east-1a"],
            LaunchTemplate={"LaunchTemplateId": template["LaunchTemplateId"]},
            Tags=[{"Key": "governor:managed", "Value": managed, "PropagateAtLaunch": False}],
        )
    yield "roles-test", "roles-other"
    probe.aws.enforce_roles(False)
    for managed in ("test", "other"):
        groups.delete_auto_scaling_group(AutoScalingGroupName=f"roles-{managed}", ForceDelete=True)
    ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])


@pytest.mark.parametrize("action", GROUP_ACTIONS)
def test_actions_on_groups_are_authorised_by_the_tags_of_the_group(
    probe: Probe, two_groups: tuple[str, str], action: str
) -> None:
    root = probe.aws.client("autoscaling")
    statement = {
        "Action": f"autoscaling:{action}",
        "Resource": "arn:aws:autoscaling:*:123456789012:autoScalingGroup:*:autoScalingGroupName/*",
        "Condition": {"StringEquals": {"aws:ResourceTag/governor:managed": "test"}},
    }
    keys = user_with(probe, f"scaler-{action}", statement)
    own = probe.aws.client("autoscaling", **keys)
    operation = getattr(own, xform_name(action))
    denied = []
    for group in two_groups:
        described = root.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]
        member = described["Instances"][0]["InstanceId"]
        if action == "ExitStandby":
            root.enter_standby(AutoScalingGroupName=group, InstanceIds=[member], ShouldDecrementDesiredCapacity=True)
        arguments = filled(GROUP_ACTIONS[action], member=member, group=group)
        if "Tags" not in arguments and "InstanceId" not in arguments:
            arguments["AutoScalingGroupName"] = group
        probe.aws.enforce_roles(True)
        try:
            operation(**arguments)
        except ClientError as error:
            denied.append((group, error.response["Error"]["Code"]))
        probe.aws.enforce_roles(False)
    assert denied == [("roles-other", "AccessDenied")]


def filled(value: Any, **names: str) -> Any:
    """`value` with {member} and {group} replaced in its texts."""
    if isinstance(value, str):
        return value.format(**names)
    if isinstance(value, dict):
        return {key: filled(one, **names) for key, one in value.items()}
    return [filled(one, **names) for one in value] if isinstance(value, list) else value


def test_cancelling_a_spot_request_is_authorised_by_its_tags(probe: Probe) -> None:
    ec2, requests = probe.aws.client("ec2"), []
    for managed in ("test", "other"):
        market = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}}
        instance_id = launch(probe.aws, InstanceMarketOptions=market)
        instance = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
        requests.append(instance["SpotInstanceRequestId"])
        ec2.create_tags(Resources=requests[-1:], Tags=[{"Key": "governor:managed", "Value": managed}])
    statement = {
        "Action": "ec2:CancelSpotInstanceRequests",
        "Resource": "arn:aws:ec2:*:123456789012:spot-instances-request/*",
        "Condition": {"StringEquals": {"aws:ResourceTag/governor:managed": "test"}},
    }
    keys = user_with(probe, "canceller", statement)
    probe.aws.enforce_roles(True)
    own = probe.aws.client("ec2", **keys)
    own.cancel_spot_instance_requests(SpotInstanceRequestIds=requests[:1])
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        own.cancel_spot_instance_requests(SpotInstanceRequestIds=requests)


def test_one_policy_covers_the_control_path_and_what_is_below(probe: Probe) -> None:
    ssm = probe.aws.client("ssm")
    names = [f"/governor/test/{name}" for name in ("control/pause", "control/keep/i-1", "budget/usd")]
    for name in names:
        ssm.put_parameter(Name=name, Value="off", Type="String")
    root = "arn:aws:ssm:us-east-1:123456789012:parameter/governor/test/control"
    statement = {"Action": "ssm:GetParametersByPath", "Resource": [root, f"{root}/*"]}
    below = {"Action": "ssm:DeleteParameter", "Resource": f"{root}/keep/*"}
    keys = user_with(probe, "controller", statement, below)
    probe.aws.enforce_roles(True)
    own = probe.aws.client("ssm", **keys)
    for path, count in (
        ("/governor/test/control", 2),
        ("/governor/test/control/", 2),
        ("/governor/test/control/keep", 1),
    ):
        assert len(own.get_parameters_by_path(Path=path, Recursive=True)["Parameters"]) == count
    for path in ("/governor/test", "/governor/test/budget", "/governor/other/control"):
        with pytest.raises(ClientError, match="AccessDenied"):
            own.get_parameters_by_path(Path=path, Recursive=True)
    with pytest.raises(ClientError, match="AccessDenied"):
        own.delete_parameter(Name=names[0])
    own.delete_parameter(Name=names[1])
    probe.aws.enforce_roles(False)
    ssm.delete_parameters(Names=[names[0], names[2]])
