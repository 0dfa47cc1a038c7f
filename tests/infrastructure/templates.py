"""The synthesised stacks in a form that tests can read: intrinsic functions are replaced by text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCOUNT = "111122223333"


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of a template; references read `<Stack/LogicalId>` or `<Stack/LogicalId.Attribute>`."""

    stack: str
    logical_id: str
    type: str
    properties: Mapping[str, Any]
    attributes: Mapping[str, Any]

    @property
    def ref(self) -> str:
        """How other resources refer to it."""
        return f"<{self.stack}/{self.logical_id}>"

    def attribute(self, name: str) -> str:
        """How other resources refer to an attribute of it."""
        return f"<{self.stack}/{self.logical_id}.{name}>"


class StageTemplates:
    """All templates of one stage."""

    def __init__(self, folder: Path, prefix: str) -> None:
        """Read the templates whose stack names start with `prefix`."""
        self.raw = {
            path.name.removesuffix(".template.json").removeprefix(f"{prefix}-"): path.read_text()
            for path in sorted(folder.glob(f"{prefix}-*.template.json"))
        }
        parsed = {name: json.loads(text) for name, text in self.raw.items()}
        self._prefix = prefix
        self._exports = {
            output["Export"]["Name"]: _flatten(output["Value"], name, {})
            for name, template in parsed.items()
            for output in template.get("Outputs", {}).values()
            if "Export" in output
        }
        self.outputs: dict[str, dict[str, Any]] = {
            name: {
                key: {**output, "Value": _flatten(output["Value"], name, self._exports)}
                for key, output in template.get("Outputs", {}).items()
                if "Export" not in output
            }
            for name, template in parsed.items()
        }
        self.resources = [
            Resource(
                stack=name,
                logical_id=logical_id,
                type=resource["Type"],
                properties=_flatten(resource.get("Properties", {}), name, self._exports),
                attributes={key: value for key, value in resource.items() if key not in ("Type", "Properties")},
            )
            for name, template in parsed.items()
            for logical_id, resource in template["Resources"].items()
        ]

    @property
    def stacks(self) -> set[str]:
        """The names of the stacks without the prefix of the stage."""
        return set(self.raw)

    def of(self, resource_type: str, stack: str | None = None) -> list[Resource]:
        """All resources of a type."""
        return [one for one in self.resources if one.type == resource_type and stack in (None, one.stack)]

    def one(self, resource_type: str, stack: str | None = None) -> Resource:
        """The only resource of a type."""
        (found,) = self.of(resource_type, stack)
        return found

    def at(self, reference: str) -> Resource:
        """The resource that a reference points to."""
        stack, _, rest = reference.strip("<>").partition("/")
        logical_id = rest.partition(".")[0]
        (found,) = [one for one in self.resources if (one.stack, one.logical_id) == (stack, logical_id)]
        return found

    def functions(self) -> dict[str, Resource]:
        """The functions by name."""
        return {
            one.properties["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]: one
            for one in self.of("AWS::Lambda::Function")
        }

    def role_documents(self, function: str) -> list[Mapping[str, Any]]:
        """Every policy document of a function's role. Raises AssertionError for policies outside of the role."""
        role = self.at(self.functions()[function].properties["Role"])
        assert "ManagedPolicyArns" not in role.properties
        assert not self.of("AWS::IAM::Policy"), "policies stand in the roles"
        return [policy["PolicyDocument"] for policy in role.properties["Policies"]]

    def topic_document(self, output: str) -> Mapping[str, Any]:
        """The policy document of the topic that an output of State names."""
        topic = self.outputs["State"][output]["Value"]
        (policy,) = [one for one in self.of("AWS::SNS::TopicPolicy") if topic in one.properties["Topics"]]
        document: Mapping[str, Any] = policy.properties["PolicyDocument"]
        return document


def _flatten(value: Any, stack: str, exports: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_flatten(item, stack, exports) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, argument),) = value.items()
        match key:
            case "Ref":
                return ACCOUNT if argument == "AWS::AccountId" else f"<{stack}/{argument}>"
            case "Fn::GetAtt":
                return f"<{stack}/{argument[0]}.{argument[1]}>"
            case "Fn::ImportValue":
                return exports[argument]
            case "Fn::Join":
                return argument[0].join(str(_flatten(part, stack, exports)) for part in argument[1])
            case "Fn::Sub":
                return argument.replace("${AWS::AccountId}", ACCOUNT)
            case _ if key.startswith("Fn::"):
                raise NotImplementedError(f"{key} in {stack}")
    return {key: _flatten(item, stack, exports) for key, item in value.items()}
