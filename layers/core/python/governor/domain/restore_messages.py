"""What people are told of the way back: what can be started again with one command, and what is being started."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from governor.domain.budget_messages import MAX_LISTED, console_url, count_text, subject_of, usd_text
from governor.domain.decisions import Message, Money, Severity, StopMethod
from governor.domain.ledger import StopEntry
from governor.domain.meter import hours_left, period_of
from governor.domain.reasons import Reason, words

Refused = tuple[str, str, str, Reason, float | None]
"""Instance id and name, type, Region, why, USD per hour."""


def _entry_line(entry: StopEntry) -> str:
    name = f" {entry.name}" if entry.name else ""
    kind = f", {entry.criticality}" if entry.criticality else ""
    return f"  {entry.instance_id}{name}: {entry.instance_type}, {entry.region}{kind}, {usd_text(entry.usd_per_hour)}/h"


def _more(number: int) -> list[str]:
    return [f"  ... and {number - MAX_LISTED} more"] if number > MAX_LISTED else []


@dataclass(frozen=True, slots=True)
class RestoreScene:
    """What every message about the way back has in common. `returning_usd_per_hour` is on its way back already."""

    stage: str
    home_region: str
    budget_name: str
    now: datetime
    level: str
    money: Money
    actual_usd: float | None
    manual_start_grace_hours: int
    returning_usd_per_hour: float = 0.0

    def end_with(self, usd_per_hour: float) -> float | None:
        """What the month would cost at most with so much more running, USD; None where it is unknown."""
        if self.money.forecast_high_usd is None:
            return None
        return self.money.forecast_high_usd + (self.returning_usd_per_hour + usd_per_hour) * hours_left(self.now)


def _rate(entries: tuple[StopEntry, ...]) -> float:
    return sum(entry.usd_per_hour or 0.0 for entry in entries)


def propose_restore(
    scene: RestoreScene,
    *,
    key_parts: tuple[str, ...],
    proposed: tuple[StopEntry, ...],
    refused: tuple[Refused, ...],
    by_itself: int,
    everything: bool,
) -> Message:
    """There is money again: what would fit, what would not and why, and the one command."""
    stage, money = scene.stage, scene.money
    rate = _rate(proposed)
    lines = [f"The stop level is over: {usd_text(money.actual_usd)} of {usd_text(money.limit_usd)} are spent."]
    if proposed:
        named = " ".join(entry.instance_id for entry in proposed)
        lines += [
            f"{count_text(len(proposed))} that the Governor stopped can be started again for {usd_text(rate)}/h; "
            f"the month would then end at {usd_text(scene.end_with(rate))} at most:",
            *[_entry_line(entry) for entry in proposed[:MAX_LISTED]],
            *_more(len(proposed)),
            "",
            "To start them:",
            f"  governor restore {'--all' if everything else named} --stage {stage}",
        ]
    if refused:
        lines += ["", "Not proposed:" if proposed else "Not started again:"]
        lines += [
            f"  {named}: {kind}, {region}, {usd_text(usd)}/h - {words(why)}"
            for named, kind, region, why, usd in refused[:MAX_LISTED]
        ]
        lines += _more(len(refused))
        lines += ["A person may start one all the same:", f"  governor restore INSTANCE --stage {stage}"]
    verb = "is" if by_itself == 1 else "are"
    others = (
        f"{count_text(by_itself)} {verb} started by the Governor. The others are not" if by_itself else "Nothing is"
    )
    lines += [
        "",
        f"{others} started unless you do it. budget/restore-at-period decides what the Governor may start: "
        + console_url(scene.home_region, f"/governor/{stage}/budget/restore-at-period"),
    ]
    what = f"{count_text(len(proposed))} can come back, {usd_text(rate)}/h" if proposed else _none_text(len(refused))
    return Message(
        key="#".join((scene.budget_name, *key_parts)),
        severity=Severity.WARN,
        subject=subject_of(f"[Governor {stage}] {what}"),
        body="\n".join(lines) + "\n",
        facts=(("budget", scene.budget_name), ("proposed", str(len(proposed)))),
    )


def _none_text(refused: int) -> str:
    return f"{count_text(refused)} cannot come back yet" if refused > 1 else "1 instance cannot come back yet"


def restoring(scene: RestoreScene, decision_id: str, entries: tuple[StopEntry, ...]) -> Message:
    """Machines are being started again: which, for how much, asked for by whom, and for how long they are safe."""
    stage = scene.stage
    rate = _rate(entries)
    asked_by = ", ".join(dict.fromkeys(entry.restore_asked_by for entry in entries))
    by_person = any(entry.restore_asked_by.startswith("arn:") for entry in entries)
    lowered = [entry for entry in entries if entry.method == StopMethod.LOWER.value]
    lines = [
        f"Starting {count_text(len(entries))} again for {usd_text(rate)}/h, "
        f"{usd_text(rate * hours_left(scene.now))} to the end of the month.",
        f"Asked for by: {asked_by}. Spent so far: {usd_text(scene.actual_usd)}.",
        *_limit_lines(scene, rate),
        *(_grace_lines(scene) if by_person else []),
        "",
        *[_entry_line(entry) for entry in entries[:MAX_LISTED]],
        *_more(len(entries)),
        "",
        "Their local NVMe disks are empty. One that finds no capacity is tried again, up to restore/give-up-hours.",
        *(
            ["Taken out of a group, which launches others in place: " + count_text(len(lowered)) + "."]
            if lowered
            else []
        ),
        "",
        f"Why: governor explain '{decision_id}' --stage {stage}",
        "Hold everything: set the pause parameter to 'on': "
        + console_url(scene.home_region, f"/governor/{stage}/control/pause"),
        f"  or: governor pause --because '...' --stage {stage}",
    ]
    return Message(
        key="#".join((scene.budget_name, period_of(scene.now), "restoring", decision_id)),
        severity=Severity.INFO,
        subject=subject_of(f"[Governor {stage}] starting {count_text(len(entries))} again, {usd_text(rate)}/h"),
        body="\n".join(lines) + "\n",
        facts=(("budget", scene.budget_name), ("decision_id", decision_id)),
    )


def _limit_lines(scene: RestoreScene, rate: float) -> list[str]:
    end, limit = scene.end_with(rate), scene.money.limit_usd
    if end is None:
        return ["What the month will cost with them is not known now."]
    over = ", ABOVE THE LIMIT" if end > limit else ""
    return [f"With them the month may end at {usd_text(end)} of {usd_text(limit)}{over}."]


def _grace_lines(scene: RestoreScene) -> list[str]:
    level = "The stop level stands. " if scene.level == "stop" else ""
    hours = count_text(scene.manual_start_grace_hours, "hour")
    return [
        f"{level}What a person brings back is left alone for {hours} (budget/manual-start-grace-hours); if the stop "
        "level stands then, it is stopped again.",
        f"To keep one longer: governor keep INSTANCE --for 2d --stage {scene.stage}",
    ]
