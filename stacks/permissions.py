"""Who may do what to which: tables as data. Roles and policies are built from them, and so is docs/permissions.md.

The rows stand in `function_permissions` and `people_permissions`. `python -m stacks.permissions > docs/permissions.md`
writes the page. Imports no CDK.
"""

from __future__ import annotations

from collections.abc import Sequence

from stacks.function_permissions import FUNCTIONS
from stacks.people_permissions import NATIVE_BRAKE_ROLE, PEOPLE
from stacks.statements import EVERYTHING, ONLY_WITH, RESOURCE_KINDS, Caller, Effect, Statement


def handler_actions(function: str) -> frozenset[str]:
    """The actions that the function's own code may call: what tests compare with the calls that it makes."""
    return frozenset(
        action
        for statement in FUNCTIONS[function]
        if statement.effect is Effect.ALLOW and statement.caller is Caller.HANDLER
        for action in statement.actions
    )


def unbound_statements() -> dict[tuple[str, str], str]:
    """(function or policy, sid) -> what guards it, for each Allow on everything."""
    return {
        (owner, statement.sid): statement.guard
        for table in (FUNCTIONS, PEOPLE)
        for owner, statements in table.items()
        for statement in statements
        if statement.effect is Effect.ALLOW and statement.resources == EVERYTHING
    }


_HEAD = """\
# Permissions

Generated from the tables in `stacks` by `python -m stacks.permissions`; a test keeps it true. The roles and the
policies are built from the same table, so what stands here is what is deployed. `<stage>` is the name of the stage;
the tag keys are those of the stage in `cdk.json`.

- No function has an action with a wildcard, and each has a role of its own.
- A Deny wins over every Allow, also over one that somebody attaches to the role later.
- EventBridge Scheduler has one role a schedule, which may invoke that one function and fill its dead-letter queue; a
  relay of events has one role a Region, which may put events on the default bus of the home Region.
"""


def describe() -> str:
    """The page docs/permissions.md."""
    parts = [_HEAD, "## Functions"]
    parts += [_section(f"`{name}`", statements) for name, statements in FUNCTIONS.items()]
    parts += [
        "## People",
        "Three managed policies, to be attached to people's roles. Operator and Approver add to Reader.\n",
    ]
    parts += [_section(name, statements) for name, statements in PEOPLE.items()]
    parts += [
        "## AWS Budgets",
        "The role of the native brake, which a stage has only where `native_brake` is set. The brake attaches a policy "
        "that forbids `ec2:RunInstances` of the GPU types to the roles that the stage names; nothing is stopped.\n",
        _section("native brake", NATIVE_BRAKE_ROLE),
        "## What cannot be bound to a tag or an ARN",
        _unbound_table(),
    ]
    return "\n".join(parts)


def _section(title: str, statements: Sequence[Statement]) -> str:
    allowed = [s for s in statements if s.effect is Effect.ALLOW]
    denied = [s for s in statements if s.effect is Effect.DENY]
    lines = [f"### {title}\n", "| may | on | bound by | why | called by |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {_row(s)} | {s.caller.value} |" for s in allowed]
    if denied:
        lines += ["", "| may never | on | when | why |", "| --- | --- | --- | --- |"]
        lines += [f"| {_row(s)} |" for s in denied]
    return "\n".join([*lines, ""])


def _row(statement: Statement) -> str:
    actions = "<br>".join(f"`{action}`" for action in statement.actions)
    bound_by = statement.bound_by
    if statement.only_with:
        bound_by += f"; {ONLY_WITH[statement.only_with]}"
    return f"{actions} | {RESOURCE_KINDS[statement.resources].meaning} | {bound_by} | {statement.why}"


def _unbound_table() -> str:
    lines = ["| who | actions | what guards it |", "| --- | --- | --- |"]
    for owner, statements in [*FUNCTIONS.items(), *PEOPLE.items()]:
        lines += [
            f"| {owner} | {', '.join(f'`{action}`' for action in s.actions)} | {s.guard} |"
            for s in statements
            if s.guard
        ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(describe(), end="")
