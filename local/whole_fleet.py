"""A sample fleet with one instance of every kind that the budget guard treats in its own way."""

from __future__ import annotations

from typing import Any

from local.answers import FleetInstance
from local.commitments import Commitments
from local.fleet import GROUP_NAME, create_group, gpu_image, launch
from local.moto_bridge import Moto

MIXED_GROUP_NAME = "inference-group"
CHECKPOINT_DOCUMENT = "Governor-SaveCheckpoint"
RESERVATION_ID = "cr-0a1b2c3d4e5f60001"
BLOCK_ID = "cr-0a1b2c3d4e5f60002"

_Wanted = tuple[str, str, dict[str, str], dict[str, Any]]


def create_whole_fleet(moto: Moto, commitments: Commitments, region: str, *, stage: str) -> list[FleetInstance]:
    """Launch it in one Region, managed by `stage`; it also sets the Region's capacity reservations."""
    with moto.lock:
        image_id = gpu_image(moto.ec2(region))
        made = [
            launch(moto, region, image_id, role, instance_type, tags, extra)
            for role, instance_type, tags, extra in (*_plain(stage), *_special(stage))
        ]
        _put_on_local_disks(moto, region, made)
        made += _groups(moto, region, image_id, stage)
    commitments.set("capacity", region, _reservations())
    return made


def _tags(stage: str, criticality: str, project: str, pool: str = "training", **more: str) -> dict[str, str]:
    return {
        "governor:managed": stage,
        "governor:criticality": criticality,
        "governor:project": project,
        "governor:pool": pool,
        **more,
    }


def _plain(stage: str) -> list[_Wanted]:
    return [
        ("big-standard", "p4d.24xlarge", _tags(stage, "standard", "protein-folding"), {}),
        ("big-preemptible", "p4d.24xlarge", _tags(stage, "preemptible", "protein-folding"), {}),
        ("big-critical", "p4d.24xlarge", _tags(stage, "critical", "checkout", "inference"), {}),
        ("small-standard", "g4dn.xlarge", _tags(stage, "standard", "notebooks"), {}),
        ("small-preemptible", "g4dn.xlarge", _tags(stage, "preemptible", "render"), {}),
        ("small-critical", "g4dn.xlarge", _tags(stage, "critical", "checkout", "inference"), {}),
        ("untagged", "g4dn.2xlarge", {}, {}),
    ]


def _special(stage: str) -> list[_Wanted]:
    standard = _tags(stage, "standard", "notebooks")
    spot = _tags(stage, "preemptible", "render")
    block = {"instance_market_options": "capacity-block", "capacity_reservation_id": BLOCK_ID}
    checkpoint = {**standard, "governor:checkpoint": CHECKPOINT_DOCUMENT}
    return [
        ("spot-persistent", "g4dn.xlarge", spot, {"lifecycle": "spot", "spot_type": "persistent"}),
        ("spot-one-time", "g4dn.xlarge", spot, {"lifecycle": "spot", "spot_type": "one-time"}),
        ("stop-protected", "g4dn.xlarge", standard, {"disable_api_stop": True}),
        ("eks-member", "g5.2xlarge", {**standard, "eks:nodegroup-name": "gpu", "eks:cluster-name": "main"}, {}),
        ("karpenter-member", "g5.2xlarge", {**standard, "karpenter.sh/nodepool": "gpu"}, {}),
        ("fleet-member", "g5.2xlarge", {**standard, "aws:ec2:fleet-id": "fleet-0a1b2c3d"}, {}),
        ("reserved", "p4d.24xlarge", standard, {"capacity_reservation_id": RESERVATION_ID}),
        ("capacity-block", "p4d.24xlarge", standard, block),
        ("instance-store", "g4dn.xlarge", standard, {}),
        ("checkpoint", "g4dn.xlarge", checkpoint, {}),
    ]


def _put_on_local_disks(moto: Moto, region: str, made: list[FleetInstance]) -> None:
    """No image of moto's default set has its root on an instance store."""
    [instance_id] = [one.instance_id for one in made if one.role == "instance-store"]
    moto.ec2(region).get_instance_by_id(instance_id).root_device_type = "instance-store"


def _groups(moto: Moto, region: str, image_id: str, stage: str) -> list[FleetInstance]:
    standard = _tags(stage, "standard", "protein-folding")
    plain = create_group(moto, region, image_id, GROUP_NAME, standard, sizes=(1, 2, 3))
    members = [
        FleetInstance(f"group-member-{number}", one.id, one.instance_type, standard)
        for number, one in enumerate(plain, start=1)
    ]
    inference = _tags(stage, "standard", "checkout", "inference")
    critical, other = create_group(moto, region, image_id, MIXED_GROUP_NAME, inference, sizes=(1, 2, 3))
    critical.add_tag("governor:criticality", "critical")
    tags = {**inference, "governor:criticality": "critical"}
    return [
        *members,
        FleetInstance("mixed-group-critical", critical.id, critical.instance_type, tags),
        FleetInstance("mixed-group-standard", other.id, other.instance_type, inference),
    ]


def _reservations() -> list[dict[str, Any]]:
    common = {"InstanceType": "p4d.24xlarge", "InstancePlatform": "Linux/UNIX", "TotalInstanceCount": 1}
    return [
        {"CapacityReservationId": RESERVATION_ID, "State": "active", "EndDateType": "unlimited", **common},
        {"CapacityReservationId": BLOCK_ID, "State": "active", "ReservationType": "capacity-block", **common},
    ]
