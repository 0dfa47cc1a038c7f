"""Rule schedules and EventBridge Scheduler on the virtual clock, one minute at a time, time zones included."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from local.clock import minute_of
from local.completion import complete_type
from local.deliveries import DeliveryQueue
from local.emulator import Emulator
from local.patching import relied_on

_AT = re.compile(r"^at\((?P<moment>.+)\)$")

Key = tuple[str, str, str]


class Schedules:
    """Fires what is due at a minute boundary. Deterministic: rules first, then schedules, each by name."""

    def __init__(self, emulator: Emulator, deliveries: DeliveryQueue) -> None:
        self._emulator = emulator
        self._deliveries = deliveries
        events = emulator.events
        self._rate_seconds = relied_on(events, "_parse_rate_seconds", ("expr",))
        self._cron_fields = relied_on(events, "_parse_cron_fields", ("expr",))
        self._day_of_month_matches = relied_on(events, "_dom_matches", ("dom_struct", "dt"))
        self._day_of_week_matches = relied_on(events, "_dow_matches", ("dow_struct", "dt"))
        self._scope = relied_on(emulator.responses, "request_scope", ("account_id", "region"))
        handlers = emulator.provisioners._RESOURCE_HANDLERS
        complete_type(handlers, "AWS::Scheduler::Schedule", self._keep_time_zone_and_dates)
        self._next_rate: dict[Key, datetime] = {}
        self._fired_once: set[Key] = set()

    def _keep_time_zone_and_dates(self, physical_id: str, properties: Mapping[str, Any]) -> None:
        """What the emulator's CloudFormation drops from a schedule."""
        record = self._emulator.scheduler._schedules[f"{properties.get('GroupName') or 'default'}/{physical_id}"]
        record["ScheduleExpressionTimezone"] = properties.get("ScheduleExpressionTimezone") or "UTC"
        for name in ("StartDate", "EndDate", "KmsKeyArn"):
            record[name] = properties.get(name)

    def clock_jumped(self) -> None:
        """Forget the countdowns of rate schedules: they start again from the clock's new time."""
        self._next_rate.clear()

    def fire_due(self, minute: datetime) -> int:
        """Queue every rule and schedule due at this minute boundary; returns how many fired."""
        return self._fire_rules(minute) + self._fire_schedules(minute)

    def start_countdowns(self, now: datetime) -> None:
        """Begin the countdown of rate schedules that are new since the last minute."""
        for key, schedule in self._all():
            interval = self._rate_seconds(schedule.get("ScheduleExpression") or "")
            if interval is not None and key not in self._next_rate:
                self._next_rate[key] = minute_of(now) + timedelta(seconds=interval)

    def _all(self) -> list[tuple[Key, dict[str, Any]]]:
        rules = [(("rule:" + account, region, name), rule) for (account, region, name), rule in self._rules()]
        schedules = [(("schedule:" + account, region, name), one) for (account, region, name), one in self._schedules()]
        return rules + schedules

    def _rules(self) -> list[tuple[Key, dict[str, Any]]]:
        return sorted(self._emulator.events._rules._data.items(), key=lambda one: str(one[0]))

    def _schedules(self) -> list[tuple[Key, dict[str, Any]]]:
        return sorted(self._emulator.scheduler._schedules._data.items(), key=lambda one: str(one[0]))

    def _fire_rules(self, minute: datetime) -> int:
        fired = 0
        for (account_id, region, name), rule in self._rules():
            expression = rule.get("ScheduleExpression") or ""
            if not expression or rule.get("State") != "ENABLED":
                continue
            if not self._is_due(("rule:" + account_id, region, name), expression, minute, ZoneInfo("UTC")):
                continue
            event = _scheduled_event("aws.events", rule["Arn"], account_id, region, minute)
            event["EventBusName"] = rule.get("EventBusName", "default")
            with self._scope(account_id, region):
                for target in self._emulator.events._targets.get(name, []):
                    self._emulator.events._invoke_target(target, event, rule)
            fired += 1
        return fired

    def _fire_schedules(self, minute: datetime) -> int:
        fired = 0
        for (account_id, region, name), schedule in self._schedules():
            key = ("schedule:" + account_id, region, name)
            if schedule.get("State") != "ENABLED" or not _is_within_dates(schedule, minute):
                continue
            zone = ZoneInfo(schedule.get("ScheduleExpressionTimezone") or "UTC")
            if not self._is_due(key, schedule["ScheduleExpression"], minute, zone):
                continue
            with self._scope(account_id, region):
                self._fire(schedule, account_id, region, minute)
            if key in self._fired_once and schedule.get("ActionAfterCompletion") == "DELETE":
                self._emulator.scheduler._schedules._data.pop((account_id, region, name))
            fired += 1
        return fired

    def _fire(self, schedule: Mapping[str, Any], account_id: str, region: str, minute: datetime) -> None:
        target = dict(schedule["Target"])
        if target.get("Input"):
            target["Input"] = fill_context_attributes(target["Input"], schedule["Arn"], minute)
        if ":lambda:" in target["Arn"]:
            self._deliveries.add(
                target["Arn"],
                json.loads(target.get("Input") or "{}"),
                source=f"schedule {schedule['Arn']}",
                dead_letter_arn=(target.get("DeadLetterConfig") or {}).get("Arn", ""),
            )
            return
        event = _scheduled_event("aws.scheduler", schedule["Arn"], account_id, region, minute)
        self._emulator.events._invoke_target(target, event, schedule)

    def _is_due(self, key: Key, expression: str, minute: datetime, zone: ZoneInfo) -> bool:
        if (at := _AT.match(expression)) is not None:
            return self._is_due_once(key, at["moment"], minute, zone)
        interval = self._rate_seconds(expression)
        if interval is not None:
            return self._is_due_by_rate(key, timedelta(seconds=interval), minute)
        fields = self._cron_fields(expression)
        if fields is None:
            raise ValueError(f"schedule {key[2]}: {expression!r} is no schedule expression")
        return self._matches_cron(fields, minute.astimezone(zone))

    def _is_due_once(self, key: Key, moment: str, minute: datetime, zone: ZoneInfo) -> bool:
        if key in self._fired_once or minute < datetime.fromisoformat(moment).replace(tzinfo=zone):
            return False
        self._fired_once.add(key)
        return True

    def _is_due_by_rate(self, key: Key, interval: timedelta, minute: datetime) -> bool:
        due_at = self._next_rate.setdefault(key, minute)
        if minute < due_at:
            return False
        self._next_rate[key] = minute + interval
        return True

    def _matches_cron(self, fields: Any, local: datetime) -> bool:
        minutes, hours, days, months, weekdays, years, raw_days, _ = fields
        if local.fold:  # the hour that comes twice in autumn counts once
            return False
        day_matches = (
            self._day_of_week_matches(weekdays, local) if raw_days == "?" else self._day_of_month_matches(days, local)
        )
        return bool(
            local.minute in minutes
            and local.hour in hours
            and local.month in months
            and (years is None or local.year in years)
            and day_matches
        )


def fill_context_attributes(text: str, schedule_arn: str, minute: datetime) -> str:
    """Put the Scheduler's context attributes into a target's input."""
    values = {
        "<aws.scheduler.scheduled-time>": minute.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "<aws.scheduler.execution-id>": uuid.uuid4().hex[:16],
        "<aws.scheduler.attempt-number>": "1",
        "<aws.scheduler.schedule-arn>": schedule_arn,
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _is_within_dates(schedule: Mapping[str, Any], minute: datetime) -> bool:
    start, end = _moment(schedule.get("StartDate")), _moment(schedule.get("EndDate"))
    return (start is None or minute >= start) and (end is None or minute <= end)


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC)
    return datetime.fromisoformat(str(value).replace("Z", "+00:00"))


def _scheduled_event(source: str, arn: str, account_id: str, region: str, minute: datetime) -> dict[str, Any]:
    return {
        "EventId": str(uuid.uuid4()),
        "Source": source,
        "DetailType": "Scheduled Event",
        "Detail": "{}",
        "Time": int(minute.timestamp()),
        "Resources": [arn],
        "Account": account_id,
        "Region": region,
    }
