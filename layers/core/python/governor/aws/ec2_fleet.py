"""The fleet in EC2: every GPU instance of every listed Region, with its group, spot request and reservations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from governor.aws.auto_scaling import read_groups
from governor.aws.errors import AWS_ERRORS, error_sentence
from governor.domain.fleet import (
    FleetSnapshot,
    Group,
    Instance,
    InstanceKind,
    InstanceState,
    ReservedInstances,
    SpotKind,
    SpotRequest,
    UnknownRegion,
    is_gpu_type,
)
from governor.domain.tags import TagKeys, read_governance
from governor.ports import UnreadableError

ALIVE_STATES = ("pending", "running", "stopping", "stopped", "shutting-down")
GPU_TYPE_FILTER = ("p*", "g*")
"""Filter values of DescribeInstances may hold wildcards; `is_gpu_type` decides in the end."""

PAGE_SIZE = 1000
IDS_PER_CALL = 50
REQUESTS_PER_CALL = 200
"""Filters of EC2 take at most 200 values."""

_GROUP_TAG = "aws:autoscaling:groupName"
_OWNER_WORDS: Mapping[str, str] = {
    "eks:nodegroup-name": "the EKS node group",
    "karpenter.sh/nodepool": "the Karpenter node pool",
    "karpenter.sh/provisioner-name": "the Karpenter provisioner",
    "aws:eks:cluster-name": "the EKS cluster",
    "eks:cluster-name": "the EKS cluster",
    "aws:ec2:fleet-id": "the EC2 Fleet",
    "aws:ec2spot:fleet-request-id": "the Spot Fleet",
}
"""Whoever set these tags replaces a stopped instance, so it is theirs to stop."""


@dataclass(frozen=True, slots=True)
class _RegionView:
    """What one Region holds."""

    instances: tuple[Instance, ...]
    groups: tuple[Group, ...]
    reserved: tuple[ReservedInstances, ...]


class Ec2Fleet:
    """`Fleet` on EC2 and Auto Scaling. Each client is given by Region."""

    def __init__(
        self,
        regions: Sequence[str],
        ec2_of: Callable[[str], Any],
        auto_scaling_of: Callable[[str], Any],
        keys: TagKeys,
        stage: str,
    ) -> None:
        self._regions = tuple(regions)
        self._ec2_of = ec2_of
        self._auto_scaling_of = auto_scaling_of
        self._keys = keys
        self._stage = stage

    def observe(self) -> FleetSnapshot:
        """Every GPU instance that is not terminated, sorted by Region and id; unreadable Regions are named.

        A group that cannot be read is missing, a spot request that cannot be read is of unknown kind: both leave their
        instances running. Reserved Instances that cannot be read count as none: a brake does not wait for them.
        """
        for region in self._regions:
            self._ec2_of(region)  # creating clients is not thread-safe
            self._auto_scaling_of(region)
        if len(self._regions) == 1:
            answers = [self._observe_region(self._regions[0])]
        else:
            with ThreadPoolExecutor(max_workers=min(8, len(self._regions))) as pool:
                answers = list(pool.map(self._observe_region, self._regions))
        views = [answer for answer in answers if isinstance(answer, _RegionView)]
        instances = sorted((i for view in views for i in view.instances), key=lambda i: (i.region, i.instance_id))
        return FleetSnapshot(
            tuple(instances),
            tuple(answer for answer in answers if isinstance(answer, UnknownRegion)),
            self._regions,
            tuple(group for view in views for group in view.groups),
            tuple(one for view in views for one in view.reserved),
        )

    def _observe_region(self, region: str) -> _RegionView | UnknownRegion:
        filters = [
            {"Name": "instance-state-name", "Values": list(ALIVE_STATES)},
            {"Name": "instance-type", "Values": list(GPU_TYPE_FILTER)},
        ]
        try:
            pages = self._ec2_of(region).get_paginator("describe_instances")
            found = pages.paginate(Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE})
            items = [item for item in _items_of(found) if is_gpu_type(item.get("InstanceType", ""))]
        except AWS_ERRORS as error:
            return UnknownRegion(region, error_sentence(error))
        instances = self._with_spot(region, items)
        try:
            groups = self._groups_of(region, instances)
        except UnreadableError:
            groups = {}
        members = tuple(_in_group(instance, groups) for instance in instances)
        reserved = self._reserved(region) if members else ()
        return _RegionView(members, tuple(groups.values()), reserved)

    def _with_spot(self, region: str, items: Sequence[Mapping[str, Any]]) -> list[Instance]:
        ids = sorted({str(item.get("SpotInstanceRequestId") or "") for item in items} - {""})
        requests: dict[str, SpotRequest] = {}
        for start in range(0, len(ids), REQUESTS_PER_CALL):
            chunk = ids[start : start + REQUESTS_PER_CALL]
            filters = [{"Name": "spot-instance-request-id", "Values": chunk}]
            try:
                pages = self._ec2_of(region).get_paginator("describe_spot_instance_requests")
                for page in pages.paginate(Filters=filters):
                    for item in page.get("SpotInstanceRequests", ()):
                        requests[str(item["SpotInstanceRequestId"])] = _read_request(item)
            except AWS_ERRORS:
                continue  # left out below: a request of unknown kind leaves its instance running
        return [read_instance(item, region, self._keys, self._stage, requests) for item in items]

    def _reserved(self, region: str) -> tuple[ReservedInstances, ...]:
        filters = [{"Name": "state", "Values": ["active"]}]
        try:
            answer = self._ec2_of(region).describe_reserved_instances(Filters=filters)
        except AWS_ERRORS:
            return ()
        return tuple(
            ReservedInstances(
                region,
                str(item.get("InstanceType", "")),
                int(item.get("InstanceCount", 0)),
                str(item.get("AvailabilityZone") or "") if item.get("Scope") != "Region" else "",
            )
            for item in answer.get("ReservedInstances", ())
            if is_gpu_type(str(item.get("InstanceType", "")))
            and str(item.get("ProductDescription", "")).startswith("Linux")
            and item.get("InstanceTenancy", "default") == "default"
        )

    def look_again(
        self, region: str, instance_ids: Sequence[str], *, protection: bool = True
    ) -> Mapping[str, Instance]:
        """Fresh facts, spot request and group state included; ids that are gone are left out.

        Raises UnreadableError where nothing can be read.
        """
        client = self._ec2_of(region)
        items: list[Mapping[str, Any]] = []
        try:
            for start in range(0, len(instance_ids), IDS_PER_CALL):
                chunk = list(instance_ids[start : start + IDS_PER_CALL])
                filters = [{"Name": "instance-id", "Values": chunk}]
                items.extend(_items_of(client.get_paginator("describe_instances").paginate(Filters=filters)))
        except AWS_ERRORS as error:
            raise UnreadableError(f"{region}: {error_sentence(error)}") from error
        instances = self._with_spot(region, items)
        groups = self._groups_of(region, instances)
        found = {i.instance_id: _in_group(i, groups) for i in instances}
        if not protection:
            return found
        running = [
            i.instance_id for i in found.values() if i.state is InstanceState.RUNNING and i.stop_protected is None
        ]
        known = self.read_protection(region, running)
        return {
            instance_id: replace(instance, stop_protected=known.get(instance_id, instance.stop_protected))
            for instance_id, instance in found.items()
        }

    def _groups_of(self, region: str, instances: Iterable[Instance]) -> Mapping[str, Group]:
        names = sorted({_group_name(instance) for instance in instances} - {""})
        return self.look_at_groups(region, names) if names else {}

    def look_at_groups(self, region: str, names: Sequence[str]) -> Mapping[str, Group]:
        """Fresh facts about some groups; missing ones are left out. Raises UnreadableError."""
        try:
            return read_groups(self._auto_scaling_of(region), region, names, self._keys, self._stage)
        except AWS_ERRORS as error:
            raise UnreadableError(f"{region}: {error_sentence(error)}") from error

    def read_protection(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, bool | None]:
        """Whether each has stop protection; None where that cannot be read, which costs this instance alone."""
        client = self._ec2_of(region)
        known: dict[str, bool | None] = {}
        for instance_id in instance_ids:
            try:
                answer = client.describe_instance_attribute(InstanceId=instance_id, Attribute="disableApiStop")
                known[instance_id] = bool(answer.get("DisableApiStop", {}).get("Value", False))
            except AWS_ERRORS:
                known[instance_id] = None
        return known


def _group_name(instance: Instance) -> str:
    """The group that an instance is a member of; empty for none, and for groups that a cluster has made."""
    return "" if instance.kind is InstanceKind.CLUSTER_MEMBER else dict(instance.tags).get(_GROUP_TAG, "")


def _in_group(instance: Instance, groups: Mapping[str, Group]) -> Instance:
    group = groups.get(_group_name(instance))
    return instance if group is None else replace(instance, member_state=group.state_of(instance.instance_id))


def _read_request(item: Mapping[str, Any]) -> SpotRequest:
    """A spot request. Only an instance of an active persistent one, alone in it, can be stopped by its owner."""
    try:
        kind = SpotKind(str(item.get("Type", "")))
    except ValueError:
        kind = SpotKind.UNKNOWN
    alone = not item.get("LaunchGroup") and not item.get("AvailabilityZoneGroup")
    stoppable = kind is SpotKind.PERSISTENT and item.get("State") == "active" and alone
    return SpotRequest(str(item["SpotInstanceRequestId"]), kind, stoppable)


def _items_of(pages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for page in pages:
        for reservation in page.get("Reservations", ()):
            yield from reservation.get("Instances", ())


def read_instance(
    item: Mapping[str, Any],
    region: str,
    keys: TagKeys,
    stage: str,
    requests: Mapping[str, SpotRequest] | None = None,
) -> Instance:
    """One instance from an item of DescribeInstances. Total over what EC2 may leave out."""
    pairs = tuple((str(tag.get("Key", "")), str(tag.get("Value", ""))) for tag in item.get("Tags") or ())
    tags = dict(pairs)
    kind, owner = _kind_of(item, tags)
    try:
        state = InstanceState(item.get("State", {}).get("Name", ""))
    except ValueError:
        state = InstanceState.UNKNOWN
    launched = item.get("LaunchTime")
    return Instance(
        instance_id=str(item.get("InstanceId", "")),
        region=region,
        instance_type=str(item.get("InstanceType", "")),
        state=state,
        launched_at=launched.astimezone(UTC) if isinstance(launched, datetime) else None,
        kind=kind,
        governance=read_governance(pairs, keys, stage),
        name=tags.get("Name", ""),
        owner=owner,
        zone=str(item.get("Placement", {}).get("AvailabilityZone", "")),
        tags=tuple(sorted(pairs)),
        spot=_spot_of(item, requests or {}),
        stop_protected=False if _cannot_be_protected(item) else None,
        state_reason=_reason_of(item),
    )


def _spot_of(item: Mapping[str, Any], requests: Mapping[str, SpotRequest]) -> SpotRequest | None:
    if item.get("InstanceLifecycle") != "spot":
        return None
    request_id = str(item.get("SpotInstanceRequestId") or "")
    return requests.get(request_id, SpotRequest(request_id, SpotKind.UNKNOWN))


def _cannot_be_protected(item: Mapping[str, Any]) -> bool:
    """Stop protection exists neither for spot instances nor for instance-store roots (Amazon EC2 User Guide)."""
    return item.get("InstanceLifecycle") == "spot" or item.get("RootDeviceType") == "instance-store"


def _reason_of(item: Mapping[str, Any]) -> str:
    reason = item.get("StateReason") or {}
    code, message = str(reason.get("Code", "")), str(reason.get("Message", ""))
    return message if message.startswith(code) else ": ".join(part for part in (code, message) if part)


def _kind_of(item: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[InstanceKind, str]:
    """What an instance is to EC2, and who would replace it, or what pays for it.

    A cluster comes before the group that it made, and a commitment before a group: stopping its members saves nothing.
    """
    for key, owner in _OWNER_WORDS.items():
        if key in tags:
            return InstanceKind.CLUSTER_MEMBER, f"{owner} {tags[key]}"
    cluster = next((key for key in sorted(tags) if key.startswith("kubernetes.io/cluster/")), None)
    if cluster is not None:
        return InstanceKind.CLUSTER_MEMBER, f"the Kubernetes cluster {cluster.rpartition('/')[2]}"
    lifecycle = item.get("InstanceLifecycle")
    if lifecycle == "capacity-block":
        return InstanceKind.CAPACITY_BLOCK, ""
    if item.get("CapacityReservationId"):
        return InstanceKind.CAPACITY_RESERVATION, str(item["CapacityReservationId"])
    if item.get("Placement", {}).get("Tenancy") == "host":
        return InstanceKind.DEDICATED, ""
    if lifecycle and lifecycle != "spot":
        return InstanceKind.UNKNOWN, str(lifecycle)
    if lifecycle == "spot" and _GROUP_TAG not in tags:
        return InstanceKind.SPOT, ""
    if item.get("RootDeviceType") == "instance-store":
        return InstanceKind.INSTANCE_STORE_ROOT, ""
    if item.get("RootDeviceType") != "ebs":
        return InstanceKind.UNKNOWN, ""
    if _GROUP_TAG in tags:
        return InstanceKind.GROUP_MEMBER, tags[_GROUP_TAG]
    return InstanceKind.PLAIN, ""
