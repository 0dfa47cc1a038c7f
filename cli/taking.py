"""Setting what a person has agreed to, and nothing that changed while the question stood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from cli.stage import Stage
    from governor.domain.taken import Change, Place, Value, Wanted


def take_as_shown(
    stage: Stage, wanted: Sequence[Wanted], shown: Mapping[Place, Value], *, now: datetime, by: str, why: str
) -> tuple[Change, ...]:
    """Set it, recorded; what was changed. Raises CliError where a place no longer holds what was shown."""
    from cli.errors import CliError
    from cli.places import AwsPlaces
    from governor.shell.taken import ChangedMeanwhileError, take

    try:
        return take(stage.store(), AwsPlaces(), wanted, shown=shown, now=now, by=by, why=why)
    except ChangedMeanwhileError as error:
        raise CliError(
            f"This changed while the question stood: {error}. It is left as it is; run the command again to see "
            "what is set and what is not."
        ) from error
