"""What the emulator's CloudFormation leaves out of a DynamoDB table: encryption, time to live, backups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local.completion import complete_type
from local.emulator import Emulator
from local.patching import relied_on

TABLE_TYPES = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")

Properties = Mapping[str, Any]


class Tables:
    """Adds to the create and the update of both table types."""

    def __init__(self, emulator: Emulator) -> None:
        self._dynamodb = emulator.dynamodb
        self._region = relied_on(emulator.responses, "get_region", ())
        self._describe_encryption = relied_on(emulator.dynamodb, "_sse_description_from_spec", ("spec",))
        handlers = emulator.provisioners._RESOURCE_HANDLERS
        for resource_type in TABLE_TYPES:
            complete_type(handlers, resource_type, self._complete)

    def _complete(self, name: str, properties: Properties) -> None:
        replica = self._replica(properties)
        encryption = properties.get("SSESpecification") or {}
        if encryption.get("SSEEnabled"):
            key = encryption.get("KMSMasterKeyId") or (replica.get("SSESpecification") or {}).get("KMSMasterKeyId")
            self._dynamodb._tables[name]["SSEDescription"] = self._describe_encryption(
                {"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": key}
            )
        expiry = properties.get("TimeToLiveSpecification")
        if expiry:
            self._dynamodb._ttl_settings[name] = {
                "TimeToLiveStatus": "ENABLED" if expiry["Enabled"] else "DISABLED",
                "AttributeName": expiry["AttributeName"],
            }
        backups = properties.get("PointInTimeRecoverySpecification") or replica.get("PointInTimeRecoverySpecification")
        if backups:
            self._dynamodb._pitr_settings[name] = bool(backups["PointInTimeRecoveryEnabled"])

    def _replica(self, properties: Properties) -> Mapping[str, Any]:
        """The part of a global table that is this Region's."""
        replicas = properties.get("Replicas") or []
        return next((one for one in replicas if one["Region"] == self._region()), {})
