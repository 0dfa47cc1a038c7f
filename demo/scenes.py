"""The nine scenes. Whatever is stopped or told is done by deployed functions; people edit, launch and start."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from demo.company import (
    ENGINEER,
    FLEET,
    GROUP_NAME,
    GROUP_SIZES,
    LATECOMER,
    LIMIT_USD,
    ON_CALL,
    OPS_LEAD,
    RELEASE,
    Kind,
    Machine,
)
from demo.story import Command, Crossing, GroupMoment, MarkKind, Overriding, Restoring, Returned, Thresholds
from demo.terminal import duration, usd
from demo.theatre import STAGE, PlayError, Theatre, boot_minutes, first_of_month_after
from governor.domain.decisions import Decision
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.meter import period_end, period_start
from governor.domain.reasons import ReasonCode
from local.mail import Mail

_DIGEST = re.compile(r"\] the (day|week|month) ?[0-9-]*: ")

_NOTICE = re.compile(r"\] stopping \d+ instances? at ")

_EXPECTED_SPOT = {Kind.PERSISTENT_SPOT: "persistent, disabled", Kind.ONE_TIME_SPOT: "one-time, active"}
"""Type and state of a spot request after the stop. Disabled: its instance is stopped, and no other is launched."""

SPENT_BEFORE_USD = 32_700.0
"""What the month before has cost when the Governor is installed: 109 % of the limit."""


@dataclass(slots=True)
class Played:
    """What the scenes leave for the story, beside what the theatre noted."""

    first_of_month: datetime
    thresholds: list[Thresholds]
    states_before: dict[str, str]
    states_after: dict[str, str]
    stop_decision: Decision | None = None
    crossing: Crossing | None = None
    rate_before: float = 0.0
    rate_after: float = 0.0
    month_end_usd: float = 0.0
    month_end_without_usd: float = 0.0
    overriding: Overriding | None = None
    restoring: Restoring | None = None


def play(theatre: Theatre) -> Played:
    """Play all scenes in order. Checks are noted and do not end the play."""
    first = first_of_month_after(theatre.now(), days_before=6)
    played = Played(first, [], {}, {})
    _observe(theatre, played)
    _arm_and_warn(theatre, played)
    _stop(theatre, played)
    _override(theatre, played)
    _restore(theatre, played)
    _slip(theatre)
    _obey(theatre, played)
    _pause(theatre)
    _refuse(theatre)
    theatre.close_scene()
    return played


def _observe(theatre: Theatre, played: Played) -> None:
    installed = played.first_of_month - timedelta(days=2) + timedelta(hours=9)
    with theatre.narrator.work(f"Launching {len(FLEET)} GPU machines"):
        _hire(theatre)
        for machine in sorted(FLEET, key=lambda one: -one.launched_before):
            theatre.aws.set_clock(installed - machine.launched_before)
            theatre.launch(ENGINEER, machine)
        theatre.begin(installed, SPENT_BEFORE_USD)
        theatre.aws.enforce_roles(True)
    theatre.open_scene(1, "Installed: it only observes")
    theatre.tell(
        f"The month's GPU bill stands at {usd(SPENT_BEFORE_USD, 0)} of {usd(LIMIT_USD, 0)} when the Governor is "
        "installed. A new install changes nothing; it says what it would have done."
    )
    theatre.aws.hold_deliveries(True)
    for name, value in (
        ("budget/mode", "observe"),
        ("budget/limit-usd", f"{LIMIT_USD:.0f}"),
        ("budget/grace-minutes", "5"),
        ("budget/confirm-minutes", "10"),
    ):
        theatre.edit(OPS_LEAD, name, value, settle=False)
    theatre.edits.clear()
    theatre.acts.clear()  # part of the install: the stage `local` seeds other values than a production stage
    theatre.refresh_budget()
    theatre.aws.hold_deliveries(False)
    theatre.run(6)
    played.thresholds.append(_thresholds(theatre))
    mails = theatre.mails()
    _mark_mails(theatre, mails)
    would = [mail for mail in mails if "would have stopped" in mail.subject]
    decision = _latest(theatre, "stop")
    theatre.check("mails that say what would have been stopped", 1, len(would))
    theatre.check("mails in all", 1, len(mails))
    theatre.check("machines it would have stopped", _names(FLEET), _taken(theatre, decision))
    theatre.check("calls that stop or change an instance", 0, len(theatre.stop_calls()))
    theatre.check("machines running", len(FLEET), _count_running(theatre))


def _hire(theatre: Theatre) -> None:
    reader, operator = theatre.deployed["ReaderPolicyArn"], theatre.deployed["OperatorPolicyArn"]
    theatre.hire(OPS_LEAD, reader, operator)
    theatre.hire(ON_CALL, reader, operator)
    theatre.hire(ENGINEER, reader, may_use_ec2=True)
    theatre.subscribe_mail()
    theatre.set_budget_limit(LIMIT_USD)


def _arm_and_warn(theatre: Theatre, played: Played) -> None:
    _wait_for_month_end(theatre, played.first_of_month)
    before = len(theatre.mails())
    theatre.open_scene(2, "Armed on the first of the month; 80 %: one mail, nothing stopped")
    theatre.tell(
        f"{OPS_LEAD} writes `enforce` into /governor/{STAGE}/budget/mode. AWS Budgets still reports last month's "
        f"{usd(theatre.reported_usd or 0.0, 0)}; a new month that begins above the old one's level is not believed."
    )
    theatre.edit(OPS_LEAD, "budget/mode", "enforce")
    theatre.mark(MarkKind.EDIT, "armed")
    theatre.run(11)
    stale = _latest(theatre)
    theatre.check("level while the figure is last month's", "unknown", stale.level)
    theatre.check("reason for it", ReasonCode.PERIOD_JUST_CHANGED, stale.reasons[0].code)
    theatre.check("machines running after arming", len(FLEET), _count_running(theatre))
    armed_mails = theatre.mails(before)
    _mark_mails(theatre, armed_mails)
    theatre.check("mails after arming, which tell the edit", 1, len(_but_digests(armed_mails)))

    before = len(theatre.mails())
    reported = theatre.wait_until_reported(80)
    theatre.tell(
        f"{_when(theatre.now())}: AWS Budgets reports {usd(theatre.reported_usd or 0.0, 0)}, "
        f"{_percent(theatre.reported_usd)} of the limit."
    )
    mails = theatre.mails(before)
    _mark_mails(theatre, mails)
    theatre.check("80 % was reported", True, reported)
    difference = abs((theatre.reported_usd or 0.0) - theatre.true_usd)
    theatre.check_that(
        "the reported figure is the sum of running hours times list price",
        difference < 1.0,
        "within $1",
        usd(difference),
    )
    theatre.check("mails", ["warn"], _severities(theatre, mails))
    theatre.check("calls that stop or change an instance", 0, len(theatre.stop_calls()))
    theatre.check("machines running", len(FLEET), _count_running(theatre))


def _stop(theatre: Theatre, played: Played) -> None:
    before = len(theatre.mails())
    reported = theatre.wait_until_reported(95)
    theatre.open_scene(3, "95 %: notice, grace, and what is not critical is stopped")
    stop_usd = LIMIT_USD * 0.95
    crossed_at = _crossed_at(theatre, stop_usd)
    reported_at = theatre.now()
    theatre.tell(
        f"The bill truly crossed {usd(stop_usd, 0)} at {_when(crossed_at)}. AWS Budgets reports it "
        f"{duration((reported_at - crossed_at).total_seconds())} later, with {usd(theatre.reported_usd or 0.0, 0)}."
    )
    played.states_before = theatre.states()
    played.rate_before = theatre.run_rate()
    theatre.check("95 % was reported", True, reported)
    notice = _but_digests(theatre.mails(before))
    groups_before = theatre.note_group("before the stop")
    theatre.check("mails at once: the notice", ["page"], _severities(theatre, notice))
    theatre.run(4)
    theatre.check("machines running within the 5 minutes of grace", len(FLEET), _count_running(theatre))
    theatre.run(1)
    played.stop_decision = _latest(theatre, "stop")
    stopping_at = theatre.now()
    theatre.run(5)
    played.states_after = theatre.states()
    played.rate_after = theatre.run_rate()
    spent = theatre.true_usd
    left = period_end(theatre.now()) - theatre.now()
    played.month_end_without_usd = spent + played.rate_before * (left / timedelta(hours=1))
    mails = theatre.mails(before)
    _mark_mails(theatre, mails)
    stopped = {name for name, state in played.states_after.items() if state == "stopped"}
    theatre.mark(MarkKind.STOP, f"{len(stopped)} stopped", stopping_at)
    theatre.tell(
        f"{len(stopped)} machines are stopped after the grace: {usd(played.rate_before - played.rate_after)} an hour "
        "less. What is critical, unmanaged, out of scope, stop-protected or one-time spot goes on."
    )
    held = theatre.note_group("stopped")
    theatre.tell(
        f"Members of the Auto Scaling group {GROUP_NAME} go into standby before they are stopped, so that it launches "
        f"none in their place; its MinSize is lowered from {groups_before.min_size} to {held.min_size}."
    )
    spot = {one.name: theatre.spot_state(one.name) for one in FLEET if one.kind in _EXPECTED_SPOT}
    theatre.tell("Spot requests by now: " + "; ".join(f"{name} is {state}" for name, state in spot.items()) + ".")
    played.crossing = Crossing(
        crossed_at=crossed_at,
        reported_at=reported_at,
        noticed_at=datetime.fromisoformat(notice[0].at) if notice else reported_at,
        stopping_at=stopping_at,
        seen_stopped_at=theatre.now(),
        stop_usd=stop_usd,
        spent_when_stopped_usd=spent,
    )
    theatre.check("machines stopped", _names(FLEET), stopped)
    others = {machine.name for machine in FLEET} - _names(FLEET)
    theatre.check("machines left running", others, {n for n, s in played.states_after.items() if s == "running"})
    _check_reasons(theatre, played.stop_decision)
    theatre.check("mails: notice, stopping, seen stopped", ["page", "page", "info"], _severities(theatre, mails))
    theatre.check("stops whose end was seen", len(stopped), sum(e.status == "stopped" for e in theatre.ledger()))
    theatre.check("calls that stop or change an instance, and their answers", {"StopInstances 200"}, _calls(theatre))
    theatre.check("sizes of the group before: least, desired, most", GROUP_SIZES, _sizes(groups_before))
    theatre.check("sizes of the group after", (0, 0, GROUP_SIZES[2]), _sizes(held))
    members = {machine.name for machine in FLEET if machine.kind is Kind.GROUP_MEMBER}
    theatre.check("members in standby", members, {name for name, state in held.members if state == "Standby"})
    theatre.check("instances of the group, so none in the place of a stopped one", GROUP_SIZES[1], held.launched)
    theatre.check("instances that nobody of the story launched", 0, _strangers(theatre))
    for machine in FLEET:
        if machine.kind in _EXPECTED_SPOT:
            theatre.check(f"spot request of {machine.name}", _EXPECTED_SPOT[machine.kind], spot[machine.name])


def _check_reasons(theatre: Theatre, decision: Decision) -> None:
    said = {theatre.name_of(v.instance_id): v.reason.code for v in decision.verdicts}
    expected = {machine.name: machine.stays_because or ReasonCode.WITHIN_REACH for machine in FLEET}
    theatre.check(
        "the reason given for each machine",
        [f"{name}: {code}" for name, code in sorted(expected.items())],
        [f"{name}: {code}" for name, code in sorted(said.items())],
    )


def _override(theatre: Theatre, played: Played) -> None:
    monday = (theatre.now() + timedelta(days=2)).replace(hour=9, minute=0, second=0, microsecond=0)
    while theatre.now() + timedelta(hours=16) < monday:
        theatre.wait_for_refresh()
        theatre.run(6)
    theatre.jump(monday)
    theatre.refresh_budget()
    _run_past_guard(theatre)
    before, calls = len(theatre.mails()), len(theatre.stop_calls())
    theatre.open_scene(4, "An override: a person pays for going on, until a time and up to an amount")
    spent = theatre.reported_usd or 0.0
    up_to_usd = round((spent + 1100.0) / 100) * 100.0
    rate = sum(theatre.price_of(machine.instance_type) or 0.0 for machine in RELEASE)
    theatre.tell(
        f"The release candidate has to be trained all the same: {ENGINEER} launches {len(RELEASE)} machines, "
        f"{usd(rate)} an hour, at {_percent(spent)} of the limit. The Governor warns that they are stopped after "
        f"their grace; {OPS_LEAD} says until when and up to which amount they are to go on."
    )
    for machine in RELEASE:
        theatre.launch(ENGINEER, machine)
    theatre.run(6)  # the guard has looked once since, and will stop them when it looks again
    warned = [mail for mail in theatre.mails(before) if "launched above the stop level" in mail.subject]
    theatre.check("mails that warn of their stop", ["warn"], _severities(theatre, warned))
    until = theatre.now() + timedelta(days=4)
    command = theatre.command(
        OPS_LEAD,
        f"governor override --until {until:%Y-%m-%dT%H:%MZ} --up-to-usd {up_to_usd:.0f} "
        f"--because 'the release candidate is due' --stage {STAGE}",
    )
    began, runs = theatre.now(), theatre.guard_runs()
    theatre.mark(MarkKind.EDIT, "override")
    _check_command(theatre, command)
    theatre.run(30)
    parameter = "control/override/budget"
    theatre.check(
        "the parameter that it wrote",
        f"budget until {until:%Y-%m-%dT%H:%MZ} up to {up_to_usd:.2f} usd because the release candidate is due",
        theatre.parameter(parameter),
    )
    ended = _wait_for_amount(theatre, up_to_usd)
    ended_at, reported = theatre.now(), theatre.reported_usd or 0.0
    held = theatre.guard_runs() - runs
    said = [one for one in theatre.decisions(began, ended_at) if began <= one.decided_at < ended_at]
    stop_calls = len(theatre.stop_calls()) - calls
    states = theatre.states()
    theatre.check("calls that stop or change an instance while it held", 0, stop_calls)
    theatre.check("machines of the release that ran", _names(RELEASE), _in_state(states, RELEASE, "running"))
    theatre.check_that("runs of the guard meanwhile", held >= 6, "6 or more", str(held))
    theatre.check("what they recorded", True, bool(said) and all(ReasonCode.OVERRIDDEN in _codes(one) for one in said))
    theatre.check("the amount was reported before the time was over", True, ended and ended_at < until)
    told = [mail for mail in theatre.mails(before) if "overridden" in mail.subject]
    theatre.check("mails that say it is overridden", ["warn"], _severities(theatre, told))
    theatre.tell(
        f"In {duration((ended_at - began).total_seconds())} the guard runs {held} times and sees the stop level; stop "
        f"calls: {stop_calls}. {_when(ended_at)}: AWS Budgets reports {usd(reported)}, more than {usd(up_to_usd)}; the "
        "override is over."
    )
    stopped_at = _run_until_stopped(theatre, _names(RELEASE), at_most=20)
    theatre.run(5)
    theatre.mark(MarkKind.STOP, f"{len(RELEASE)} stopped", stopped_at)
    states = theatre.states()
    theatre.check("stopped after it", _names(RELEASE), _in_state(states, RELEASE, "stopped"))
    theatre.tell(f"After notice and grace the {len(RELEASE)} machines are stopped at {stopped_at:%H:%M}.")
    mails = theatre.mails(before)
    theatre.check("notices after it, before the stop", 1, len(_notices(theatre, before)))
    _mark_mails(theatre, mails)
    played.overriding = Overriding(
        command=command,
        parameter=f"/governor/{STAGE}/{parameter}",
        until=until,
        up_to_usd=up_to_usd,
        spent_at_begin_usd=spent,
        machines=tuple(machine.name for machine in RELEASE),
        usd_per_hour=rate,
        runs_held=held,
        stop_calls=stop_calls,
        ended_at=ended_at,
        reported_at_end_usd=reported,
        stopped_at=stopped_at,
    )


def _run_past_guard(theatre: Theatre) -> None:
    """Run until the minute after the next run of the guard, which comes every 5 minutes."""
    runs = theatre.guard_runs()
    for _ in range(6):
        theatre.run(1)
        if theatre.guard_runs() > runs:
            break
    theatre.run(1)


def _notices(theatre: Theatre, before: int) -> list[Mail]:
    return [mail for mail in theatre.mails(before) if _NOTICE.search(mail.subject)]


def _wait_for_amount(theatre: Theatre, amount_usd: float, *, at_most: int = 6) -> bool:
    """Let refreshes pass, each followed by some minutes in which the guard runs, until the amount is reported."""
    for _ in range(at_most):
        theatre.wait_for_refresh()
        if (theatre.reported_usd or 0.0) >= amount_usd:
            return True
        theatre.run(11)
    return False


def _wait_for_month_end(theatre: Theatre, next_month: datetime) -> None:
    """Let refreshes pass until the month is nearly over, and go on to the first morning of the next."""
    while theatre.now() < next_month - timedelta(hours=20):
        theatre.wait_for_refresh()
    theatre.run(5)
    theatre.jump(next_month + timedelta(hours=9))


def _restore(theatre: Theatre, played: Played) -> None:
    _wait_for_month_end(theatre, period_end(theatre.now()))
    played.month_end_usd = theatre.month_ends[-1]
    theatre.refresh_budget()
    theatre.run(5)
    before = len(theatre.mails())
    theatre.open_scene(5, "A new month: the command in the mail brings back what was stopped")
    stopped = _in_state(theatre.states(), FLEET, "stopped")
    theatre.check("machines still stopped", _names(FLEET), stopped)
    mail, line = _restore_command(theatre, played)
    proposal = next((one.subject for one in theatre.mails() if "can come back" in one.subject), "")
    theatre.check("the Governor has proposed what fits the limit", True, bool(proposal))
    theatre.tell(
        f"The Governor proposes what fits the limit of the new month: “{proposal.partition('] ')[2]}”. {OPS_LEAD} "
        f"wants all that was stopped on {_when(datetime.fromisoformat(mail.at))}, opens that page and runs the command "
        "in it. `--yes` answers its question; `--no-wait` leaves out its watching, since the clock moves only between "
        "commands."
    )
    theatre.let_starts_take_time()
    theatre.note_group("before the restore")
    began, running = theatre.now(), dict[str, float]()
    command = theatre.command(OPS_LEAD, f"{line} --yes --no-wait")
    theatre.mark(MarkKind.START, f"restore of {len(stopped)}")
    _check_command(theatre, command)
    group_after = _watch_return(theatre, began, stopped, running)
    theatre.note_group("restored")
    theatre.run(5)
    states = theatre.states()
    ledger = _entries(theatre, StopStatus.RESTORED)
    rows = tuple(
        _returned(theatre, machine, began, running, ledger)
        for machine in sorted(FLEET, key=lambda one: (running.get(one.name, 0.0), one.name))
        if machine.name in stopped
    )
    played.restoring = Restoring(
        mail_subject=mail.subject,
        mail_at=datetime.fromisoformat(mail.at),
        in_mail=line,
        command=command,
        rows=rows,
        group_after_seconds=group_after,
    )
    back = theatre.group_moments[-1]
    theatre.check("machines running again", stopped, _in_state(states, FLEET, "running") & stopped)
    theatre.check("machines of the override, not asked for", _names(RELEASE), _in_state(states, RELEASE, "stopped"))
    theatre.check("restores whose end the Governor saw", stopped, {theatre.name_of(one) for one in ledger})
    theatre.check("sizes of the group: least, desired, most", GROUP_SIZES, _sizes(back))
    theatre.check("members in service", {"InService"}, {state for _, state in back.members})
    theatre.check("instances that nobody of the story launched", 0, _strangers(theatre))
    slowest = played.restoring.slowest_seconds
    if slowest is not None:
        shown = "" if group_after is None else f", the group has its sizes back after {duration(group_after)}"
        theatre.tell(f"The last of {len(rows)} machines runs {duration(slowest)} after the command{shown}.")
    _mark_mails(theatre, theatre.mails(before))


def _restore_command(theatre: Theatre, played: Played) -> tuple[Mail, str]:
    """The mail of the stop in January, and the command in it. Raises PlayError where there is none."""
    decision_id = "" if played.stop_decision is None else played.stop_decision.decision_id
    for mail in theatre.mails():
        for line in mail.body.splitlines():
            if line.strip().startswith("governor restore --decision") and decision_id in line:
                return mail, line.strip()
    raise PlayError(f"no mail holds a command that restores what {decision_id} stopped")


def _watch_return(theatre: Theatre, began: datetime, names: set[str], running: dict[str, float]) -> float | None:
    """Minute by minute until all run and the group is as before; notes the seconds at which each ran first.

    Returns the seconds until the group had its sizes and its members in service; None where it had not in 30 minutes.
    """
    group_after: float | None = None
    for _ in range(30):
        passed = (theatre.now() - began).total_seconds()
        states = theatre.states()
        for name in names:
            if states[name] == "running":
                running.setdefault(name, passed)
        group = theatre.look_at_group("")
        if group_after is None and _sizes(group) == GROUP_SIZES and {s for _, s in group.members} == {"InService"}:
            group_after = passed
        if group_after is not None and len(running) == len(names):
            break
        theatre.run(1)
    return group_after


def _returned(
    theatre: Theatre, machine: Machine, began: datetime, running: dict[str, float], ledger: dict[str, StopEntry]
) -> Returned:
    instance_id = theatre.ids[machine.name]
    entry = ledger.get(instance_id)
    called = None if entry is None or entry.start_tried_at is None else (entry.start_tried_at - began).total_seconds()
    seen = None if entry is None or entry.restored_at is None else (entry.restored_at - began).total_seconds()
    return Returned(
        instance_id=instance_id,
        name=machine.name,
        instance_type=machine.instance_type,
        kind=machine.kind.value,
        usd_per_hour=theatre.price_of(machine.instance_type),
        boot_minutes=boot_minutes(machine.instance_type),
        called_after_seconds=called,
        running_after_seconds=running.get(machine.name),
        confirmed_after_seconds=seen,
    )


def _slip(theatre: Theatre) -> None:
    reported = theatre.wait_until_reported(62)
    theatre.open_scene(6, "A slip of the hand: one clear message, nothing changes")
    theatre.check("62 % was reported", True, reported)
    before, version = len(theatre.mails()), _version(theatre)
    theatre.tell(
        f"{_when(theatre.now())}: at {_percent(theatre.reported_usd)} {OPS_LEAD} lowers budget/stop-percent from 95 to "
        "60 and forgets that the warning stands at 80."
    )
    theatre.edit(OPS_LEAD, "budget/stop-percent", "60")
    theatre.mark(MarkKind.EDIT, "slip")
    theatre.run(2)
    mails = theatre.mails(before)
    _mark_mails(theatre, mails)
    running = {name for name, state in theatre.states().items() if state == "running"}
    theatre.check("mails: one, to those who watch settings", ["warn"], _severities(theatre, mails))
    body = mails[0].body if mails else ""
    theatre.check_that(
        "the mail names the rule and who wrote it",
        "must be below budget/stop-percent (60)" in body and OPS_LEAD in body,
        f"the rule, and {OPS_LEAD}",
        mails[0].subject if mails else "no mail",
    )
    theatre.check("version of the settings in force", version, _version(theatre))
    theatre.check("machines running that may be stopped", _names(FLEET), running & _names(FLEET))


def _obey(theatre: Theatre, played: Played) -> None:
    before, calls = len(theatre.mails()), len(theatre.stop_calls())
    theatre.open_scene(7, "Put right: it says who changed what, waits, and obeys")
    theatre.tell(
        f"{OPS_LEAD} lowers budget/warn-percent to 50. Both edits hold together, and the stop level is reached."
    )
    version = _version(theatre)
    theatre.edit(OPS_LEAD, "budget/warn-percent", "50")
    edited_at = theatre.now()
    theatre.mark(MarkKind.EDIT, "stop at 60 %")
    theatre.check("version of the settings in force", version + 1, _version(theatre))
    played.thresholds.append(_thresholds(theatre))
    mails = theatre.mails(before)
    theatre.check("mails at once: the edit, and the notice", ["info", "page"], sorted(_severities(theatre, mails)))
    told = next((mail.body for mail in mails if theatre.severity_of(mail) == "info"), "")
    edits = ("stop-percent from 95 to 60", "warn-percent from 80 to 50")
    theatre.check_that(
        "the mail says who changed what from what to what",
        all(f"{OPS_LEAD} changed budget/{edit}" in told for edit in edits),
        ", ".join(edits),
        told.partition("\n")[0],
    )  # fmt: skip
    held = _latest(theatre, "stop")
    theatre.check("held because a threshold was just edited", True, ReasonCode.THRESHOLD_EDITED in _codes(held))
    theatre.run(9)
    theatre.check("calls that stop or change an instance within the 10 minutes", calls, len(theatre.stop_calls()))
    waves = _run_waves(theatre, _names(FLEET), at_most=20)
    states = theatre.states()
    for at, names in waves:
        theatre.mark(MarkKind.STOP, f"{len(names)} stopped", at)
    told_waves = ", then ".join(
        f"{len(names)} after {duration((at - edited_at).total_seconds())}" for at, names in waves
    )
    theatre.tell(f"After an edited threshold it stops in waves of half of what is within reach: {told_waves}.")
    first, last = (waves[0][0] - edited_at, waves[-1][0] - edited_at) if waves else (timedelta(0), timedelta(0))
    theatre.check_that(
        "from edit to the first stop", timedelta(minutes=10) <= first <= timedelta(minutes=15), "10 to 15 min",
        duration(first.total_seconds()),
    )  # fmt: skip
    theatre.check("waves", 2, len(waves))
    theatre.check_that(
        "from the first wave to the last", last - first <= timedelta(minutes=10), "at most 10 min",
        duration((last - first).total_seconds()),
    )  # fmt: skip
    theatre.check("machines stopped", _names(FLEET), _in_state(states, FLEET, "stopped"))
    theatre.check(
        "sizes of the group: least, desired, most", (0, 0, GROUP_SIZES[2]), _sizes(theatre.note_group("stopped again"))
    )
    critical = {one.name for one in FLEET if one.stays_because is ReasonCode.CRITICAL}
    theatre.check("critical machines running", critical, {name for name in critical if states[name] == "running"})
    theatre.run(5)
    _mark_mails(theatre, theatre.mails(before))


def _pause(theatre: Theatre) -> None:
    before = len(theatre.mails())
    theatre.run(1)
    theatre.open_scene(8, "A pause holds a stop that is due")
    theatre.launch(ENGINEER, LATECOMER)
    theatre.tell(
        f"{ENGINEER} launches {LATECOMER.name} for a customer although the stop level is reached. It has the grace of "
        f"every new machine. {ON_CALL} writes into the pause parameter, as from the console on a phone."
    )
    theatre.run(6)
    until = theatre.now() + timedelta(hours=2)
    theatre.edit(ON_CALL, "control/pause", f"on until {until:%Y-%m-%dT%H:%MZ} because a customer watches the pilot")
    theatre.mark(MarkKind.EDIT, "pause")
    theatre.run(8)
    theatre.check("state of the new machine while paused", "running", theatre.states()[LATECOMER.name])
    pages = [mail for mail in theatre.mails(before) if theatre.severity_of(mail) == "page"]
    theatre.check("pages: one that says it is paused", 1, sum("PAUSED" in mail.subject for mail in pages))
    theatre.check_that(
        "the page says why, and what goes on",
        any("a customer watches the pilot" in page.body and LATECOMER.name in page.body for page in pages),
        "the reason and the machine",
        pages[0].subject if pages else "no page",
    )
    calls = len(theatre.stop_calls())
    theatre.tell(f"The customer has gone; {ON_CALL} writes `off`.")
    theatre.edit(ON_CALL, "control/pause", "off")
    theatre.mark(MarkKind.EDIT, "pause off")
    stopped_at = _run_until_stopped(theatre, {LATECOMER.name}, at_most=10)
    theatre.mark(MarkKind.STOP, "1 stopped", stopped_at)
    theatre.check("state of the new machine after the pause", "stopped", theatre.states()[LATECOMER.name])
    theatre.check("calls that stop or change an instance since the pause", 1, len(theatre.stop_calls()) - calls)
    theatre.run(6)
    _mark_mails(theatre, theatre.mails(before))


def _refuse(theatre: Theatre) -> None:
    theatre.open_scene(9, "IAM says it again: the function's own role cannot stop what is critical")
    theatre.tell(
        "Suppose the code were wrong. The demo takes the role of guard_budget and calls EC2 with it directly; the "
        "policies of the deployed role decide."
    )
    ec2 = _as_guard(theatre)
    critical = next(one.name for one in FLEET if one.stays_because is ReasonCode.CRITICAL)
    unmanaged = next(one.name for one in FLEET if one.stays_because is ReasonCode.NOT_MANAGED)
    inexact = next(one.name for one in FLEET if one.stays_because is ReasonCode.TAG_NOT_EXACT)
    standard = RELEASE[0].name
    for label, name in (("critical", critical), ("unmanaged", unmanaged), ("with an inexact tag", inexact)):
        answer = _try_stop(ec2, theatre.ids[name])
        theatre.act("the role of guard_budget", f"tried to stop {name} directly: EC2 answers {answer}")
        theatre.check(f"EC2's answer for {name} ({label})", "UnauthorizedOperation", answer)
    theatre.check(
        f"EC2's answer for {standard} (standard, stopped already)", "accepted", _try_stop(ec2, theatre.ids[standard])
    )
    theatre.check("state of the critical machine", "running", theatre.states()[critical])
    alarms = [mail for mail in theatre.alarm_mails() if mail.subject.startswith("ALARM")]
    theatre.check("pages from alarms on the Governor itself", 0, sum(theatre.severity_of(m) == "page" for m in alarms))


def _as_guard(theatre: Theatre) -> Any:
    function = theatre.deployed["GuardBudgetFunctionName"]
    role = theatre.aws.client("lambda").get_function_configuration(FunctionName=function)["Role"]
    keys = theatre.aws.client("sts").assume_role(RoleArn=role, RoleSessionName="demo")["Credentials"]
    return theatre.aws.client(
        "ec2",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )


def _try_stop(ec2: Any, instance_id: str) -> str:
    try:
        ec2.stop_instances(InstanceIds=[instance_id])
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "accepted"


def _run_until_stopped(theatre: Theatre, names: Iterable[str], *, at_most: int) -> datetime:
    """Run minute by minute until none of them runs, or `at_most` minutes have passed."""
    for _ in range(at_most):
        theatre.run(1)
        states = theatre.states()
        if all(states[name] == "stopped" for name in names):
            break
    return theatre.now()


def _run_waves(theatre: Theatre, names: set[str], *, at_most: int) -> list[tuple[datetime, set[str]]]:
    """Run minute by minute until all are stopped; which were seen stopped at which minute."""
    waves: list[tuple[datetime, set[str]]] = []
    done: set[str] = set()
    for _ in range(at_most):
        theatre.run(1)
        states = theatre.states()
        fresh = {name for name in names - done if states[name] == "stopped"}
        if fresh:
            waves.append((theatre.now(), fresh))
            done |= fresh
        if done == names:
            break
    return waves


def _mark_mails(theatre: Theatre, mails: Iterable[Mail]) -> None:
    for mail in mails:
        severity = theatre.severity_of(mail)
        kind = MarkKind.PAGE if severity == "page" else MarkKind.MAIL
        subject = mail.subject.removeprefix(f"[Governor {STAGE}] ")
        theatre.mark(kind, f"{severity}: {subject}", datetime.fromisoformat(mail.at))


def _crossed_at(theatre: Theatre, amount_usd: float) -> datetime:
    """The moment at which the true bill of this month reached an amount; between two samples it grows evenly."""
    begin = period_start(theatre.now())
    samples = [one for one in theatre.samples if one.at >= begin]
    for earlier, later in itertools.pairwise(samples):
        if earlier.true_usd < amount_usd <= later.true_usd:
            share = (amount_usd - earlier.true_usd) / (later.true_usd - earlier.true_usd)
            return earlier.at + (later.at - earlier.at) * share
    return theatre.now()


def _thresholds(theatre: Theatre) -> Thresholds:
    warn, stop = theatre.parameter("budget/warn-percent"), theatre.parameter("budget/stop-percent")
    return Thresholds(theatre.now(), float(warn), float(stop))


def _latest(theatre: Theatre, level: str | None = None) -> Decision:
    found = theatre.decisions(theatre.now() - timedelta(days=1), theatre.now())
    matching = [decision for decision in found if level is None or decision.level == level]
    if not matching:
        raise PlayError(f"guard_budget has recorded no decision of level {level or 'any'} by {_when(theatre.now())}")
    return matching[-1]


def _taken(theatre: Theatre, decision: Decision) -> set[str]:
    return {theatre.name_of(verdict.instance_id) for verdict in decision.verdicts if verdict.verdict == "stop"}


def _codes(decision: Decision) -> set[ReasonCode]:
    return {hold.code for hold in decision.holds}


def _names(machines: Iterable[Machine]) -> set[str]:
    return {machine.name for machine in machines if machine.stays_because is None}


def _count_running(theatre: Theatre) -> int:
    return sum(state == "running" for state in theatre.states().values())


def _version(theatre: Theatre) -> int:
    return int(theatre.settings_history()[-1].body["version"])


def _calls(theatre: Theatre) -> set[str]:
    return {f"{call.action.partition(':')[2]} {call.status}" for call in theatre.stop_calls()}


def _strangers(theatre: Theatre) -> int:
    return len(set(theatre.instances()) - set(theatre.ids.values()))


def _check_command(theatre: Theatre, command: Command) -> None:
    """It ended well; else the check shows its last line, and the play cannot go on."""
    last = command.printed.rpartition("\n")[2]
    ended = "exit code 0" if command.exit_code == 0 else f"exit code {command.exit_code}: {last}"
    theatre.check(" ".join(command.typed.split()[:2]), "exit code 0", ended)
    if command.exit_code:
        raise PlayError(f"{command.typed}\n{command.printed}")


def _sizes(moment: GroupMoment) -> tuple[int, int, int]:
    return moment.min_size, moment.desired, moment.max_size


def _in_state(states: dict[str, str], machines: Iterable[Machine], state: str) -> set[str]:
    return {machine.name for machine in machines if states.get(machine.name) == state}


def _entries(theatre: Theatre, status: StopStatus) -> dict[str, StopEntry]:
    """Stops whose last status is this one, by instance."""
    return {entry.instance_id: entry for entry in theatre.ledger() if entry.status is status}


def _but_digests(mails: Iterable[Mail]) -> list[Mail]:
    """Mails without the weekly and monthly digests, which come by the calendar."""
    return [mail for mail in mails if not _DIGEST.search(mail.subject)]


def _severities(theatre: Theatre, mails: Iterable[Mail]) -> list[str]:
    return [theatre.severity_of(mail) for mail in _but_digests(mails)]


def _percent(amount_usd: float | None) -> str:
    return f"{(amount_usd or 0.0) / LIMIT_USD * 100:.1f} %"


def _when(moment: datetime) -> str:
    return f"{moment:%a %d %b %H:%M}"
