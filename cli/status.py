"""`governor status`: where the spend stands, and whether the Governor is well."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cli.options import JsonOption, StageOption

if TYPE_CHECKING:
    from cli.outlook import Outlook
    from cli.stage import Stage
    from governor.domain.controls import Controls
    from governor.domain.pause import Pause
    from governor.ports import RecordStore
    from governor.shell.settings import SettingsSnapshot

LATE_AFTER = {
    "check_settings": timedelta(minutes=10),
    "guard_budget": timedelta(minutes=15),
    "confirm_actions": timedelta(minutes=15),
}
"""Functions that leave a record of each run, and when their dead-man alarms rise."""

TOPICS = {"page": "PageTopicArn", "warn": "WarnTopicArn", "info": "InfoTopicArn"}


def status(stage: StageOption = None, as_json: JsonOption = False) -> None:
    """Show mode, pause, spend against the thresholds, run rate, last runs, open stops, and who gets the messages.

    Reads only. The level is worked out at this moment, as `governor plan` does.

    **Examples:**

    - `governor status`
    - `AWS_PROFILE=prod governor status --stage prod --json`
    """
    from cli.outlook import look_ahead
    from cli.stage import find_scope, find_stage
    from cli.terminal import current_time, print_json

    found = find_stage(stage)
    now = current_time()
    outlook = look_ahead(found, find_scope(found), now)
    answer = _describe(found, outlook, now)
    if as_json:
        print_json(answer)
    else:
        _show(answer, outlook)


def _describe(stage: Stage, outlook: Outlook, now: datetime) -> dict[str, Any]:
    from cli.decision_view import describe_money, describe_reason
    from governor.shell.settings import stored_rejection

    store = stage.store()
    decision = outlook.decision
    budget = outlook.settings.settings.budget
    rejection = stored_rejection(store)
    return {
        "stage": stage.name,
        "account_id": stage.account_id,
        "home_region": stage.home_region,
        "settings_version": outlook.settings.version,
        "mode": budget.mode.value,
        "pause": describe_pause(outlook.snapshot.controls.pause),
        **describe_controls(outlook.snapshot.controls, outlook.now, outlook.plan.spent_usd),
        "level": decision.level,
        "reasons": [describe_reason(reason) for reason in decision.reasons],
        "holds": [describe_reason(hold) for hold in decision.holds],
        "warn_percent": budget.warn_percent,
        "stop_percent": budget.stop_percent,
        "money": describe_money(decision.money),
        "would_stop_now": [stop.instance_id for stop in decision.stops],
        "runs": _runs(store, now),
        "open_stops": _open_stops(outlook),
        "stopped_by_us": _stopped(outlook),
        "groups_held": _groups_held(outlook),
        "rejection": _rejection(rejection) if rejection is not None and rejection.open else None,
        "subscribers": {name: count_subscribers(stage, output) for name, output in TOPICS.items()},
        "unknown_regions": [{"region": u.region, "why": u.why} for u in outlook.snapshot.fleet.unknown_regions],
    }


def describe_controls(controls: Controls, now: datetime, spent_usd: float | None) -> dict[str, Any]:
    """Keeps and overrides for JSON, those that are over among them: `in_force` says which hold."""
    from cli.terminal import iso

    return {
        "keeps": [
            {
                "instance_id": keep.instance_id,
                "until": iso(keep.until),
                "reason": keep.reason,
                "readable": keep.readable,
                "in_force": keep.holds(now),
            }
            for keep in controls.keeps
        ],
        "overrides": [
            {
                "scope": override.scope,
                "subject": override.subject,
                "until": iso(override.until),
                "up_to_usd": override.up_to_usd,
                "reason": override.reason,
                "parameter": override.source,
                "readable": override.readable,
                "in_force": override.holds(now, spent_usd),
            }
            for override in controls.overrides
        ],
    }


def _stopped(outlook: Outlook) -> list[dict[str, Any]]:
    """What we stopped and what has not come back."""
    from cli.terminal import iso
    from governor.domain.ledger import RETURNING_STATUSES, StopStatus

    waiting = {StopStatus.STOPPED, StopStatus.GAVE_UP, *RETURNING_STATUSES}
    return [
        {
            "instance_id": entry.instance_id,
            "name": entry.name,
            "region": entry.region,
            "instance_type": entry.instance_type,
            "group": entry.group,
            "status": entry.status.value,
            "detail": entry.detail,
            "since": iso(entry.accepted_at),
            "usd_per_hour": entry.usd_per_hour,
            "next_start_at": iso(entry.next_start_at),
        }
        for entry in outlook.snapshot.ledger
        if entry.status in waiting
    ]


def _groups_held(outlook: Outlook) -> list[dict[str, Any]]:
    """Auto Scaling groups of which we changed something."""
    from cli.terminal import iso

    return [
        {
            "group": hold.name,
            "region": hold.region,
            "min_size_before": hold.min_before,
            "desired_before": hold.desired_before,
            "since": iso(hold.held_since),
        }
        for hold in outlook.snapshot.holds
        if hold.open
    ]


def describe_pause(pause: Pause) -> dict[str, Any]:
    """A pause for JSON."""
    from cli.terminal import iso

    return {"active": pause.active, "readable": pause.readable, "reason": pause.reason, "until": iso(pause.until)}


def count_subscribers(stage: Stage, output: str) -> dict[str, int]:
    """How many subscriptions of a topic are confirmed, and how many still wait for somebody to confirm."""
    from cli.account import aws

    pages = aws("sns", stage.home_region).get_paginator("list_subscriptions_by_topic")
    found = [s for page in pages.paginate(TopicArn=stage.output(output)) for s in page["Subscriptions"]]
    confirmed = sum(str(subscription["SubscriptionArn"]).startswith("arn:") for subscription in found)
    return {"confirmed": confirmed, "waiting": len(found) - confirmed}


def _runs(store: RecordStore, now: datetime) -> list[dict[str, Any]]:
    from cli.terminal import iso
    from governor.ports import Key

    rows = []
    for function, patience in LATE_AFTER.items():
        record = store.get(Key(f"run#{function}", "state"))
        at = datetime.fromisoformat(record.sequence) if record is not None and record.sequence else None
        age = None if at is None else (now - at).total_seconds()
        rows.append(
            {
                "function": function,
                "at": iso(at),
                "age_seconds": age,
                "late": age is None or age > patience.total_seconds(),
            }
        )
    return rows


def _open_stops(outlook: Outlook) -> list[dict[str, Any]]:
    from cli.terminal import iso

    return [
        {
            "instance_id": entry.instance_id,
            "region": entry.region,
            "instance_type": entry.instance_type,
            "status": entry.status.value,
            "detail": entry.detail,
            "decision_id": entry.decision_id,
            "updated_at": iso(entry.updated_at),
            "usd_per_hour": entry.usd_per_hour,
        }
        for entry in outlook.snapshot.ledger
        if entry.open
    ]


def _rejection(rejection: Any) -> dict[str, Any]:
    from cli.terminal import iso

    return {
        "since": iso(rejection.since),
        "version_in_force": rejection.in_force,
        "errors": [
            {"name": e.name, "value": e.value, "sentence": e.sentence, "by": e.by, "at": iso(e.at)}
            for e in rejection.errors
        ],
    }


def _show(answer: dict[str, Any], outlook: Outlook) -> None:
    from cli.decision_view import LEVEL_STYLES, show_money
    from cli.terminal import console, text

    screen = console()
    screen.print(
        f"GPU Governor {answer['stage']}, account {answer['account_id']}, {answer['home_region']}",
        style="strong",
        markup=False,
    )
    line = text(f"mode {answer['mode']}, settings version {answer['settings_version']}, level ")
    line.append_text(text(answer["level"], LEVEL_STYLES.get(answer["level"], "")))
    screen.print(line)
    for reason in (*answer["reasons"], *({**hold, "words": f"held: {hold['words']}"} for hold in answer["holds"])):
        screen.print(f"  {reason['words']}", markup=False)
    _show_pause(screen, outlook.snapshot.controls.pause)
    _show_controls(screen, answer)
    _show_bar(screen, outlook.settings, answer)
    if outlook.decision.money is not None:
        show_money(screen, outlook.decision.money)
    _show_health(screen, answer)


def _show_pause(screen: Any, pause: Pause) -> None:
    from cli.terminal import clock

    if not pause.readable:
        screen.print(f"PAUSED: {pause.reason}", style="bad", markup=False)
    elif pause.active:
        until = f" until {clock(pause.until)}" if pause.until else ", without an end"
        why = f": {pause.reason}" if pause.reason else ""
        screen.print(f"PAUSED{until}{why}", style="warn", markup=False)
    else:
        screen.print("not paused", markup=False)


def _show_controls(screen: Any, answer: dict[str, Any]) -> None:
    from cli.terminal import clock

    def ends(row: dict[str, Any]) -> str:
        until = f" until {clock(row['until'])}" if row["until"] else ""
        up_to = f" up to ${row['up_to_usd']:,.2f} of the month" if row.get("up_to_usd") else ""
        return until + up_to + (f": {row['reason']}" if row["reason"] else "")

    for keep in answer["keeps"]:
        if keep["in_force"]:
            screen.print(f"kept {keep['instance_id']}{ends(keep)}", style="warn", markup=False)
    for override in answer["overrides"]:
        if override["in_force"]:
            subject = f" {override['subject']}" if override["subject"] else ""
            screen.print(f"OVERRIDDEN {override['scope']}{subject}{ends(override)}", style="warn", markup=False)


def _show_bar(screen: Any, settings: SettingsSnapshot, answer: dict[str, Any]) -> None:
    from cli.terminal import bar, percent, usd

    share = answer["money"]["percent"] if answer["money"] else None
    warn, stop = settings.settings.budget.warn_percent, settings.settings.budget.stop_percent
    if share is None:
        screen.print("\nThe share of the limit is unknown.", style="warn", markup=False)
        return
    full = max(120.0, stop * 1.1, min(share, stop * 2))
    style = "bad" if share >= stop else "warn" if share >= warn else "good"
    line = bar([(share, style)], [(warn, "warn"), (stop, "bad")], full=full)
    line.append(f" {percent(share)} of {usd(settings.settings.budget.limit_usd)}")
    screen.print()
    screen.print(line)
    screen.print(f"warning at {warn:g} %, stop at {stop:g} % (the two marks)", style="quiet", markup=False)


def _show_health(screen: Any, answer: dict[str, Any]) -> None:
    from cli.terminal import age, clock, count, table, text, usd

    shown = table("function", "last run", "ago", right=["ago"], title="Runs")
    for run in answer["runs"]:
        ago = "never" if run["age_seconds"] is None else age(timedelta(seconds=run["age_seconds"]))
        shown.add_row(run["function"], clock(run["at"]), text(ago, "bad" if run["late"] else "good"))
    screen.print()
    screen.print(shown)
    if answer["open_stops"]:
        stops = table("open stop", "type", "Region", "status", "since", "$/h", "detail", right=["$/h"])
        for stop in answer["open_stops"]:
            stops.add_row(
                stop["instance_id"],
                stop["instance_type"],
                stop["region"],
                text(stop["status"], "bad" if stop["status"] == "failed" else ""),
                clock(stop["updated_at"]),
                usd(stop["usd_per_hour"]),
                text(stop["detail"]),
            )
        screen.print()
        screen.print(stops)
    else:
        screen.print("\nNo stop is open.", markup=False)
    _show_stopped(screen, answer)
    rejection = answer["rejection"]
    if rejection:
        screen.print(
            f"Settings rejected since {clock(rejection['since'])}; "
            f"version {rejection['version_in_force']} is in force:",
            style="bad",
            markup=False,
        )
        for error in rejection["errors"]:
            screen.print(f"  {error['sentence']}", markup=False)
    for name, found in answer["subscribers"].items():
        waiting = f", {found['waiting']} not yet confirmed" if found["waiting"] else ""
        style = "warn" if not found["confirmed"] and name != "info" else ""
        screen.print(
            f"topic {name}: {count(found['confirmed'], 'confirmed subscription')}{waiting}",
            style=style or None,
            markup=False,
        )
    for region in answer["unknown_regions"]:
        screen.print(f"Unknown, not empty: {region['region']} ({region['why']})", style="warn", markup=False)


def _show_stopped(screen: Any, answer: dict[str, Any]) -> None:
    from cli.terminal import clock, table, text, usd

    if answer["stopped_by_us"]:
        shown = table("stopped by us", "type", "Region", "status", "since", "$/h", "detail", right=["$/h"])
        for row in answer["stopped_by_us"]:
            again = f"; next try {clock(row['next_start_at'])}" if row["next_start_at"] else ""
            shown.add_row(
                text(row["instance_id"] + (f"\n{row['name'][:19]}" if row["name"] else "")),
                row["instance_type"],
                row["region"],
                text(row["status"], "warn" if row["status"] != "stopped" else ""),
                clock(row["since"]),
                usd(row["usd_per_hour"]),
                text(row["detail"] + again),
            )
        screen.print()
        screen.print(shown)
        screen.print(f"To start them again: governor restore --all --stage {answer['stage']}", markup=False)
    for held in answer["groups_held"]:
        screen.print(
            f"Group {held['group']} in {held['region']}: held since {clock(held['since'])}; before it was MinSize "
            f"{held['min_size_before']}, desired {held['desired_before']}.",
            style="warn",
            markup=False,
        )
