"""What all stacks of a stage have in common."""

from __future__ import annotations

from typing import TypedDict

from aws_cdk import Environment

from stacks.config import StageConfig


class StackOptions(TypedDict):
    """Options of an aws_cdk.Stack."""

    description: str
    env: Environment
    termination_protection: bool
    tags: dict[str, str]


def stack_options(stage: StageConfig, region: str, what: str) -> StackOptions:
    """Options of a stack in that Region. The account is that of the deploy: nothing is looked up."""
    return StackOptions(
        description=f"GPU Governor {stage.name}: {what}",
        env=Environment(region=region),
        termination_protection=stage.keep_state,
        tags={"application": "gpu-governor", "stage": stage.name},
    )
