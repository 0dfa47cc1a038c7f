"""One synthesis of all stages for all tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from aws_cdk import App

from governor.domain.settings import schema_hash
from stacks.artifacts import ROOT, Artifacts
from stacks.config import StageConfig, Subscribers, load_stage, read_context
from stacks.governor import add_stacks
from stacks.initial_settings import initial_settings
from stacks.permissions import FUNCTIONS
from tests.infrastructure.templates import StageTemplates

# Stages beyond those of cdk.json: other Regions, another partition.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "china": ("cn-north-1", "cn-northwest-1"),
    "frankfurt": ("eu-central-1",),
    "tokyo": ("ap-northeast-1", "ap-southeast-5", "mx-central-1"),
}


@dataclass(frozen=True, slots=True)
class Synthesis:
    """What one synthesis of all stages gave."""

    templates: Mapping[str, StageTemplates]
    stages: Mapping[str, StageConfig]
    warnings: tuple[str, ...]
    lookups: tuple[str, ...]
    protected: Mapping[str, bool]


def make_artifacts(folder: Path) -> Artifacts:
    """The real functions where they exist, and placeholders for all else: no test needs a build."""
    layer = folder / "layer"
    (layer / "python").mkdir(parents=True, exist_ok=True)
    (layer / "python" / "placeholder.txt").write_text("stands for a layer")
    placeholder = folder / "function"
    placeholder.mkdir(exist_ok=True)
    (placeholder / "handler.py").write_text('"""Stands for a function."""\n')
    functions = {name: ROOT / "lambdas" / name for name in FUNCTIONS}
    return Artifacts(
        functions={name: path if path.is_dir() else placeholder for name, path in functions.items()},
        core_layer=layer,
        dependency_layer=layer,
    )


def all_stages() -> dict[str, StageConfig]:
    """The stages of cdk.json, and dev in other places."""
    stages = {name: load_stage(name) for name in ("dev", "prod", "local")}
    for name, regions in ELSEWHERE.items():
        stages[name] = stages["dev"].model_copy(update={"name": name, "regions": regions})
    mails = Subscribers(page=("night@example.com",), warn=("day@example.com", "ops@example.com"))
    stages["frankfurt"] = stages["frankfurt"].model_copy(update={"subscribers": mails})
    return stages


def add_stage(app: App, stage: StageConfig, artifacts: Artifacts) -> None:
    """Add the stacks of a stage as app.py does."""
    add_stacks(app, stage, artifacts=artifacts, schema_hash=schema_hash(), initial_settings=initial_settings(stage))


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    """Folders that can be deployed without a build."""
    return make_artifacts(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture(scope="session")
def synthesis(tmp_path_factory: pytest.TempPathFactory, artifacts: Artifacts) -> Synthesis:
    """All stages, synthesised once."""
    folder = tmp_path_factory.mktemp("cdk.out")
    app = App(context=read_context(), outdir=str(folder))
    stages = all_stages()
    for stage in stages.values():
        add_stage(app, stage, artifacts)
    assembly = app.synth()
    manifest = json.loads((folder / "manifest.json").read_text())
    return Synthesis(
        templates={name: StageTemplates(folder, stage.stack_prefix) for name, stage in stages.items()},
        stages=stages,
        warnings=tuple(
            f"{stack.stack_name}: {message.entry.data}" for stack in assembly.stacks for message in stack.messages
        ),
        lookups=tuple(str(missing) for missing in manifest.get("missing", ())),
        protected={stack.stack_name: bool(stack.termination_protection) for stack in assembly.stacks},
    )


@pytest.fixture(scope="session")
def dev(synthesis: Synthesis) -> StageTemplates:
    """The stage dev."""
    return synthesis.templates["dev"]


@pytest.fixture(scope="session")
def prod(synthesis: Synthesis) -> StageTemplates:
    """The stage prod, which has two Regions and keeps its state."""
    return synthesis.templates["prod"]
