"""What a check of `governor doctor` finds, and what the checks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cli.account import aws
from cli.errors import DENIED, CliError, sentence_of

if TYPE_CHECKING:
    from cli.stage import Scope, Stage


class Result(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """The end of one check, and a sentence that says what to do."""

    result: Result
    words: str


@dataclass
class Checkup:
    """What the checks of one stage work with; what several need is read once."""

    stage: Stage
    now: datetime
    _scope: Scope | None = None
    _instances: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def scope(self) -> Scope:
        """What the functions look at. Raises CliError where the deploy does not say it."""
        from cli.stage import find_scope

        if self._scope is None:
            self._scope = find_scope(self.stage)
        return self._scope

    @property
    def partition(self) -> str:
        """The partition of the account, such as `aws`."""
        return self.stage.output("PageTopicArn").split(":")[1]

    def instances(self, region: str) -> list[Mapping[str, Any]]:
        """Items of DescribeInstances of what this stage manages in a Region, running or stopped."""
        if region not in self._instances:
            filters = [
                {"Name": "instance-state-name", "Values": ["running", "stopped"]},
                {"Name": f"tag:{self.scope.keys.managed}", "Values": [self.stage.name]},
            ]
            pages = aws("ec2", region).get_paginator("describe_instances").paginate(Filters=filters)
            self._instances[region] = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        return self._instances[region]


Check = Callable[[Checkup], Finding | None]
"""A check; None where there is nothing to check. It may raise whatever AWS answers."""


def ok(words: str) -> Finding:
    """Nothing to do."""
    return Finding(Result.OK, words)


def warn(words: str) -> Finding:
    """Somebody should look at it."""
    return Finding(Result.WARN, words)


def fail(words: str) -> Finding:
    """The Governor cannot do its work, or nobody would hear of it."""
    return Finding(Result.FAIL, words)


def unknown(words: str) -> Finding:
    """It could not be found out."""
    return Finding(Result.UNKNOWN, words)


def look(check: Check, checkup: Checkup) -> Finding | None:
    """Run one check. What cannot be read is unknown, a deploy that lacks something has failed."""
    from pydantic import ValidationError

    from governor.aws.errors import AWS_ERRORS
    from governor.ports import UnreadableError

    try:
        return check(checkup)
    except CliError as error:
        return fail(str(error))
    except (*AWS_ERRORS, UnreadableError, ValidationError) as error:
        return unknown(sentence_of(error) or str(error))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        what = " ".join(str(error).split())
        return unknown(f"AWS answered what this version does not understand ({type(error).__name__}: {what}).")


def is_denied(error: Exception) -> bool:
    """True where AWS says that the caller may not ask."""
    from governor.aws.errors import error_code

    return error_code(error) in DENIED
