"""Deleting a stack as CloudFormation does when a resource fails: what that one depends on stays as it is.

The emulator goes on with every other resource, so a custom resource that refuses its delete would lose its own
function, role and tables, and could neither be asked nor deleted again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from local.emulator import Emulator
from local.patching import relied_on, replace


class Deletions:
    """Wraps the emulator's task that deletes one stack, and its deletion of one resource."""

    def __init__(self, emulator: Emulator) -> None:
        self._stacks = emulator.cloudformation._stacks
        self._kept: dict[str, dict[str, Any]] = {}
        self._dependencies = relied_on(emulator.stacks, "_with_dependencies", ("logical_ids", "res_defs", "remaining"))
        self._delete_resource = replace(
            emulator.stacks,
            "_delete_resource",
            ("resource_type", "physical_id", "props", "stack_name", "logical_id"),
            self._resource_deleter(),
        )
        parameters = ("stack_name", "stack_id", "retain_resources", "force")
        relied_on(emulator.stacks, "_delete_stack_async", parameters)
        self._delete_stack = replace(emulator.stack_handlers, "_delete_stack_async", parameters, self._stack_deleter())

    def _resource_deleter(self) -> Callable[..., None]:
        def delete_resource(
            resource_type: str,
            physical_id: str,
            props: Any,
            stack_name: str | None = None,
            logical_id: str | None = None,
        ) -> None:
            try:
                self._delete_resource(resource_type, physical_id, props, stack_name, logical_id)
            except Exception:
                if stack_name in self._kept and logical_id is not None:
                    self._keep_dependencies(stack_name, logical_id)
                raise

        return delete_resource

    def _stack_deleter(self) -> Callable[..., Any]:
        async def delete_stack(stack_name: str, stack_id: str, retain_resources: Any = (), force: bool = False) -> None:
            if not force:
                self._kept[stack_name] = {}
            try:
                await self._delete_stack(stack_name, stack_id, retain_resources, force)
            finally:
                kept = self._kept.pop(stack_name, {})
                if kept:
                    self._stacks[stack_name]["_resources"].update(kept)

        return delete_stack

    def _keep_dependencies(self, stack_name: str, logical_id: str) -> None:
        """Hide them from the rest of this delete; they are back in the stack once it has ended."""
        stack = self._stacks[stack_name]
        resources = stack["_resources"]
        for name in self._dependencies([logical_id], stack["_template"]["Resources"], set(resources)) - {logical_id}:
            self._kept[stack_name][name] = resources.pop(name)
