"""What the Governor changed of an Auto Scaling group, so that it can be put back if nobody changed it since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from governor.domain.fleet import Group
from governor.domain.ledger import StopEntry, StopStatus


@dataclass(frozen=True, slots=True)
class GroupHold:
    """One group of which members were put into standby or taken out: its sizes before our first change, and since.

    Sizes are in instances. `min_set` and `desired_expected` are what the group should show as long as nobody else
    changes it.
    Whether the desired capacity is still ours is told by `change_by_others`, from what is really held, so that a crash
    between a call and its record is no change by somebody else.
    """

    name: str
    region: str
    min_before: int
    desired_before: int
    min_set: int
    desired_expected: int
    held_since: datetime
    updated_at: datetime
    decision_id: str
    open: bool = True


def change_by_others(hold: GroupHold, group: Group, held: int) -> str:
    """What somebody else changed of a group since we did, in words; empty where nothing.

    `held` counts our members in standby, and those that we took out with `lower` and that did not come back. MinSize
    may lie anywhere between what we set and what it was, since a call of ours may have been cut off.
    """
    found = []
    if not hold.min_set <= group.min_size <= hold.min_before:
        found.append(f"MinSize is {group.min_size}, we left {hold.min_set}")
    expected = hold.desired_before - held
    if group.desired != expected:
        found.append(f"the desired capacity is {group.desired}, we left {expected}")
    return " and ".join(found)


def held_members(ledger: Iterable[StopEntry], hold: GroupHold, group: Group) -> int:
    """How many of our members a group does not count: in standby by us, or taken out by us."""
    return len(_standing(ledger, group) | lowered_members(ledger, hold, group))


def _standing(ledger: Iterable[StopEntry], group: Group) -> frozenset[str]:
    states = dict(group.members)
    return frozenset(
        entry.instance_id
        for entry in ledger
        if (entry.region, entry.group) == (group.region, group.name)
        and entry.standby_by_us
        and states.get(entry.instance_id, "") in ("Standby", "EnteringStandby")
    )


def lowered_members(ledger: Iterable[StopEntry], hold: GroupHold, group: Group) -> frozenset[str]:
    """Members that we took out with `lower` since we hold the group, and whose place was not given back."""
    states = dict(group.members)
    out = (
        StopStatus.INTENDED,
        StopStatus.ACCEPTED,
        StopStatus.TERMINATED,
        StopStatus.RESTORING,
        StopStatus.GAVE_UP,
    )
    return frozenset(
        entry.instance_id
        for entry in ledger
        if (entry.region, entry.group) == (group.region, group.name)
        and entry.method == "lower"
        and entry.status in out
        and entry.decided_at >= hold.held_since
        and not states.get(entry.instance_id, "")
    )
