"""A small sample fleet of GPU instances: what is to be stopped, what never, and what needs more care."""

from __future__ import annotations

from typing import Any

from local.answers import FleetInstance
from local.moto_bridge import Moto

GROUP_NAME = "training-group"
_IMAGE_NAME = "gpu-sample"


def create_sample_fleet(moto: Moto, region: str, *, stage: str, group: bool) -> list[FleetInstance]:
    """Launch the fleet in one Region, tagged as managed by `stage`; with `group` also one Auto Scaling group member."""
    managed = {"governor:managed": stage}

    def tags(criticality: str, project: str, pool: str = "training") -> dict[str, str]:
        return {**managed, "governor:criticality": criticality, "governor:project": project, "governor:pool": pool}

    wanted = [
        ("big-standard", "p4d.24xlarge", tags("standard", "protein-folding"), {}),
        ("big-preemptible", "p4d.24xlarge", tags("preemptible", "protein-folding"), {}),
        ("big-critical", "p4d.24xlarge", tags("critical", "checkout", "inference"), {}),
        ("small-standard", "g4dn.xlarge", tags("standard", "notebooks"), {}),
        ("small-preemptible", "g4dn.12xlarge", tags("preemptible", "render"), {}),
        ("small-critical", "g4dn.xlarge", tags("critical", "checkout", "inference"), {}),
        ("other-family", "g5.2xlarge", tags("standard", "render"), {}),
        ("without-criticality", "g4dn.xlarge", {**managed, "governor:project": "notebooks"}, {}),
        ("untagged", "g4dn.2xlarge", {}, {}),
        ("spot", "g4dn.xlarge", tags("preemptible", "render"), {"lifecycle": "spot"}),
    ]
    with moto.lock:
        image_id = _gpu_image(moto.ec2(region))
        made = [
            _launch(moto, region, image_id, role, instance_type, wanted_tags, extra)
            for role, instance_type, wanted_tags, extra in wanted
        ]
        if group:
            made.append(_launch_group(moto, region, image_id, tags("standard", "protein-folding")))
    return made


def _gpu_image(backend: Any) -> str:
    """An EBS-backed image of moto's default set."""
    images = backend.describe_images(filters={"root-device-type": ["ebs"], "virtualization-type": ["hvm"]})
    return str(sorted(image.id for image in images)[0])


def _launch(
    moto: Moto, region: str, image_id: str, role: str, instance_type: str, tags: dict[str, str], extra: dict[str, Any]
) -> FleetInstance:
    reservation = moto.ec2(region).run_instances(
        image_id,
        1,
        None,
        [],
        instance_type=instance_type,
        is_instance_type_default=False,
        region_name=region,
        tags={"instance": {"Name": role, **tags}},
        **extra,
    )
    instance = reservation.instances[0]
    return FleetInstance(role, instance.id, instance_type, {"Name": role, **tags})


def _launch_group(moto: Moto, region: str, image_id: str, tags: dict[str, str]) -> FleetInstance:
    ec2, autoscaling = moto.ec2(region), moto.autoscaling(region)
    subnet = sorted(ec2.describe_subnets(), key=lambda one: str(one.availability_zone))[0]
    template = ec2.create_launch_template(
        name=f"{GROUP_NAME}-template",
        description="sample",
        template_data={"ImageId": image_id, "InstanceType": "g4dn.xlarge"},
        tag_spec={},
    )
    group = autoscaling.create_auto_scaling_group(
        name=GROUP_NAME,
        availability_zones=[],
        desired_capacity=1,
        max_size=2,
        min_size=0,
        instance_id=None,
        launch_config_name=None,
        launch_template={"LaunchTemplateId": template.id, "Version": "$Latest"},
        mixed_instances_policy=None,
        vpc_zone_identifier=subnet.id,
        default_cooldown=None,
        health_check_period=None,
        health_check_type="EC2",
        load_balancers=[],
        target_group_arns=[],
        placement_group=None,
        termination_policies=[],
        tags=[
            {"Key": name, "Value": value, "PropagateAtLaunch": "true", "ResourceId": GROUP_NAME}
            for name, value in tags.items()
        ],
    )
    member = group.instance_states[0].instance
    return FleetInstance("group-member", member.id, member.instance_type, tags)
