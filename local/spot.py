"""Spot requests as EC2 keeps them: one for each spot instance, following it through stop, start and terminate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.spot_requests import SpotInstanceRequest, SpotRequestBackend
from moto.ec2.utils import random_spot_request_id

from local.calls import current_request
from local.patching import replace

_log = logging.getLogger("local.spot")
_PERSISTENT = "persistent"
_MARKET = "InstanceMarketOptions"


class LaunchedRequest(SpotInstanceRequest):
    """The request behind a spot instance that RunInstances launched; `launch` repeats that launch."""

    def __init__(self, instance: Any, kind: str, created_at: datetime, launch: Callable[[], Any]) -> None:
        self._first: Any = instance
        self._launch = launch
        self._created_at = created_at
        super().__init__(
            instance.ec2_backend,
            random_spot_request_id(),
            price="",
            image_id=instance.image_id,
            spot_instance_type=kind,
            valid_from=None,
            valid_until=None,
            launch_group=None,
            availability_zone_group=None,
            key_name=instance.key_name,
            security_groups=[group.id for group in instance.security_groups],
            user_data=None,
            instance_type=instance.instance_type,
            placement=instance.placement.zone,
            kernel_id=None,
            ramdisk_id=None,
            monitoring_enabled=False,
            subnet_id=instance.subnet_id,
            tags={},
            spot_fleet_id=None,
            instance_interruption_behaviour="stop" if kind == _PERSISTENT else "terminate",
        )

    @property
    def create_time(self) -> str:
        """ISO time of the launch."""
        return self._created_at.strftime("%Y-%m-%dT%H:%M:%S.000Z")

    def launch_instance(self) -> Any:
        """The instance that is there already, then another one each time the request is open again."""
        instance, self._first = self._first, None
        if instance is None:
            instance = self._launch()
        instance.spot_instance_request_id = self.id
        return instance


class SpotRequests:
    """Called by `InstanceEvents` at each change of an instance."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._launch_of_moto = replace(SpotInstanceRequest, "launch_instance", ("self",), self._linking_launcher())
        self._filter_of_moto = replace(
            SpotInstanceRequest, "get_filter_value", ("self", "filter_name", "method_name"), self._filter_reader()
        )
        replace(SpotRequestBackend, "cancel_spot_instance_requests", ("self", "request_ids"), cancel)

    def launched(self, instances: Sequence[Any], arguments: Mapping[str, Any], launch: Callable[[], Any]) -> None:
        """Set the purchase option of new instances, and give each spot instance its request."""
        if arguments.get("instance_market_options") == "capacity-block":
            for instance in instances:
                instance.lifecycle = "capacity-block"
        if "spot_fleet_id" in arguments:
            return  # launched by a request that moto keeps itself
        for instance in instances:
            if instance.lifecycle == "spot":
                request = LaunchedRequest(instance, _wanted_kind(arguments), self._now(), launch)
                instance.ec2_backend.spot_instance_requests[request.id] = request

    def changed(self, instance: Any, state: str) -> None:
        """Follow an instance into `running`, `stopped` or `terminated`; an open request launches its successor."""
        request = request_of(instance)
        if request is None or request.instance is not instance or request.state == "cancelled":
            return
        if state == "stopped":
            _set_state(request, "disabled", "instance-stopped-by-user")
        elif state == "running":
            _set_state(request, "active", "fulfilled")
        elif request.type == _PERSISTENT:
            _set_state(request, "open", "pending-evaluation")
            self._fulfil(request)
        else:
            _set_state(request, "closed", "instance-terminated-by-user")

    def fulfil_open(self, backend: Any) -> None:
        """Launch again for requests that found no capacity before."""
        for request in [one for one in backend.spot_instance_requests.values() if one.state == "open"]:
            self._fulfil(request)

    def _fulfil(self, request: Any) -> None:
        try:
            request.instance = request.launch_instance()
        except EC2ClientError as error:
            _log.warning("spot request %s stays open: %s", request.id, error)
            _set_state(request, "open", "capacity-not-available")
        else:
            _set_state(request, "active", "fulfilled")

    def _linking_launcher(self) -> Callable[[Any], Any]:
        def launch_instance(request: Any) -> Any:
            instance = self._launch_of_moto(request)
            instance.spot_instance_request_id = request.id
            return instance

        return launch_instance

    def _filter_reader(self) -> Callable[..., Any]:
        def get_filter_value(request: Any, filter_name: str, method_name: str | None = None) -> Any:
            if filter_name in ("type", "instance-id"):
                return request.type if filter_name == "type" else request.instance.id
            return self._filter_of_moto(request, filter_name, method_name)

        return get_filter_value


def request_of(instance: Any) -> Any:
    """The spot request of an instance, or None."""
    return instance.ec2_backend.spot_instance_requests.get(getattr(instance, "spot_instance_request_id", ""))


def cancel(backend: Any, request_ids: list[str]) -> list[Any]:
    """Cancel requests; their instances go on, and the requests stay visible. One unknown id fails the whole call."""
    requests = backend.spot_instance_requests
    for request_id in request_ids:
        if request_id not in requests:
            message = f"The spot instance request ID '{request_id}' does not exist"
            raise EC2ClientError("InvalidSpotInstanceRequestID.NotFound", message)
    for request_id in request_ids:
        request = requests[request_id]
        is_there = request.state != "open" and request.instance.state != "terminated"
        code = "request-canceled-and-instance-running" if is_there else "canceled-before-fulfillment"
        _set_state(request, "cancelled", code)
    return [requests[request_id] for request_id in request_ids]


def refuse_spot_stop(instance: Any) -> None:
    """Raise EC2's own error for a spot instance that cannot be stopped: only active persistent requests allow it."""
    request = request_of(instance)
    if request is None or request.type != _PERSISTENT:
        message = (
            f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time Spot Instance "
            "request. You can only stop Spot Instances associated with persistent Spot Instance requests."
        )
        raise EC2ClientError("UnsupportedOperation", message)
    if request.state not in ("active", "disabled"):
        raise _unfit_request(instance, "stop")


def refuse_spot_start(instance: Any) -> None:
    """Raise EC2's own error for a spot instance whose request is gone."""
    request = request_of(instance)
    if request is None or request.state not in ("active", "disabled"):
        raise _unfit_request(instance, "start")


def _unfit_request(instance: Any, verb: str) -> EC2ClientError:
    message = (
        f"You can't {verb} the Spot Instance '{instance.id}' because the associated Spot Instance request is not in an "
        f"appropriate state to support {verb}."
    )
    return EC2ClientError("IncorrectSpotRequestState", message)


def _set_state(request: Any, state: str, status_code: str) -> None:
    request.state = state
    request._status_code = status_code


def _wanted_kind(arguments: Mapping[str, Any]) -> str:
    """`persistent` or `one-time`, as the launch asks for; moto does not read it from the request."""
    request = current_request()
    asked = request.parameters.get(f"{_MARKET}.SpotOptions.SpotInstanceType") if request else None
    return str(arguments.get("spot_type") or (asked[0] if asked else "one-time"))
