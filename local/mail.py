"""What people and endpoints outside would have got: every SNS message to e-mail, HTTP and SMS subscribers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Mail:
    """One message to one subscriber outside. `at` is the virtual time in ISO form; `protocol` is SNS's word."""

    at: str
    protocol: str
    to: str
    topic_arn: str
    subject: str
    body: str

    def to_dict(self) -> dict[str, str]:
        """The mail as plain JSON."""
        return asdict(self)


class Mailbox:
    """Keeps every mail, in the order sent."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._guard = threading.Lock()
        self._mails: list[Mail] = []

    def add(self, *, protocol: str, to: str, topic_arn: str, subject: str, body: str) -> None:
        """Keep one mail; an empty subject becomes what SNS writes then."""
        mail = Mail(self._now().isoformat(), protocol, to, topic_arn, subject or "AWS Notification Message", body)
        with self._guard:
            self._mails.append(mail)

    def all(self) -> list[Mail]:
        """Every mail so far."""
        with self._guard:
            return list(self._mails)
