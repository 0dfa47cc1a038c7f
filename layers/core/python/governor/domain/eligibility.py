"""Whether an instance may be stopped, and how: the one rule for the decision and for the moment before the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from governor.domain.controls import Controls, Override, parse_keep
from governor.domain.decisions import StopMethod
from governor.domain.fleet import Group, Instance, InstanceKind, InstanceState, SpotKind
from governor.domain.pause import Pause
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.settings import BudgetSettings, GroupAction, Switch
from governor.domain.tags import Criticality, TagFinding

IN_SERVICE = "InService"
STANDBY = "Standby"

_SAVES_NOTHING: Mapping[InstanceKind, str] = {
    InstanceKind.CAPACITY_BLOCK: "its Capacity Block is paid in advance",
    InstanceKind.CAPACITY_RESERVATION: "its capacity reservation {owner} is billed whether it is used or not",
    InstanceKind.DEDICATED: "its dedicated host is billed whether it is used or not",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rule needs beside the instance itself: settings, what people hold, and the groups with their members.

    `spent_usd` is this month's spend (None: unknown); `members` are instances by id, members of groups among them.
    """

    settings: BudgetSettings
    controls: Controls
    now: datetime
    spent_usd: float | None = None
    groups: Mapping[tuple[str, str], Group] = field(default_factory=dict)
    """(Region, name) -> group."""
    members: Mapping[str, Instance] = field(default_factory=dict)


def groups_by_key(groups: Iterable[Group]) -> dict[tuple[str, str], Group]:
    """Groups as `Surroundings` wants them."""
    return {(group.region, group.name): group for group in groups}


def method_of(instance: Instance, settings: BudgetSettings) -> StopMethod:
    """How an instance that may be stopped is stopped."""
    if instance.kind is InstanceKind.GROUP_MEMBER:
        if settings.group_action is GroupAction.LOWER:
            return StopMethod.LOWER
        # One that stands in standby already needs only the stop.
        return StopMethod.STOP if instance.member_state == STANDBY else StopMethod.STANDBY_AND_STOP
    if instance.spot is not None and not instance.spot.stoppable:
        return StopMethod.CANCEL_AND_TERMINATE
    return StopMethod.STOP


def objection_to(instance: Instance, around: Surroundings) -> Reason | None:
    """Why an instance may not be stopped, or None. The first reason that applies, most important first. Total."""
    return (
        _objection_of_tags(instance)
        or _objection_of_scope(instance, around.settings)
        or _objection_of_kind(instance, around)
        or _objection_of_people(instance, around)
    )


def _objection_of_tags(instance: Instance) -> Reason | None:
    governance = instance.governance
    if not governance.managed:
        return because(ReasonCode.NOT_MANAGED)
    if governance.criticality is Criticality.CRITICAL:
        unread = [f for f in governance.findings if f is not TagFinding.MANAGED_NOT_EXACT]
        finding = f" ({', '.join(unread)})" if unread else ""
        return because(ReasonCode.CRITICAL, finding=finding)
    return None


def _objection_of_scope(instance: Instance, settings: BudgetSettings) -> Reason | None:
    if instance.state is not InstanceState.RUNNING:
        return because(ReasonCode.NOT_RUNNING, state=instance.state.value)
    if instance.family not in settings.stop_families:
        return because(ReasonCode.OUT_OF_SCOPE_FAMILY, family=instance.family)
    if not instance.governance.exact:
        return because(ReasonCode.TAG_NOT_EXACT, finding=", ".join(instance.governance.findings))
    if settings.stop_tags and not set(settings.stop_tags) & set(instance.tags):
        return because(ReasonCode.OUT_OF_SCOPE_TAGS)
    if instance.launched_at is None:
        return because(ReasonCode.NOT_RUNNING, state="of unknown launch time")
    return None


def _objection_of_kind(instance: Instance, around: Surroundings) -> Reason | None:
    kind = instance.kind
    if kind is InstanceKind.CLUSTER_MEMBER:
        return because(ReasonCode.OWNED_ELSEWHERE, owner=instance.owner)
    if kind in _SAVES_NOTHING:
        return because(ReasonCode.SAVES_NOTHING, why=_SAVES_NOTHING[kind].format(owner=instance.owner))
    if kind is InstanceKind.INSTANCE_STORE_ROOT:
        return because(ReasonCode.CANNOT_STOP, why="its root volume is an instance store")
    if kind is InstanceKind.UNKNOWN:
        return because(ReasonCode.CANNOT_STOP, why="EC2 says nothing of it that this version knows")
    if kind is InstanceKind.STOP_PROTECTED or instance.stop_protected:
        return because(ReasonCode.STOP_PROTECTED)
    if kind is InstanceKind.GROUP_MEMBER:
        return _objection_of_group(instance, around)
    if kind is InstanceKind.SPOT:
        return _objection_of_spot(instance, around.settings)
    return None


def _objection_of_spot(instance: Instance, settings: BudgetSettings) -> Reason | None:
    request = instance.spot
    if request is None or request.kind is SpotKind.UNKNOWN:
        return because(ReasonCode.SPOT_UNKNOWN, why="unreadable")
    if request.stoppable:
        return None
    if request.kind is SpotKind.PERSISTENT:
        return because(ReasonCode.SPOT_UNKNOWN, why="its persistent request is not active, or of a launch group")
    if settings.terminate_one_time_spot is Switch.ON:
        return None
    return because(ReasonCode.SPOT_ONE_TIME)


def _objection_of_group(instance: Instance, around: Surroundings) -> Reason | None:
    name = instance.owner
    if around.settings.group_action is GroupAction.REPORT:
        return because(ReasonCode.GROUP_REPORT, group=name)
    group = around.groups.get((instance.region, name))
    if group is None:
        return because(ReasonCode.GROUP_UNKNOWN, group=name)
    critical = _critical_member(group, around.members)
    if critical:
        return because(ReasonCode.GROUP_CRITICAL, group=name, who=critical)
    if not group.governance.stoppable:
        return because(ReasonCode.GROUP_NOT_MANAGED, group=name)
    if group.scales_itself:
        return because(ReasonCode.GROUP_SCALES_ITSELF, group=name, what=", ".join(group.scales_itself))
    lowers = around.settings.group_action is GroupAction.LOWER
    if instance.spot is not None and not lowers:
        why = "it is a spot member of an Auto Scaling group; budget/group-action lower could take it out"
        return because(ReasonCode.CANNOT_STOP, why=why)
    state = instance.member_state or group.state_of(instance.instance_id)
    if state not in ((IN_SERVICE,) if lowers else (IN_SERVICE, STANDBY)):
        return because(ReasonCode.MEMBER_NOT_IN_SERVICE, group=name, state=state or "of unknown state")
    return None


def _critical_member(group: Group, members: Mapping[str, Instance]) -> str:
    """A member that is critical, does not say that it is not, or cannot be seen; an empty text where there is none."""
    for instance_id, state in group.members:
        if state.startswith("Terminat"):
            continue
        member = members.get(instance_id)
        if member is None:
            return f"{instance_id}, of which nothing is known"
        if member.governance.criticality is Criticality.CRITICAL:
            return instance_id
    return ""


def _objection_of_people(instance: Instance, around: Surroundings) -> Reason | None:
    keep = around.controls.keep_of(instance.instance_id, around.now)
    if keep is None and instance.governance.keep is not None:
        tagged = parse_keep(instance.instance_id, instance.governance.keep)
        keep = tagged if tagged.holds(around.now) else None
    if keep is not None and not keep.readable:
        return because(ReasonCode.KEEP_UNREADABLE, why=keep.reason)
    if keep is not None:
        return because(ReasonCode.KEPT, until=_until(keep.until), why=_why(keep.reason))
    project = instance.governance.project
    override = around.controls.override_of(instance.instance_id, project, around.now, around.spent_usd)
    return None if override is None else overridden(override)


def overridden(override: Override) -> Reason:
    """The reason that an override is."""
    if not override.readable:
        return because(ReasonCode.OVERRIDE_UNREADABLE, why=override.reason)
    scope = "the budget" if override.scope == "budget" else f"{override.scope} {override.subject}"
    up_to = "" if override.up_to_usd is None else f" up to {override.up_to_usd:.2f} USD"
    return because(
        ReasonCode.OVERRIDDEN, scope=scope, until=_until(override.until), up_to=up_to, why=_why(override.reason)
    )


def paused(pause: Pause) -> Reason:
    """The reason that an active pause is."""
    if not pause.readable:
        return because(ReasonCode.PAUSE_UNREADABLE, why=pause.reason)
    return because(ReasonCode.PAUSED, until=_until(pause.until), why=_why(pause.reason))


def _until(moment: datetime | None) -> str:
    return "" if moment is None else f" until {moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _why(text: str) -> str:
    return f": {text}" if text else ""
