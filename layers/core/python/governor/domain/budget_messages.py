"""What the budget guard tells people: what, why, how much money, what is lost, how to undo, how to hold it back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from governor.domain.decisions import Decision, InstanceVerdict, Message, Money, Severity, Verdict
from governor.domain.fleet import UnknownRegion
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.reasons import ReasonCode, words
from governor.domain.settings import BudgetSettings, to_text

MAX_LISTED = 40
SUBJECT_CHARACTERS = 99
"""Amazon SNS API Reference, "Publish": a subject is ASCII text of less than 100 characters."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What every message of one run has in common."""

    stage: str
    home_region: str
    budget_name: str
    period: str
    settings: BudgetSettings
    decision: Decision
    unknown_regions: tuple[UnknownRegion, ...] = ()
    due: datetime | None = None
    aws_limit_usd: float | None = None

    @property
    def money(self) -> Money:
        """The figures of the decision."""
        assert self.decision.money is not None
        return self.decision.money

    def key(self, *parts: str) -> str:
        """Key of a fact of this budget and period."""
        return "#".join((self.budget_name, self.period, *parts))


def console_url(home_region: str, parameter: str) -> str:
    """Page of a parameter in the AWS console, where its value can be edited from a phone."""
    host = "console.amazonaws.cn" if home_region.startswith("cn-") else "console.aws.amazon.com"
    escaped = parameter.replace("/", "%252F")
    return (
        f"https://{home_region}.{host}/systems-manager/parameters/{escaped}/description?region={home_region}&tab=Table"
    )


def subject_of(text: str) -> str:
    """A subject that Amazon SNS accepts: one line, ASCII, at most 100 characters."""
    plain = " ".join(text.encode("ascii", "replace").decode().split())
    return plain if len(plain) <= SUBJECT_CHARACTERS else plain[: SUBJECT_CHARACTERS - 3] + "..."


def _usd(amount: float | None) -> str:
    return "unknown" if amount is None else f"${amount:,.2f}"


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _count(number: int, noun: str = "instance") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listing(verdicts: tuple[InstanceVerdict, ...]) -> list[str]:
    lines = []
    for verdict in verdicts[:MAX_LISTED]:
        label = f" {verdict.name}" if verdict.name else ""
        project = f", project {verdict.project}" if verdict.project else ""
        lines.append(
            f"  {verdict.instance_id}{label}: {verdict.instance_type}, {verdict.region}{project}, "
            f"{_usd(verdict.usd_per_hour)}/h - {words(verdict.reason)}"
        )
    if len(verdicts) > MAX_LISTED:
        lines.append(f"  ... and {len(verdicts) - MAX_LISTED} more (governor explain lists all)")
    return lines


def _victims(scene: Scene) -> tuple[InstanceVerdict, ...]:
    return tuple(v for v in scene.decision.verdicts if v.verdict is Verdict.STOP)


def _spared(scene: Scene) -> list[str]:
    """Running machines that stay, counted by reason, with what they cost."""
    groups: dict[str, list[InstanceVerdict]] = {}
    quiet = (ReasonCode.NOT_RUNNING,)
    for verdict in scene.decision.verdicts:
        if verdict.verdict is Verdict.SPARE and verdict.reason.code not in quiet:
            groups.setdefault(words(verdict.reason), []).append(verdict)
    lines = []
    shown = sorted(groups.items())
    for why, members in shown[:MAX_LISTED]:
        rate = sum(v.usd_per_hour or 0.0 for v in members)
        ids = ", ".join(v.instance_id for v in members[:5]) + (", ..." if len(members) > 5 else "")
        lines.append(f"  {_count(len(members))} ({_usd(rate)}/h) {why}: {ids}")
    if len(shown) > MAX_LISTED:
        lines.append(f"  ... and {sum(len(members) for _, members in shown[MAX_LISTED:])} more, for other reasons")
    return lines


def _figures(scene: Scene) -> list[str]:
    money = scene.money
    percent = "unknown" if money.percent is None else f"{money.percent:.1f} %"
    lines = [
        f"Spend this month ({scene.period}): {_usd(money.actual_usd)} of {_usd(money.limit_usd)} = {percent}, "
        "as AWS Budgets reports it, 8 to 24 hours late.",
        f"Running now: {_usd(money.run_rate_usd_per_hour)}/h at list price ({money.prices_dated}).",
    ]
    if money.actual_usd is not None and money.spent_at_least_usd > money.actual_usd:
        lines.append(
            f"The machines that run now have cost at least {_usd(money.spent_at_least_usd)} this month at list price: "
            "the bill is behind."
        )
    if money.forecast_low_usd is not None and money.forecast_high_usd is not None:
        low, high = _usd(money.forecast_low_usd), _usd(money.forecast_high_usd)
        ends = f"at {low}" if low == high else f"between {low} and {high}"
        lines.append(f"If nothing changes the month ends {ends}.")
    if money.unpriced:
        lines.append(f"Not priced, so not in these figures: {', '.join(money.unpriced)}.")
    for unknown in scene.unknown_regions:
        lines.append(
            f"Region {unknown.region} could not be read ({unknown.why}): its machines are not in these figures."
        )
    return lines


def _reach(scene: Scene) -> list[str]:
    money = scene.money
    lines = [
        f"Within reach of a stop: {_usd(money.reachable_usd_per_hour)}/h. "
        f"Out of reach by a missing or inexact tag: {_usd(money.untagged_usd_per_hour)}/h."
    ]
    if money.actual_usd is not None and money.forecast_low_usd is not None and money.run_rate_usd_per_hour > 0:
        ahead = money.forecast_low_usd - max(money.actual_usd, money.spent_at_least_usd)
        left = ahead * (1 - money.reachable_usd_per_hour / money.run_rate_usd_per_hour)
        end = max(money.actual_usd, money.spent_at_least_usd) + left
        verb = "would hold" if end <= money.limit_usd else "would NOT hold"
        lines.append(f"Stopping everything within reach now {verb} the limit: the month would end at {_usd(end)}.")
    return lines


def _steer(scene: Scene, *, hold: bool = True) -> list[str]:
    lines = ["", f"Why: governor explain '{scene.decision.decision_id}' --stage {scene.stage}"]
    if hold:
        url = console_url(scene.home_region, f"/governor/{scene.stage}/control/pause")
        lines.append(f"Hold everything: set the pause parameter to 'on': {url}")
        lines.append(f"  or: governor pause --because '...' --stage {scene.stage}")
    return lines


def _message(scene: Scene, severity: Severity, key: str, subject: str, lines: list[str]) -> Message:
    money = scene.money
    facts = (
        ("actual_usd", "" if money.actual_usd is None else f"{money.actual_usd:.2f}"),
        ("budget", scene.budget_name),
        ("decision_id", scene.decision.decision_id),
        ("level", scene.decision.level),
        ("limit_usd", f"{money.limit_usd:.2f}"),
        ("period", scene.period),
    )
    title = subject_of(f"[Governor {scene.stage}] {subject}")
    return Message(key=key, severity=severity, subject=title, body="\n".join(lines) + "\n", facts=facts)


def _percent(scene: Scene) -> str:
    percent = scene.money.percent
    return "?" if percent is None else f"{percent:.0f} %"


def warn_reached(scene: Scene) -> Message:
    """The warning level: figures, what a stop would take, and whether that would be enough."""
    victims = _victims(scene)
    settings = scene.settings
    lines = [
        f"GPU spend has reached the warning level of {to_text(settings.warn_percent)} %. Nothing was stopped.",
        "",
        *_figures(scene),
        "",
        *_reach(scene),
        "",
        f"At {to_text(settings.stop_percent)} % the Governor ({settings.mode.value}) stops {_count(len(victims))}:",
        *_listing(victims),
    ]
    if spared := _spared(scene):
        lines += ["It leaves:", *spared]
    lines += [
        "",
        "To change that: raise budget/limit-usd or budget/stop-percent, or tag what must stay "
        "governor:criticality=critical.",
        *_steer(scene),
    ]
    key = scene.key("warn", to_text(settings.warn_percent), to_text(settings.limit_usd))
    return _message(scene, Severity.WARN, key, f"GPU spend at {_percent(scene)} of {_usd(settings.limit_usd)}", lines)


def _stop_body(scene: Scene, victims: tuple[InstanceVerdict, ...]) -> list[str]:
    lines = [*_figures(scene), "", *_listing(victims)]
    if spared := _spared(scene):
        lines += ["Left running:", *spared]
    lost = sorted({loss for v in victims for loss in v.loses})
    if lost:
        lines += ["", "Each stopped machine loses:", *[f"  {loss}" for loss in lost]]
    return lines


def _stop_key(scene: Scene, *parts: str) -> str:
    settings = scene.settings
    return scene.key(*parts, to_text(settings.stop_percent), to_text(settings.limit_usd))


def _saving(victims: tuple[InstanceVerdict, ...]) -> str:
    return _usd(sum(v.usd_per_hour or 0.0 for v in victims))


def would_stop(scene: Scene) -> Message:
    """Observing at the stop level: what would have been done."""
    victims = _victims(scene)
    lines = [
        f"The stop level of {to_text(scene.settings.stop_percent)} % is reached. The Governor only observes, "
        f"so nothing was changed. Armed, it would have stopped {_count(len(victims))}, {_saving(victims)}/h:",
        "",
        *_stop_body(scene, victims),
        "",
        *_reach(scene),
        "",
        f"To let it act: governor arm budget --stage {scene.stage}",
        *_steer(scene, hold=False),
    ]
    subject = f"would have stopped {_count(len(victims))} ({_percent(scene)} of {_usd(scene.settings.limit_usd)})"
    return _message(scene, Severity.WARN, _stop_key(scene, "would-stop"), subject, lines)


def held_by_pause(scene: Scene, since: datetime, *, readable: bool) -> Message:
    """At the stop level, but paused `since` then: money burns and nobody acts."""
    victims = _victims(scene)
    why = "; ".join(words(h) for h in scene.decision.holds)
    lines = [
        f"The stop level of {to_text(scene.settings.stop_percent)} % is reached, but {why}. Nothing is stopped.",
        f"{_count(len(victims))} at {_saving(victims)}/h would be stopped:",
        "",
        *_stop_body(scene, victims),
        "",
        f"To let it act: governor unpause --because '...' --stage {scene.stage}, or set the parameter to 'off':",
        f"  {console_url(scene.home_region, f'/governor/{scene.stage}/control/pause')}",
        *_steer(scene, hold=False),
    ]
    subject = f"PAUSED at {_percent(scene)} of the limit: {_saving(victims)}/h goes on"
    return _message(
        scene,
        Severity.PAGE,
        _stop_key(scene, "paused", "read" if readable else "unread", since.isoformat()),
        subject,
        lines,
    )


def stop_notice(scene: Scene) -> Message:
    """The stop is coming: what, when, why it waits, and how to hold it back."""
    victims = _victims(scene)
    due = _clock(scene.due) if scene.due else "an unknown time"
    lines = [
        f"The stop level of {to_text(scene.settings.stop_percent)} % is reached. "
        f"{_count(len(victims))} ({_saving(victims)}/h) will be stopped from {due}.",
        *[f"It waits because {words(hold)}." for hold in scene.decision.holds],
        "",
        *_stop_body(scene, victims),
        *_steer(scene),
    ]
    key = _stop_key(scene, "stop-notice", scene.due.isoformat() if scene.due else "")
    clock = f"{scene.due.astimezone(UTC):%H:%M} UTC" if scene.due else "soon"
    subject = f"stopping {_count(len(victims))} at {clock} ({_percent(scene)} of {_usd(scene.settings.limit_usd)})"
    return _message(scene, Severity.PAGE, key, subject, lines)


def _start_commands(victims: tuple[InstanceVerdict, ...]) -> list[str]:
    """The command that starts the stopped again, one a Region."""
    ids: dict[str, list[str]] = {}
    for verdict in victims[:MAX_LISTED]:
        ids.setdefault(verdict.region, []).append(verdict.instance_id)
    return [f"  aws ec2 start-instances --region {region} --instance-ids {' '.join(of)}" for region, of in ids.items()]


def stopping(scene: Scene, fresh: frozenset[str]) -> Message:
    """The stop is being carried out now."""
    victims = tuple(v for v in _victims(scene) if v.instance_id in fresh)
    lines = [
        f"The stop level of {to_text(scene.settings.stop_percent)} % is reached. "
        f"Stopping {_count(len(victims))} now; that saves {_saving(victims)}/h.",
        "",
        *_stop_body(scene, victims),
        "",
        *_reach(scene),
        "",
        "To undo: start what you need in the console, or",
        *_start_commands(victims),
        "A machine that a person starts again after this is left alone.",
        *_steer(scene),
    ]
    subject = f"stopping {_count(len(victims))}, saves {_saving(victims)}/h ({_percent(scene)} of the limit)"
    return _message(scene, Severity.PAGE, _stop_key(scene, "stopping", scene.decision.decision_id), subject, lines)


def launched_above(scene: Scene) -> Message:
    """Machines that were launched above the stop level: they have their grace, then they are stopped."""
    late = tuple(v for v in scene.decision.verdicts if v.reason.code is ReasonCode.JUST_LAUNCHED)
    lines = [
        f"{_count(len(late))} were launched although the stop level of {to_text(scene.settings.stop_percent)} % is "
        "reached. After their grace they are stopped:",
        *_listing(late),
        "",
        *_figures(scene),
        *_steer(scene),
    ]
    said = "|".join(sorted(f"{v.instance_id}@{v.launched_at}" for v in late))
    key = scene.key("launched-above", hashlib.sha256(said.encode()).hexdigest()[:12])
    return _message(scene, Severity.WARN, key, f"{_count(len(late))} launched above the stop level", lines)


def nothing_to_stop(scene: Scene, step: int) -> Message:
    """At the stop level with nothing (more) within reach, at `step` percent of the limit: only people can act."""
    lines = [
        f"The stop level of {to_text(scene.settings.stop_percent)} % is reached, "
        "and nothing is within reach of a stop.",
        "",
        *_figures(scene),
        *_reach(scene),
    ]
    if spared := _spared(scene):
        lines += ["", "Running:", *spared]
    lines += ["", "Only a person can act: stop machines by hand, tag them, or raise the limit."]
    lines += _steer(scene, hold=False)
    subject = f"at {_percent(scene)} of the limit and nothing within reach to stop"
    return _message(scene, Severity.PAGE, _stop_key(scene, "nothing-to-stop", str(step)), subject, lines)


def over_limit(scene: Scene) -> Message:
    """More would be stopped than `budget/max-stop-percent` allows: a person is asked."""
    left = tuple(v for v in scene.decision.verdicts if v.reason.code is ReasonCode.OVER_MAX_STOP_PERCENT)
    lines = [
        f"{_count(len(left))} within reach stay up: {words(left[0].reason)}.",
        "",
        *_figures(scene),
        "",
        *_listing(left),
        "",
        "To let it go on: raise budget/max-stop-percent. To leave it so: nothing to do.",
        *_steer(scene),
    ]
    key = _stop_key(scene, "over-max-stop-percent", to_text(scene.settings.max_stop_percent))
    return _message(scene, Severity.PAGE, key, f"{_count(len(left))} left running: limit of stops reached", lines)


def stops_seen(scene: Scene, decision_id: str, entries: tuple[StopEntry, ...]) -> Message:
    """Every stop of a decision has ended: how."""
    stopped = tuple(e for e in entries if e.status is StopStatus.STOPPED)
    others = tuple(e for e in entries if e.status is not StopStatus.STOPPED)
    rate = sum(e.usd_per_hour or 0.0 for e in stopped)
    lines = [
        f"{_count(len(stopped))} seen stopped; {_usd(rate)}/h less.",
        *[f"  {e.instance_id}: {e.instance_type}, {e.region}" for e in stopped[:MAX_LISTED]],
    ]
    if others:
        ended = [f"  {e.instance_id}: {e.status.value}, {e.detail}" for e in others[:MAX_LISTED]]
        lines += ["Ended otherwise:", *ended]
    lines += ["", f"Why: governor explain '{decision_id}' --stage {scene.stage}"]
    seen = hashlib.sha256("|".join(sorted(e.instance_id for e in stopped)).encode()).hexdigest()[:12]
    key = "#".join((scene.budget_name, "", "stops-seen", decision_id, seen))
    return _message(scene, Severity.INFO, key, f"{_count(len(stopped))} stopped, {_usd(rate)}/h less", lines)


def stops_failed(scene: Scene, entries: tuple[StopEntry, ...]) -> list[Message]:
    """Stops that did not work, one message a kind of error: money goes on being spent."""
    by_code: dict[str, list[StopEntry]] = {}
    for entry in entries:
        by_code.setdefault(entry.detail.partition(":")[0], []).append(entry)
    told = []
    for code, failed in sorted(by_code.items()):
        rate = sum(entry.usd_per_hour or 0.0 for entry in failed)
        lines = [
            f"{_count(len(failed))} were not stopped; {_usd(rate)}/h goes on:"
            if len(failed) > 1
            else f"{failed[0].instance_id} was not stopped; {_usd(rate)}/h goes on:",
            *[f"  {e.instance_id} ({e.instance_type}, {e.region}): {e.detail}" for e in failed[:MAX_LISTED]],
            "The next run tries again, after those that were not tried yet. If it lasts, stop by hand.",
            *_steer(scene),
        ]
        tried = "|".join(sorted(f"{e.instance_id}@{e.launched_at}" for e in failed))
        digest = hashlib.sha256(f"{code}|{tried}".encode()).hexdigest()[:12]
        what = failed[0].instance_id if len(failed) == 1 else _count(len(failed))
        key = scene.key("stop-failed", digest)
        told.append(_message(scene, Severity.PAGE, key, f"could not stop {what}", lines))
    return told


def stops_withheld(scene: Scene, entries: tuple[StopEntry, ...]) -> Message:
    """The guard refused stops at the last moment, after they were announced."""
    lines = [
        f"{_count(len(entries))} announced as being stopped were left running:",
        *[f"  {e.instance_id}: {e.detail}" for e in entries[:MAX_LISTED]],
        *_steer(scene),
    ]
    said = "|".join(sorted(f"{e.instance_id}@{e.launched_at}{e.withheld_code}" for e in entries))
    key = scene.key("withheld", hashlib.sha256(said.encode()).hexdigest()[:12])
    return _message(scene, Severity.WARN, key, f"{_count(len(entries))} left running after all", lines)


def started_again(scene: Scene, entry: StopEntry) -> Message:
    """A person started a machine that we stopped: it is left alone, and they are told what it costs."""
    lines = [
        f"{entry.instance_id} ({entry.instance_type}, {entry.region}) was started after the Governor stopped it.",
        f"It is left alone and costs {_usd(entry.usd_per_hour)}/h. Spend stands at {_percent(scene)} of the limit.",
        *_steer(scene),
    ]
    key = scene.key("started-again", entry.instance_id, entry.launched_at.isoformat())
    return _message(scene, Severity.WARN, key, f"{entry.instance_id} was started again", lines)


def budget_unknown(scene: Scene, since: datetime) -> Message:
    """The budget cannot be read since then: no stop until it can."""
    lines = [
        *[words(reason) + "." for reason in scene.decision.reasons],
        f"It has been so since {_clock(since)}. Until it can be read nothing is stopped, whatever is spent.",
        "A new budget has no figure for some hours; then there is nothing to do but wait.",
        f"Running now: {_usd(scene.money.run_rate_usd_per_hour)}/h at list price ({scene.money.prices_dated}).",
        *_steer(scene),
    ]
    key = scene.key("unknown", since.isoformat())
    return _message(scene, Severity.PAGE, key, "the budget cannot be read", lines)


def figure_in_doubt(scene: Scene, since: datetime) -> Message:
    """AWS Budgets gives a figure that cannot be believed: no stop until it can."""
    lines = [
        *[words(reason) + "." for reason in scene.decision.reasons],
        "Until then nothing is stopped, whatever is spent.",
        f"Running now: {_usd(scene.money.run_rate_usd_per_hour)}/h at list price ({scene.money.prices_dated}).",
        *_steer(scene, hold=False),
    ]
    key = scene.key("doubt", since.isoformat())
    return _message(scene, Severity.WARN, key, "the figure of AWS Budgets cannot be believed yet", lines)


def region_blind(scene: Scene, region: str, since: datetime) -> Message:
    """A Region cannot be read since then: its machines are neither counted nor stopped."""
    why = next((unknown.why for unknown in scene.unknown_regions if unknown.region == region), "unknown")
    lines = [
        f"The Region {region} cannot be read since {_clock(since)}: {why}.",
        "Its machines are unknown: they are not in any figure, and nothing there is stopped.",
        "If it is not in use, take it out of the Regions of this stage in cdk.json and deploy.",
        *_steer(scene, hold=False),
    ]
    key = scene.key("region-blind", region, since.isoformat())
    return _message(scene, Severity.PAGE, key, f"Region {region} cannot be read", lines)


def bill_far_behind(scene: Scene) -> Message:
    """What runs must have cost far more than AWS Budgets says: it may not count what it should."""
    money = scene.money
    lines = [
        f"AWS Budgets reports {_usd(money.actual_usd)} this month, but the machines that run now have cost at least "
        f"{_usd(money.spent_at_least_usd)} at list price.",
        "Commitments and discounts may explain it. If they do not, the budget does not count these machines: compare "
        f"the filter of the budget {scene.budget_name} with Cost Explorer.",
        "The Governor warns and stops by the figure of AWS Budgets.",
        *_steer(scene, hold=False),
    ]
    return _message(scene, Severity.WARN, scene.key("far-behind"), "AWS Budgets reports far less than what runs", lines)


def limits_differ(scene: Scene) -> Message:
    """AWS Budgets holds another limit than `budget/limit-usd`, which is the one that counts."""
    lines = [
        f"budget/limit-usd is {_usd(scene.settings.limit_usd)} and is the limit that counts.",
        f"The AWS budget {scene.budget_name} still says {_usd(scene.aws_limit_usd)}: "
        "its own alerts come at other amounts.",
        "Set both alike in the AWS Budgets console when it suits; changing the AWS budget zeroes its computed spend "
        "until the next refresh, so the Governor does not do it by itself.",
    ]
    key = scene.key("limits-differ", to_text(scene.settings.limit_usd), f"{scene.aws_limit_usd:.2f}")
    return _message(scene, Severity.INFO, key, "two limits: the AWS budget differs from budget/limit-usd", lines)


def _printable(text: str) -> str:
    """Text that every way out accepts: no control characters, no broken surrogates."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def odd_notice(stage: str, home_region: str, text: str, why: str, now: datetime) -> Message:
    """Something arrived on the budget topic that is no notice about our budget: forwarded as it is."""
    lines = [
        f"A text arrived on the budget topic that the Governor cannot use: {_printable(why)}.",
        "It was taken as a reason to look at the budget again, nothing more. The text:",
        "",
        *[f"  | {line}" for line in _printable(text[:2000]).splitlines()],
        "",
        f"Hold everything: set the pause parameter to 'on': "
        f"{console_url(home_region, f'/governor/{stage}/control/pause')}",
    ]
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return Message(
        key=f"odd-notice#{now:%Y-%m-%d}#{digest}",
        severity=Severity.WARN,
        subject=subject_of(f"[Governor {stage}] a budget notice that cannot be used"),
        body="\n".join(lines) + "\n",
        facts=(("why", _printable(why)),),
    )
