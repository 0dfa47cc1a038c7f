"""A decision as JSON and as tables: level, money, holds, and the verdict on each instance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cli.terminal import count, percent, table, text, usd

if TYPE_CHECKING:
    from rich.console import Console

    from governor.domain.decisions import Decision, InstanceVerdict, Money
    from governor.domain.reasons import Reason

LEVEL_STYLES = {"below": "good", "warn": "warn", "stop": "bad", "unknown": "warn"}


def describe_reason(reason: Reason) -> dict[str, Any]:
    """A reason for JSON: its code, its facts, and the words for people."""
    from governor.domain.reasons import words

    return {"code": reason.code.value, "facts": dict(reason.facts), "words": words(reason)}


def describe_verdict(verdict: InstanceVerdict) -> dict[str, Any]:
    """A verdict for JSON."""
    from cli.terminal import iso

    return {
        "instance_id": verdict.instance_id,
        "name": verdict.name,
        "region": verdict.region,
        "instance_type": verdict.instance_type,
        "project": verdict.project,
        "pool": verdict.pool,
        "launched_at": iso(verdict.launched_at),
        "verdict": verdict.verdict.value,
        "reason": describe_reason(verdict.reason),
        "usd_per_hour": verdict.usd_per_hour,
        "loses": list(verdict.loses),
        "method": None if verdict.method is None else verdict.method.value,
        "notes": [describe_reason(note) for note in verdict.notes],
    }


def describe_money(money: Money | None) -> dict[str, Any] | None:
    """The money of a decision for JSON; null figures are unknown."""
    if money is None:
        return None
    return {
        "limit_usd": money.limit_usd,
        "actual_usd": money.actual_usd,
        "percent": money.percent,
        "run_rate_usd_per_hour": money.run_rate_usd_per_hour,
        "spent_at_least_usd": money.spent_at_least_usd,
        "forecast_low_usd": money.forecast_low_usd,
        "forecast_high_usd": money.forecast_high_usd,
        "reachable_usd_per_hour": money.reachable_usd_per_hour,
        "untagged_usd_per_hour": money.untagged_usd_per_hour,
        "saves_usd_per_hour": money.saves_usd_per_hour,
        "prices_dated": money.prices_dated,
        "unpriced": list(money.unpriced),
    }


def describe_decision(decision: Decision) -> dict[str, Any]:
    """A decision for JSON, without its messages."""
    from cli.terminal import iso

    return {
        "function": decision.function,
        "decided_at": iso(decision.decided_at),
        "settings_version": decision.settings_version,
        "mode": decision.mode.value,
        "level": decision.level,
        "reasons": [describe_reason(reason) for reason in decision.reasons],
        "holds": [describe_reason(hold) for hold in decision.holds],
        "stops": [stop.instance_id for stop in decision.stops],
        "checkpoints": [{"instance_id": c.instance_id, "document": c.document} for c in decision.checkpoints],
        "restores": [
            {"instance_id": r.instance_id, "asked_by": r.asked_by, "usd_per_hour": r.usd_per_hour}
            for r in decision.restores
        ],
        "verdicts": [describe_verdict(verdict) for verdict in decision.verdicts],
        "money": describe_money(decision.money),
    }


def show_decision(screen: Console, decision: Decision) -> None:
    """Level, holds, money, and a row for each instance."""
    show_level(screen, decision)
    if decision.money is not None:
        show_money(screen, decision.money)
    show_verdicts(screen, decision)


def show_level(screen: Console, decision: Decision) -> None:
    """Where the spend stands, in which mode, and what holds stops back."""
    from governor.domain.reasons import words

    line = text("level ")
    line.append_text(text(decision.level, LEVEL_STYLES.get(decision.level, "")))
    line.append(f", mode {decision.mode.value}, settings version {decision.settings_version}")
    screen.print(line)
    for reason in decision.reasons:
        screen.print(f"  {words(reason)}", markup=False)
    for hold in decision.holds:
        screen.print(f"  held: {words(hold)}", style="warn", markup=False)


def show_money(screen: Console, money: Money) -> None:
    """The figures, a line each."""
    shown = table("money", "", right=[""])
    shown.show_header = False
    shown.add_row("spent this month (AWS Budgets, 8 to 24 h late)", usd(money.actual_usd))
    shown.add_row("limit", f"{usd(money.limit_usd)}")
    shown.add_row("share of the limit", percent(money.percent))
    shown.add_row("spent at least (own meter)", usd(money.spent_at_least_usd))
    shown.add_row("running now, per hour", usd(money.run_rate_usd_per_hour))
    if money.forecast_low_usd is not None and money.forecast_high_usd is not None:
        shown.add_row("month ends at", f"{usd(money.forecast_low_usd)} to {usd(money.forecast_high_usd)}")
    shown.add_row("within reach of a stop, per hour", usd(money.reachable_usd_per_hour))
    shown.add_row("out of reach by a missing or inexact tag, per hour", usd(money.untagged_usd_per_hour))
    screen.print()
    screen.print(shown)
    screen.print(f"List prices: {money.prices_dated}.", style="quiet", markup=False)
    if money.unpriced:
        screen.print(f"Without a price, so not counted: {', '.join(money.unpriced)}.", style="warn", markup=False)


def show_verdicts(screen: Console, decision: Decision) -> None:
    """A row for each instance: what happens to it, why, what it costs and what is lost."""
    for checkpoint in decision.checkpoints:
        screen.print(f"Runs {checkpoint.document} on {checkpoint.instance_id} first.", style="warn", markup=False)
    for restore in decision.restores:
        line = f"Starts {restore.instance_id} again, {usd(restore.usd_per_hour)}/h, asked for by {restore.asked_by}."
        screen.print(line, style="good", markup=False)
    if not decision.verdicts:
        screen.print("\nNo GPU instances in the Regions that could be read.", markup=False)
        return
    stopped = {stop.instance_id for stop in decision.stops}
    screen.print()
    screen.print(verdict_table(decision.verdicts, stopped, at_stop_level=decision.level == "stop"))
    losses = sorted({loss for v in decision.verdicts if v.instance_id in stopped for loss in v.loses})
    for loss in losses:
        screen.print(f"A stop loses {loss}.", style="warn", markup=False)


def verdict_table(verdicts: Iterable[InstanceVerdict], stopped: set[str], *, at_stop_level: bool) -> Any:
    """The table of verdicts. `stop` is done now; `stop, held` waits for a hold; `would stop` is for the stop level."""
    from governor.domain.decisions import Verdict
    from governor.domain.reasons import words

    shown = table("instance", "type", "Region", "$/h", "verdict", "why", right=["$/h"])
    for verdict in verdicts:
        does, style = "leave", ""
        if verdict.instance_id in stopped:
            does, style = "stop", "bad"
        elif verdict.verdict is Verdict.STOP:
            does, style = ("stop, held" if at_stop_level else "would stop"), "warn"
        shown.add_row(
            text(verdict.instance_id + (f"\n{verdict.name[:19]}" if verdict.name else "")),
            verdict.instance_type,
            verdict.region,
            usd(verdict.usd_per_hour),
            text(_does(does, verdict), style),
            text("\n".join([words(verdict.reason), *[words(note) for note in verdict.notes]])),
        )
    return shown


def _does(does: str, verdict: InstanceVerdict) -> str:
    """The verdict with its method below it, where it is no plain stop."""
    from governor.domain.decisions import StopMethod

    plain = verdict.method in (None, StopMethod.STOP)
    return does if plain or verdict.method is None else f"{does}\n{verdict.method.value}"


def show_conclusion(screen: Console, decision: Decision) -> None:
    """One sentence: what the next run does."""
    stops = [v for v in decision.verdicts if v.instance_id in {s.instance_id for s in decision.stops}]
    rate = sum(v.usd_per_hour or 0.0 for v in stops)
    if stops:
        screen.print(f"\nThe next run stops {count(len(stops))}, which saves {usd(rate)}/h.", style="bad", markup=False)
    else:
        screen.print("\nThe next run stops nothing.", style="strong", markup=False)
