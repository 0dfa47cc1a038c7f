"""`governor scan` and `governor init`: what is there, what it costs, and what may not be seen is unknown, not empty."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from stacks.config import CDK_JSON, load_stage
from tests.unit.cli.world import ACCOUNT, FURTHER, HOME, IMAGE, World, a_world

# Calls that change nothing; a scan may make these and no others.
READING = ("Describe", "Get", "List")


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        yield made


def test_scan_shows_each_instance_with_what_could_be_done_and_changes_nothing(world: World) -> None:
    mine = world.launch(Name="train", **{"governor:project": "nlp"})
    critical = world.launch("p4d.24xlarge", "critical")
    foreign = world.launch("p4d.24xlarge", None, None, region=FURTHER)
    inexact = world.launch(criticality="Standard", region=FURTHER)
    other = world.launch("g5.xlarge", "preemptible")
    world.launch("m5.large")
    world.calls.clear()
    answer = world.answer("scan")
    assert all(call.partition(".")[2].startswith(READING) for call in world.calls), world.calls
    assert (answer["stage"], answer["account_id"], answer["regions"]) == ("dev", ACCOUNT, [FURTHER, HOME])
    found = {row["instance_id"]: (row["reach"], row["code"], row["usd_per_hour"]) for row in answer["instances"]}
    assert found == {
        mine: ("within-reach", "within-reach", 0.526),
        critical: ("left-alone", "critical", 21.957642),
        foreign: ("missing-tag", "not-managed", 21.957642),
        inexact: ("missing-tag", "tag-not-exact", 0.526),
        other: ("left-alone", "family-out-of-scope", 1.006),
    }
    row = next(row for row in answer["instances"] if row["instance_id"] == mine)
    assert row["could"] == "stop: managed, standard, family g4dn in scope, running"
    assert (row["name"], row["project"], row["criticality"], row["kind"]) == ("train", "nlp", "standard", "plain")


def test_totals_are_the_sums_of_the_rows(world: World) -> None:
    world.launch()
    world.launch("p4d.24xlarge", None, None, region=FURTHER)
    stopped = world.launch("g5.xlarge")
    boto3.client("ec2", HOME).stop_instances(InstanceIds=[stopped])
    answer = world.answer("scan")
    totals = answer["totals"]
    assert totals["usd_per_hour"] == pytest.approx(0.526 + 21.957642)
    assert totals["usd_per_month"] == pytest.approx(730 * totals["usd_per_hour"])
    assert (totals["instances"], totals["running"]) == (3, 2)
    assert totals["within_reach_usd_per_hour"] == pytest.approx(0.526)
    assert totals["missing_tag_usd_per_hour"] == pytest.approx(21.957642)
    for groups, key in ((answer["by_region"], "region"), (answer["by_family"], "family")):
        assert sum(group["usd_per_hour"] for group in groups) == pytest.approx(totals["usd_per_hour"])
        assert sum(group["instances"] for group in groups) == 3
        rates = [group["usd_per_hour"] for group in groups]
        assert rates == sorted(rates, reverse=True), key
    assert [group["family"] for group in answer["by_family"]] == ["p4d", "g4dn", "g5"]


def test_more_than_one_run_may_stop_is_still_within_reach(world: World) -> None:
    for _ in range(51):
        world.launch()
    assert {row["reach"] for row in world.answer("scan")["instances"]} == {"within-reach"}


def test_an_instance_launched_by_a_clock_ahead_of_ours_is_within_reach(world: World) -> None:
    world.launch()
    world.pass_minutes(-10)
    assert [row["reach"] for row in world.answer("scan")["instances"]] == ["within-reach"]


def test_groups_spot_requests_and_reservations_are_shown(world: World) -> None:
    autoscaling = boto3.client("autoscaling", HOME)
    for name, instance_type in (("gpu", "g4dn.xlarge"), ("web", "m5.large")):
        autoscaling.create_launch_configuration(LaunchConfigurationName=name, ImageId=IMAGE, InstanceType=instance_type)
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchConfigurationName=name,
            MinSize=1,
            MaxSize=4,
            DesiredCapacity=2,
            AvailabilityZones=["us-east-1a"],
            Tags=[{"Key": "governor:managed", "Value": "dev", "PropagateAtLaunch": True}],
        )
    boto3.client("ec2", HOME).request_spot_instances(
        InstanceCount=1,
        Type="persistent",
        LaunchSpecification={"ImageId": IMAGE, "InstanceType": "g5.xlarge"},
    )
    world.answers["ec2.DescribeCapacityReservations"] = lambda region, params: {
        "CapacityReservations": [
            {
                "CapacityReservationId": f"cr-{kind}",
                "InstanceType": instance_type,
                "State": "active",
                "ReservationType": kind,
                "TotalInstanceCount": 4,
                "AvailableInstanceCount": 3,
            }
            for kind, instance_type in (
                ("default", "p5.48xlarge"),
                ("capacity-block", "p5.48xlarge"),
                ("default", "m5.large"),
            )
        ]
        if region == HOME
        else []
    }
    answer = world.answer("scan")
    (group,) = answer["groups"]
    assert (group["name"], group["gpu_types"], group["gpu_instances"]) == ("gpu", ["g4dn.xlarge"], 2)
    assert (group["desired"], group["maximum"], group["managed"]) == (2, 4, True)
    assert group["could"] == (
        "its Auto Scaling group gpu is not tagged exactly as managed and not critical, so IAM would refuse"
    )
    (request,) = answer["spot_requests"]
    assert (request["instance_type"], request["persistent"], request["code"]) == ("g5.xlarge", True, "persistent")
    ordered, block = answer["reservations"][1], answer["reservations"][0]
    assert (ordered["reservation_id"], ordered["unused_usd_per_hour"]) == ("cr-default", pytest.approx(3 * 55.04))
    assert (block["capacity_block"], block["unused_usd_per_hour"]) == (True, 0.0)
    assert answer["totals"]["unused_reservations_usd_per_hour"] == pytest.approx(3 * 55.04)
    members = [row for row in answer["instances"] if row["kind"] == "auto-scaling-member"]
    assert [row["owner"] for row in members] == ["gpu", "gpu"]


def test_a_region_that_cannot_be_read_is_unknown_and_named(world: World) -> None:
    world.launch()
    world.refuse("ec2.DescribeInstances", "UnauthorizedOperation", "no", region=FURTHER)
    answer = world.answer("scan")
    assert answer["unknown_regions"] == [{"region": FURTHER, "why": "UnauthorizedOperation: no"}]
    assert len(answer["instances"]) == 1
    assert f"Unknown, not empty: {FURTHER} (UnauthorizedOperation: no)" in world.governor("scan").stdout


@pytest.mark.parametrize(
    "call",
    [
        "autoscaling.DescribeAutoScalingGroups",
        "ec2.DescribeSpotInstanceRequests",
        "ec2.DescribeCapacityReservations",
        "ec2.DescribeRegions",
        "sts.GetCallerIdentity",
        "cloudformation.DescribeStacks",
    ],
)
def test_a_call_that_is_not_permitted_is_named_and_the_rest_is_shown(call: str, world: World) -> None:
    mine = world.launch()
    world.refuse(call, "AccessDenied", "not yours")
    answer = world.answer("scan")
    assert [row["instance_id"] for row in answer["instances"]] == [mine]
    named = {refused["call"] for refused in answer["refused_calls"]}
    operation = call.partition(".")[2]
    assert len(named) == 1
    assert operation in named.pop()
    assert {refused["why"] for refused in answer["refused_calls"]} == {"AccessDenied: not yours"}
    assert operation in world.governor("scan").stdout


def test_expired_credentials_end_the_scan(world: World) -> None:
    world.refuse("sts.GetCallerIdentity", "ExpiredToken")
    result = world.governor("scan")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "have expired" in result.stderr


def test_tags_are_read_with_the_keys_of_the_deployed_stage(world: World) -> None:
    world.deploy()
    boto3.client("cloudformation", HOME).update_stack(
        StackName="Governor-dev-Control",
        TemplateBody=json.dumps(
            {
                "Resources": {"Nothing": {"Type": "AWS::SQS::Queue"}},
                "Outputs": {
                    "BudgetName": {"Value": "b"},
                    "GuardBudgetFunctionName": {"Value": "g"},
                    "BudgetFamilies": {"Value": "g4dn"},
                    "Regions": {"Value": HOME},
                    "TagKeys": {"Value": json.dumps({"managed": "team:managed", "criticality": "team:level"})},
                },
            }
        ),
    )
    world.launch(managed=None, criticality=None, **{"team:managed": "dev", "team:level": "standard"})
    assert [row["reach"] for row in world.answer("scan")["instances"]] == ["within-reach"]


def test_a_stage_that_is_not_deployed_reads_its_own_tag_values(world: World) -> None:
    world.launch(managed="prod")
    assert [row["reach"] for row in world.answer("scan", "--stage", "prod")["instances"]] == ["within-reach"]
    assert [row["reach"] for row in world.answer("scan")["instances"]] == ["missing-tag"]


def test_tables_fit_into_100_columns_without_colours(world: World) -> None:
    for instance_type in ("g4dn.xlarge", "p6-b300.48xlarge", "g6f.large"):
        world.launch(instance_type, Name="a-very-long-name-of-some-training-run", region=FURTHER)
    output = world.governor("scan").stdout
    assert max(len(line) for line in output.splitlines()) <= 100
    assert "\x1b" not in output
    assert "[/" not in output


def test_an_empty_account_is_said_to_be_empty(world: World) -> None:
    output = world.governor("scan").stdout
    assert "No GPU instances in the Regions that were read." in output
    assert "the Governor itself" in output


# --- init -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's folder with the cdk.json that is shipped."""
    (tmp_path / "cdk.json").write_bytes(CDK_JSON.read_bytes())
    return tmp_path


def stages(project: Path) -> Any:
    return json.loads((project / "cdk.json").read_text())["context"]["stages"]


def test_init_writes_regions_and_a_limit_that_the_stacks_accept(world: World, project: Path) -> None:
    world.launch("p4d.24xlarge", None, None, region=FURTHER)
    world.launch("g5.xlarge", None, None)
    before = (project / "cdk.json").read_text()
    result = world.governor("init", "--stage", "team", "--folder", str(project), "--page", "ops@example.com")
    assert result.exit_code == 0, result.output
    stage = load_stage("team", project / "cdk.json")
    assert stage.regions == (HOME, FURTHER)
    assert {"p4d", "g5", "p6-b300"} <= set(stage.budget.families), "every GPU family counts"
    assert stage.budget.limit_usd == 17_000
    assert stage.initial_mode == "observe"
    assert stage.subscribers.page == stage.subscribers.warn == ("ops@example.com",)
    after = (project / "cdk.json").read_text()
    place = after.index(',\n      "team": ')
    assert before.startswith(after[:place])
    assert after.endswith(before[place:])


def test_init_keeps_what_a_stage_says_besides(world: World, project: Path) -> None:
    world.launch("g5.xlarge", None, None)
    before = stages(project)["local"]
    result = world.governor("init", "--stage", "local", "--folder", str(project), "--yes", "--limit-usd", "2500")
    assert result.exit_code == 0, result.output
    after = stages(project)["local"]
    assert after["budget"] == {**before["budget"], "limit_usd": 2500}
    assert {k: v for k, v in after.items() if k != "budget"} == {k: v for k, v in before.items() if k != "budget"}
    assert list(after) == list(before)


@pytest.mark.parametrize(
    ("typed", "words"), [("n\n", "Nothing was changed, as you said."), (None, "answer it with --yes")]
)
def test_init_asks_before_it_overwrites(typed: str | None, words: str, world: World, project: Path) -> None:
    world.launch("g5.xlarge", None, None)
    before = (project / "cdk.json").read_bytes()
    result = world.governor("init", "--stage", "dev", "--folder", str(project), typed=typed)
    assert result.exit_code == 1
    assert words in result.stderr
    assert (project / "cdk.json").read_bytes() == before


def test_init_overwrites_after_a_yes_and_does_nothing_the_second_time(world: World, project: Path) -> None:
    world.launch("g5.xlarge", None, None)
    assert world.governor("init", "--stage", "dev", "--folder", str(project), typed="y\n").exit_code == 0
    after = (project / "cdk.json").read_bytes()
    again = world.governor("init", "--stage", "dev", "--folder", str(project))
    assert again.exit_code == 0
    assert "says that already" in again.stdout
    assert (project / "cdk.json").read_bytes() == after


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "There is no cdk.json in"),
        ("{", "is not valid JSON at line 1, column 2"),
        ("{}", "has no object at context.stages"),
        ('{"context": {"stages": []}}', "has no object at context.stages"),
    ],
)
def test_init_says_what_is_wrong_with_cdk_json(content: str | None, words: str, world: World, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "cdk.json").write_text(content)
    result = world.governor("init", "--stage", "dev", "--folder", str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr


def test_init_writes_nothing_that_the_stacks_refuse(world: World, project: Path) -> None:
    before = (project / "cdk.json").read_bytes()
    result = world.governor("init", "--stage", "new", "--folder", str(project), "--limit-usd", "-5")
    assert result.exit_code == 1
    assert "The stage cannot be written like that: cdk.json: context.stages.new.budget.limit_usd is -5" in result.stderr
    assert (project / "cdk.json").read_bytes() == before
