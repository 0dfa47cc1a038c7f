"""`governor doctor`: is the Governor able to do its work, and would anybody hear of it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption, YesOption

if TYPE_CHECKING:
    from cli.findings import Checkup, Finding

STYLES = {"ok": "good", "warn": "warn", "fail": "bad", "unknown": "warn"}


def doctor(
    send_test: Annotated[
        bool, typer.Option("--send-test", help="Also send one test message to each topic, after asking.")
    ] = False,
    stage: StageOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check whether the Governor can do its work and people hear of it: one line each, with what to do.

    Subscriptions, deliveries, last runs, alarms, settings, pause, Regions, the rights of the functions, and the tags in
    the bill. Reads only, unless you say --send-test; a stop is tried with EC2's dry run. Ends with 1 where something
    failed; what cannot be found out is unknown and fails nothing.

    **Examples:**

    - `governor doctor`
    - `governor doctor --stage prod --json`
    - `governor doctor --send-test`
    """
    from cli.doctor_messages import question_before_test
    from cli.findings import Checkup, Result
    from cli.stage import find_stage
    from cli.terminal import ask, current_time

    found = find_stage(stage)
    if send_test:
        ask(question_before_test(found), yes=yes)
    checkup = Checkup(found, current_time())
    findings = _run(checkup, send_test=send_test)
    if as_json:
        _print(checkup, findings)
    else:
        _show(checkup, findings)
    if any(finding.result is Result.FAIL for finding in findings.values()):
        raise typer.Exit(1)


def _run(checkup: Checkup, *, send_test: bool) -> dict[str, Finding]:
    """Each check by its name, in the order of the table; those that do not apply are left out."""
    from cli import doctor_messages, doctor_rights
    from cli.doctor_checks import make_checks
    from cli.findings import look

    checks = [*doctor_messages.CHECKS, *make_checks(), *doctor_rights.CHECKS]
    if send_test:
        checks.append(("test message", doctor_messages.send_test))
    found = {name: look(check, checkup) for name, check in checks}
    return {name: finding for name, finding in found.items() if finding is not None}


def _count(findings: dict[str, Finding]) -> dict[str, int]:
    from cli.findings import Result

    return {result.value: sum(one.result is result for one in findings.values()) for result in Result}


def _print(checkup: Checkup, findings: dict[str, Finding]) -> None:
    from cli.terminal import iso, print_json

    rows = [{"check": name, "result": one.result.value, "words": one.words} for name, one in findings.items()]
    print_json(
        {
            "stage": checkup.stage.name,
            "account_id": checkup.stage.account_id,
            "home_region": checkup.stage.home_region,
            "checked_at": iso(checkup.now),
            "counts": _count(findings),
            "checks": rows,
        }
    )


def _show(checkup: Checkup, findings: dict[str, Finding]) -> None:
    from cli.terminal import clock, console, table, text

    stage = checkup.stage
    screen: Any = console()
    screen.print(
        f"GPU Governor {stage.name}, account {stage.account_id}, {stage.home_region}, at {clock(checkup.now)}",
        style="strong",
        markup=False,
    )
    shown = table("check", "result", "what")
    for name, finding in findings.items():
        shown.add_row(name, text(finding.result.value, STYLES[finding.result.value]), text(finding.words))
    screen.print()
    screen.print(shown)
    counts = ", ".join(f"{number} {result}" for result, number in _count(findings).items() if number)
    screen.print(f"\n{counts}.", markup=False)
