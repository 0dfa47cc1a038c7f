"""Creates the parameters that a deploy brings: the settings with their first values, and the pause."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from governor.aws.clients import client
from governor.aws.parameter_store import ParameterTree
from governor.domain.pause import format_pause
from governor.domain.settings import SETTINGS, SettingError, SettingSpec
from governor.domain.settings_review import unknown
from governor.ports import Parameters
from governor.shell.cloudformation import Send, put
from governor.shell.environment import SeedSettingsEnvironment
from governor.shell.settings import parse_tree

SECONDS_BETWEEN_CALLS = 0.1
"""Parameter Store takes 40 calls a second for the whole account by default; this stays at 10."""


@dataclass(frozen=True, slots=True)
class Seed:
    """One parameter as it is created, named without `/governor/<stage>/`."""

    name: str
    value: str
    description: str
    allowed_pattern: str


PAUSE = Seed(
    name="control/pause",
    value=format_pause(active=False),
    description=(
        "Holds every stop, release, launch and purchase of the Governor. Write: off | on | on until 2026-12-01T06:00Z "
        "(UTC), each optionally followed by: because <why>. Missing or unreadable counts as on."
    ),
    allowed_pattern=(
        r"^([oO][fF][fF]|[oO][nN]( until 20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9](:[0-5][0-9])?"
        r"(Z|[+-][0-2][0-9]:[0-5][0-9])?)?)( because .{1,500})?\s*$"
    ),
)


class SeedError(Exception):
    """The first values cannot be used. The text says which and why."""


class CreatableParameters(Parameters, Protocol):
    """Parameter Store below `/governor/<stage>/`, where what is missing may be created."""

    def create(self, name: str, value: str, *, description: str, allowed_pattern: str) -> bool:
        """Create a parameter by its full name; False where there is one already. Never overwrites."""
        ...


@dataclass(frozen=True, slots=True)
class SeedDeps:
    """What the seeder works with. `sleep` takes seconds."""

    stage: str
    parameters: CreatableParameters
    initial_settings: Mapping[str, str]
    sleep: Callable[[float], None] = time.sleep
    send: Send = put


@dataclass(frozen=True, slots=True)
class SeedReport:
    """Parameters that were created, and those that stood there already and were left as they are."""

    created: tuple[str, ...]
    kept: tuple[str, ...]


def seeds(initial_settings: Mapping[str, str]) -> tuple[Seed, ...]:
    """Every parameter of a stage with its first value. Raises SeedError where the values cannot be used together."""
    errors: list[SettingError] = []
    values = {spec.name: spec.default for spec in SETTINGS}
    for name, value in initial_settings.items():
        if name in values:
            values[name] = value
        else:
            errors.append(unknown(name, value))
    errors.extend(parse_tree(values)[1])
    if errors:
        raise SeedError("Initial settings cannot be used. " + " ".join(f"{error.sentence}." for error in errors))
    settings = [Seed(spec.name, values[spec.name], _describe(spec), spec.allowed_pattern) for spec in SETTINGS]
    return (*settings, PAUSE)


def _describe(spec: SettingSpec) -> str:
    return f"{spec.description} Unit: {spec.unit}. Must be {spec.rule}."


def seed(deps: SeedDeps) -> SeedReport:
    """Create what is missing, slowly. Raises SeedError, UnreadableError, or botocore's ClientError; may be repeated."""
    root = f"/governor/{deps.stage}/"
    wanted = seeds(deps.initial_settings)
    there = {parameter.name for parameter in deps.parameters.read_tree()}
    created: list[str] = []
    for one in wanted:
        name = root + one.name
        if name in there:
            continue
        deps.sleep(SECONDS_BETWEEN_CALLS)
        if deps.parameters.create(name, one.value, description=one.description, allowed_pattern=one.allowed_pattern):
            created.append(name)
    return SeedReport(tuple(created), tuple(root + one.name for one in wanted if root + one.name not in created))


def seed_deps(environment: SeedSettingsEnvironment) -> SeedDeps:
    """Dependencies of `seed_settings` in its environment."""
    parameters = ParameterTree(client("ssm"), environment.stage)
    return SeedDeps(environment.stage, parameters, environment.initial_settings)
