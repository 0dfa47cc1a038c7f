"""What wakes a function, read from the event: why, and the moment that counts as now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from governor.domain.budget_notice import BudgetNotice, UnreadableNotice, parse_budget_notice


class _Sns(BaseModel):
    model_config = ConfigDict(extra="ignore")
    message: str = Field(default="", alias="Message")
    message_id: str = Field(default="", alias="MessageId")
    timestamp: datetime | None = Field(default=None, alias="Timestamp")
    topic_arn: str = Field(default="", alias="TopicArn")


class _SnsRecord(BaseModel):
    model_config = ConfigDict(extra="ignore")
    sns: _Sns = Field(alias="Sns")


class _Event(BaseModel):
    """The parts of the events of EventBridge, Scheduler and SNS that matter here."""

    model_config = ConfigDict(extra="ignore")
    source: str = ""
    id: str = ""
    time: datetime | None = None
    detail_type: str = Field(default="", alias="detail-type")
    detail: dict[str, Any] = Field(default_factory=dict)
    records: list[_SnsRecord] = Field(default_factory=list, alias="Records")


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why a function runs. `at` is aware UTC and taken from the event, so that a retry sees the same moment."""

    source: str
    at: datetime
    notices: tuple[BudgetNotice | UnreadableNotice, ...] = ()
    detail_type: str = ""
    event_id: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Names the run: a retry of the same event has the same name."""
        return f"{self.source}@{self.at.isoformat()}#{self.event_id}"


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _refuse_the_end_of_time(*moments: datetime) -> None:
    """Raises OverflowError for a moment with which no sum can be made, such as the last day that a date can hold."""
    for moment in moments:
        _ = (moment + timedelta(days=800), moment - timedelta(days=800))


def read_trigger(event: Any, clock: Callable[[], datetime]) -> Trigger:
    """Read any event; one that is not understood wakes the function all the same, at `clock()`. Never raises."""
    try:
        seen = _Event.model_validate(event)
        moments = [_utc(r.sns.timestamp) for r in seen.records if r.sns.timestamp is not None]
        at = _utc(seen.time) if seen.time is not None else _utc(clock())
        _refuse_the_end_of_time(at, *moments)
    except (ValidationError, OverflowError):
        note = UnreadableNotice(str(event)[:2000], "not an event of SNS, EventBridge or Scheduler")
        return Trigger("unreadable", _utc(clock()), (note,))
    if seen.records:
        notices = tuple(parse_budget_notice(r.sns.message) for r in seen.records)
        event_id = ",".join(r.sns.message_id for r in seen.records)
        return Trigger("budget-notice", max(moments) if moments else _utc(clock()), notices, event_id=event_id)
    return Trigger(seen.source or "unknown", at, detail_type=seen.detail_type, event_id=seen.id, detail=seen.detail)


def moment_of_run(trigger: Trigger, last: tuple[datetime, str] | None) -> datetime:
    """The `now` of a run: the event's moment.

    `last` is when the function last ran, and the trigger's name. A retry of that event has the moment of that run, so
    that it ends in the same records. Any other event that is not newer only wakes, just after that run. An event of a
    machine whose clock is ahead, of which AWS accepts five minutes, makes the others older for no longer than that.
    """
    if last is not None and trigger.name == last[1]:
        return last[0]
    return trigger.at if last is None or trigger.at > last[0] else last[0] + timedelta(microseconds=1)
