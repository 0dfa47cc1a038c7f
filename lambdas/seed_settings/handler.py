"""seed_settings: creates the parameters that are missing; never overwrites or deletes one. A custom resource."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from governor.shell.cloudformation import ResourceRequest, Status, answer, compose, put
from governor.shell.environment import SeedSettingsEnvironment, read_environment
from governor.shell.seeding import SeedDeps, seed, seed_deps
from governor.shell.telemetry import Telemetry

PHYSICAL_ID = "governor-settings"


def handler(event: Mapping[str, Any], context: object, deps: SeedDeps | None = None) -> dict[str, Any]:
    """Answer one request of CloudFormation. Raises only where the answer cannot be delivered."""
    request = ResourceRequest.model_validate(event)
    telemetry = Telemetry("seed_settings", os.environ.get("GOVERNOR_STAGE", "unknown"))
    try:
        reason, data = _carry_out(request, deps)
        status = Status.SUCCESS
    except Exception as error:  # whatever happened: CloudFormation waits until it is told
        telemetry.logger.exception("the settings could not be seeded")
        status, reason, data = Status.FAILED, f"{type(error).__name__}: {error}", {}
    content = compose(request, PHYSICAL_ID, status, reason, data)
    telemetry.logger.info("answered CloudFormation", extra={"request": request.request_type, "answer": content})
    answer(request, content, deps.send if deps else put)
    if status is Status.SUCCESS:
        telemetry.complete()
    return content


def _carry_out(request: ResourceRequest, deps: SeedDeps | None) -> tuple[str, dict[str, str]]:
    if request.request_type == "Delete":
        stage = os.environ.get("GOVERNOR_STAGE", "<stage>")
        return f"All parameters below /governor/{stage} are kept: they hold what operators decided.", {}
    report = seed(deps or seed_deps(read_environment(SeedSettingsEnvironment)))
    counts = {"Created": str(len(report.created)), "Kept": str(len(report.kept))}
    return f"{counts['Created']} parameters created, {counts['Kept']} kept as they are.", counts
