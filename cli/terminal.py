"""How answers look: JSON, or tables and lines that read well at 100 columns. Colours only on a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cli.errors import CliError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDTH = 100
_OUR_FUNCTION = re.compile(r"^Governor-[a-z0-9-]+-Control-(?P<name>[A-Za-z]+?)Function[0-9A-F]{8}")
"""Names that CloudFormation gives to our functions; as sessions of their roles they write parameters."""

HOURS_PER_MONTH = 730
"""AWS counts a month as 730 hours in its price examples."""

STYLES: Mapping[str, str] = {
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
    "quiet": "dim",
    "strong": "bold",
}


def current_time() -> datetime:
    """The clock of this machine, aware UTC."""
    return datetime.now(UTC)


def console(*, errors: bool = False) -> Console:
    """A console on stdout (or stderr) that is 100 columns wide where it is no terminal."""
    from rich.console import Console
    from rich.theme import Theme

    stream = sys.stderr if errors else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else WIDTH
    return Console(file=stream, width=width, theme=Theme(dict(STYLES)), highlight=False, emoji=False, soft_wrap=False)


def print_json(answer: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    sys.stdout.write(json.dumps(answer, indent=2, ensure_ascii=False) + "\n")


def note(text: str) -> None:
    """A line for the person, on stderr, so that stdout stays clean."""
    console(errors=True).print(text, style="quiet", markup=False)


def table(*columns: str, right: Iterable[str] = (), title: str = "", wrap: Iterable[str] = ()) -> Table:
    """A table with plain lines; columns in `right` hold figures; columns in `wrap` (default: the last) may break."""
    from rich import box
    from rich.table import Table

    rights = set(right)
    breaking = set(wrap) or {columns[-1]}
    made = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        pad_edge=False,
        padding=(0, 1),
        show_edge=False,
    )
    for name in columns:
        made.add_column(
            name, justify="right" if name in rights else "left", no_wrap=name not in breaking, overflow="fold"
        )
    return made


def text(words: object, style: str = "") -> Text:
    """Text that is shown as it is: tags and names of other people hold no markup."""
    from rich.text import Text

    return Text(str(words), style=STYLES.get(style, style))


def usd(amount: float | None) -> str:
    """US dollars with two decimals; `unknown` for what is not known."""
    return "unknown" if amount is None else f"${amount:,.2f}"


def percent(value: float | None) -> str:
    """A percentage with one decimal."""
    return "unknown" if value is None else f"{value:.1f} %"


def clock(moment: datetime | str | None) -> str:
    """A moment in UTC, to the minute."""
    if moment is None:
        return "never"
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def age(passed: timedelta) -> str:
    """How long ago, in the largest unit that still says something."""
    seconds = max(0, int(passed.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds // 60} min"
    if seconds < 2 * 86400:
        return f"{seconds // 3600} h"
    return f"{seconds // 86400} d"


def who(identity: str) -> str:
    """Who an ARN is, short enough for a table: `alice (Admin)` for a session of a role."""
    from governor.domain.settings_review import person

    parts = person(identity).split("/")
    ours = _OUR_FUNCTION.match(parts[-1])
    if ours is not None:
        return f"the Governor ({ours['name']})"
    if parts[0] == "assumed-role" and len(parts) == 3:
        return f"{_shorten(parts[2])} ({_shorten(parts[1])})"
    return _shorten("/".join(parts), 48)


def _shorten(words: str, characters: int = 24) -> str:
    return words if len(words) <= characters else words[: characters - 3] + "..."


def count(number: int, noun: str = "instance") -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def iso(moment: datetime | None) -> str | None:
    """A moment for JSON."""
    return None if moment is None else moment.astimezone(UTC).isoformat()


def bar(
    shares: Sequence[tuple[float, str]], marks: Sequence[tuple[float, str]], *, full: float, width: int = 60
) -> Text:
    """A bar of `full` percent with filled `shares` (percent, style) and `marks` (percent, style) on it."""
    from rich.text import Text

    cells: list[tuple[str, str]] = [("·", "dim")] * width
    for share, style in shares:
        for place in range(min(width, round(share / full * width))):
            cells[place] = ("█", STYLES.get(style, style))
    for mark, style in marks:
        place = min(width - 1, max(0, round(mark / full * width)))
        cells[place] = ("|", STYLES.get(style, style))
    drawn = Text("[")
    for sign, style in cells:
        drawn.append(sign, style=style)
    return drawn.append("]")


def ask(question: str, *, yes: bool) -> None:
    """Ask on stderr; returns when the answer is yes. Raises CliError otherwise: nothing was changed."""
    if yes:
        return
    import typer

    try:
        agreed = typer.confirm(question, default=False, err=True)
    except typer.Abort:
        typer.echo(err=True)
        raise CliError("Nobody answered the question, so nothing was changed; answer it with --yes.") from None
    if not agreed:
        raise CliError("Nothing was changed, as you said.")
