"""The deployed stage: found through the outputs of its CloudFormation stacks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cli.account import aws, home_region
from cli.errors import DENIED, CliError

if TYPE_CHECKING:
    from governor.domain.tags import TagKeys
    from governor.ports import RecordStore

_STATE_STACK = re.compile(r"^Governor-(?P<stage>[a-z][a-z0-9-]{0,15})-State$")
ROLE_OUTPUTS = {"guard_budget": "GuardBudgetRoleArn", "confirm_actions": "ConfirmActionsRoleArn"}
"""Functions that act on machines, and the outputs of the Control stack that name their roles."""

STAGE_NAME = re.compile(r"^[a-z][a-z0-9-]{0,15}$")


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that is deployed in the account, and where its parts are."""

    name: str
    account_id: str
    home_region: str
    outputs: Mapping[str, str]

    def output(self, key: str) -> str:
        """An output of the State stack. Raises CliError where an older or broken deploy lacks it."""
        value = self.outputs.get(key)
        if not value:
            raise CliError(
                f"The stack Governor-{self.name}-State in {self.home_region} has no output {key}; "
                f"finish its deploy first: make deploy STAGE={self.name}."
            )
        return value

    def parameter(self, name: str) -> str:
        """Full name of a parameter of the stage."""
        return f"/governor/{self.name}/{name}"

    def store(self) -> RecordStore:
        """The state table."""
        from governor.aws.state_table import DynamoDbStateTable

        return DynamoDbStateTable(aws("dynamodb", self.home_region), self.output("TableName"))


@dataclass(frozen=True, slots=True)
class Scope:
    """What the deployed functions look at: the listed Regions, home first, the tag keys, the budget and its scope."""

    regions: tuple[str, ...]
    keys: TagKeys
    budget_name: str
    counted_families: frozenset[str]
    checkpoint_documents: frozenset[str] = frozenset()
    """SSM documents that the stage allows as checkpoints."""
    guard_function: str = ""
    """Name of the deployed function guard_budget."""
    native_brake: str = ""
    """Id of the budget action that denies launches, where the stage has one."""
    function_roles: Mapping[str, str] = field(default_factory=dict)
    """Function -> ARN of its role, of those that the deploy names."""


def find_stage(name: str | None) -> Stage:
    """The stage of that name, or the only one there is. Raises CliError that names the ones there are."""
    region = home_region()
    stage = seek_stage(name)
    if stage is not None:
        return stage
    if name is None:
        raise CliError(
            f"No stage of the Governor is deployed in {region}; deploy one with make deploy STAGE=dev, "
            "or set AWS_REGION to the home Region of yours."
        )
    raise CliError(f"The stage {name} is not deployed in {region}; {_others(region)}.")


def seek_stage(name: str | None) -> Stage | None:
    """The stage of that name, or the only one there is; None where it is not deployed.

    Raises CliError for an impossible name, where several are deployed and where the stacks may not be listed,
    ClientError when AWS refuses something else.
    """
    from botocore.exceptions import ClientError

    region = home_region()
    if name is not None:
        if not STAGE_NAME.match(name):
            raise CliError(
                f"{name!r} cannot be the name of a stage; write at most 16 lower-case letters, digits and hyphens "
                "after --stage."
            )
        stack = _describe(f"Governor-{name}-State", region)
        return None if stack is None else _stage_of(stack, region)
    try:
        found = _deployed(region)
    except ClientError as error:
        if error.response["Error"]["Code"] in DENIED:
            raise CliError(
                f"AWS does not let you list the stacks in {region}, so the stage cannot be found; "
                "name it with --stage NAME."
            ) from error
        raise
    if len(found) > 1:
        names = ", ".join(sorted(_name_of(stack) for stack in found))
        raise CliError(f"Several stages are deployed in {region} ({names}); choose one with --stage NAME.")
    return _stage_of(found[0], region) if found else None


def find_scope(stage: Stage) -> Scope:
    """What the deployed functions look at. Raises CliError where the deploy does not say it."""
    stack = _describe(f"Governor-{stage.name}-Control", stage.home_region)
    if stack is None:
        raise CliError(
            f"The stack Governor-{stage.name}-Control is missing in {stage.home_region}; "
            f"finish its deploy first: make deploy STAGE={stage.name}."
        )
    outputs = {**stage.outputs, **_outputs_of(stack)}
    for needed in ("BudgetFamilies", "BudgetName", "Regions", "TagKeys"):
        if not outputs.get(needed):
            raise CliError(
                f"The stack Governor-{stage.name}-Control in {stage.home_region} has no output {needed}; "
                f"finish its deploy first: make deploy STAGE={stage.name}."
            )
    return _read_scope(stage, outputs)


def _read_scope(stage: Stage, outputs: Mapping[str, str]) -> Scope:
    from governor.domain.tags import TagKeys

    listed = tuple(region for region in outputs["Regions"].split(",") if region)
    try:
        tag_keys = TagKeys(**json.loads(outputs["TagKeys"]))
    except (ValueError, TypeError):
        tag_keys = None
    if not listed or tag_keys is None:
        raise CliError(
            f"The deploy of stage {stage.name} in {stage.home_region} does not say its Regions and tag keys in a way "
            f"that this version reads; deploy it again: make deploy STAGE={stage.name}."
        )
    documents = frozenset(name for name in outputs.get("CheckpointDocuments", "").split(",") if name and name != "-")
    families = frozenset(outputs["BudgetFamilies"].split(","))
    return Scope(
        listed,
        tag_keys,
        outputs["BudgetName"],
        families,
        documents,
        guard_function=outputs.get("GuardBudgetFunctionName", ""),
        native_brake=outputs.get("NativeBrakeActionId", ""),
        function_roles={name: outputs[key] for name, key in ROLE_OUTPUTS.items() if outputs.get(key)},
    )


def _describe(stack_name: str, region: str) -> Mapping[str, Any] | None:
    from botocore.exceptions import ClientError

    try:
        stacks = aws("cloudformation", region).describe_stacks(StackName=stack_name)["Stacks"]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    return next((s for s in stacks if s.get("StackStatus") != "DELETE_COMPLETE"), None)


def _deployed(region: str) -> list[Mapping[str, Any]]:
    pages = aws("cloudformation", region).get_paginator("describe_stacks").paginate()
    stacks = [stack for page in pages for stack in page["Stacks"]]
    return [s for s in stacks if _STATE_STACK.match(s["StackName"]) and s.get("StackStatus") != "DELETE_COMPLETE"]


def _others(region: str) -> str:
    """What a person who named a wrong stage can do instead."""
    from botocore.exceptions import ClientError

    try:
        names = sorted(_name_of(stack) for stack in _deployed(region))
    except ClientError as error:
        if error.response["Error"]["Code"] not in DENIED:
            raise
        return "check --stage and AWS_REGION (the stacks that are there may not be listed with these credentials)"
    if not names:
        return f"no stage is, so deploy it with make deploy, or set AWS_REGION to its home Region instead of {region}"
    return f"choose one of those that are with --stage: {', '.join(names)}"


def _name_of(stack: Mapping[str, Any]) -> str:
    match = _STATE_STACK.match(stack["StackName"])
    assert match is not None
    return match["stage"]


def _stage_of(stack: Mapping[str, Any], region: str) -> Stage:
    account_id = str(stack["StackId"]).split(":")[4]
    return Stage(_name_of(stack), account_id, region, _outputs_of(stack))


def _outputs_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs") or ()}
