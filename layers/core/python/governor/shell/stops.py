"""Carrying out stops: Region by Region, past the one guard, each method in its order. Nothing is raised for one id."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from governor.domain.budget import GuardPlan
from governor.domain.controls import parse_controls
from governor.domain.decisions import StopInstance, StopMethod
from governor.domain.eligibility import STANDBY, Surroundings
from governor.domain.fleet import Group, Instance
from governor.domain.guard import StopLimits, permit_stops
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.reasons import words
from governor.domain.settings import BudgetSettings
from governor.ports import ControlTexts, Fleet, FleetActions, StopAnswer, UnreadableError

STANDBY_TRIES = 6
STANDBY_PAUSE_SECONDS = 2.0
"""Auto Scaling puts a member into standby within seconds; one that takes longer is stopped in the next run."""


@dataclass(frozen=True, slots=True)
class StopDeps:
    """What carrying out stops needs from the outside."""

    fleet: Fleet
    actions: FleetActions
    controls: ControlTexts
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class _Result:
    stop: StopInstance
    status: StopStatus
    detail: str = ""
    code: str = ""
    """Code of the reason where the guard withheld it."""


def apply_stops(deps: StopDeps, plan: GuardPlan, settings: BudgetSettings, now: datetime) -> tuple[StopEntry, ...]:
    """Stop what was decided; returns the ledger entries as they are after the calls.

    The controls and the facts of exactly these ids are read again before each Region's calls.
    """
    entries = {entry.instance_id: entry for entry in plan.intended}
    done: list[StopEntry] = []
    limits = plan.limits
    for region in sorted({stop.region for stop in plan.decision.stops}):
        stops = [stop for stop in plan.decision.stops if stop.region == region]
        moved = [
            replace(
                entries[result.stop.instance_id],
                status=result.status,
                detail=result.detail,
                withheld_code=result.code,
                accepted_at=now
                if result.status is StopStatus.ACCEPTED
                else entries[result.stop.instance_id].accepted_at,
                updated_at=now,
            )
            for result in _stop_region(deps, plan, stops, limits, settings, now)
        ]
        accepted = sum(entry.status is StopStatus.ACCEPTED for entry in moved)
        limits = replace(
            limits, max_count=limits.max_count - accepted, already_stopped=limits.already_stopped + accepted
        )
        done.extend(moved)
    return tuple(done)


def _stop_region(
    deps: StopDeps,
    plan: GuardPlan,
    stops: Sequence[StopInstance],
    limits: StopLimits,
    settings: BudgetSettings,
    now: datetime,
) -> list[_Result]:
    region = stops[0].region
    try:
        facts, groups, members = _look_again(deps.fleet, region, stops)
    except UnreadableError as error:
        detail = f"the facts could not be read again: {error}"
        return [_Result(stop, StopStatus.WITHHELD, detail, "unreadable") for stop in stops]
    keyed = {(group.region, group.name): group for group in groups.values()}
    controls = parse_controls(deps.controls.read(), now)
    around = Surroundings(settings, controls, now, plan.spent_usd, keyed, members)
    permit = permit_stops(stops, facts, mode=plan.decision.mode, around=around, limits=limits)
    results = [_Result(stop, StopStatus.WITHHELD, words(why), why.code.value) for stop, why in permit.refused]
    by_method: dict[StopMethod, list[StopInstance]] = {}
    for stop in permit.allowed:
        by_method.setdefault(stop.method, []).append(stop)
    results += _stop_plain(deps, region, by_method.get(StopMethod.STOP, []))
    for name in sorted({stop.group for stop in by_method.get(StopMethod.STANDBY_AND_STOP, [])}):
        of_group = [stop for stop in by_method[StopMethod.STANDBY_AND_STOP] if stop.group == name]
        results += _stop_members(deps, groups[name], of_group)
    for name in sorted({stop.group for stop in by_method.get(StopMethod.LOWER, [])}):
        of_group = [stop for stop in by_method[StopMethod.LOWER] if stop.group == name]
        results += _lower(deps, groups[name], of_group)
    for stop in by_method.get(StopMethod.CANCEL_AND_TERMINATE, []):
        results.append(_cancel_and_terminate(deps, region, stop))
    return results


def _look_again(
    fleet: Fleet, region: str, stops: Sequence[StopInstance]
) -> tuple[Mapping[str, Instance], Mapping[str, Group], Mapping[str, Instance]]:
    """Facts of the victims, their groups by name, and the other members of those groups. Raises UnreadableError."""
    facts = fleet.look_again(region, [stop.instance_id for stop in stops])
    names = sorted({stop.group for stop in stops if stop.group})
    groups = fleet.look_at_groups(region, names) if names else {}
    others = sorted({member for group in groups.values() for member, _ in group.members} - set(facts))
    members = fleet.look_again(region, others, protection=False) if others else {}
    return facts, groups, {**members, **facts}


def _results(stops: Sequence[StopInstance], answers: Sequence[StopAnswer]) -> list[_Result]:
    by_id = {answer.instance_id: answer for answer in answers}
    found = []
    for stop in stops:
        answer = by_id[stop.instance_id]
        status = StopStatus.ACCEPTED if answer.accepted else StopStatus.FAILED
        found.append(_Result(stop, status, answer.error))
    return found


def _stop_plain(deps: StopDeps, region: str, stops: Sequence[StopInstance]) -> list[_Result]:
    if not stops:
        return []
    return _results(stops, deps.actions.stop(region, [stop.instance_id for stop in stops]))


def _make_room(deps: StopDeps, group: Group, leaving: int) -> str:
    """Lower MinSize so that `leaving` members may go; the error of AWS where it refuses, else an empty text."""
    least = max(0, group.desired - leaving)
    if group.min_size <= least:
        return ""
    answer = deps.actions.set_group_size(group.region, group.name, min_size=least)
    return "" if answer.accepted else f"MinSize of {group.name} was not lowered: {answer.error}"


def _stop_members(deps: StopDeps, group: Group, stops: Sequence[StopInstance]) -> list[_Result]:
    """MinSize first, then standby, then the stop of those that are seen in standby: a member in service is never
    stopped, since its group would replace it."""
    error = _make_room(deps, group, len(stops))
    if error:
        return [_Result(stop, StopStatus.FAILED, error) for stop in stops]
    ids = [stop.instance_id for stop in stops]
    answers = {a.instance_id: a for a in deps.actions.enter_standby(group.region, group.name, ids)}
    refused = [stop for stop in stops if not answers[stop.instance_id].accepted]
    entering = [stop for stop in stops if answers[stop.instance_id].accepted]
    standing = _wait_for_standby(deps, group, {stop.instance_id for stop in entering})
    ready = [stop for stop in entering if stop.instance_id in standing]
    waiting = [stop for stop in entering if stop.instance_id not in standing]
    return [
        *_stop_plain(deps, group.region, ready),
        *(_Result(s, StopStatus.INTENDED, "enters standby; stopped once it is there") for s in waiting),
        *(_Result(s, StopStatus.FAILED, answers[s.instance_id].error) for s in refused),
    ]


def _wait_for_standby(deps: StopDeps, group: Group, ids: set[str]) -> set[str]:
    """Ids that are seen in standby within some seconds."""
    standing: set[str] = set()
    for attempt in range(STANDBY_TRIES if ids else 0):
        if attempt:
            deps.sleep(STANDBY_PAUSE_SECONDS)
        try:
            seen = deps.fleet.look_at_groups(group.region, [group.name]).get(group.name)
        except UnreadableError:
            continue
        standing = {i for i in ids if seen is not None and seen.state_of(i) == STANDBY}
        if standing == ids:
            break
    return standing


def _lower(deps: StopDeps, group: Group, stops: Sequence[StopInstance]) -> list[_Result]:
    error = _make_room(deps, group, len(stops))
    if error:
        return [_Result(stop, StopStatus.FAILED, error) for stop in stops]
    return _results(stops, [deps.actions.lower(group.region, group.name, stop.instance_id) for stop in stops])


def _cancel_and_terminate(deps: StopDeps, region: str, stop: StopInstance) -> _Result:
    """The request first: terminating an instance whose request lives on would only start another one."""
    cancelled = deps.actions.cancel_spot_request(region, stop.spot_request_id)
    if not cancelled.accepted:
        return _Result(stop, StopStatus.FAILED, f"its spot request was not cancelled: {cancelled.error}")
    return _results([stop], deps.actions.terminate(region, [stop.instance_id]))[0]
