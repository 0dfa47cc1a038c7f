"""`governor restore`: start again what the Governor stopped."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption, YesOption

if TYPE_CHECKING:
    from datetime import datetime

    from cli.outlook import Outlook
    from cli.stage import Scope, Stage
    from governor.domain.ledger import StopEntry
    from governor.domain.restore import RestoreVerdict

_INSTANCE = re.compile(r"^i-[0-9a-f]{8,17}$")
POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked back: the named ones, those of one decision, or all."""

    instances: tuple[str, ...] = ()
    decision_id: str = ""
    everything: bool = False

    def detail(self, by: str) -> dict[str, Any]:
        """The detail of the event that asks for it."""
        return {
            "instances": list(self.instances),
            "decision_id": self.decision_id,
            "all": self.everything,
            "by": by,
        }


def restore(
    instances: Annotated[
        list[str] | None, typer.Argument(metavar="[INSTANCE]...", help="Machines to start again.", show_default=False)
    ] = None,
    decision: Annotated[
        str | None, typer.Option("--decision", metavar="ID", help="All that this decision stopped.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that the Governor stopped.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch until they run.")] = True,
    wait_minutes: Annotated[
        int, typer.Option("--wait-minutes", min=1, max=120, metavar="N", help="Watch at most so long.")
    ] = 10,
    stage: StageOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start again what the Governor stopped: shows what it costs, asks, starts exactly that, and watches it.

    Only what nobody changed since is started; the rest is named with its reason. Members of Auto Scaling groups go back
    into service, and their group gets its sizes back.

    **Examples:**

    - `governor restore i-0123456789abcdef0`
    - `governor restore --decision 'guard_budget@2026-11-20T12:00:00+00:00'`
    - `governor restore --all --yes --no-wait --json`
    """
    from cli.outlook import look_ahead
    from cli.stage import find_scope, find_stage
    from cli.terminal import ask, count, current_time

    wish = _read_wish(instances or [], decision, everything)
    found = find_stage(stage)
    scope = find_scope(found)
    outlook = look_ahead(found, scope, current_time())
    verdicts = _preview(outlook, wish)
    good = [v for v in verdicts if v.restorable]
    if not as_json:
        _show_preview(found, outlook, verdicts)
    if not good:
        _end(found, wish, verdicts, (), (), None, as_json=as_json)
        raise typer.Exit(1)
    rate = sum(v.usd_per_hour or 0.0 for v in good)
    ask(f"Start {count(len(good))} again for ${rate:,.2f}/h?", yes=yes)
    began = time.monotonic()
    # Exactly what was shown, also where more was stopped while the question stood.
    answer = ask_the_guard(found, scope, Wish(tuple(v.instance_id for v in good)), outlook.now)
    accepted = tuple(str(one) for one in answer.get("restores", ()))
    refused = (*_not_asked_for(verdicts), *(dict(one) for one in answer.get("refused", ())))
    outcome = _watch(found, accepted, wait_minutes * 60, began, quiet=as_json) if wait and accepted else None
    _end(found, wish, verdicts, accepted, refused, outcome, as_json=as_json)
    missed = bool(refused) and bool(wish.instances)
    if missed or not accepted or (outcome is not None and outcome["not_running"]):
        raise typer.Exit(1)


def _not_asked_for(verdicts: Sequence[RestoreVerdict]) -> tuple[dict[str, str], ...]:
    """What the preview says cannot be started, as the guard would refuse it."""
    from governor.domain.reasons import words

    return tuple(
        {"instance_id": v.instance_id, "code": v.reason.code.value, "why": words(v.reason)}
        for v in verdicts
        if not v.restorable
    )


def _read_wish(instances: Sequence[str], decision: str | None, everything: bool) -> Wish:
    named = tuple(dict.fromkeys(one.strip() for one in instances))
    if sum((bool(named), decision is not None, everything)) != 1:
        raise typer.BadParameter("name instances, or give one of --decision and --all", param_hint="INSTANCE")
    for one in named:
        if not _INSTANCE.match(one):
            raise typer.BadParameter(f"{one!r} is no instance id (i-0abc...)", param_hint="INSTANCE")
    if decision is not None and "@" not in decision:
        raise typer.BadParameter(f"{decision!r} is no id of a decision (function@moment)", param_hint="--decision")
    return Wish(named, (decision or "").strip(), everything)


def _preview(outlook: Outlook, wish: Wish) -> tuple[RestoreVerdict, ...]:
    """What the guard would answer, by the same rule."""
    from dataclasses import replace

    from governor.domain.budget_snapshot import RestoreRequest
    from governor.domain.restore import plan_restore

    request = RestoreRequest("arn:preview", wish.instances, wish.decision_id, wish.everything)
    snapshot = replace(outlook.snapshot, request=request)
    decision = outlook.decision
    assert decision.money is not None
    ledger = _followed(outlook)
    budget = outlook.settings.settings.budget
    plan = plan_restore(snapshot, budget, ledger, decision.level, decision.money, decision.decision_id, outlook.now)
    return plan.verdicts


def _followed(outlook: Outlook) -> tuple[StopEntry, ...]:
    from governor.domain.outcomes import follow_ledger

    snapshot = outlook.snapshot
    return follow_ledger(snapshot.ledger, snapshot.fleet, snapshot.restore_settings, outlook.now)


def _show_preview(stage: Stage, outlook: Outlook, verdicts: Sequence[RestoreVerdict]) -> None:
    from cli.terminal import console, table, text, usd
    from governor.domain.meter import hours_left
    from governor.domain.reasons import words

    screen = console()
    if not verdicts:
        screen.print(f"The Governor of stage {stage.name} has stopped nothing that could be started.", markup=False)
        return
    shown = table("instance", "type", "Region", "$/h", "start", "why", right=["$/h"])
    for verdict in verdicts:
        shown.add_row(
            text(verdict.instance_id + (f"\n{verdict.name[:19]}" if verdict.name else "")),
            verdict.instance_type,
            verdict.region,
            usd(verdict.usd_per_hour),
            text("yes" if verdict.restorable else "no", "good" if verdict.restorable else "bad"),
            text(words(verdict.reason)),
        )
    screen.print(shown)
    money = outlook.decision.money
    rate = sum(v.usd_per_hour or 0.0 for v in verdicts if v.restorable)
    left = rate * hours_left(outlook.now)
    screen.print(f"\nThat costs {usd(rate)}/h, {usd(left)} to the end of the month.", style="strong", markup=False)
    if money is not None and money.forecast_high_usd is not None:
        end = money.forecast_high_usd + left
        past = end > money.limit_usd
        tail = f"above the limit of {usd(money.limit_usd)}" if past else f"within the limit of {usd(money.limit_usd)}"
        screen.print(f"The month would end at up to {usd(end)}, {tail}.", style="bad" if past else None, markup=False)
    if outlook.decision.level == "stop":
        hours = outlook.settings.settings.budget.manual_start_grace_hours
        screen.print(
            f"The stop level stands: what you start is left alone for {hours} hours, then stopped again.",
            style="warn",
            markup=False,
        )


def ask_the_guard(stage: Stage, scope: Scope, wish: Wish, now: datetime) -> dict[str, Any]:
    """Let guard_budget do it: it alone writes the ledger. Raises CliError where the function failed."""
    from botocore.exceptions import BotoCoreError, ClientError

    from cli.account import aws, patient_lambda
    from cli.errors import CliError
    from governor.shell.budget_guard import RESTORE_SOURCE

    if not scope.guard_function:
        raise CliError(
            f"The stack Governor-{stage.name}-Control has no output GuardBudgetFunctionName; "
            f"finish its deploy first: make deploy STAGE={stage.name}."
        )
    try:
        by = str(aws("sts", stage.home_region).get_caller_identity()["Arn"])
    except ClientError:
        by = "somebody"
    event = {
        "source": RESTORE_SOURCE,
        "id": str(uuid.uuid4()),
        "time": now.isoformat(),
        "detail-type": "Restore Wanted",
        "detail": wish.detail(by),
    }
    unknown = (
        f"whether guard_budget of stage {stage.name} took the request is not known; what it took goes on, and "
        f"governor status --stage {stage.name} shows it. Look there before you try again."
    )
    try:
        answer = patient_lambda(stage.home_region).invoke(
            FunctionName=scope.guard_function, InvocationType="RequestResponse", Payload=json.dumps(event).encode()
        )
        payload = json.loads(answer["Payload"].read() or b"null")
    except (BotoCoreError, OSError, ValueError) as error:
        raise CliError(f"The answer was lost ({error}), so {unknown}") from error
    if answer.get("FunctionError") or not isinstance(payload, dict):
        failed = payload if isinstance(payload, dict) else {}
        if failed.get("errorType") == "LeaseHeldError":
            raise CliError(
                f"Another run of guard_budget of stage {stage.name} is at work, so nothing was started; "
                "try again in a minute."
            )
        raise CliError(f"guard_budget failed ({failed.get('errorMessage', 'no answer')}), so {unknown}")
    return payload


def _watch(stage: Stage, instance_ids: Sequence[str], seconds: float, began: float, *, quiet: bool) -> dict[str, Any]:
    """Watch the ledger until each has come back, or the time is over. Seconds count from the request."""
    from cli.terminal import console

    screen = console(errors=True)
    wanted = set(instance_ids)
    back: dict[str, float] = {}
    last: dict[str, StopEntry] = {}
    while True:
        last = _newest(stage, wanted)
        for instance_id, entry in sorted(last.items()):
            if instance_id not in back and entry.status.value == "restored":
                back[instance_id] = round(time.monotonic() - began, 1)
                if not quiet:
                    line = f"{instance_id} runs again, {back[instance_id]} s after the command."
                    screen.print(line, style="good", markup=False)
        ended = {
            i for i, e in last.items() if e.status.value in ("restored", "gave-up", "gone", "stopped", "restarted")
        }
        if wanted <= ended or time.monotonic() - began > seconds:
            break
        time.sleep(POLL_SECONDS)
    left = sorted(wanted - set(back))
    return {
        "running_after_seconds": dict(sorted(back.items())),
        "not_running": [
            {
                "instance_id": i,
                "status": last[i].status.value if i in last else "unknown",
                "detail": last[i].detail if i in last else "",
            }
            for i in left
        ],
    }


def _newest(stage: Stage, wanted: set[str]) -> dict[str, StopEntry]:
    from governor.shell.records import LEDGER, entry_of

    newest: dict[str, StopEntry] = {}
    for record in stage.store().query(LEDGER):
        entry = entry_of(record)
        before = newest.get(entry.instance_id)
        if entry.instance_id in wanted and (before is None or entry.launched_at > before.launched_at):
            newest[entry.instance_id] = entry
    return newest


def _end(
    stage: Stage,
    wish: Wish,
    verdicts: Sequence[RestoreVerdict],
    accepted: tuple[str, ...],
    refused: tuple[dict[str, Any], ...],
    outcome: dict[str, Any] | None,
    *,
    as_json: bool,
) -> None:
    from cli.decision_view import describe_reason
    from cli.terminal import console, count, print_json

    if as_json:
        print_json(
            {
                "stage": stage.name,
                "asked": {
                    "instances": list(wish.instances),
                    "decision_id": wish.decision_id or None,
                    "all": wish.everything,
                },
                "preview": [
                    {
                        "instance_id": v.instance_id,
                        "region": v.region,
                        "instance_type": v.instance_type,
                        "restorable": v.restorable,
                        "reason": describe_reason(v.reason),
                        "usd_per_hour": v.usd_per_hour,
                    }
                    for v in verdicts
                ],
                "accepted": list(accepted),
                "refused": list(refused),
                "outcome": outcome,
            }
        )
        return
    screen = console()
    if accepted:
        screen.print(f"{count(len(accepted))} accepted: {', '.join(accepted)}", style="good", markup=False)
    for one in refused:
        screen.print(f"Not started: {one['instance_id']} {one['why']}", style="bad", markup=False)
    if not accepted and not refused:
        screen.print("Nothing is started.", style="bad", markup=False)
    if outcome is None:
        if accepted:
            screen.print(f"confirm_actions starts them; see governor status --stage {stage.name}.", markup=False)
        return
    for one in outcome["not_running"]:
        detail = f": {one['detail']}" if one["detail"] else ""
        screen.print(
            f"Not running yet: {one['instance_id']} ({one['status']}{detail}). confirm_actions goes on by itself.",
            style="warn",
            markup=False,
        )
