"""One Auto Scaling group that people take in: what it is, what would change, and what stands against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.account import aws
from cli.errors import CliError

if TYPE_CHECKING:
    from cli.reach import Reader
    from cli.stage import Scope
    from governor.domain.tags import TagKeys
    from governor.domain.taken import Value, Wanted

SUSPENDED_PROCESSES = ("AlarmNotification", "ScheduledActions")
"""Without them no scaling policy and no scheduled action changes the size; launching and health checks go on."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group and its members as AWS describes them; `members` by instance id."""

    name: str
    region: str
    item: Mapping[str, Any]
    members: Mapping[str, Mapping[str, Any]]
    scales_itself: tuple[str, ...]
    scales_still: tuple[str, ...]
    """What would still change its size with the processes suspended."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What people want of a group."""

    pool: str
    criticality: str
    suspends: bool


def find_group(scope: Scope, name: str, region: str | None) -> GroupView:
    """The group, in that Region or in the only one that has it. Raises CliError where there is none, or several."""
    from cli.places import read_group_items, read_instances

    if region is not None and region not in scope.regions:
        raise CliError(f"{region} is not a Region of this stage; write one of {', '.join(scope.regions)} at --region.")
    looked = scope.regions if region is None else (region,)
    found = {where: item for where in looked for item in read_group_items(where, [name]).values()}
    if not found:
        where = ", ".join(looked)
        raise CliError(f"There is no Auto Scaling group {name} in {where}; check its name, or name its --region.")
    if len(found) > 1:
        raise CliError(f"Several Regions have a group {name} ({', '.join(found)}); choose one with --region.")
    ((where, item),) = found.items()
    ids = sorted(member["InstanceId"] for member in item.get("Instances") or ())
    return GroupView(name, where, item, read_instances(where, ids), *_what_scales(where, name, item))


def _what_scales(region: str, name: str, item: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(Now, with the processes suspended)."""
    from governor.aws.auto_scaling import what_scales

    client = aws("autoscaling", region)
    suspended = [{"ProcessName": process} for process in SUSPENDED_PROCESSES]
    after = {**item, "SuspendedProcesses": [*(item.get("SuspendedProcesses") or ()), *suspended]}
    return tuple(what_scales(client, name, item)), tuple(what_scales(client, name, after))


def tags_of(item: Mapping[str, Any]) -> dict[str, str]:
    """Tags of an item by key."""
    return {str(tag["Key"]): str(tag.get("Value", "")) for tag in item.get("Tags") or ()}


def wanted_of(group: GroupView, keys: TagKeys, stage: str, adoption: Adoption) -> tuple[Wanted, ...]:
    """What the group and its members should hold. Processes first, so that nothing scales once it is managed."""
    from governor.domain.taken import SUSPENDED, Place, PlaceKind, ResourceKind, Wanted

    tags = ((keys.criticality, adoption.criticality), (keys.pool, adoption.pool), (keys.managed, stage))
    members = tuple(sorted(group.members))
    wanted = []
    if adoption.suspends:
        for process in SUSPENDED_PROCESSES:
            place = Place(PlaceKind.PROCESS, group.region, group.name, process, ResourceKind.GROUP)
            wanted.append(Wanted(place, SUSPENDED))
    for key, value in tags:
        place = Place(PlaceKind.TAG, group.region, group.name, key, ResourceKind.GROUP)
        wanted.append(Wanted(place, value, members))
    for member in members:
        wanted += [Wanted(Place(PlaceKind.TAG, group.region, member, key), value) for key, value in tags]
    return tuple(wanted)


def present_of(group: GroupView, wanted: tuple[Wanted, ...]) -> Mapping[Any, Value]:
    """What those places hold now."""
    from cli.places import value_in

    items = {group.name: group.item, **group.members}
    return {one.place: value_in(items[one.place.resource], one.place) for one in wanted}


def refuse_what_cannot(group: GroupView, reader: Reader, adoption: Adoption) -> None:
    """Raises CliError for a group that the Governor must leave alone, with what to do."""
    _refuse_cluster(group, reader)
    _refuse_other_stage(group, reader)
    _refuse_critical(group, reader)
    _refuse_odd_tags(group, reader, adoption)
    _refuse_full(group, reader)
    _refuse_scaling(group, adoption)


def _refuse_cluster(group: GroupView, reader: Reader) -> None:
    from governor.aws.ec2_fleet import read_instance
    from governor.domain.fleet import InstanceKind

    for item in ({"Tags": group.item.get("Tags")}, *group.members.values()):
        seen = read_instance(item, group.region, reader.keys, reader.stage)
        if seen.kind is InstanceKind.CLUSTER_MEMBER:
            raise CliError(
                f"The group {group.name} in {group.region} belongs to {seen.owner}, which replaces what is stopped; "
                "lower its size there (the Governor reports what it costs)."
            )


def _refuse_other_stage(group: GroupView, reader: Reader) -> None:
    from governor.domain.tags import normalise

    managed = normalise(reader.keys.managed)
    for name, item in ((group.name, group.item), *group.members.items()):
        others = [v for k, v in tags_of(item).items() if normalise(k) == managed and normalise(v) != reader.stage]
        if others:
            raise CliError(
                f"{name} is managed by {others[0]!r} already ({reader.keys.managed}); remove that tag first, or adopt "
                f"the group {group.name} with --stage {others[0]}."
            )


def _refuse_critical(group: GroupView, reader: Reader) -> None:
    """A member that says that it is critical, or says something that cannot be read, makes the whole group critical."""
    from governor.domain.tags import Criticality, normalise, read_governance

    key = normalise(reader.keys.criticality)
    for name, item in ((group.name, group.item), *group.members.items()):
        tags = tags_of(item)
        written = [value for one, value in tags.items() if normalise(one) == key]
        if written and read_governance(tags.items(), reader.keys, reader.stage).criticality is Criticality.CRITICAL:
            what = "The group" if name == group.name else f"The member {name} of the group"
            raise CliError(
                f"{what} {group.name} in {group.region} is {', '.join(written)} ({reader.keys.criticality}), so the "
                "whole group is left alone; take that machine out of the group, or change its tag, and adopt it then."
            )


def _refuse_odd_tags(group: GroupView, reader: Reader, adoption: Adoption) -> None:
    """Tags that are nearly ours would contradict those that are set."""
    from governor.domain.tags import read_governance

    ours = {reader.keys.managed: reader.stage, reader.keys.criticality: adoption.criticality}
    for name, item in ((group.name, group.item), *group.members.items()):
        after = read_governance({**tags_of(item), **ours}.items(), reader.keys, reader.stage)
        if not after.stoppable:
            raise CliError(
                f"{name} has tags that are nearly {reader.keys.managed} or {reader.keys.criticality} and contradict "
                f"them ({', '.join(after.findings)}); remove those first."
            )


def _refuse_full(group: GroupView, reader: Reader) -> None:
    """AWS would refuse the tags of that one, after others have got theirs."""
    from cli.tag_file import MAX_TAGS

    ours = {reader.keys.managed, reader.keys.criticality, reader.keys.pool}
    for name, item in ((group.name, group.item), *group.members.items()):
        keys = {key for key in tags_of(item) if not key.startswith("aws:")} | ours
        if len(keys) > MAX_TAGS:
            raise CliError(
                f"{name} has no room for another tag (AWS allows {MAX_TAGS}); remove {len(keys) - MAX_TAGS} of them "
                f"that nobody needs, and adopt the group {group.name} then."
            )


def _refuse_scaling(group: GroupView, adoption: Adoption) -> None:
    from governor.aws.auto_scaling import REFRESH_WORDS

    if REFRESH_WORDS in group.scales_still:
        raise CliError(
            f"An instance refresh of the group {group.name} in {group.region} is in progress; wait until it has ended, "
            "or cancel it, and adopt the group then."
        )
    if group.scales_still:
        raise CliError(
            f"The group {group.name} in {group.region} scales itself ({', '.join(group.scales_still)}), and suspending "
            "processes does not stop that; disable it first (predictive scaling: ForecastOnly)."
        )
    if group.scales_itself and not adoption.suspends:
        raise CliError(
            f"The group {group.name} in {group.region} scales itself ({', '.join(group.scales_itself)}), so a stop of "
            "ours would be undone; give --suspend to suspend that (recorded, unadopt resumes it), or disable it first."
        )


def code_lines(stage: str, keys: TagKeys, adoption: Adoption) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What people write into their code so that a deploy does not undo it: (which tool, lines)."""
    suspended = ["suspended_processes"] if adoption.suspends else []
    ignored = ", ".join(["tag", "min_size", "desired_capacity", *suspended])
    tags = {keys.managed: stage, keys.criticality: adoption.criticality, keys.pool: adoption.pool}
    terraform = ("lifecycle {", f"  ignore_changes = [{ignored}]", "}")
    cdk = tuple(f'Tags.of(group).add("{k}", "{v}", apply_to_launched_instances=True)' for k, v in tags.items())
    listed = [f"  - {{Key: '{k}', Value: '{v}', PropagateAtLaunch: true}}" for k, v in tags.items()]
    policy = [
        "UpdatePolicy:",
        "  AutoScalingScheduledAction:",
        "    IgnoreUnmodifiedGroupSizeProperties: true",
    ]
    return (
        ("Terraform, in resource aws_autoscaling_group", terraform),
        ("CDK (Python), after the group; leave out min_capacity changes and set its update policy as below", cdk),
        ("CloudFormation, in AWS::AutoScaling::AutoScalingGroup", ("Tags:", *listed, *policy)),
    )
