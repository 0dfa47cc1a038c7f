"""Parameter Store: the tree of settings, who wrote what, the controls, and creating what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from governor.aws.errors import AWS_ERRORS
from governor.ports import Parameter, ParameterChange, UnreadableError

PAGE_SIZE = 10
HISTORY_PAGE_SIZE = 50
"""Limits of GetParametersByPath and GetParameterHistory."""


class ParameterTree:
    """`Parameters` below `/governor/<stage>`."""

    def __init__(self, client: Any, stage: str) -> None:
        self._client = client
        self._root = f"/governor/{stage}"

    def read_tree(self) -> tuple[Parameter, ...]:
        """Every parameter below the root. Raises UnreadableError when throttled or denied.

        A page may be short or empty and still have a token: the end is where there is none.
        """
        request: dict[str, Any] = {"Path": self._root, "Recursive": True, "MaxResults": PAGE_SIZE}
        found: dict[str, Parameter] = {}
        try:
            for page in _pages(self._client.get_parameters_by_path, request):
                for item in page.get("Parameters", ()):
                    found[item["Name"]] = _parameter(item)
        except AWS_ERRORS as error:
            raise UnreadableError(f"{self._root} cannot be read: {error}") from error
        return tuple(found[name] for name in sorted(found))

    def last_change(self, name: str) -> ParameterChange | None:
        """Newest entry of a parameter's history; None where it cannot be had."""
        request: dict[str, Any] = {"Name": name, "MaxResults": HISTORY_PAGE_SIZE}
        versions: dict[int, Mapping[str, Any]] = {}
        try:
            for page in _pages(self._client.get_parameter_history, request):
                versions.update({int(item["Version"]): item for item in page.get("Parameters", ())})
        except AWS_ERRORS:
            return None
        if not versions:
            return None
        newest = versions[max(versions)]
        before = versions.get(max(versions) - 1)
        return ParameterChange(
            by=str(newest.get("LastModifiedUser", "")),
            at=newest["LastModifiedDate"],
            before=None if before is None else str(before["Value"]),
        )

    def create(self, name: str, value: str, *, description: str, allowed_pattern: str) -> bool:
        """Create a parameter; False where there is one already. Never overwrites. Raises botocore's ClientError."""
        try:
            self._client.put_parameter(
                Name=name,
                Value=value,
                Description=description,
                AllowedPattern=allowed_pattern,
                Type="String",
                Tier="Standard",
                Overwrite=False,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ParameterAlreadyExists":
                return False
            raise
        return True


class ControlParameters:
    """`ControlTexts` at `/governor/<stage>/control`."""

    def __init__(self, client: Any, stage: str) -> None:
        self._client = client
        self._root = f"/governor/{stage}/control"

    def read(self) -> Mapping[str, str] | None:
        """Name without the root -> text, read uncached; None where they cannot be read, which counts as paused.

        A page may be short or empty and still have a token: the end is where there is none.
        """
        request: dict[str, Any] = {"Path": self._root, "Recursive": True, "MaxResults": PAGE_SIZE}
        texts: dict[str, str] = {}
        try:
            for page in _pages(self._client.get_parameters_by_path, request):
                for item in page.get("Parameters", ()):
                    texts[str(item["Name"]).removeprefix(f"{self._root}/")] = str(item["Value"])
        except AWS_ERRORS:
            return None
        return texts


def _pages(call: Any, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    answer = call(**request)
    yield answer
    while answer.get("NextToken"):
        answer = call(**request, NextToken=answer["NextToken"])
        yield answer


def _parameter(item: Mapping[str, Any]) -> Parameter:
    return Parameter(
        name=str(item["Name"]),
        value=str(item["Value"]),
        version=int(item["Version"]),
        changed_at=item["LastModifiedDate"],
    )
