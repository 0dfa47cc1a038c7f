"""Run Command in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from governor.ports import CommandOutcome

PENDING = CommandOutcome("pending", "InProgress")


@dataclass
class FakeCommands:
    """`Commands` that notes what is sent.

    `refuse`: instance id -> error sentence of a send; `outcomes`: instance id -> outcome (else pending);
    `sent`: (Region, instance id, document, comment); `asked` counts reads of outcomes.
    """

    refuse: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, CommandOutcome] = field(default_factory=dict)
    sent: list[tuple[str, str, str, str]] = field(default_factory=list)
    asked: int = 0
    _ids: dict[str, str] = field(default_factory=dict)

    def send(self, region: str, instance_id: str, document: str, comment: str) -> tuple[str, str]:
        """(command id, "") or ("", error sentence)."""
        self.sent.append((region, instance_id, document, comment))
        if instance_id in self.refuse:
            return "", self.refuse[instance_id]
        command_id = f"command-{len(self._ids) + 1}"
        self._ids[command_id] = instance_id
        return command_id, ""

    def outcome(self, region: str, instance_id: str, command_id: str) -> CommandOutcome:
        """What `outcomes` says; a command that was never sent to this instance stays pending."""
        self.asked += 1
        if self._ids.get(command_id) != instance_id:
            return CommandOutcome("pending", "not known yet")
        return self.outcomes.get(instance_id, PENDING)
