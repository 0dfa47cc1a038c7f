"""`governor settings`: read and edit the operator's thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption

if TYPE_CHECKING:
    from cli.parameters import Version
    from cli.stage import Stage
    from governor.domain.settings import SettingError
    from governor.domain.settings_review import Snapshot

app = typer.Typer(
    help="Read and edit the thresholds: one parameter each below /governor/STAGE/.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

NameArgument = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="One setting, such as budget/stop-percent; all if left out.")
]


@app.command("get")
def get_settings(name: NameArgument = None, stage: StageOption = None, as_json: JsonOption = False) -> None:
    """Show settings: what the parameters hold, what is in force, unit, range and meaning.

    A parameter differs from what is in force for up to a minute after an edit, and as long as the tree is not valid.

    **Examples:**

    - `governor settings get`
    - `governor settings get budget/stop-percent --json`
    """
    from cli.stage import find_stage
    from cli.terminal import console, print_json, table, text

    wanted = _names(name)
    found = find_stage(stage)
    tree, snapshot = _read_tree(found), _snapshot(found)
    rows = [_describe(each, tree, snapshot) for each in wanted]
    version = snapshot.version if snapshot else None
    if as_json:
        print_json({"stage": found.name, "settings_version": version, "settings": rows})
        return
    screen = console()
    screen.print(
        f"Settings of stage {found.name}, version {version if version is not None else 'none'} in force",
        style="strong",
        markup=False,
    )
    shown = table("setting", "value", "in force", "default", "unit", right=["value", "in force", "default"])
    for row in rows:
        value = "missing" if row["value"] is None else row["value"]
        force = "-" if row["in_force"] is None else row["in_force"]
        shown.add_row(
            row["name"],
            text(value, "warn" if row["waits"] else ""),
            text(force),
            row["default"],
            row["unit"],
        )
    screen.print()
    screen.print(shown)
    if name is not None:
        screen.print(f"{rows[0]['description']}\nIt must be {rows[0]['rule']}.", markup=False)


@app.command("set")
def set_setting(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The setting, such as budget/stop-percent.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its new value.")],
    stage: StageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change one setting. The whole tree is validated first; a value that breaks a rule is refused.

    **Examples:**

    - `governor settings set budget/stop-percent 90`
    - `governor settings set budget/stop-families p4d,g4dn,g5 --stage prod`
    """
    from cli.errors import CliError
    from cli.parameters import overwrite
    from cli.stage import find_stage
    from cli.terminal import iso, note, print_json
    from governor.domain.settings import SPEC_BY_NAME
    from governor.shell.settings import parse_tree

    (name,) = _names(name)
    found = find_stage(stage)
    tree = _read_tree(found)
    text = value.strip()
    earlier = {error.name: error for error in parse_tree(tree)[1]}
    errors = parse_tree({**tree, name: text})[1]
    new = [error for error in errors if error.name == name or earlier.get(error.name) != error]
    if new:
        raise CliError(f"{_sentences(new)}; nothing was changed in stage {found.name}.")
    if tree.get(name) == text:
        note(f"{name} is {text} already; nothing was changed.")
        change = None
    else:
        spec = SPEC_BY_NAME[name]
        change = overwrite(found, name, text, description=spec.description, allowed_pattern=spec.allowed_pattern)
    left = [error.sentence for error in errors]
    if as_json:
        before = change.before if change else None
        print_json(
            {
                "stage": found.name,
                "name": name,
                "parameter": found.parameter(name),
                "from": tree.get(name),
                "to": text,
                "changed": change is not None,
                "written_before_by": before.by if before else None,
                "written_before_at": iso(before.at) if before else None,
                "errors_left": left,
            }
        )
    elif change is not None:
        typer.echo(f"{found.parameter(name)}: {tree.get(name, 'missing')} -> {text}")
        if left:
            note(f"The tree is still not valid, so the edit waits: {'; '.join(left)}.")
        else:
            note(f"check_settings takes it over within a minute; see governor status --stage {found.name}.")


@app.command("diff")
def diff_settings(stage: StageOption = None, as_json: JsonOption = False) -> None:
    """Show which settings differ from their defaults, and which edits are not in force.

    **Examples:**

    - `governor settings diff`
    - `governor settings diff --stage prod --json`
    """
    from cli.stage import find_stage
    from cli.terminal import console, print_json, table, text
    from governor.domain.settings import SETTINGS

    found = find_stage(stage)
    tree, snapshot = _read_tree(found), _snapshot(found)
    rows = [_describe(spec.name, tree, snapshot) for spec in SETTINGS]
    rows = [row for row in rows if row["waits"] or not row["is_default"]]
    if as_json:
        keys = ("name", "value", "in_force", "waits", "default", "is_default", "unit")
        print_json({"stage": found.name, "differences": [{key: row[key] for key in keys} for row in rows]})
        return
    screen = console()
    if not rows:
        screen.print(f"Every setting of stage {found.name} has its default, and all are in force.", markup=False)
        return
    shown = table("setting", "default", "value", "in force", "unit", right=["default", "value", "in force"])
    for row in rows:
        shown.add_row(
            row["name"],
            row["default"],
            text("missing" if row["value"] is None else row["value"], "strong"),
            text("-" if row["in_force"] is None else row["in_force"], "warn" if row["waits"] else ""),
            row["unit"],
        )
    screen.print(shown)


@app.command("history")
def show_history(
    name: NameArgument = None,
    last: Annotated[
        int, typer.Option("--last", min=1, max=1000, metavar="N", help="How many changes to show, newest first.")
    ] = 20,
    stage: StageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who changed which setting, when, from what to what. Parameter Store keeps the last 100 of each.

    **Examples:**

    - `governor settings history`
    - `governor settings history budget/limit-usd --last 5`
    """
    from cli.parameters import read_history
    from cli.stage import find_stage
    from cli.terminal import clock, console, iso, print_json, table, text, who

    wanted = _names(name)
    found = find_stage(stage)
    changes: list[tuple[str, Version | None, Version]] = []
    for each in wanted:
        versions = read_history(found, each)
        changes += [(each, before, after) for before, after in zip((None, *versions), versions, strict=False)]
    changes.sort(key=lambda change: (change[2].at, change[0], change[2].number), reverse=True)
    changes = changes[:last]
    if as_json:
        rows = [
            {
                "name": each,
                "at": iso(after.at),
                "by": after.by,
                "from": before.text if before else None,
                "to": after.text,
                "version": after.number,
            }
            for each, before, after in changes
        ]
        print_json({"stage": found.name, "changes": rows})
        return
    screen = console()
    if not changes:
        screen.print(f"Nothing was ever written in stage {found.name}.", markup=False)
        return
    shown = table("at", "setting", "from", "to", "by", right=["from", "to"])
    for each, before, after in changes:
        first = "" if before is None and after.number == 1 else "?"
        shown.add_row(
            clock(after.at), each, text(before.text if before else first), text(after.text), text(who(after.by))
        )
    screen.print(shown)


@app.command("validate")
def validate_settings(stage: StageOption = None, as_json: JsonOption = False) -> None:
    """Read the whole tree as check_settings does and say what is wrong. Exit code 1 where something is.

    **Examples:**

    - `governor settings validate`
    - `governor settings validate --stage prod --json`
    """
    from cli.stage import find_stage
    from cli.terminal import print_json
    from governor.domain.settings_review import texts_to_validate
    from governor.shell.settings import parse_tree

    found = find_stage(stage)
    tree, snapshot = _read_tree(found), _snapshot(found)
    errors = parse_tree(texts_to_validate(tree, snapshot))[1]
    version = snapshot.version if snapshot else None
    if as_json:
        print_json(
            {
                "stage": found.name,
                "valid": not errors,
                "settings_version": version,
                "errors": [
                    {"name": e.name, "value": e.value or None, "rule": e.rule, "sentence": e.sentence} for e in errors
                ],
            }
        )
    elif not errors:
        typer.echo(f"The {len(tree)} settings of stage {found.name} are valid.")
    for error in errors:
        typer.echo(f"governor: {error.sentence}.", err=True)
    if errors:
        if not as_json:
            force = f"version {version} stays in force" if version is not None else "none is in force yet"
            typer.echo(
                f"governor: {force}; correct it with governor settings set NAME VALUE --stage {found.name}.", err=True
            )
        raise typer.Exit(1)


def _names(name: str | None) -> tuple[str, ...]:
    """The setting of that name, or all. Raises typer.BadParameter with the nearest one."""
    import difflib

    from governor.domain.settings import SPEC_BY_NAME

    if name is None:
        return tuple(SPEC_BY_NAME)
    if name in SPEC_BY_NAME:
        return (name,)
    near = difflib.get_close_matches(name, SPEC_BY_NAME, n=1, cutoff=0.4)
    todo = f"did you mean {near[0]}?" if near else f"write one of {', '.join(SPEC_BY_NAME)}"
    raise typer.BadParameter(f"{name!r} is no setting; {todo}", param_hint="NAME")


def _read_tree(stage: Stage) -> dict[str, str]:
    """Every setting's text below the stage, without the switches that are no settings."""
    from cli.account import aws
    from governor.aws.parameter_store import ParameterTree
    from governor.shell.settings import CONTROL

    root = stage.parameter("")
    tree = ParameterTree(aws("ssm", stage.home_region), stage.name).read_tree()
    texts = {parameter.name.removeprefix(root): parameter.value for parameter in tree}
    return {name: text for name, text in texts.items() if not name.startswith(CONTROL)}


def _snapshot(stage: Stage) -> Snapshot | None:
    from governor.shell.settings import stored_snapshot

    return stored_snapshot(stage.store())


def _describe(name: str, tree: dict[str, str], snapshot: Snapshot | None) -> dict[str, Any]:
    """One setting: its text, what is in force, and whether the two differ in meaning (95 and 95.0 do not)."""
    from governor.domain.settings import SPEC_BY_NAME

    spec = SPEC_BY_NAME[name]
    in_force = snapshot.values.get(name) if snapshot else None
    meant = _meanings(tree).get(name, tree.get(name))
    return {
        "name": name,
        "value": tree.get(name),
        "in_force": in_force,
        "waits": meant != in_force,
        "default": spec.default,
        "is_default": meant == spec.default,
        "unit": spec.unit,
        "rule": spec.rule,
        "description": spec.description,
    }


def _meanings(tree: dict[str, str]) -> dict[str, str]:
    """The canonical text of every setting that can be read."""
    from governor.domain.settings import as_texts
    from governor.shell.settings import parse_tree

    settings, errors = parse_tree(tree)
    wrong = {error.name for error in errors}
    return {name: text for name, text in as_texts(settings).items() if name not in wrong}


def _sentences(errors: list[SettingError]) -> str:
    return "; ".join(error.sentence for error in errors)
