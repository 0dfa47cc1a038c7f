"""What the budget guard tells people: what, why, how much money, what is lost, how to undo, how to hold it back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from governor.domain.budget_level import clock_text
from governor.domain.decisions import Decision, InstanceVerdict, Message, Money, Severity, StopMethod, Verdict
from governor.domain.fleet import UnknownRegion
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

    @property
    def early(self) -> bool:
        """True where only preemptible instances are to be stopped yet."""
        return any(reason.code is ReasonCode.STOP_PREEMPTIBLE_REACHED for reason in self.decision.reasons)

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


def usd_text(amount: float | None) -> str:
    """An amount as people read it."""
    return "unknown" if amount is None else f"${amount:,.2f}"


def count_text(number: int, noun: str = "instance") -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_METHODS = {
    StopMethod.STOP: "",
    StopMethod.STANDBY_AND_STOP: ", into standby and stopped",
    StopMethod.LOWER: ", TERMINATED and the group lowered",
    StopMethod.CANCEL_AND_TERMINATE: ", TERMINATED",
}


def list_verdicts(verdicts: tuple[InstanceVerdict, ...]) -> list[str]:
    """One line an instance, with its notes below it."""
    lines = []
    for verdict in verdicts[:MAX_LISTED]:
        label = f" {verdict.name}" if verdict.name else ""
        project = f", project {verdict.project}" if verdict.project else ""
        method = _METHODS[verdict.method] if verdict.method is not None else ""
        lines.append(
            f"  {verdict.instance_id}{label}: {verdict.instance_type}, {verdict.region}{project}, "
            f"{usd_text(verdict.usd_per_hour)}/h{method} - {words(verdict.reason)}"
        )
        lines.extend(f"    {words(note)}" for note in verdict.notes)
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
        lines.append(f"  {count_text(len(members))} ({usd_text(rate)}/h) {why}: {ids}")
    if len(shown) > MAX_LISTED:
        lines.append(f"  ... and {sum(len(members) for _, members in shown[MAX_LISTED:])} more, for other reasons")
    return lines


def _figures(scene: Scene) -> list[str]:
    money = scene.money
    percent = "unknown" if money.percent is None else f"{money.percent:.1f} %"
    lines = [
        f"Spend this month ({scene.period}): {usd_text(money.actual_usd)} of {usd_text(money.limit_usd)} = {percent}, "
        "as AWS Budgets reports it, 8 to 24 hours late.",
        f"Running now: {usd_text(money.run_rate_usd_per_hour)}/h at list price ({money.prices_dated}).",
    ]
    if money.actual_usd is not None and money.spent_at_least_usd > money.actual_usd:
        lines.append(
            f"The machines that run now have cost at least {usd_text(money.spent_at_least_usd)} this month at list "
            "price: the bill is behind."
        )
    if money.forecast_low_usd is not None and money.forecast_high_usd is not None:
        low, high = usd_text(money.forecast_low_usd), usd_text(money.forecast_high_usd)
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
        f"Within reach of a stop: {usd_text(money.reachable_usd_per_hour)}/h. "
        f"Out of reach by a missing or inexact tag: {usd_text(money.untagged_usd_per_hour)}/h."
    ]
    if money.actual_usd is not None and money.forecast_low_usd is not None and money.run_rate_usd_per_hour > 0:
        ahead = money.forecast_low_usd - max(money.actual_usd, money.spent_at_least_usd)
        left = ahead * (1 - money.reachable_usd_per_hour / money.run_rate_usd_per_hour)
        end = max(money.actual_usd, money.spent_at_least_usd) + left
        verb = "would hold" if end <= money.limit_usd else "would NOT hold"
        lines.append(f"Stopping everything within reach now {verb} the limit: the month would end at {usd_text(end)}.")
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
        f"At {to_text(settings.stop_percent)} % the Governor ({settings.mode.value}) stops {count_text(len(victims))}:",
        *list_verdicts(victims),
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
    return _message(
        scene, Severity.WARN, key, f"GPU spend at {_percent(scene)} of {usd_text(settings.limit_usd)}", lines
    )


def _stop_body(scene: Scene, victims: tuple[InstanceVerdict, ...]) -> list[str]:
    lines = [*_figures(scene), "", *list_verdicts(victims)]
    if spared := _spared(scene):
        lines += ["Left running:", *spared]
    lost = sorted({loss for v in victims for loss in v.loses})
    if lost:
        lines += ["", "Each stopped machine loses:", *[f"  {loss}" for loss in lost]]
    return lines


def _stop_key(scene: Scene, *parts: str) -> str:
    settings = scene.settings
    early = [scene.decision.reasons[0].fact("stop_percent")] if scene.early else []
    return scene.key(*parts, *early, to_text(settings.stop_percent), to_text(settings.limit_usd))


def _stop_level(scene: Scene) -> str:
    """The stop level that is reached, in words."""
    if scene.early:
        percent = scene.decision.reasons[0].fact("stop_percent")
        return f"The stop level of {percent} % for preemptible instances"
    return f"The stop level of {to_text(scene.settings.stop_percent)} %"


def _saving(victims: tuple[InstanceVerdict, ...]) -> str:
    return usd_text(sum(v.usd_per_hour or 0.0 for v in victims))


def would_stop(scene: Scene) -> Message:
    """Observing at the stop level: what would have been done."""
    victims = _victims(scene)
    lines = [
        f"{_stop_level(scene)} is reached. The Governor only observes, "
        f"so nothing was changed. Armed, it would have stopped {count_text(len(victims))}, {_saving(victims)}/h:",
        "",
        *_stop_body(scene, victims),
        "",
        *_reach(scene),
        "",
        f"To let it act: governor arm budget --stage {scene.stage}",
        *_steer(scene, hold=False),
    ]
    subject = (
        f"would have stopped {count_text(len(victims))} ({_percent(scene)} of {usd_text(scene.settings.limit_usd)})"
    )
    return _message(scene, Severity.WARN, _stop_key(scene, "would-stop"), subject, lines)


def held_by_pause(scene: Scene, since: datetime, *, readable: bool) -> Message:
    """At the stop level, but paused `since` then: money burns and nobody acts."""
    victims = _victims(scene)
    why = "; ".join(words(h) for h in scene.decision.holds)
    lines = [
        f"{_stop_level(scene)} is reached, but {why}. Nothing is stopped.",
        f"{count_text(len(victims))} at {_saving(victims)}/h would be stopped:",
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
    due = clock_text(scene.due) if scene.due else "an unknown time"
    lines = [
        f"{_stop_level(scene)} is reached. "
        f"{count_text(len(victims))} ({_saving(victims)}/h) will be stopped from {due}.",
        *[f"It waits because {words(hold)}." for hold in scene.decision.holds],
        "",
        *_stop_body(scene, victims),
        *_steer(scene),
    ]
    key = _stop_key(scene, "stop-notice", scene.due.isoformat() if scene.due else "")
    clock = f"{scene.due.astimezone(UTC):%H:%M} UTC" if scene.due else "soon"
    subject = (
        f"stopping {count_text(len(victims))} at {clock} ({_percent(scene)} of {usd_text(scene.settings.limit_usd)})"
    )
    return _message(scene, Severity.PAGE, key, subject, lines)


def stopping(scene: Scene, fresh: frozenset[str]) -> Message:
    """The stop is being carried out now."""
    victims = tuple(v for v in _victims(scene) if v.instance_id in fresh)
    lines = [
        f"{_stop_level(scene)} is reached. Stopping {count_text(len(victims))} now; that saves {_saving(victims)}/h.",
        "",
        *_stop_body(scene, victims),
        "",
        *_reach(scene),
        "",
        "To undo, all of it or single machines:",
        f"  governor restore --decision '{scene.decision.decision_id}' --stage {scene.stage}",
        f"  governor restore {victims[0].instance_id if victims else 'INSTANCE'} --stage {scene.stage}",
        "What a person starts again is left alone for "
        f"{count_text(scene.settings.manual_start_grace_hours, 'hour')} (budget/manual-start-grace-hours).",
        f"To keep one from the next stop: governor keep INSTANCE --for 4h --stage {scene.stage}",
        *_steer(scene),
    ]
    subject = f"stopping {count_text(len(victims))}, saves {_saving(victims)}/h ({_percent(scene)} of the limit)"
    return _message(scene, Severity.PAGE, _stop_key(scene, "stopping", scene.decision.decision_id), subject, lines)


def crossing_predicted(scene: Scene, crossing: datetime) -> Message:
    """The run rate says that the stop level is about to be crossed: the notice goes out before."""
    victims = _victims(scene)
    lines = [
        f"At the present run rate the stop level of {to_text(scene.settings.stop_percent)} % is crossed at "
        f"{clock_text(crossing)}, going by what ran since AWS Budgets last moved.",
        f"Once AWS Budgets reports it, {count_text(len(victims))} ({_saving(victims)}/h) are stopped without another "
        "notice. Their grace and their checkpoints begin now.",
        "",
        *_stop_body(scene, victims),
        "",
        "To go on: governor override --until TIME --up-to-usd AMOUNT --because '...' "
        f"--stage {scene.stage}, or raise budget/limit-usd.",
        f"To keep one machine: governor keep INSTANCE --for 4h --stage {scene.stage}",
        *_steer(scene),
    ]
    subject = f"the stop level comes near: {count_text(len(victims))}, {_saving(victims)}/h"
    return _message(scene, Severity.PAGE, _stop_key(scene, "crossing"), subject, lines)


def held_by_override(scene: Scene) -> Message:
    """At the stop level, but a person said to go on: told once an override, with what it costs."""
    victims = _victims(scene)
    codes = (ReasonCode.OVERRIDDEN, ReasonCode.OVERRIDE_UNREADABLE)
    hold = next(h for h in scene.decision.holds if h.code in codes)
    unreadable = hold.code is ReasonCode.OVERRIDE_UNREADABLE
    lines = [
        f"{_stop_level(scene)} is reached, but {words(hold)}. Nothing is stopped.",
        f"{count_text(len(victims))} at {_saving(victims)}/h {'goes' if len(victims) == 1 else 'go'} on:",
        *list_verdicts(victims),
        "",
        *_figures(scene),
        "",
        "To let the Governor stop again: "
        + (
            f"correct or delete the parameter below /governor/{scene.stage}/control/override/."
            if unreadable
            else f"governor override --lift --stage {scene.stage}"
        ),
        *_steer(scene, hold=False),
    ]
    said = hashlib.sha256("|".join(f"{name}={value}" for name, value in hold.facts).encode()).hexdigest()[:12]
    severity = Severity.PAGE if unreadable else Severity.WARN
    subject = f"overridden at {_percent(scene)} of the limit: {_saving(victims)}/h goes on"
    return _message(scene, severity, _stop_key(scene, "overridden", said), subject, lines)


def group_changed(scene: Scene, region: str, group: str, what: str) -> Message:
    """Somebody else changed a group that we hold: a finding, no fight."""
    lines = [
        f"The Auto Scaling group {group} in {region} was changed by somebody else while the Governor holds members of "
        f"it: {what}.",
        "The Governor stops nothing more in it and does not put its sizes back by itself.",
        "If the change is meant, nothing is to be done. If not, set the sizes back; the Governor then goes on.",
        *_steer(scene, hold=False),
    ]
    said = hashlib.sha256(f"{region}|{group}|{what}".encode()).hexdigest()[:12]
    return _message(scene, Severity.WARN, scene.key("group-changed", said), f"group {group} was changed", lines)


def launched_above(scene: Scene) -> Message:
    """Machines that were launched above the stop level: they have their grace, then they are stopped."""
    late = tuple(v for v in scene.decision.verdicts if v.reason.code is ReasonCode.JUST_LAUNCHED)
    lines = [
        f"{count_text(len(late))} {'was' if len(late) == 1 else 'were'} launched although the stop level of "
        f"{to_text(scene.settings.stop_percent)} % is reached. After the grace they are stopped:",
        *list_verdicts(late),
        "",
        *_figures(scene),
        *_steer(scene),
    ]
    said = "|".join(sorted(f"{v.instance_id}@{v.launched_at}" for v in late))
    key = scene.key("launched-above", hashlib.sha256(said.encode()).hexdigest()[:12])
    return _message(scene, Severity.WARN, key, f"{count_text(len(late))} launched above the stop level", lines)


def nothing_to_stop(scene: Scene, step: int) -> Message:
    """At the stop level with nothing (more) within reach, at `step` percent of the limit: only people can act."""
    lines = [
        f"{_stop_level(scene)} is reached, and nothing is within reach of a stop.",
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
        f"{count_text(len(left))} within reach stay up: {words(left[0].reason)}.",
        "",
        *_figures(scene),
        "",
        *list_verdicts(left),
        "",
        "To let it go on: raise budget/max-stop-percent. To leave it so: nothing to do.",
        *_steer(scene),
    ]
    key = _stop_key(scene, "over-max-stop-percent", to_text(scene.settings.max_stop_percent))
    return _message(scene, Severity.PAGE, key, f"{count_text(len(left))} left running: limit of stops reached", lines)


def budget_unknown(scene: Scene, since: datetime) -> Message:
    """The budget cannot be read since then: no stop until it can."""
    lines = [
        *[words(reason) + "." for reason in scene.decision.reasons],
        f"It has been so since {clock_text(since)}. Until it can be read nothing is stopped, whatever is spent.",
        "A new budget has no figure for some hours; then there is nothing to do but wait.",
        f"Running now: {usd_text(scene.money.run_rate_usd_per_hour)}/h at list price ({scene.money.prices_dated}).",
        *_steer(scene),
    ]
    key = scene.key("unknown", since.isoformat())
    return _message(scene, Severity.PAGE, key, "the budget cannot be read", lines)


def figure_in_doubt(scene: Scene, since: datetime) -> Message:
    """AWS Budgets gives a figure that cannot be believed: no stop until it can."""
    lines = [
        *[words(reason) + "." for reason in scene.decision.reasons],
        "Until then nothing is stopped, whatever is spent.",
        f"Running now: {usd_text(scene.money.run_rate_usd_per_hour)}/h at list price ({scene.money.prices_dated}).",
        *_steer(scene, hold=False),
    ]
    key = scene.key("doubt", since.isoformat())
    return _message(scene, Severity.WARN, key, "the figure of AWS Budgets cannot be believed yet", lines)


def region_blind(scene: Scene, region: str, since: datetime) -> Message:
    """A Region cannot be read since then: its machines are neither counted nor stopped."""
    why = next((unknown.why for unknown in scene.unknown_regions if unknown.region == region), "unknown")
    lines = [
        f"The Region {region} cannot be read since {clock_text(since)}: {why}.",
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
        f"AWS Budgets reports {usd_text(money.actual_usd)} this month, but the machines that run now have cost at "
        f"least {usd_text(money.spent_at_least_usd)} at list price.",
        "Commitments and discounts may explain it. If they do not, the budget does not count these machines: compare "
        f"the filter of the budget {scene.budget_name} with Cost Explorer.",
        "The Governor warns and stops by the figure of AWS Budgets.",
        *_steer(scene, hold=False),
    ]
    return _message(scene, Severity.WARN, scene.key("far-behind"), "AWS Budgets reports far less than what runs", lines)


def limits_differ(scene: Scene) -> Message:
    """AWS Budgets holds another limit than `budget/limit-usd`, which is the one that counts."""
    lines = [
        f"budget/limit-usd is {usd_text(scene.settings.limit_usd)} and is the limit that counts.",
        f"The AWS budget {scene.budget_name} still says {usd_text(scene.aws_limit_usd)}: "
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
