"""`governor keep`, `override` and `restore` against an emulated account: what they write, refuse, show and start."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.exceptions import ClientError

from governor.domain.controls import parse_keep, parse_override
from tests.unit.cli.world import HOME, NOW, World, a_world


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        made.deploy(mode="enforce")
        made.connect_functions()
        yield made


def is_missing(name: str) -> bool:
    try:
        boto3.client("ssm", HOME).get_parameter(Name=f"/governor/dev/{name}")
    except ClientError as error:
        return error.response["Error"]["Code"] == "ParameterNotFound"
    return False


def state_of(instance_id: str) -> str:
    answer = boto3.client("ec2", HOME).describe_instances(InstanceIds=[instance_id])
    return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])


def test_a_kept_instance_is_left_and_its_keep_can_be_lifted(world: World) -> None:
    kept, other = world.launch(), world.launch()
    answer = world.answer("keep", kept, "--for", "4h", "--because", "demo at noon")
    assert answer["before"] is None
    keep = parse_keep(kept, world.parameter(f"control/keep/{kept}"))
    assert keep.readable
    assert keep.reason == "demo at noon"
    assert keep.until is not None
    assert 239 * 60 <= (keep.until - NOW).total_seconds() <= 242 * 60
    world.spend(960.0)
    world.guard()
    assert (state_of(kept), state_of(other)) == ("running", "stopped")
    assert [row["instance_id"] for row in world.answer("keep", "--list")["keeps"]] == [kept]
    assert "demo at noon" in world.governor("status").output
    world.answer("keep", kept, "--lift")
    assert is_missing(f"control/keep/{kept}")
    world.pass_minutes(5)
    world.guard()
    assert state_of(kept) == "stopped"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("keep", "i-nonsense", "--for", "4h"), "no instance id"),
        (("keep",), "no instance id"),
        (("keep", "i-0123456789abcdef0"), "say how long"),
        (("keep", "i-0123456789abcdef0", "--for", "4 hours"), "no duration"),
        (("keep", "i-0123456789abcdef0", "--until", "2020-01-01T00:00Z"), "has passed"),
        (("keep", "i-0123456789abcdef0", "--for", "1h", "--until", "2026-12-01T00:00Z"), "not both"),
        (("keep", "i-0123456789abcdef0", "--for", "1h", "--lift"), "takes no time"),
        (("override", "--because", "x"), "say where it ends"),
        (("override", "--for", "1h"), "say why"),
        (("override", "--up-to-usd", "-5", "--because", "x"), "no amount"),
        (("override", "--up-to-usd", "nan", "--because", "x"), "no amount"),
        (("override", "--project", "a", "--instance", "i-01234567", "--for", "1h", "--because", "x"), "not both"),
        (("override", "--project", "a because b", "--for", "1h", "--because", "x"), "cannot be named"),
        (("override", "--instance", "x", "--for", "1h", "--because", "x"), "no instance id"),
        (("restore",), "name instances"),
        (("restore", "i-nonsense"), "no instance id"),
        (("restore", "--all", "--decision", "a@b"), "name instances"),
        (("restore", "--decision", "nonsense"), "no id of a decision"),
    ],
)
def test_nonsense_is_refused_in_words_and_changes_nothing(
    world: World, arguments: tuple[str, ...], sentence: str
) -> None:
    before = len([call for call in world.calls if call.endswith(("PutParameter", "Invoke"))])
    result = world.governor(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.replace("│", " ").split())
    assert len([call for call in world.calls if call.endswith(("PutParameter", "Invoke"))]) == before


def test_an_unknown_instance_is_not_kept(world: World) -> None:
    result = world.governor("keep", "i-0123456789abcdef0", "--for", "4h")
    assert result.exit_code == 1
    assert "is in none of the Regions of stage dev" in " ".join(result.output.split())
    assert is_missing("control/keep/i-0123456789abcdef0")


def test_an_override_holds_the_budget_says_what_it_costs_and_is_lifted(world: World) -> None:
    instance = world.launch()
    world.spend(960.0)
    arguments = ("override", "--for", "2h", "--up-to-usd", "1500", "--because", "launch week")
    answer = world.answer(*arguments)
    assert answer["held"]["instances"] == [instance]
    override = parse_override("override/budget", world.parameter("control/override/budget"))
    assert (override.scope, override.up_to_usd, override.reason) == ("budget", 1500.0, "launch week")
    world.guard()
    assert state_of(instance) == "running"
    assert "OVERRIDDEN budget" in world.governor("status").output
    assert world.answer("plan")["holds"][0]["code"] == "overridden"
    assert world.answer("override", "--list")["overrides"][0]["in_force"] is True
    world.answer("override", "--lift")
    assert is_missing("control/override/budget")
    world.pass_minutes(5)
    world.guard()
    assert state_of(instance) == "stopped"


@pytest.mark.parametrize("project", ["render", "protein folding", "prøjekt 🙂", "a/b"])
def test_an_override_of_a_project_holds_that_project_alone(world: World, project: str) -> None:
    mine, other = world.launch(**{"governor:project": project}), world.launch(**{"governor:project": "else"})
    world.answer("override", "--project", project, "--for", "2h", "--because", "deadline")
    world.spend(960.0)
    world.guard()
    assert (state_of(mine), state_of(other)) == ("running", "stopped")


def test_a_stop_is_undone_by_the_command_that_stands_in_the_message(world: World) -> None:
    first, second = world.launch(), world.launch()
    world.spend(960.0)
    report = world.guard()
    world.confirm()
    assert {state_of(first), state_of(second)} == {"stopped"}
    mail = next(m for m in world.store().query(f"message#{report.messages[0]}") if m.outbox == "mail")
    line = next(line for line in mail.body["body"].splitlines() if "governor restore --decision" in line)
    decision_id = line.split("'")[1]
    shown = world.governor("restore", "--decision", decision_id, typed="n\n")
    assert shown.exit_code == 1
    assert "That costs $1.05/h" in shown.output
    assert "The stop level stands" in " ".join(shown.output.split())
    assert state_of(first) == "stopped"
    answer = world.answer("restore", "--decision", decision_id, "--yes")
    assert sorted(answer["accepted"]) == sorted([first, second])
    assert answer["outcome"]["not_running"] == []
    assert set(answer["outcome"]["running_after_seconds"]) == {first, second}
    assert {state_of(first), state_of(second)} == {"running"}
    world.pass_minutes(30)
    world.guard()
    assert {state_of(first), state_of(second)} == {"running"}, "a person started them: they have a grace"


def test_what_we_did_not_stop_or_somebody_changed_is_refused_by_name(world: World) -> None:
    ours, theirs = world.launch(), world.launch(managed=None)
    world.spend(960.0)
    world.guard()
    world.confirm()
    ec2 = boto3.client("ec2", HOME)
    ec2.stop_instances(InstanceIds=[theirs])
    ec2.create_tags(Resources=[ours], Tags=[{"Key": "governor:criticality", "Value": "critical"}])
    answer = world.answer("restore", ours, theirs, "--yes", exit_code=1)
    codes = {row["instance_id"]: row["reason"]["code"] for row in answer["preview"]}
    assert codes == {ours: "tag-not-exact", theirs: "not-stopped-by-us"}
    assert answer["accepted"] == []
    assert state_of(theirs) == "stopped"


def test_a_paused_governor_starts_nothing(world: World) -> None:
    instance = world.launch()
    world.spend(960.0)
    world.guard()
    world.confirm()
    world.answer("pause", "--because", "hands off")
    answer = world.answer("restore", instance, "--yes", exit_code=1)
    assert answer["preview"][0]["reason"]["code"] == "paused"
    assert state_of(instance) == "stopped"


def test_a_function_that_fails_is_told_in_one_sentence(world: World) -> None:
    instance = world.launch()
    world.spend(960.0)
    world.guard()
    world.confirm()
    world.refuse("lambda.Invoke", "TooManyRequestsException")
    result = world.governor("restore", instance, "--yes")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "TooManyRequestsException" in result.output


def test_an_override_up_to_less_than_is_spent_says_that_it_holds_nothing(world: World) -> None:
    instance = world.launch()
    world.spend(960.0)
    result = world.governor("override", "--up-to-usd", "500", "--because", "500 more")
    assert result.exit_code == 1
    words = " ".join(result.output.split())
    assert "It holds nothing: $960.00 are spent this month already, and it ends at $500.00." in words
    assert "write --up-to-usd 1460.00" in words
    answer = world.answer("override", "--up-to-usd", "500", "--because", "500 more", exit_code=1)
    assert answer["held"]["instances"] == []
    listed = world.answer("override", "--list")
    assert (listed["overrides"][0]["in_force"], listed["spent_usd"]) == (False, 960.0)
    world.guard()
    assert state_of(instance) == "stopped"


def test_a_list_of_overrides_says_where_the_spend_is_unknown(world: World) -> None:
    world.answer("override", "--project", "render", "--up-to-usd", "500", "--because", "x")
    world.refuse("budgets.DescribeBudget", "AccessDeniedException")
    answer = world.answer("override", "--list")
    assert (answer["overrides"][0]["in_force"], answer["spent_usd"]) == (True, None)
    assert answer["unknown"]
    assert "An amount counts as not reached" in " ".join(world.governor("override", "--list").output.split())


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:00-05:00", "0001-01-01T00:00+14:00"])
@pytest.mark.parametrize("verb", [("pause",), ("override",), ("keep", "i-0123456789abcdef0")])
def test_a_moment_at_the_end_of_time_is_no_moment(world: World, verb: tuple[str, ...], until: str) -> None:
    result = world.governor(*verb, "--until", until, "--because", "x")
    assert result.exit_code == 2
    assert "is no moment" in " ".join(result.output.replace("│", " ").split())
