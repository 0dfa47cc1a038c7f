"""`governor explain`: why something was done, or left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption

if TYPE_CHECKING:
    from cli.stage import Stage
    from governor.domain.ledger import StopEntry
    from governor.ports import Record, RecordStore

_INSTANCE = re.compile(r"^i-[0-9a-f]+$")
_STYLES = {
    "stopped": "good",
    "restored": "good",
    "failed": "bad",
    "gave-up": "bad",
    "restarted": "warn",
    "withheld": "warn",
    "restoring": "warn",
    "starting": "warn",
}


def explain(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="An instance id, or the id of a decision.")],
    stage: StageOption = None,
    as_json: JsonOption = False,
    last: Annotated[
        int, typer.Option("--last", min=1, max=1000, metavar="N", help="How many decisions to show, newest first.")
    ] = 10,
) -> None:
    """Show why an instance was stopped or left, or everything about one decision: reasons, holds, money, outcome.

    The ids of decisions stand in each message, in `governor status` and in the answer about an instance.

    **Examples:**

    - `governor explain i-0123456789abcdef0`
    - `governor explain guard_budget@2026-11-20T12:00:00+00:00 --json`
    """
    from cli.stage import find_stage

    subject = subject.strip()
    if not _INSTANCE.match(subject) and "@" not in subject:
        raise typer.BadParameter(
            f"{subject!r} is neither an instance id (i-0abc...) nor the id of a decision (function@moment)",
            param_hint="SUBJECT",
        )
    found = find_stage(stage)
    if _INSTANCE.match(subject):
        _explain_instance(found, subject, last, as_json=as_json)
    else:
        _explain_decision(found, subject, as_json=as_json)


def _explain_instance(stage: Stage, instance_id: str, last: int, *, as_json: bool) -> None:
    from cli.errors import CliError
    from cli.terminal import console, print_json

    store = stage.store()
    said = store.query(f"instance#{instance_id}", newest_first=True, limit=last)
    outcomes = _outcomes(store, instance_id)
    if not said and not outcomes:
        raise CliError(
            f"No decision of stage {stage.name} in {stage.home_region} names {instance_id}; check the id and the "
            "stage, and whether it is a GPU instance in a Region that the stage watches (governor plan lists those)."
        )
    decisions = [_describe_said(record) for record in said]
    if as_json:
        print_json(
            {
                "stage": stage.name,
                "subject": instance_id,
                "kind": "instance",
                "decisions": decisions,
                "outcomes": [_describe_outcome(entry) for entry in outcomes],
            }
        )
        return
    screen = console()
    screen.print(f"{instance_id} in stage {stage.name}, newest decision first:", style="strong", markup=False)
    _show_said(screen, decisions)
    _show_outcomes(screen, outcomes)
    _show_returns(screen, outcomes)


def _describe_said(record: Record) -> dict[str, Any]:
    """What one decision said of one instance, for JSON."""
    from pydantic import TypeAdapter

    from cli.decision_view import describe_reason, describe_verdict
    from governor.domain.decisions import InstanceVerdict
    from governor.domain.reasons import Reason, ReasonCode

    body = record.body
    verdict = TypeAdapter(InstanceVerdict).validate_python(dict(body))
    holds = [Reason(ReasonCode(hold["code"]), tuple(hold["facts"].items())) for hold in body.get("holds", ())]
    decision_id = str(body.get("decision_id", ""))
    return {
        "decision_id": decision_id,
        "decided_at": decision_id.partition("@")[2],
        "level": body.get("level"),
        "mode": body.get("mode"),
        "holds": [describe_reason(hold) for hold in holds],
        **describe_verdict(verdict),
    }


def _outcomes(store: RecordStore, instance_id: str) -> list[StopEntry]:
    from governor.shell.records import LEDGER, entry_of

    found = [entry_of(record) for record in store.query(LEDGER, f"{instance_id}#")]
    return sorted(found, key=lambda entry: entry.decided_at, reverse=True)


def _describe_outcome(entry: StopEntry) -> dict[str, Any]:
    from cli.terminal import iso

    return {
        "instance_id": entry.instance_id,
        "region": entry.region,
        "instance_type": entry.instance_type,
        "reason": entry.reason,
        "rule": entry.rule,
        "status": entry.status.value,
        "detail": entry.detail,
        "decision_id": entry.decision_id,
        "decided_at": iso(entry.decided_at),
        "updated_at": iso(entry.updated_at),
        "launched_at": iso(entry.launched_at),
        "usd_per_hour": entry.usd_per_hour,
        "restore": _describe_return(entry),
    }


def _describe_return(entry: StopEntry) -> dict[str, Any] | None:
    """How far the start of a stopped machine has come, for JSON; None where nobody asked for it."""
    from cli.terminal import iso
    from governor.domain.ledger import StopStatus

    if not entry.restore_decision_id:
        return None
    return {
        "decision_id": entry.restore_decision_id,
        "asked_by": entry.restore_asked_by or None,
        "asked_at": iso(entry.restore_asked_at),
        "tries": entry.start_tries,
        "tried_at": iso(entry.start_tried_at),
        "next_try_at": iso(entry.next_start_at) if entry.start_tries else None,
        "running_at": iso(entry.restored_at),
        "last_error": _last_error(entry),
        "given_up": entry.status is StopStatus.GAVE_UP,
    }


def _last_error(entry: StopEntry) -> str | None:
    """Why a machine whose start was asked for is not back; None where nothing is known to be wrong."""
    from governor.domain.ledger import NOT_OUT_OF_STANDBY, StopStatus

    if entry.status is StopStatus.RESTORED:
        return None
    if entry.status is StopStatus.STARTING and not entry.detail.startswith(NOT_OUT_OF_STANDBY):
        return None
    return entry.detail or None


def _show_said(screen: Any, decisions: list[dict[str, Any]]) -> None:
    from cli.terminal import table, text, usd

    if not decisions:
        return
    shown = table("decision", "level", "$/h", "verdict", "why", right=["$/h"])
    for row in decisions:
        why = text(row["reason"]["words"])
        for hold in row["holds"]:
            why.append(f"\nheld: {hold['words']}", style="yellow")
        does, style = "leave", ""
        if row["verdict"] == "stop":
            held = bool(row["holds"]) or row["level"] != "stop"
            does, style = ("not yet", "warn") if held else ("stop", "bad")
        shown.add_row(
            text(row["decision_id"].replace("@", "@\n", 1)),
            text(f"{row['level']}\n{row['mode']}"),
            usd(row["usd_per_hour"]),
            text(does, style),
            why,
        )
    screen.print()
    screen.print(shown)


def _show_outcomes(screen: Any, outcomes: list[StopEntry]) -> None:
    from cli.terminal import clock, table, text, usd

    if not outcomes:
        screen.print("\nThe Governor has not stopped it.", markup=False)
        return
    shown = table("instance", "outcome", "decided, seen", "$/h", "rule", right=["$/h"], title="What became of it")
    for entry in outcomes:
        rule = text(f"{entry.reason}: {entry.rule}")
        if entry.detail and not entry.restore_decision_id:  # else it is about the way back, shown there
            rule.append(f"\n{entry.detail}", style="dim")
        shown.add_row(
            text(f"{entry.instance_id}\n{entry.instance_type}"),
            text(entry.status.value, _STYLES.get(entry.status.value, "")),
            f"{clock(entry.decided_at)}\n{clock(entry.updated_at)}",
            usd(entry.usd_per_hour),
            rule,
        )
    screen.print()
    screen.print(shown)


def _show_returns(screen: Any, entries: Sequence[StopEntry]) -> None:
    """What became of the starts that somebody or the policy asked for; nothing where there were none."""
    from cli.terminal import clock, table, text, who

    asked = [(entry, back) for entry in entries if (back := _describe_return(entry)) is not None]
    if not asked:
        return
    shown = table("instance", "outcome", "asked, running", "tries", "why", right=["tries"], title="The way back")
    for entry, back in asked:
        status = entry.status.value
        why = text(f"asked for by {who(back['asked_by'])}" if back["asked_by"] else "not asked for any more")
        if back["last_error"]:
            why.append(f"\n{back['last_error']}", style="yellow")
        if back["next_try_at"]:
            why.append(f"\nnext try {clock(back['next_try_at'])}", style="dim")
        shown.add_row(
            text(f"{entry.instance_id}\n{entry.instance_type}"),
            text(status, _STYLES.get(status, "")),
            "\n".join(clock(moment) if moment else "-" for moment in (back["asked_at"], back["running_at"])),
            str(back["tries"]),
            why,
        )
    screen.print()
    screen.print(shown)


def _explain_decision(stage: Stage, decision_id: str, *, as_json: bool) -> None:
    from pydantic import TypeAdapter

    from cli.decision_view import describe_decision, show_decision
    from cli.errors import CliError
    from cli.terminal import clock, console, print_json
    from governor.domain.budget_snapshot import LEDGER_REASON
    from governor.domain.decisions import Decision
    from governor.shell.records import LEDGER, decision_key_of_id, entry_of

    key = decision_key_of_id(decision_id)
    if key is None or datetime.fromisoformat(decision_id.partition("@")[2]).tzinfo is None:
        raise typer.BadParameter(f"{decision_id!r} has no moment with a time zone after the @", param_hint="SUBJECT")
    store = stage.store()
    record = store.get(key)
    if record is None:
        raise CliError(
            f"The stage {stage.name} in {stage.home_region} keeps no decision {decision_id}; copy the id from a "
            "message or from governor explain INSTANCE (a run in which nothing was new records none)."
        )
    keys = [str(name) for name in record.body.get("messages", ())]
    decision = TypeAdapter(Decision).validate_python({**record.body, "messages": []})
    entries = [entry_of(found) for found in store.query(LEDGER)]
    outcomes = [entry for entry in entries if entry.decision_id == decision_id]
    started = {(restore.instance_id, restore.launched_at) for restore in decision.restores}
    returns = [e for e in entries if e.reason == LEDGER_REASON and (e.instance_id, e.launched_at) in started]
    if as_json:
        print_json(
            {
                "stage": stage.name,
                "subject": decision_id,
                "kind": "decision",
                "decision": describe_decision(decision),
                "message_keys": keys,
                "outcomes": [_describe_outcome(entry) for entry in outcomes],
                "restore_outcomes": [_describe_outcome(entry) for entry in returns],
            }
        )
        return
    screen = console()
    screen.print(f"{decision_id}, decided at {clock(decision.decided_at)}:", style="strong", markup=False)
    show_decision(screen, decision)
    if outcomes:
        _show_outcomes(screen, outcomes)
    elif decision.stops:
        screen.print("\nThe ledger has no outcome of its stops yet.", style="warn", markup=False)
    _show_returns(screen, returns)
    for message_key in keys:
        screen.print(f"Message: {message_key}", style="quiet", markup=False)
