"""The stages in `cdk.json`, validated. Imports no CDK, so that builds and checks can read a stage too."""

from __future__ import annotations

import itertools
import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

CDK_JSON = Path(__file__).resolve().parents[1] / "cdk.json"

RUNTIMES = ("python3.11", "python3.12", "python3.13", "python3.14")
ARCHITECTURES = ("arm64", "x86_64")
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3653)
# AWS Budgets: at most ten notifications a budget, the forecast is one of them.
MAX_LADDER_STEPS = 9
# Where CloudFormation makes AWS Budgets (CDK 2.275.0); the home Region holds the budget, further Regions may be any.
HOME_REGIONS = (
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-south-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ca-central-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "me-south-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
)
_PARTITION_BY_PREFIX = {"cn": "aws-cn", "us-gov": "aws-us-gov", "us-iso": "aws-iso", "us-isob": "aws-iso-b"}
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


class StageError(Exception):
    """A stage cannot be used. `problems` holds one sentence each: what, where in cdk.json, what to do."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Keep the sentences; the text of the error is one a line."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def partition_of(region: str) -> str:
    """The AWS partition that a Region belongs to."""
    for prefix, partition in _PARTITION_BY_PREFIX.items():
        if re.match(rf"^{prefix}-[a-z]+-\d+$", region):
            return partition
    return "aws"


def _as_text(value: object) -> object:
    """Numbers may stand unquoted in cdk.json; a parameter holds text."""
    if isinstance(value, bool):
        return value
    return str(value) if isinstance(value, int | float) else value


def _resolve_runtime(value: str) -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}" if value == "host" else value


def _resolve_architecture(value: str) -> str:
    if value != "host":
        return value
    machine = platform.machine().lower()
    if machine not in _MACHINES:
        raise ValueError(f"no Lambda architecture runs on this machine ({machine})")
    return _MACHINES[machine]


def _is_known_runtime(value: str) -> str:
    if value not in RUNTIMES:
        raise ValueError(f"{value} is not a runtime that this app is built for")
    return value


def _is_unique(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError("an entry stands there twice")
    return values


def _is_ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    if any(low >= high for low, high in itertools.pairwise(values)):
        raise ValueError("the steps do not ascend")
    return values


def _is_not_reserved(value: str) -> str:
    if value.lower().startswith("aws:"):
        raise ValueError("aws: is reserved by AWS")
    return value


def _is_retention(value: int) -> int:
    if value not in LOG_RETENTION_DAYS:
        raise ValueError("CloudWatch Logs does not offer that many days")
    return value


Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+$")]
Family = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{1,15}$")]
Email = Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]
# The key becomes part of an IAM condition key, where `*`, `?` and `$` would not be plain text.
TagKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 _.:/=+@-]{1,128}$"), AfterValidator(_is_not_reserved)]
SettingName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)+$")]
SettingText = Annotated[str, BeforeValidator(_as_text), StringConstraints(min_length=1, max_length=4096)]
Percent = Annotated[float, Field(gt=0, le=1000)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


GPU_FAMILIES = (
    "g4ad",
    "g4dn",
    "g5",
    "g5g",
    "g6",
    "g6e",
    "g6f",
    "g7",
    "g7e",
    "gr6",
    "gr6f",
    "p3",
    "p3dn",
    "p4d",
    "p4de",
    "p5",
    "p5e",
    "p5en",
    "p6-b200",
    "p6-b300",
)
"""EC2 families with GPUs, as of 2026-11: what a budget counts unless `families` says otherwise."""


class BudgetConfig(_Section):
    """The AWS budget of a stage."""

    limit_usd: float = Field(
        gt=0, le=10_000_000, description="the limit for one month in US dollars, above 0 and at most 10000000"
    )
    threshold_percents: Annotated[tuple[Percent, ...], AfterValidator(_is_ascending)] = Field(
        min_length=1,
        max_length=MAX_LADDER_STEPS,
        description=(
            f"1 to {MAX_LADDER_STEPS} percentages of the limit, above 0 and ascending, such as [50, 80, 95, 100]"
        ),
    )
    forecast_percent: Percent = Field(
        description="the percentage of the limit at which a forecast gives notice, above 0 and at most 1000"
    )
    families: Annotated[tuple[Family, ...], AfterValidator(_is_unique)] = Field(
        GPU_FAMILIES,
        min_length=1,
        description='the instance families that the budget counts, each once, such as ["p4d", "g4dn"]',
    )


class TagKeys(_Section):
    """The tag keys by which people tell the Governor what it may do."""

    managed: TagKey = Field("governor:managed", description="a tag key of 1 to 128 plain characters")
    criticality: TagKey = Field("governor:criticality", description="a tag key of 1 to 128 plain characters")
    project: TagKey = Field("governor:project", description="a tag key of 1 to 128 plain characters")
    pool: TagKey = Field("governor:pool", description="a tag key of 1 to 128 plain characters")

    @model_validator(mode="after")
    def _differ(self) -> Self:
        # IAM compares the key in a condition without regard to case.
        if len({key.lower() for key in self.model_dump().values()}) != len(self.model_dump()):
            raise ValueError("two of the four tag keys are the same; give each its own key")
        return self


_EMAILS = 'a list of e-mail addresses, such as ["ops@example.com"], or []'


class Subscribers(_Section):
    """Who gets mail from which topic; each address has to confirm once."""

    page: tuple[Email, ...] = Field((), description=_EMAILS)
    warn: tuple[Email, ...] = Field((), description=_EMAILS)
    info: tuple[Email, ...] = Field((), description=_EMAILS)


class StageConfig(_Section):
    """One stage. `regions` starts with the home Region; `runtime` and `architecture` are resolved, never `host`."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9-]{0,15}$",
        description="a stage name of at most 16 lower-case letters, digits and hyphens, starting with a letter",
    )
    regions: Annotated[tuple[Region, ...], AfterValidator(_is_unique)] = Field(
        min_length=1, description='a list of Regions, each once, the home Region first, such as ["eu-west-1"]'
    )
    initial_mode: Literal["off", "observe", "enforce"] = Field(description='"off", "observe" or "enforce"')
    runtime: Annotated[str, AfterValidator(_resolve_runtime), AfterValidator(_is_known_runtime)] = Field(
        description="one of "
        + ", ".join(f'"{runtime}"' for runtime in RUNTIMES)
        + ', or "host" in a stage that runs here'
    )
    architecture: Annotated[Literal["arm64", "x86_64", "host"], AfterValidator(_resolve_architecture)] = Field(
        description='"arm64", "x86_64", or "host" in a stage that runs here'
    )
    budget: BudgetConfig = Field(description="an object with limit_usd, threshold_percents, forecast_percent, families")
    tag_keys: TagKeys = Field(TagKeys(), description="an object with managed, criticality, project, pool")
    subscribers: Subscribers = Field(Subscribers(), description="an object with page, warn, info")
    settings: dict[SettingName, SettingText] = Field(
        {}, description='an object from setting name to text, such as {"budget/grace-minutes": "5"}'
    )
    keep_state: bool = Field(description="true to keep table, bucket and key when the stacks are deleted, else false")
    reserve_concurrency: bool = Field(
        False,
        description="true to reserve one concurrent execution for each function (needs an account limit above 110)",
    )
    log_retention_days: Annotated[int, AfterValidator(_is_retention)] = Field(
        description="one of " + ", ".join(str(days) for days in LOG_RETENTION_DAYS)
    )

    @model_validator(mode="after")
    def _one_partition_with_budgets(self) -> Self:
        partitions = sorted({partition_of(region) for region in self.regions})
        if len(partitions) > 1:
            raise ValueError(
                f"regions lie in several AWS partitions ({', '.join(partitions)}); make one stage for each partition"
            )
        if partitions[0] not in ("aws", "aws-cn"):
            raise ValueError(
                f"regions lie in {partitions[0]}, where this app does not run (it needs AWS Budgets); "
                "choose commercial or China Regions"
            )
        if self.home_region not in HOME_REGIONS:
            near = [region for region in HOME_REGIONS if region.split("-")[0] == self.home_region.split("-")[0]]
            raise ValueError(
                f"regions starts with {self.home_region}, where CloudFormation makes no budgets; "
                f"put a Region such as {(near or ['us-east-1'])[0]} first and {self.home_region} after it"
            )
        return self

    @property
    def home_region(self) -> str:
        """Where the Governor itself runs."""
        return self.regions[0]

    @property
    def further_regions(self) -> tuple[str, ...]:
        """The Regions whose events are relayed to the home Region."""
        return self.regions[1:]

    @property
    def partition(self) -> str:
        """`aws` or `aws-cn`."""
        return partition_of(self.home_region)

    @property
    def stack_prefix(self) -> str:
        """What the names of all stacks of this stage start with."""
        return f"Governor-{self.name}"

    @property
    def dependency_layer(self) -> Path:
        """Where the third-party layer for this stage is built, relative to the repository."""
        return Path("build", "layers", f"{self.runtime}-{self.architecture}", "dependencies")


def read_cdk_json(path: Path = CDK_JSON) -> Mapping[str, Any]:
    """The whole of cdk.json. Raises StageError when it is missing or is not a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StageError(
            [f"{path.name} is missing in {path.parent}; restore it or write one with `governor init`."]
        ) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise StageError([f"{path.name} is not valid JSON at {where} ({error.msg}); correct it there."]) from error
    if not isinstance(content, dict):
        raise StageError([f"{path.name} holds no JSON object; restore it or write one with `governor init`."])
    return content


def read_context(path: Path = CDK_JSON) -> dict[str, Any]:
    """The `context` of cdk.json: feature flags and stages. Raises StageError."""
    context = read_cdk_json(path).get("context", {})
    if not isinstance(context, dict):
        raise StageError([f"{path.name}: context is no object; write the feature flags and stages there."])
    return context


def load_stage(name: str | None, path: Path = CDK_JSON) -> StageConfig:
    """The stage of that name in cdk.json. Raises StageError with every problem found."""
    stages = read_context(path).get("stages")
    if not isinstance(stages, dict) or not stages:
        raise StageError([f'{path.name}: context.stages holds no stage; add one such as "dev".'])
    known = ", ".join(sorted(stages))
    if not name:
        raise StageError(
            [f"No stage was chosen; add `-c stage=NAME` with one of {known} ({path.name}: context.stages)."]
        )
    if name not in stages:
        raise StageError(
            [f"Stage {name!r} is not in {path.name} (context.stages); choose one of {known}, or add it there."]
        )
    where = f"{path.name}: context.stages.{name}"
    written = stages[name]
    if not isinstance(written, dict):
        raise StageError([f"{where} is {_shown(written)}; write an object with the fields of a stage."])
    if "name" in written:
        raise StageError([f"{where}.name is not a known field; remove it, the key of the stage is its name."])
    try:
        return StageConfig.model_validate({**written, "name": name})
    except ValidationError as error:
        raise StageError([_sentence(where, detail) for detail in _one_each(error.errors())]) from error


def _one_each(details: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The first complaint about each place; a list with a bad entry is not bad in itself."""
    first: dict[tuple[int | str, ...], ErrorDetails] = {}
    for detail in details:
        first.setdefault(detail["loc"], detail)
    return [
        detail
        for place, detail in first.items()
        if not any(len(other) > len(place) and other[: len(place)] == place for other in first)
    ]


def _sentence(where: str, detail: ErrorDetails) -> str:
    """One problem in words."""
    fields, index = _split(detail["loc"])
    if fields == ("name",):
        return f"{where}: the name of the stage is not usable; write {_hint(fields)}."
    place = where + "".join(f".{field}" for field in fields) + index
    if detail["type"] == "extra_forbidden":
        return f"{place} is not a known field; remove it or write one of {', '.join(_siblings(fields))}."
    if detail["type"] == "missing":
        return f"{place} is missing; write {_hint(fields)}."
    if not fields or (detail["type"] == "value_error" and _section(fields) is not None):
        return f"{place}: {detail['ctx']['error']}."
    reason = f" ({detail['ctx']['error']})" if detail["type"] == "value_error" else ""
    return f"{place} is {_shown(detail['input'])}{reason}; write {_hint(fields)}."


def _split(loc: tuple[int | str, ...]) -> tuple[tuple[str, ...], str]:
    """The path of a problem as field names, and what points into a list or an object below them."""
    model: type[BaseModel] | None = StageConfig
    fields: list[str] = []
    for position, part in enumerate(loc):
        if model is None:
            return tuple(fields), "".join(f"[{rest!r}]" for rest in loc[position:] if rest != "[key]")
        fields.append(str(part))
        model = _section(tuple(fields))
    return tuple(fields), ""


def _section(fields: tuple[str, ...]) -> type[BaseModel] | None:
    """The model at that path, or None where a plain value stands."""
    model: type[BaseModel] = StageConfig
    for name in fields:
        info = model.model_fields.get(name)
        if info is None or not (isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)):
            return None
        model = info.annotation
    return model


def _siblings(fields: tuple[str, ...]) -> list[str]:
    model = _section(fields[:-1]) or StageConfig
    return [name for name in model.model_fields if not (model is StageConfig and name == "name")]


def _hint(fields: tuple[str, ...]) -> str:
    model = _section(fields[:-1]) or StageConfig
    return model.model_fields[fields[-1]].description or "a value of the right form"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
