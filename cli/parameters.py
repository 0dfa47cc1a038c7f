"""Parameters as people see and write them: with their history, and without losing what guards them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.account import aws
from cli.errors import CliError
from cli.stage import Stage

KEPT_ON_OVERWRITE = ("AllowedPattern", "DataType", "Description", "KeyId", "Tier", "Type")
"""PutParameter forgets some of these when an overwrite leaves them out."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a parameter: its text, who wrote it, and when."""

    number: int
    text: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ParameterChange:
    """A parameter before and after it was written; `before` is None where it was missing."""

    name: str
    before: Version | None
    after: str


def read_history(stage: Stage, name: str) -> tuple[Version, ...]:
    """Every kept version of a parameter (at most 100), oldest first; empty where it is missing."""
    return tuple(_version(item) for item in _history_items(stage, name))


def overwrite(stage: Stage, name: str, text: str, *, description: str, allowed_pattern: str = "") -> ParameterChange:
    """Write a parameter, keeping its description, pattern and tier; a missing one is created with those given."""
    from botocore.exceptions import ClientError

    items = _history_items(stage, name)
    kept = {"Type": "String", "Description": description, "AllowedPattern": allowed_pattern}
    if items:
        kept |= {field: items[-1][field] for field in KEPT_ON_OVERWRITE if items[-1].get(field)}
    request = {field: value for field, value in kept.items() if value}
    full_name = stage.parameter(name)
    try:
        aws("ssm", stage.home_region).put_parameter(Name=full_name, Value=text, Overwrite=bool(items), **request)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ParameterPatternMismatchException":
            raise CliError(
                f"Parameter Store does not take {text!r} for {full_name} (allowed pattern "
                f"{request.get('AllowedPattern', '')}); write a value of that form."
            ) from None
        raise
    return ParameterChange(name, _version(items[-1]) if items else None, text)


def _history_items(stage: Stage, name: str) -> list[dict[str, Any]]:
    from botocore.exceptions import ClientError

    pages = aws("ssm", stage.home_region).get_paginator("get_parameter_history")
    try:
        found = [item for page in pages.paginate(Name=stage.parameter(name)) for item in page["Parameters"]]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ParameterNotFound":
            return []
        raise
    return sorted(found, key=lambda item: int(item["Version"]))


def _version(item: dict[str, Any]) -> Version:
    return Version(
        int(item["Version"]), str(item["Value"]), str(item.get("LastModifiedUser", "")), item["LastModifiedDate"]
    )
