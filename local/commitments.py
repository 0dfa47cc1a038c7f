"""Reserved instances and capacity reservations: lists that a test sets, described as EC2 describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import botocore.session
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response
from moto.ec2.responses.reserved_instances import ReservedInstances

from local.calls import current_request
from local.moto_bridge import Moto
from local.patching import add, replace

_SHAPES = {"reserved": "ReservedInstances", "capacity": "CapacityReservation"}
_TARGET = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"


class Commitments:
    """Keeps both lists by Region."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto
        model = botocore.session.get_session().get_service_model("ec2")
        self._fields = {kind: _fields_of(model, shape) for kind, shape in _SHAPES.items()}
        self._lists: dict[tuple[str, str], list[dict[str, Any]]] = {}
        replace(ReservedInstances, "describe_reserved_instances", ("self",), lambda one: self._describe_reserved(one))
        add(EC2Response, "describe_capacity_reservations", lambda one: self._describe_capacity(one))

    def set(self, kind: str, region: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Replace the list of a kind (`reserved`, `capacity`). Raises ValueError for a field that EC2 does not have."""
        for item in items:
            if unknown := sorted(set(item) - self._fields[kind]):
                raise ValueError(f"{_SHAPES[kind]} has no {', '.join(unknown)}")
        self._lists[kind, region] = [{"State": "active", **item} for item in items]

    def clear(self) -> None:
        """Empty both lists everywhere."""
        self._lists.clear()

    def _describe_reserved(self, response: Any) -> ActionResult:
        ids = response._get_param("ReservedInstancesIds", [])
        found = self._find("reserved", response, "ReservedInstancesId", ids)
        return ActionResult({"ReservedInstances": found})

    def _describe_capacity(self, response: Any) -> ActionResult:
        ids = response._get_param("CapacityReservationIds", [])
        found = self._find("capacity", response, "CapacityReservationId", ids)
        return ActionResult({"CapacityReservations": [self._with_free_places(response.region, one) for one in found]})

    def _find(self, kind: str, response: Any, key: str, ids: Sequence[str]) -> list[dict[str, Any]]:
        items = self._lists.get((kind, response.region), [])
        for name, values in response._filters_from_querystring().items():
            field = "".join(word.capitalize() for word in name.split("-"))
            if field not in self._fields[kind]:
                raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
            items = [one for one in items if str(one.get(field)) in values]
        return [one for one in items if not ids or one[key] in ids]

    def _with_free_places(self, region: str, item: Mapping[str, Any]) -> dict[str, Any]:
        """Places that no running instance takes, unless the test said how many."""
        used = sum(
            getattr(one, "capacity_reservation_id", None) == item["CapacityReservationId"] and one.state == "running"
            for reservation in self._moto.ec2(region).reservations.values()
            for one in reservation.instances
        )
        return {"AvailableInstanceCount": max(0, item.get("TotalInstanceCount", 0) - used), **item}


def _fields_of(model: Any, shape: str) -> frozenset[str]:
    return frozenset(model.shape_for(shape).members)


def place_in_reservation(instances: Sequence[Any], arguments: Mapping[str, Any]) -> None:
    """Note the capacity reservation that a launch names; moto does not read it from the request."""
    request = current_request()
    asked = request.parameters.get(_TARGET) if request else None
    reservation_id = arguments.get("capacity_reservation_id") or (asked[0] if asked else None)
    for instance in instances:
        instance.capacity_reservation_id = reservation_id
