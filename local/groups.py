"""What Auto Scaling does by itself and moto does not: members that do not run are replaced, standby is left alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.ec2.exceptions import EC2ClientError

from local.moto_bridge import Moto
from local.patching import replace

_log = logging.getLogger("local.groups")
_HEALTH_PROCESSES = frozenset({"HealthCheck", "ReplaceUnhealthy", "Terminate"})


class GroupHealth:
    """Replaces group members that are stopped or marked unhealthy, as Auto Scaling does: terminate, then launch.

    A launch that fails leaves the group short; it is tried again every minute, as a group does.
    """

    def __init__(self, moto: Moto) -> None:
        self._moto = moto
        self._launch = replace(
            FakeAutoScalingGroup,
            "replace_autoscaling_group_instances",
            ("self", "count_needed", "propagated_tags"),
            self._launcher(),
        )
        self._set_desired = replace(
            FakeAutoScalingGroup, "set_desired_capacity", ("self", "new_capacity"), self._resizer()
        )

    def replace_unhealthy_members(self) -> list[str]:
        """Check every group once; returns the ids of the members that were terminated."""
        replaced: list[str] = []
        with self._moto.lock:
            for region in self._moto.used_regions():
                backend = self._moto.autoscaling(region)
                for name in sorted(backend.autoscaling_groups):
                    replaced.extend(self._check(backend, backend.autoscaling_groups[name]))
        return replaced

    def _check(self, backend: Any, group: Any) -> list[str]:
        if _HEALTH_PROCESSES & {process["ProcessName"] for process in group.suspended_processes}:
            return []
        ids = sorted(state.instance.id for state in group.instance_states if _must_be_replaced(state))
        if ids:
            backend.ec2_backend.terminate_instances(ids)
            backend.notify_terminate_instances(ids)
        missing = (group.desired_capacity or 0) - len(group.active_instances())
        if missing > 0:
            group.replace_autoscaling_group_instances(missing, group.get_propagated_tags())
        return ids

    def _launcher(self) -> Callable[..., None]:
        health = self

        def replace_autoscaling_group_instances(group: Any, count_needed: int, propagated_tags: dict[str, str]) -> None:
            try:
                health._launch(group, count_needed, propagated_tags)
            except EC2ClientError as error:
                _log.warning("group %s could not launch %d: %s", group.name, count_needed, error)

        return replace_autoscaling_group_instances

    def _resizer(self) -> Callable[..., None]:
        health = self

        def set_desired_capacity(group: Any, new_capacity: int | None) -> None:
            """Shrink by members in service alone and in their order; moto would take those in standby too."""
            wanted = group.min_size if new_capacity is None else new_capacity
            if not _is_weighted(group):
                surplus = max(0, len(group.active_instances()) - (wanted or 0))
                members = [one for one in group.active_instances() if not one.protected_from_scale_in][:surplus]
                if members:
                    group.ec2_backend.terminate_instances([one.instance.id for one in members])
                    group.instance_states = [one for one in group.instance_states if one not in members]
            health._set_desired(group, new_capacity)

        return set_desired_capacity


def _must_be_replaced(member: Any) -> bool:
    if member.lifecycle_state != "InService":
        return False
    return bool(member.instance.state not in ("pending", "running") or member.health_status != "Healthy")


def _is_weighted(group: Any) -> bool:
    policy = group.mixed_instances_policy or {}
    overrides = (policy.get("LaunchTemplate") or {}).get("Overrides") or []
    return any("WeightedCapacity" in one for one in overrides)
