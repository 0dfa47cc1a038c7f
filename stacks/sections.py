"""The sections of a stage in `cdk.json`. Imports no CDK."""

from __future__ import annotations

import itertools
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

# AWS Budgets: at most ten notifications a budget, the forecast is one of them.
MAX_LADDER_STEPS = 9
# Definition.IamActionDefinition.Roles of a budget action (AWS Budgets API Reference).
MAX_BRAKED_ROLES = 100


def is_unique(values: tuple[str, ...]) -> tuple[str, ...]:
    """The values as they are. Raises ValueError where one stands there twice."""
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


Family = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{1,15}$")]
Email = Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]
# The key becomes part of an IAM condition key, where `*`, `?` and `$` would not be plain text.
TagKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 _.:/=+@-]{1,128}$"), AfterValidator(_is_not_reserved)]
Percent = Annotated[float, Field(gt=0, le=1000)]
# The brake attaches a policy to roles by name; a role below a path has another ARN.
RoleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_+=,.@-]{1,64}$")]


class Section(BaseModel):
    """What cdk.json says of one thing; unknown fields are refused."""

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


class BudgetConfig(Section):
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
    families: Annotated[tuple[Family, ...], AfterValidator(is_unique)] = Field(
        GPU_FAMILIES,
        min_length=1,
        description='the instance families that the budget counts, each once, such as ["p4d", "g4dn"]',
    )


class TagKeys(Section):
    """The tag keys by which people tell the Governor what it may do."""

    managed: TagKey = Field("governor:managed", description="a tag key of 1 to 128 plain characters")
    criticality: TagKey = Field("governor:criticality", description="a tag key of 1 to 128 plain characters")
    project: TagKey = Field("governor:project", description="a tag key of 1 to 128 plain characters")
    pool: TagKey = Field("governor:pool", description="a tag key of 1 to 128 plain characters")
    keep: TagKey = Field("governor:keep", description="a tag key of 1 to 128 plain characters")
    checkpoint: TagKey = Field("governor:checkpoint", description="a tag key of 1 to 128 plain characters")

    @model_validator(mode="after")
    def _differ(self) -> Self:
        # IAM compares the key in a condition without regard to case.
        if len({key.lower() for key in self.model_dump().values()}) != len(self.model_dump()):
            raise ValueError("two of the tag keys are the same; give each its own key")
        return self


class NativeBrake(Section):
    """A budget action of AWS itself: at `percent` it forbids the listed roles to launch GPU instances."""

    percent: Percent = Field(
        description="the percentage of the limit at which AWS Budgets puts the brake on, above 0 and at most 1000"
    )
    role_names: Annotated[tuple[RoleName, ...], AfterValidator(is_unique)] = Field(
        min_length=1,
        max_length=MAX_BRAKED_ROLES,
        description=(
            f"1 to {MAX_BRAKED_ROLES} names of IAM roles without a path that may launch no more GPU instances then, "
            'such as ["TrainingLauncher"]'
        ),
    )
    families: Annotated[tuple[Family, ...], AfterValidator(is_unique)] = Field(
        GPU_FAMILIES,
        min_length=1,
        description='the instance families that may not be launched then, each once, such as ["p4d", "g4dn"]',
    )


_EMAILS = 'a list of e-mail addresses, such as ["ops@example.com"], or []'


class Subscribers(Section):
    """Who gets mail from which topic; each address has to confirm once."""

    page: tuple[Email, ...] = Field((), description=_EMAILS)
    warn: tuple[Email, ...] = Field((), description=_EMAILS)
    info: tuple[Email, ...] = Field((), description=_EMAILS)
