"""The fleet as it was seen at one moment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from governor.domain.tags import Governance

_GPU_TYPE = re.compile(r"^(p|g|gr)[0-9]")
"""EC2 instance families with GPUs start with p, g or gr and a digit (p4d, g4dn, g6e, gr6, p6-b200)."""

SCARCE_FAMILIES = frozenset({"p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"})
"""Families whose stopped instances often cannot start again (InsufficientInstanceCapacity)."""


class InstanceState(StrEnum):
    """EC2 instance states, and `unknown` for anything else."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class InstanceKind(StrEnum):
    """What an instance is to EC2, as far as it matters for stopping it."""

    PLAIN = "plain"
    GROUP_MEMBER = "auto-scaling-member"
    CLUSTER_MEMBER = "cluster-or-fleet-member"
    SPOT = "spot"
    CAPACITY_BLOCK = "capacity-block"
    CAPACITY_RESERVATION = "capacity-reservation"
    INSTANCE_STORE_ROOT = "instance-store-root"
    DEDICATED = "dedicated-host"
    STOP_PROTECTED = "stop-protected"
    UNKNOWN = "unknown"


class SpotKind(StrEnum):
    """How a spot instance was asked for; only one of an active `persistent` request can be stopped."""

    PERSISTENT = "persistent"
    ONE_TIME = "one-time"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SpotRequest:
    """The request behind a spot instance. `stoppable`: persistent, active, of no launch group or fleet."""

    request_id: str
    kind: SpotKind
    stoppable: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    """One EC2 instance. `launched_at` is aware UTC and changes with every start."""

    instance_id: str
    region: str
    instance_type: str
    state: InstanceState
    launched_at: datetime | None
    kind: InstanceKind
    governance: Governance
    name: str = ""
    owner: str = ""
    """Name of the Auto Scaling group, cluster or fleet that would replace it, where there is one."""
    zone: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    """Every tag as (key, value), sorted by key."""
    member_state: str = ""
    """Lifecycle state in its Auto Scaling group (`InService`, `Standby`, ...); empty outside one, or unknown."""
    spot: SpotRequest | None = None
    stop_protected: bool | None = None
    """None where nobody has asked EC2 for it."""
    state_reason: str = ""
    """Why the instance is in its state, as EC2 says it: code and message."""

    @property
    def family(self) -> str:
        """Instance family: `p4d` of `p4d.24xlarge`."""
        return self.instance_type.partition(".")[0]

    @property
    def scarce(self) -> bool:
        """True where a stopped instance may not come back."""
        return self.family in SCARCE_FAMILIES


@dataclass(frozen=True, slots=True)
class UnknownRegion:
    """A Region that could not be read: unknown, not empty."""

    region: str
    why: str


@dataclass(frozen=True, slots=True)
class Group:
    """One Auto Scaling group: its sizes in instances, its own tags, its members by id, and what changes its size."""

    name: str
    region: str
    min_size: int
    max_size: int
    desired: int
    governance: Governance
    members: tuple[tuple[str, str], ...] = ()
    """(instance id, lifecycle state), sorted."""
    scales_itself: tuple[str, ...] = ()
    """Enabled scaling policies, scheduled actions and refreshes that would act against ours, in words; empty: none."""

    def state_of(self, instance_id: str) -> str:
        """Lifecycle state of a member, or an empty text."""
        return dict(self.members).get(instance_id, "")


@dataclass(frozen=True, slots=True)
class ReservedInstances:
    """Active Reserved Instances: `count` of one type in a Region, or in one zone where `zone` is not empty."""

    region: str
    instance_type: str
    count: int
    zone: str = ""


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """Every GPU instance of the listed Regions that is not terminated, and the Regions that could not be read."""

    instances: tuple[Instance, ...]
    unknown_regions: tuple[UnknownRegion, ...] = ()
    regions: tuple[str, ...] = ()
    """Regions that were looked at (empty: not said)."""
    groups: tuple[Group, ...] = ()
    """Auto Scaling groups that hold at least one of the instances; one that could not be read is missing."""
    reserved: tuple[ReservedInstances, ...] = ()


def is_gpu_type(instance_type: str) -> bool:
    """True for instance types of the EC2 families that carry GPUs."""
    return _GPU_TYPE.match(instance_type) is not None
