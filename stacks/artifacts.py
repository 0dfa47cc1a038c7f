"""The folders that are deployed as code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stacks.config import StageConfig
from stacks.function_permissions import FUNCTIONS

ROOT = Path(__file__).resolve().parents[1]


class ArtifactError(Exception):
    """Code that has to be deployed is missing. `problems` holds one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        """Keep the sentences; the text of the error is one a line."""
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Where functions and layers lie. Both layers have a folder `python` at their root."""

    functions: dict[str, Path]
    core_layer: Path
    dependency_layer: Path


def find_artifacts(stage: StageConfig, root: Path = ROOT) -> Artifacts:
    """The folders of that stage. Raises ArtifactError with everything that is missing."""
    artifacts = Artifacts(
        functions={name: root / "lambdas" / name for name in FUNCTIONS},
        core_layer=root / "layers" / "core",
        dependency_layer=root / stage.dependency_layer,
    )
    problems = [
        f"lambdas/{name}/handler.py is missing; restore it, or remove {name} from stacks/function_permissions.py."
        for name, folder in artifacts.functions.items()
        if not (folder / "handler.py").is_file()
    ]
    if not (artifacts.core_layer / "python" / "governor").is_dir():
        problems.append("layers/core/python/governor is missing; restore it.")
    if not (artifacts.dependency_layer / "python").is_dir():
        problems.append(f'{stage.dependency_layer} is not built; run "make build STAGE={stage.name}".')
    if problems:
        raise ArtifactError(problems)
    return artifacts
