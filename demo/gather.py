"""Turns what the theatre noted and the Governor recorded into the story."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from demo.company import FLEET, GROUP_NAME, LIMIT_USD, NAME, Machine
from demo.scenes import Played
from demo.story import Change, Fate, Figures, FleetRow, MailItem, Step, Story
from demo.terminal import usd
from demo.theatre import STAGE, PlayError, Theatre
from governor.domain.decisions import Decision, InstanceVerdict, StopMethod, Verdict
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.reasons import ReasonCode, words
from governor.domain.settings_review import person
from local.mail import Mail


def tell_story(theatre: Theatre, played: Played) -> Story:
    """The whole story. Raises PlayError when the stop was never decided."""
    if played.stop_decision is None or played.crossing is None:
        raise PlayError("the stop level was never reached")
    if played.overriding is None or played.restoring is None:
        raise PlayError("the override or the restore was not played")
    changes = _changes(theatre)
    return Story(
        company=NAME,
        stage=STAGE,
        region=theatre.aws.endpoint.region,
        month=f"{played.first_of_month:%B %Y}",
        prices_dated=theatre.prices_dated,
        scenes=tuple(theatre.scenes),
        samples=tuple(theatre.samples),
        thresholds=tuple(played.thresholds),
        marks=tuple(sorted(theatre.marks, key=lambda mark: mark.at)),
        steps=_steps(theatre, changes),
        fleet=_fleet(theatre, played, played.stop_decision),
        mails=_mails(theatre, theatre.mails()),
        alarm_mails=_mails(theatre, theatre.alarm_mails()),
        changes=changes,
        crossing=played.crossing,
        group=GROUP_NAME,
        group_moments=tuple(theatre.group_moments),
        overriding=played.overriding,
        restoring=played.restoring,
        figures=_figures(theatre, played),
        laps=tuple(theatre.narrator.laps),
    )


def _figures(theatre: Theatre, played: Played) -> Figures:
    stats = theatre.aws.stats()
    denied = [call for call in theatre.aws.calls() if call.action == "ec2:StopInstances" and call.status == 403]
    return Figures(
        limit_usd=LIMIT_USD,
        stopped_usd_per_hour=played.rate_before - played.rate_after,
        run_rate_before_usd_per_hour=played.rate_before,
        run_rate_after_usd_per_hour=played.rate_after,
        month_end_usd=played.month_end_usd,
        month_end_without_usd=played.month_end_without_usd,
        function_runs=stats.deliveries,
        api_calls=stats.calls,
        stop_calls=len([call for call in theatre.stop_calls() if call.status == 200]),
        start_calls=len([call for call in theatre.start_calls() if call.status == 200]),
        denied_calls=len(denied),
    )


def _fleet(theatre: Theatre, played: Played, decision: Decision) -> tuple[FleetRow, ...]:
    verdicts = {verdict.instance_id: verdict for verdict in decision.verdicts}
    rows = [_fleet_row(theatre, played, machine, verdicts) for machine in FLEET]
    return tuple(sorted(rows, key=lambda row: (row.fate is Fate.SPARED, -(row.usd_per_hour or 0.0), row.name)))


def _fleet_row(theatre: Theatre, played: Played, machine: Machine, verdicts: Mapping[str, InstanceVerdict]) -> FleetRow:
    instance_id = theatre.ids[machine.name]
    verdict = verdicts.get(instance_id)
    tags = dict(machine.tags)
    after = played.states_after[machine.name]
    return FleetRow(
        instance_id=instance_id,
        name=machine.name,
        project=tags.get("governor:project", ""),
        instance_type=machine.instance_type,
        tags=tags.get("governor:criticality", "no tags"),
        kind=machine.kind.value,
        usd_per_hour=theatre.price_of(machine.instance_type),
        state_before=played.states_before[machine.name],
        state_after=after,
        fate=Fate.STOPPED if after == "stopped" else Fate.SPARED,
        why="the Governor said nothing of it" if verdict is None else words(verdict.reason),
        notes=() if verdict is None else _notes(verdict),
    )


_METHODS = {StopMethod.STANDBY_AND_STOP: "into standby, then stopped"}
"""What is done beside the plain stop."""


def _notes(verdict: InstanceVerdict) -> tuple[str, ...]:
    method = _METHODS.get(verdict.method) if verdict.method is not None else None
    return (*((method,) if method else ()), *(words(note) for note in verdict.notes))


def _mails(theatre: Theatre, mails: Iterable[Mail]) -> tuple[MailItem, ...]:
    return tuple(
        MailItem(datetime.fromisoformat(mail.at), mail.to, theatre.severity_of(mail), mail.subject, mail.body)
        for mail in mails
    )


def _steps(theatre: Theatre, changes: Iterable[Change]) -> tuple[Step, ...]:
    """What people did, what became of their edits, outcomes and decisions, in order; repetitions are left out."""
    steps = _acts(theatre)
    steps += [
        Step(
            change.at,
            "check_settings",
            "takes the edit" if change.accepted else "does not use the edit",
            change.outcome,
        )
        for change in changes
        if change.name.startswith("budget/")
    ]
    steps += _outcomes(theatre)
    last: tuple[object, ...] = ()
    for decision in theatre.decisions(theatre.samples[0].at, theatre.now()):
        victims = frozenset(v.instance_id for v in decision.verdicts if v.verdict is Verdict.STOP)
        codes = tuple(hold.code for hold in decision.holds)
        said = (decision.level, codes, decision.stops, victims, decision.restores)
        quiet = decision.level == "below" and last[:1] == ("below",)
        if not decision.restores and (said == last or quiet):
            continue
        last = said
        steps.append(_decision_step(theatre, decision))
    return tuple(sorted(steps, key=lambda step: step.at))


def _acts(theatre: Theatre) -> list[Step]:
    """What people did; several launches of one person at one moment are one step."""
    steps: list[Step] = []
    for at, who, did in theatre.acts:
        last = steps[-1] if steps else None
        if (
            last
            and (last.at, last.actor) == (at, who)
            and did.startswith("launched ")
            and last.did.startswith("launched ")
        ):
            steps[-1] = replace(last, did=f"{last.did}, {did.removeprefix('launched ')}")
        else:
            steps.append(Step(at, who, did, ""))
    return steps


def _decision_step(theatre: Theatre, decision: Decision) -> Step:
    victims = [v for v in decision.verdicts if v.verdict is Verdict.STOP]
    rate = sum(v.usd_per_hour or 0.0 for v in victims)
    count = f"{len(victims)} machine" + ("" if len(victims) == 1 else "s")
    details: tuple[str, ...] = ()
    shown_rate: float | None = None
    if decision.restores:
        did = f"has {len(decision.restores)} machines started again"
        details = tuple(theatre.name_of(one.instance_id) for one in decision.restores)
    elif decision.stops:
        did, shown_rate = f"stops {count}", rate
    elif decision.level == "stop" and decision.mode == "observe":
        did, shown_rate = f"would stop {count}, and changes nothing", rate
    elif decision.level == "stop" and victims and (why_not := _holder(decision)):
        did, shown_rate = f"leaves {count} running: {why_not}", rate
    elif decision.level == "stop" and decision.holds and victims:
        did, shown_rate = f"will stop {count}, and waits", rate
    elif decision.level == "stop":
        did = "finds nothing more to stop"
    elif decision.level == "warn":
        did, shown_rate = f"warns; at the stop level it would stop {count}", rate
    elif decision.level == "unknown":
        did = "does nothing: the spend is unknown"
    else:
        did = "has nothing to do"
    if decision.level == "stop":
        details = tuple(
            f"{theatre.name_of(v.instance_id)}: {_dollars(v.usd_per_hour)}; {words(v.reason)}" for v in victims
        )
    why = "; ".join(words(reason) for reason in (*decision.reasons, *decision.holds))
    return Step(decision.decided_at, "guard_budget", did, why, details, shown_rate, decision.decision_id)


def _holder(decision: Decision) -> str:
    """The word for a hold that a person put there; empty where it only waits."""
    words_of = {ReasonCode.PAUSED: "paused", ReasonCode.OVERRIDDEN: "overridden"}
    return next((words_of[hold.code] for hold in decision.holds if hold.code in words_of), "")


def _dollars(usd_per_hour: float | None) -> str:
    return "price unknown" if usd_per_hour is None else f"{usd(usd_per_hour)}/h"


_SEEN = {
    StopStatus.STOPPED: "sees stopped",
    StopStatus.RESTORED: "sees running again",
    StopStatus.FAILED: "sees a stop fail",
    StopStatus.WITHHELD: "withholds a stop",
    StopStatus.GAVE_UP: "gives up on a start",
    StopStatus.RESTARTED: "sees started by somebody else",
    StopStatus.GONE: "finds gone",
}
"""What the ledger says of ends, in words; steps between are left out."""


def _outcomes(theatre: Theatre) -> list[Step]:
    """What confirm_actions saw of stops and starts: those of one moment are one step."""
    ends: dict[tuple[str, datetime, StopStatus], list[StopEntry]] = {}
    for entry in theatre.ledger_seen.values():
        if entry.status in _SEEN:
            ends.setdefault((entry.decision_id, entry.updated_at, entry.status), []).append(entry)
    steps = []
    for (decision_id, at, status), entries in ends.items():
        names = ", ".join(sorted(theatre.name_of(entry.instance_id) for entry in entries))
        rate = sum(entry.usd_per_hour or 0.0 for entry in entries)
        steps.append(Step(at, "confirm_actions", f"{_SEEN[status]}: {names}", "", (), rate, decision_id))
    return steps


def _changes(theatre: Theatre) -> tuple[Change, ...]:
    versions = [record.body for record in theatre.settings_history()]
    values: dict[str, str] = dict(versions[0]["values"]) | {"control/pause": "off"}
    rejection = theatre.rejection()
    complaint = "" if rejection is None else str(rejection.body["errors"][0]["sentence"])
    changes = []
    for at, who, name, value in theatre.edits:
        before, values[name] = values.get(name, ""), value
        if name.startswith("control/"):
            changes.append(Change(at, who, name, before, value, "read anew before every stop", True))
            continue
        taken = next((one for one in versions if _moment(one) >= at and one["values"].get(name) == value), None)
        if taken is None:
            changes.append(Change(at, who, name, before, value, f"not used: {complaint}", False))
        elif _moment(taken) - at > timedelta(minutes=1):
            outcome = (
                f"not used at first: {complaint}. In force with version {taken['version']}, {_moment(taken):%H:%M}"
            )
            changes.append(Change(at, who, name, before, value, outcome, False))
        else:
            by = person(str(taken["edits"][name]["by"])) if name in taken["edits"] else who
            changes.append(
                Change(at, by.rpartition("/")[2], name, before, value, f"in force as version {taken['version']}", True)
            )
    return tuple(changes)


def _moment(version: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(str(version["read_at"]))
