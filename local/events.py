"""Events that AWS services put on the default bus and the emulator does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from local.emulator import Emulator
from local.patching import relied_on


class EventRefusedError(RuntimeError):
    """The bus did not take an event."""


class Bus:
    """The default event bus of one account, per Region."""

    def __init__(self, emulator: Emulator, account_id: str) -> None:
        self._put_events = relied_on(emulator.events, "_put_events", ("data", "allow_aws_source"))
        self._request_scope = relied_on(emulator.responses, "request_scope", ("account_id", "region"))
        self._account_id = account_id

    def put(
        self,
        *,
        source: str,
        detail_type: str,
        detail: Mapping[str, Any],
        region: str,
        resources: Sequence[str] = (),
    ) -> None:
        """Put one event; its targets are queued before this returns. Raises EventRefusedError."""
        entry = {
            "Source": source,
            "DetailType": detail_type,
            "Detail": json.dumps(detail),
            "Resources": list(resources),
        }
        with self._request_scope(self._account_id, region):
            status, _, body = self._put_events({"Entries": [entry]}, allow_aws_source=True)
        answer = json.loads(body)
        if status != 200 or answer["FailedEntryCount"]:
            raise EventRefusedError(f"{source} {detail_type}: {answer}")
