"""The environment of a function as one typed value; one model a function, so that the stacks can be held to it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from governor.domain.tags import TagKeys

SHOWN_CHARACTERS = 80


class OddEnvironmentError(Exception):
    """The environment of a function cannot be used; the text says which variable and what it must hold."""


def _words(value: object) -> object:
    return tuple(value.split(",")) if isinstance(value, str) else value


def _from_json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg})") from error


def _tag_keys(value: object) -> object:
    found = _from_json(value)
    if isinstance(found, TagKeys):
        return found
    if not isinstance(found, dict) or not all(isinstance(text, str) and text for text in found.values()):
        raise ValueError("is not an object of tag keys")
    try:
        return TagKeys(**found)
    except TypeError as error:
        raise ValueError("names a tag that is not managed, criticality, project, pool, keep or checkpoint") from error


Arn = Annotated[str, Field(pattern=r"^arn:[a-z-]+:[a-z0-9-]+:[a-z0-9-]*:[0-9]*:.+$")]
Region = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")]


class Environment(BaseModel):
    """What every function is given. `regions` starts with the home Region."""

    # Built when first used: a function reads one of these models and imports all.
    model_config = ConfigDict(frozen=True, populate_by_name=True, defer_build=True)

    stage: str = Field(alias="GOVERNOR_STAGE", pattern=r"^[a-z][a-z0-9-]{0,31}$", description="the name of the stage")
    table_name: str = Field(alias="TABLE_NAME", min_length=3, description="the name of the state table")
    regions: Annotated[tuple[Region, ...], BeforeValidator(_words)] = Field(
        alias="GOVERNOR_REGIONS", min_length=1, description="Regions separated by commas, the home Region first"
    )
    account_id: str = Field(alias="ACCOUNT_ID", pattern=r"^[0-9]{12}$", description="the twelve digits of the account")
    service: str = Field(alias="POWERTOOLS_SERVICE_NAME", min_length=1, description="the name of the function")
    tag_keys: Annotated[TagKeys, BeforeValidator(_tag_keys)] = Field(
        alias="TAG_KEYS",
        description="a JSON object with the tag keys managed, criticality, project, pool, keep and checkpoint",
    )

    @property
    def home_region(self) -> str:
        """The Region of the table, the settings and the topics."""
        return self.regions[0]


class CheckSettingsEnvironment(Environment):
    """The environment of `check_settings`."""


class GuardBudgetEnvironment(Environment):
    """The environment of `guard_budget`."""

    budget_name: str = Field(alias="BUDGET_NAME", min_length=1, description="the name of the AWS budget of the stage")
    budget_families: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        alias="BUDGET_FAMILIES", min_length=1, description="the instance families that the budget counts, with commas"
    )

    checkpoint_documents: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        (),
        alias="CHECKPOINT_DOCUMENTS",
        description="the SSM documents that may run before a stop, with commas",
    )


class ConfirmActionsEnvironment(Environment):
    """The environment of `confirm_actions`."""

    budget_name: str = Field(alias="BUDGET_NAME", min_length=1, description="the name of the AWS budget of the stage")


class SendMessagesEnvironment(Environment):
    """The environment of `send_messages`."""

    bus_name: str = Field(alias="BUS_NAME", min_length=1, description="the name of the event bus of the stage")
    page_topic_arn: Arn = Field(alias="PAGE_TOPIC_ARN", description="the ARN of the topic for pages")
    warn_topic_arn: Arn = Field(alias="WARN_TOPIC_ARN", description="the ARN of the topic for warnings")
    info_topic_arn: Arn = Field(alias="INFO_TOPIC_ARN", description="the ARN of the topic for information")
    slack_topic_arn: Arn = Field(alias="SLACK_TOPIC_ARN", description="the ARN of the topic for chat clients")


class SeedSettingsEnvironment(Environment):
    """The environment of `seed_settings`. `initial_settings` overrides defaults: setting -> text."""

    initial_settings: Annotated[Mapping[str, str], BeforeValidator(_from_json)] = Field(
        alias="INITIAL_SETTINGS", description="a JSON object of setting names and texts"
    )


class CheckRetiredEnvironment(Environment):
    """The environment of `check_retired`."""

    force_destroy: bool = Field(
        alias="FORCE_DESTROY", description="true where the stage may be deleted as it stands, else false"
    )


MODELS: Mapping[str, type[Environment]] = {
    "check_settings": CheckSettingsEnvironment,
    "guard_budget": GuardBudgetEnvironment,
    "confirm_actions": ConfirmActionsEnvironment,
    "send_messages": SendMessagesEnvironment,
    "seed_settings": SeedSettingsEnvironment,
    "check_retired": CheckRetiredEnvironment,
}
"""The model of each function's environment."""

E = TypeVar("E", bound=Environment)


def variable_names(model: type[Environment]) -> frozenset[str]:
    """Names of the environment variables that `model` reads."""
    return frozenset(str(declared.alias) for declared in model.model_fields.values())


def read_environment(model: type[E], variables: Mapping[str, str] | None = None) -> E:
    """The environment as `model`. Raises OddEnvironmentError with one sentence a variable that is missing or odd."""
    try:
        return model.model_validate(dict(os.environ if variables is None else variables))
    except ValidationError as error:
        by_variable = {str(detail["loc"][0]): detail for detail in reversed(error.errors())}
        sentences = [_sentence(model, name, by_variable[name]) for name in sorted(by_variable)]
        raise OddEnvironmentError(" ".join(sentences)) from error


def _sentence(model: type[Environment], variable: str, detail: ErrorDetails) -> str:
    meaning = next(declared.description for declared in model.model_fields.values() if str(declared.alias) == variable)
    if detail["type"] == "missing":
        return f"The environment variable {variable} is missing; it must hold {meaning}."
    context: Mapping[str, Any] = detail.get("ctx", {})
    why = f" ({context['error']})" if detail["type"] == "value_error" else ""
    shown = repr(detail["input"])
    shown = shown if len(shown) <= SHOWN_CHARACTERS else shown[:SHOWN_CHARACTERS] + "..."
    return f"The environment variable {variable} holds {shown}{why}; it must hold {meaning}."
