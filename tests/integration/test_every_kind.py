"""One instance of every kind: each is stopped in its own way or left, and comes back as it was."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import Any

import pytest

from local.commands import SentCommand
from local.fleet import GROUP_NAME
from local.starts import boots_in, key_denied
from local.whole_fleet import CHECKPOINT_DOCUMENT, MIXED_GROUP_NAME
from stacks.permissions import handler_actions
from tests.integration.conftest import Deployed
from tests.integration.test_budget_guard import permitted_by

STOPPED = {
    "big-standard",
    "big-preemptible",
    "small-standard",
    "small-preemptible",
    "spot-persistent",
    "checkpoint",
    "group-member-1",
    "group-member-2",
}
TERMINATED = {"spot-one-time"}
LEFT = {
    "big-critical": "critical",
    "small-critical": "critical",
    "untagged": "not managed",
    "stop-protected": "stop protection",
    "eks-member": "EKS node group",
    "karpenter-member": "Karpenter",
    "fleet-member": "EC2 Fleet",
    "reserved": "capacity reservation",
    "capacity-block": "Capacity Block",
    "instance-store": "instance store",
    "mixed-group-critical": "critical",
    "mixed-group-standard": "a member that is critical",
}
SECONDS_TO_RUNNING = 60.0
"""Upper bound from the command to `running` where machines start at once; it waits for two functions in a row."""

Groups = dict[str, dict[str, Any]]


@dataclass
class Story:
    """What was seen at the beginning, after the stop, after the restore, and an hour later."""

    ids: dict[str, str] = field(default_factory=dict)
    states: list[dict[str, str]] = field(default_factory=list)
    groups: list[Groups] = field(default_factory=list)
    alive: list[set[str]] = field(default_factory=list)
    commands: list[SentCommand] = field(default_factory=list)
    told: str = ""
    command: str = ""
    restored: str = ""
    told_after: str = ""
    exit_code: int = -1
    used: dict[str, set[str]] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)

    def look(self, world: Deployed) -> None:
        """Note how everything is now."""
        self.states.append(world.states())
        self.groups.append(groups_of(world))
        self.alive.append(launched(world))

    def roles(self, state: str, when: int) -> set[str]:
        """Roles of the instances that were in a state."""
        return {role for role, seen in self.states[when].items() if seen == state}


def groups_of(world: Deployed) -> Groups:
    """Sizes and members (state by role) of each group."""
    roles = {member.instance_id: member.role for member in world.fleet}
    found = world.aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {
        one["AutoScalingGroupName"]: {
            "sizes": (one["MinSize"], one["DesiredCapacity"], one["MaxSize"]),
            "members": {roles.get(m["InstanceId"], "another"): m["LifecycleState"] for m in one["Instances"]},
        }
        for one in found
    }


def launched(world: Deployed) -> set[str]:
    """Every instance that is there, whatever launched it."""
    alive = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    found = world.aws.client("ec2").describe_instances(Filters=alive)["Reservations"]
    return {one["InstanceId"] for reservation in found for one in reservation["Instances"]}


def lock(world: Deployed, instance_id: str) -> None:
    """Give an instance a volume with a key of the account's own; EC2 may not use it at the next start, then it may."""
    ec2, kms = world.aws.client("ec2"), world.aws.client("kms")
    key = kms.create_key()["KeyMetadata"]["Arn"]
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=8, Encrypted=True, KmsKeyId=key)["VolumeId"]
    ec2.attach_volume(VolumeId=volume, InstanceId=instance_id, Device="/dev/sdz")
    world.aws.set_starts(key_denied(instance_id, count=1), boots_in(instance_id, minutes=0))


def tell(world: Deployed, settings: dict[str, str], *, locked: str = "") -> Story:
    """Cross the budget with roles enforced, wait, undo it with the command of the message, and wait again.

    `locked` names an instance whose key is refused at its first start; the command then does not wait for it.
    """
    world.begin(everything=True)
    for name, value in {"budget/stop-families": "p4d,g4dn,g5", **settings}.items():
        world.put(name, value)
    if locked:
        lock(world, next(member.instance_id for member in world.fleet if member.role == locked))
    world.aws.enforce_roles(True)
    commands_before = len(world.aws.commands())
    story = Story({member.role: member.instance_id for member in world.fleet})
    story.look(world)
    world.spend(960.0)
    world.advance(30)
    story.look(world)
    story.commands = world.aws.commands()[commands_before:]
    story.told = "\n".join(mail.body for mail in world.mails())
    story.command = next(line for line in story.told.splitlines() if line.startswith("  governor restore --decision"))
    mails_before = len(world.mails())
    answer = world.governor(*shlex.split(story.command)[1:], "--yes", *(["--no-wait"] if locked else []))
    story.restored, story.exit_code = answer.output, answer.exit_code
    # A refused start is tried again after 5 minutes, by the next run, which comes every 5 minutes.
    world.advance(21 if locked else 11)
    story.look(world)
    story.told_after = "\n".join(mail.body for mail in world.mails()[mails_before:])
    world.advance(60)
    story.look(world)
    story.denied = [c.action for c in world.aws.calls(after=world.first_call) if c.status >= 400 and c.function]
    story.used = {name: world.actions(name) for name in ("GuardBudget", "ConfirmActions")}
    return story


@pytest.fixture(scope="module")
def standby(deployed: Deployed) -> Story:
    """Members of groups are put into standby and stopped; one-time spot may be terminated; work is saved first."""
    return tell(deployed, {"budget/terminate-one-time-spot": "on", "budget/grace-minutes": "10"})


@pytest.fixture(scope="module")
def lowered(deployed: Deployed) -> Story:
    """Groups are made smaller; one-time spot is left; one machine's key is refused at first."""
    return tell(deployed, {"budget/group-action": "lower"}, locked="small-standard")


def test_every_kind_is_stopped_in_its_own_way_or_left_with_its_reason(standby: Story) -> None:
    assert standby.roles("stopped", 1) == STOPPED
    assert standby.roles("terminated", 1) == TERMINATED
    assert standby.roles("running", 1) == set(LEFT)
    assert [(c.document, c.instance_ids) for c in standby.commands] == [
        (CHECKPOINT_DOCUMENT, (standby.ids["checkpoint"],))
    ]
    for role, why in LEFT.items():
        lines = [line for line in standby.told.splitlines() if standby.ids[role] in line]
        assert any(why in line for line in lines), (role, why, lines)
        assert all("$" in line for line in lines), "each is told with its cost"


def test_a_stopped_group_member_does_not_come_back_as_a_replacement(standby: Story) -> None:
    assert standby.groups[1][GROUP_NAME] == {
        "sizes": (0, 0, 3),
        "members": {"group-member-1": "Standby", "group-member-2": "Standby"},
    }
    assert standby.groups[1][MIXED_GROUP_NAME] == standby.groups[0][MIXED_GROUP_NAME]
    assert standby.alive[1] == standby.alive[0] - {standby.ids["spot-one-time"]}


def test_the_command_of_the_message_brings_back_exactly_these_ids_and_sizes(standby: Story) -> None:
    assert standby.exit_code == 0, standby.restored
    assert standby.roles("running", 2) == set(LEFT) | STOPPED
    assert standby.groups[2] == standby.groups[0]
    assert standby.alive[2] == standby.alive[0] - {standby.ids["spot-one-time"]}
    line = next(
        line for line in standby.restored.splitlines() if f"Not started: {standby.ids['spot-one-time']}" in line
    )
    assert "was terminated by the Governor" in line


def test_the_time_from_the_command_to_running_is_shown_for_each(standby: Story) -> None:
    seconds = dict(re.findall(r"(i-[0-9a-f]+) runs again, ([0-9.]+) s after the command", standby.restored))
    assert set(seconds) == {standby.ids[role] for role in STOPPED}
    assert max(float(one) for one in seconds.values()) < SECONDS_TO_RUNNING


def test_what_a_person_brought_back_is_left_alone_for_the_grace(standby: Story) -> None:
    assert standby.states[3] == standby.states[2]
    assert standby.groups[3] == standby.groups[0]


def test_a_lowered_group_gets_its_places_back_and_one_time_spot_is_left(lowered: Story) -> None:
    assert lowered.roles("stopped", 1) == STOPPED - {"group-member-1", "group-member-2"}
    assert lowered.roles("terminated", 1) == {"group-member-1", "group-member-2"}
    assert lowered.groups[1][GROUP_NAME] == {"sizes": (0, 0, 3), "members": {}}
    assert lowered.states[1]["spot-one-time"] == "running"
    assert lowered.exit_code == 0, lowered.restored
    assert lowered.groups[2][GROUP_NAME]["sizes"] == (1, 2, 3)
    assert lowered.groups[2][GROUP_NAME]["members"] == {"another": "InService"}, "new ones; the old are gone"
    gone = {lowered.ids["group-member-1"], lowered.ids["group-member-2"]}
    assert len(lowered.alive[2]) == len(lowered.alive[0])
    assert lowered.alive[0] - lowered.alive[2] == gone
    assert lowered.states[3] == lowered.states[2]


def test_a_start_that_its_key_refuses_is_told_with_key_and_role_and_tried_again(lowered: Story) -> None:
    assert re.search(
        r"lacks kms:CreateGrant on the key:\n  arn:aws:kms:\S+:key/\S+\nfor the role of confirm_actions",
        (lowered.told_after),
    ), lowered.told_after
    assert lowered.states[2]["small-standard"] == "running"


def test_what_the_two_functions_use_with_enforced_roles_is_what_they_are_granted(
    standby: Story, lowered: Story
) -> None:
    assert standby.denied == []
    assert lowered.denied == []
    for name, function in (("GuardBudget", "guard_budget"), ("ConfirmActions", "confirm_actions")):
        granted = handler_actions(function)
        assert permitted_by(standby.used[name] | lowered.used[name], granted) == granted, function
