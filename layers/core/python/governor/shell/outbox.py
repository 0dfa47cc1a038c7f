"""The way out: each record of the outbox becomes exactly one call, in the order of the table's stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from governor.aws.errors import AWS_ERRORS, error_sentence
from governor.aws.state_table import record_of_item
from governor.ports import Outbound, Record, UnreadableError


@dataclass(frozen=True, slots=True)
class SendReport:
    """What was sent, and the stream position of the first record that was not (None: all were)."""

    sent: tuple[str, ...]
    failed_at: str | None = None
    error: str = ""


def send_all(stream_records: Sequence[Mapping[str, Any]], out: Outbound) -> SendReport:
    """Send records in order up to the first that fails; the stream delivers that one and its successors again."""
    sent: list[str] = []
    for item in stream_records:
        image = item.get("dynamodb", {}).get("NewImage")
        position = str(item.get("dynamodb", {}).get("SequenceNumber", ""))
        if not image or "outbox" not in image:
            continue
        try:
            record = record_of_item(image)
            if item.get("eventName") == "INSERT" and send(record, out):
                sent.append(f"{record.outbox}:{record.key.pk}")
        except (*AWS_ERRORS, UnreadableError, RuntimeError, ValueError, KeyError) as error:
            return SendReport(tuple(sent), position, error_sentence(error))
    return SendReport(tuple(sent))


CHAT_CHARACTERS = 2500


def _for_chat(text: str) -> str:
    """The beginning of a mail, cut at a line; chat is for a glance."""
    if len(text) <= CHAT_CHARACTERS:
        return text
    return text[:CHAT_CHARACTERS].rpartition("\n")[0] + "\n... (the mail has the rest)"


def send(record: Record, out: Outbound) -> bool:
    """Send one record; False for the heartbeat, which is sent nowhere."""
    body = record.body
    if record.outbox == "mail":
        out.mail(body["severity"], body["subject"], body["body"])
    elif record.outbox == "slack":
        out.slack(body["subject"], _for_chat(body["body"]))
    elif record.outbox == "event":
        out.event(body["detail_type"], body["detail"])
    else:
        return False
    return True
