"""CloudFormation types that the emulator lacks, and the EC2 and Auto Scaling types led to moto."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import moto.autoscaling.models
import moto.ec2.models  # noqa: F401 - registers the EC2 resource classes
from moto.core.common_models import CloudFormationModel

from local.budget_actions import BudgetActions
from local.emulator import Emulator
from local.moto_bridge import Moto
from local.patching import relied_on

Properties = Mapping[str, Any]
Provisioned = tuple[str, dict[str, Any]]

# What a template may read with Fn::GetAtt from a resource that moto made.
_ATTRIBUTES = {
    "Arn": "arn",
    "AvailabilityZone": "availability_zone",
    "CidrBlock": "cidr_block",
    "DefaultVersionNumber": "default_version_number",
    "GroupId": "group_id",
    "InternetGatewayId": "id",
    "LatestVersionNumber": "latest_version_number",
    "LaunchTemplateId": "id",
    "RouteTableId": "id",
    "SubnetId": "id",
    "VpcId": "vpc_id",
}
_NAME_PROPERTIES = {
    "AWS::AutoScaling::AutoScalingGroup": "AutoScalingGroupName",
    "AWS::AutoScaling::LaunchConfiguration": "LaunchConfigurationName",
    "AWS::EC2::LaunchTemplate": "LaunchTemplateName",
}
MATH_METRIC = "local-math"


class ResourceFailedError(ValueError):
    """A resource could not be made; CloudFormation reports the text and rolls back."""


class ResourceTypes:
    """Registers the types with the emulator's CloudFormation."""

    def __init__(self, emulator: Emulator, moto_bridge: Moto, budget_actions: BudgetActions, account_id: str) -> None:
        self._emulator = emulator
        self._budget_actions = budget_actions
        self._moto = moto_bridge
        self._account_id = account_id
        self._objects: dict[str, Any] = {}
        provisioners = emulator.provisioners
        self._region = relied_on(emulator.responses, "get_region", ())
        self._physical_name = relied_on(
            provisioners, "_physical_name", ("stack_name", "logical_id", "lowercase", "max_len", "seeded")
        )
        self._create_budget = relied_on(emulator.budgets, "_create_budget", ("data",))
        self._update_budget = relied_on(emulator.budgets, "_update_budget", ("data",))
        self._delete_budget = relied_on(emulator.budgets, "_delete_budget", ("data",))
        self._put_composite = relied_on(
            emulator.cloudwatch, "_put_composite_alarm", ("params", "cbor_data", "is_cbor", "is_json")
        )
        self._put_alarm = relied_on(provisioners, "_cw_metric_alarm_put", ("name", "props"))
        self.math_metrics: dict[str, list[dict[str, Any]]] = {}
        self._register()

    def _register(self) -> None:
        handlers = self._emulator.provisioners._RESOURCE_HANDLERS
        for resource_type, model in sorted(_moto_models().items(), key=lambda one: one[0]):
            handlers[resource_type] = self._moto_handlers(resource_type, model)
        handlers["AWS::AutoScaling::LifecycleHook"] = {"create": self._make_hook, "delete": self._remove_hook}
        handlers["AWS::AutoScaling::WarmPool"] = {"create": self._make_warm_pool, "delete": self._remove_warm_pool}
        handlers["AWS::Budgets::Budget"] = {
            "create": self._make_budget,
            "update": self._change_budget,
            "update_with_logical_id": True,
            "delete": self._remove_budget,
        }
        handlers["AWS::Budgets::BudgetsAction"] = {
            "create": self._make_budget_action,
            "update": self._change_budget_action,
            "update_with_logical_id": True,
            "delete": self._remove_budget_action,
        }
        handlers["AWS::CloudWatch::CompositeAlarm"] = {
            "create": self._make_composite_alarm,
            "delete": self._remove_composite_alarm,
        }
        alarm = dict(handlers["AWS::CloudWatch::Alarm"])
        self._create_alarm, self._update_alarm = alarm["create"], alarm["update"]
        handlers["AWS::CloudWatch::Alarm"] = {**alarm, "create": self._make_alarm, "update": self._change_alarm}

    # EC2 and Auto Scaling

    def _moto_handlers(self, resource_type: str, model: Any) -> dict[str, Callable[..., Any]]:
        def create(logical_id: str, properties: Properties, stack: str) -> Provisioned:
            wanted = properties.get(_NAME_PROPERTIES.get(resource_type, ""))
            name = wanted or self._physical_name(stack, logical_id, max_len=128)
            document = {"Properties": dict(properties), "Type": resource_type, "LogicalId": logical_id}
            with self._moto.lock:
                made = model.create_from_cloudformation_json(name, document, self._account_id, self._region())
            physical_id = str(getattr(made, "physical_resource_id", None) or name)
            self._objects[physical_id] = made
            return physical_id, _attributes_of(made)

        def update(physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
            document = {"Properties": dict(new), "Type": resource_type}
            with self._moto.lock:
                made = model.update_from_cloudformation_json(
                    self._objects[physical_id], physical_id, document, self._account_id, self._region()
                )
            self._objects[physical_id] = made or self._objects[physical_id]
            return physical_id, _attributes_of(self._objects[physical_id])

        def delete(physical_id: str, properties: Properties) -> None:
            document = {"Properties": dict(properties), "Type": resource_type}
            with self._moto.lock:
                model.delete_from_cloudformation_json(physical_id, document, self._account_id, self._region())
            self._objects.pop(physical_id, None)

        return {"create": create, "update": update, "delete": delete}

    def _make_hook(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        name = properties.get("LifecycleHookName") or self._physical_name(stack, logical_id, max_len=255)
        with self._moto.lock:
            self._groups().create_lifecycle_hook(
                name=name,
                as_name=properties["AutoScalingGroupName"],
                transition=properties["LifecycleTransition"],
                timeout=properties.get("HeartbeatTimeout"),
                result=properties.get("DefaultResult") or "ABANDON",
            )
        return name, {}

    def _remove_hook(self, physical_id: str, properties: Properties) -> None:
        with self._moto.lock:
            self._groups().delete_lifecycle_hook(properties["AutoScalingGroupName"], physical_id)

    def _make_warm_pool(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        group = properties["AutoScalingGroupName"]
        with self._moto.lock:
            self._groups().put_warm_pool(
                group,
                properties.get("MaxGroupPreparedCapacity"),
                properties.get("MinSize"),
                properties.get("PoolState"),
                properties.get("InstanceReusePolicy"),
            )
        return group, {}

    def _remove_warm_pool(self, physical_id: str, properties: Properties) -> None:
        with self._moto.lock:
            self._groups().delete_warm_pool(physical_id)

    def _groups(self) -> Any:
        return self._moto.autoscaling(self._region())

    # Budgets

    def _make_budget(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        budget = _budget_of(properties)
        name = budget.setdefault("BudgetName", f"{stack}-{logical_id}-{uuid.uuid4().hex[:12]}"[:100])
        _require_ok(
            self._create_budget(
                {
                    "AccountId": self._account_id,
                    "Budget": budget,
                    "NotificationsWithSubscribers": _plain(properties.get("NotificationsWithSubscribers") or []),
                    "ResourceTags": _plain(properties.get("ResourceTags") or []),
                }
            )
        )
        return name, {"Id": name}

    def _change_budget(
        self, physical_id: str, old: Properties, new: Properties, stack: str, logical_id: str
    ) -> Provisioned:
        """Notifications and the name replace the budget, as on AWS; the rest is changed in place."""
        if _replaces_budget(old, new):
            return self._make_budget(logical_id, new, stack)
        budget = {**_budget_of(new), "BudgetName": physical_id}
        _require_ok(self._update_budget({"AccountId": self._account_id, "NewBudget": budget}))
        return physical_id, {"Id": physical_id}

    def _remove_budget(self, physical_id: str, properties: Properties) -> None:
        _require_ok(self._delete_budget({"AccountId": self._account_id, "BudgetName": physical_id}))

    def _make_budget_action(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        answer = self._budget_actions.create({"AccountId": self._account_id, **_action_of(properties)})
        _require_ok(answer)
        action_id = str(json.loads(answer[2])["ActionId"])
        return f"{action_id}|{properties['BudgetName']}", {"ActionId": action_id}

    def _change_budget_action(
        self, physical_id: str, old: Properties, new: Properties, stack: str, logical_id: str
    ) -> Provisioned:
        """Another budget or kind replaces the action, as on AWS; the rest is changed in place."""
        if any(old[name] != new[name] for name in ("BudgetName", "ActionType")):
            return self._make_budget_action(logical_id, new, stack)
        action_id = physical_id.partition("|")[0]
        self._budget_actions.change(action_id, _action_of(new))
        return physical_id, {"ActionId": action_id}

    def _remove_budget_action(self, physical_id: str, properties: Properties) -> None:
        self._budget_actions.remove(physical_id.partition("|")[0])

    # CloudWatch

    def _make_composite_alarm(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        name = properties.get("AlarmName") or self._physical_name(stack, logical_id, max_len=255)
        _require_ok(self._put_composite({}, {**properties, "AlarmName": name}, False, True))
        return name, {"Arn": f"arn:aws:cloudwatch:{self._region()}:{self._account_id}:alarm:{name}"}

    def _remove_composite_alarm(self, physical_id: str, properties: Properties) -> None:
        self._emulator.cloudwatch._composite_alarms.pop(physical_id, None)

    def _make_alarm(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        plain, metrics = _without_math(properties)
        physical_id, attributes = self._create_alarm(logical_id, plain, stack)
        self._keep_math(physical_id, metrics)
        return physical_id, attributes

    def _change_alarm(
        self, physical_id: str, old: Properties, new: Properties, stack: str, logical_id: str | None = None
    ) -> Provisioned:
        plain_old, _ = _without_math(old)
        plain, metrics = _without_math(new)
        new_id, attributes = self._update_alarm(physical_id, plain_old, plain, stack, logical_id)
        self._keep_math(new_id, metrics)
        return new_id, attributes

    def _keep_math(self, name: str, metrics: list[dict[str, Any]] | None) -> None:
        if metrics is None:
            self.math_metrics.pop(name, None)
        else:
            self.math_metrics[name] = metrics


def _moto_models() -> dict[str, Any]:
    models: dict[str, Any] = {}
    for model in _subclasses(CloudFormationModel):
        try:
            resource_type = model.cloudformation_type()
        except NotImplementedError:
            continue
        if resource_type.startswith(("AWS::EC2::", "AWS::AutoScaling::")):
            models[resource_type] = model
    return models


def _subclasses(parent: Any) -> Iterator[Any]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


def _attributes_of(made: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute, field in _ATTRIBUTES.items():
        value = getattr(made, field, None)
        if value is not None and not callable(value):
            found[attribute] = str(value)
    return found


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _budget_of(properties: Properties) -> dict[str, Any]:
    """The budget in the form the Budgets API keeps it: amounts are strings there."""
    budget: dict[str, Any] = _plain(properties["Budget"])
    if "BudgetLimit" in budget:
        limit = budget["BudgetLimit"]
        budget["BudgetLimit"] = {"Amount": str(limit["Amount"]), "Unit": limit["Unit"]}
    return budget


def _action_of(properties: Properties) -> dict[str, Any]:
    """The action in the words of the Budgets API, which differ from the template's."""
    action: dict[str, Any] = _plain(properties)
    threshold = action["ActionThreshold"]
    action["ActionThreshold"] = {
        "ActionThresholdType": threshold["Type"],
        "ActionThresholdValue": float(threshold["Value"]),
    }
    action["Subscribers"] = [
        {"SubscriptionType": one["Type"], "Address": one["Address"]} for one in action.get("Subscribers") or []
    ]
    return action


def _replaces_budget(old: Properties, new: Properties) -> bool:
    names = (old["Budget"].get("BudgetName"), new["Budget"].get("BudgetName"))
    notifications = (old.get("NotificationsWithSubscribers"), new.get("NotificationsWithSubscribers"))
    return names[0] != names[1] or notifications[0] != notifications[1]


def _without_math(properties: Properties) -> tuple[dict[str, Any], list[dict[str, Any]] | None]:
    """The alarm with a stand-in for its metric expressions, and those expressions."""
    plain = dict(properties)
    metrics = plain.pop("Metrics", None)
    if metrics is not None:
        plain.update(Namespace=MATH_METRIC, MetricName=MATH_METRIC, Statistic="Average", Period=60)
    return plain, metrics


def _require_ok(answer: tuple[int, Any, Any]) -> None:
    if answer[0] != 200:
        raise ResourceFailedError(str(answer[2]))
