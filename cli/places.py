"""Tags of instances and groups, and processes of groups, read and written with the caller's credentials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.account import aws

if TYPE_CHECKING:
    from governor.domain.taken import Place, Value
    from governor.shell.taken import Step

IDS_PER_CALL = 200
"""Filters of EC2 take at most 200 values."""

NAMES_PER_CALL = 50
GONE_STATES = ("terminated", "shutting-down")
GROUP_TYPE = "auto-scaling-group"


def read_instances(region: str, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Items of DescribeInstances by id; those that are gone are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for start in range(0, len(ids), IDS_PER_CALL):
        filters = [{"Name": "instance-id", "Values": list(ids[start : start + IDS_PER_CALL])}]
        for page in aws("ec2", region).get_paginator("describe_instances").paginate(Filters=filters):
            for item in (i for r in page["Reservations"] for i in r["Instances"]):
                if item["State"]["Name"] not in GONE_STATES:
                    found[item["InstanceId"]] = item
    return found


def read_group_items(region: str, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Items of DescribeAutoScalingGroups by name; missing ones are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for start in range(0, len(names), NAMES_PER_CALL):
        wanted = list(names[start : start + NAMES_PER_CALL])
        pages = aws("autoscaling", region).get_paginator("describe_auto_scaling_groups")
        for page in pages.paginate(AutoScalingGroupNames=wanted):
            found.update({item["AutoScalingGroupName"]: item for item in page["AutoScalingGroups"]})
    return found


class AwsPlaces:
    """`governor.shell.taken.Places` in the account."""

    def read(self, places: Iterable[Place]) -> Mapping[Place, Value]:
        """What each holds now; places of resources that are gone are left out."""
        from governor.domain.taken import ResourceKind

        found: dict[Place, Value] = {}
        by_region: dict[tuple[str, ResourceKind], list[Place]] = {}
        for place in places:
            by_region.setdefault((place.region, place.resource_kind), []).append(place)
        for (region, kind), wanted in by_region.items():
            names = sorted({place.resource for place in wanted})
            of_groups = kind is ResourceKind.GROUP
            items = read_group_items(region, names) if of_groups else read_instances(region, names)
            for place in wanted:
                if place.resource in items:
                    found[place] = value_in(items[place.resource], place)
        return found

    def write(self, steps: Sequence[Step]) -> None:
        """Set places, resources that get the same in one call. Of what kind the first step is, those come first."""
        from governor.domain.taken import PlaceKind, ResourceKind

        writers = {
            (PlaceKind.TAG, ResourceKind.INSTANCE): _write_instances,
            (PlaceKind.TAG, ResourceKind.GROUP): _write_groups,
            (PlaceKind.PROCESS, ResourceKind.GROUP): _write_processes,
        }
        for kind in dict.fromkeys((step.place.kind, step.place.resource_kind) for step in steps):
            writers[kind](steps)


def value_in(item: Mapping[str, Any], place: Place) -> Value:
    """What a place holds by the description of its resource."""
    from governor.domain.taken import SUSPENDED, PlaceKind, Value

    if place.kind is PlaceKind.PROCESS:
        suspended = {process["ProcessName"] for process in item.get("SuspendedProcesses") or ()}
        return Value(SUSPENDED if place.name in suspended else None)
    for tag in item.get("Tags") or ():
        if tag["Key"] == place.name:
            goes_on = bool(tag.get("PropagateAtLaunch")) if place.goes_on else None
            return Value(str(tag.get("Value", "")), goes_on)
    return Value(None)


def _write_instances(steps: Sequence[Step]) -> None:
    """A value is removed only while it is the one that was read: EC2 compares it."""
    from governor.domain.taken import PlaceKind, ResourceKind

    sets: dict[tuple[str, str], dict[str, str]] = {}
    removals: dict[tuple[str, str], dict[str, str]] = {}
    for step in steps:
        place = step.place
        if place.kind is not PlaceKind.TAG or place.resource_kind is not ResourceKind.INSTANCE:
            continue
        of_one = removals if step.target.text is None else sets
        value = step.before.text if step.target.text is None else step.target.text
        of_one.setdefault((place.region, place.resource), {})[place.name] = value or ""
    for call, changes in (("create_tags", sets), ("delete_tags", removals)):
        for (region, tags), ids in sorted(_alike(changes).items()):
            listed = [{"Key": key, "Value": value} for key, value in tags]
            getattr(aws("ec2", region), call)(Resources=ids, Tags=listed)


def _alike(changes: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[tuple[str, tuple[tuple[str, str], ...]], Any]:
    """Ids by Region and tags."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for (region, instance_id), tags in sorted(changes.items()):
        found.setdefault((region, tuple(sorted(tags.items()))), []).append(instance_id)
    return found


def _write_groups(steps: Sequence[Step]) -> None:
    sets: dict[str, list[dict[str, Any]]] = {}
    removals: dict[str, list[dict[str, Any]]] = {}
    for step in steps:
        place = step.place
        if not place.goes_on:
            continue
        tag: dict[str, Any] = {"ResourceId": place.resource, "ResourceType": GROUP_TYPE, "Key": place.name}
        if step.target.text is None:
            removals.setdefault(place.region, []).append(tag)
        else:
            goes_on = bool(step.target.propagates)
            sets.setdefault(place.region, []).append(tag | {"Value": step.target.text, "PropagateAtLaunch": goes_on})
    for region, tags in sorted(sets.items()):
        aws("autoscaling", region).create_or_update_tags(Tags=tags)
    for region, tags in sorted(removals.items()):
        aws("autoscaling", region).delete_tags(Tags=tags)


def _write_processes(steps: Sequence[Step]) -> None:
    from governor.domain.taken import PlaceKind

    groups: dict[tuple[bool, str, str], list[str]] = {}
    for step in steps:
        place = step.place
        if place.kind is PlaceKind.PROCESS:
            suspends = step.target.text is not None
            groups.setdefault((suspends, place.region, place.resource), []).append(place.name)
    for (suspends, region, name), processes in sorted(groups.items()):
        client = aws("autoscaling", region)
        call = client.suspend_processes if suspends else client.resume_processes
        call(AutoScalingGroupName=name, ScalingProcesses=sorted(processes))


def caller_arn(region: str) -> str:
    """Who makes these changes."""
    return str(aws("sts", region).get_caller_identity()["Arn"])
