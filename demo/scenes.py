"""The seven scenes. Whatever is stopped or told is done by deployed functions; people edit, launch and start."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from demo.company import ENGINEER, FLEET, LATECOMER, LIMIT_USD, NEXT_MONTH, ON_CALL, OPS_LEAD, Machine
from demo.story import Crossing, MarkKind, Thresholds
from demo.terminal import duration, usd
from demo.theatre import STAGE, PlayError, Theatre, first_of_month_after
from governor.domain.decisions import Decision
from governor.domain.meter import period_end, period_start
from governor.domain.reasons import ReasonCode
from local.mail import Mail

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


def play(theatre: Theatre) -> Played:
    """Play all scenes in order. Checks are noted and do not end the play."""
    first = first_of_month_after(theatre.now(), days_before=6)
    played = Played(first, [], {}, {})
    _observe(theatre, played)
    _arm_and_warn(theatre, played)
    _stop(theatre, played)
    _slip(theatre, played)
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
    theatre.check("calls that change an instance", 0, len(theatre.stop_calls()))
    theatre.check("machines running", len(FLEET), _count_running(theatre))


def _hire(theatre: Theatre) -> None:
    reader, operator = theatre.deployed["ReaderPolicyArn"], theatre.deployed["OperatorPolicyArn"]
    theatre.hire(OPS_LEAD, reader, operator)
    theatre.hire(ON_CALL, reader, operator)
    theatre.hire(ENGINEER, reader, may_use_ec2=True)
    theatre.subscribe_mail()
    theatre.set_budget_limit(LIMIT_USD)


def _arm_and_warn(theatre: Theatre, played: Played) -> None:
    while theatre.now() < played.first_of_month - timedelta(hours=20):
        theatre.wait_for_refresh()
    theatre.jump(played.first_of_month + timedelta(hours=9))
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
    theatre.check("mails after arming, which tell the edit", 1, len(armed_mails))
    _mark_mails(theatre, armed_mails)

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
    theatre.check("mails", ["warn"], [theatre.severity_of(mail) for mail in mails])
    theatre.check("calls that change an instance", 0, len(theatre.stop_calls()))
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
    notice = theatre.mails(before)
    theatre.check("mails at once: the notice", ["page"], [theatre.severity_of(mail) for mail in notice])
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
        "less. What is critical, unmanaged, out of scope or not yet handled goes on."
    )
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
    theatre.check(
        "mails: notice, stopping, seen stopped", ["page", "page", "info"], [theatre.severity_of(m) for m in mails]
    )
    theatre.check("stops whose end was seen", len(stopped), sum(e.status == "stopped" for e in theatre.ledger()))
    theatre.check("calls that change an instance", ["StopInstances 200"], _calls(theatre))


def _check_reasons(theatre: Theatre, decision: Decision) -> None:
    said = {theatre.name_of(v.instance_id): v.reason.code for v in decision.verdicts}
    expected = {machine.name: machine.stays_because or ReasonCode.WITHIN_REACH for machine in FLEET}
    theatre.check(
        "the reason given for each machine",
        [f"{name}: {code}" for name, code in sorted(expected.items())],
        [f"{name}: {code}" for name, code in sorted(said.items())],
    )


def _slip(theatre: Theatre, played: Played) -> None:
    next_month = period_end(theatre.now())
    while theatre.now() < next_month - timedelta(hours=20):
        theatre.wait_for_refresh()
    theatre.jump(next_month + timedelta(hours=9))
    played.month_end_usd = theatre.month_ends[-1]
    before = len(theatre.mails())
    theatre.open_scene(4, "A slip of the hand: one clear message, nothing changes")
    theatre.tell(
        f"A new month. The old machines stay stopped; the teams launch {len(NEXT_MONTH)} fresh ones for new work."
    )
    for machine in NEXT_MONTH:
        theatre.launch(ENGINEER, machine)
    theatre.run(6)
    theatre.check("mails", 0, len(theatre.mails(before)))
    stopped = {name for name, state in theatre.states().items() if state == "stopped"}
    theatre.check("machines still stopped", _names(FLEET), stopped)

    theatre.check("62 % was reported", True, theatre.wait_until_reported(62))
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
    theatre.check("mails: one, to those who watch settings", ["warn"], [theatre.severity_of(mail) for mail in mails])
    body = mails[0].body if mails else ""
    theatre.check_that(
        "the mail names the rule and who wrote it",
        "must be below budget/stop-percent (60)" in body and OPS_LEAD in body,
        f"the rule, and {OPS_LEAD}",
        mails[0].subject if mails else "no mail",
    )
    theatre.check("version of the settings in force", version, _version(theatre))
    theatre.check("fresh machines running", True, _names(NEXT_MONTH) <= running)


def _obey(theatre: Theatre, played: Played) -> None:
    before, calls = len(theatre.mails()), len(theatre.stop_calls())
    theatre.open_scene(5, "Put right: it says who changed what, waits, and obeys")
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
    theatre.check(
        "mails at once: the edit, and the notice", ["info", "page"], sorted(theatre.severity_of(m) for m in mails)
    )
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
    theatre.check("calls that change an instance within the 10 minutes", calls, len(theatre.stop_calls()))
    stopping_at = _run_until_stopped(theatre, _names(NEXT_MONTH), at_most=10)
    states = theatre.states()
    waited = stopping_at - edited_at
    theatre.tell(f"After {duration(waited.total_seconds())} {len(NEXT_MONTH)} machines are stopped.")
    theatre.mark(MarkKind.STOP, f"{len(NEXT_MONTH)} stopped", stopping_at)
    theatre.check_that(
        "from edit to stop", timedelta(minutes=10) <= waited <= timedelta(minutes=15), "10 to 15 min",
        duration(waited.total_seconds()),
    )  # fmt: skip
    theatre.check(
        "fresh machines stopped", _names(NEXT_MONTH), {n for n in _names(NEXT_MONTH) if states[n] == "stopped"}
    )
    critical = {one.name for one in FLEET if one.stays_because is ReasonCode.CRITICAL}
    theatre.check("critical machines running", critical, {name for name in critical if states[name] == "running"})
    theatre.run(5)
    _mark_mails(theatre, theatre.mails(before))


def _pause(theatre: Theatre) -> None:
    before = len(theatre.mails())
    theatre.run(1)
    theatre.open_scene(6, "A pause holds a stop that is due")
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
    theatre.check("calls that change an instance since the pause", 1, len(theatre.stop_calls()) - calls)
    theatre.run(6)
    _mark_mails(theatre, theatre.mails(before))


def _refuse(theatre: Theatre) -> None:
    theatre.open_scene(7, "IAM says it again: the function's own role cannot stop what is critical")
    theatre.tell(
        "Suppose the code were wrong. The demo takes the role of guard_budget and calls EC2 with it directly; the "
        "policies of the deployed role decide."
    )
    ec2 = _as_guard(theatre)
    critical = next(one.name for one in FLEET if one.stays_because is ReasonCode.CRITICAL)
    unmanaged = next(one.name for one in FLEET if one.stays_because is ReasonCode.NOT_MANAGED)
    inexact = next(one.name for one in FLEET if one.stays_because is ReasonCode.TAG_NOT_EXACT)
    standard = NEXT_MONTH[0].name
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


def _calls(theatre: Theatre) -> list[str]:
    return [f"{call.action.partition(':')[2]} {call.status}" for call in theatre.stop_calls()]


def _percent(amount_usd: float | None) -> str:
    return f"{(amount_usd or 0.0) / LIMIT_USD * 100:.1f} %"


def _when(moment: datetime) -> str:
    return f"{moment:%a %d %b %H:%M}"
