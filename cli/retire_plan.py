"""What a stage has to give back before it may go, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.account import aws

if TYPE_CHECKING:
    from datetime import datetime

    from cli.returning import Away
    from cli.stage import Stage
    from governor.domain.pause import Pause
    from governor.domain.taken import Place, PutBack, Taken
    from governor.shell.taken import Places

MODE = "budget/mode"
DELETES_PER_CALL = 10


@dataclass(frozen=True, slots=True)
class RetirePlan:
    """The world as the stage has left it.

    `mode` is None where its parameter is missing; `parameters` are full names, the mode first and the pause last;
    `groups` are adopted ones; `takings` everything that people let the command change, and its way back.
    """

    mode: str | None
    pause: Pause | None
    away: Away
    groups: tuple[tuple[str, str], ...]
    takings: tuple[PutBack, ...]
    parameters: tuple[str, ...]
    retired: bool

    @property
    def starts_nothing(self) -> bool:
        """True once the deletion of the parameters has begun: without them the guard starts nothing any more."""
        from cli.returning import PAUSE_WORDS

        return self.mode is None and (self.pause is None or self.pause.reason == PAUSE_WORDS)

    @property
    def findings(self) -> tuple[str, ...]:
        """What somebody else changed and what is therefore left."""
        return tuple(one.finding for one in self.takings if one.finding)


def read_plan(stage: Stage, places: Places, now: datetime) -> RetirePlan:
    """Look at everything, and change nothing."""
    from cli.pause import PAUSE
    from cli.returning import what_is_away
    from cli.unadopt import adopted_groups
    from governor.aws.parameter_store import ParameterTree
    from governor.domain.pause import parse_pause
    from governor.ports import Key
    from governor.shell.taken import load_taken, plan_give_back

    tree = {p.name: p.value for p in ParameterTree(aws("ssm", stage.home_region), stage.name).read_tree()}
    pause = tree.get(stage.parameter(PAUSE))
    store = stage.store()
    known = load_taken(store)
    everything = plan_give_back(places, all_taken(known), None, now)

    def in_order(name: str) -> tuple[bool, bool, str]:
        return name == stage.parameter(PAUSE), name != stage.parameter(MODE), name

    return RetirePlan(
        mode=tree.get(stage.parameter(MODE)),
        pause=None if pause is None else parse_pause(pause, now),
        away=what_is_away(stage),
        groups=adopted_groups(known.values()),
        takings=everything,
        parameters=tuple(sorted(tree, key=in_order)),
        retired=store.get(Key("retired", "retired")) is not None,
    )


def all_taken(known: Mapping[Place, Taken]) -> tuple[Taken, ...]:
    """Everything that was changed for people, and what later members of groups got from it."""
    from cli.unadopt import with_late_members

    return with_late_members(tuple(known.values()), known)


def set_mode(stage: Stage, wanted: str, present: str | None) -> bool:
    """Write the mode; False where it was so already, or where its parameter is gone with the others."""
    from cli.parameters import overwrite
    from governor.domain.settings import SPEC_BY_NAME

    if present is None or present == wanted:
        return False
    spec = SPEC_BY_NAME[MODE]
    overwrite(stage, MODE, wanted, description=spec.description, allowed_pattern=spec.allowed_pattern)
    return True


def delete_parameters(stage: Stage, names: tuple[str, ...]) -> None:
    """Delete them in this order; those that are gone already are no error. Whatever is missing counts as paused."""
    client = aws("ssm", stage.home_region)
    for start in range(0, len(names), DELETES_PER_CALL):
        client.delete_parameters(Names=list(names[start : start + DELETES_PER_CALL]))


def mark_retired(stage: Stage, now: datetime, by: str) -> None:
    """The record that lets the stacks go."""
    from governor.ports import Key, Record, Write

    body = {"at": now.isoformat(), "by": by}
    stage.store().commit([Write(Record(Key("retired", "retired"), body))])
