"""`governor doctor` against an emulated account: what it finds, what it cannot find out, and what it may call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import boto3
import pytest
from botocore import xform_name

from cli.doctor_messages import TEST_PARTITION
from cli.doctor_rights import ACTIONS
from governor.aws.clients import client
from governor.aws.state_table import record_of_item
from governor.shell.outbox import send
from stacks.function_permissions import FUNCTIONS
from stacks.people_permissions import PEOPLE
from tests.unit.cli.world import BUDGET, FURTHER, HOME, KEYS, NOW, World, a_world

ORDER = [
    "topic page",
    "topic warn",
    "topic info",
    "topic chat",
    "deliveries",
    "run of check_settings",
    "run of guard_budget",
    "run of confirm_actions",
    "alarms",
    "settings",
    "controls",
    "cost-allocation tags",
    "Regions",
    "role of guard_budget",
    "role of confirm_actions",
    "stop, tried",
]
TAGS = ("governor:managed", "governor:project", "governor:pool")


@pytest.fixture(scope="module")
def healthy() -> Iterator[World]:
    """A stage of which everything is well. Making one takes a second, so tests replace answers and change nothing."""
    environment = dict(os.environ)
    with a_world() as made:
        made.deploy(mode="enforce")
        for topic in made.topics:
            subscribe(made, topic)
        put_alarm("Governor-dev-Watch-GuardBudgetDead")
        put_alarm("Governor-dev-Control-GuardBudgetFailedAlarm")
        put_alarm("Governor-dev-eu-Watch-GuardBudgetDead", "ALARM")  # of the stage dev-eu
        made.launch()
        say_tags(made)
        made.answers["iam.SimulatePrincipalPolicy"] = lambda region, params: simulated(params)
        made.guard()
        made.confirm()
        yield made
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture
def world(healthy: World) -> Iterator[World]:
    """The stage, with the answers of AWS as they were."""
    answers = dict(healthy.answers)
    healthy.calls.clear()
    yield healthy
    healthy.answers.clear()
    healthy.answers.update(answers)


def subscribe(world: World, topic: str) -> None:
    boto3.client("sns", HOME).subscribe(
        TopicArn=world.topics[topic], Protocol="https", Endpoint="https://example.com/hook"
    )


def put_alarm(name: str, state: str = "OK") -> None:
    cloudwatch = boto3.client("cloudwatch", HOME)
    figures = {"Threshold": 1.0, "EvaluationPeriods": 1, "ComparisonOperator": "LessThanThreshold"}
    metric = {"Namespace": "N", "MetricName": "M", "Period": 60, "Statistic": "Sum"}
    cloudwatch.put_metric_alarm(AlarmName=name, **figures, **metric)
    cloudwatch.set_alarm_state(AlarmName=name, StateValue=state, StateReason="test")


def say_tags(world: World, **states: str) -> None:
    def answer(region: str, params: Mapping[str, Any]) -> Any:
        wanted = {key: states.get(key.partition(":")[2], "Active") for key in params["TagKeys"]}
        return {
            "CostAllocationTags": [
                {"TagKey": key, "Type": "UserDefined", "Status": state} for key, state in wanted.items() if state
            ]
        }

    world.answers["ce.ListCostAllocationTags"] = answer


def simulated(params: Mapping[str, Any], decision: str = "allowed", *actions: str, **detail: Any) -> Any:
    return {
        "EvaluationResults": [
            {"EvalActionName": action, "EvalResourceName": params["ResourceArns"][0]}
            | ({"EvalDecision": decision, **detail} if action in actions else {"EvalDecision": "allowed"})
            for action in params["ActionNames"]
        ]
    }


def findings(world: World, *, exit_code: int = 0) -> dict[str, tuple[str, str]]:
    answer = world.answer("doctor", exit_code=exit_code)
    return {row["check"]: (row["result"], row["words"]) for row in answer["checks"]}


def alter(world: World, call: str, change: Callable[[Any, Mapping[str, Any]], Any]) -> None:
    """Let a call answer what AWS answers, changed."""
    service, _, operation = call.partition(".")

    def answer(region: str, params: Mapping[str, Any]) -> Any:
        del world.answers[call]
        try:
            return change(getattr(client(service, region), xform_name(operation))(**params), params)
        finally:
            world.answers[call] = answer

    world.answers[call] = answer


def write(world: World, name: str, value: str) -> None:
    """Let a parameter hold something else, or let it be there."""

    def change(answer: Any, params: Mapping[str, Any]) -> Any:
        full = f"/governor/dev/{name}"
        found = [one for one in answer["Parameters"] if one["Name"] != full]
        if not answer.get("NextToken"):
            found.append({"Name": full, "Value": value, "Version": 2, "LastModifiedDate": NOW})
        return {**answer, "Parameters": found}

    alter(world, "ssm.GetParametersByPath", change)


def forget(world: World, pk: str, sk: str, sequence: str = "") -> None:
    """Let a record be missing, or have another sequence."""

    def change(answer: Any, params: Mapping[str, Any]) -> Any:
        if (params["Key"]["pk"]["S"], params["Key"]["sk"]["S"]) != (pk, sk):
            return answer
        return {"Item": answer["Item"] | {"sequence": {"S": sequence}}} if sequence else {}

    alter(world, "dynamodb.GetItem", change)


def show_alarm(world: World, name: str, state: str = "OK", *, mute: bool = False) -> None:
    """Let there be one more alarm."""

    def change(answer: Any, params: Mapping[str, Any]) -> Any:
        more = {"AlarmName": name, "StateValue": state, "ActionsEnabled": not mute}
        mine = name.startswith(params["AlarmNamePrefix"])
        return {**answer, "MetricAlarms": [*answer["MetricAlarms"], *([more] if mine else [])]}

    alter(world, "cloudwatch.DescribeAlarms", change)


# --- All is well ------------------------------------------------------------------------------------------------------


def test_a_healthy_stage_is_ok_in_everything(world: World) -> None:
    found = findings(world)
    assert list(found) == ORDER
    assert {name: result for name, (result, _) in found.items() if result != "ok"} == {}
    shown = world.governor("doctor")
    assert shown.exit_code == 0
    assert "16 ok." in shown.stdout
    assert max(len(line) for line in shown.stdout.splitlines()) <= 100


def test_doctor_calls_only_what_a_reader_may_and_changes_nothing(world: World) -> None:
    granted = {action for statement in PEOPLE["Reader"] for action in statement.actions}
    with_brake(world)
    findings(world)
    called = {name.replace(".", ":") for name in world.calls}
    # EC2 answers a dry run by saying what it would do; a reader may not stop and is told so.
    assert called - granted == {"ec2:StopInstances"}


def test_the_stop_is_only_a_dry_run(world: World) -> None:
    seen: list[Mapping[str, Any]] = []

    def stop(region: str, params: Mapping[str, Any]) -> Any:
        seen.append(params)
        return NotImplemented

    world.answers["ec2.StopInstances"] = stop
    findings(world)
    assert [call["DryRun"] for call in seen] == [True]


def test_what_the_roles_are_asked_for_is_what_the_table_grants_them() -> None:
    for function, by_kind in ACTIONS.items():
        allowed = {a for one in FUNCTIONS[function] if one.effect == "Allow" for a in one.actions}
        assert {action for actions in by_kind.values() for action in actions} <= allowed


def test_the_roles_are_asked_as_for_a_managed_machine_in_each_region(world: World) -> None:
    asked: list[Mapping[str, Any]] = []

    def simulate(region: str, params: Mapping[str, Any]) -> Any:
        asked.append(params)
        return simulated(params)

    world.answers["iam.SimulatePrincipalPolicy"] = simulate
    findings(world)
    resources = {call["ResourceArns"][0] for call in asked}
    assert f"arn:aws:ec2:{FURTHER}:123456789012:instance/i-00000000000000000" in resources
    assert {arn.split(":")[3] for arn in resources} == {HOME, FURTHER}
    for call in asked:
        context = {entry["ContextKeyName"]: entry["ContextKeyValues"] for entry in call["ContextEntries"]}
        assert context[f"aws:ResourceTag/{KEYS['managed']}"] == ["dev"]
        assert context[f"aws:ResourceTag/{KEYS['criticality']}"] == ["standard"]
        assert context["aws:RequestedRegion"] == [call["ResourceArns"][0].split(":")[3]]


# --- One thing is wrong -----------------------------------------------------------------------------------------------


def unsubscribe(world: World, topic: str, *waiting: str) -> None:
    def answer(region: str, params: Mapping[str, Any]) -> Any:
        if params["TopicArn"] != world.topics[topic]:
            return NotImplemented
        return {"Subscriptions": [{"SubscriptionArn": "PendingConfirmation", "Endpoint": one} for one in waiting]}

    world.answers["sns.ListSubscriptionsByTopic"] = answer


def fail_deliveries(world: World) -> None:
    world.answers["cloudwatch.GetMetricData"] = lambda region, params: {
        "MetricDataResults": [
            {
                "Id": query["Id"],
                "Values": [2.0] if query["MetricStat"]["Metric"]["MetricName"].endswith("Failed") else [],
            }
            for query in params["MetricDataQueries"][:2]
        ]
    }


def delete_alarms(world: World) -> None:
    world.answers["cloudwatch.DescribeAlarms"] = lambda region, params: {"MetricAlarms": []}


def refuse_simulated(decision: str, *actions: str, **detail: Any) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.answers["iam.SimulatePrincipalPolicy"] = lambda region, params: simulated(
            params, decision, *actions, **detail
        )

    return spoil


def refuse_stop(message: str) -> Callable[[World], None]:
    return lambda world: world.refuse("ec2.StopInstances", "UnauthorizedOperation", message)


def change_outputs(world: World, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Let the Control stack say something else."""

    def say(answer: Any, params: Mapping[str, Any]) -> Any:
        for stack in answer["Stacks"]:
            if stack["StackName"] == "Governor-dev-Control":
                outputs = change({one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]})
                stack["Outputs"] = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
        return answer

    alter(world, "cloudformation.DescribeStacks", say)


def with_brake(world: World, status: str = "STANDBY", action_id: str = "brake-1") -> None:
    def actions(region: str, params: Mapping[str, Any]) -> Any:
        assert params["BudgetName"] == BUDGET
        threshold = {"ActionThresholdValue": 98.0, "ActionThresholdType": "PERCENTAGE"}
        return {"Actions": [{"ActionId": action_id, "Status": status, "ActionThreshold": threshold}]}

    change_outputs(world, lambda outputs: outputs | {"NativeBrakeActionId": "brake-1"})
    world.answers["budgets.DescribeBudgetActionsForBudget"] = actions


LONG_AGO = (NOW - timedelta(minutes=16)).isoformat()
SCP = "You are not authorized: ec2:StopInstances with an explicit deny in a service control policy"
DENIED_BY_SCP = {"AllowedByOrganizations": False}

SPOILT: Mapping[str, tuple[Callable[[World], Any], str, str, str]] = {
    "no page subscription": (
        lambda w: unsubscribe(w, "Page"),
        "topic page",
        "fail",
        "add an address to subscribers.page",
    ),
    "page not confirmed": (
        lambda w: unsubscribe(w, "Page", "ops@example.com"),
        "topic page",
        "fail",
        "not yet confirmed: ops@example.com; open the link",
    ),
    "no warn subscription": (lambda w: unsubscribe(w, "Warn"), "topic warn", "warn", "nobody gets its messages"),
    "info not confirmed": (lambda w: unsubscribe(w, "Info", "a@b.c"), "topic info", "warn", "a@b.c"),
    "chat not confirmed": (lambda w: unsubscribe(w, "Slack", "a@b.c"), "topic chat", "warn", "a@b.c"),
    "deliveries failed": (fail_deliveries, "deliveries", "warn", "not delivered in the last 24 h: 2 of page"),
    "never ran": (
        lambda w: forget(w, "run#guard_budget", "state"),
        "run of guard_budget",
        "fail",
        "it has never completed a run",
    ),
    "ran long ago": (
        lambda w: forget(w, "run#guard_budget", "state", LONG_AGO),
        "run of guard_budget",
        "fail",
        "the last run was 16 min ago",
    ),
    "an alarm": (
        lambda w: show_alarm(w, "Governor-dev-Watch-StopFailures", "ALARM"),
        "alarms",
        "warn",
        "Governor-dev-Watch-StopFailures in ALARM",
    ),
    "a mute alarm": (
        lambda w: show_alarm(w, "Governor-dev-Watch-StopFailures", mute=True),
        "alarms",
        "warn",
        "Governor-dev-Watch-StopFailures would tell nobody",
    ),
    "no alarms": (delete_alarms, "alarms", "fail", "the stage has no alarms; finish its deploy"),
    "an invalid setting": (
        lambda w: write(w, "budget/stop-percent", "lots"),
        "settings",
        "fail",
        "budget/stop-percent is 'lots': must be a number from 2 to 500 (version 1 stays in force); correct it with",
    ),
    "no settings in force": (
        lambda w: forget(w, "settings", "current"),
        "settings",
        "fail",
        "no version is in force yet",
    ),
    "an odd pause": (
        lambda w: write(w, "control/pause", "maybe"),
        "controls",
        "fail",
        "control/pause (the pause parameter",
    ),
    "a pause": (lambda w: write(w, "control/pause", "on"), "controls", "warn", "paused, so nothing is stopped"),
    "an odd keep": (lambda w: write(w, "control/keep/i-0abc", "soon"), "controls", "fail", "control/keep/i-0abc"),
    "an odd override": (lambda w: write(w, "control/override/x", "go on"), "controls", "fail", "control/override/x"),
    "an inactive tag": (
        lambda w: say_tags(w, project="Inactive"),
        "cost-allocation tags",
        "warn",
        "not active: governor:project; activate in Billing console, Cost allocation tags; it takes up to 24 h",
    ),
    "a missing tag": (
        lambda w: say_tags(w, pool=""),
        "cost-allocation tags",
        "warn",
        "not in the bill yet: governor:pool",
    ),
    "a role without a grant": (
        refuse_simulated("implicitDeny", "ec2:StopInstances"),
        "role of guard_budget",
        "fail",
        "may not ec2:StopInstances in us-east-1, eu-west-1 (not granted to the role)",
    ),
    "a role with a deny": (
        refuse_simulated("explicitDeny", "autoscaling:ExitStandby"),
        "role of confirm_actions",
        "fail",
        "may not autoscaling:ExitStandby in us-east-1, eu-west-1 (denied by a policy of the role)",
    ),
    "a role under a service control policy": (
        refuse_simulated("explicitDeny", "ec2:StartInstances", OrganizationsDecisionDetail=DENIED_BY_SCP),
        "role of confirm_actions",
        "fail",
        "(denied by a service control policy)",
    ),
    "a role with a boundary": (
        refuse_simulated(
            "implicitDeny",
            "autoscaling:EnterStandby",
            PermissionsBoundaryDecisionDetail={"AllowedByPermissionsBoundary": False},
        ),
        "role of guard_budget",
        "fail",
        "not within the permissions boundary of the role",
    ),
    "a stop that the organisation forbids": (
        refuse_stop(SCP),
        "stop, tried",
        "fail",
        "a service control policy forbids",
    ),
    "a stop refused without a reason": (refuse_stop("no"), "stop, tried", "unknown", "EC2 does not say whether"),
    "a stop that does not get there": (
        lambda w: w.refuse("ec2.StopInstances", "RequestLimitExceeded"),
        "stop, tried",
        "unknown",
        "RequestLimitExceeded",
    ),
    "a brake that failed": (
        lambda w: with_brake(w, "EXECUTION_FAILURE"),
        "native brake",
        "fail",
        "could not be put on",
    ),
    "a brake that is on": (lambda w: with_brake(w, "EXECUTION_SUCCESS"), "native brake", "warn", "launches are denied"),
    "a brake that is gone": (lambda w: with_brake(w, action_id="x"), "native brake", "fail", "has no action brake-1"),
    "a brake in a new state": (lambda w: with_brake(w, "SOFTENED"), "native brake", "unknown", "SOFTENED"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_what_is_wrong_is_said_in_its_line_and_nowhere_else(world: World, case: str) -> None:
    spoil, check, result, words = SPOILT[case]
    spoil(world)
    found = findings(world, exit_code=1 if result == "fail" else 0)
    assert found[check][0] == result, found[check]
    assert words in found[check][1]
    assert {name: one for name, one in found.items() if one[0] != "ok" and name != check} == {}


@pytest.mark.parametrize(
    ("code", "message", "result", "exit_code"),
    [
        ("AuthFailure", "", "fail", 1),
        ("OptInRequired", "", "fail", 1),
        ("UnauthorizedOperation", "with an explicit deny in a service control policy", "fail", 1),
        ("UnauthorizedOperation", "", "unknown", 0),
        ("RequestLimitExceeded", "", "unknown", 0),
    ],
)
def test_a_region_that_cannot_be_read(world: World, code: str, message: str, result: str, exit_code: int) -> None:
    world.refuse("ec2.DescribeInstances", code, message, region=FURTHER)
    found = findings(world, exit_code=exit_code)
    assert found["Regions"][0] == result
    assert f"{FURTHER} ({code}" in found["Regions"][1]
    assert HOME not in found["Regions"][1]
    assert found["stop, tried"][0] == "unknown"


def test_a_brake_that_is_armed_is_ok(world: World) -> None:
    with_brake(world)
    assert findings(world)["native brake"] == ("ok", "armed, at 98 % of the AWS budget")


def test_no_chat_is_fine(world: World) -> None:
    unsubscribe(world, "Slack")
    result, words = findings(world)["topic chat"]
    assert (result, "Amazon Q Developer" in words) == ("ok", True)


def test_a_person_who_may_not_stop_is_told_that_the_function_may(world: World) -> None:
    because = "because no identity-based policy allows the ec2:StopInstances action"
    world.refuse("ec2.StopInstances", "UnauthorizedOperation", because)
    result, words = findings(world)["stop, tried"]
    assert (result, "you may not stop" in words) == ("ok", True)


@pytest.mark.parametrize(
    "tags", [{"governor:managed": "dev"}, {"governor:managed": "dev ", "governor:criticality": "standard"}]
)
def test_without_anything_that_may_be_stopped_there_is_nothing_to_try_with(world: World, tags: dict[str, str]) -> None:
    def change(answer: Any, params: Mapping[str, Any]) -> Any:
        for instance in (one for reservation in answer["Reservations"] for one in reservation["Instances"]):
            instance["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        return answer

    alter(world, "ec2.DescribeInstances", change)
    result, words = findings(world)["stop, tried"]
    assert result == "unknown"
    assert "governor:managed=dev and governor:criticality=standard" in words
    assert "ec2.StopInstances" not in world.calls


def test_a_deploy_that_names_no_roles_is_to_be_repeated(world: World) -> None:
    change_outputs(world, lambda outputs: {k: v for k, v in outputs.items() if not k.endswith("RoleArn")})
    result, words = findings(world)["role of guard_budget"]
    assert (result, "make deploy STAGE=dev" in words) == ("unknown", True)


# --- What cannot be found out -----------------------------------------------------------------------------------------

REFUSED: Mapping[str, set[str]] = {
    "sns.ListSubscriptionsByTopic": {"topic page", "topic warn", "topic info", "topic chat"},
    "cloudwatch.GetMetricData": {"deliveries"},
    "cloudwatch.DescribeAlarms": {"alarms"},
    "dynamodb.GetItem": {"run of check_settings", "run of guard_budget", "run of confirm_actions", "settings"},
    "ssm.GetParametersByPath": {"settings", "controls"},
    "ce.ListCostAllocationTags": {"cost-allocation tags"},
    "iam.SimulatePrincipalPolicy": {"role of guard_budget", "role of confirm_actions"},
    "ec2.DescribeInstances": {"Regions", "stop, tried"},
    "budgets.DescribeBudgetActionsForBudget": {"native brake"},
}


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException", "InternalFailure"])
@pytest.mark.parametrize("call", REFUSED)
def test_what_aws_does_not_answer_is_unknown_and_fails_nothing(world: World, call: str, code: str) -> None:
    with_brake(world)
    world.refuse(call, code)
    found = findings(world)
    assert {name for name, (result, _) in found.items() if result != "ok"} == REFUSED[call]
    for name in REFUSED[call]:
        assert found[name][0] == "unknown"
        assert len(found[name][1]) > 20


def test_an_answer_that_nobody_understands_is_unknown_too(world: World) -> None:
    world.answers["ce.ListCostAllocationTags"] = lambda region, params: {}
    assert findings(world)["cost-allocation tags"][0] == "unknown"


def test_a_member_account_is_sent_to_the_management_account(world: World) -> None:
    world.refuse("ce.ListCostAllocationTags", "AccessDeniedException", "Linked account doesn't have access")
    assert "look in the management account" in findings(world)["cost-allocation tags"][1]


def test_without_what_the_control_stack_says_the_rest_is_still_checked(world: World) -> None:
    change_outputs(world, lambda outputs: {})
    found = findings(world, exit_code=1)
    assert found["Regions"][0] == "fail"
    assert "finish its deploy first" in found["Regions"][1]
    assert found["topic page"][0] == found["settings"][0] == "ok"


def test_a_stage_that_is_not_there_is_one_sentence(world: World) -> None:
    result = world.governor("doctor", "--stage", "other")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "not deployed" in result.stderr


# --- The test message -------------------------------------------------------------------------------------------------


class Outbox:
    """What send_messages would then send: way, severity or title, words."""

    def __init__(self, world: World) -> None:
        self.sent: list[tuple[str, str]] = []
        self.keys: list[str] = []
        world.answers["dynamodb.TransactWriteItems"] = self.write

    def write(self, region: str, params: Mapping[str, Any]) -> Any:
        for one in params["TransactItems"]:
            record = record_of_item(one["Put"]["Item"])
            self.keys.append(record.key.pk)
            assert send(record, self)
        return {}

    def mail(self, severity: str, subject: str, body: str) -> None:
        assert "this is a test by governor doctor" in subject
        self.sent.append(("mail", severity))

    def slack(self, title: str, text: str) -> None:
        assert "this is a test by governor doctor" in title
        self.sent.append(("slack", ""))

    def event(self, detail_type: str, detail: Mapping[str, Any]) -> None:
        self.sent.append(("event", detail_type))


def test_nothing_is_sent_unless_it_is_asked_for_and_answered(world: World) -> None:
    outbox = Outbox(world)
    findings(world)
    refused = world.governor("doctor", "--send-test", typed="n\n")
    assert refused.exit_code == 1
    assert "The page may wake somebody" in refused.stderr
    assert outbox.sent == []
    assert world.governor("doctor", "--send-test", typed="y\n").exit_code == 0
    assert len(outbox.sent) == 4


def test_a_test_goes_to_each_topic_once_and_not_to_the_bus(world: World) -> None:
    outbox = Outbox(world)
    answer = world.answer("doctor", "--send-test", "--yes")
    assert (answer["checks"][-1]["check"], answer["checks"][-1]["result"]) == ("test message", "ok")
    assert sorted(outbox.sent) == [("mail", "info"), ("mail", "page"), ("mail", "warn"), ("slack", "")]
    world.answer("doctor", "--send-test", "--yes")
    assert len(set(outbox.keys)) == 6, "each test has keys of its own"


def test_the_test_messages_are_the_only_ones_that_an_operator_may_write(world: World) -> None:
    outbox = Outbox(world)
    world.answer("doctor", "--send-test", "--yes")
    (granted,) = [one for one in PEOPLE["Operator"] if one.sid == "SendTestMessages"]
    patterns = granted.conditions["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
    assert patterns == (f"{TEST_PARTITION}*",)
    assert all(fnmatchcase(key, patterns[0]) for key in outbox.keys)


def test_a_reader_who_wants_a_test_is_told_that_it_was_not_sent(world: World) -> None:
    world.refuse("dynamodb.TransactWriteItems", "AccessDeniedException")
    answer = world.answer("doctor", "--send-test", "--yes")
    assert answer["checks"][-1]["result"] == "unknown"
    assert "Operator policy" in answer["checks"][-1]["words"]


@pytest.mark.parametrize("lifted", [False, True])
def test_a_brake_that_cannot_be_moved_is_told_beside_the_override_that_was_written(world: World, lifted: bool) -> None:
    world.launch()
    world.spend(960)
    with_brake(world, "REVERSE_SUCCESS" if lifted else "EXECUTION_SUCCESS")
    world.refuse("budgets.ExecuteBudgetAction", "AccessDeniedException")
    if lifted:
        world.governor("override", "--for", "2h", "--because", "x")
    arguments = ("--lift",) if lifted else ("--for", "2h", "--because", "x")
    answer = world.answer("override", *arguments, exit_code=1)
    assert answer["parameter"] == "/governor/dev/control/override/budget"
    assert ("NOT armed again" if lifted else "NOT released") in answer["native_brake"]["outcome"]
    again = world.governor("override", "--for", "2h", "--because", "x")
    assert "/governor/dev/control/override/budget" in again.output
