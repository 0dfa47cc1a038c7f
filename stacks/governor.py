"""All stacks of one stage, for the app and for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Stack
from constructs import Construct

from stacks.artifacts import Artifacts
from stacks.config import StageConfig
from stacks.control import ControlStack
from stacks.relay import RelayStack
from stacks.state import StateStack
from stacks.watch import WatchStack


@dataclass(frozen=True, slots=True)
class GovernorStacks:
    """The stacks of one stage; `relays` by Region."""

    state: StateStack
    control: ControlStack
    watch: WatchStack
    relays: Mapping[str, RelayStack]

    @property
    def all(self) -> tuple[Stack, ...]:
        """Every stack, in the order of deployment."""
        return (self.state, self.control, *self.relays.values(), self.watch)


def add_stacks(
    scope: Construct,
    stage: StageConfig,
    *,
    artifacts: Artifacts,
    schema_hash: str,
    initial_settings: Mapping[str, str],
    force_destroy: bool = False,
) -> GovernorStacks:
    """Add the stacks of a stage to an app; `force_destroy` lets a stage go that was not retired."""
    state = StateStack(scope, stage)
    control = ControlStack(
        scope,
        stage,
        state=state,
        artifacts=artifacts,
        schema_hash=schema_hash,
        initial_settings=initial_settings,
        force_destroy=force_destroy,
    )
    watch = WatchStack(scope, stage, state=state, control=control)
    relays = {region: RelayStack(scope, stage, region) for region in stage.further_regions}
    for stack in (state, control, *relays.values()):
        # Deleted first: it refuses while machines are still stopped, and then all else is still there.
        watch.add_stack_dependency(stack)
    return GovernorStacks(state=state, control=control, watch=watch, relays=relays)
