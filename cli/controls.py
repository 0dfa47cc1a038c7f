"""Parameters below `control/` that people write to overrule: listing, writing and lifting them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cli.account import aws
from cli.errors import CliError

if TYPE_CHECKING:
    from cli.parameters import Version
    from cli.stage import Stage
    from governor.domain.controls import Controls

MAX_CHARACTERS = 4096
"""A standard parameter holds so many (AWS Systems Manager, "Parameter tiers")."""


def read_controls(stage: Stage, now: datetime) -> Controls:
    """Every keep, override and the pause. Raises CliError where they cannot be read."""
    from governor.aws.parameter_store import ControlParameters
    from governor.domain.controls import parse_controls

    texts = ControlParameters(aws("ssm", stage.home_region), stage.name).read()
    if texts is None:
        raise CliError(
            f"The parameters below {stage.parameter('control')} cannot be read, which the Governor takes for a pause; "
            "use credentials that may read them (the Reader policy of the stage)."
        )
    return parse_controls(texts, now)


def write_control(stage: Stage, name: str, text: str, description: str) -> Version | None:
    """Write one; what it held before. Raises CliError for a text that Parameter Store does not take."""
    from cli.parameters import overwrite

    if len(text) > MAX_CHARACTERS or not text.isprintable():
        raise CliError(
            f"{stage.parameter(name)} cannot hold that text; write at most {MAX_CHARACTERS} printable characters."
        )
    return overwrite(stage, name, text, description=description).before


def lift_control(stage: Stage, name: str) -> Version | None:
    """Delete one; what it held, None where there was none."""
    from botocore.exceptions import ClientError

    from cli.parameters import read_history

    versions = read_history(stage, name)
    try:
        aws("ssm", stage.home_region).delete_parameter(Name=stage.parameter(name))
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
    return versions[-1] if versions else None


def describe_version(version: Version | None) -> Mapping[str, Any] | None:
    """What a parameter held, for JSON."""
    from cli.terminal import iso

    return None if version is None else {"text": version.text, "by": version.by, "at": iso(version.at)}


def show_change(screen: Any, parameter: str, before: Version | None, after: str | None) -> None:
    """What a parameter held and holds."""
    from cli.terminal import clock, who

    was = "nothing" if before is None else f"{before.text} (written {clock(before.at)} by {who(before.by)})"
    screen.print(parameter, style="strong", markup=False)
    screen.print(f"  was: {was}", markup=False)
    screen.print(f"  is:  {after if after is not None else 'deleted'}", markup=False)
