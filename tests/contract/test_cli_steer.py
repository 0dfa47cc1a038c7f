"""The verbs that look at a deployed stage and steer it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import boto3
import pytest

from governor.domain.pause import parse_pause
from governor.domain.settings import SPEC_BY_NAME
from governor.shell.events import Trigger
from tests.unit.cli.world import FURTHER, HOME, NOW, World, a_world

WRITING = ("Put", "Delete", "Update", "Create", "Stop", "Start", "Terminate", "Transact", "Batch", "Publish")


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        yield made


def written(world: World) -> list[str]:
    return [call for call in world.calls if call.partition(".")[2].startswith(WRITING)]


def subscribe(world: World, *topics: str) -> None:
    for topic in topics:
        boto3.client("sns", HOME).subscribe(
            TopicArn=world.topics[topic], Protocol="https", Endpoint="https://example.com/hook"
        )


# --- plan and status --------------------------------------------------------------------------------------------------


def test_plan_says_what_the_guard_then_does_and_changes_nothing(world: World) -> None:
    world.deploy(mode="enforce")
    victim = world.launch()
    world.launch("p4d.24xlarge", "critical")
    world.launch(managed=None, region=FURTHER)
    world.spend(960)
    world.calls.clear()
    plan = world.answer("plan")
    assert written(world) == []
    assert (plan["level"], plan["stops"], plan["holds"]) == ("stop", [victim], [])
    assert world.guard().stopped == (victim,)
    assert sorted(v["reason"]["code"] for v in plan["verdicts"]) == ["critical", "not-managed", "within-reach"]


@pytest.mark.parametrize(
    ("mode", "spent", "level", "stops"),
    [
        ("enforce", 100, "below", 0),
        ("enforce", 800, "warn", 0),
        ("observe", 960, "stop", 0),
        ("enforce", 960, "stop", 1),
    ],
)
def test_status_agrees_with_plan(mode: str, spent: float, level: str, stops: int, world: World) -> None:
    world.deploy(mode=mode)
    world.launch()
    world.spend(spent)
    status, plan = world.answer("status"), world.answer("plan")
    assert (status["level"], len(status["would_stop_now"])) == (level, stops)
    assert status["would_stop_now"] == plan["stops"]
    assert status["mode"] == mode
    assert status["money"]["actual_usd"] == spent
    assert status["money"]["percent"] == pytest.approx(spent / 10)


def test_a_budget_that_cannot_be_read_is_unknown_not_zero(world: World) -> None:
    world.deploy(mode="enforce")
    world.launch()
    world.refuse("budgets.DescribeBudget", "AccessDeniedException", "no")
    status = world.answer("status")
    assert (status["level"], status["money"]["actual_usd"], status["would_stop_now"]) == ("unknown", None, [])
    assert "The share of the limit is unknown." in world.governor("status").stdout


def test_status_shows_late_and_missing_runs(world: World) -> None:
    world.deploy()
    world.guard()
    world.pass_minutes(12)
    runs = {run["function"]: run for run in world.answer("status")["runs"]}
    assert runs["check_settings"]["late"]
    assert not runs["guard_budget"]["late"]
    assert runs["guard_budget"]["age_seconds"] == pytest.approx(720, abs=30)
    world.pass_minutes(4)
    assert all(run["late"] for run in world.answer("status")["runs"])


def test_status_before_the_first_run_of_the_guard(world: World) -> None:
    world.deploy()
    run = world.answer("status")["runs"][1]
    assert (run["function"], run["at"], run["late"]) == ("guard_budget", None, True)


def test_status_counts_confirmed_and_waiting_subscriptions(world: World) -> None:
    world.deploy()
    subscribe(world, "Page")
    arn = world.topics["Warn"]
    world.answers["sns.ListSubscriptionsByTopic"] = lambda region, params: (
        {"Subscriptions": [{"SubscriptionArn": "PendingConfirmation"}]} if params["TopicArn"] == arn else NotImplemented
    )
    assert world.answer("status")["subscribers"] == {
        "page": {"confirmed": 1, "waiting": 0},
        "warn": {"confirmed": 0, "waiting": 1},
        "info": {"confirmed": 0, "waiting": 0},
    }
    assert "topic warn: 0 confirmed subscriptions, 1 not yet confirmed" in world.governor("status").stdout


def test_status_shows_a_rejection_until_it_is_over(world: World) -> None:
    world.deploy()
    ssm = boto3.client("ssm", HOME)
    for value, rejected in (("99", True), ("70", False)):
        ssm.put_parameter(Name="/governor/dev/budget/warn-percent", Value=value, Overwrite=True, Type="String")
        world.pass_minutes(2)
        world.check()
        assert (world.answer("status")["rejection"] is not None) is rejected
        assert ("budget/warn-percent is '99'" in world.governor("status").stdout) is rejected


def test_status_shows_open_stops_until_they_are_seen(world: World) -> None:
    world.deploy(mode="enforce")
    victim = world.launch()
    world.spend(960)
    world.guard()
    (stop,) = world.answer("status")["open_stops"]
    assert (stop["instance_id"], stop["status"]) == (victim, "accepted")
    world.pass_minutes(2)
    world.guard()
    assert world.answer("status")["open_stops"] == []


def test_texts_fit_into_100_columns(world: World) -> None:
    world.deploy(mode="enforce")
    victim = world.launch("g4dn.12xlarge", Name="a-very-long-name-of-a-training-run")
    world.launch("p4d.24xlarge", "critical", region=FURTHER)
    world.spend(960)
    report = world.guard()
    verbs = (
        ("status",),
        ("plan",),
        ("explain", victim),
        ("settings", "get"),
        ("settings", "diff"),
        ("settings", "history"),
    )
    for verb in verbs:
        result = world.governor(*verb)
        assert result.exit_code == 0, result.output
        assert max(len(line) for line in result.stdout.splitlines()) <= 100, verb
        assert "\x1b" not in result.stdout
    assert victim in world.governor("explain", report.decision_id).stdout


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_an_instance_tells_its_whole_story_newest_first(world: World) -> None:
    world.deploy(mode="enforce")
    victim = world.launch()
    world.spend(960)
    world.governor("pause", "--because", "release")
    first = world.guard()
    world.pass_minutes(5)
    world.governor("unpause", "--because", "over")
    second = world.guard()
    world.pass_minutes(5)
    world.guard()
    answer = world.answer("explain", victim)
    assert [d["decision_id"] for d in answer["decisions"]][1:] == [second.decision_id, first.decision_id]
    assert [hold["code"] for hold in answer["decisions"][2]["holds"]] == ["paused"]
    (outcome,) = answer["outcomes"]
    assert (outcome["status"], outcome["decision_id"]) == ("stopped", second.decision_id)
    text = world.governor("explain", victim).stdout
    assert "held: the Governor is paused: release" in " ".join(text.split())
    assert len(world.answer("explain", victim, "--last", "1")["decisions"]) == 1


def test_explain_a_decision_shows_what_was_decided_then(world: World) -> None:
    world.deploy(mode="enforce")
    victim = world.launch()
    world.spend(960)
    report = world.guard()
    world.spend(10)
    answer = world.answer("explain", report.decision_id)
    assert answer["decision"]["level"] == "stop"
    assert answer["decision"]["stops"] == [victim]
    assert answer["decision"]["money"]["actual_usd"] == 960
    assert [outcome["instance_id"] for outcome in answer["outcomes"]] == [victim]
    same_moment = report.decision_id.replace("+00:00", "Z")
    assert world.answer("explain", same_moment)["decision"] == answer["decision"]


def stopped_by_us(world: World, **settings: str) -> str:
    """A machine that the guard has stopped, and that is seen so."""
    world.deploy(mode="enforce", settings={key.replace("__", "/").replace("_", "-"): v for key, v in settings.items()})
    world.connect_functions()
    victim = world.launch("g4dn.12xlarge")
    world.spend(960)
    world.guard()
    world.pass_minutes(2)
    world.confirm()
    return victim


def widest(text: str) -> int:
    return max(len(line) for line in text.splitlines())


def test_explain_says_nothing_of_a_way_back_that_nobody_asked_for(world: World) -> None:
    victim = stopped_by_us(world)
    (outcome,) = world.answer("explain", victim)["outcomes"]
    assert (outcome["status"], outcome["restore"]) == ("stopped", None)
    assert "The way back" not in world.governor("explain", victim).stdout


def test_explain_an_instance_that_came_back_says_who_asked_when_and_since_when_it_runs(world: World) -> None:
    victim = stopped_by_us(world)
    world.answer("restore", victim, "--yes", "--no-wait")
    (outcome,) = world.answer("explain", victim)["outcomes"]
    back = outcome["restore"]
    assert outcome["status"] == "restored"
    assert (back["tries"], back["last_error"], back["next_try_at"], back["given_up"]) == (1, None, None, False)
    assert back["asked_by"].startswith("arn:aws:")
    assert NOW.isoformat() < back["asked_at"] <= back["tried_at"] <= back["running_at"]
    text = world.governor("explain", victim).stdout
    shown = " ".join(text.partition("The way back")[2].split())
    assert "restored" in shown
    assert "asked for by" in shown
    assert "2026-11-20 12:02 UTC" in shown
    assert widest(text) <= 100


def test_explain_an_instance_that_finds_no_capacity_says_tries_error_and_in_the_end_that_it_was_given_up(
    world: World,
) -> None:
    victim = stopped_by_us(world, restore__give_up_hours="1")
    world.refuse("ec2.StartInstances", "InsufficientInstanceCapacity", "We have no g4dn.12xlarge")
    world.answer("restore", victim, "--yes", "--no-wait")
    back = world.answer("explain", victim)["outcomes"][0]["restore"]
    assert (back["tries"], back["running_at"], back["given_up"]) == (1, None, False)
    assert "InsufficientInstanceCapacity" in back["last_error"]
    assert back["next_try_at"] > back["tried_at"]
    text = world.governor("explain", victim).stdout
    shown = " ".join(text.partition("The way back")[2].split())
    assert "InsufficientInstanceCapacity" in shown
    assert "next try 2026-11-20 12:07 UTC" in shown
    world.pass_minutes(6)
    world.confirm()
    world.pass_minutes(60)
    world.confirm()
    (outcome,) = world.answer("explain", victim)["outcomes"]
    back = outcome["restore"]
    assert (outcome["status"], back["given_up"], back["tries"], back["next_try_at"]) == ("gave-up", True, 2, None)
    assert back["last_error"].startswith("not back within 1 h; last: ")
    text = world.governor("explain", victim).stdout
    assert "gave-up" in text.partition("The way back")[2]
    assert widest(text) <= 100


def test_explain_a_start_that_was_withdrawn_says_why_and_that_nobody_asks_any_more(world: World) -> None:
    victim = stopped_by_us(world)
    detail = {"instances": [victim], "by": "arn:aws:iam::123456789012:user/ops"}
    asked_at = datetime.now(UTC)
    world.guard(trigger=Trigger("governor.restore", asked_at, detail=detail))
    boto3.client("ec2", HOME).create_tags(
        Resources=[victim], Tags=[{"Key": "governor:criticality", "Value": "critical"}]
    )
    world.confirm()
    (outcome,) = world.answer("explain", victim)["outcomes"]
    back = outcome["restore"]
    assert (outcome["status"], back["asked_by"], back["asked_at"], back["tries"]) == ("stopped", None, None, 0)
    assert back["last_error"] == "not started: tag-not-exact"
    assert "not asked for any more" in " ".join(world.governor("explain", victim).stdout.split())


def test_explain_a_decision_that_started_machines_again_shows_what_became_of_each(world: World) -> None:
    victim = stopped_by_us(world)
    world.answer("restore", victim, "--yes", "--no-wait")
    decision_id = world.answer("explain", victim)["outcomes"][0]["restore"]["decision_id"]
    answer = world.answer("explain", decision_id)
    assert [row["instance_id"] for row in answer["decision"]["restores"]] == [victim]
    assert answer["decision"]["restores"][0]["asked_by"].startswith("arn:aws:")
    assert answer["outcomes"] == []
    ((instance_id, status),) = [(row["instance_id"], row["status"]) for row in answer["restore_outcomes"]]
    assert (instance_id, status) == (victim, "restored")
    text = world.governor("explain", decision_id).stdout
    assert f"Starts {victim} again, $3.91/h" in " ".join(text.split())
    assert "restored" in text.partition("The way back")[2]
    stop = world.answer("explain", victim)["outcomes"][0]["decision_id"]
    assert world.answer("explain", stop)["restore_outcomes"] == [], "that decision only stopped it"


def test_explain_what_nobody_knows(world: World) -> None:
    world.deploy()
    instance = world.governor("explain", "i-0abc")
    assert instance.exit_code == 1
    assert "No decision of stage dev in us-east-1 names i-0abc; check the id and the stage" in instance.stderr
    decision = world.governor("explain", "guard_budget@2026-01-01T00:00:00+00:00")
    assert decision.exit_code == 1
    assert "keeps no decision guard_budget@2026-01-01T00:00:00+00:00; copy the id" in decision.stderr


# --- pause and unpause ------------------------------------------------------------------------------------------------


def test_pause_is_read_by_the_guard_as_it_was_said(world: World) -> None:
    world.deploy(mode="enforce")
    world.launch()
    world.spend(960)
    answer = world.answer("pause", "--because", "release  tonight", "--for", "4h")
    text = world.parameter("control/pause")
    assert text == answer["after"]["text"] == "on until 2026-11-20T16:01Z because release tonight"
    assert (answer["before"]["text"], answer["before"]["active"]) == ("off", False)
    assert len(answer["held"]["instances"]) == 1
    assert answer["held"]["usd_per_hour"] == pytest.approx(0.526)
    assert world.guard().holds == ("paused",)


def test_unpause_shows_what_the_pause_held_back_and_lets_it_go_on(world: World) -> None:
    world.deploy(mode="enforce")
    victim = world.launch()
    world.spend(960)
    world.governor("pause", "--because", "x")
    answer = world.answer("unpause", "--because", "checked")
    assert answer["before"]["text"] == "on because x"
    assert answer["held"]["instances"] == [victim]
    assert world.parameter("control/pause") == "off because checked"
    assert world.guard().stopped == (victim,)


@pytest.mark.parametrize(("mode", "spent"), [("observe", 960), ("enforce", 100)])
def test_a_pause_holds_nothing_where_nothing_is_due(mode: str, spent: float, world: World) -> None:
    world.deploy(mode=mode)
    world.launch()
    world.spend(spent)
    assert world.answer("pause", "--because", "x")["held"]["instances"] == []


def test_pause_needs_only_the_parameter(world: World) -> None:
    world.deploy()
    for call in (
        "dynamodb.GetItem",
        "ec2.DescribeInstances",
        "budgets.DescribeBudget",
        "lambda.GetFunctionConfiguration",
    ):
        world.refuse(call, "AccessDeniedException")
    boto3.client("cloudformation", HOME).delete_stack(StackName="Governor-dev-Control")
    answer = world.answer("pause", "--because", "all is broken")
    assert answer["held"]["unknown"].startswith("The stack Governor-dev-Control is missing")
    assert answer["held"]["usd_per_hour"] is None
    assert parse_pause(world.parameter("control/pause"), NOW).active


def test_pause_creates_a_missing_parameter_and_says_that_it_counted_as_paused(world: World) -> None:
    world.deploy()
    boto3.client("ssm", HOME).delete_parameter(Name="/governor/dev/control/pause")
    result = world.governor("pause", "--because", "x")
    assert "was: missing, which counts as paused" in result.stdout
    assert world.parameter("control/pause") == "on because x"


def test_overwrite_keeps_description_pattern_and_tier(world: World) -> None:
    world.deploy()
    ssm = boto3.client("ssm", HOME)

    def kept(name: str) -> tuple[object, ...]:
        item = ssm.get_parameter_history(Name=f"/governor/dev/{name}")["Parameters"][-1]
        return item.get("Description"), item.get("AllowedPattern"), item.get("Tier"), item["Type"]

    before = {name: kept(name) for name in ("control/pause", "budget/warn-percent", "budget/mode")}
    world.governor("pause", "--because", "x")
    world.governor("settings", "set", "budget/warn-percent", "70")
    world.governor("arm", "budget", "--yes", "--without-subscribers")
    assert {name: kept(name) for name in before} == before
    assert before["control/pause"] == ("the pause", "^.*$", "Standard", "String")
    spec = SPEC_BY_NAME["budget/mode"]
    assert before["budget/mode"][:2] == (spec.description, spec.allowed_pattern)


def test_value_that_parameter_store_refuses(world: World) -> None:
    world.deploy()
    world.refuse("ssm.PutParameter", "ParameterPatternMismatchException", "mismatch")
    result = world.governor("pause", "--because", "x")
    assert result.exit_code == 1
    assert (
        "Parameter Store does not take 'on because x' for /governor/dev/control/pause (allowed pattern ^.*$); "
        "write a value of that form."
    ) in result.stderr


# --- arm --------------------------------------------------------------------------------------------------------------


def test_arm_shows_first_then_asks_then_sets_the_mode(world: World) -> None:
    world.deploy()
    subscribe(world, "Page", "Warn")
    victim = world.launch()
    world.spend(960)
    refused = world.governor("arm", "budget", typed="n\n")
    assert refused.exit_code == 1
    assert victim in refused.stdout
    assert "It stops 1 instance ($0.53/h)." in refused.stdout
    assert world.parameter("budget/mode") == "observe"
    assert world.governor("arm", "budget", typed="y\n").exit_code == 0
    assert world.parameter("budget/mode") == "enforce"
    world.pass_minutes(2)
    world.check()
    assert world.guard().stopped == (victim,)


@pytest.mark.parametrize(
    ("subscribed", "words"),
    [
        ((), "the topics page and warn of stage dev in us-east-1 have no confirmed subscription; add addresses to"),
        (("Page",), "the topic warn of stage dev in us-east-1 has no confirmed subscription; add addresses to"),
        (("Warn",), "the topic page of stage dev in us-east-1 has no confirmed subscription; add addresses to"),
    ],
)
def test_arm_is_refused_while_nobody_would_hear(subscribed: tuple[str, ...], words: str, world: World) -> None:
    world.deploy()
    subscribe(world, *subscribed)
    result = world.governor("arm", "budget", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert world.parameter("budget/mode") == "observe"
    assert world.governor("arm", "budget", "--yes", "--without-subscribers").exit_code == 0
    assert world.parameter("budget/mode") == "enforce"


def test_a_subscription_that_waits_for_its_confirmation_does_not_count(world: World) -> None:
    world.deploy()
    world.answers["sns.ListSubscriptionsByTopic"] = lambda region, params: {
        "Subscriptions": [{"SubscriptionArn": "PendingConfirmation"}]
    }
    result = world.governor("arm", "budget", "--yes")
    assert result.exit_code == 1
    assert "confirm the 2 that wait" in result.stderr


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_disarming_needs_no_subscriber(mode: str, world: World) -> None:
    world.deploy(mode="enforce")
    answer = world.answer("arm", "budget", "--mode", mode, "--yes")
    assert (answer["before"], answer["after"], answer["stops_within_five_minutes"]) == ("enforce", mode, [])
    assert world.parameter("budget/mode") == mode


def test_arming_what_is_armed_changes_nothing_and_asks_nothing(world: World) -> None:
    world.deploy(mode="enforce")
    world.calls.clear()
    result = world.governor("arm", "budget", "--without-subscribers")
    assert result.exit_code == 0
    assert "/governor/dev/budget/mode is enforce already; nothing was changed." in result.stdout
    assert written(world) == []


def test_arm_looks_five_minutes_ahead_through_the_grace(world: World) -> None:
    world.deploy(settings={"budget/grace-minutes": "5"})
    victim = world.launch()
    world.spend(960)
    answer = world.answer("arm", "budget", "--yes", "--without-subscribers")
    assert [hold["code"] for hold in answer["decision"]["holds"]] == ["grace"]
    assert answer["decision"]["stops"] == []
    assert answer["stops_within_five_minutes"] == [victim]


# --- settings ---------------------------------------------------------------------------------------------------------


def test_set_is_taken_over_and_seen_by_get_diff_and_history(world: World) -> None:
    world.deploy(settings={"budget/grace-minutes": "5", "budget/confirm-minutes": "10"})
    assert world.answer("settings", "diff")["differences"] == []
    world.pass_minutes(1)
    result = world.governor("settings", "set", "budget/stop-percent", "60", "--stage", "dev")
    assert result.exit_code == 1, "80 is the warning"
    answer = world.answer("settings", "set", "budget/stop-percent", "90")
    assert (answer["from"], answer["to"], answer["changed"]) == ("95", "90", True)
    (row,) = world.answer("settings", "get", "budget/stop-percent")["settings"]
    assert (row["value"], row["in_force"], row["waits"]) == ("90", "95", True)
    world.pass_minutes(1)
    world.check()
    (row,) = world.answer("settings", "diff")["differences"]
    assert (row["name"], row["in_force"], row["waits"], row["is_default"]) == (
        "budget/stop-percent",
        "90",
        False,
        False,
    )
    newest = world.answer("settings", "history", "--last", "1")["changes"][0]
    assert (newest["name"], newest["from"], newest["to"], newest["version"]) == ("budget/stop-percent", "95", "90", 2)


def test_another_spelling_of_the_same_value_is_no_difference(world: World) -> None:
    world.deploy(settings={"budget/grace-minutes": "5", "budget/confirm-minutes": "10"})
    world.governor("settings", "set", "budget/stop-percent", "95.0")
    assert world.answer("settings", "diff")["differences"] == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("budget/stop-percent", "lots", "budget/stop-percent is 'lots': must be a number from 2 to 500"),
        ("budget/stop-percent", "501", "budget/stop-percent is '501': must be a number from 2 to 500"),
        ("budget/warn-percent", "95", "budget/warn-percent is '95': must be below budget/stop-percent (95)"),
        ("budget/stop-percent", "80", "budget/warn-percent is '80': must be below budget/stop-percent (80)"),
        ("budget/mode", "on", "budget/mode is 'on': must be one of off, observe, enforce"),
        ("budget/stop-families", "P4D", "budget/stop-families is 'P4D': must be lower-case words"),
    ],
)
def test_set_refuses_what_breaks_a_rule_and_writes_nothing(name: str, value: str, words: str, world: World) -> None:
    world.deploy()
    world.calls.clear()
    result = world.governor("settings", "set", name, value)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert "nothing was changed in stage dev" in result.stderr
    assert written(world) == []


def test_one_of_two_errors_can_be_put_right_and_no_new_one_added(world: World) -> None:
    world.deploy()
    ssm = boto3.client("ssm", HOME)
    for name in ("grace-minutes", "confirm-minutes"):
        ssm.put_parameter(Name=f"/governor/dev/budget/{name}", Value="soon", Overwrite=True, Type="String")
    assert world.governor("settings", "set", "budget/warn-percent", "x").exit_code == 1
    answer = world.answer("settings", "set", "budget/grace-minutes", "5")
    assert [left.partition(" ")[0] for left in answer["errors_left"]] == ["budget/confirm-minutes"]
    assert world.governor("settings", "validate").exit_code == 1
    assert world.answer("settings", "set", "budget/confirm-minutes", "5")["errors_left"] == []
    assert world.governor("settings", "validate").exit_code == 0


def test_validate_names_parameter_value_and_rule(world: World) -> None:
    world.deploy()
    ssm = boto3.client("ssm", HOME)
    ssm.put_parameter(Name="/governor/dev/budget/stop-percnt", Value="60", Type="String")
    ssm.delete_parameter(Name="/governor/dev/budget/mode")
    result = world.governor("settings", "validate")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "budget/mode is missing" in result.stderr
    assert "did you mean budget/stop-percent?" in result.stderr
    assert "version 1 stays in force" in result.stderr


def test_a_missing_parameter_can_be_set_again(world: World) -> None:
    world.deploy()
    boto3.client("ssm", HOME).delete_parameter(Name="/governor/dev/budget/warn-percent")
    assert world.answer("settings", "get", "budget/warn-percent")["settings"][0]["value"] is None
    answer = world.answer("settings", "set", "budget/warn-percent", "80")
    assert (answer["from"], answer["written_before_by"]) == (None, None)
    assert world.governor("settings", "validate").exit_code == 0


def test_an_unknown_setting_gets_the_nearest_name(world: World) -> None:
    world.deploy()
    result = world.governor("settings", "set", "budget/stop-percents", "60")
    assert result.exit_code == 2
    assert "did you mean" in result.stderr
