"""The digests: daily while observing, weekly, monthly. Each is told once, and late rather than never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from governor.domain.budget_messages import count_text, list_verdicts, subject_of, usd_text
from governor.domain.budget_snapshot import BudgetSnapshot, GuardState
from governor.domain.decisions import Decision, Message, Severity, Verdict
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.meter import period_of, period_start
from governor.domain.reasons import words
from governor.domain.settings import BudgetSettings, Mode, to_text

MAX_LISTED = 20

_STILL_STOPPED = (StopStatus.STOPPED, StopStatus.RESTORING, StopStatus.STARTING, StopStatus.GAVE_UP)


def saved_usd(ledger: Iterable[StopEntry], begin: datetime, end: datetime) -> float:
    """What our stops saved between two moments, USD at list price: hours that each machine was stopped by us.

    A machine that was stopped, or ended by us, and never started again counts up to `end`; one that somebody else ended
    counts until then.
    """
    total = 0.0
    for entry in ledger:
        since = entry.accepted_at
        until = _stopped_until(entry, end)
        if since is None or entry.usd_per_hour is None or until is None:
            continue
        hours = (min(until, end) - max(since, begin)).total_seconds() / 3600
        total += max(0.0, hours) * entry.usd_per_hour
    return total


def _stopped_until(entry: StopEntry, end: datetime) -> datetime | None:
    """When the stop of an entry ended, `end` while it lasts, None where none was seen."""
    if entry.status is StopStatus.RESTORED:
        return entry.restored_at or entry.updated_at
    if entry.status in (StopStatus.RESTARTED, StopStatus.GONE):
        return entry.updated_at
    if entry.status in (*_STILL_STOPPED, StopStatus.TERMINATED):
        return end
    return None


def advance_digests(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    state: GuardState,
    decision: Decision,
    ledger: tuple[StopEntry, ...],
    now: datetime,
) -> tuple[GuardState, tuple[Message, ...]]:
    """The digests that are due, and the memory that they went out.

    One is due from its hour on until it went out, also where that hour was missed: at 00:05 the one of 23:00 is sent.
    None covers the day of the first run alone, or the day on which observing began: there is nothing to sum up yet.
    """
    running = state.running_since or now
    observing = (state.observing_since or now) if settings.mode is Mode.OBSERVE else None
    state = replace(state, running_since=running, observing_since=observing)
    if settings.mode is Mode.OFF:
        return state, ()
    name = snapshot.budget.name
    day = _last_day(now, snapshot.digest_settings.hour_utc)
    monday = day - timedelta(days=day.weekday())
    first = period_start(day)
    due: list[Message] = []
    if observing is not None and observing.date() < day.date():
        due.append(_daily(snapshot, decision, f"{name}#digest#daily#{day:%Y-%m-%d}"))
    if running.date() < monday.date():
        due.append(_weekly(snapshot, settings, decision, ledger, f"{name}#digest#weekly#{monday:%G-W%V}", monday))
    # In the first hours of a month the figure of the month before the last is gone.
    if running < first and first == period_start(now):
        due.append(_monthly(snapshot, settings, state, ledger, f"{name}#digest#monthly#{period_of(first)}", first))
    told = {_kind_and_period(key)[0]: key for key in state.digests}
    fresh = tuple(message for message in due if _is_later(message.key, told))
    told.update((_kind_and_period(message.key)[0], message.key) for message in fresh)
    return replace(state, digests=tuple(told.values())), fresh


def _last_day(now: datetime, hour_utc: int) -> datetime:
    """Begin of the last day of which `hour_utc` has come."""
    return (now - timedelta(hours=hour_utc)).replace(hour=0, minute=0, second=0, microsecond=0)


def _kind_and_period(key: str) -> tuple[str, str]:
    """`weekly` and `2026-W48`, say."""
    _, kind, period = key.rsplit("#", 2)
    return kind, period


def _is_later(key: str, told: Mapping[str, str]) -> bool:
    """True for a period after the one that was told last, so that another hour brings none again."""
    kind, period = _kind_and_period(key)
    return kind not in told or period > _kind_and_period(told[kind])[1]


def _figures(decision: Decision) -> list[str]:
    money = decision.money
    if money is None:
        return []
    percent = "" if money.percent is None else f" = {money.percent:.1f} %"
    lines = [
        f"Spend this month: {usd_text(money.actual_usd)} of {usd_text(money.limit_usd)}{percent}, as AWS Budgets "
        "reports it, 8 to 24 hours late.",
        f"Running now: {usd_text(money.run_rate_usd_per_hour)}/h at list price ({money.prices_dated}).",
    ]
    if money.forecast_low_usd is not None:
        lines.append(
            f"If nothing changes the month ends between {usd_text(money.forecast_low_usd)} and "
            f"{usd_text(money.forecast_high_usd)}."
        )
    lines += [f"{words(reason)}." for reason in decision.reasons if decision.level == "unknown"]
    return lines


def _daily(snapshot: BudgetSnapshot, decision: Decision, key: str) -> Message:
    victims = tuple(v for v in decision.verdicts if v.verdict is Verdict.STOP)
    rate = usd_text(sum(v.usd_per_hour or 0.0 for v in victims))
    at_level = decision.level == "stop"
    lines = [
        "The budget guard observes: it changed nothing.",
        *_figures(decision),
        "",
        f"Armed, it would stop {count_text(len(victims))} ({rate}/h) "
        + ("now:" if at_level else "once the stop level is reached:"),
        *list_verdicts(victims),
        "",
        f"To let it act: governor arm budget --stage {snapshot.stage}",
    ]
    what = f"would {'stop now' if at_level else 'stop at the level'}: {count_text(len(victims))}, {rate}/h"
    return _message(snapshot, key, f"observing, {what}", lines)


def _weekly(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    decision: Decision,
    ledger: tuple[StopEntry, ...],
    key: str,
    end: datetime,
) -> Message:
    begin = end - timedelta(days=7)
    saved = saved_usd(ledger, begin, end)
    lines = [
        f"The week from {begin:%Y-%m-%d} to {end - timedelta(days=1):%Y-%m-%d}.",
        *_figures(decision),
        *_account(ledger, begin, end, saved),
        *_still_stopped(snapshot, ledger),
        f"Thresholds: warning at {to_text(settings.warn_percent)} %, stop at {to_text(settings.stop_percent)} % "
        f"({settings.mode.value}).",
    ]
    return _message(snapshot, key, f"the week: {usd_text(saved)} saved", lines)


def _monthly(
    snapshot: BudgetSnapshot,
    settings: BudgetSettings,
    state: GuardState,
    ledger: tuple[StopEntry, ...],
    key: str,
    end: datetime,
) -> Message:
    begin = period_start(end - timedelta(days=1))
    saved = saved_usd(ledger, begin, end)
    spent = state.last_period_actual_usd if state.last_period == period_of(begin) else None
    told = "unknown, AWS Budgets told none that could be believed"
    lines = [
        f"The month {period_of(begin)}.",
        f"Spend: {told}."
        if spent is None
        else f"Spend: {usd_text(spent)} as AWS Budgets last reported it; its last hours may still be missing.",
        f"Limit now: {usd_text(settings.limit_usd)}.",
        *_account(ledger, begin, end, saved),
        *_still_stopped(snapshot, ledger),
    ]
    return _message(snapshot, key, f"the month {period_of(begin)}: {usd_text(spent)} spent", lines)


def _account(ledger: tuple[StopEntry, ...], begin: datetime, end: datetime, saved: float) -> list[str]:
    seen = [e for e in ledger if e.accepted_at is not None and _stopped_until(e, end) is not None]
    stopped = [e for e in seen if e.accepted_at is not None and begin <= e.accepted_at < end]
    # A member that only stood in our standby ran all the time.
    back = [e for e in ledger if e.restored_at is not None and begin <= e.restored_at < end and not e.left_in_standby]
    lines = [
        f"Stopped by the Governor: {count_text(len(stopped))}; started again by it: {count_text(len(back))}.",
        f"Saved by its stops, at list price: {usd_text(saved)}.",
    ]
    unpriced = [e for e in stopped if e.usd_per_hour is None]
    if unpriced:
        lines.append(f"Not priced, so not in it: {count_text(len(unpriced))}.")
    return lines


def _still_stopped(snapshot: BudgetSnapshot, ledger: tuple[StopEntry, ...]) -> list[str]:
    still = [e for e in ledger if e.status in _STILL_STOPPED and not e.left_in_standby]
    if not still:
        return ["Nothing is stopped by the Governor now."]
    rate = usd_text(sum(e.usd_per_hour or 0.0 for e in still))
    lines = [f"Stopped by the Governor now: {count_text(len(still))} ({rate}/h)."]
    lines += [f"  {e.instance_id} {e.name}: {e.instance_type}, {e.region}" for e in still[:MAX_LISTED]]
    if len(still) > MAX_LISTED:
        lines.append(f"  ... and {len(still) - MAX_LISTED} more")
    return [*lines, f"To start them again: governor restore --all --stage {snapshot.stage}"]


def _message(snapshot: BudgetSnapshot, key: str, subject: str, lines: list[str]) -> Message:
    return Message(
        key=key,
        severity=Severity.INFO,
        subject=subject_of(f"[Governor {snapshot.stage}] {subject}"),
        body="\n".join(lines) + "\n",
        facts=(("budget", snapshot.budget.name),),
    )
