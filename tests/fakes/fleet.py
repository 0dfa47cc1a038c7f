"""Fakes of EC2, AWS Budgets and the pause, with knobs for what goes wrong next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from governor.domain.budget_snapshot import BudgetReading, UnknownBudget
from governor.domain.fleet import FleetSnapshot, Instance, InstanceState, UnknownRegion
from governor.ports import StopAnswer, UnreadableError


@dataclass
class FakeFleet:
    """`Fleet` in memory. A stopped instance is `stopping` until `settle()`."""

    instances: dict[str, Instance] = field(default_factory=dict)
    unknown_regions: tuple[UnknownRegion, ...] = ()
    refuse: dict[str, str] = field(default_factory=dict)
    unreadable: str = ""
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def add(self, *instances: Instance) -> None:
        """Put instances into the fleet."""
        for instance in instances:
            self.instances[instance.instance_id] = instance

    def observe(self) -> FleetSnapshot:
        """Everything there is."""
        return FleetSnapshot(tuple(self.instances.values()), self.unknown_regions)

    def look_again(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Fresh facts, or the error that was asked for."""
        if self.unreadable:
            raise UnreadableError(self.unreadable)
        return {i: self.instances[i] for i in instance_ids if i in self.instances}

    def stop(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Stop, but for the ids in `refuse`."""
        self.calls.append((region, tuple(instance_ids)))
        answers = []
        for instance_id in instance_ids:
            if instance_id in self.refuse:
                answers.append(StopAnswer(instance_id, False, self.refuse[instance_id]))
                continue
            self.instances[instance_id] = replace(self.instances[instance_id], state=InstanceState.STOPPING)
            answers.append(StopAnswer(instance_id, True))
        return tuple(answers)

    def settle(self) -> None:
        """Let every stopping instance come to rest."""
        for instance_id, instance in self.instances.items():
            if instance.state is InstanceState.STOPPING:
                self.instances[instance_id] = replace(instance, state=InstanceState.STOPPED)


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


@dataclass
class FakePause:
    """`PauseSwitch` with a text; `later` is what the second and later reads see."""

    text: str | None = "off"
    later: str | None = None
    reads: int = 0

    def read_text(self) -> str | None:
        """The text of the parameter."""
        self.reads += 1
        return self.later if self.later is not None and self.reads > 1 else self.text
