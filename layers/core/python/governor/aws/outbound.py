"""Ways out: SNS topics for people and chat, EventBridge for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SOURCE = "governor"


class AwsOutbound:
    """`Outbound` on SNS and EventBridge. `topics` maps a severity to a topic ARN."""

    def __init__(self, sns: Any, events: Any, topics: Mapping[str, str], slack_topic: str, bus: str) -> None:
        self._sns = sns
        self._events = events
        self._topics = dict(topics)
        self._slack_topic = slack_topic
        self._bus = bus

    def mail(self, severity: str, subject: str, body: str) -> None:
        """Publish to the topic of a severity."""
        self._sns.publish(TopicArn=self._topics[severity], Subject=subject, Message=body)

    def slack(self, title: str, text: str) -> None:
        """Publish in the custom-notification form of Amazon Q Developer in chat applications."""
        note = {
            "version": "1.0",
            "source": "custom",
            "content": {"textType": "client-markdown", "title": title, "description": text},
        }
        self._sns.publish(TopicArn=self._slack_topic, Message=json.dumps(note))

    def event(self, detail_type: str, detail: Mapping[str, Any]) -> None:
        """Put an event on the project's bus. Raises RuntimeError when the bus refuses the entry."""
        entry = {
            "Source": SOURCE,
            "DetailType": detail_type,
            "Detail": json.dumps(detail, sort_keys=True),
            "EventBusName": self._bus,
        }
        answer = self._events.put_events(Entries=[entry])
        if answer.get("FailedEntryCount"):
            failed = answer["Entries"][0]
            why = f"{failed.get('ErrorCode')}: {failed.get('ErrorMessage')}"
            raise RuntimeError(f"the bus refused {detail_type}: {why}")
