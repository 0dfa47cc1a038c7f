"""Bounds that Auto Scaling keeps and moto does not, and instance refreshes, which moto lacks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime
from typing import Any

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeScalingPolicy
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.moto_api._internal import mock_random

from local.patching import add, replace

_ENDED = ("Successful", "Cancelled")


class GroupRules:
    """Refuses what AWS refuses before moto does it."""

    def __init__(self) -> None:
        for name, check in (
            ("enter_standby", _check_enter_standby),
            ("exit_standby", _check_exit_standby),
            ("terminate_instance_in_auto_scaling_group", _check_terminate),
            ("set_desired_capacity", _check_desired),
        ):
            self._guard(name, check)
        self._update = replace(
            AutoScalingBackend,
            "update_auto_scaling_group",
            (
                "self",
                "name",
                "availability_zones",
                "desired_capacity",
                "max_size",
                "min_size",
                "launch_config_name",
                "launch_template",
                "vpc_zone_identifier",
                "health_check_period",
                "health_check_type",
                "new_instances_protected_from_scale_in",
                "mixed_instances_policy",
            ),
            self._updater(),
        )
        for name in ("suspend_processes", "resume_processes"):
            self._order_processes(name)
        self._put_policy = replace(AutoScalingResponse, "put_scaling_policy", ("self",), self._policy_putter())
        FakeScalingPolicy.enabled = True

    def _guard(self, name: str, check: Callable[[Any], None]) -> None:
        def call(response: Any) -> Any:
            check(response)
            return original(response)

        original = replace(AutoScalingResponse, name, ("self",), call)

    def _updater(self) -> Callable[..., Any]:
        rules = self

        def update_auto_scaling_group(backend: Any, name: str, **changes: Any) -> Any:
            """Keep what is not named: moto drops the mixed policy, and counts members in standby as capacity."""
            group = _group(backend, name)
            smallest, largest = _new_bounds(group, changes)
            desired = changes.get("desired_capacity")
            if desired is None:
                desired = min(max(group.desired_capacity, smallest), largest)
            elif not smallest <= desired <= largest:
                message = (
                    f"Desired capacity:{desired} must be between the specified min size:{smallest} "
                    f"and max size:{largest}"
                )
                raise ValidationError(message)
            changes["desired_capacity"] = desired
            changes["mixed_instances_policy"] = changes.get("mixed_instances_policy") or _mixed_policy_of(group)
            return rules._update(backend, name, **changes)

        return update_auto_scaling_group

    def _order_processes(self, name: str) -> None:
        def call(backend: Any, group_name: str, scaling_processes: list[str]) -> None:
            original(backend, group_name, scaling_processes)
            group = _group(backend, group_name)
            group.suspended_processes = sorted(one["ProcessName"] for one in group.suspended_processes)

        original = replace(AutoScalingBackend, name, ("self", "group_name", "scaling_processes"), call)

    def _policy_putter(self) -> Callable[[Any], Any]:
        rules = self

        def put_scaling_policy(response: Any) -> Any:
            answer = rules._put_policy(response)
            policy = response.autoscaling_backend.policies[response._get_param("PolicyName")]
            policy.enabled = response._get_bool_param("Enabled", True)
            return answer

        return put_scaling_policy


class InstanceRefreshes:
    """Start, describe and cancel of instance refreshes. One goes on until it is cancelled; it replaces nothing."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._refreshes: dict[tuple[str, str], list[dict[str, Any]]] = {}
        add(AutoScalingResponse, "start_instance_refresh", lambda response: self._begin(response))
        add(AutoScalingResponse, "describe_instance_refreshes", lambda response: self._describe(response))
        add(AutoScalingResponse, "cancel_instance_refresh", lambda response: self._cancel(response))

    def _of(self, response: Any) -> list[dict[str, Any]]:
        group = _group(response.autoscaling_backend, response._get_param("AutoScalingGroupName"))
        return self._refreshes.setdefault((response.region, group.name), [])

    def _begin(self, response: Any) -> ActionResult:
        refreshes = self._of(response)
        if any(one["Status"] not in _ENDED for one in refreshes):
            message = "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh."
            raise AutoscalingClientError("InstanceRefreshInProgress", message)
        refresh = {
            "InstanceRefreshId": str(mock_random.uuid4()),
            "AutoScalingGroupName": response._get_param("AutoScalingGroupName"),
            "Status": "InProgress",
            "StartTime": self._now(),
            "PercentageComplete": 0,
            "InstancesToUpdate": 1,
        }
        refreshes.insert(0, refresh)
        return ActionResult({"InstanceRefreshId": refresh["InstanceRefreshId"]})

    def _describe(self, response: Any) -> ActionResult:
        wanted = response._get_param("InstanceRefreshIds", [])
        found = [one for one in self._of(response) if not wanted or one["InstanceRefreshId"] in wanted]
        return ActionResult({"InstanceRefreshes": found})

    def _cancel(self, response: Any) -> ActionResult:
        for refresh in self._of(response):
            if refresh["Status"] not in _ENDED:
                refresh.update(Status="Cancelled", EndTime=self._now())
                return ActionResult({"InstanceRefreshId": refresh["InstanceRefreshId"]})
        message = "No in progress or pending Instance Refresh found for Auto Scaling group"
        raise AutoscalingClientError("ActiveInstanceRefreshNotFound", message)


def _check_enter_standby(response: Any) -> None:
    group, members = _named_members(response)
    for member in members:
        if member.lifecycle_state != "InService":
            raise ValidationError(f"The instance {member.instance.id} is not in InService.")
    decrements = response._get_bool_param("ShouldDecrementDesiredCapacity")
    if decrements and group.desired_capacity - len(members) < group.min_size:
        raise _sizes_error(group, f"place into standby {_instances(len(members))}")


def _check_exit_standby(response: Any) -> None:
    group, members = _named_members(response)
    for member in members:
        if member.lifecycle_state != "Standby":
            raise ValidationError(f"The instance {member.instance.id} is not in Standby.")
    if group.desired_capacity + len(members) > group.max_size:
        raise _sizes_error(group, f"move out of standby {_instances(len(members))}")


def _check_terminate(response: Any) -> None:
    instance_id = response._get_param("InstanceId")
    groups = response.autoscaling_backend.autoscaling_groups.values()
    group = next((one for one in groups if instance_id in {m.instance.id for m in one.instance_states}), None)
    if group is None:
        raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")
    decrements = response._get_bool_param("ShouldDecrementDesiredCapacity", False)
    if decrements and group.desired_capacity - 1 < group.min_size:
        message = (
            f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without replacement will "
            "violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower "
            "group's min size."
        )
        raise ValidationError(message)


def _check_desired(response: Any) -> None:
    group = _group(response.autoscaling_backend, response._get_param("AutoScalingGroupName"))
    desired = response._get_int_param("DesiredCapacity")
    for is_wrong, words in (
        (desired > group.max_size, f"is above max value {group.max_size}"),
        (desired < group.min_size, f"is below min value {group.min_size}"),
    ):
        if is_wrong:
            raise ValidationError(f"New SetDesiredCapacity value {desired} {words} for the AutoScalingGroup.")


def _named_members(response: Any) -> tuple[Any, list[Any]]:
    group = _group(response.autoscaling_backend, response._get_param("AutoScalingGroupName"))
    by_id = {member.instance.id: member for member in group.instance_states}
    members = []
    for instance_id in response._get_param("InstanceIds", []):
        if instance_id not in by_id:
            raise ValidationError(f"The instance {instance_id} is not part of Auto Scaling group {group.name}.")
        members.append(by_id[instance_id])
    return group, members


def _group(backend: Any, name: str) -> Any:
    if name not in backend.autoscaling_groups:
        raise ValidationError(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
    return backend.autoscaling_groups[name]


def _mixed_policy_of(group: Any) -> dict[str, Any] | None:
    """The policy as moto takes it: it keeps the template's id and name, and refuses both."""
    policy: dict[str, Any] | None = copy.deepcopy(group.mixed_instances_policy)
    if policy:
        policy["LaunchTemplate"]["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)
    return policy or None


def _new_bounds(group: Any, changes: dict[str, Any]) -> tuple[int, int]:
    smallest = group.min_size if changes.get("min_size") is None else changes["min_size"]
    largest = group.max_size if changes.get("max_size") is None else changes["max_size"]
    if smallest > largest:
        message = f"Max bound, {largest}, must be greater than or equal to min bound, {smallest}"
        raise ValidationError(message)
    return smallest, largest


def _sizes_error(group: Any, wish: str) -> ValidationError:
    return ValidationError(
        f"AutoScalingGroup {group.name} has min-size={group.min_size}, max-size={group.max_size}, and "
        f"desired-size={group.desired_capacity}. To {wish}, please update the AutoScalingGroup sizes appropriately."
    )


def _instances(count: int) -> str:
    return f"{count} instance" if count == 1 else f"{count} instances"
