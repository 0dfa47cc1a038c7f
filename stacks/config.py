"""The stages in `cdk.json`, validated. Imports no CDK, so that builds and checks can read a stage too."""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from stacks.sections import BudgetConfig, NativeBrake, Section, Subscribers, TagKeys, is_unique

CDK_JSON = Path(__file__).resolve().parents[1] / "cdk.json"

RUNTIMES = ("python3.11", "python3.12", "python3.13", "python3.14")
ARCHITECTURES = ("arm64", "x86_64")
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3653)
# A role holds at most 10,240 characters of policy, and what the guard may do names each Region several times.
MAX_REGIONS = 12
MAX_CHECKPOINT_DOCUMENTS = 10
MAX_VOLUME_KEYS = 24
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


def _is_not_of_aws(value: str) -> str:
    if re.match("aws|amazon|amzn", value, re.IGNORECASE):
        raise ValueError("names that start with aws, amazon or amzn belong to AWS")
    return value


def _is_retention(value: int) -> int:
    if value not in LOG_RETENTION_DAYS:
        raise ValueError("CloudWatch Logs does not offer that many days")
    return value


Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+$")]
SettingName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)+$")]
SettingText = Annotated[str, BeforeValidator(_as_text), StringConstraints(min_length=1, max_length=4096)]
KeyArn = Annotated[
    str, StringConstraints(pattern=r"^arn:aws(-cn)?:kms:[a-z]{2}(-[a-z]+)+-\d+:\d{12}:key/(mrk-)?[0-9a-f-]{32,36}$")
]
# A document of AWS, such as AWS-RunShellScript, runs whatever it is given; the Governor runs only what people wrote.
DocumentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{3,128}$"), AfterValidator(_is_not_of_aws)]


class StageConfig(Section):
    """One stage. `regions` starts with the home Region; `runtime` and `architecture` are resolved, never `host`."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9-]{0,15}$",
        description="a stage name of at most 16 lower-case letters, digits and hyphens, starting with a letter",
    )
    regions: Annotated[tuple[Region, ...], AfterValidator(is_unique)] = Field(
        min_length=1,
        max_length=MAX_REGIONS,
        description=(
            f'a list of at most {MAX_REGIONS} Regions, each once, the home Region first, such as ["eu-west-1"]'
        ),
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
    tag_keys: TagKeys = Field(
        TagKeys(), description="an object with managed, criticality, project, pool, keep, checkpoint"
    )
    subscribers: Subscribers = Field(Subscribers(), description="an object with page, warn, info")
    settings: dict[SettingName, SettingText] = Field(
        {}, description='an object from setting name to text, such as {"budget/grace-minutes": "5"}'
    )
    checkpoint_documents: Annotated[tuple[DocumentName, ...], AfterValidator(is_unique)] = Field(
        (),
        max_length=MAX_CHECKPOINT_DOCUMENTS,
        description=(
            f"a list of at most {MAX_CHECKPOINT_DOCUMENTS} names of SSM documents of this account "
            "that may run before a stop, each once, "
            'such as ["Governor-SaveCheckpoint"], or []'
        ),
    )
    volume_key_arns: Annotated[tuple[KeyArn, ...], AfterValidator(is_unique)] = Field(
        (),
        max_length=MAX_VOLUME_KEYS,
        description=(
            f"a list of at most {MAX_VOLUME_KEYS} ARNs of the KMS keys of encrypted volumes, "
            "each once and in a listed Region, such as "
            '["arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"], or []'
        ),
    )
    native_brake: NativeBrake | None = Field(
        None, description="an object with percent, role_names, families, or leave it out for no brake"
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

    @model_validator(mode="after")
    def _keys_lie_where_volumes_are(self) -> Self:
        for arn in self.volume_key_arns:
            partition, region = arn.split(":")[1], arn.split(":")[3]
            if region not in self.regions or partition != self.partition:
                raise ValueError(
                    f"volume_key_arns holds {arn}, which no volume of {', '.join(self.regions)} can use; "
                    "remove it or write the ARN of a key of a listed Region"
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


def read_switch(name: str, value: object) -> bool:
    """What `-c NAME=true|false` says; false where it is not given. Raises StageError."""
    text = str(value).lower()
    if value is not None and text not in ("true", "false"):
        raise StageError([f"The context {name} is {_shown(value)}; write `-c {name}=true`, or leave it out."])
    return value is not None and text == "true"


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
        found = None if info is None else _model_of(info.annotation)
        if found is None:
            return None
        model = found
    return model


def _model_of(annotation: object) -> type[BaseModel] | None:
    """The model that an annotation names, also where the section may be left out."""
    candidates = get_args(annotation) or (annotation,)
    found = [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]
    return found[0] if found else None


def _siblings(fields: tuple[str, ...]) -> list[str]:
    model = _section(fields[:-1]) or StageConfig
    return [name for name in model.model_fields if not (model is StageConfig and name == "name")]


def _hint(fields: tuple[str, ...]) -> str:
    model = _section(fields[:-1]) or StageConfig
    return model.model_fields[fields[-1]].description or "a value of the right form"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
