"""`governor init`: write a stage into cdk.json from what a scan finds."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, StageOption, YesOption

if TYPE_CHECKING:
    from cli.scan import Scan

NEW_STAGE: Mapping[str, Any] = {
    "regions": [],
    "initial_mode": "observe",
    "runtime": "python3.13",
    "architecture": "arm64",
    "budget": {
        "limit_usd": 1000,
        "threshold_percents": [50, 80, 95, 100],
        "forecast_percent": 100,
    },
    "tag_keys": {
        "managed": "governor:managed",
        "criticality": "governor:criticality",
        "project": "governor:project",
        "pool": "governor:pool",
    },
    "subscribers": {"page": [], "warn": [], "info": []},
    "settings": {},
    "keep_state": True,
    "reserve_concurrency": False,
    "log_retention_days": 90,
}
LEAST_LIMIT_USD = 100


def init(
    stage: StageOption = None,
    limit_usd: Annotated[
        float | None,
        typer.Option("--limit-usd", metavar="USD", help="The month's limit; proposed from what runs if left out."),
    ] = None,
    page: Annotated[
        list[str] | None,
        typer.Option("--page", metavar="EMAIL", help="Who gets pages and warnings; may be given several times."),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="PATH", help="The project's folder, where cdk.json lies.")
    ] = Path("."),
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a stage into cdk.json from a scan: its Regions, a proposed limit, and the tag keys.

    Reads the account and changes nothing there. What a stage that exists says besides is kept, and so is the rest of
    the file. Asks before it overwrites a stage.

    **Examples:**

    - `governor init --stage prod --page ops@example.com`
    - `governor init --stage dev --limit-usd 5000 --yes`
    """
    from cli.errors import CliError
    from cli.json_text import set_member
    from cli.scan import scan_account
    from cli.stage import STAGE_NAME
    from cli.terminal import ask, print_json

    if stage is None:
        raise typer.BadParameter("name the stage to write, such as dev", param_hint="--stage")
    if not STAGE_NAME.match(stage):
        raise typer.BadParameter(
            f"{stage!r} cannot be the name of a stage; write at most 16 lower-case letters, digits and hyphens",
            param_hint="--stage",
        )
    path = folder / "cdk.json"
    text = _read(path)
    stages = _stages(path, text)
    before = stages.get(stage)
    found = scan_account(stage)
    entry = propose(found, before, limit_usd, tuple(page or ()))
    try:
        after = set_member(text, ("context", "stages", stage), entry)
    except ValueError as error:
        raise CliError(f"{path} cannot be edited ({error}); correct it by hand.") from error
    _validate(stage, after)
    unknown = [{"region": u.region, "why": u.why} for u in found.inventory.unknown_regions]
    if not as_json:
        _show(path, stage, before, entry, unknown, found)
    if before is not None and before != entry:
        ask(f"Overwrite the stage {stage} in {path}?", yes=yes)
    if after != text:
        _write(path, after)
    if as_json:
        print_json(
            {
                "stage": stage,
                "file": str(path),
                "before": before,
                "after": entry,
                "changed": before != entry,
                "unknown_regions": unknown,
            }
        )
    elif before == entry:
        typer.echo(f"{path} says that already.")
    else:
        typer.echo(f"Written. Next: make deploy STAGE={stage}")


def propose(
    found: Scan, before: Mapping[str, Any] | None, limit_usd: float | None, page: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The entry of a stage: what the scan says, over what stood there before."""
    from cli.account import home_region
    from cli.scan import run_rate_usd_per_hour
    from cli.terminal import HOURS_PER_MONTH

    rate_by_region: dict[str, float] = {}
    for verdict in found.decision.verdicts:
        rate = verdict.usd_per_hour or 0.0
        rate_by_region[verdict.region] = rate_by_region.get(verdict.region, 0.0) + rate
    entry = json.loads(json.dumps(before if before is not None else NEW_STAGE))
    home = home_region()
    dearest = sorted(rate_by_region, key=lambda region: (-rate_by_region[region], region))
    entry["regions"] = list(dict.fromkeys([home, *dearest]))
    budget = entry.setdefault("budget", {})
    for field, value in NEW_STAGE["budget"].items():
        budget.setdefault(field, value)
    if limit_usd is not None:
        budget["limit_usd"] = int(limit_usd) if limit_usd == int(limit_usd) else limit_usd
    else:
        budget["limit_usd"] = propose_limit_usd(run_rate_usd_per_hour(found) * HOURS_PER_MONTH)
    entry.setdefault("tag_keys", dict(NEW_STAGE["tag_keys"]))
    if page:
        subscribers = entry.setdefault("subscribers", {"page": [], "warn": [], "info": []})
        subscribers["page"] = subscribers["warn"] = list(page)
    return dict(entry)


def propose_limit_usd(usd_per_month: float) -> int:
    """A month at the present rate, rounded up to two digits that count; at least `LEAST_LIMIT_USD`.

    16,029 becomes 17,000: high enough that what runs now fits, low enough that growth is noticed.
    """
    if usd_per_month <= LEAST_LIMIT_USD:
        return LEAST_LIMIT_USD
    step = int(10 ** (math.floor(math.log10(usd_per_month)) - 1))
    return math.ceil(round(usd_per_month / step, 9)) * step


def _read(path: Path) -> str:
    from cli.errors import CliError

    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise CliError(
            f"There is no cdk.json in {path.parent.resolve()}; go to the project's folder, or name it with --folder."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read ({error}); correct that and try again.") from error


def _stages(path: Path, text: str) -> dict[str, Any]:
    from cli.errors import CliError

    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise CliError(
            f"{path} is not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); correct it there."
        ) from error
    context = content.get("context") if isinstance(content, dict) else None
    stages = context.get("stages") if isinstance(context, dict) else None
    if not isinstance(stages, dict):
        raise CliError(f"{path} has no object at context.stages; add it, and the stages go there.")
    return stages


def _validate(stage: str, text: str) -> None:
    """Let the stacks read the new file before it is written. Raises CliError with what they object to."""
    from cli.errors import CliError
    from stacks.config import StageError, load_stage

    with tempfile.TemporaryDirectory() as folder:
        candidate = Path(folder, "cdk.json")
        candidate.write_text(text, encoding="utf-8")
        try:
            load_stage(stage, candidate)
        except StageError as error:
            raise CliError(f"The stage cannot be written like that: {' '.join(error.problems)}") from error


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole, so that it is never half written."""
    from cli.errors import CliError

    draft = path.with_name(path.name + ".new")
    try:
        draft.write_bytes(text.encode("utf-8"))
        draft.replace(path)
    except OSError as error:
        raise CliError(f"{path} cannot be written ({error}); make it writable and try again.") from error


def _show(
    path: Path, stage: str, before: Any, entry: Mapping[str, Any], unknown: list[dict[str, str]], found: Scan
) -> None:
    from cli.scan import run_rate_usd_per_hour
    from cli.terminal import console, count, table, text, usd

    screen = console()
    screen.print(
        f"{count(len(found.inventory.instances), 'GPU instance')} found, running at "
        f"{usd(run_rate_usd_per_hour(found))}/h. Stage {stage} in {path}:",
        style="strong",
        markup=False,
    )
    shown = table("field", "before", "after", wrap=["before", "after"])
    old = before if isinstance(before, Mapping) else {}
    rows = [(name, old.get(name), value) for name, value in entry.items() if name != "budget"]
    budget = old.get("budget")
    old_budget = budget if isinstance(budget, Mapping) else {}
    rows += [(f"budget.{name}", old_budget.get(name), value) for name, value in entry["budget"].items()]
    for name, was, value in rows:
        if was != value:
            shown.add_row(name, text("-" if was is None else _json(was)), text(_json(value), "strong"))
    if shown.row_count:
        screen.print(shown)
    same = [name for name, was, value in rows if was == value]
    if same:
        screen.print(f"Stays as it is: {', '.join(same)}.", style="quiet", markup=False)
    for region in unknown:
        screen.print(
            f"Unknown, so not among the Regions: {region['region']} ({region['why']}); add it by hand if it has GPUs.",
            style="warn",
            markup=False,
        )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
