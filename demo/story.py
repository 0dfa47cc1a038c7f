"""What the demo saw, as data: everything in the report comes from here, and `story.json` holds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter


class Fate(StrEnum):
    """What became of one instance of the fleet."""

    STOPPED = "stopped"
    SPARED = "spared"


class MarkKind(StrEnum):
    """What a mark on the chart stands for."""

    MAIL = "mail"
    PAGE = "page"
    STOP = "stop"
    START = "start"
    EDIT = "edit"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to be so: what, what was expected, what was seen."""

    what: str
    expected: str
    seen: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene: when it played on the virtual clock, what happened in words, and what was checked."""

    number: int
    title: str
    begins: datetime
    ends: datetime
    paragraphs: tuple[str, ...]
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Spend of the month so far at one moment, USD: true, and as AWS Budgets says (None: nothing yet); USD per hour."""

    at: datetime
    true_usd: float
    reported_usd: float | None
    run_rate_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is in force from a moment on: percents of the limit."""

    since: datetime
    warn_percent: float
    stop_percent: float


@dataclass(frozen=True, slots=True)
class Mark:
    """Something to see on the charts."""

    at: datetime
    kind: MarkKind
    label: str


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of the timeline: what the Governor decided or a person did, and why in words."""

    at: datetime
    actor: str
    did: str
    why: str
    details: tuple[str, ...] = ()
    usd_per_hour: float | None = None
    decision_id: str = ""


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One instance before and after the stop level was reached, with what the Governor said of it."""

    instance_id: str
    name: str
    project: str
    instance_type: str
    tags: str
    kind: str
    usd_per_hour: float | None
    state_before: str
    state_after: str
    fate: Fate
    why: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupMoment:
    """An Auto Scaling group at one moment: its sizes, and the state of each member by name. `launched` counts all
    instances that the group launched and that are not terminated, so that a replacement would show."""

    at: datetime
    what: str
    min_size: int
    desired: int
    max_size: int
    members: tuple[tuple[str, str], ...]
    launched: int


@dataclass(frozen=True, slots=True)
class Command:
    """A `governor` command that a person ran: as typed, what it printed, its exit code, and its real seconds."""

    at: datetime
    by: str
    typed: str
    printed: str
    exit_code: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Overriding:
    """An override of the whole budget: USD of the month, and USD per hour that it kept running."""

    command: Command
    parameter: str
    until: datetime
    up_to_usd: float
    spent_at_begin_usd: float
    machines: tuple[str, ...]
    usd_per_hour: float
    runs_held: int
    """Runs of the guard while it held."""
    stop_calls: int
    """Stop calls while it held."""
    ended_at: datetime
    """When AWS Budgets reported the amount."""
    reported_at_end_usd: float
    stopped_at: datetime


@dataclass(frozen=True, slots=True)
class Returned:
    """One instance on its way back; seconds of virtual time from the command, None where it did not get so far."""

    instance_id: str
    name: str
    instance_type: str
    kind: str
    usd_per_hour: float | None
    boot_minutes: float
    called_after_seconds: float | None
    running_after_seconds: float | None
    confirmed_after_seconds: float | None
    """From the command until the Governor has seen it, and a member is in service."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """A restore: the command as the mail gave it, and how long each part of it took."""

    mail_subject: str
    mail_at: datetime
    in_mail: str
    command: Command
    rows: tuple[Returned, ...]
    group_after_seconds: float | None
    """From the command until the group had its sizes back."""

    @property
    def slowest_seconds(self) -> float | None:
        """Until the last of them ran; None where one did not."""
        found = [row.running_after_seconds for row in self.rows]
        return None if not found or None in found else max(one for one in found if one is not None)


@dataclass(frozen=True, slots=True)
class MailItem:
    """A mail as a person received it."""

    at: datetime
    to: str
    severity: str
    subject: str
    body: str


@dataclass(frozen=True, slots=True)
class Change:
    """An edit of a setting or of the pause, and what the Governor made of it."""

    at: datetime
    by: str
    name: str
    before: str
    after: str
    outcome: str
    accepted: bool


@dataclass(frozen=True, slots=True)
class Crossing:
    """The way from the true crossing of the stop level to the last machine seen stopped."""

    crossed_at: datetime
    reported_at: datetime
    noticed_at: datetime
    stopping_at: datetime
    seen_stopped_at: datetime
    stop_usd: float
    spent_when_stopped_usd: float

    @property
    def total_seconds(self) -> float:
        """Virtual seconds from the true crossing to seen stopped."""
        return (self.seen_stopped_at - self.crossed_at).total_seconds()

    @property
    def lag_seconds(self) -> float:
        """Virtual seconds of it in which AWS Budgets did not know yet."""
        return (self.reported_at - self.crossed_at).total_seconds()

    @property
    def own_seconds(self) -> float:
        """Virtual seconds from the report to seen stopped: the Governor's own part, grace included."""
        return (self.seen_stopped_at - self.reported_at).total_seconds()


@dataclass(frozen=True, slots=True)
class Lap:
    """Real seconds that one part of the demo took."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Totals: USD, USD per hour, counts."""

    limit_usd: float
    stopped_usd_per_hour: float
    run_rate_before_usd_per_hour: float
    run_rate_after_usd_per_hour: float
    month_end_usd: float
    month_end_without_usd: float
    function_runs: int
    api_calls: int
    stop_calls: int
    start_calls: int
    denied_calls: int


@dataclass(frozen=True, slots=True)
class Story:
    """All of it."""

    company: str
    stage: str
    region: str
    month: str
    prices_dated: str
    scenes: tuple[Scene, ...]
    samples: tuple[Sample, ...]
    thresholds: tuple[Thresholds, ...]
    marks: tuple[Mark, ...]
    steps: tuple[Step, ...]
    fleet: tuple[FleetRow, ...]
    mails: tuple[MailItem, ...]
    alarm_mails: tuple[MailItem, ...]
    changes: tuple[Change, ...]
    crossing: Crossing
    group: str
    group_moments: tuple[GroupMoment, ...]
    overriding: Overriding
    restoring: Restoring
    figures: Figures
    laps: tuple[Lap, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every check of every scene, in order."""
        return tuple(check for scene in self.scenes for check in scene.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that did not hold."""
        return tuple(check for check in self.checks if not check.passed)


_STORY: TypeAdapter[Story] = TypeAdapter(Story)


def write_story(story: Story, path: Path) -> None:
    """Write the story as JSON."""
    path.write_bytes(_STORY.dump_json(story, indent=1))


def read_story(path: Path) -> Story:
    """Inverse of `write_story`. Raises pydantic.ValidationError."""
    return _STORY.validate_json(path.read_bytes())
