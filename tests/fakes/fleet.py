"""Fakes of EC2 with Auto Scaling, of AWS Budgets and of the controls, with knobs for what goes wrong next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from governor.domain.budget_snapshot import BudgetReading, UnknownBudget
from governor.domain.fleet import (
    FleetSnapshot,
    Group,
    Instance,
    InstanceKind,
    InstanceState,
    ReservedInstances,
    SpotKind,
    UnknownRegion,
)
from governor.ports import CallAnswer, StopAnswer, UnreadableError
from tests.fakes.groups import FakeGroups

_STOPPABLE = (InstanceState.RUNNING, InstanceState.STOPPING, InstanceState.STOPPED)
_STARTABLE = (InstanceState.STOPPED, InstanceState.PENDING, InstanceState.RUNNING)
_ALIVE = (InstanceState.PENDING, InstanceState.RUNNING, InstanceState.STOPPING, InstanceState.STOPPED)


def _nothing(call: str) -> None:
    """The default of `before` and `after`."""


@dataclass
class FakeFleet:
    """`Fleet`, `FleetActions` and `StartActions` in memory; what takes AWS minutes happens in `settle()`.

    Instances are added as they are; `stop_protected` of an added one is what EC2 holds (None: it cannot be read), and
    is seen only where the port reads it. A member's lifecycle state is that of its group. Knobs:
    `refuse`: id, spot request or group name -> error of every changing call that names it;
    `fall_back`: id -> state reason with which an accepted start ends in `stopped` again;
    `slow_standby`: members stay `EnteringStandby` and `Pending` until `settle()`;
    `unreadable`, `unreadable_groups`: error of reading facts again, of reading groups (then missing in `observe`);
    `unknown_regions`: Regions that `observe` cannot read;
    `before`, `after`: run with the name of each changing call, before it has any effect and after, and may raise;
    `calls`: every changing call as (name, Region, ids), where a group's sizes are written `group min=1 desired=2`.
    """

    instances: dict[str, Instance] = field(default_factory=dict)
    unknown_regions: tuple[UnknownRegion, ...] = ()
    refuse: dict[str, str] = field(default_factory=dict)
    unreadable: str = ""
    unreadable_groups: str = ""
    reserved: tuple[ReservedInstances, ...] = ()
    regions: tuple[str, ...] = ()
    fall_back: dict[str, str] = field(default_factory=dict)
    slow_standby: bool = False
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    clock: Callable[[], datetime] | None = None
    calls: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    before: Callable[[str], None] = _nothing
    after: Callable[[str], None] = _nothing
    groups: FakeGroups = field(default_factory=FakeGroups)

    def add(self, *instances: Instance) -> None:
        """Put instances into the fleet, or replace those of the same id."""
        for instance in instances:
            self.instances[instance.instance_id] = instance

    def add_group(self, *groups: Group) -> None:
        """Put groups beside the fleet; their members are added by themselves."""
        for group in groups:
            self.groups.put(group)

    def group(self, name: str, region: str = "eu-west-1") -> Group:
        """A group as it is now."""
        return self.groups.get(region, name)

    # --- Fleet --------------------------------------------------------------------------------------------------------

    def observe(self) -> FleetSnapshot:
        """Everything that is not terminated, but for the Regions that cannot be read."""
        unknown = {one.region for one in self.unknown_regions}
        there = [i for i in self.instances.values() if i.state is not InstanceState.TERMINATED]
        readable = sorted((i for i in there if i.region not in unknown), key=lambda i: (i.region, i.instance_id))
        named = {(i.region, i.owner) for i in readable if i.kind is InstanceKind.GROUP_MEMBER}
        groups = () if self.unreadable_groups else tuple(g for g in self.groups if (g.region, g.name) in named)
        return FleetSnapshot(
            instances=tuple(self._seen(i, groups) for i in readable),
            unknown_regions=self.unknown_regions,
            regions=self.regions,
            groups=groups,
            reserved=tuple(one for one in self.reserved if one.region not in unknown),
        )

    def look_again(
        self, region: str, instance_ids: Sequence[str], *, protection: bool = True
    ) -> Mapping[str, Instance]:
        """Fresh facts, or the error that was asked for."""
        if self.unreadable:
            raise UnreadableError(self.unreadable)
        there = [i for i in (self.instances.get(one) for one in instance_ids) if i is not None and i.region == region]
        names = sorted({i.owner for i in there if i.kind is InstanceKind.GROUP_MEMBER})
        groups = tuple(self.look_at_groups(region, names).values()) if names else ()
        found = {i.instance_id: self._seen(i, groups) for i in there}
        if protection:
            running = [i.instance_id for i in found.values() if i.state is InstanceState.RUNNING]
            known = self.read_protection(region, [one for one in running if found[one].stop_protected is None])
            found |= {one: replace(found[one], stop_protected=value) for one, value in known.items()}
        return found

    def look_at_groups(self, region: str, names: Sequence[str]) -> Mapping[str, Group]:
        """Fresh groups, or the error that was asked for."""
        if self.unreadable or self.unreadable_groups:
            raise UnreadableError(self.unreadable or self.unreadable_groups)
        return {group.name: group for group in self.groups if group.region == region and group.name in names}

    def read_protection(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, bool | None]:
        """What the instances were added with; None for one that is not there."""
        there = {one: self.instances.get(one) for one in instance_ids}
        return {one: None if instance is None else instance.stop_protected for one, instance in there.items()}

    def _seen(self, instance: Instance, groups: Iterable[Group]) -> Instance:
        """An instance as DescribeInstances shows it, with the state that its group tells."""
        told = next((g for g in groups if (g.region, g.name) == (instance.region, instance.owner)), None)
        is_member = instance.kind is InstanceKind.GROUP_MEMBER
        member_state = told.state_of(instance.instance_id) if told is not None and is_member else ""
        cannot = instance.spot is not None or instance.kind is InstanceKind.INSTANCE_STORE_ROOT
        return replace(instance, member_state=member_state, stop_protected=False if cannot else None)

    # --- FleetActions -------------------------------------------------------------------------------------------------

    def stop(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Stop, as far as EC2 would let it."""
        return self._each("stop", region, instance_ids, self._stop_one)

    def terminate(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Terminate, as far as EC2 would let it."""
        return self._each("terminate", region, instance_ids, self._terminate_one)

    def cancel_spot_request(self, region: str, request_id: str) -> CallAnswer:
        """Cancel a spot request; once cancelled, its instance can only be terminated."""
        with_it = [i for i in self.instances.values() if i.spot is not None and i.spot.request_id == request_id]
        with _Call(self, "cancel_spot_request", region, request_id):
            error = self.refuse.get(request_id, "")
            if not error and not any(i.region == region for i in with_it):
                error = f"InvalidSpotInstanceRequestID.NotFound: the request {request_id} does not exist"
            if error:
                return CallAnswer(False, error)
            self.cancelled.add(request_id)
            for instance in with_it:
                assert instance.spot is not None
                self.add(replace(instance, spot=replace(instance.spot, stoppable=False)))
        return CallAnswer(True)

    def enter_standby(self, region: str, group: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Put members into standby, as far as MinSize lets it."""
        state = "EnteringStandby" if self.slow_standby else "Standby"
        return self._each(
            "enter_standby", region, instance_ids, lambda one: self.groups.enter_standby(region, group, one, state)
        )

    def lower(self, region: str, group: str, instance_id: str) -> StopAnswer:
        """Terminate a member with its place, as far as MinSize lets it."""
        (answer,) = self._each(
            "lower", region, [instance_id], lambda one: self.groups.lower(region, group, one) or self._end(one)
        )
        return answer

    def set_group_size(
        self, region: str, group: str, *, min_size: int | None = None, desired: int | None = None
    ) -> CallAnswer:
        """Set sizes, as far as they fit each other."""
        wanted = [("min", min_size), ("desired", desired)]
        text = " ".join([group, *(f"{name}={size}" for name, size in wanted if size is not None)])
        with _Call(self, "set_group_size", region, text):
            error = self.refuse.get(group) or self.groups.resize(region, group, min_size, desired)
        return CallAnswer(not error, error)

    # --- StartActions -------------------------------------------------------------------------------------------------

    def start(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Start; it is `pending` until `settle()`, with its new launch time."""
        return self._each("start", region, instance_ids, self._start_one)

    def exit_standby(self, region: str, group: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Bring members back into service, as far as MaxSize lets it."""
        state = "Pending" if self.slow_standby else "InService"
        return self._each(
            "exit_standby", region, instance_ids, lambda one: self.groups.exit_standby(region, group, one, state)
        )

    def volume_keys(self, region: str, instance_id: str) -> tuple[str, ...]:
        """What `keys` says."""
        return tuple(sorted(self.keys.get(instance_id, ())))

    # --- What happens by itself ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything that is under way come to its end, and every group come to its size."""
        for instance in list(self.instances.values()):
            self.add(self._settled(instance))
        self.groups.settle(self.instances, self._launch)

    def _settled(self, instance: Instance) -> Instance:
        spot = instance.spot
        if instance.state is InstanceState.STOPPING:
            # A request is `disabled` while its instance is stopped.
            disabled = None if spot is None else replace(spot, stoppable=False)
            return replace(instance, state=InstanceState.STOPPED, spot=disabled)
        if instance.state is InstanceState.SHUTTING_DOWN:
            if spot is not None and spot.kind is SpotKind.PERSISTENT and spot.request_id not in self.cancelled:
                self._launch(instance)  # its request is open again
            return replace(instance, state=InstanceState.TERMINATED)
        if instance.state is not InstanceState.PENDING:
            return instance
        if instance.instance_id in self.fall_back:
            reason = self.fall_back[instance.instance_id]
            return replace(instance, state=InstanceState.STOPPED, state_reason=reason)
        active = spot is not None and spot.kind is SpotKind.PERSISTENT
        running = None if spot is None else replace(spot, stoppable=active)
        return replace(instance, state=InstanceState.RUNNING, state_reason="", spot=running)

    def _launch(self, like: Instance) -> Instance:
        """A new running instance like another one, as Auto Scaling and open spot requests make them."""
        number = sum(one.startswith("i-new-") for one in self.instances) + 1
        spot = like.spot
        new = replace(
            like,
            instance_id=f"i-new-{number}",
            state=InstanceState.RUNNING,
            state_reason="",
            launched_at=self._launch_time(like),
            spot=None if spot is None else replace(spot, stoppable=spot.kind is SpotKind.PERSISTENT),
        )
        self.add(new)
        return new

    def _launch_time(self, of: Instance) -> datetime | None:
        if self.clock is not None:
            return self.clock()
        return None if of.launched_at is None else of.launched_at + timedelta(seconds=1)

    # --- Single calls -------------------------------------------------------------------------------------------------

    def _each(
        self, name: str, region: str, instance_ids: Sequence[str], call: Callable[[str], str]
    ) -> tuple[StopAnswer, ...]:
        """One answer an id: the error of `call`, or accepted where it is empty."""
        with _Call(self, name, region, *instance_ids):
            errors = [(one, self._objection(region, one) or call(one)) for one in instance_ids]
        return tuple(StopAnswer(one, not error, error) for one, error in errors)

    def _objection(self, region: str, instance_id: str) -> str:
        if instance_id in self.refuse:
            return self.refuse[instance_id]
        instance = self.instances.get(instance_id)
        if instance is None or instance.region != region:
            return f"InvalidInstanceID.NotFound: The instance ID '{instance_id}' does not exist"
        return ""

    def _stop_one(self, instance_id: str) -> str:
        instance = self.instances[instance_id]
        if instance.state not in _STOPPABLE:
            return f"IncorrectInstanceState: {instance_id} is {instance.state.value}"
        if instance.kind is InstanceKind.INSTANCE_STORE_ROOT:
            return f"UnsupportedOperation: {instance_id} has an instance-store root"
        if instance.state is not InstanceState.RUNNING:
            return ""
        if instance.spot is not None and not instance.spot.stoppable:
            one_time = instance.spot.kind is not SpotKind.PERSISTENT
            return f"{'UnsupportedOperation' if one_time else 'IncorrectSpotRequestState'}: the spot request of it"
        if instance.stop_protected:
            return f"OperationNotPermitted: {instance_id} may not be stopped"
        reason = "Client.UserInitiatedShutdown: User initiated shutdown"
        self.add(replace(instance, state=InstanceState.STOPPING, state_reason=reason))
        return ""

    def _terminate_one(self, instance_id: str) -> str:
        if self.instances[instance_id].stop_protected:
            return f"OperationNotPermitted: {instance_id} may not be terminated"
        return self._end(instance_id)

    def _end(self, instance_id: str) -> str:
        instance = self.instances[instance_id]
        if instance.state in _ALIVE:
            self.add(replace(instance, state=InstanceState.SHUTTING_DOWN))
        return ""

    def _start_one(self, instance_id: str) -> str:
        instance = self.instances[instance_id]
        if instance.state not in _STARTABLE:
            return f"IncorrectInstanceState: {instance_id} is {instance.state.value}"
        if instance.spot is not None and instance.spot.request_id in self.cancelled:
            return "IncorrectSpotRequestState: the spot request is cancelled"
        if instance.state is InstanceState.STOPPED:
            launched = self._launch_time(instance)
            self.add(replace(instance, state=InstanceState.PENDING, launched_at=launched, state_reason=""))
        return ""


class _Call:
    """Notes a changing call and lets the test in, before and after its effect."""

    def __init__(self, fleet: FakeFleet, name: str, region: str, *ids: str) -> None:
        self._fleet = fleet
        self._call = (name, region, ids)

    def __enter__(self) -> None:
        self._fleet.calls.append(self._call)
        self._fleet.before(self._call[0])

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._fleet.after(self._call[0])


@dataclass
class FakeBudgets:
    """`Budgets` that reports `spent` USD; None cannot be read."""

    spent: float | None = 0.0
    limit_usd: float = 1000.0
    name: str = "gpu"

    def read(self) -> BudgetReading | UnknownBudget:
        """The reading, or why there is none."""
        if self.spent is None:
            return UnknownBudget(self.name, "AccessDeniedException: not allowed")
        return BudgetReading(self.name, self.spent, self.limit_usd)


THE_SAME: Final[Mapping[str, str]] = {"": ""}
"""`FakeControls.later` that differs in nothing from `texts`."""


@dataclass
class FakeControls:
    """`ControlTexts`: the texts by name without `control/`; None cannot be read.

    `later` is what the second and later reads see, where it is not THE_SAME; `reads` counts them.
    """

    texts: Mapping[str, str] | None = field(default_factory=lambda: {"pause": "off"})
    later: Mapping[str, str] | None = field(default_factory=lambda: THE_SAME)
    reads: int = 0

    def read(self) -> Mapping[str, str] | None:
        """The texts as they stand."""
        self.reads += 1
        found = self.later if self.reads > 1 and self.later is not THE_SAME else self.texts
        return None if found is None else dict(found)

    def put(self, name: str, text: str) -> None:
        """Write one control, as a person would."""
        self.texts = {**(self.texts or {}), name: text}

    def delete(self, name: str) -> None:
        """Lift one control."""
        self.texts = {key: text for key, text in (self.texts or {}).items() if key != name}
