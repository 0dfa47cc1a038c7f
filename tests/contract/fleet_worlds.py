"""A fleet under test and what happens to it from outside: the fake, and the adapters on the local AWS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from governor.aws.ec2_actions import Ec2Actions
from governor.aws.ec2_fleet import Ec2Fleet
from governor.domain.fleet import InstanceKind, SpotKind, SpotRequest
from governor.domain.tags import TagKeys
from governor.ports import Fleet, FleetActions, StartActions
from local.client import LocalAws
from local.starts import key_denied
from tests.builders import STAGE, a_group, an_instance, tags_of
from tests.fakes.fleet import FakeFleet

REGION = "us-east-1"
IMAGE = "ami-12c6146b"
KMS_KEY = f"arn:aws:kms:{REGION}:123456789012:key/0a1b2c3d-0000-4000-8000-000000000001"


class Actions(FleetActions, StartActions, Protocol):
    """Both ways of changing a fleet."""


class World(Protocol):
    """The ports on one fleet, and what other people and AWS do to it."""

    fleet: Fleet
    actions: Actions

    def launch(self, criticality: str = "standard", *, spot: str = "", protected: bool = False) -> str:
        """A running g4dn.xlarge; `spot` is `persistent` or `one-time`."""
        ...

    def launch_group(self, name: str, sizes: tuple[int, int, int]) -> list[str]:
        """A group of minimum, desired and maximum size, managed and standard; ids of its members."""
        ...

    def encrypt(self, instance_id: str) -> str:
        """Give an instance an encrypted volume; ARN of its key."""
        ...

    def deny_key(self, instance_id: str) -> None:
        """Let every start of it fall back to stopped."""
        ...

    def settle(self) -> None:
        """Let everything come to its end, groups and spot requests too."""
        ...


class FakeWorld:
    """The fake."""

    def __init__(self, aws: LocalAws) -> None:
        self.now = datetime(2026, 11, 20, 12, tzinfo=UTC)
        self.fake = FakeFleet(clock=lambda: self.now, regions=(REGION,))
        self.fleet: Fleet = self.fake
        self.actions: Actions = self.fake

    def launch(self, criticality: str = "standard", *, spot: str = "", protected: bool = False) -> str:
        number = len(self.fake.instances)
        request = SpotRequest(f"sir-{number}", SpotKind(spot), spot == "persistent") if spot else None
        instance = an_instance(
            f"i-{number:03}",
            criticality=criticality,
            region=REGION,
            kind=InstanceKind.SPOT if spot else InstanceKind.PLAIN,
            spot=request,
            stop_protected=protected,
        )
        self.fake.add(instance)
        return instance.instance_id

    def launch_group(self, name: str, sizes: tuple[int, int, int]) -> list[str]:
        least, desired, most = sizes
        ids = [self.launch() for _ in range(desired)]
        found = [replace(self.fake.instances[one], kind=InstanceKind.GROUP_MEMBER, owner=name) for one in ids]
        self.fake.add(*found)
        self.fake.add_group(a_group(*found, name=name, region=REGION, min_size=least, max_size=most))
        return ids

    def encrypt(self, instance_id: str) -> str:
        self.fake.keys[instance_id] = (KMS_KEY,)
        return KMS_KEY

    def deny_key(self, instance_id: str) -> None:
        self.fake.fall_back[instance_id] = "Client.InternalError: Client error on launch"

    def settle(self) -> None:
        self.now += timedelta(minutes=2)
        self.fake.settle()


class LocalWorld:
    """The adapters on the local AWS."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws = aws
        aws.set_starts()
        aws.remove_fleet()
        self.ec2, self.auto_scaling = aws.client("ec2"), aws.client("autoscaling")
        self.fleet: Fleet = Ec2Fleet([REGION], self._ec2_of, self._auto_scaling_of, TagKeys(), STAGE)
        self.actions: Actions = Ec2Actions(self._ec2_of, self._auto_scaling_of)

    def _ec2_of(self, region: str) -> Any:
        return self.aws.client("ec2", region=region)

    def _auto_scaling_of(self, region: str) -> Any:
        return self.aws.client("autoscaling", region=region)

    def launch(self, criticality: str = "standard", *, spot: str = "", protected: bool = False) -> str:
        more: dict[str, Any] = {}
        if spot:
            more["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": spot}}
        answer = self.ec2.run_instances(
            ImageId=IMAGE,
            InstanceType="g4dn.xlarge",
            MinCount=1,
            MaxCount=1,
            DisableApiStop=protected,
            TagSpecifications=[{"ResourceType": "instance", "Tags": _pairs(tags_of(criticality))}],
            **more,
        )
        return str(answer["Instances"][0]["InstanceId"])

    def launch_group(self, name: str, sizes: tuple[int, int, int]) -> list[str]:
        least, desired, most = sizes
        template = {"ImageId": IMAGE, "InstanceType": "g4dn.xlarge"}
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=template)
        self.auto_scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchTemplate={"LaunchTemplateName": name, "Version": "$Latest"},
            MinSize=least,
            DesiredCapacity=desired,
            MaxSize=most,
            AvailabilityZones=[f"{REGION}a"],
            Tags=[{**pair, "PropagateAtLaunch": True} for pair in _pairs(tags_of())],
        )
        group = self.fleet.look_at_groups(REGION, [name])[name]
        return [member for member, _ in group.members]

    def encrypt(self, instance_id: str) -> str:
        key = str(self.aws.client("kms").create_key()["KeyMetadata"]["Arn"])
        zone = self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]["Placement"]
        volume = self.ec2.create_volume(
            AvailabilityZone=zone["AvailabilityZone"], Size=8, Encrypted=True, KmsKeyId=key
        )["VolumeId"]
        self.ec2.attach_volume(VolumeId=volume, InstanceId=instance_id, Device="/dev/sdf")
        return key

    def deny_key(self, instance_id: str) -> None:
        self.aws.set_starts(key_denied(instance_id))

    def settle(self) -> None:
        self.aws.advance(timedelta(minutes=2))


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
