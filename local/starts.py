"""StartInstances as it goes wrong on AWS: no capacity at once or later, a key that may not be used, a slow boot."""

from __future__ import annotations

import fnmatch
import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import InstanceBackend

from local.faults import CAPACITY
from local.patching import replace
from local.spot import refuse_spot_start

_NO_CAPACITY_REASON = "Server.InsufficientInstanceCapacity"
_KEY_REASON = "Client.InternalError"
_MESSAGES = {
    _NO_CAPACITY_REASON: "Server.InsufficientInstanceCapacity: Insufficient instance capacity",
    _KEY_REASON: "Client.InternalError: Client error on launch",
}


@dataclass(frozen=True, slots=True)
class Start:
    """What becomes of a start. `instance` is a pattern; `count` how many starts it hits (0: all of them).

    `refused` fails the call; `falls-back` is accepted and ends `stopped` with `reason` as state reason after
    `after_minutes` virtual minutes of `pending`; `runs` ends `running` after as many.
    """

    kind: Literal["refused", "falls-back", "runs"]
    instance: str = "*"
    reason: str = ""
    after_minutes: float = 0.0
    count: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The start as plain JSON."""
        return asdict(self)


def no_capacity(instance: str = "*", *, count: int = 0) -> Start:
    """The call fails at once."""
    return Start("refused", instance, count=count)


def no_capacity_later(instance: str = "*", *, after_minutes: float = 0.0, count: int = 0) -> Start:
    """Accepted, and back to stopped for want of capacity."""
    return Start("falls-back", instance, _NO_CAPACITY_REASON, after_minutes, count)


def key_denied(instance: str = "*", *, after_minutes: float = 0.0, count: int = 0) -> Start:
    """Accepted, and back to stopped because EC2 gets no grant on the key of a volume."""
    return Start("falls-back", instance, _KEY_REASON, after_minutes, count)


def boots_in(instance: str = "*", *, minutes: float, count: int = 0) -> Start:
    """Runs only after some time of pending."""
    return Start("runs", instance, after_minutes=minutes, count=count)


class StartSteps(Protocol):
    """The steps of a start, each with its event on the bus."""

    def begin_start(self, instance: Any) -> None:
        """Make it pending."""
        ...

    def finish_start(self, instance: Any) -> None:
        """Make it running."""
        ...

    def fail_start(self, instance: Any, reason: str, message: str) -> None:
        """Make it stopped, with a state reason."""
        ...


class Starts:
    """Answers StartInstances. `may_use_key` says whether the caller may let EC2 use a volume's key."""

    def __init__(self, steps: StartSteps, now: Callable[[], datetime], may_use_key: Callable[[str, str], bool]) -> None:
        self._steps = steps
        self._now = now
        self._may_use_key = may_use_key
        self._starts: list[tuple[Start, int]] = []
        self._pending: list[tuple[datetime, int, Any, Start]] = []
        self._sequence = itertools.count()
        replace(InstanceBackend, "start_instances", ("self", "instance_ids"), self._starter())

    def set(self, starts: Sequence[Start]) -> None:
        """Replace what becomes of starts; counting begins again."""
        self._starts = [(start, 0) for start in starts]

    def run_minute(self, minute: datetime) -> None:
        """End the starts whose time has come."""
        while self._pending and self._pending[0][0] <= minute:
            _, _, instance, start = heapq.heappop(self._pending)
            if instance.state == "pending":
                self._end(instance, start)

    def _starter(self) -> Callable[..., Any]:
        def start_instances(backend: Any, instance_ids: list[str]) -> list[tuple[Any, Any]]:
            instances = backend.get_multi_instances_by_id(instance_ids)
            for instance in instances:
                refuse_start(instance)
            chosen = [(one, self._choose(one)) for one in instances if one.state == "stopped"]
            for instance, start in chosen:
                if start.kind == "refused":
                    raise _no_capacity_error(instance)
            before = [(one, _state_of(one)) for one in instances]
            for instance, start in chosen:
                self._begin(instance, start)
            return before

        return start_instances

    def _choose(self, instance: Any) -> Start:
        """Count one start of an instance: what was set for it, or else what its volumes' keys allow."""
        for index, (start, seen) in enumerate(self._starts):
            if fnmatch.fnmatchcase(instance.id, start.instance) and (start.count == 0 or seen < start.count):
                self._starts[index] = (start, seen + 1)
                return start
        keys = customer_keys(instance)
        if all(self._may_use_key(instance.region_name, key) for key in keys):
            return boots_in(minutes=0)
        return key_denied()

    def _begin(self, instance: Any, start: Start) -> None:
        self._steps.begin_start(instance)
        if start.after_minutes:
            due_at = self._now() + timedelta(minutes=start.after_minutes)
            heapq.heappush(self._pending, (due_at, next(self._sequence), instance, start))
        else:
            self._end(instance, start)

    def _end(self, instance: Any, start: Start) -> None:
        if start.kind == "runs":
            self._steps.finish_start(instance)
        else:
            self._steps.fail_start(instance, start.reason, _MESSAGES[start.reason])


def refuse_start(instance: Any) -> None:
    """Raise EC2's own error for an instance that cannot be started; one such id fails the whole call."""
    if instance.state in ("terminated", "shutting-down", "stopping"):
        message = f"The instance '{instance.id}' is not in a state from which it can be started."
        raise EC2ClientError("IncorrectInstanceState", message)
    if instance.lifecycle == "spot":
        refuse_spot_start(instance)


def customer_keys(instance: Any) -> list[str]:
    """ARNs or ids of the keys of its encrypted volumes, without the key that AWS manages for EBS."""
    backend = instance.ec2_backend
    volumes = [backend.volumes.get(device.volume_id) for _, device in instance.get_block_device_mapping]
    keys = {volume.kms_key_id for volume in volumes if volume is not None}
    return sorted(key for key in keys if key and key != backend.default_kms_key_id and "alias/aws/ebs" not in key)


def _no_capacity_error(instance: Any) -> EC2ClientError:
    message = (
        f"We currently do not have sufficient {instance.instance_type} capacity in the Availability Zone you requested "
        f"({instance.placement.zone})."
    )
    return EC2ClientError(CAPACITY, message)


def _state_of(instance: Any) -> dict[str, Any]:
    return {"Code": instance.state_code, "Name": instance.state}
