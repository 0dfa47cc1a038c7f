"""Items whose time to live is over, removed once a virtual hour."""

from __future__ import annotations

from datetime import datetime

from local.emulator import Emulator
from local.patching import relied_on


class Expiry:
    """Takes the place of the emulator's own timer, which runs on the wall clock. On AWS removal may take two days."""

    def __init__(self, emulator: Emulator) -> None:
        self._dynamodb = emulator.dynamodb
        self._remove = relied_on(emulator.dynamodb, "_remove_item", ("table", "pk_val", "sk_val"))
        self._key_value = relied_on(emulator.dynamodb, "_extract_key_val", ("attr",))

    def run_minute(self, minute: datetime) -> None:
        """Remove what has expired, at full hours only."""
        if minute.minute:
            return
        with self._dynamodb._lock:
            for (account_id, region, table_name), setting in list(self._dynamodb._ttl_settings.all_items()):
                table = self._dynamodb._tables.get_scoped(account_id, region, table_name)
                if setting.get("TimeToLiveStatus") != "ENABLED" or not table:
                    continue
                for key, sort_key in self._expired(table, setting["AttributeName"], minute.timestamp()):
                    self._remove(table, key, sort_key)

    def _expired(
        self, table: dict[str, dict[str, dict[str, dict[str, object]]]], attribute: str, now: float
    ) -> list[tuple[str, str]]:
        return [
            (key, sort_key)
            for key, items in table["items"].items()
            for sort_key, item in items.items()
            if attribute in item and float(self._key_value(item[attribute])) <= now
        ]
