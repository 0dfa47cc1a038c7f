"""What changed tags would put within the Governor's reach: the same rule, on the fleet as it would be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cli.account import aws

if TYPE_CHECKING:
    from datetime import datetime

    from governor.domain.decisions import InstanceVerdict
    from governor.domain.fleet import FleetSnapshot, Group
    from governor.domain.tags import Governance, TagKeys

Tags = Mapping[str, str]
ResourceId = tuple[str, str]
"""(Region, instance id or name of a group)."""


@dataclass(frozen=True, slots=True)
class Reader:
    """By which stage and keys tags are read, where people's home is, and when."""

    stage: str
    keys: TagKeys
    home_region: str
    now: datetime


@dataclass(frozen=True, slots=True)
class Reach:
    """What could be done with each instance: words by id, and the dollars per hour that could be stopped."""

    words: Mapping[str, str]
    usd_per_hour: Mapping[str, float]
    """By id, only of what could be stopped."""

    @property
    def total_usd_per_hour(self) -> float:
        """What could be stopped, together."""
        return sum(self.usd_per_hour.values())


def read_fleet(regions: Iterable[str], keys: TagKeys, stage: str) -> FleetSnapshot:
    """Every GPU instance of some Regions, with its group."""
    from governor.aws.ec2_fleet import Ec2Fleet

    return Ec2Fleet(tuple(regions), _ec2, _auto_scaling, keys, stage).observe()


def _ec2(region: str) -> Any:
    return aws("ec2", region)


def _auto_scaling(region: str) -> Any:
    return aws("autoscaling", region)


def read_tags(tags: Tags, reader: Reader) -> Governance:
    """What tags mean."""
    from governor.domain.tags import read_governance

    return read_governance(tags.items(), reader.keys, reader.stage)


def judge_reach(fleet: FleetSnapshot, reader: Reader) -> Reach:
    """What the budget guard could do with each instance, armed, at its stop level, with default settings."""
    from cli.scan import judge_fleet
    from governor.aws.catalogue import load_catalogue
    from governor.domain.decisions import Verdict

    decision = judge_fleet(fleet, load_catalogue(), reader.stage, reader.home_region, reader.now)
    stops = [verdict for verdict in decision.verdicts if verdict.verdict is Verdict.STOP]
    return Reach(
        {verdict.instance_id: _could(verdict) for verdict in decision.verdicts},
        {verdict.instance_id: verdict.usd_per_hour or 0.0 for verdict in stops},
    )


def _could(verdict: InstanceVerdict) -> str:
    from governor.domain.decisions import Verdict
    from governor.domain.reasons import words

    said = words(verdict.reason)
    return f"{verdict.method}: {said}" if verdict.verdict is Verdict.STOP else said


def with_tags(
    fleet: FleetSnapshot, reader: Reader, changed: Mapping[ResourceId, Tags], groups: Mapping[ResourceId, Tags]
) -> FleetSnapshot:
    """The fleet as it would be with other tags: `changed` sets tags of instances and groups on top of theirs.

    `groups` are all present tags of the groups that change.
    """
    instances = []
    for instance in fleet.instances:
        tags = changed.get((instance.region, instance.instance_id))
        if tags is None:
            instances.append(instance)
            continue
        after = {**dict(instance.tags), **tags}
        read = read_tags(after, reader)
        instances.append(replace(instance, tags=tuple(sorted(after.items())), governance=read))

    def as_changed(group: Group) -> Group:
        tags = changed.get((group.region, group.name))
        if tags is None:
            return group
        after = {**groups.get((group.region, group.name), {}), **tags}
        return replace(group, governance=read_tags(after, reader))

    return replace(fleet, instances=tuple(instances), groups=tuple(as_changed(group) for group in fleet.groups))


def without_scaling(fleet: FleetSnapshot, region: str, name: str) -> FleetSnapshot:
    """The fleet as it would be once a group does not scale itself any more."""
    groups = (replace(g, scales_itself=()) if (g.region, g.name) == (region, name) else g for g in fleet.groups)
    return replace(fleet, groups=tuple(groups))
