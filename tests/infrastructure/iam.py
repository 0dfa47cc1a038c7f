"""A small IAM: what a policy document answers to a request. Knows what our policies use, and refuses the rest."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Document = Mapping[str, Any]


class Answer(StrEnum):
    """The three answers of IAM."""

    ALLOWED = "allowed"
    DENIED = "explicitly denied"
    NOT_ALLOWED = "not allowed"


@dataclass(frozen=True, slots=True)
class Request:
    """One API call: condition keys that are not in `context` are absent from the request."""

    action: str
    resource: str
    context: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    service: str = ""
    principal: str = ""


def ask(documents: Iterable[Document], request: Request) -> Answer:
    """What IAM answers when these documents apply to the request."""
    effects = {
        statement["Effect"]
        for document in documents
        for statement in document["Statement"]
        if _applies(statement, request)
    }
    if "Deny" in effects:
        return Answer.DENIED
    return Answer.ALLOWED if "Allow" in effects else Answer.NOT_ALLOWED


def as_list(value: Any) -> list[Any]:
    """IAM writes one value without its list."""
    return list(value) if isinstance(value, list) else [value]


def _applies(statement: Mapping[str, Any], request: Request) -> bool:
    known = {"Sid", "Effect", "Action", "Resource", "Condition", "Principal"}
    if not set(statement) <= known:
        raise NotImplementedError(f"unknown elements in {statement}")
    return (
        any(fnmatch.fnmatchcase(request.action.lower(), action.lower()) for action in as_list(statement["Action"]))
        and any(fnmatch.fnmatchcase(request.resource, resource) for resource in as_list(statement["Resource"]))
        and ("Principal" not in statement or _is_principal(statement["Principal"], request))
        and all(
            _holds(operator, request.context.get(key), as_list(expected))
            for operator, tests in statement.get("Condition", {}).items()
            for key, expected in tests.items()
        )
    )


def _is_principal(principal: Mapping[str, Any] | str, request: Request) -> bool:
    if principal == "*":
        return True
    assert isinstance(principal, Mapping)
    if set(principal) == {"Service"}:
        return request.service in as_list(principal["Service"])
    if set(principal) == {"AWS"}:
        return any(name in ("*", request.principal) for name in as_list(principal["AWS"]))
    raise NotImplementedError(f"unknown principal {principal}")


def _holds(operator: str, actual: str | Sequence[str] | None, expected: list[str]) -> bool:
    if operator == "Null":
        return (actual is None) == (expected == ["true"])
    if operator in ("ForAllValues:StringEquals", "ForAllValues:StringLike"):
        values = [] if actual is None else [actual] if isinstance(actual, str) else list(actual)
        if operator == "ForAllValues:StringEquals":
            return set(values) <= set(expected)
        return all(any(fnmatch.fnmatchcase(value, pattern) for pattern in expected) for value in values)
    if actual is not None and not isinstance(actual, str):
        raise NotImplementedError(f"{operator} on several values")
    match operator:
        case "StringEquals" | "Bool":
            return actual is not None and actual in expected
        case "StringNotEquals":
            return actual is None or actual not in expected
        case "ArnLike" | "ArnEquals" | "StringLike":
            return actual is not None and any(fnmatch.fnmatchcase(actual, pattern) for pattern in expected)
        case "ArnNotEquals":
            return actual is None or not any(fnmatch.fnmatchcase(actual, pattern) for pattern in expected)
        case _:
            raise NotImplementedError(f"unknown operator {operator}")
