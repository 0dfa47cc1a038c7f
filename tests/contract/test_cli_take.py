"""`governor tag`, `adopt`, `unadopt` and `retire` against an emulated account: what they set, refuse and put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from governor.aws.retired_marker import RetiredMarker
from governor.domain.taken import TAG_WHY, PlaceKind, adopt_why
from governor.ports import Key
from governor.shell.taken import load_taken
from tests.unit.cli.world import FURTHER, HOME, World, a_world

MANAGED, CRITICALITY, POOL = "governor:managed", "governor:criticality", "governor:pool"
ADOPTED = {MANAGED: "dev", CRITICALITY: "standard", POOL: "research"}
ADOPT = ("adopt", "workers", "--pool", "research")
GROUP_TAGS = {"team": ("vision", True), POOL: ("old", False)}
WRITES = {
    "dynamodb.TransactWriteItems",
    "ec2.CreateTags",
    "ec2.DeleteTags",
    "autoscaling.CreateOrUpdateTags",
    "autoscaling.DeleteTags",
    "autoscaling.SuspendProcesses",
    "autoscaling.ResumeProcesses",
    "ssm.PutParameter",
    "ssm.DeleteParameters",
    "lambda.Invoke",
}


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        made.deploy(mode="enforce")
        made.connect_functions()
        made.calls.clear()
        yield made


def written(world: World) -> list[str]:
    """Calls that change something, in order."""
    return [call for call in world.calls if call in WRITES]


def words(text: str) -> str:
    """Output without line breaks and boxes."""
    return " ".join(text.replace("│", " ").split())


def tags_of(resource: str, region: str = HOME) -> dict[str, str]:
    """Tags of an instance, without those of AWS."""
    answer = boto3.client("ec2", region).describe_instances(InstanceIds=[resource])
    tags = answer["Reservations"][0]["Instances"][0].get("Tags", [])
    return {str(tag["Key"]): str(tag["Value"]) for tag in tags if not tag["Key"].startswith("aws:")}


def state_of(instance_id: str) -> str:
    answer = boto3.client("ec2", HOME).describe_instances(InstanceIds=[instance_id])
    return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])


def group_item(name: str = "workers") -> dict[str, Any]:
    groups = boto3.client("autoscaling", HOME).describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    return dict(groups["AutoScalingGroups"][0])


def group_tags(name: str = "workers") -> dict[str, tuple[str, bool]]:
    """Tags of a group: value, and whether it goes on to new members."""
    return {tag["Key"]: (tag["Value"], tag["PropagateAtLaunch"]) for tag in group_item(name)["Tags"]}


def suspended(name: str = "workers") -> list[str]:
    return sorted(process["ProcessName"] for process in group_item(name)["SuspendedProcesses"])


def everything(world: World) -> dict[str, Any]:
    """What may not differ after a way back: tags, processes, sizes, states of all machines and groups."""
    found: dict[str, Any] = {}
    for region in (HOME, FURTHER):
        for reservation in boto3.client("ec2", region).describe_instances()["Reservations"]:
            for item in reservation["Instances"]:
                found[item["InstanceId"]] = (tags_of(item["InstanceId"], region), item["State"]["Name"])
    for item in boto3.client("autoscaling", HOME).describe_auto_scaling_groups()["AutoScalingGroups"]:
        name = item["AutoScalingGroupName"]
        sizes = (item["MinSize"], item["DesiredCapacity"], item["MaxSize"])
        found[name] = (group_tags(name), suspended(name), sizes, world.members(name))
    return found


def set_tag(instance_id: str, key: str, value: str) -> None:
    boto3.client("ec2", HOME).create_tags(Resources=[instance_id], Tags=[{"Key": key, "Value": value}])


def scale_to(size: int, name: str = "workers") -> None:
    boto3.client("autoscaling", HOME).set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=size)


def a_file(path: Path, *rows: tuple[str, ...], header: str = "resource,region,key,value") -> str:
    file = path / "tags.csv"
    file.write_text("\n".join([header, *(",".join(row) for row in rows), ""]), encoding="utf-8")
    return str(file)


# --- tag --------------------------------------------------------------------------------------------------------------


def test_the_template_lists_what_has_no_tags_as_critical_and_can_be_planned_as_it_is(
    world: World, tmp_path: Path
) -> None:
    untagged, far = world.launch(managed=None, criticality=None), world.launch(managed=None, region=FURTHER)
    tagged = world.launch()
    members = world.launch_group()
    result = world.governor("tag", "--template")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "resource,region,key,value"
    assert f"{untagged},{HOME},{MANAGED},dev" in lines
    assert f"{far},{FURTHER},{CRITICALITY},critical" in lines
    assert f"workers,{HOME},{CRITICALITY},critical" in lines
    assert not any(tagged in line for line in lines)
    assert {line.split(",")[0] for line in lines[1:]} == {untagged, far, "workers", *members}
    assert world.answer("tag", "--template")["rows"][0].keys() == {"resource", "region", "key", "value"}
    file = tmp_path / "tags.csv"
    file.write_text(result.stdout, encoding="utf-8")
    plan = world.answer("tag", "--plan", str(file))
    assert plan["within_reach_usd_per_hour"] == {"before": 0.526, "after": 0.526}, "sent back unread, it allows nothing"


def test_a_plan_shows_each_tag_before_and_after_and_what_it_would_allow_and_changes_nothing(
    world: World, tmp_path: Path
) -> None:
    mine = world.launch(managed=None, criticality="critical")
    rows = [(mine, HOME, MANAGED, "dev"), (mine, HOME, CRITICALITY, "standard")]
    file = a_file(tmp_path, *rows)
    before = everything(world)
    plan = world.answer("tag", "--plan", file)
    assert [(c["name"], c["before"], c["after"]) for c in plan["changes"]] == [
        (MANAGED, None, "dev"),
        (CRITICALITY, "critical", "standard"),
    ]
    assert plan["applied"] is False
    assert plan["within_reach_usd_per_hour"] == {"before": 0.0, "after": 0.526}
    assert plan["resources"][0]["could"].startswith("stop:")
    shown = words(world.governor("tag", "--plan", file).stdout)
    assert "2 tags would change" in shown
    assert "critical -> standard" in shown
    assert "$0.53/h come within reach" in shown
    assert f"Nothing was changed; governor tag --plan {file} --apply --stage dev sets them." in shown
    assert (everything(world), written(world)) == (before, [])


def test_a_plan_that_takes_money_out_of_reach_says_so(world: World, tmp_path: Path) -> None:
    file = a_file(tmp_path, (world.launch(), HOME, CRITICALITY, "critical"))
    assert "$0.53/h leave the reach" in words(world.governor("tag", "--plan", file).stdout)


def test_applied_tags_are_set_as_the_plan_said_and_a_revert_puts_exactly_the_old_ones_back(
    world: World, tmp_path: Path
) -> None:
    one, far = world.launch(managed=None, criticality=""), world.launch(managed="other", region=FURTHER)
    world.launch_group(tags=GROUP_TAGS)
    before = everything(world)
    file = a_file(
        tmp_path,
        (one, HOME, MANAGED, "dev"),
        (one, HOME, CRITICALITY, "preemptible"),
        (far, FURTHER, MANAGED, "dev"),
        ("workers", HOME, POOL, "old"),
        ("workers", HOME, CRITICALITY, "standard"),
    )
    answer = world.answer("tag", "--plan", file, "--apply", "--yes")
    assert answer["applied"] is True
    assert len(answer["changes"]) == 5
    assert tags_of(one) == {MANAGED: "dev", CRITICALITY: "preemptible"}
    assert tags_of(far, FURTHER)[MANAGED] == "dev"
    assert group_tags() == {"team": ("vision", True), POOL: ("old", True), CRITICALITY: ("standard", True)}
    layers = [layer for taken in load_taken(world.store()).values() for layer in taken.layers]
    assert {(layer.why, layer.by.split(":")[2]) for layer in layers} == {(TAG_WHY, "sts")}
    assert world.answer("tag", "--plan", file, "--apply", "--yes")["changes"] == []
    reverted = world.answer("tag", "--revert", "--yes")
    assert len([row for row in reverted["put_back"] if row["writes"]]) == 5
    assert reverted["findings"] == []
    assert everything(world) == before
    assert "has changed no tag that could be put back" in words(world.governor("tag", "--revert", "--yes").stdout)


def test_what_is_recorded_is_recorded_before_the_tag_is_set(world: World, tmp_path: Path) -> None:
    file = a_file(tmp_path, (world.launch(managed=None), HOME, MANAGED, "dev"))
    world.answer("tag", "--plan", file, "--apply", "--yes")
    assert written(world) == ["dynamodb.TransactWriteItems", "ec2.CreateTags"]


def test_a_tag_that_is_set_on_a_group_alone_only_because_it_did_not_go_on_is_shown_as_that(
    world: World, tmp_path: Path
) -> None:
    world.launch_group(tags=GROUP_TAGS)
    file = a_file(tmp_path, ("workers", HOME, POOL, "old"))
    assert "old (not of new members) -> old" in words(world.governor("tag", "--plan", file).stdout)


def test_a_revert_of_a_file_puts_back_only_what_the_file_names(world: World, tmp_path: Path) -> None:
    one, other = world.launch(managed=None), world.launch(managed=None)
    file = a_file(tmp_path, (one, HOME, MANAGED, "dev"), (other, HOME, MANAGED, "dev"))
    world.answer("tag", "--plan", file, "--apply", "--yes")
    world.answer("tag", "--plan", a_file(tmp_path, (one, HOME, MANAGED, "dev")), "--revert", "--yes")
    assert MANAGED not in tags_of(one)
    assert tags_of(other)[MANAGED] == "dev"


def test_a_tag_that_somebody_changed_since_is_left_and_named(world: World, tmp_path: Path) -> None:
    one, other = world.launch(managed=None), world.launch(managed=None)
    file = a_file(tmp_path, (one, HOME, MANAGED, "dev"), (other, HOME, MANAGED, "dev"))
    world.answer("tag", "--plan", file, "--apply", "--yes")
    set_tag(one, MANAGED, "theirs")
    shown = words(world.governor("tag", "--revert", "--yes").stdout)
    assert f"tag {MANAGED} of instance {one} in {HOME} holds 'theirs', we had set 'dev'" in shown
    assert "1 tag put back." in shown
    assert tags_of(one)[MANAGED] == "theirs"
    assert MANAGED not in tags_of(other)
    (finding,) = world.answer("tag", "--revert", "--yes")["findings"]
    assert (finding["resource"], finding["before"], finding["writes"]) == (one, "theirs", False)


@pytest.mark.parametrize("way", ["revert", "apply"])
def test_tags_of_what_is_stopped_are_left_until_it_is_back(way: str, world: World, tmp_path: Path) -> None:
    mine = world.launch(managed=None)
    world.answer("tag", "--plan", a_file(tmp_path, (mine, HOME, MANAGED, "dev")), "--apply", "--yes")
    world.spend(960.0)
    world.guard()
    world.confirm()
    assert state_of(mine) == "stopped"
    before = tags_of(mine)
    file = a_file(tmp_path, (mine, HOME, CRITICALITY, "critical"))
    arguments = ("--revert",) if way == "revert" else ("--plan", file, "--apply")
    result = world.governor("tag", *arguments, "--yes")
    assert result.exit_code == 1
    assert f"The Governor has stopped {mine} or members of it" in words(result.stderr)
    assert "governor restore --all --stage dev" in words(result.stderr)
    assert tags_of(mine) == before
    world.answer("restore", mine, "--yes", "--no-wait")
    world.confirm()
    world.pass_minutes(5)
    world.confirm()
    assert world.governor("tag", *arguments, "--yes").exit_code == 0


def test_without_the_right_to_list_stacks_a_plan_asks_for_the_stage(world: World, tmp_path: Path) -> None:
    mine = world.launch(managed=None)
    world.refuse("cloudformation.DescribeStacks", "AccessDenied")
    result = world.governor("tag", "--plan", a_file(tmp_path, (mine, HOME, MANAGED, "dev")))
    assert result.exit_code == 1
    assert "name it with --stage NAME" in words(result.stderr)


def test_an_adoption_of_nothing_is_wrong_usage(world: World) -> None:
    result = world.governor("adopt", " ", "--pool", "x")
    assert result.exit_code == 2
    assert "name the Auto Scaling group" in words(result.output)


def test_a_later_member_loses_with_its_group_what_it_got_from_it(world: World, tmp_path: Path) -> None:
    world.launch_group(size=1, tags=GROUP_TAGS)
    world.answer("tag", "--plan", a_file(tmp_path, ("workers", HOME, MANAGED, "dev")), "--apply", "--yes")
    (old,) = world.members()
    scale_to(2)
    (new,) = set(world.members()) - {old}
    assert tags_of(new) == {"team": "vision", MANAGED: "dev"}
    world.answer("tag", "--revert", "--yes")
    assert tags_of(new) == tags_of(old) == {"team": "vision"}


def test_an_instance_that_is_gone_is_said_to_be_gone_and_the_rest_is_put_back(world: World, tmp_path: Path) -> None:
    gone, other = world.launch(managed=None), world.launch(managed=None)
    file = a_file(tmp_path, (gone, HOME, MANAGED, "dev"), (other, HOME, MANAGED, "dev"))
    world.answer("tag", "--plan", file, "--apply", "--yes")
    boto3.client("ec2", HOME).terminate_instances(InstanceIds=[gone])
    assert f"The instance {gone} no longer exists." in words(world.governor("tag", "--revert", "--yes").stdout)
    assert MANAGED not in tags_of(other)


def test_no_is_no_and_changes_nothing(world: World, tmp_path: Path) -> None:
    file = a_file(tmp_path, (world.launch(managed=None), HOME, MANAGED, "dev"))
    before = everything(world)
    for typed in ("n\n", ""):
        assert world.governor("tag", "--plan", file, "--apply", typed=typed).exit_code == 1
    assert (everything(world), written(world)) == (before, [])


BAD_ROWS = {
    "unknown column": (("{id}", HOME, "CostCenter", "7"), "'CostCenter' is no tag of the Governor; write one of"),
    "key not exact": (
        ("{id}", HOME, "Governor:Managed", "dev"),
        f"the key 'Governor:Managed' is not written exactly; write {MANAGED}",
    ),
    "unknown instance": (("i-0123456789abcdef0", HOME, MANAGED, "dev"), "there is no instance i-0123456789abcdef0 in"),
    "unknown group": (("nobody", HOME, MANAGED, "dev"), f"there is no Auto Scaling group nobody in {HOME}; check"),
    "no id": (("i-XYZ", HOME, MANAGED, "dev"), "'i-XYZ' is no instance id; write it like"),
    "an ARN": (("arn:aws:ec2:x", HOME, MANAGED, "dev"), "'arn:aws:ec2:x' is no instance id"),
    "no resource": (("", HOME, MANAGED, "dev"), "it names no resource"),
    "every resource": (("*", HOME, MANAGED, "dev"), "it names no resource"),
    "Region of nobody": (("{id}", "eu-west-9", MANAGED, "dev"), "eu-west-9 is not a Region of stage dev; write one of"),
    "no Region": (("{id}", "", MANAGED, "dev"), "no Region is not a Region of stage dev"),
    "another Region": (("{id}", FURTHER, MANAGED, "dev"), "there is no instance {id} in eu-west-1"),
    "criticality": (("{id}", HOME, CRITICALITY, "high"), f"{CRITICALITY} is 'high'; write one of critical, standard"),
    "criticality in capitals": (("{id}", HOME, CRITICALITY, "Standard"), f"{CRITICALITY} is 'Standard'; write one"),
    "another stage": (("{id}", HOME, MANAGED, "prod"), f"{MANAGED} is 'prod', which is not the stage; write dev"),
    "no value": (("{id}", HOME, POOL, ""), f"the value of {POOL} is empty"),
    "a value that AWS refuses": (("{id}", HOME, POOL, "a<b"), f"AWS does not take the value of {POOL}"),
    "too long": (("{id}", HOME, POOL, "a" * 257), f"AWS does not take the value of {POOL}; write at most 256"),
    "a keep that nobody can read": (("{id}", HOME, "governor:keep", "till Friday"), "governor:keep is 'till Friday'"),
    "too few cells": (("{id}", HOME, MANAGED), "it has 3 cells instead of 4"),
    "too many cells": (("{id}", HOME, POOL, "a", "b"), "it has 5 cells instead of 4"),
}


def test_one_bad_row_is_named_with_its_line_in_one_sentence_and_nothing_is_changed(
    world: World, tmp_path: Path
) -> None:
    mine = world.launch(managed=None)
    before = everything(world)
    for name, (row, sentence) in BAD_ROWS.items():
        cells = tuple(cell.format(id=mine) for cell in row)
        file = a_file(tmp_path, (mine, HOME, CRITICALITY, "preemptible"), cells)
        for arguments in ((), ("--apply", "--yes")):
            result = world.governor("tag", "--plan", file, *arguments)
            said = words(result.stderr)
            assert result.exit_code == 1, name
            assert f"line 3: {sentence.format(id=mine)}" in said, name
            assert f"{file} has 1 bad row, so nothing was changed" in said, name
            assert result.stdout == "", name
    assert (everything(world), written(world)) == (before, [])


def test_every_bad_row_is_named_at_once_in_the_order_of_the_file(world: World, tmp_path: Path) -> None:
    mine = world.launch(managed=None)
    rows = [
        ("nobody", HOME, MANAGED, "dev"),
        (mine, HOME, MANAGED, "dev"),
        (mine, HOME, "other", "x"),
        (mine, HOME, MANAGED, "dev"),
    ]
    result = world.governor("tag", "--plan", a_file(tmp_path, *rows), "--apply", "--yes")
    lines = [line.strip().split(":")[0] for line in result.stderr.splitlines()[1:]]
    assert lines == ["line 2", "line 4", "line 5"]
    assert f"it names {MANAGED} of {mine} again, as line 3 does; keep one of the two" in words(result.stderr)
    assert written(world) == []


BAD_FILES = {
    "missing": (None, "cannot be read (No such file or directory); name a CSV file with --plan"),
    "empty": (b"", "does not begin with the header resource,region,key,value"),
    "blank lines": (b"\n\n ,,\n", "does not begin with the header"),
    "no header": (b"i-0123456789abcdef0,us-east-1,governor:managed,dev\n", "does not begin with the header"),
    "semicolons": (b"resource;region;key;value\n", "with commas"),
    "nothing below": (b"resource,region,key,value\n", "has no row below its header"),
    "Latin-1": ("resource,region,key,value\nM\u00fcller,us-east-1,a,b\n".encode("latin-1"), "is no UTF-8 text"),
    "UTF-16": ("resource,region,key,value\n".encode("utf-16"), "is no UTF-8 text; save it as CSV in UTF-8"),
    "open quote": (b'resource,region,key,value\n"i-1,us-east-1,a,b\n', "is no CSV file"),
    "too large": (b"x" * 1_000_001, "is larger than 1,000,000 bytes; split it"),
}


def test_a_file_that_is_no_table_is_refused_in_one_sentence(world: World, tmp_path: Path) -> None:
    file = tmp_path / "tags.csv"
    for name, (content, sentence) in BAD_FILES.items():
        if content is not None:
            file.write_bytes(content)
        for arguments in (("--apply", "--yes"), ("--revert", "--yes")):
            result = world.governor("tag", "--plan", str(file), *arguments)
            assert result.exit_code == 1, name
            assert sentence in words(result.stderr), name
            assert "fault" not in result.output, name
    assert written(world) == []


def test_a_file_as_spreadsheets_save_it_is_read(world: World, tmp_path: Path) -> None:
    mine = world.launch(managed=None)
    file = tmp_path / "tags.csv"
    file.write_bytes(b"\xef\xbb\xbf" + f'Resource,Region,Key,Value\r\n"{mine}", {HOME} ,{POOL},"a b"\r\n'.encode())
    assert [change["after"] for change in world.answer("tag", "--plan", str(file))["changes"]] == ["a b"]


def test_a_resource_without_room_for_another_tag_is_a_bad_row(world: World, tmp_path: Path) -> None:
    mine = world.launch(managed=None, criticality=None, **{f"key{number}": "x" for number in range(49)})
    file = a_file(tmp_path, (mine, HOME, MANAGED, "dev"), (mine, HOME, CRITICALITY, "standard"))
    result = world.governor("tag", "--plan", file, "--apply", "--yes")
    assert result.exit_code == 1
    assert "line 3" in result.stderr
    assert "no room for another tag (AWS allows 50)" in words(result.stderr)
    assert written(world) == []


@pytest.mark.parametrize(
    "arguments",
    [(), ("--apply",), ("--template", "--revert"), ("--template", "--apply"), ("--plan", "x", "--apply", "--revert")],
)
def test_tag_without_a_clear_wish_is_wrong_usage(arguments: tuple[str, ...], world: World) -> None:
    assert world.governor("tag", *arguments).exit_code == 2
    assert written(world) == []


def test_before_an_install_a_plan_can_be_seen_and_not_applied(tmp_path: Path) -> None:
    with a_world() as bare:
        file = a_file(tmp_path, (bare.launch(managed=None), HOME, MANAGED, "dev"))
        assert len(bare.answer("tag", "--plan", file)["changes"]) == 1
        result = bare.governor("tag", "--plan", file, "--apply", "--yes")
        assert result.exit_code == 1
        assert "No stage of the Governor is deployed" in words(result.stderr)
        assert written(bare) == []


# --- adopt and unadopt ------------------------------------------------------------------------------------------------


def test_an_adoption_shows_every_tag_of_the_group_and_its_members_and_no_changes_nothing(world: World) -> None:
    members = world.launch_group(tags=GROUP_TAGS)
    before = everything(world)
    result = world.governor(*ADOPT, typed="n\n")
    assert result.exit_code == 1
    shown = words(result.stdout)
    assert "Group workers in us-east-1: 2 members, MinSize 2, desired 2, MaxSize 3" in shown
    assert "governor:pool old -> research" in shown
    assert all(member in shown for member in members)
    assert "$1.05/h come within reach: $0.00/h of us-east-1 now, $1.05/h then." in shown
    assert (everything(world), written(world)) == (before, [])


def test_an_adoption_sets_recorded_tags_on_the_group_and_its_members_and_the_guard_then_reaches_them(
    world: World,
) -> None:
    members = world.launch_group(tags=GROUP_TAGS)
    answer = world.answer(*ADOPT, "--yes")
    assert (answer["group"], answer["region"], answer["members"]) == ("workers", HOME, members)
    assert answer["within_reach_usd_per_hour"] == {"before": 0.0, "after": 1.052}
    assert set(answer["members_could"]) == set(members)
    assert [row["tool"].split()[0] for row in answer["code"]] == ["Terraform,", "CDK", "CloudFormation,"]
    assert group_tags() == {"team": ("vision", True), **{key: (value, True) for key, value in ADOPTED.items()}}
    assert all(tags_of(member) == {"team": "vision", **ADOPTED} for member in members)
    taken = load_taken(world.store())
    assert {layer.why for one in taken.values() for layer in one.layers} == {adopt_why(HOME, "workers")}
    assert {(place.resource, place.name) for place in taken} == {
        (resource, key) for resource in ("workers", *members) for key in ADOPTED
    }
    world.spend(960.0)
    assert world.answer("plan")["stops"] == members


def test_an_adoption_is_made_once(world: World) -> None:
    world.launch_group()
    world.answer(*ADOPT, "--yes")
    world.calls.clear()
    assert world.answer(*ADOPT, "--yes")["changes"] == []
    assert written(world) == []
    assert "has been taken in already" in words(world.governor(*ADOPT, "--yes").stdout)


def test_what_scales_a_group_is_suspended_before_anything_says_that_it_is_managed(world: World) -> None:
    world.launch_group()
    world.answer(*ADOPT, "--suspend", "--yes")
    assert written(world) == [
        "dynamodb.TransactWriteItems",
        "autoscaling.SuspendProcesses",
        "autoscaling.CreateOrUpdateTags",
        "ec2.CreateTags",
    ]


@pytest.mark.parametrize("suspends", [False, True])
def test_unadopt_makes_group_and_members_exactly_what_they_were_new_members_included(
    suspends: bool, world: World
) -> None:
    old = world.launch_group(tags={**GROUP_TAGS, CRITICALITY: ("preemptible", True)})
    boto3.client("autoscaling", HOME).suspend_processes(
        AutoScalingGroupName="workers", ScalingProcesses=["AZRebalance"]
    )
    before = everything(world)
    world.answer(*ADOPT, *(("--suspend",) if suspends else ()), "--yes")
    ours = ["AlarmNotification", "ScheduledActions"] if suspends else []
    assert suspended() == sorted(["AZRebalance", *ours])
    scale_to(3)
    (new,) = set(world.members()) - set(old)
    assert tags_of(new) == {"team": "vision", **ADOPTED}
    answer = world.answer("unadopt", "workers", "--yes")
    assert answer["findings"] == []
    after = everything(world)
    assert tags_of(new) == {"team": "vision", CRITICALITY: "preemptible"}
    assert suspended() == ["AZRebalance"]
    assert group_tags() == before["workers"][0]
    assert {one: after[one] for one in old} == {one: before[one] for one in old}


def test_unadopt_resumes_only_what_the_adoption_has_suspended(world: World) -> None:
    world.launch_group()
    auto_scaling = boto3.client("autoscaling", HOME)
    auto_scaling.suspend_processes(AutoScalingGroupName="workers", ScalingProcesses=["ScheduledActions"])
    world.answer(*ADOPT, "--suspend", "--yes")
    assert suspended() == ["AlarmNotification", "ScheduledActions"]
    world.answer("unadopt", "workers", "--yes")
    assert suspended() == ["ScheduledActions"]


def test_unadopt_leaves_and_names_a_tag_that_somebody_changed_meanwhile(world: World) -> None:
    first, second = world.launch_group()
    world.answer(*ADOPT, "--yes")
    set_tag(first, POOL, "theirs")
    boto3.client("autoscaling", HOME).create_or_update_tags(
        Tags=[
            {
                "ResourceId": "workers",
                "ResourceType": "auto-scaling-group",
                "Key": CRITICALITY,
                "Value": "critical",
                "PropagateAtLaunch": True,
            }
        ]
    )
    answer = world.answer("unadopt", "workers", "--yes")
    assert {(row["resource"], row["name"], row["before"]) for row in answer["findings"]} == {
        (first, POOL, "theirs"),
        ("workers", CRITICALITY, "critical"),
    }
    assert (tags_of(first), tags_of(second)) == ({POOL: "theirs"}, {})
    assert group_tags() == {CRITICALITY: ("critical", True)}
    shown = words(world.governor("unadopt", "workers", "--yes").stdout)
    assert f"Left: tag {POOL} of instance {first} in {HOME} holds 'theirs', we had set 'research'" in shown


def test_unadopt_can_be_repeated_and_says_that_nothing_is_to_be_done(world: World) -> None:
    world.launch_group()
    world.answer(*ADOPT, "--yes")
    shown = words(world.governor("unadopt", "workers", "--yes").stdout)
    assert "9 changes put back." in shown
    world.calls.clear()
    again = world.governor("unadopt", "workers", "--yes")
    assert again.exit_code == 0
    assert "Everything is as it was before; nothing has to be put back." in words(again.stdout)
    assert written(world) == []


def test_unadopt_of_a_group_that_was_not_adopted_is_refused(world: World) -> None:
    world.launch_group(tags={MANAGED: ("dev", True)})
    result = world.governor("unadopt", "workers", "--yes")
    assert result.exit_code == 1
    assert "The group workers was not adopted by this command" in words(result.stderr)
    assert group_tags() == {MANAGED: ("dev", True)}


def test_unadopt_asks_for_the_region_where_groups_of_that_name_were_adopted_in_several(world: World) -> None:
    for region in (HOME, FURTHER):
        world.launch_group(size=1, region=region)
        world.answer(*ADOPT, "--region", region, "--yes")
    refused = world.governor("unadopt", "workers", "--yes")
    assert refused.exit_code == 1
    assert "choose one with --region" in words(refused.stderr)
    assert world.answer("unadopt", "workers", "--region", FURTHER, "--yes")["region"] == FURTHER
    assert tags_of(world.members(region=FURTHER)[0], FURTHER) == {}
    assert tags_of(world.members()[0]) == ADOPTED
    assert world.answer("unadopt", "workers", "--yes")["region"] == HOME


def test_unadopt_waits_for_what_was_tagged_on_top_and_then_gives_the_rest_back(world: World, tmp_path: Path) -> None:
    (member,) = world.launch_group(size=1)
    world.answer(*ADOPT, "--yes")
    world.answer("tag", "--plan", a_file(tmp_path, (member, HOME, POOL, "later")), "--apply", "--yes")
    (finding,) = world.answer("unadopt", "workers", "--yes")["findings"]
    assert "was changed again since (tag); take that back first" in finding["finding"]
    assert tags_of(member) == {POOL: "later"}
    world.answer("tag", "--revert", "--yes")
    world.answer("unadopt", "workers", "--yes")
    assert tags_of(member) == {}


def test_a_later_member_that_was_tagged_itself_ends_without_any_tag_of_ours(world: World, tmp_path: Path) -> None:
    (old,) = world.launch_group(size=1)
    world.answer(*ADOPT, "--yes")
    scale_to(2)
    (new,) = set(world.members()) - {old}
    world.answer("tag", "--plan", a_file(tmp_path, (new, HOME, POOL, "later")), "--apply", "--yes")
    assert [f["resource"] for f in world.answer("unadopt", "workers", "--yes")["findings"]] == [new]
    assert tags_of(new) == {POOL: "later"}
    world.answer("retire", "--apply", "--yes")
    assert tags_of(new) == {}


def test_unadopt_is_refused_while_the_governor_holds_machines_of_the_group(world: World) -> None:
    members = world.launch_group()
    world.answer(*ADOPT, "--yes")
    world.spend(960.0)
    world.guard()
    before = everything(world)
    result = world.governor("unadopt", "workers", "--yes")
    assert result.exit_code == 1
    assert "first run governor restore --all --stage dev" in words(result.stderr)
    assert everything(world) == before
    assert all(tags_of(member) == ADOPTED for member in members)


def add_policy() -> None:
    boto3.client("autoscaling", HOME).put_scaling_policy(
        AutoScalingGroupName="workers",
        PolicyName="by-load",
        PolicyType="SimpleScaling",
        AdjustmentType="ChangeInCapacity",
        ScalingAdjustment=1,
    )


def add_schedule() -> None:
    boto3.client("autoscaling", HOME).put_scheduled_update_group_action(
        AutoScalingGroupName="workers", ScheduledActionName="nightly", Recurrence="0 3 * * *", DesiredCapacity=1
    )


@pytest.mark.parametrize(
    ("add", "what"), [(add_policy, "scaling policy by-load"), (add_schedule, "scheduled action nightly")]
)
def test_a_group_that_scales_itself_is_adopted_only_with_that_suspended(add: Any, what: str, world: World) -> None:
    world.launch_group()
    add()
    before = everything(world)
    result = world.governor(*ADOPT, "--yes")
    assert result.exit_code == 1
    assert f"scales itself ({what})" in words(result.stderr)
    assert "give --suspend to suspend that" in words(result.stderr)
    assert (everything(world), written(world)) == (before, [])
    answer = world.answer(*ADOPT, "--suspend", "--yes")
    assert suspended() == ["AlarmNotification", "ScheduledActions"]
    assert answer["within_reach_usd_per_hour"]["after"] == 1.052
    assert any("suspended_processes" in line for line in answer["code"][0]["lines"])
    world.answer("unadopt", "workers", "--yes")
    assert everything(world) == before


def refresh(world: World) -> None:
    world.answers["autoscaling.DescribeInstanceRefreshes"] = lambda region, params: {
        "InstanceRefreshes": [{"Status": "InProgress"}]
    }


def predict(world: World) -> None:
    policy = {
        "PolicyName": "forecast",
        "PolicyType": "PredictiveScaling",
        "PredictiveScalingConfiguration": {"Mode": "ForecastAndScale"},
    }
    world.answers["autoscaling.DescribePolicies"] = lambda region, params: {"ScalingPolicies": [policy]}


@pytest.mark.parametrize(
    ("happen", "sentence"),
    [
        (refresh, "An instance refresh of the group workers in us-east-1 is in progress; wait until it has ended"),
        (predict, "(scaling policy forecast), and suspending processes does not stop that; disable it first"),
    ],
    ids=["refresh", "predictive"],
)
def test_what_suspending_does_not_stop_is_refused_with_it_too(happen: Any, sentence: str, world: World) -> None:
    world.launch_group()
    happen(world)
    for arguments in ((), ("--suspend",)):
        result = world.governor(*ADOPT, *arguments, "--yes")
        assert result.exit_code == 1
        assert sentence in words(result.stderr)
        assert "--suspend" not in result.stderr
    assert written(world) == []


GROUPS_TO_LEAVE = {
    "critical group": ({CRITICALITY: ("critical", False)}, "The group workers in us-east-1 is critical"),
    "unreadable group": ({CRITICALITY: ("low", False)}, "The group workers in us-east-1 is low"),
    "EKS": ({"eks:cluster-name": ("prod", True)}, "replaces what is stopped; lower its size there"),
    "Kubernetes": ({"kubernetes.io/cluster/prod": ("owned", True)}, "belongs to the Kubernetes cluster prod"),
    "other stage": ({MANAGED: ("prod", True)}, "is managed by 'prod' already"),
}


@pytest.mark.parametrize("name", GROUPS_TO_LEAVE)
def test_a_group_that_must_be_left_alone_is_refused_and_nothing_is_changed(name: str, world: World) -> None:
    tags, sentence = GROUPS_TO_LEAVE[name]
    world.launch_group(tags=tags)
    before = everything(world)
    for arguments in ((), ("--suspend",)):
        result = world.governor(*ADOPT, *arguments, "--yes")
        assert result.exit_code == 1
        assert sentence in words(result.stderr)
    assert (everything(world), written(world)) == (before, [])


def test_one_critical_member_keeps_the_whole_group_out_and_is_named(world: World) -> None:
    _, second = world.launch_group()
    for value in ("critical", "Critical", "hgih"):
        set_tag(second, CRITICALITY, value)
        before = everything(world)
        for arguments in ((), ("--suspend",)):
            result = world.governor(*ADOPT, *arguments, "--yes")
            assert result.exit_code == 1, value
            assert f"The member {second} of the group workers in us-east-1 is {value}" in words(result.stderr)
        assert everything(world) == before, value


def test_a_tag_that_is_nearly_ours_and_contradicts_is_refused(world: World) -> None:
    world.launch_group(tags={"Governor:Criticality": ("preemptible", True)})
    result = world.governor(*ADOPT, "--yes")
    assert result.exit_code == 1
    assert "workers has tags that are nearly governor:managed or governor:criticality" in words(result.stderr)
    assert written(world) == []


def test_a_member_without_room_for_our_tags_is_named_before_anything_is_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = world.launch_group()
    for number in range(3):
        set_tag(second, f"key{number}", "x")
    before = everything(world)
    monkeypatch.setattr("cli.tag_file.MAX_TAGS", 5)
    result = world.governor(*ADOPT, "--suspend", "--yes")
    assert result.exit_code == 1
    assert f"{second} has no room for another tag (AWS allows 5); remove 1 of them" in words(result.stderr)
    assert everything(world) == before
    set_tag(second, MANAGED, "dev")
    monkeypatch.setattr("cli.tag_file.MAX_TAGS", 6)
    assert world.answer(*ADOPT, "--yes")["group"] == "workers"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (("adopt", "nobody", "--pool", "x"), 1, "There is no Auto Scaling group nobody in us-east-1, eu-west-1"),
        ((*ADOPT, "--region", "eu-west-9"), 1, "eu-west-9 is not a Region of this stage; write one of"),
        ((*ADOPT, "--region", FURTHER), 1, "There is no Auto Scaling group workers in eu-west-1"),
        (("adopt", "workers"), 2, "Missing option '--pool'"),
        (("adopt", "workers", "--pool", " "), 2, "write at most 256"),
        (("adopt", "workers", "--pool", "a<b"), 2, "write at most 256"),
        ((*ADOPT, "--criticality", "critical"), 2, "'critical' is not one of 'standard', 'preemptible'"),
        ((*ADOPT, "--stage", "prod"), 1, "The stage prod is not deployed"),
    ],
)
def test_an_adoption_that_cannot_be_meant_is_refused_in_words(
    arguments: tuple[str, ...], exit_code: int, sentence: str, world: World
) -> None:
    world.launch_group()
    result = world.governor(*arguments, "--yes")
    assert result.exit_code == exit_code
    assert sentence in words(result.stderr)
    assert written(world) == []


def test_a_group_of_that_name_in_several_regions_needs_a_region(world: World) -> None:
    world.launch_group(size=1)
    world.launch_group(size=1, region=FURTHER)
    result = world.governor(*ADOPT, "--yes")
    assert result.exit_code == 1
    assert "Several Regions have a group workers (us-east-1, eu-west-1); choose one with --region." in result.stderr
    assert world.answer(*ADOPT, "--region", FURTHER, "--yes")["region"] == FURTHER


# --- retire -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.returning.POLL_SECONDS", 0.01)


def let_settings_follow(world: World) -> None:
    """Every edit of a parameter wakes check_settings, as the event bus does."""

    def put(region: str, params: Any) -> Any:
        world.answers.pop("ssm.PutParameter")
        boto3.client("ssm", region).put_parameter(**params)
        world.check()
        world.answers["ssm.PutParameter"] = put
        return {"Version": 2, "Tier": "Standard"}

    world.answers["ssm.PutParameter"] = put


def parameters() -> list[str]:
    pages = boto3.client("ssm", HOME).get_paginator("get_parameters_by_path").paginate(Path="/governor", Recursive=True)
    return [one["Name"] for page in pages for one in page["Parameters"]]


def take_all_in(world: World, path: Path, *tagged: str) -> None:
    """Tags, an adopted group, an edited setting, and everything within reach stopped."""
    world.answer("tag", "--plan", a_file(path, *((one, HOME, MANAGED, "dev") for one in tagged)), "--apply", "--yes")
    world.answer(*ADOPT, "--suspend", "--yes")
    world.answer("settings", "set", "budget/warn-percent", "60")
    let_settings_follow(world)
    world.check()
    world.spend(960.0)
    world.guard()
    world.confirm()
    world.guard()
    world.confirm()


@pytest.mark.usefixtures("short_waits")
def test_a_retirement_makes_the_world_what_it_was_and_may_be_repeated(world: World, tmp_path: Path) -> None:
    mine, theirs = world.launch(managed=None), world.launch(managed=None)
    members = world.launch_group(tags=GROUP_TAGS)
    before = everything(world)
    take_all_in(world, tmp_path, mine)
    assert (state_of(mine), state_of(theirs)) == ("stopped", "running")
    assert {state_of(member) for member in members} == {"stopped"}
    answer = world.answer("retire", "--apply", "--yes")
    assert (answer["applied"], answer["retired"]) == (True, True)
    assert sorted(answer["outcome"]["started"]) == sorted([mine, *members])
    assert answer["outcome"]["left"] == []
    assert answer["destroy"] == ["npx cdk destroy --all -c stage=dev"]
    assert everything(world) == before
    assert parameters() == []
    marker = world.store().get(Key("retired", "retired"))
    assert marker is not None
    assert set(marker.body) == {"at", "by"}
    world.calls.clear()
    again = world.answer("retire", "--apply", "--yes")
    assert again["outcome"] == {"started": [], "put_back": [], "left": [], "deleted": []}
    assert written(world) == []
    assert everything(world) == before
    assert world.store().get(Key("retired", "retired")) == marker


@pytest.mark.usefixtures("short_waits")
def test_a_plan_of_a_retirement_names_all_that_it_would_give_back_and_changes_nothing(
    world: World, tmp_path: Path
) -> None:
    mine = world.launch(managed=None)
    world.launch_group(tags=GROUP_TAGS)
    take_all_in(world, tmp_path, mine)
    before, held = everything(world), parameters()
    world.calls.clear()
    plan = world.answer("retire", "--plan")
    assert (plan["applied"], plan["retired"], plan["outcome"]) == (False, False, None)
    assert mine in {row["instance_id"] for row in plan["machines"]}
    assert plan["groups_held"] == plan["adopted_groups"] == [{"region": HOME, "group": "workers"}]
    assert {row["kind"] for row in plan["takings"]} == {PlaceKind.TAG.value, PlaceKind.PROCESS.value}
    assert sorted(plan["parameters"]) == sorted(held)
    assert all(step["due"] for step in plan["steps"])
    shown = words(world.governor("retire", "--plan").stdout)
    assert "mode enforce -> observe, then off" in shown
    assert "start 3" in shown
    assert "workers (MinSize 2, desired 2)" in shown
    assert "Nothing was changed; governor retire --apply --stage dev does it." in shown
    assert (everything(world), parameters(), written(world)) == (before, held, [])


@pytest.mark.usefixtures("short_waits")
def test_a_retirement_can_leave_machines_stopped_and_names_them_on_every_try(world: World, tmp_path: Path) -> None:
    mine = world.launch(managed=None)
    world.launch_group()
    take_all_in(world, tmp_path, mine)
    answer = world.answer("retire", "--apply", "--leave-stopped", "--yes")
    assert answer["outcome"]["started"] == []
    left = " ".join(answer["outcome"]["left"])
    assert f"{mine} in us-east-1 stays stopped, as you said" in left
    assert "the group workers in us-east-1 keeps its sizes (MinSize 0, before 2; desired before 2), as you said" in left
    assert (state_of(mine), MANAGED in tags_of(mine), parameters()) == ("stopped", False, [])
    assert "lambda.Invoke" not in world.calls
    again = world.answer("retire", "--apply", "--yes")
    assert f"{mine} in us-east-1 stays stopped, because the parameters of the stage" in " ".join(
        again["outcome"]["left"]
    )


@pytest.mark.usefixtures("short_waits")
def test_a_machine_that_the_guard_may_not_start_is_named_and_the_rest_is_given_back(
    world: World, tmp_path: Path
) -> None:
    mine, changed = world.launch(managed=None), world.launch(managed=None)
    world.launch_group()
    take_all_in(world, tmp_path, mine, changed)
    set_tag(changed, CRITICALITY, "critical")
    for _ in range(2):
        answer = world.answer("retire", "--apply", "--yes")
        assert any(line.startswith(changed) for line in answer["outcome"]["left"])
    assert (state_of(mine), state_of(changed)) == ("running", "stopped")
    assert parameters() == []
    assert answer["retired"] is True


@pytest.mark.usefixtures("short_waits")
def test_a_tag_that_somebody_changed_is_left_by_a_retirement_and_named(world: World, tmp_path: Path) -> None:
    mine = world.launch(managed=None)
    world.answer("tag", "--plan", a_file(tmp_path, (mine, HOME, POOL, "ours")), "--apply", "--yes")
    set_tag(mine, POOL, "theirs")
    (left,) = world.answer("retire", "--apply", "--yes")["outcome"]["left"]
    assert f"tag {POOL} of instance {mine} in us-east-1 holds 'theirs', we had set 'ours'" in left
    assert tags_of(mine)[POOL] == "theirs"


def test_a_retirement_that_nobody_agreed_to_changes_nothing(world: World) -> None:
    before = parameters()
    result = world.governor("retire", "--apply", typed="n\n")
    assert result.exit_code == 1
    assert (parameters(), written(world)) == (before, [])


def test_what_a_retirement_has_done_is_said_with_the_command_that_takes_the_stacks_away(world: World) -> None:
    result = world.governor("retire", "--apply", "--yes")
    shown = words(result.stdout)
    assert result.exit_code == 0
    assert "The stage dev is retired: 0 instances started again, 0 changes put back, 23 parameters deleted." in shown
    assert shown.endswith("Now take the stacks away: npx cdk destroy --all -c stage=dev")


@pytest.mark.parametrize("arguments", [(), ("--plan", "--apply")])
def test_a_retirement_is_either_planned_or_applied(arguments: tuple[str, ...], world: World) -> None:
    result = world.governor("retire", *arguments)
    assert result.exit_code == 2
    assert "give one of --plan and --apply" in words(result.stderr)
    assert written(world) == []


@pytest.mark.usefixtures("short_waits")
def test_a_retirement_ends_the_pause_of_one_that_was_cut_off_so_that_machines_come_back(
    world: World, tmp_path: Path
) -> None:
    mine = world.launch(managed=None)
    world.launch_group()
    take_all_in(world, tmp_path, mine)
    world.answer("pause", "--because", "the stage is being retired")
    world.answer("retire", "--apply", "--yes")
    assert (state_of(mine), parameters()) == ("running", [])


def test_a_guard_that_is_paused_by_a_person_is_told_and_nothing_is_given_back(world: World, tmp_path: Path) -> None:
    mine = world.launch(managed=None)
    world.launch_group()
    take_all_in(world, tmp_path, mine)
    world.answer("pause", "--because", "hands off")
    before = everything(world)
    result = world.governor("retire", "--apply", "--yes")
    assert result.exit_code == 1
    assert "starts nothing" in words(result.stderr)
    assert "the Governor is paused: hands off. End that (governor unpause)" in words(result.stderr)
    assert "observes now, it was at enforce; to go on with the stage: governor settings set budget/mode enforce" in (
        words(result.stderr)
    )
    assert everything(world) == before
    assert len(parameters()) > 0


def test_a_stage_that_was_retired_and_used_again_is_to_be_retired_again(world: World) -> None:
    marker = RetiredMarker(boto3.client("dynamodb", HOME), "governor-state")
    world.answer("retire", "--apply", "--yes")
    assert (marker.exists(), marker.stopped_since()) == (True, ())
    world.seed(mode="enforce")
    world.check()
    instance = world.launch()
    world.spend(960.0)
    world.guard()
    world.confirm()
    assert state_of(instance) == "stopped"
    assert marker.stopped_since() == (instance,)
    world.answer("restore", "--all", "--yes", "--no-wait")
    world.confirm()
    world.pass_minutes(5)
    world.confirm()
    assert (state_of(instance), marker.stopped_since()) == ("running", ())


def test_a_mode_that_does_not_come_into_force_is_told_and_nothing_is_given_back(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = world.launch(managed=None)
    world.launch_group()
    take_all_in(world, tmp_path, mine)
    del world.answers["ssm.PutParameter"]
    monkeypatch.setattr("cli.returning.POLL_SECONDS", 0.01)
    monkeypatch.setattr("cli.retire.IN_FORCE_MINUTES", 0)
    before = everything(world)
    result = world.governor("retire", "--apply", "--yes")
    assert result.exit_code == 1
    assert "The mode observe of stage dev is not in force after 0 minutes" in words(result.stderr)
    assert everything(world) == before
