"""Role enforcement on demand, with the instance and group tags that the emulator does not know evaluated too."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from local.calls import current_request
from local.clock import wall_time_seconds
from local.commands import document_arn, target_ids
from local.emulator import Emulator
from local.moto_bridge import Moto
from local.options import LOOPBACK
from local.patching import replace

# Calls that AWS authorises on each instance they name.
_INSTANCE_ACTIONS = frozenset(
    f"ec2:{name}"
    for name in (
        "CreateTags",
        "DeleteTags",
        "ModifyInstanceAttribute",
        "RebootInstances",
        "StartInstances",
        "StopInstances",
        "TerminateInstances",
    )
)
_GROUP_ACTIONS = frozenset(
    f"autoscaling:{name}"
    for name in (
        "DetachInstances",
        "EnterStandby",
        "ExitStandby",
        "ResumeProcesses",
        "SetDesiredCapacity",
        "SetInstanceProtection",
        "SuspendProcesses",
        "TerminateInstanceInAutoScalingGroup",
        "UpdateAutoScalingGroup",
    )
)
_GROUP_TAG_ACTIONS = ("autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags")
_caller_key: contextvars.ContextVar[str | None] = contextvars.ContextVar("_caller_key", default=None)


class Roles:
    """Wraps the emulator's policy check: one check per instance, group or request, with its tags as condition keys."""

    def __init__(self, emulator: Emulator, moto: Moto, account_id: str) -> None:
        self._app = emulator.app
        self._moto = moto
        self._account_id = account_id
        self._enforce = replace(
            emulator.iam_evaluator,
            "enforce",
            ("access_key_id", "iam_action", "service", "region", "resource_arn", "service_context"),
            self._enforce_on_tagged,
        )
        self._time_failure = replace(
            emulator.sigv4, "request_time_failure", ("signature", "now"), self._check_time_by_wall_clock
        )

        self._pin_origin = replace(
            emulator.app, "pin_request_origin", ("source_ip", "secure_transport"), self._pin_secure_origin
        )
        emulator.iam_evaluator._request_origin = contextvars.ContextVar("origin", default=(LOOPBACK, True))

    @property
    def are_enforced(self) -> bool:
        """Whether callers' policies are evaluated now."""
        return bool(self._app.AUTH)

    def enforce(self, on: bool) -> None:
        """Switch the evaluation on (after the deploy) or off. Functions get their role's credentials with it."""
        self._app.AUTH = on

    def _pin_secure_origin(self, source_ip: str, secure_transport: bool) -> None:
        """Loopback has no TLS; it counts as secure, so that policies which demand it mean what they mean on AWS."""
        self._pin_origin(source_ip, True)

    def _enforce_on_tagged(
        self,
        access_key_id: str,
        iam_action: str,
        service: str,
        region: str,
        resource_arn: str = "*",
        service_context: Mapping[str, Any] | None = None,
    ) -> Any:
        _caller_key.set(access_key_id)
        resources = self._tagged_resources(iam_action, region)
        if not resources:
            return self._enforce(access_key_id, iam_action, service, region, resource_arn, service_context)
        for arn, tags in resources:
            context = {**(service_context or {}), **_tag_keys(service, tags)}
            denied = self._enforce(access_key_id, iam_action, service, region, arn, context)
            if denied:
                return denied
        return None

    def _tagged_resources(self, action: str, region: str) -> list[tuple[str, dict[str, str]]]:
        request = current_request()
        if request is None:
            return []
        if action in _INSTANCE_ACTIONS:
            return [self._instance(region, one) for one in _listed_ids(request.parameters)]
        if action in _GROUP_ACTIONS:
            return self._group(region, request.parameters)
        if action in _GROUP_TAG_ACTIONS:
            return self._groups(region, _values(request.parameters, ("Tags", "ResourceId")))
        if action == "ec2:CancelSpotInstanceRequests":
            return [self._spot_request(region, one) for one in _values(request.parameters, ("SpotInstanceRequestId",))]
        if action == "ssm:SendCommand":
            data = json.loads(request.body)
            document = document_arn(str(data.get("DocumentName")), region, self._account_id)
            return [(document, {}), *(self._instance(region, one) for one in target_ids(data))]
        return []

    def caller_may_use_key(self, region: str, key: str) -> bool:
        """Whether the caller of the request being served may give EC2 a grant on a key; anybody may unenforced."""
        access_key_id = _caller_key.get()
        if not self.are_enforced or access_key_id is None:
            return True
        arn = key if key.startswith("arn:") else f"arn:aws:kms:{region}:{self._account_id}:key/{key}"
        context = {"kms:ViaService": f"ec2.{region}.amazonaws.com", "kms:GrantIsForAWSResource": "true"}
        return not self._enforce(access_key_id, "kms:CreateGrant", "kms", region, arn, context)

    def _instance(self, region: str, instance_id: str) -> tuple[str, dict[str, str]]:
        arn = f"arn:aws:ec2:{region}:{self._account_id}:instance/{instance_id}"
        with self._moto.lock:
            found = self._moto.ec2(region).get_instance_by_id(instance_id)
            return arn, {tag["key"]: tag["value"] for tag in found.get_tags()} if found else {}

    def _spot_request(self, region: str, request_id: str) -> tuple[str, dict[str, str]]:
        arn = f"arn:aws:ec2:{region}:{self._account_id}:spot-instances-request/{request_id}"
        with self._moto.lock:
            found = self._moto.ec2(region).spot_instance_requests.get(request_id)
            return arn, {tag["key"]: tag["value"] for tag in found.get_tags()} if found else {}

    def _group(self, region: str, parameters: Mapping[str, list[str]]) -> list[tuple[str, dict[str, str]]]:
        named = parameters.get("AutoScalingGroupName")
        return self._groups(region, named or self._groups_of(region, set(parameters.get("InstanceId") or [])))

    def _groups_of(self, region: str, instance_ids: set[str]) -> list[str]:
        with self._moto.lock:
            groups = self._moto.autoscaling(region).autoscaling_groups
            return [
                name
                for name, group in groups.items()
                if {state.instance.id for state in group.instance_states} & instance_ids
            ]

    def _groups(self, region: str, names: Iterable[str]) -> list[tuple[str, dict[str, str]]]:
        with self._moto.lock:
            groups = self._moto.autoscaling(region).autoscaling_groups
            return [
                (groups[name].arn, {tag["Key"]: tag["Value"] for tag in groups[name].tags})
                for name in dict.fromkeys(names)
                if name in groups
            ]

    def _check_time_by_wall_clock(self, signature: Any, *, now: datetime | None = None) -> Any:
        """Callers sign with the machine's clock, whatever the virtual clock says."""
        return self._time_failure(signature, now=now or datetime.fromtimestamp(wall_time_seconds(), UTC))


def _tag_keys(service: str, tags: Mapping[str, str]) -> dict[str, str]:
    keys = {f"aws:ResourceTag/{name}": value for name, value in tags.items()}
    return {**keys, **{f"{service}:ResourceTag/{name}": value for name, value in tags.items()}}


def _listed_ids(parameters: Mapping[str, list[str]]) -> list[str]:
    """Instance ids of an EC2 request: InstanceId, InstanceId.1, ... or the ResourceId list of the tag calls."""
    listed = _values(parameters, ("InstanceId",)) + _values(parameters, ("ResourceId",))
    return [one for one in listed if one.startswith("i-")]


def _values(parameters: Mapping[str, list[str]], words: tuple[str, ...]) -> list[str]:
    """Values of a query parameter by its words without numbers: (Tags, ResourceId) is Tags.member.1.ResourceId."""
    return [
        values[0]
        for name, values in sorted(parameters.items())
        if tuple(word for word in name.split(".") if word != "member" and not word.isdigit()) == words
    ]
