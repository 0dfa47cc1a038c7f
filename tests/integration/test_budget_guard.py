"""The budget guard as it is deployed: real functions, layers, rules, schedules, topics and roles in the local AWS."""

from __future__ import annotations

import shlex
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from local.faults import throttle
from stacks.permissions import handler_actions
from tests.integration.conftest import RIGHT_ONES, STAGE, Deployed

CHANGING = {
    "ec2:StopInstances",
    "ec2:StartInstances",
    "ec2:TerminateInstances",
    "ec2:CreateTags",
    "ec2:DeleteTags",
    "autoscaling:SetDesiredCapacity",
    "autoscaling:UpdateAutoScalingGroup",
    "ssm:PutParameter",
    "budgets:ModifyBudget",
    "autoscaling:EnterStandby",
    "autoscaling:ExitStandby",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "ec2:CancelSpotInstanceRequests",
    "ssm:SendCommand",
}


def test_a_first_deploy_at_110_percent_that_observes_changes_nothing_and_tells_once(world: Deployed) -> None:
    world.put("budget/mode", "observe")
    mails_before = len(world.mails())
    world.spend(1100.0)
    world.advance(30)
    assert world.stopped() == frozenset()
    assert world.actions("GuardBudget") & CHANGING == set()
    told = world.mails()[mails_before:]
    assert [mail.subject for mail in told] == [
        f"[Governor {STAGE}] would have stopped 5 instances (110 % of $1,000.00)"
    ]
    assert "only observes" in told[0].body
    for member in world.fleet:
        assert (member.instance_id in told[0].body.partition("Left running")[0]) is (member.role in RIGHT_ONES)


def test_80_percent_sends_one_mail_and_stops_nothing(world: Deployed) -> None:
    world.spend(800.0)
    world.advance(30)
    assert world.stopped() == frozenset()
    assert world.subjects() == ["GPU spend at 80 % of $1,000.00"]
    assert world.mails()[0].to == "warn@example.com"


def test_95_percent_stops_exactly_the_right_ones_and_says_so(world: Deployed) -> None:
    world.spend(950.0)
    assert world.stopped() == RIGHT_ONES
    world.advance(6)
    assert world.subjects() == [
        "stopping 5 instances, saves $48.88/h (95 % of the limit)",
        "5 instances stopped, $48.88/h less",
    ]
    assert [mail.to for mail in world.mails()] == ["page@example.com", "info@example.com"]
    world.advance(60)
    assert world.stopped() == RIGHT_ONES
    assert len(world.mails()) == 2


def test_the_same_sns_message_five_times_changes_nothing_more(world: Deployed) -> None:
    world.spend(960.0)
    world.advance(6)
    before = world.mails()
    notice = next(
        record.payload
        for record in reversed(world.aws.deliveries())
        if "Records" in record.payload and "Sns" in record.payload["Records"][0]
    )
    calls = len([c for c in world.aws.calls(after=world.first_call) if c.action == "ec2:StopInstances"])
    for _ in range(5):
        world.invoke("GuardBudget", notice)
    world.aws.settle()
    assert world.mails() == before
    assert world.stopped() == RIGHT_ONES
    assert len([c for c in world.aws.calls(after=world.first_call) if c.action == "ec2:StopInstances"]) == calls


def test_an_edit_of_stop_percent_from_95_to_60_acts_within_a_minute(world: Deployed) -> None:
    world.put("budget/warn-percent", "50")
    world.spend(650.0)
    assert world.stopped() == frozenset()
    edited = world.aws.now()
    world.put("budget/stop-percent", "60")
    assert world.stopped() == RIGHT_ONES
    assert (world.aws.now() - edited).total_seconds() <= 60
    assert any("budget/stop-percent" in mail.body and "95" in mail.body and "60" in mail.body for mail in world.mails())


def test_an_edit_that_stops_is_held_and_paged_where_confirm_minutes_say_so(world: Deployed) -> None:
    world.put("budget/confirm-minutes", "10")
    world.put("budget/warn-percent", "50")
    world.spend(650.0)
    world.put("budget/stop-percent", "60")
    assert world.stopped() == frozenset()
    assert any(mail.to == "page@example.com" and "was edited" in mail.body for mail in world.mails())
    world.advance(15)
    first = world.stopped()
    assert len(first) == 3, "the first wave"
    assert first - {"big-preemptible", "small-preemptible"} in ({"group-member"}, {"small-standard"}), "by regret"
    world.advance(15)
    assert world.stopped() == RIGHT_ONES


def test_warn_above_stop_changes_nothing_and_sends_one_clear_message(world: Deployed) -> None:
    world.spend(850.0)
    before = len(world.mails())
    world.put("budget/warn-percent", "99")
    world.advance(10)
    (mail,) = world.mails()[before:]
    assert "budget/warn-percent" in mail.body
    assert "99" in mail.body
    assert "below budget/stop-percent (95)" in mail.body
    world.spend(960.0)
    assert world.stopped() == RIGHT_ONES, "the last good settings stay in force"


def test_a_pause_set_in_ssm_alone_holds_everything_while_another_value_is_wrong(world: Deployed) -> None:
    world.put("budget/warn-percent", "99")
    world.put("control/pause", "on because I am on a train")
    world.spend(990.0)
    world.advance(30)
    assert world.stopped() == frozenset()
    assert [s for s in world.subjects() if s.startswith("PAUSED")] == ["PAUSED at 99 % of the limit: $48.88/h goes on"]
    world.put("control/pause", "off")
    world.advance(6)
    assert world.stopped() == RIGHT_ONES


def test_a_deleted_pause_parameter_holds_everything(world: Deployed) -> None:
    world.aws.client("ssm").delete_parameter(Name=f"/governor/{STAGE}/control/pause")
    world.spend(990.0)
    world.advance(10)
    assert world.stopped() == frozenset()
    world.aws.client("ssm").put_parameter(Name=f"/governor/{STAGE}/control/pause", Value="off", Type="String")


def test_what_a_person_starts_again_is_left_alone_for_the_grace_and_told_once(world: Deployed) -> None:
    world.spend(960.0)
    world.advance(6)
    back = next(member.instance_id for member in world.fleet if member.role == "small-standard")
    world.aws.client("ec2").start_instances(InstanceIds=[back])
    world.advance(30)
    assert world.stopped() == RIGHT_ONES - {"small-standard"}
    assert [s for s in world.subjects() if "started again" in s] == [f"{back} was started again"]


def test_an_override_and_a_keep_of_the_command_hold_until_their_time(world: Deployed) -> None:
    kept = next(member.instance_id for member in world.fleet if member.role == "big-standard")
    until = (world.aws.now() + timedelta(minutes=30)).strftime("%Y-%m-%dT%H:%MZ")
    because = ("--because", "the paper is due", "--stage", STAGE)
    for arguments in (("override", "--until", until), ("keep", kept, "--for", "4h")):
        answer = world.governor(*arguments, *because)
        assert answer.exit_code == 0, answer.output
    world.aws.settle()
    world.spend(960.0)
    world.advance(20)
    assert world.stopped() == frozenset()
    assert any("the paper is due" in mail.body for mail in world.mails()), "people see why nothing is stopped"
    world.advance(20)
    assert world.stopped() == RIGHT_ONES - {"big-standard"}


def test_at_a_new_month_one_message_proposes_the_restore_and_its_command_does_it(world: Deployed) -> None:
    world.aws.set_clock(world.aws.now().replace(day=28, hour=12))
    world.spend(960.0)
    world.advance(6)
    assert world.stopped() == RIGHT_ONES
    first = (world.aws.now().replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=2)
    before = len(world.mails())
    world.aws.set_clock(first)
    world.advance(60)
    assert world.stopped() == RIGHT_ONES, "the figure of the old month counts as unknown"
    world.put("budget/limit-usd", "100000")
    world.spend(12.0)
    world.advance(15)
    assert world.stopped() == RIGHT_ONES, "a proposal starts nothing"
    proposals = [mail for mail in world.mails()[before:] if "governor restore --all" in mail.body]
    assert len(proposals) == 1, [(mail.subject, mail.body) for mail in world.mails()[before:]]
    command = next(line for line in proposals[0].body.splitlines() if line.startswith("  governor restore --all"))
    answer = world.governor(*shlex.split(command)[1:], "--yes")
    assert answer.exit_code == 0, answer.output
    world.advance(30)
    assert world.stopped() == frozenset()


def test_text_on_the_budget_topic_that_is_no_notice_is_forwarded_and_stops_nothing(world: Deployed) -> None:
    event = {"Records": [{"Sns": {"Message": "please stop everything", "Timestamp": world.aws.now().isoformat()}}]}
    world.invoke("GuardBudget", event)
    world.aws.settle()
    assert world.subjects() == ["a budget notice that cannot be used"]
    assert world.stopped() == frozenset()


def test_a_throttled_region_is_unknown_and_the_run_goes_on(world: Deployed) -> None:
    world.aws.set_faults(throttle("ec2:DescribeInstances", count=1000))
    world.spend(960.0)
    world.advance(21)
    world.aws.set_faults()
    assert world.stopped() == frozenset()
    assert world.subjects() == ["Region us-east-1 cannot be read"], "told once, when it lasts"
    assert "RequestLimitExceeded" in world.mails()[0].body
    world.advance(6)
    assert world.stopped() == RIGHT_ONES


# What a call is to IAM where the name of the call is not the name of the action.
IAM_ACTIONS = {
    "budgets:DescribeBudget": {"budgets:ViewBudget"},
    "dynamodb:TransactWriteItems": {"dynamodb:PutItem", "dynamodb:ConditionCheckItem"},
}


def permitted_by(actions: set[str], granted: frozenset[str]) -> set[str]:
    """The actions that calls needed; a transaction needs what its items are."""
    needed: set[str] = set()
    for action in actions:
        needed |= IAM_ACTIONS.get(action, {action}) & granted or {action}
    return needed


def test_with_roles_enforced_what_the_settings_and_messages_use_is_what_they_are_granted(world: Deployed) -> None:
    world.aws.enforce_roles(True)
    world.spend(850.0)
    world.put("budget/warn-percent", "70")
    world.put("budget/warn-percent", "99")
    world.advance(6)
    world.spend(960.0)
    world.advance(6)
    assert world.stopped() == RIGHT_ONES
    for name, function in (
        ("CheckSettings", "check_settings"),
        ("SendMessages", "send_messages"),
    ):
        granted = handler_actions(function)
        assert permitted_by(world.actions(name), granted) == granted, function
    assert world.actions("GuardBudget") - {"budgets:DescribeBudget", "dynamodb:TransactWriteItems"} <= handler_actions(
        "guard_budget"
    ), "the rest of what it may do is in test_every_kind"
    denied = [c for c in world.aws.calls(after=world.first_call) if c.status >= 400 and c.function]
    assert denied == []


@pytest.mark.parametrize("role", ["small-critical", "without-criticality", "untagged"])
def test_with_roles_enforced_the_guards_own_role_cannot_stop_what_is_critical_or_not_managed(
    world: Deployed, role: str
) -> None:
    name = world.control["GuardBudgetFunctionName"]
    configuration = world.aws.client("lambda").get_function_configuration(FunctionName=name)
    credentials = world.aws.client("sts").assume_role(RoleArn=configuration["Role"], RoleSessionName="test")[
        "Credentials"
    ]
    ec2 = world.aws.client(
        "ec2",
        aws_access_key_id=credentials["AccessKeyId"],
        aws_secret_access_key=credentials["SecretAccessKey"],
        aws_session_token=credentials["SessionToken"],
    )
    victim = next(member for member in world.fleet if member.role == role)
    good = next(member for member in world.fleet if member.role == "small-standard")
    world.aws.enforce_roles(True)
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.stop_instances(InstanceIds=[victim.instance_id])
    ec2.stop_instances(InstanceIds=[good.instance_id])
    assert world.stopped() == {"small-standard"}
