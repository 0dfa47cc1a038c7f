"""Changes of tags and processes, and their way back, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from governor.domain.taken import Change, Place, PutBack, Value


def describe_place(place: Place) -> dict[str, Any]:
    """A place for JSON."""
    return {
        "kind": place.kind.value,
        "region": place.region,
        "resource": place.resource,
        "resource_kind": place.resource_kind.value,
        "name": place.name,
    }


def describe_change(change: Change) -> dict[str, Any]:
    """A change for JSON; null is nothing there."""
    return {**describe_place(change.place), "before": change.before.text, "after": change.wanted.text}


def describe_put_back(one: PutBack) -> dict[str, Any]:
    """The way back of one place for JSON; `finding` is null where it is put back, or was so already."""
    return {
        **describe_place(one.place),
        "before": one.before.text,
        "after": one.target.text if not one.gone else None,
        "writes": one.writes,
        "gone": one.gone,
        "finding": one.finding or None,
    }


def show_changes(screen: Any, changes: Iterable[Change], could: Mapping[tuple[str, str], str] | None = None) -> None:
    """A row a change; `could` says by (Region, resource) what could be done with it then."""
    _show(screen, [(c.place, c.before, c.wanted.text) for c in changes], could)


def show_put_backs(screen: Any, steps: Sequence[PutBack]) -> None:
    """A row for each that is put back, and a line for each that is not."""
    rows = [(one.place, one.before, one.target.text) for one in steps if one.writes]
    if rows:
        _show(screen, rows, None)
    for one in steps:
        if one.finding:
            screen.print(f"Left: {one.finding}.", style="warn", markup=False)
    gone = {(one.place.resource_kind.value, one.place.resource) for one in steps if one.gone}
    for kind, name in sorted(gone):
        screen.print(f"The {kind} {name} no longer exists.", style="quiet", markup=False)


def _show(
    screen: Any, rows: Iterable[tuple[Place, Value, str | None]], could: Mapping[tuple[str, str], str] | None
) -> None:
    from cli.terminal import table, text

    columns = ["resource", "what", "before -> after"] + (["then it could"] if could is not None else [])
    shown = table(*columns, wrap=["resource", "before -> after", "then it could"][: 3 if could is not None else 2])
    last = None
    for place, before, after in rows:
        resource = (place.region, place.resource)
        first = resource != last
        last = resource
        cells = [text(f"{place.resource}\n{place.region}" if first else ""), text(place.name)]
        not_yet = " (not of new members)" if before.propagates is False and before.text == after else ""
        cells.append(text(f"{_words(before.text)}{not_yet} -> {_words(after)}"))
        if could is not None:
            cells.append(text(could.get(resource, "") if first else ""))
        shown.add_row(*cells)
    screen.print(shown)


def _words(value: str | None) -> str:
    return "-" if value is None else value
