"""send_messages: each record of the outbox becomes exactly one call, in order, and the first failure is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from governor.aws.state_table import item_of
from governor.domain.decisions import Message, Severity
from governor.ports import Key, Record
from governor.shell.records import message_records
from lambdas.send_messages.handler import handler
from tests.builders import NOW

ENVIRONMENT = {
    "GOVERNOR_STAGE": "test",
    "TABLE_NAME": "state",
    "GOVERNOR_REGIONS": "eu-west-1",
    "ACCOUNT_ID": "123456789012",
    "POWERTOOLS_SERVICE_NAME": "send_messages",
    "TAG_KEYS": "{}",
    "BUS_NAME": "bus",
    **{f"{n}_TOPIC_ARN": f"arn:aws:sns:eu-west-1:123456789012:{n}" for n in ("PAGE", "WARN", "INFO", "SLACK")},
}


@dataclass
class Sent:
    """`Outbound` that notes what was sent; `refuse` names the way that is broken."""

    calls: list[tuple[str, ...]] = field(default_factory=list)
    refuse: str = ""

    def _note(self, way: str, *what: str) -> None:
        if way == self.refuse:
            raise ClientError({"Error": {"Code": "Throttling", "Message": "slow down"}}, "Publish")
        self.calls.append((way, *what))

    def mail(self, severity: str, subject: str, body: str) -> None:
        self._note("mail", severity, subject, body)

    def slack(self, title: str, text: str) -> None:
        self._note("slack", title, text)

    def event(self, detail_type: str, detail: Mapping[str, Any]) -> None:
        self._note("event", detail_type, str(detail["key"]))


def stream(*records: Record, event_name: str = "INSERT") -> dict[str, Any]:
    return {
        "Records": [
            {
                "eventName": event_name,
                "dynamodb": {"SequenceNumber": str(100 + place), "NewImage": item_of(record)},
            }
            for place, record in enumerate(records)
        ]
    }


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


MESSAGE = Message("gpu#2026-11#warn", Severity.WARN, "subject", "body\n")


def test_a_message_leaves_as_mail_chat_and_event_one_call_each() -> None:
    sent = Sent()
    answer = handler(stream(*message_records(MESSAGE, "test", NOW)), None, sent)
    assert answer == {"batchItemFailures": []}
    assert sent.calls == [
        ("mail", "warn", "subject", "body\n"),
        ("slack", "subject", "body\n"),
        ("event", "Governor Message", "gpu#2026-11#warn"),
    ]


@pytest.mark.parametrize(("broken", "position", "sent_before"), [("mail", "100", 0), ("slack", "101", 1)])
def test_the_first_that_fails_is_named_and_those_behind_it_wait(broken: str, position: str, sent_before: int) -> None:
    sent = Sent(refuse=broken)
    answer = handler(stream(*message_records(MESSAGE, "test", NOW)), None, sent)
    assert answer == {"batchItemFailures": [{"itemIdentifier": position}]}
    assert len(sent.calls) == sent_before


def test_a_heartbeat_a_changed_record_and_what_is_no_outbox_are_sent_nowhere() -> None:
    sent = Sent()
    heartbeat = Record(Key("run#guard_budget", "state"), {}, outbox="run")
    handler(stream(heartbeat), None, sent)
    handler(stream(*message_records(MESSAGE, "test", NOW), event_name="MODIFY"), None, sent)
    handler(stream(Record(Key("ledger", "x"), {})), None, sent)
    handler({"Records": [{"eventName": "REMOVE", "dynamodb": {"SequenceNumber": "1"}}]}, None, sent)
    assert sent.calls == []


@pytest.mark.parametrize("body", [{}, {"severity": "page"}, {"severity": "loud", "subject": "s"}])
def test_a_record_that_cannot_be_sent_is_named_never_skipped(body: dict[str, str]) -> None:
    answer = handler(stream(Record(Key("message#x", "mail"), body, outbox="mail")), None, Sent())
    assert answer["batchItemFailures"] == [{"itemIdentifier": "100"}]


def test_a_record_of_a_newer_version_is_named() -> None:
    newer = Record(Key("message#x", "mail"), {}, outbox="mail", version=99)
    assert handler(stream(newer), None, Sent())["batchItemFailures"] == [{"itemIdentifier": "100"}]
