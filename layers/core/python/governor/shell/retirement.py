"""May the stacks of a stage go? Only once people have given back what the Governor changed, or insist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from governor.aws.clients import client
from governor.aws.retired_marker import RetiredMarker
from governor.shell.cloudformation import ResourceRequest, Send, put
from governor.shell.environment import CheckRetiredEnvironment

PHYSICAL_ID = "governor-retired-check"
"""What the resource is called once it was created; a Delete of any other name cleans up after a failed creation."""

NOT_CREATED_ID = "governor-retired-check-not-created"


MAX_NAMED = 10
"""CloudFormation shows a reason of about 1,000 characters."""


class NotRetiredError(Exception):
    """The stacks may not go. The text says why and what to do."""


class Marker(Protocol):
    """The record that says that a stage was given back."""

    def exists(self) -> bool:
        """True once `governor retire` has ended."""
        ...

    def stopped_since(self) -> tuple[str, ...]:
        """Instances that were stopped since then and are not back."""
        ...

    def remove(self) -> None:
        """Forget it; no error where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class RetirementDeps:
    """What the check works with. `forced` lets the stacks go in any case."""

    stage: str
    marker: Marker
    forced: bool = False
    send: Send = put


def retirement_deps(environment: CheckRetiredEnvironment) -> RetirementDeps:
    """Dependencies of `check_retired` in its environment."""
    marker = RetiredMarker(client("dynamodb"), environment.table_name)
    return RetirementDeps(environment.stage, marker, environment.force_destroy)


def carry_out(request: ResourceRequest, make_deps: Callable[[], RetirementDeps]) -> str:
    """Do what CloudFormation asks and say so. Raises NotRetiredError where the stacks may not go.

    A forced deletion, and one that cleans up after a failed creation, read nothing: both work without the table.
    """
    if request.request_type == "Delete":
        return _allow_deletion(request, make_deps)
    if request.request_type == "Create":
        make_deps().marker.remove()
        return "The stage counts as in use."
    return "Nothing to do."


def physical_id(request: ResourceRequest, *, done: bool) -> str:
    """The name of the resource in the answer; a creation that failed must be told from one that did not."""
    if request.request_type == "Create":
        return PHYSICAL_ID if done else NOT_CREATED_ID
    return request.physical_id or PHYSICAL_ID


def _allow_deletion(request: ResourceRequest, make_deps: Callable[[], RetirementDeps]) -> str:
    if request.physical_id not in ("", PHYSICAL_ID):
        return "The resource was never created; there is nothing to give back."
    deps = make_deps()
    if deps.forced:
        return "The stage is deleted as it stands, since it was deployed with force-destroy."
    if not deps.marker.exists():
        raise NotRetiredError(refusal(deps.stage))
    stopped = deps.marker.stopped_since()
    if stopped:
        shown = ", ".join(stopped[:MAX_NAMED]) + (
            f" and {len(stopped) - MAX_NAMED} more" if stopped[MAX_NAMED:] else ""
        )
        raise NotRetiredError(f"Since stage {deps.stage} was retired it has stopped {shown}. {refusal(deps.stage)}")
    return "The stage is retired."


def refusal(stage: str) -> str:
    """Why the stacks may not go, and what to do.

    It names the one stack to deploy: after a refusal CloudFormation updates the stack of the check no more.
    """
    return (
        f"Stage {stage} is not retired: machines may still be stopped and groups lowered by the Governor. "
        "Run `governor retire --plan`, then `governor retire --apply`, and destroy again; "
        f"or deploy Governor-{stage}-Control once with -c force-destroy=true to delete it as it stands."
    )
