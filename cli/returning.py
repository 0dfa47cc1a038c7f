"""Machines and groups that have to come back before a stage may go: what is still away, and bringing it back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from cli.account import aws
from cli.errors import CliError

if TYPE_CHECKING:
    from cli.stage import Scope, Stage
    from governor.domain.groups import GroupHold
    from governor.domain.ledger import StopEntry

POLL_SECONDS = 5.0
GUARD_TRIES = 6
"""Another run may hold the lease for a while."""

PASSING = frozenset(
    {"paused", "pause-unreadable", "mode-off", "fleet-unreadable", "not-yet-stopped", "restore-underway"}
)
"""Codes of refusals that are not for good."""

PAUSE_WORDS = "the stage is being retired"


@dataclass(frozen=True, slots=True)
class Away:
    """What the Governor changed and what has not come back."""

    entries: tuple[StopEntry, ...]
    holds: tuple[GroupHold, ...]


@dataclass(slots=True)
class Return:
    """How far the way back has come. `left` are machines that somebody else changed, by id, with why."""

    left: dict[str, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    groups_left: dict[tuple[str, str], str] = field(default_factory=dict)


def what_is_away(stage: Stage) -> Away:
    """Stops that have not come back, newest of each instance, and groups that are held. Reads the state table only."""
    from governor.domain.restorable import restorable_entries
    from governor.shell.records import GROUP_HOLDS, LEDGER, entry_of, group_hold_of

    store = stage.store()
    ledger = [entry_of(record) for record in store.query(LEDGER)]
    holds = [group_hold_of(record) for record in store.query(GROUP_HOLDS)]
    away = (entry for entry in restorable_entries(ledger) if _is_away(entry))
    return Away(tuple(away), tuple(hold for hold in holds if hold.open))


def _is_away(entry: StopEntry) -> bool:
    from governor.domain.ledger import RETURNING_STATUSES, StopStatus
    from governor.domain.restorable import WAITING_STATUSES, is_ours_stopped

    under_way = {StopStatus.INTENDED, StopStatus.ACCEPTED, StopStatus.GAVE_UP, *RETURNING_STATUSES}
    standing = entry.left_in_standby and entry.status in WAITING_STATUSES
    return entry.status in under_way or is_ours_stopped(entry) or standing


def bring_back(stage: Stage, scope: Scope, minutes: float, say: Callable[[str], None]) -> Return:
    """Ask the guard for everything, and wait until it runs and the groups have their sizes back.

    Raises CliError where that does not end in time; what has come back stays so, and the next try goes on from there.
    """
    from cli.terminal import current_time

    found = Return()
    until = current_time() + timedelta(minutes=minutes)
    last = ""
    while True:
        away = what_is_away(stage)
        waiting = [entry for entry in away.entries if entry.instance_id not in found.left]
        wanted = [entry for entry in waiting if not _comes_by_itself(entry)]
        if wanted:
            _ask(stage, scope, found)
        _judge_groups(stage, scope, away, found)
        held = [hold for hold in away.holds if (hold.region, hold.name) not in found.groups_left]
        waiting = [entry for entry in waiting if entry.instance_id not in found.left]
        if not waiting and not held:
            return found
        words = _words(waiting, held)
        if words != last:
            say(f"Waiting for {words}")
            last = words
        if current_time() >= until:
            raise CliError(
                f"After {minutes:g} minutes there is still {words}; what has come back stays. Try again, "
                "or leave them as they are with --leave-stopped."
            )
        time.sleep(POLL_SECONDS)


def _comes_by_itself(entry: StopEntry) -> bool:
    """True for what is on its way: a stop that is not yet seen, or a start."""
    from governor.domain.ledger import RETURNING_STATUSES, StopStatus

    under_way = entry.status in (StopStatus.INTENDED, StopStatus.ACCEPTED) and not entry.left_in_standby
    return under_way or entry.status in RETURNING_STATUSES


def _ask(stage: Stage, scope: Scope, found: Return) -> None:
    """Everything at once; what the guard refuses for good is left to whoever changed it."""
    from cli.restore import Wish, ask_the_guard
    from cli.terminal import current_time

    for attempt in range(1, GUARD_TRIES + 1):
        try:
            answer = ask_the_guard(stage, scope, Wish(everything=True), current_time())
            break
        except CliError:
            if attempt == GUARD_TRIES:
                raise
            time.sleep(POLL_SECONDS)
    found.started |= {str(one) for one in answer.get("restores", ())}
    for refused in answer.get("refused", ()):
        if refused["code"] not in PASSING:
            found.left[str(refused["instance_id"])] = str(refused["why"])
    if not answer.get("restores") and any(refused["code"] in PASSING for refused in answer.get("refused", ())):
        words = "; ".join(sorted({str(r["why"]) for r in answer["refused"] if r["code"] in PASSING}))
        if any(r["code"] in ("paused", "pause-unreadable", "mode-off") for r in answer["refused"]):
            raise CliError(
                f"The guard of stage {stage.name} starts nothing: {words}. End that (governor unpause), "
                "or leave the machines as they are with --leave-stopped."
            )


def _judge_groups(stage: Stage, scope: Scope, away: Away, found: Return) -> None:
    """Groups whose sizes somebody else changed keep them: their holds never end by themselves."""
    from governor.aws.ec2_fleet import Ec2Fleet
    from governor.domain.groups import change_by_others, held_members
    from governor.shell.records import LEDGER, entry_of

    if not away.holds:
        return
    ledger = [entry_of(record) for record in stage.store().query(LEDGER)]
    fleet = Ec2Fleet(scope.regions, _ec2, _auto_scaling, scope.keys, stage.name)
    for hold in away.holds:
        key = (hold.region, hold.name)
        group = fleet.look_at_groups(hold.region, [hold.name]).get(hold.name)
        if group is None:
            continue  # confirm_actions ends the hold of a group that is gone
        held = held_members(ledger, hold, group)
        members = [e for e in ledger if (e.region, e.group) == key and e.instance_id in found.left]
        under_way = any((e.region, e.group) == key and e.instance_id not in found.left for e in away.entries)
        changed = change_by_others(hold, group, held)
        if members and not under_way:
            found.groups_left[key] = f"{members[0].instance_id} does not come back"
        elif changed and not under_way and not (hold.min_set <= group.min_size and group.desired >= hold.min_before):
            found.groups_left[key] = changed


def _ec2(region: str) -> object:
    return aws("ec2", region)


def _auto_scaling(region: str) -> object:
    return aws("autoscaling", region)


def _words(entries: list[StopEntry], holds: list[GroupHold]) -> str:
    parts = [f"{e.instance_id} ({e.status.value}{': ' + e.detail if e.detail else ''})" for e in entries]
    parts += [f"the sizes of the group {hold.name} in {hold.region}" for hold in holds]
    return ", ".join(parts)
