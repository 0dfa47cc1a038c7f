"""What a person sees while the demo plays: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from demo.story import Check, Lap, Story

Update = Callable[[str], None]


class Narrator:
    """Prints scenes, checks and what is being worked on. Keeps the real time that each part took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.laps: list[Lap] = []

    @contextmanager
    def work(self, what: str) -> Iterator[Update]:
        """Show that `what` is being done; the block may tell how far it is. Its time is kept."""
        began = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(escape(what)) as status:
                yield lambda text: status.update(f"{escape(what)} [dim]{escape(text)}[/dim]")
        else:
            yield lambda text: None
        lap = Lap(what, time.monotonic() - began)
        self.laps.append(lap)
        self._console.print(f"  {escape(what)} [dim]({lap.seconds:.1f} s)[/dim]", highlight=False)

    def scene(self, number: int, title: str, when: str) -> None:
        """Announce a scene."""
        self._console.print(f"\n[bold]{number}. {escape(title)}[/bold]  [dim]{escape(when)}[/dim]", highlight=False)

    def tell(self, text: str) -> None:
        """One sentence of the story."""
        self._console.print(f"   {escape(text)}", highlight=False)

    def checked(self, check: Check) -> None:
        """The result of a check."""
        if check.passed:
            self._console.print(f"   [green]ok[/green]      {escape(check.what)}", highlight=False)
            return
        self._console.print(
            f"   [bold red]FAILED[/bold red]  {escape(check.what)}: "
            f"expected {escape(check.expected)}, seen {escape(check.seen)}",
            highlight=False,
        )

    def summary(self, story: Story) -> None:
        """The closing table."""
        table = Table(title=f"{story.company}, {story.month}", title_justify="left", show_header=False, pad_edge=False)
        table.add_column("what", no_wrap=True)
        table.add_column("figure", justify="right", no_wrap=True)
        table.add_column("how")
        for what, figure, how in summary_rows(story):
            table.add_row(escape(what), escape(figure), escape(how))
        self._console.print()
        self._console.print(table)
        self._returns(story)

    def _returns(self, story: Story) -> None:
        """How long each machine took to come back."""
        restoring = story.restoring
        table = Table(
            title="Restore: virtual time from the command; boot as the demo sets it",
            title_justify="left",
            pad_edge=False,
            box=box.SQUARE,
        )
        for name in ("machine", "type", "start", "boot", "running", "confirmed"):
            table.add_column(name, no_wrap=True, justify="left" if name in ("machine", "type") else "right")
        for row in restoring.rows:
            boot = duration(row.boot_minutes * 60)
            back = (after(row.running_after_seconds), after(row.confirmed_after_seconds))
            table.add_row(escape(row.name), row.instance_type, after(row.called_after_seconds), boot, *back)
        table.add_row(escape(story.group), "group sizes", "", "", "", after(restoring.group_after_seconds))
        self._console.print()
        self._console.print(table)
        self._console.print(f"  {escape(restoring.command.typed)}", highlight=False)


def duration(seconds: float) -> str:
    """Seconds as a person reads them: `6 h 12 min`, `10 min`, `40 s`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {rest:02d} min"


def usd(amount: float, places: int = 2) -> str:
    """An amount in US dollars."""
    return f"${amount:,.{places}f}"


def after(seconds: float | None) -> str:
    """Virtual time from a command to something; it is seen to the minute."""
    return "not in time" if seconds is None else "at once" if seconds < 0.5 else duration(seconds)


def held_seconds(story: Story) -> float:
    """Virtual seconds from the override's command to the report of its amount."""
    return (story.overriding.ended_at - story.overriding.command.at).total_seconds()


def summary_rows(story: Story) -> list[tuple[str, str, str]]:
    """What, figure, explanation: the same rows in the terminal and in the report."""
    figures, crossing = story.figures, story.crossing
    overriding, restoring = story.overriding, story.restoring
    stopped = sum(row.fate == "stopped" for row in story.fleet)
    kept = len(story.fleet) - stopped
    saved = figures.month_end_without_usd - figures.month_end_usd
    passed = len(story.checks) - len(story.failures)
    return [
        ("Stopped", f"{stopped} machines", f"{usd(figures.stopped_usd_per_hour)} an hour less from then on"),
        ("Left running", f"{kept} machines", f"{usd(figures.run_rate_after_usd_per_hour)} an hour, each for a reason"),
        ("Month’s bill", usd(figures.month_end_usd, 0),
         f"override included, instead of {usd(figures.month_end_without_usd, 0)}: {usd(saved, 0)} not spent"),
        ("Crossing to report", f"{crossing.lag_seconds:,.0f} s",
         f"{duration(crossing.lag_seconds)} in which AWS Budgets did not know yet"),
        ("Report to stopped", f"{crossing.own_seconds:,.0f} s",
         f"{duration(crossing.own_seconds)}: notice, grace, stop, seen stopped"),
        ("Overridden", duration(held_seconds(story)),
         f"{usd(overriding.usd_per_hour)} an hour above the stop level, {overriding.runs_held} runs of the guard, "
         f"stop calls: {overriding.stop_calls}"),
        ("Command to running", after(restoring.slowest_seconds),
         f"{len(restoring.rows)} machines by governor restore, boot included; the group’s sizes: "
         f"{after(restoring.group_after_seconds)}"),
        ("Checks", f"{passed} of {len(story.checks)}", "held" if not story.failures else "held; see FAILED above"),
    ]  # fmt: skip
