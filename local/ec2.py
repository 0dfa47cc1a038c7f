"""What AWS does with instances and moto does not: state-change events, refused stops, spot requests, failed starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance, InstanceBackend, StateReason

from local.calls import current_request
from local.commitments import place_in_reservation
from local.events import Bus
from local.faults import Faults
from local.patching import relied_on, replace
from local.spot import SpotRequests, refuse_spot_stop


class InstanceEvents:
    """Puts `EC2 Instance State-change Notification` on the bus, one event a state; refuses stops that AWS refuses."""

    def __init__(self, bus: Bus, account_id: str, faults: Faults, spot: SpotRequests) -> None:
        self._bus = bus
        self._faults = faults
        self._account_id = account_id
        self._spot = spot
        self._originals: dict[str, Callable[..., Any]] = {}
        for method, states in (("stop", ("stopping", "stopped")), ("terminate", ("shutting-down", "terminated"))):
            self._originals[method] = replace(Instance, method, ("self",), self._changer(method, states))
        self._start = relied_on(Instance, "start", ("self",))
        self._run_instances = replace(
            InstanceBackend,
            "run_instances",
            ("self", "image_id", "count", "user_data", "security_group_names", "kwargs"),
            self._launcher(),
        )
        self._stop_instances = replace(InstanceBackend, "stop_instances", ("self", "instance_ids"), self._stopper())

    def begin_start(self, instance: Any) -> None:
        """Make a stopped instance pending; its launch time is set anew, whatever becomes of the start."""
        instance._state.name, instance._state.code = "pending", 0
        instance._reason, instance.state_reason = "", StateReason()
        instance.launch_time = utcnow()
        self._announce(instance, "pending")

    def finish_start(self, instance: Any) -> None:
        """Make a pending instance running."""
        self._start(instance)
        self._announce(instance, "running")
        self._spot.changed(instance, "running")

    def fail_start(self, instance: Any, reason: str, message: str) -> None:
        """Bring a pending instance back to stopped, with AWS's state reason."""
        self._originals["stop"](instance)
        instance._reason = f"Server initiated ({utcnow():%Y-%m-%d %H:%M:%S UTC})"
        instance.state_reason = StateReason(message, reason)
        self._announce(instance, "stopped")

    def _changer(self, method: str, states: tuple[str, ...]) -> Callable[[Any], Any]:
        events = self

        def change(instance: Any) -> Any:
            before = instance._state.name
            result = events._originals[method](instance)
            if before != states[-1]:
                for state in states:
                    events._announce(instance, state)
                events._spot.changed(instance, states[-1])
            return result

        return change

    def _launcher(self) -> Callable[..., Any]:
        events = self

        def run_instances(backend: Any, image_id: str, count: int, *args: Any, **kwargs: Any) -> Any:
            events._refuse_launch_on_fault()
            reservation = events._run_instances(backend, image_id, count, *args, **kwargs)
            for instance in reservation.instances:
                for state in ("pending", "running"):
                    events._announce(instance, state)

            place_in_reservation(reservation.instances, kwargs)
            again = {**kwargs, "lifecycle": "spot", "spot_fleet_id": None}
            events._spot.launched(
                reservation.instances, kwargs, lambda: run_instances(backend, image_id, 1, *args, **again).instances[0]
            )
            return reservation

        return run_instances

    def _stopper(self) -> Callable[..., Any]:
        events = self

        def stop_instances(backend: Any, instance_ids: list[str]) -> Any:
            for instance in backend.get_multi_instances_by_id(instance_ids):
                refuse_stop(instance)
            return events._stop_instances(backend, instance_ids)

        return stop_instances

    def _refuse_launch_on_fault(self) -> None:
        """A launch that a group or a spot request makes is no request of its own, so its faults are looked up here."""
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


def refuse_stop(instance: Any) -> None:
    """Raise EC2's own error for an instance that cannot be stopped; one such id fails the whole call."""
    if instance.state in ("terminated", "shutting-down"):
        message = f"This instance '{instance.id}' is not in a state from which it can be stopped."
        raise EC2ClientError("IncorrectInstanceState", message)
    if instance.lifecycle == "spot":
        refuse_spot_stop(instance)
    if instance.root_device_type == "instance-store":
        message = f"The instance '{instance.id}' does not have an 'ebs' root device type and cannot be stopped."
        raise EC2ClientError("UnsupportedOperation", message)
    if instance.disable_api_stop:
        message = f"The instance '{instance.id}' may not be stopped. Modify its 'disableApiStop' instance attribute."
        raise EC2ClientError("OperationNotPermitted", message)
