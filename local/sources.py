"""Everything of the emulator that starts a function by itself, led into the one delivery queue."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Mapping
from typing import Any

from local.deliveries import DeliveryQueue
from local.emulator import Emulator
from local.mail import Mailbox
from local.patching import relied_on, replace

# What the rule or schedule that is being dispatched calls itself, and its dead-letter queue.
_dispatching: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar("_dispatching", default=("", ""))


class AsynchronousSources:
    """Replaces each place where the emulator starts a thread for a delivery."""

    def __init__(self, emulator: Emulator, deliveries: DeliveryQueue, mailbox: Mailbox) -> None:
        self._deliveries = deliveries
        self._mailbox = mailbox
        self._matches_filter = relied_on(
            emulator.sns, "_matches_filter_policy", ("sub", "message_attributes", "message")
        )
        self._build_envelope = relied_on(
            emulator.sns, "_build_envelope", ("topic_arn", "msg_id", "message", "subject", "message_attributes", "raw")
        )
        self._resolve_message = relied_on(
            emulator.sns, "_resolve_message_for_protocol", ("message", "message_structure", "protocol")
        )
        self._topic = relied_on(emulator.sns, "_topic_by_arn_any_scope", ("topic_arn",))
        self._deliver_to_queue = relied_on(
            emulator.sns,
            "_deliver_to_sqs",
            (
                "endpoint",
                "envelope",
                "raw",
                "raw_message",
                "message_group_id",
                "message_dedup_id",
                "message_attributes",
                "topic_arn",
            ),
        )
        replace(
            emulator.sns,
            "_fanout",
            (
                "topic_arn",
                "msg_id",
                "message",
                "subject",
                "message_structure",
                "message_attributes",
                "message_group_id",
                "message_dedup_id",
            ),
            self._fan_out,
        )
        self._invoke_target = replace(
            emulator.events, "_invoke_target", ("target", "event", "rule", "view"), self._invoke_rule_target
        )
        replace(emulator.events, "_dispatch_to_lambda", ("arn", "payload"), self._dispatch_rule_to_function)
        replace(emulator.lambdas, "invoke_async_with_retry", ("func", "event"), self._invoke_asynchronously)
        # The emulator's own clocks and pollers stay off: the virtual clock and the queue drive what they drove.
        replace(emulator.events, "start_scheduler", (), _do_nothing)
        replace(emulator.scheduler, "start_scheduler", (), _do_nothing)
        replace(emulator.lambdas, "_ensure_poller", (), _do_nothing)

    def _fan_out(
        self,
        topic_arn: str,
        msg_id: str,
        message: str,
        subject: str,
        message_structure: str = "",
        message_attributes: Mapping[str, Any] | None = None,
        message_group_id: str = "",
        message_dedup_id: str = "",
    ) -> None:
        """Deliver one published message to each confirmed subscriber, in the order they subscribed."""
        topic = self._topic(topic_arn)
        attributes = message_attributes or {}
        for subscription in topic["subscriptions"] if topic else ():
            protocol, endpoint = subscription["protocol"], subscription["endpoint"]
            text = self._resolve_message(message, message_structure, protocol)
            if not subscription.get("confirmed") or not self._matches_filter(subscription, attributes, text):
                continue
            if protocol == "lambda":
                self._queue_notification(subscription, topic_arn, msg_id, text, subject, attributes)
            elif protocol == "sqs":
                is_raw = (subscription.get("attributes") or {}).get("RawMessageDelivery") == "true"
                envelope = self._build_envelope(topic_arn, msg_id, text, subject, attributes, is_raw)
                self._deliver_to_queue(
                    endpoint, envelope, is_raw, text, message_group_id, message_dedup_id, attributes, topic_arn
                )
            else:
                self._mailbox.add(protocol=protocol, to=endpoint, topic_arn=topic_arn, subject=subject, body=text)

    def _queue_notification(
        self,
        subscription: Mapping[str, Any],
        topic_arn: str,
        message_id: str,
        text: str,
        subject: str,
        attributes: Mapping[str, Any],
    ) -> None:
        envelope = self._build_envelope(topic_arn, message_id, text, subject, attributes, False)
        record = {
            "EventVersion": "1.0",
            "EventSubscriptionArn": subscription["arn"],
            "EventSource": "aws:sns",
            "Sns": _as_lambda_sees_it(json.loads(envelope)),
        }
        redrive = json.loads((subscription.get("attributes") or {}).get("RedrivePolicy") or "{}")
        self._deliveries.add(
            subscription["endpoint"],
            {"Records": [record]},
            source=f"sns {topic_arn}",
            dead_letter_arn=redrive.get("deadLetterTargetArn", ""),
        )

    def _invoke_rule_target(
        self, target: Mapping[str, Any], event: Any, rule: Mapping[str, Any], view: Any = None
    ) -> None:
        dead_letter_arn = (target.get("DeadLetterConfig") or {}).get("Arn", "")
        token = _dispatching.set((f"rule {rule.get('Arn', '')}", dead_letter_arn))
        try:
            self._invoke_target(target, event, rule, view)
        finally:
            _dispatching.reset(token)

    def _dispatch_rule_to_function(self, arn: str, payload: str) -> None:
        source, dead_letter_arn = _dispatching.get()
        self._deliveries.add(arn, json.loads(payload), source=source, dead_letter_arn=dead_letter_arn)

    def _invoke_asynchronously(self, func: Mapping[str, Any], event: Any) -> None:
        config = func.get("config") or func
        self._deliveries.add(config["FunctionArn"], event, source="invoke")


def _do_nothing() -> None:
    """Take the place of something that must not start."""


def _as_lambda_sees_it(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """A notification in the form Lambda gets it: other key names for the URLs, and always a subject and attributes."""
    seen = {name: value for name, value in envelope.items() if name not in ("SigningCertURL", "UnsubscribeURL")}
    seen.setdefault("Subject", None)
    seen.setdefault("MessageAttributes", {})
    seen["SigningCertUrl"] = envelope.get("SigningCertURL", "")
    seen["UnsubscribeUrl"] = envelope.get("UnsubscribeURL", "")
    return seen
