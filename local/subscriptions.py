"""E-mail subscriptions of SNS that wait for somebody to confirm them, as long as a test wants that."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

from local.emulator import Emulator
from local.patching import relied_on, replace

Answer = tuple[int, dict[str, str], bytes]

_CONFIRMED_BY_PEOPLE = ("email", "email-json")


class Subscriptions:
    """The emulator confirms e-mail at once; here it can be taken back, and lists show it as AWS does."""

    def __init__(self, emulator: Emulator) -> None:
        self._topics = emulator.sns._topics
        self._count_anew = relied_on(emulator.sns, "_refresh_subscription_counts", ("topic",))
        for name in ("_list_subscriptions", "_list_subscriptions_by_topic"):
            self._show_pending(emulator.sns, name)

    def set_confirmed(self, confirmed: bool, endpoint: str) -> int:
        """Confirm, or not, every e-mail subscription whose address matches a pattern; returns how many changed."""
        changed = 0
        for topic in self._all_topics():
            for subscription in topic["subscriptions"]:
                is_meant = subscription["protocol"] in _CONFIRMED_BY_PEOPLE
                if is_meant and fnmatch.fnmatchcase(subscription["endpoint"], endpoint):
                    changed += subscription["confirmed"] != confirmed
                    subscription["confirmed"] = confirmed
                    subscription["attributes"]["PendingConfirmation"] = "false" if confirmed else "true"
            self._count_anew(topic)
        return changed

    def _all_topics(self) -> list[dict[str, Any]]:
        """Of every Region; the emulator's own iteration sees that of a request alone."""
        return list(self._topics._data.values())

    def _show_pending(self, sns: Any, name: str) -> None:
        def list_subscriptions(params: Mapping[str, Any]) -> Answer:
            status, headers, body = original(params)
            for topic in self._all_topics():
                for subscription in topic["subscriptions"]:
                    if not subscription["confirmed"]:
                        arn = f"<SubscriptionArn>{subscription['arn']}</SubscriptionArn>".encode()
                        body = body.replace(arn, b"<SubscriptionArn>PendingConfirmation</SubscriptionArn>")
            return status, headers, body

        original: Callable[..., Answer] = replace(sns, name, ("params",), list_subscriptions)
