"""What became of stops and starts: following the ledger, and telling people of each outcome once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from governor.domain.budget_messages import MAX_LISTED, console_url, count_text, subject_of, usd_text
from governor.domain.decisions import Message, Severity, StopMethod
from governor.domain.fleet import FleetSnapshot, Instance
from governor.domain.ledger import ENDED_STATUSES, RETURNING_STATUSES, StopEntry, StopStatus, follow_up
from governor.domain.meter import period_of
from governor.domain.settings import RestoreSettings

_UNDER_WAY = frozenset({StopStatus.INTENDED, StopStatus.ACCEPTED})
_WELL_ENDED = frozenset({StopStatus.STOPPED, StopStatus.TERMINATED})


@dataclass(frozen=True, slots=True)
class OutcomeScene:
    """What every message about an outcome has in common. `manual_start_grace_hours` is the setting of that name."""

    stage: str
    home_region: str
    budget_name: str
    now: datetime
    manual_start_grace_hours: int = 12

    def key(self, *parts: str) -> str:
        """Key of a fact of this budget and period."""
        return "#".join((self.budget_name, period_of(self.now), *parts))


def follow_ledger(
    entries: Iterable[StopEntry], fleet: FleetSnapshot, restore: RestoreSettings, now: datetime
) -> tuple[StopEntry, ...]:
    """Every entry as it stands, given the fleet as seen now. What cannot be seen stays as it is.

    A start that fell back is left to confirm_actions, which tells why and when it is tried again.
    """
    entries = tuple(entries)
    seen = {instance.instance_id: instance for instance in fleet.instances}
    unknown = frozenset(one.region for one in fleet.unknown_regions)
    followed = follow_entries(entries, seen, unknown, fleet.regions, restore, now)
    return tuple(old if _fell_back(old, new) else new for old, new in zip(entries, followed, strict=True))


def _fell_back(old: StopEntry, new: StopEntry) -> bool:
    return old.status is StopStatus.STARTING and new.status in (StopStatus.RESTORING, StopStatus.GAVE_UP)


def follow_entries(
    entries: Iterable[StopEntry],
    seen: Mapping[str, Instance],
    unknown_regions: frozenset[str],
    looked_at: tuple[str, ...],
    restore: RestoreSettings,
    now: datetime,
) -> tuple[StopEntry, ...]:
    """The same from instances by id; `looked_at` are the Regions that were read (empty: not said)."""
    give_up_after = timedelta(hours=restore.give_up_hours)
    followed = []
    for entry in entries:
        instance = seen.get(entry.instance_id)
        unseen = entry.region in unknown_regions or (bool(looked_at) and entry.region not in looked_at)
        blind = instance is None and unseen
        decided_now = entry.decided_at == now  # a retry of the run that decided it; the outcome is for later runs
        if blind or entry.status in ENDED_STATUSES or decided_now:
            followed.append(entry)
        else:
            followed.append(follow_up(entry, instance, now, give_up_after=give_up_after))
    return tuple(followed)


def tell_outcomes(before: Iterable[StopEntry], after: Iterable[StopEntry], scene: OutcomeScene) -> tuple[Message, ...]:
    """A message for each stop decision whose every stop has now ended, for each start, and for each start by others."""
    known = {(entry.instance_id, entry.launched_at): entry.status for entry in before}
    told: list[Message] = []
    by_decision: dict[str, list[StopEntry]] = {}
    by_restore: dict[str, list[StopEntry]] = {}
    for entry in after:
        by_decision.setdefault(entry.decision_id, []).append(entry)
        if entry.restore_decision_id:
            by_restore.setdefault(entry.restore_decision_id, []).append(entry)
    for decision_id, entries in sorted(by_decision.items()):
        moved = [e for e in entries if known.get((e.instance_id, e.launched_at)) is not e.status]
        under_way = any(e.status in _UNDER_WAY for e in entries)
        ended = [
            e
            for e in moved
            if known.get((e.instance_id, e.launched_at)) in (None, *_UNDER_WAY, StopStatus.FAILED)
            and e.status not in _UNDER_WAY
        ]
        if ended and not under_way and any(e.status in _WELL_ENDED for e in entries):
            told.append(stops_seen(scene, decision_id, tuple(entries)))
        told.extend(started_again(scene, e) for e in moved if e.status is StopStatus.RESTARTED)
        failed = tuple(e for e in moved if e.status is StopStatus.FAILED)
        told.extend(stops_failed(scene, failed))
    for decision_id, entries in sorted(by_restore.items()):
        moved = [e for e in entries if known.get((e.instance_id, e.launched_at)) is not e.status]
        returning = any(e.status in RETURNING_STATUSES for e in entries)
        came_back = any(e.status is StopStatus.RESTORED and not e.left_in_standby for e in entries)
        ends_now = any(known.get((e.instance_id, e.launched_at)) in RETURNING_STATUSES for e in moved)
        if ends_now and came_back and not returning:
            told.append(restores_seen(scene, decision_id, tuple(entries)))
        told.extend(gave_up(scene, e) for e in moved if e.status is StopStatus.GAVE_UP)
    return tuple(told)


def tell_answers(entries: tuple[StopEntry, ...], scene: OutcomeScene) -> tuple[Message, ...]:
    """What people are told right after the calls: stops that AWS refused, and those that the guard withheld."""
    told = list(stops_failed(scene, tuple(e for e in entries if e.status is StopStatus.FAILED)))
    withheld = tuple(entry for entry in entries if entry.status is StopStatus.WITHHELD)
    if withheld:
        told.append(stops_withheld(scene, withheld))
    return tuple(told)


def _steer(scene: OutcomeScene, decision_id: str) -> list[str]:
    return [
        "",
        f"Why: governor explain '{decision_id}' --stage {scene.stage}",
        "Hold everything: set the pause parameter to 'on': "
        + console_url(scene.home_region, f"/governor/{scene.stage}/control/pause"),
        f"  or: governor pause --because '...' --stage {scene.stage}",
    ]


def _message(scene: OutcomeScene, severity: Severity, key: str, subject: str, lines: list[str]) -> Message:
    return Message(
        key=key,
        severity=severity,
        subject=subject_of(f"[Governor {scene.stage}] {subject}"),
        body="\n".join(lines) + "\n",
        facts=(("budget", scene.budget_name), ("period", period_of(scene.now))),
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]


def _line(entry: StopEntry) -> str:
    name = f" {entry.name}" if entry.name else ""
    return f"  {entry.instance_id}{name}: {entry.instance_type}, {entry.region}"


def _more(number: int) -> list[str]:
    return [f"  ... and {number - MAX_LISTED} more"] if number > MAX_LISTED else []


def stops_seen(scene: OutcomeScene, decision_id: str, entries: tuple[StopEntry, ...]) -> Message:
    """Every stop of a decision has ended: how."""
    stopped = tuple(e for e in entries if e.status in _WELL_ENDED)
    others = tuple(e for e in entries if e.status not in _WELL_ENDED)
    rate = sum(e.usd_per_hour or 0.0 for e in stopped)
    lines = [f"{count_text(len(stopped))} seen stopped; {usd_text(rate)}/h less."]
    lines += [_line(e) + (" (terminated)" if e.status is StopStatus.TERMINATED else "") for e in stopped[:MAX_LISTED]]
    lines += _more(len(stopped))
    if others:
        ended = [f"  {e.instance_id}: {e.status.value}, {e.detail}" for e in others[:MAX_LISTED]]
        lines += ["Ended otherwise:", *ended]
    lines += [
        "",
        f"To undo: governor restore --decision '{decision_id}' --stage {scene.stage}",
        f"Why: governor explain '{decision_id}' --stage {scene.stage}",
    ]
    seen = _digest(*sorted(e.instance_id for e in stopped))
    key = "#".join((scene.budget_name, "", "stops-seen", decision_id, seen))
    return _message(scene, Severity.INFO, key, f"{count_text(len(stopped))} stopped, {usd_text(rate)}/h less", lines)


def stops_failed(scene: OutcomeScene, entries: tuple[StopEntry, ...]) -> list[Message]:
    """Stops that did not work, one message a kind of error: money goes on being spent."""
    by_code: dict[str, list[StopEntry]] = {}
    for entry in entries:
        by_code.setdefault(entry.detail.partition(":")[0], []).append(entry)
    told = []
    for code, failed in sorted(by_code.items()):
        rate = sum(entry.usd_per_hour or 0.0 for entry in failed)
        lines = [
            f"{count_text(len(failed))} were not stopped; {usd_text(rate)}/h goes on:"
            if len(failed) > 1
            else f"{failed[0].instance_id} was not stopped; {usd_text(rate)}/h goes on:",
            *[f"  {e.instance_id} ({e.instance_type}, {e.region}): {e.detail}" for e in failed[:MAX_LISTED]],
            *_more(len(failed)),
            "The next run tries again, after those that were not tried yet. If it lasts, stop by hand.",
            *_steer(scene, failed[0].decision_id),
        ]
        digest = _digest(code, *sorted(f"{e.instance_id}@{e.launched_at}" for e in failed))
        what = failed[0].instance_id if len(failed) == 1 else count_text(len(failed))
        told.append(_message(scene, Severity.PAGE, scene.key("stop-failed", digest), f"could not stop {what}", lines))
    return told


def stops_withheld(scene: OutcomeScene, entries: tuple[StopEntry, ...]) -> Message:
    """The guard refused stops at the last moment, after they were announced."""
    lines = [
        f"{count_text(len(entries))} announced as being stopped were left running:",
        *[f"  {e.instance_id}: {e.detail}" for e in entries[:MAX_LISTED]],
        *_more(len(entries)),
        *_steer(scene, entries[0].decision_id),
    ]
    digest = hashlib.sha256(
        "|".join(sorted(f"{e.instance_id}@{e.launched_at}{e.withheld_code}" for e in entries)).encode()
    ).hexdigest()[:12]
    subject = f"{count_text(len(entries))} left running after all"
    return _message(scene, Severity.WARN, scene.key("withheld", digest), subject, lines)


def started_again(scene: OutcomeScene, entry: StopEntry) -> Message:
    """A person started a machine that we stopped: it has a grace, and they are told what it costs."""
    grace = count_text(scene.manual_start_grace_hours, "hour")
    lines = [
        f"{entry.instance_id} ({entry.instance_type}, {entry.region}) was started after the Governor stopped it.",
        f"It costs {usd_text(entry.usd_per_hour)}/h and is left alone for {grace} "
        "(budget/manual-start-grace-hours). If the stop level still stands then, it is stopped again.",
        *([f"Its group {entry.group} takes it back into service."] if entry.standby_by_us else []),
        f"To keep it longer: governor keep {entry.instance_id} --for 2d --stage {scene.stage}",
        *_steer(scene, entry.decision_id),
    ]
    key = scene.key("started-again", entry.instance_id, entry.launched_at.isoformat())
    return _message(scene, Severity.WARN, key, f"{entry.instance_id} was started again", lines)


def restores_seen(scene: OutcomeScene, decision_id: str, entries: tuple[StopEntry, ...]) -> Message:
    """Every start of a decision has ended: how."""
    back = tuple(e for e in entries if e.status is StopStatus.RESTORED and not e.left_in_standby)
    others = tuple(e for e in entries if e.status is not StopStatus.RESTORED)
    rate = sum(e.usd_per_hour or 0.0 for e in back)
    lines = [f"{count_text(len(back))} seen running again; {usd_text(rate)}/h more."]
    lines += [_line(e) for e in back[:MAX_LISTED]]
    lines += _more(len(back))
    if others:
        lines += [
            "Ended otherwise:",
            *[f"  {e.instance_id}: {e.detail or e.status.value}" for e in others[:MAX_LISTED]],
        ]
    lines += [f"Asked for by: {back[0].restore_asked_by}.", *_steer(scene, decision_id)]
    seen = _digest(*sorted(e.instance_id for e in back))
    key = "#".join((scene.budget_name, "", "restores-seen", decision_id, seen))
    return _message(scene, Severity.INFO, key, f"{count_text(len(back))} running again, {usd_text(rate)}/h more", lines)


def gave_up(scene: OutcomeScene, entry: StopEntry) -> Message:
    """No start succeeded within restore/give-up-hours: a person has to look."""
    lines = [
        f"{entry.instance_id} ({entry.instance_type}, {entry.region}) could not be brought back: {entry.detail}.",
        f"Starts tried: {entry.start_tries}. The Governor tries no more by itself; nothing is lost by it, and nothing "
        f"is spent while it is stopped ({usd_text(entry.usd_per_hour)}/h when it runs).",
        "What can be done: another zone or type, a capacity reservation, or later:",
        f"  governor restore {entry.instance_id} --stage {scene.stage}",
        *_steer(scene, entry.restore_decision_id or entry.decision_id),
    ]
    asked = (entry.restore_asked_at or entry.updated_at).isoformat()
    key = scene.key("gave-up", entry.instance_id, asked)
    return _message(scene, Severity.PAGE, key, f"{entry.instance_id} could not be brought back", lines)


def is_terminating(entry: StopEntry) -> bool:
    """True where the stop was a termination, so that there is nothing to start again."""
    return entry.method in (StopMethod.LOWER.value, StopMethod.CANCEL_AND_TERMINATE.value)
