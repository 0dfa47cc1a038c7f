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
from stacks.config import (
    HOME_REGIONS,
    MAX_CHECKPOINT_DOCUMENTS,
    MAX_REGIONS,
    MAX_VOLUME_KEYS,
    StageConfig,
    load_stage,
    read_context,
)
from stacks.function_permissions import FUNCTIONS
from stacks.governor import add_stacks
from stacks.initial_settings import initial_settings
from stacks.sections import NativeBrake, Subscribers
from tests.infrastructure.templates import StageTemplates

# Stages beyond those of cdk.json: other Regions, another partition.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "china": ("cn-north-1", "cn-northwest-1"),
    "frankfurt": ("eu-central-1",),
    "tokyo": ("ap-northeast-1", "ap-southeast-5", "mx-central-1"),
}

VOLUME_KEYS = (
    "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "arn:aws:kms:us-west-2:999999999999:key/mrk-1234abcd12ab34cd56ef1234567890ab",
)
# What a stage may have and need not.
EVERYTHING = {
    "name": "full",
    "regions": ("us-east-1", "us-west-2"),
    "checkpoint_documents": ("Governor-SaveCheckpoint", "SaveModel"),
    "volume_key_arns": VOLUME_KEYS,
    "native_brake": NativeBrake(percent=110, role_names=("TrainingLauncher", "notebooks"), families=("p4d", "g4dn")),
}

AS_LARGE_AS_MAY_BE = {
    "name": "wide",
    "regions": tuple(sorted((one for one in HOME_REGIONS if one[:2] != "cn"), key=len)[-MAX_REGIONS:]),
    "checkpoint_documents": tuple(f"Governor-SaveCheckpoint-{n}" for n in range(MAX_CHECKPOINT_DOCUMENTS)),
    "volume_key_arns": tuple(
        f"arn:aws:kms:ap-southeast-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890{n:02}"
        for n in range(MAX_VOLUME_KEYS)
    ),
}


@dataclass(frozen=True, slots=True)
class Synthesis:
    """What one synthesis of all stages gave."""

    templates: Mapping[str, StageTemplates]
    stages: Mapping[str, StageConfig]
    warnings: tuple[str, ...]
    lookups: tuple[str, ...]
    protected: Mapping[str, bool]
    waits_for: Mapping[str, set[str]]


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
    stages["full"] = stages["dev"].model_copy(update=EVERYTHING)
    stages["wide"] = stages["full"].model_copy(update=AS_LARGE_AS_MAY_BE)
    mails = Subscribers(page=("night@example.com",), warn=("day@example.com", "ops@example.com"))
    stages["frankfurt"] = stages["frankfurt"].model_copy(update={"subscribers": mails})
    return stages


def add_stage(app: App, stage: StageConfig, artifacts: Artifacts, *, force_destroy: bool = False) -> None:
    """Add the stacks of a stage as app.py does."""
    add_stacks(
        app,
        stage,
        artifacts=artifacts,
        schema_hash=schema_hash(),
        initial_settings=initial_settings(stage),
        force_destroy=force_destroy,
    )


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
        waits_for={
            stack.stack_name: {one.id for one in stack.dependencies if not one.id.endswith(".assets")}
            for stack in assembly.stacks
        },
        protected={stack.stack_name: bool(stack.termination_protection) for stack in assembly.stacks},
    )


@pytest.fixture(scope="session")
def dev(synthesis: Synthesis) -> StageTemplates:
    """The stage dev."""
    return synthesis.templates["dev"]


@pytest.fixture(scope="session")
def full(synthesis: Synthesis) -> StageTemplates:
    """A stage that has all that a stage may have: documents, keys, a native brake."""
    return synthesis.templates["full"]


@pytest.fixture(scope="session")
def prod(synthesis: Synthesis) -> StageTemplates:
    """The stage prod, which has two Regions and keeps its state."""
    return synthesis.templates["prod"]
