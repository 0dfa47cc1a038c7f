"""`governor override`: keep going, I pay - until a time or an amount, for the budget, a project or an instance."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption

if TYPE_CHECKING:
    from datetime import datetime

    from cli.stage import Stage

DESCRIPTION = (
    "Overrules the budget guard. Write: budget | project <name> | instance <id> (a name of several words in double "
    "quotes), then until 2026-12-01T06:00Z, up "
    "to 1500 usd (of the month's spend), or both, then optionally because <why>. Delete the parameter to lift it; "
    "anything else holds the whole budget."
)
_INSTANCE = re.compile(r"^i-[0-9a-f]{8,17}$")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
MAX_PROJECT_CHARACTERS = 256


def override(
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Only the instances of this project.")
    ] = None,
    instance: Annotated[str | None, typer.Option("--instance", metavar="ID", help="Only this instance.")] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="When it ends: 2026-12-01T06:00Z (UTC where no zone is given)."),
    ] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long it lasts: 90m, 4h, 2d or 1d12h.")
    ] = None,
    up_to_usd: Annotated[
        float | None, typer.Option("--up-to-usd", metavar="AMOUNT", help="The month's spend at which it ends.")
    ] = None,
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; others read it. Required.")] = "",
    lift: Annotated[bool, typer.Option("--lift", help="End the override.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show every override.")] = False,
    stage: StageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the work go on although the stop level is reached: until a time, up to an amount, or both.

    Without --project and --instance it holds for the whole budget. A native brake that was pulled is released with it.

    **Examples:**

    - `governor override --until 2026-12-01T06:00Z --up-to-usd 12000 --because "launch week"`
    - `governor override --project render --for 8h --because "deadline"`
    - `governor override --lift`
    """
    from cli.pause import read_end, read_reason
    from cli.stage import find_stage
    from cli.terminal import current_time
    from governor.domain.controls import MAX_USD, MIN_USD

    now = current_time()
    scope, subject = _read_subject(project, instance)
    ends = read_end(until, lasting, now)
    if listing:
        if lift or ends or up_to_usd is not None or scope != "budget":
            raise typer.BadParameter("--list shows all overrides and takes nothing else", param_hint="--list")
        _list(find_stage(stage), now, as_json=as_json)
        return
    if lift:
        if ends or up_to_usd is not None:
            raise typer.BadParameter("--lift takes neither a time nor an amount", param_hint="--lift")
        _lift(find_stage(stage), scope, subject, as_json=as_json)
        return
    if ends is None and up_to_usd is None:
        raise typer.BadParameter(
            "say where it ends: --until TIME, --for 8h or --up-to-usd AMOUNT", param_hint="--until"
        )
    if up_to_usd is not None and not MIN_USD <= up_to_usd <= MAX_USD:
        raise typer.BadParameter(
            f"{up_to_usd} is no amount of US dollars from {MIN_USD} to {MAX_USD:.2f}", param_hint="--up-to-usd"
        )
    _write(find_stage(stage), scope, subject, ends, up_to_usd, read_reason(because), now, as_json=as_json)


def _read_subject(project: str | None, instance: str | None) -> tuple[str, str]:
    from governor.domain.controls import is_project_name

    if project is not None and instance is not None:
        raise typer.BadParameter("give one of --project and --instance, not both", param_hint="--project")
    if project is not None:
        name = project.strip()
        if len(name) > MAX_PROJECT_CHARACTERS or not is_project_name(name):
            raise typer.BadParameter(
                f"{project!r} cannot be named as a project here: 1 to {MAX_PROJECT_CHARACTERS} characters, without "
                "double quotes, control characters and the word because",
                param_hint="--project",
            )
        return "project", name
    if instance is not None:
        if not _INSTANCE.match(instance.strip()):
            raise typer.BadParameter(f"{instance!r} is no instance id (i-0abc...)", param_hint="--instance")
        return "instance", instance.strip()
    return "budget", ""


def parameter_of(scope: str, subject: str) -> str:
    """The parameter of an override, below the stage. A name that no parameter may have gets a digest."""
    if scope == "budget":
        return "control/override/budget"
    safe = _UNSAFE.sub("-", subject).strip("-.") or "x"
    if safe != subject:
        safe = f"{safe[:60]}-{hashlib.sha256(subject.encode()).hexdigest()[:8]}"
    return f"control/override/{scope}-{safe}"


def _write(
    stage: Stage,
    scope: str,
    subject: str,
    ends: datetime | None,
    up_to_usd: float | None,
    reason: str,
    now: datetime,
    *,
    as_json: bool,
) -> None:
    from cli.controls import describe_version, show_change, write_control
    from cli.terminal import console, print_json
    from governor.domain.controls import format_override

    parameter = parameter_of(scope, subject)
    text = format_override(scope, subject, until=ends, up_to_usd=up_to_usd, because=reason)
    before = write_control(stage, parameter, text, DESCRIPTION)
    brake = _release_brake(stage) if scope == "budget" else None
    effect = _effect(stage, scope, subject, up_to_usd, now)
    failed = brake is not None and brake["status"] is None
    over = effect["spent_usd"] is not None and up_to_usd is not None and effect["spent_usd"] >= up_to_usd
    if as_json:
        print_json(
            {
                "stage": stage.name,
                "parameter": stage.parameter(parameter),
                "before": describe_version(before),
                "after": text,
                "native_brake": brake,
                "held": effect,
            }
        )
    else:
        screen = console()
        show_change(screen, stage.parameter(parameter), before, text)
        if over:
            _show_over(screen, effect, up_to_usd or 0.0)
        else:
            _show_effect(screen, effect)
        _show_brake(screen, brake)
    if failed or over:
        raise typer.Exit(1)


def _show_over(screen: Any, effect: dict[str, Any], up_to_usd: float) -> None:
    from cli.terminal import usd

    spent = effect["spent_usd"]
    screen.print(
        f"It holds nothing: {usd(spent)} are spent this month already, and it ends at {usd(up_to_usd)}. The amount is "
        f"the month's spend at which it ends: for {usd(up_to_usd)} more write --up-to-usd {spent + up_to_usd:.2f}.",
        style="bad",
        markup=False,
    )


def _show_brake(screen: Any, brake: dict[str, Any] | None) -> None:
    if brake is not None:
        style = "bad" if brake["status"] is None else "warn"
        screen.print(f"Native brake {brake['action_id']}: {brake['outcome']}.", style=style, markup=False)


def _effect(stage: Stage, scope: str, subject: str, up_to_usd: float | None, now: datetime) -> dict[str, Any]:
    """What would be stopped without the override and is not, USD per hour; `unknown` says why it could not be told."""
    from cli.errors import sentence_of
    from cli.outlook import look_ahead
    from cli.stage import find_scope
    from governor.domain.budget import decide
    from governor.domain.budget_victims import OUT_OF_REACH_FOR_NOW
    from governor.domain.decisions import Verdict

    try:
        outlook = look_ahead(stage, find_scope(stage), now)
    except _unreadable() as error:
        nothing = dict.fromkeys(("usd_per_hour", "spent_usd", "limit_usd"))
        return {"instances": [], **nothing, "unknown": sentence_of(error)}
    free = replace(outlook.snapshot, controls=replace(outlook.snapshot.controls, overrides=()))
    verdicts = decide(free, outlook.settings.settings.budget, outlook.now).decision.verdicts
    mine = [
        v
        for v in verdicts
        if (v.verdict is Verdict.STOP or v.reason.code in OUT_OF_REACH_FOR_NOW)
        and (scope == "budget" or (scope == "project" and v.project == subject) or v.instance_id == subject)
    ]
    money, spent = outlook.decision.money, outlook.plan.spent_usd
    if up_to_usd is not None and spent is not None and spent >= up_to_usd:
        mine = []
    return {
        "instances": [v.instance_id for v in mine],
        "usd_per_hour": sum(v.usd_per_hour or 0.0 for v in mine),
        "spent_usd": spent,
        "limit_usd": None if money is None else money.limit_usd,
        "unknown": None,
    }


def _unreadable() -> tuple[type[Exception], ...]:
    """What keeps the fleet or the budget from being read; the override counts all the same."""
    from botocore.exceptions import BotoCoreError, ClientError
    from pydantic import ValidationError

    from cli.errors import CliError
    from governor.ports import UnreadableError

    return (CliError, ClientError, BotoCoreError, UnreadableError, ValidationError)


def _show_effect(screen: Any, effect: dict[str, Any]) -> None:
    from cli.terminal import count, usd

    if effect["unknown"] is not None:
        screen.print(f"What that means is unknown: {effect['unknown']}", style="warn", markup=False)
        return
    rate = usd(effect["usd_per_hour"])
    screen.print(
        f"Spent {usd(effect['spent_usd'])} of {usd(effect['limit_usd'])}. It keeps "
        f"{count(len(effect['instances']))} ({rate}/h) running that the stop level would stop.",
        style="warn" if effect["instances"] else None,
        markup=False,
    )


def _lift(stage: Stage, scope: str, subject: str, *, as_json: bool) -> None:
    from cli.controls import describe_version, lift_control, show_change
    from cli.terminal import console, print_json

    parameter = parameter_of(scope, subject)
    before = lift_control(stage, parameter)
    brake = _rearm_brake(stage) if scope == "budget" else None
    if as_json:
        print_json(
            {
                "stage": stage.name,
                "parameter": stage.parameter(parameter),
                "before": describe_version(before),
                "after": None,
                "native_brake": brake,
            }
        )
        if brake is not None and brake["status"] is None:
            raise typer.Exit(1)
        return
    screen = console()
    show_change(screen, stage.parameter(parameter), before, None)
    if before is None:
        screen.print("There was no such override (governor override --list shows them).", markup=False)
    else:
        screen.print("At the stop level the next run gives notice and stops after budget/grace-minutes.", markup=False)
    _show_brake(screen, brake)
    if brake is not None and brake["status"] is None:
        raise typer.Exit(1)


def _list(stage: Stage, now: datetime, *, as_json: bool) -> None:
    from cli.controls import read_controls
    from cli.status import describe_controls
    from cli.terminal import clock, console, print_json, table, text, usd

    controls = read_controls(stage, now)
    spent, unknown = (
        _spent(stage, now) if any(one.up_to_usd is not None for one in controls.overrides) else (None, None)
    )
    rows = describe_controls(controls, now, spent)["overrides"]
    if as_json:
        print_json({"stage": stage.name, "overrides": rows, "spent_usd": spent, "unknown": unknown})
        return
    screen = console()
    if not rows:
        screen.print(f"Stage {stage.name} has no override.", markup=False)
        return
    shown = table("scope", "until", "up to", "by now", "why", right=["up to"], wrap=["scope", "why"])
    for row in rows:
        holds = "holds" if row["in_force"] else "over"
        amount = usd(row["up_to_usd"]) if row["up_to_usd"] is not None else ""
        shown.add_row(
            text(f"{row['scope']} {row['subject']}".strip()),
            clock(row["until"]) if row["until"] else "",
            amount,
            text(holds, "warn" if row["in_force"] else ""),
            text(row["reason"]),
        )
    screen.print(shown)
    if unknown is not None:
        screen.print(
            f"An amount counts as not reached, for the spend is unknown: {unknown}", style="warn", markup=False
        )


def _spent(stage: Stage, now: datetime) -> tuple[float | None, str | None]:
    """(The month's spend that an amount is compared with, USD; why it is unknown)."""
    from cli.errors import sentence_of
    from cli.outlook import look_ahead
    from cli.stage import find_scope

    try:
        spent = look_ahead(stage, find_scope(stage), now).plan.spent_usd
    except _unreadable() as error:
        return None, sentence_of(error)
    return spent, None if spent is not None else "AWS Budgets tells none that can be believed"


# --- The native brake -------------------------------------------------------------------------------------------------


def read_brake(stage: Stage) -> dict[str, Any] | None:
    """The budget action of the stage that denies launches, and its state; None where the stage has none."""
    from botocore.exceptions import ClientError

    from cli.account import aws
    from cli.errors import CliError, sentence_of
    from cli.stage import find_scope

    try:
        scope = find_scope(stage)
    except (CliError, ClientError) as error:
        return {**_no_brake(None), "outcome": f"whether there is one is unknown: {sentence_of(error)}"}
    if not scope.native_brake:
        return None
    pages = aws("budgets", stage.home_region).get_paginator("describe_budget_actions_for_budget")
    try:
        actions = pages.paginate(AccountId=stage.account_id, BudgetName=scope.budget_name).build_full_result()[
            "Actions"
        ]
    except ClientError as error:
        return {**_no_brake(scope.native_brake), "outcome": f"its state is unknown: {sentence_of(error)}"}
    action = next((one for one in actions if one["ActionId"] == scope.native_brake), None)
    if action is None:
        return {**_no_brake(scope.native_brake), "outcome": "gone: deploy the stage again to make it"}
    threshold = action["ActionThreshold"]
    return {
        "action_id": scope.native_brake,
        "status": str(action["Status"]),
        "percent": float(threshold["ActionThresholdValue"]),
        "outcome": f"{action['Status']}, at {threshold['ActionThresholdValue']:g} % of the AWS budget",
    }


def _no_brake(action_id: str | None) -> dict[str, Any]:
    return {"action_id": action_id, "status": None, "percent": None}


def _execute(stage: Stage, brake: dict[str, Any], what: str, *, done: str, failed: str) -> dict[str, Any]:
    """The brake with what became of it: the override itself is written by then, whatever AWS says here."""
    from botocore.exceptions import BotoCoreError, ClientError

    from cli.account import aws
    from cli.errors import sentence_of
    from cli.stage import find_scope

    try:
        aws("budgets", stage.home_region).execute_budget_action(
            AccountId=stage.account_id,
            BudgetName=find_scope(stage).budget_name,
            ActionId=brake["action_id"],
            ExecutionType=what,
        )
    except (ClientError, BotoCoreError) as error:
        return {**brake, "status": None, "outcome": f"{failed}: {sentence_of(error) or error}"}
    return {**brake, "outcome": done}


def _release_brake(stage: Stage) -> dict[str, Any] | None:
    """Take the deny away where the brake has been pulled."""
    brake = read_brake(stage)
    if brake is None or brake["status"] is None:
        return brake
    if brake["status"] == "EXECUTION_SUCCESS":
        return _execute(
            stage,
            brake,
            "REVERSE_BUDGET_ACTION",
            done="released; it acts again only after it is armed again with override --lift",
            failed="NOT released, launches stay denied; the override itself is written",
        )
    if brake["status"] == "STANDBY":
        where = f"{brake['percent']:g} % of the AWS budget"
        return {**brake, "outcome": f"not pulled; at {where} it denies launches all the same: give this command again"}
    return {**brake, "outcome": f"left as it is ({brake['outcome']})"}


def _rearm_brake(stage: Stage) -> dict[str, Any] | None:
    """Arm a released brake again: AWS does not evaluate a reversed action until it is reset."""
    brake = read_brake(stage)
    if brake is None or brake["status"] is None:
        return brake
    if brake["status"].startswith("REVERSE_SUCCESS"):
        return _execute(
            stage,
            brake,
            "RESET_BUDGET_ACTION",
            done="armed again",
            failed="NOT armed again; the override itself is lifted",
        )
    return {**brake, "outcome": f"left as it is ({brake['outcome']})"}
