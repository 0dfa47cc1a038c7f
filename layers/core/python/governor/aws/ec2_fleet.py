"""The fleet in EC2: reading it in every listed Region, and stopping instances one failure at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from governor.aws.errors import AWS_ERRORS, error_code, error_sentence
from governor.domain.fleet import (
    FleetSnapshot,
    Instance,
    InstanceKind,
    InstanceState,
    UnknownRegion,
    is_gpu_type,
)
from governor.domain.tags import TagKeys, read_governance
from governor.ports import StopAnswer, UnreadableError

ALIVE_STATES = ("pending", "running", "stopping", "stopped", "shutting-down")
GPU_TYPE_FILTER = ("p*", "g*")
"""Filter values of DescribeInstances may hold wildcards; `is_gpu_type` decides in the end."""

PAGE_SIZE = 1000
IDS_PER_CALL = 50
"""StopInstances accepts more; small calls keep one failure small (Amazon EC2 API Reference advises batches)."""

_GROUP_TAG = "aws:autoscaling:groupName"
_OWNER_TAGS = (
    "aws:eks:cluster-name",
    "eks:cluster-name",
    "eks:nodegroup-name",
    "karpenter.sh/nodepool",
    "aws:ec2:fleet-id",
    "aws:ec2spot:fleet-request-id",
)
"""Whoever set these replaces a stopped instance, so it is theirs to stop."""

_WHOLE_CALL_ERRORS = frozenset(
    {
        "AuthFailure",
        "InternalError",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "Unavailable",
    }
)
"""Errors that say nothing of a single id, so that trying one by one is of no use. A denial may be of one tag alone."""


class Ec2Fleet:
    """`Fleet` on EC2. `client_of` gives the EC2 client of a Region."""

    def __init__(self, regions: Sequence[str], client_of: Callable[[str], Any], keys: TagKeys, stage: str) -> None:
        self._regions = tuple(regions)
        self._client_of = client_of
        self._keys = keys
        self._stage = stage

    def observe(self) -> FleetSnapshot:
        """Every GPU instance that is not terminated, sorted by Region and id; unreadable Regions are named."""
        for region in self._regions:
            self._client_of(region)  # creating clients is not thread-safe
        if len(self._regions) == 1:
            answers = [self._observe_region(self._regions[0])]
        else:
            with ThreadPoolExecutor(max_workers=min(8, len(self._regions))) as pool:
                answers = list(pool.map(self._observe_region, self._regions))
        instances: list[Instance] = []
        unknown: list[UnknownRegion] = []
        for answer in answers:
            if isinstance(answer, UnknownRegion):
                unknown.append(answer)
            else:
                instances.extend(answer)
        instances.sort(key=lambda instance: (instance.region, instance.instance_id))
        return FleetSnapshot(tuple(instances), tuple(unknown), self._regions)

    def _observe_region(self, region: str) -> list[Instance] | UnknownRegion:
        filters = [
            {"Name": "instance-state-name", "Values": list(ALIVE_STATES)},
            {"Name": "instance-type", "Values": list(GPU_TYPE_FILTER)},
        ]
        try:
            pages = self._client_of(region).get_paginator("describe_instances")
            found = pages.paginate(Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE})
            return [
                read_instance(item, region, self._keys, self._stage)
                for item in _items_of(found)
                if is_gpu_type(item.get("InstanceType", ""))
            ]
        except AWS_ERRORS as error:
            return UnknownRegion(region, error_sentence(error))

    def look_again(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Fresh facts, stop protection included; ids that are gone or cannot be read are left out.

        Raises UnreadableError where nothing can be read.
        """
        client = self._client_of(region)
        found: dict[str, Instance] = {}
        try:
            for start in range(0, len(instance_ids), IDS_PER_CALL):
                chunk = list(instance_ids[start : start + IDS_PER_CALL])
                filters = [{"Name": "instance-id", "Values": chunk}]
                pages = client.get_paginator("describe_instances").paginate(Filters=filters)
                for item in _items_of(pages):
                    instance = read_instance(item, region, self._keys, self._stage)
                    found[instance.instance_id] = instance
        except AWS_ERRORS as error:
            raise UnreadableError(f"{region}: {error_sentence(error)}") from error
        return {
            instance_id: fresh
            for instance_id, instance in found.items()
            if (fresh := self._with_protection(client, instance)) is not None
        }

    def _with_protection(self, client: Any, instance: Instance) -> Instance | None:
        """The instance with its stop protection; None where that cannot be read, which costs this instance alone."""
        if instance.kind is not InstanceKind.PLAIN or instance.state is not InstanceState.RUNNING:
            return instance
        try:
            return _as_protected(instance) if self._is_protected(client, instance.instance_id) else instance
        except AWS_ERRORS:
            return None

    def _is_protected(self, client: Any, instance_id: str) -> bool:
        answer = client.describe_instance_attribute(InstanceId=instance_id, Attribute="disableApiStop")
        return bool(answer.get("DisableApiStop", {}).get("Value", False))

    def stop(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Stop instances. EC2 refuses a whole call for one bad id: it is halved until that id is alone."""
        client = self._client_of(region)
        answers: list[StopAnswer] = []
        for start in range(0, len(instance_ids), IDS_PER_CALL):
            answers.extend(self._stop_some(client, list(instance_ids[start : start + IDS_PER_CALL])))
        return tuple(answers)

    def _stop_some(self, client: Any, instance_ids: list[str]) -> list[StopAnswer]:
        try:
            client.stop_instances(InstanceIds=instance_ids)
        except AWS_ERRORS as error:
            of_the_call = not isinstance(error, ClientError) or error_code(error) in _WHOLE_CALL_ERRORS
            if len(instance_ids) == 1 or of_the_call:
                return [StopAnswer(instance_id, False, error_sentence(error)) for instance_id in instance_ids]
            middle = len(instance_ids) // 2
            return [
                *self._stop_some(client, instance_ids[:middle]),
                *self._stop_some(client, instance_ids[middle:]),
            ]
        return [StopAnswer(instance_id, True) for instance_id in instance_ids]


def _items_of(pages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for page in pages:
        for reservation in page.get("Reservations", ()):
            yield from reservation.get("Instances", ())


def read_instance(item: Mapping[str, Any], region: str, keys: TagKeys, stage: str) -> Instance:
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
    )


def _kind_of(item: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[InstanceKind, str]:
    """What an instance is to EC2, and who would replace it."""
    if _GROUP_TAG in tags:
        return InstanceKind.GROUP_MEMBER, tags[_GROUP_TAG]
    for key in _OWNER_TAGS:
        if key in tags:
            return InstanceKind.CLUSTER_MEMBER, tags[key]
    if any(key.startswith("kubernetes.io/cluster/") for key in tags):
        return InstanceKind.CLUSTER_MEMBER, next(k for k in tags if k.startswith("kubernetes.io/cluster/"))
    lifecycle = item.get("InstanceLifecycle")
    if lifecycle == "spot":
        return InstanceKind.SPOT, ""
    if lifecycle == "capacity-block":
        return InstanceKind.CAPACITY_BLOCK, ""
    if lifecycle:
        return InstanceKind.UNKNOWN, str(lifecycle)
    if item.get("RootDeviceType") == "instance-store":
        return InstanceKind.INSTANCE_STORE_ROOT, ""
    if item.get("RootDeviceType") != "ebs":
        return InstanceKind.UNKNOWN, ""
    if item.get("CapacityReservationId"):
        return InstanceKind.CAPACITY_RESERVATION, str(item["CapacityReservationId"])
    if item.get("Placement", {}).get("Tenancy") == "host":
        return InstanceKind.DEDICATED, ""
    return InstanceKind.PLAIN, ""


def _as_protected(instance: Instance) -> Instance:
    return replace(instance, kind=InstanceKind.STOP_PROTECTED)
