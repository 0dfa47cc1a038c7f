"""Checks of `governor doctor`: is the Governor itself well?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cli.account import aws
from cli.findings import Check, Checkup, Finding, Result, fail, is_denied, ok, unknown, warn

MAX_NAMED = 3
"""So many are named in a sentence; the rest is counted."""

ACTIVATE = "Billing console, Cost allocation tags; it takes up to 24 h"


def check_run(function: str, patience: timedelta, checkup: Checkup) -> Finding:
    """Has the function completed a run lately?"""
    from cli.terminal import age, clock
    from governor.ports import Key

    record = checkup.stage.store().get(Key(f"run#{function}", "state"))
    if record is None or not record.sequence:
        return fail(f"it has never completed a run; look at the log of {function} and at its schedule")
    at = datetime.fromisoformat(record.sequence)
    ago = age(checkup.now - at)
    if checkup.now - at > patience:
        return fail(
            f"the last run was {ago} ago ({clock(at)}); look at the log of {function}, its schedule and its "
            "dead-letter queues"
        )
    return ok(f"the last run was {ago} ago")


def check_alarms(checkup: Checkup) -> Finding:
    """Which alarms of the stage are up, and would the others tell anybody?"""
    found = [
        alarm for part in ("Control", "Watch") for alarm in _alarms(checkup, f"Governor-{checkup.stage.name}-{part}-")
    ]
    if not found:
        return fail(f"the stage has no alarms; finish its deploy: make deploy STAGE={checkup.stage.name}")
    risen = [str(alarm["AlarmName"]) for alarm in found if alarm["StateValue"] == "ALARM"]
    if risen:
        return warn(f"{_listed(risen)} in ALARM; the description of each says what to do")
    mute = [str(alarm["AlarmName"]) for alarm in found if not alarm.get("ActionsEnabled", True)]
    if mute:
        return warn(f"{_listed(mute)} would tell nobody; enable the actions of the alarm")
    return ok(f"none of {len(found)} is up")


def _alarms(checkup: Checkup, prefix: str) -> list[dict[str, Any]]:
    pages = aws("cloudwatch", checkup.stage.home_region).get_paginator("describe_alarms")
    return [alarm for page in pages.paginate(AlarmNamePrefix=prefix) for alarm in page["MetricAlarms"]]


def check_settings(checkup: Checkup) -> Finding:
    """Is every setting valid, and is there a version in force?"""
    from governor.shell.settings import CONTROL, load_snapshot, parse_tree

    texts = {name: text for name, text in _parameters(checkup).items() if not name.startswith(CONTROL)}
    errors = parse_tree(texts)[1]
    snapshot = load_snapshot(checkup.stage.store())
    if errors:
        force = "none is in force" if snapshot is None else f"version {snapshot.version} stays in force"
        said = _listed([error.sentence for error in errors], "; ")
        return fail(f"{said} ({force}); correct it with governor settings set")
    if snapshot is None:
        return fail(
            "no version is in force yet; check_settings takes one within a minute of the deploy, so see its log"
        )
    return ok(f"all {len(texts)} are valid; version {snapshot.version} is in force")


def check_controls(checkup: Checkup) -> Finding:
    """Can pause, keeps and overrides be read? What cannot be read holds everything it may mean."""
    from cli.terminal import clock, count
    from governor.domain.controls import parse_controls
    from governor.shell.settings import CONTROL

    texts = {
        name.removeprefix(CONTROL): text for name, text in _parameters(checkup).items() if name.startswith(CONTROL)
    }
    controls = parse_controls(texts, checkup.now)
    odd = [] if controls.pause.readable else [f"control/pause ({controls.pause.reason})"]
    odd += [f"control/keep/{keep.instance_id} ({keep.reason})" for keep in controls.keeps if not keep.readable]
    odd += [f"control/{one.source} ({one.reason})" for one in controls.overrides if not one.readable]
    if odd:
        return fail(f"not understood, so it holds: {_listed(odd)}; write it anew or delete it")
    if controls.pause.active:
        until = f" until {clock(controls.pause.until)}" if controls.pause.until else ""
        return warn(f"paused{until}, so nothing is stopped; end it with governor unpause")
    keeps = sum(keep.holds(checkup.now) for keep in controls.keeps)
    overrides = sum(one.holds(checkup.now, None) for one in controls.overrides)
    return ok(f"not paused; {count(keeps, 'keep')} and {count(overrides, 'override')} in force")


def _parameters(checkup: Checkup) -> dict[str, str]:
    """Name below the stage -> text. Raises UnreadableError."""
    from governor.aws.parameter_store import ParameterTree

    stage = checkup.stage
    tree = ParameterTree(aws("ssm", stage.home_region), stage.name).read_tree()
    return {parameter.name.removeprefix(stage.parameter("")): parameter.value for parameter in tree}


def check_cost_tags(checkup: Checkup) -> Finding:
    """Can the bill be split by our tags?"""
    from governor.aws.errors import AWS_ERRORS, error_code, error_sentence

    keys = [checkup.scope.keys.managed, checkup.scope.keys.project, checkup.scope.keys.pool]
    where = "cn-northwest-1" if checkup.partition == "aws-cn" else "us-east-1"
    try:
        tags = aws("ce", where).list_cost_allocation_tags(TagKeys=keys)["CostAllocationTags"]
    except AWS_ERRORS as error:
        if is_denied(error) or error_code(error) in ("DataUnavailableException", "ValidationException"):
            return unknown(
                f"{error_sentence(error)}; a member account cannot see it, so look in the management account "
                "(Billing console, Cost allocation tags)"
            )
        raise
    active = {tag["TagKey"] for tag in tags if tag["Status"] == "Active"}
    inactive = [key for key in keys if key not in active and key in {tag["TagKey"] for tag in tags}]
    missing = [key for key in keys if key not in active and key not in inactive]
    todo = []
    if inactive:
        todo.append(f"not active: {', '.join(inactive)}; activate in {ACTIVATE}")
    if missing:
        todo.append(f"not in the bill yet: {', '.join(missing)}; tag something, a day later activate in {ACTIVATE}")
    return warn(". ".join(todo)) if todo else ok(f"{', '.join(keys)} are active")


BRAKE_STATES: dict[str, tuple[Result, str]] = {
    "STANDBY": (Result.OK, "armed"),
    "PENDING": (Result.WARN, "waits for an approval; answer it in the Budgets console"),
    "EXECUTION_IN_PROGRESS": (Result.WARN, "is being put on: launches are denied soon"),
    "EXECUTION_SUCCESS": (Result.WARN, "is on: launches are denied; governor override releases it"),
    "EXECUTION_FAILURE": (Result.FAIL, "could not be put on; see the history of the action in the Budgets console"),
    "REVERSE_IN_PROGRESS": (Result.WARN, "is being released"),
    "REVERSE_SUCCESS": (Result.WARN, "was released and does not act again; arm it with governor override --lift"),
    "REVERSE_FAILURE": (Result.FAIL, "could not be released; see the history of the action in the Budgets console"),
    "RESET_IN_PROGRESS": (Result.WARN, "is being armed again"),
    "RESET_FAILURE": (Result.FAIL, "could not be armed again; see the history of the action in the Budgets console"),
}


def check_brake(checkup: Checkup) -> Finding | None:
    """In which state is the native brake?"""
    scope, stage = checkup.scope, checkup.stage
    if not scope.native_brake:
        return None
    pages = aws("budgets", stage.home_region).get_paginator("describe_budget_actions_for_budget")
    found = [
        a for page in pages.paginate(AccountId=stage.account_id, BudgetName=scope.budget_name) for a in page["Actions"]
    ]
    action = next((one for one in found if one["ActionId"] == scope.native_brake), None)
    if action is None:
        return fail(f"the budget has no action {scope.native_brake}; deploy again: make deploy STAGE={stage.name}")
    status = str(action["Status"])
    percent = f"{action['ActionThreshold']['ActionThresholdValue']:g} % of the AWS budget"
    result, words = BRAKE_STATES.get(
        status, (Result.UNKNOWN, f"is in a state that this version does not know: {status}")
    )
    return Finding(result, f"it {words} ({percent})" if result is not Result.OK else f"{words}, at {percent}")


def _listed(names: list[str], separator: str = ", ") -> str:
    rest = len(names) - MAX_NAMED
    return separator.join(names[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def make_checks() -> tuple[tuple[str, Check], ...]:
    """The checks of this page, in the order in which they are shown."""
    from functools import partial

    from cli.status import LATE_AFTER

    return (
        *((f"run of {name}", partial(check_run, name, patience)) for name, patience in LATE_AFTER.items()),
        ("alarms", check_alarms),
        ("settings", check_settings),
        ("controls", check_controls),
        ("native brake", check_brake),
        ("cost-allocation tags", check_cost_tags),
    )
