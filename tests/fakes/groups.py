"""Auto Scaling groups in memory: sizes that really change, AWS's refusals, and members that are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from governor.domain.fleet import Group, Instance, InstanceState

_AT_WORK = ("InService", "Pending")
_AFTERWARDS: Mapping[str, str] = {"EnteringStandby": "Standby", "Pending": "InService"}


class FakeGroups:
    """Groups by Region and name. Each change answers with AWS's error, or an empty text where it was made."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], Group] = {}
        self._last_seen: dict[tuple[str, str], Instance] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter([self._groups[key] for key in sorted(self._groups)])

    def put(self, group: Group) -> None:
        """Create a group, or replace it."""
        self._groups[group.region, group.name] = replace(group, members=tuple(sorted(group.members)))

    def get(self, region: str, name: str) -> Group:
        """A group as it is now. Raises KeyError."""
        return self._groups[region, name]

    def delete(self, region: str, name: str) -> None:
        """Delete a group; its members stay as they are."""
        del self._groups[region, name]

    def enter_standby(self, region: str, name: str, instance_id: str, state: str) -> str:
        """One member into standby, its place with it."""
        group = self._groups.get((region, name))
        if group is None or group.state_of(instance_id) != "InService":
            return f"ValidationError: The instance {instance_id} is not in InService."
        if group.desired - 1 < group.min_size:
            return _sizes_error(group, "place into standby 1 instance")
        self._move(group, instance_id, state, -1)
        return ""

    def exit_standby(self, region: str, name: str, instance_id: str, state: str) -> str:
        """One member back, its place with it."""
        group = self._groups.get((region, name))
        if group is None or group.state_of(instance_id) != "Standby":
            return f"ValidationError: The instance {instance_id} is not in Standby."
        if group.desired + 1 > group.max_size:
            return _sizes_error(group, "move out of standby 1 instance")
        self._move(group, instance_id, state, 1)
        return ""

    def lower(self, region: str, name: str, instance_id: str) -> str:
        """One member on its way out, its place with it. The call names no group: EC2 knows the member's own."""
        group = next((g for g in self if g.region == region and g.state_of(instance_id)), None)
        if group is None:
            return f"ValidationError: Instance Id not found - No managed instance found for instance ID: {instance_id}"
        if group.desired - 1 < group.min_size:
            return f"ValidationError: Currently, desiredSize equals minSize ({group.min_size})."
        self._move(group, instance_id, "Terminating", -1)
        return ""

    def resize(self, region: str, name: str, min_size: int | None, desired: int | None) -> str:
        """MinSize, the desired capacity, or both. A MinSize above the desired capacity raises it."""
        group = self._groups.get((region, name))
        if group is None:
            return f"ValidationError: AutoScalingGroup name not found - AutoScalingGroup '{name}' not found"
        least = group.min_size if min_size is None else min_size
        if least > group.max_size:
            return f"ValidationError: Max bound, {group.max_size}, must be greater than or equal to min bound, {least}"
        if desired is not None and not least <= desired <= group.max_size:
            return (
                f"ValidationError: Desired capacity:{desired} must be between the specified min size:{least} "
                f"and max size:{group.max_size}"
            )
        self.put(replace(group, min_size=least, desired=max(group.desired, least) if desired is None else desired))
        return ""

    def settle(self, instances: dict[str, Instance], launch: Callable[[Instance], Instance]) -> None:
        """Members that do not run leave unless they stand by, and every group comes to its size."""
        for group in self:
            key = (group.region, group.name)
            members = {one: _AFTERWARDS.get(state, state) for one, state in group.members}
            for one, state in list(members.items()):
                instance = instances.get(one)
                if instance is not None:
                    self._last_seen[key] = instance
                if state == "Terminating" or (state == "InService" and not _runs(instance)):
                    del members[one]
                    if instance is not None and instance.state is not InstanceState.TERMINATED:
                        _end(instances, instance)
            at_work = sorted(one for one, state in members.items() if state in _AT_WORK)
            for one in at_work[group.desired :]:
                del members[one]
                _end(instances, instances[one])
            for _ in range(group.desired - len(at_work) if key in self._last_seen else 0):
                members[launch(self._last_seen[key]).instance_id] = "InService"
            self.put(replace(group, members=tuple(members.items())))

    def _move(self, group: Group, instance_id: str, state: str, places: int) -> None:
        members = {**dict(group.members), instance_id: state}
        self.put(replace(group, members=tuple(members.items()), desired=group.desired + places))


def _runs(instance: Instance | None) -> bool:
    return instance is not None and instance.state in (InstanceState.RUNNING, InstanceState.PENDING)


def _end(instances: dict[str, Instance], instance: Instance) -> None:
    instances[instance.instance_id] = replace(instance, state=InstanceState.TERMINATED)


def _sizes_error(group: Group, wish: str) -> str:
    return (
        f"ValidationError: AutoScalingGroup {group.name} has min-size={group.min_size}, max-size={group.max_size}, "
        f"and desired-size={group.desired}. To {wish}, please update the AutoScalingGroup sizes appropriately."
    )
