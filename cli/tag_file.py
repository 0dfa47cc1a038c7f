"""A file of wanted tags: one CSV row a tag. Every bad row is named with what is wrong and what to do."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import CliError

if TYPE_CHECKING:
    from governor.domain.tags import TagKeys
    from governor.domain.taken import Wanted

HEADER = ("resource", "region", "key", "value")
MAX_BYTES = 1_000_000
MAX_VALUE_CHARACTERS = 256
"""AWS allows so many characters in the value of a tag."""

INSTANCE_ID = re.compile(r"^i-[0-9a-f]{8,17}$")
_VALUE = re.compile(r"^[\w .:/=+\-@]+$")


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: its line in the file (the header is 1), what is wrong, and what to do."""

    line: int
    wrong: str
    todo: str

    @property
    def sentence(self) -> str:
        """Both for people."""
        return f"line {self.line}: {self.wrong}; {self.todo}"


@dataclass(frozen=True, slots=True)
class Row:
    """One wanted tag."""

    line: int
    resource: str
    region: str
    key: str
    value: str

    @property
    def is_instance(self) -> bool:
        """True for an instance, false for an Auto Scaling group."""
        return INSTANCE_ID.match(self.resource) is not None

    def wanted(self, members: tuple[str, ...] = ()) -> Wanted:
        """The same as a place and its text; `members` are those that the group has now."""
        from governor.domain.taken import Place, PlaceKind, ResourceKind, Wanted

        kind = ResourceKind.INSTANCE if self.is_instance else ResourceKind.GROUP
        return Wanted(Place(PlaceKind.TAG, self.region, self.resource, self.key, kind), self.value, members)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a row may name: the stage, its tag keys and its Regions."""

    stage: str
    keys: TagKeys
    regions: tuple[str, ...]


def read_file(path: Path) -> list[tuple[int, list[str]]]:
    """The rows below the header with their lines. Raises CliError for a file that is no such table."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CliError(f"{path} cannot be read ({error.strerror}); name a CSV file with --plan.") from None
    if len(raw) > MAX_BYTES:
        raise CliError(f"{path} is larger than {MAX_BYTES:,} bytes; split it into several files.")
    try:
        lines = csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""), strict=True)
        rows = [(lines.line_num, [cell.strip() for cell in row]) for row in lines if any(cell.strip() for cell in row)]
    except UnicodeDecodeError:
        raise CliError(f"{path} is no UTF-8 text; save it as CSV in UTF-8.") from None
    except csv.Error as error:
        raise CliError(f"{path} is no CSV file ({error}); save it as comma-separated values.") from None
    if not rows or tuple(cell.lower() for cell in rows[0][1]) != HEADER:
        raise CliError(
            f"{path} does not begin with the header {','.join(HEADER)}; write it as the first line, with commas "
            "(governor tag --template prints such a file)."
        )
    if len(rows) == 1:
        raise CliError(f"{path} has no row below its header; add one for each tag.")
    return rows[1:]


def read_rows(lines: Sequence[tuple[int, list[str]]], rules: Rules) -> tuple[list[Row], list[BadRow]]:
    """Rows that say something possible, and the others. Reads nothing from AWS."""
    rows: list[Row] = []
    bad: list[BadRow] = []
    first: dict[tuple[str, str, str], int] = {}
    for line, cells in lines:
        if len(cells) != len(HEADER):
            todo = f"write {', '.join(HEADER)}, and put a value that holds a comma into double quotes"
            bad.append(BadRow(line, f"it has {len(cells)} cells instead of {len(HEADER)}", todo))
            continue
        row = Row(line, *cells)
        again = first.setdefault((row.region, row.resource, row.key), line)
        found = _fault(row, rules)
        if found is None and again != line:
            found = (f"it names {row.key} of {row.resource} again, as line {again} does", "keep one of the two")
        if found is None:
            rows.append(row)
        else:
            bad.append(BadRow(line, *found))
    return rows, bad


def _fault(row: Row, rules: Rules) -> tuple[str, str] | None:
    """(What is wrong, what to do), or None."""
    if not row.resource or "*" in row.resource:
        return "it names no resource", "write the id of an instance (i-0abc...) or the name of an Auto Scaling group"
    if row.resource.startswith(("i-", "arn:")) and not row.is_instance:
        return f"{row.resource!r} is no instance id", "write it like i-0123456789abcdef0, or the name of a group"
    if row.region not in rules.regions:
        known = ", ".join(rules.regions)
        return f"{row.region or 'no Region'!s} is not a Region of stage {rules.stage}", f"write one of {known}"
    return _fault_of_key(row, rules) or _fault_of_value(row, rules)


def _fault_of_key(row: Row, rules: Rules) -> tuple[str, str] | None:
    from governor.domain.tags import normalise

    ours = _our_keys(rules.keys)
    if row.key in ours:
        return None
    meant = next((key for key in ours if normalise(key) == normalise(row.key)), None)
    if meant is not None:
        return f"the key {row.key!r} is not written exactly", f"write {meant}"
    return f"{row.key!r} is no tag of the Governor", f"write one of {', '.join(ours)}"


def _our_keys(keys: TagKeys) -> tuple[str, ...]:
    return keys.managed, keys.criticality, keys.project, keys.pool, keys.keep, keys.checkpoint


def _fault_of_value(row: Row, rules: Rules) -> tuple[str, str] | None:
    if not row.value:
        return f"the value of {row.key} is empty", "write one; --revert takes tags away again"
    if not is_tag_value(row.value):
        allowed = "letters, digits, spaces and . : / = + - @ _"
        return f"AWS does not take the value of {row.key}", f"write at most {MAX_VALUE_CHARACTERS} {allowed}"
    check: Callable[[Row, Rules], tuple[str, str] | None] | None = {
        rules.keys.managed: _fault_of_managed,
        rules.keys.criticality: _fault_of_criticality,
        rules.keys.keep: _fault_of_keep,
    }.get(row.key)
    return check(row, rules) if check is not None else None


def is_tag_value(text: str) -> bool:
    """True for what EC2 and Auto Scaling both take as the value of a tag."""
    return len(text) <= MAX_VALUE_CHARACTERS and _VALUE.match(text) is not None and text.isprintable()


def _fault_of_managed(row: Row, rules: Rules) -> tuple[str, str] | None:
    if row.value == rules.stage:
        return None
    return f"{row.key} is {row.value!r}, which is not the stage", f"write {rules.stage}, or choose the other --stage"


def _fault_of_criticality(row: Row, rules: Rules) -> tuple[str, str] | None:
    from governor.domain.tags import Criticality

    words = [one.value for one in Criticality]
    return None if row.value in words else (f"{row.key} is {row.value!r}", f"write one of {', '.join(words)}")


def _fault_of_keep(row: Row, rules: Rules) -> tuple[str, str] | None:
    from governor.domain.controls import parse_keep

    if parse_keep("i-0", row.value).readable:
        return None
    return f"{row.key} is {row.value!r}", "write on, or until 2026-12-01T06:00Z, and a reason after because"


def check_resources(rows: Sequence[Row], tags: Mapping[tuple[str, str], Mapping[str, str]]) -> list[BadRow]:
    """Rows whose resource is not there, or has no room for its tags. `tags` are those of every resource that is."""
    bad: list[BadRow] = []
    for resource in dict.fromkeys((row.region, row.resource) for row in rows):
        mine = [row for row in rows if (row.region, row.resource) == resource]
        present = tags.get(resource)
        if present is None:
            what = "instance" if mine[0].is_instance else "Auto Scaling group"
            wrong, todo = f"there is no {what} {resource[1]} in {resource[0]}", "check name and Region, or delete it"
            bad += [BadRow(row.line, wrong, todo) for row in mine]
            continue
        room = MAX_TAGS - sum(not key.startswith("aws:") for key in present)
        new = [row for row in mine if row.key not in present]
        wrong = f"{resource[1]} has no room for another tag (AWS allows {MAX_TAGS})"
        bad += [BadRow(row.line, wrong, "remove one that nobody needs") for row in new[max(0, room) :]]
    return sorted(bad, key=lambda one: one.line)


MAX_TAGS = 50
"""AWS allows so many tags on a resource, those of AWS itself (aws:) not counted."""


def write_rows(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """A file with these rows."""
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(rows)
    return made.getvalue()
