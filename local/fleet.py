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
        image_id = gpu_image(moto.ec2(region))
        made = [
            launch(moto, region, image_id, role, instance_type, wanted_tags, extra)
            for role, instance_type, wanted_tags, extra in wanted
        ]
        if group:
            made.append(launch_group(moto, region, image_id, tags("standard", "protein-folding")))
    return made


def gpu_image(backend: Any) -> str:
    """An EBS-backed image of moto's default set."""
    images = backend.describe_images(filters={"root-device-type": ["ebs"], "virtualization-type": ["hvm"]})
    return str(sorted(image.id for image in images)[0])


def launch(
    moto: Moto, region: str, image_id: str, role: str, instance_type: str, tags: dict[str, str], extra: dict[str, Any]
) -> FleetInstance:
    """One instance; `extra` is what else moto's launch takes."""
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


def launch_group(moto: Moto, region: str, image_id: str, tags: dict[str, str]) -> FleetInstance:
    """One Auto Scaling group with one member, tagged like it."""
    [member] = create_group(moto, region, image_id, GROUP_NAME, tags, sizes=(0, 1, 2))
    return FleetInstance("group-member", member.id, member.instance_type, tags)


def create_group(
    moto: Moto, region: str, image_id: str, name: str, tags: dict[str, str], *, sizes: tuple[int, int, int]
) -> list[Any]:
    """An Auto Scaling group of g4dn.xlarge; `sizes` are minimum, desired and maximum. Returns its instances."""
    ec2, autoscaling = moto.ec2(region), moto.autoscaling(region)
    subnet = sorted(ec2.describe_subnets(), key=lambda one: str(one.availability_zone))[0]
    template = ec2.create_launch_template(
        name=f"{name}-template",
        description="sample",
        template_data={"ImageId": image_id, "InstanceType": "g4dn.xlarge"},
        tag_spec={},
    )
    minimum, desired, maximum = sizes
    group = autoscaling.create_auto_scaling_group(
        name=name,
        availability_zones=[],
        desired_capacity=desired,
        max_size=maximum,
        min_size=minimum,
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
            {"Key": key, "Value": value, "PropagateAtLaunch": "true", "ResourceId": name} for key, value in tags.items()
        ],
    )
    return [state.instance for state in group.instance_states]


def remove_instances(moto: Moto) -> int:
    """End every instance, group, template and spot request in every Region, and forget those that have ended.

    Returns how many instances were ended. Requests are cancelled and groups emptied first, so that nothing comes back.
    """
    ended = 0
    with moto.lock:
        for region in moto.used_regions():
            ec2, groups = moto.ec2(region), moto.autoscaling(region)
            ended += len(_alive(ec2))
            ec2.cancel_spot_instance_requests(list(ec2.spot_instance_requests))
            for name in list(groups.autoscaling_groups):
                groups.delete_auto_scaling_group(name)
            for template in ec2.describe_launch_templates():
                ec2.delete_launch_template(template.name, template.id)
            if alive := _alive(ec2):
                ec2.terminate_instances(alive)
            ec2.reservations.clear()
            ec2.spot_instance_requests.clear()
    return ended


def _alive(backend: Any) -> list[str]:
    return [one.id for one in backend.all_instances() if one.state != "terminated"]
