"""What AWS does with instances and moto does not: state-change events, and groups that replace what is not running."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance, InstanceBackend

from local.calls import current_request
from local.events import Bus
from local.faults import Faults
from local.moto_bridge import Moto
from local.patching import replace

_log = logging.getLogger("local.ec2")
_HEALTH_PROCESSES = frozenset({"HealthCheck", "ReplaceUnhealthy", "Terminate"})


class InstanceEvents:
    """Puts `EC2 Instance State-change Notification` on the bus, one event a state; refuses stops that AWS refuses."""

    def __init__(self, bus: Bus, account_id: str, faults: Faults) -> None:
        self._bus = bus
        self._faults = faults
        self._account_id = account_id
        self._originals: dict[str, Callable[..., Any]] = {}
        for method, states in (
            ("start", ("pending", "running")),
            ("stop", ("stopping", "stopped")),
            ("terminate", ("shutting-down", "terminated")),
        ):
            self._originals[method] = replace(Instance, method, ("self",), self._changer(method, states))
        self._run_instances = replace(
            InstanceBackend,
            "run_instances",
            ("self", "image_id", "count", "user_data", "security_group_names", "kwargs"),
            self._launcher(),
        )
        self._stop_instances = replace(InstanceBackend, "stop_instances", ("self", "instance_ids"), self._stopper())

    def _changer(self, method: str, states: tuple[str, ...]) -> Callable[[Any], Any]:
        events = self

        def change(instance: Any) -> Any:
            before = instance._state.name
            result = events._originals[method](instance)
            if method == "start" and before == "stopped":
                instance.launch_time = utcnow()  # EC2 sets it anew at each start, moto keeps it
            if before != states[-1]:
                for state in states:
                    events._announce(instance, state)
            return result

        return change

    def _launcher(self) -> Callable[..., Any]:
        events = self

        def run_instances(backend: Any, *args: Any, **kwargs: Any) -> Any:
            events._refuse_group_launch_on_fault()
            reservation = events._run_instances(backend, *args, **kwargs)
            for instance in reservation.instances:
                for state in ("pending", "running"):
                    events._announce(instance, state)
            return reservation

        return run_instances

    def _stopper(self) -> Callable[..., Any]:
        events = self

        def stop_instances(backend: Any, instance_ids: list[str]) -> Any:
            for instance in backend.get_multi_instances_by_id(instance_ids):
                refuse_stop(instance)
            return events._stop_instances(backend, instance_ids)

        return stop_instances

    def _refuse_group_launch_on_fault(self) -> None:
        """A launch that a group makes is no request of its own, so its faults are looked up here."""
        request = current_request()
        if request is not None and request.action == "ec2:RunInstances":
            return
        fault = self._faults.match("ec2:RunInstances", "")
        if fault is not None:
            raise EC2ClientError(fault.error_code, fault.message)

    def _announce(self, instance: Any, state: str) -> None:
        region = instance.region_name
        self._bus.put(
            source="aws.ec2",
            detail_type="EC2 Instance State-change Notification",
            detail={"instance-id": instance.id, "state": state},
            region=region,
            resources=[f"arn:aws:ec2:{region}:{self._account_id}:instance/{instance.id}"],
        )


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


def refuse_stop(instance: Any) -> None:
    """Raise EC2's own error for an instance that cannot be stopped; one such id fails the whole call."""
    if instance.state in ("terminated", "shutting-down"):
        message = f"This instance '{instance.id}' is not in a state from which it can be stopped."
        raise EC2ClientError("IncorrectInstanceState", message)
    if instance.lifecycle == "spot":
        message = f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time request."
        raise EC2ClientError("UnsupportedOperation", message)
    if instance.disable_api_stop:
        message = f"The instance '{instance.id}' may not be stopped. Modify its 'disableApiStop' instance attribute."
        raise EC2ClientError("OperationNotPermitted", message)


def _must_be_replaced(member: Any) -> bool:
    if member.lifecycle_state != "InService":
        return False
    return bool(member.instance.state != "running" or member.health_status != "Healthy")
