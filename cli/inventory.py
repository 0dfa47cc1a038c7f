"""Everything with GPUs in every enabled Region, read and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cli.account import aws
from cli.errors import DENIED

if TYPE_CHECKING:
    from governor.domain.fleet import Group as WatchedGroup
    from governor.domain.fleet import Instance, ReservedInstances, UnknownRegion
    from governor.domain.tags import Governance, TagKeys

THREADS = 8
OPEN_SPOT_STATES = ("open", "active")
PAID_RESERVATION_STATES = ("active", "pending", "scheduled", "assessing", "delayed")


@dataclass(frozen=True, slots=True)
class Group:
    """An Auto Scaling group that has, or may launch, GPU instances. `gpu_types` are those it has or names."""

    name: str
    region: str
    gpu_types: tuple[str, ...]
    gpu_instances: int
    desired: int
    maximum: int
    governance: Governance


@dataclass(frozen=True, slots=True)
class SpotRequest:
    """A spot request for a GPU type that is open or active."""

    request_id: str
    region: str
    instance_type: str
    state: str
    persistent: bool
    instance_id: str
    governance: Governance


@dataclass(frozen=True, slots=True)
class Reservation:
    """A capacity reservation of a GPU type; `unused` of its `total` instances stand empty. No end: until cancelled."""

    reservation_id: str
    region: str
    instance_type: str
    state: str
    total: int
    unused: int
    ends_at: datetime | None
    capacity_block: bool


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A call that was not answered, so that what it would have shown is unknown."""

    region: str
    call: str
    why: str


@dataclass(frozen=True, slots=True)
class RegionInventory:
    """What one Region holds."""

    region: str
    instances: tuple[Instance, ...] = ()
    unknown: UnknownRegion | None = None
    groups: tuple[Group, ...] = ()
    spot_requests: tuple[SpotRequest, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    refused: tuple[RefusedCall, ...] = ()
    watched_groups: tuple[WatchedGroup, ...] = ()
    """Groups of the instances, as the budget guard sees them."""
    reserved: tuple[ReservedInstances, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """What all Regions hold, in the order of their names."""

    account_id: str | None
    regions: tuple[RegionInventory, ...]
    refused: tuple[RefusedCall, ...] = field(default=())

    @property
    def instances(self) -> tuple[Instance, ...]:
        """Every GPU instance."""
        return tuple(instance for region in self.regions for instance in region.instances)

    @property
    def unknown_regions(self) -> tuple[UnknownRegion, ...]:
        """Regions whose instances could not be read: unknown, not empty."""
        return tuple(region.unknown for region in self.regions if region.unknown is not None)

    @property
    def refused_calls(self) -> tuple[RefusedCall, ...]:
        """Every call that was not answered."""
        return (*self.refused, *(call for region in self.regions for call in region.refused))


def take_inventory(
    home: str, keys: TagKeys, stage: str, progress: Callable[[int, int, str], None], refused: list[RefusedCall]
) -> Inventory:
    """Read every enabled Region, several at a time. `progress` hears (done, all, Region).

    Calls that are not permitted are named, with those in `refused`; without the list of Regions only `home` is read.
    """
    account_id, enabled = _account_id(home, refused), _enabled_regions(home, refused)
    for region in enabled:  # creating clients is not thread-safe
        aws("ec2", region)
        aws("autoscaling", region)
    found: list[RegionInventory] = []
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        running = [pool.submit(_read_region, region, keys, stage) for region in enabled]
        for done in as_completed(running):
            found.append(done.result())
            progress(len(found), len(enabled), found[-1].region)
    found.sort(key=lambda region: region.region)
    return Inventory(account_id, tuple(found), tuple(refused))


def _account_id(home: str, refused: list[RefusedCall]) -> str | None:
    from botocore.exceptions import ClientError

    from governor.aws.errors import error_code, error_sentence

    try:
        return str(aws("sts", home).get_caller_identity()["Account"])
    except ClientError as error:
        if error_code(error) not in DENIED:
            raise
        refused.append(RefusedCall(home, "sts:GetCallerIdentity", error_sentence(error)))
        return None


def _enabled_regions(home: str, refused: list[RefusedCall]) -> list[str]:
    from botocore.exceptions import ClientError

    from governor.aws.errors import error_code, error_sentence

    try:
        return sorted(region["RegionName"] for region in aws("ec2", home).describe_regions()["Regions"])
    except ClientError as error:
        if error_code(error) not in DENIED:
            raise
        refused.append(RefusedCall(home, "ec2:DescribeRegions", error_sentence(error)))
        return [home]


def _read_region(region: str, keys: TagKeys, stage: str) -> RegionInventory:
    from governor.aws.ec2_fleet import Ec2Fleet

    seen = Ec2Fleet(
        [region], lambda name: aws("ec2", name), lambda name: aws("autoscaling", name), keys, stage
    ).observe()
    if seen.unknown_regions:
        return RegionInventory(region, unknown=seen.unknown_regions[0])
    refused: list[RefusedCall] = []

    def ask(call: str, read: Callable[[], Iterable[Any]]) -> tuple[Any, ...]:
        from governor.aws.errors import AWS_ERRORS, error_sentence

        try:
            return tuple(read())
        except AWS_ERRORS as error:
            refused.append(RefusedCall(region, call, error_sentence(error)))
            return ()

    groups = ask("autoscaling:DescribeAutoScalingGroups", lambda: _read_groups(region, keys, stage))
    spot = ask("ec2:DescribeSpotInstanceRequests", lambda: _read_spot_requests(region, keys, stage))
    reservations = ask("ec2:DescribeCapacityReservations", lambda: _read_reservations(region))
    return RegionInventory(
        region, seen.instances, None, groups, spot, reservations, tuple(refused), seen.groups, seen.reserved
    )


def _governance(tags: Iterable[Mapping[str, Any]], keys: TagKeys, stage: str) -> Governance:
    from governor.domain.tags import read_governance

    pairs = [(str(tag.get("Key", "")), str(tag.get("Value", ""))) for tag in tags]
    return read_governance(pairs, keys, stage)


def _read_groups(region: str, keys: TagKeys, stage: str) -> list[Group]:
    from governor.domain.fleet import is_gpu_type

    found = []
    for page in aws("autoscaling", region).get_paginator("describe_auto_scaling_groups").paginate():
        for item in page["AutoScalingGroups"]:
            has = [str(member.get("InstanceType", "")) for member in item.get("Instances", ())]
            template = item.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
            named = [str(override.get("InstanceType", "")) for override in template.get("Overrides", ())]
            types = tuple(sorted({one for one in (*has, *named) if is_gpu_type(one)}))
            if not types:
                continue
            found.append(
                Group(
                    name=item["AutoScalingGroupName"],
                    region=region,
                    gpu_types=types,
                    gpu_instances=sum(is_gpu_type(one) for one in has),
                    desired=int(item.get("DesiredCapacity", 0)),
                    maximum=int(item.get("MaxSize", 0)),
                    governance=_governance(item.get("Tags", ()), keys, stage),
                )
            )
    return sorted(found, key=lambda group: group.name)


def _read_spot_requests(region: str, keys: TagKeys, stage: str) -> list[SpotRequest]:
    from governor.domain.fleet import is_gpu_type

    filters = [{"Name": "state", "Values": list(OPEN_SPOT_STATES)}]
    found = []
    for page in aws("ec2", region).get_paginator("describe_spot_instance_requests").paginate(Filters=filters):
        for item in page["SpotInstanceRequests"]:
            instance_type = str(item.get("LaunchSpecification", {}).get("InstanceType", ""))
            if not is_gpu_type(instance_type):
                continue
            found.append(
                SpotRequest(
                    request_id=item["SpotInstanceRequestId"],
                    region=region,
                    instance_type=instance_type,
                    state=str(item.get("State", "")),
                    persistent=item.get("Type") == "persistent",
                    instance_id=str(item.get("InstanceId", "")),
                    governance=_governance(item.get("Tags", ()), keys, stage),
                )
            )
    return sorted(found, key=lambda request: request.request_id)


def _read_reservations(region: str) -> list[Reservation]:
    from governor.domain.fleet import is_gpu_type

    filters = [{"Name": "state", "Values": list(PAID_RESERVATION_STATES)}]
    found = []
    for page in aws("ec2", region).get_paginator("describe_capacity_reservations").paginate(Filters=filters):
        for item in page["CapacityReservations"]:
            if not is_gpu_type(str(item.get("InstanceType", ""))):
                continue
            found.append(
                Reservation(
                    reservation_id=item["CapacityReservationId"],
                    region=region,
                    instance_type=item["InstanceType"],
                    state=str(item.get("State", "")),
                    total=int(item.get("TotalInstanceCount", 0)),
                    unused=int(item.get("AvailableInstanceCount", 0)),
                    ends_at=item.get("EndDate"),
                    capacity_block=item.get("ReservationType") == "capacity-block",
                )
            )
    return sorted(found, key=lambda reservation: reservation.reservation_id)
