"""check_retired: keeps the stacks from being deleted before the stage was given back. A custom resource."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from governor.shell.cloudformation import ResourceRequest, Status, answer, compose, put
from governor.shell.environment import CheckRetiredEnvironment, read_environment
from governor.shell.retirement import NotRetiredError, RetirementDeps, carry_out, physical_id, retirement_deps
from governor.shell.telemetry import Telemetry


def handler(event: Mapping[str, Any], context: object, deps: RetirementDeps | None = None) -> dict[str, Any]:
    """Answer one request of CloudFormation. Raises only where the answer cannot be delivered."""
    request = ResourceRequest.model_validate(event)
    telemetry = Telemetry("check_retired", os.environ.get("GOVERNOR_STAGE", "unknown"))
    broken = False
    try:
        reason = carry_out(request, lambda: deps or retirement_deps(read_environment(CheckRetiredEnvironment)))
        status = Status.SUCCESS
    except NotRetiredError as error:
        status, reason = Status.FAILED, str(error)
    except Exception as error:  # whatever happened: CloudFormation waits until it is told
        telemetry.logger.exception("it is not known whether the stage is retired")
        broken, status = True, Status.FAILED
        reason = f"It could not be read whether the stage is retired; try again. {type(error).__name__}: {error}"
    content = compose(request, physical_id(request, done=status is Status.SUCCESS), status, reason, {})
    telemetry.logger.info("answered CloudFormation", extra={"request": request.request_type, "answer": content})
    answer(request, content, deps.send if deps else put)
    if not broken:
        telemetry.complete()
    return content
