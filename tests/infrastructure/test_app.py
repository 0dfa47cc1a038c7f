"""The app as a whole: warnings, cdk-nag, flags, protection, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import aws_cdk
import pytest
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from stacks.artifacts import ROOT, ArtifactError, Artifacts, find_artifacts
from stacks.config import load_stage, read_cdk_json, read_context
from stacks.constructs import acknowledged
from stacks.function_permissions import FUNCTIONS
from tests.infrastructure.conftest import Synthesis, add_stage, all_stages

# Flags that differ from what AWS recommends, and why.
OTHER_FLAGS = {
    # An export in use cannot change by mistake, and the CLI does not skip a stack whose inputs changed.
    "@aws-cdk/core:defaultCrossStackReferences": "strong",
}


def test_no_stage_gives_a_warning(synthesis: Synthesis) -> None:
    assert synthesis.warnings == ()


def nag_app(folder: Path) -> App:
    app = App(context=read_context(), outdir=str(folder))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


def test_no_stage_has_a_finding_of_cdk_nag(tmp_path: Path, artifacts: Artifacts) -> None:
    app = nag_app(tmp_path)
    for stage in all_stages().values():
        add_stage(app, stage, artifacts)
    app.synth()
    assert json.loads((tmp_path / "validation-report.json").read_text())["pluginReports"] == []


def test_cdk_nag_sees_each_finding_that_is_not_acknowledged(tmp_path: Path, artifacts: Artifacts) -> None:
    app = nag_app(tmp_path)
    with patch.object(acknowledged, "_accept"):
        add_stage(app, load_stage("dev"), artifacts)
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    (report,) = json.loads((tmp_path / "validation-report.json").read_text())["pluginReports"]
    rules = {violation["ruleName"].partition("[")[0] for violation in report["violations"]}
    assert rules == {"AwsSolutions-IAM5", "AwsSolutions-L1", "AwsSolutions-S1", "AwsSolutions-SQS3"}


def test_each_acknowledgement_has_a_reason_and_stands_on_a_construct(tmp_path: Path, artifacts: Artifacts) -> None:
    app = App(context=read_context(), outdir=str(tmp_path))
    with patch.object(acknowledged, "_accept") as accept:
        add_stage(app, load_stage("prod"), artifacts)
    assert accept.call_count > 20
    for call in accept.call_args_list:
        construct, rule, reason = call.args
        assert not isinstance(construct, aws_cdk.Stack | aws_cdk.App), rule
        assert len(reason) > 20, rule


def recommended_flags() -> Iterator[tuple[str, object]]:
    (package,) = (Path(aws_cdk.__file__).parent / "_jsii").glob("*.jsii.tgz")
    with tarfile.open(package) as archive:
        file = archive.extractfile("package/recommended-feature-flags.json")
        assert file is not None
        yield from json.load(file).items()


def test_cdk_json_sets_every_flag_that_aws_recommends() -> None:
    context = read_context()
    flags = {key: value for key, value in context.items() if key != "stages"}
    assert flags == dict(recommended_flags()) | OTHER_FLAGS


def test_cdk_json_has_the_three_stages() -> None:
    assert set(read_cdk_json()["context"]["stages"]) == {"dev", "prod", "local"}


def test_the_app_starts_with_the_python_of_this_folder_and_says_nothing_to_aws() -> None:
    settings = read_cdk_json()
    assert settings["app"] == ".venv/bin/python app.py"
    assert settings["versionReporting"] is False


def test_all_stacks_of_a_stage_that_keeps_state_are_protected_from_deletion(synthesis: Synthesis) -> None:
    protected = {name for name, is_protected in synthesis.protected.items() if is_protected}
    assert protected == {f"Governor-prod-{stack}" for stack in ("State", "Control", "Watch", "Relay-us-west-2")}


def test_nothing_is_looked_up_in_an_account(synthesis: Synthesis) -> None:
    assert synthesis.lookups == ()


def test_the_app_says_in_one_sentence_that_no_stage_was_chosen() -> None:
    done = subprocess.run([sys.executable, "app.py"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "No stage was chosen; add `-c stage=NAME` with one of dev, local, prod (cdk.json: context.stages)."
    )


def test_the_app_says_in_one_sentence_that_a_switch_is_odd() -> None:
    context = {"CDK_CONTEXT_JSON": json.dumps({"stage": "dev", "force-destroy": "yes"})}
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={**os.environ, **context},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == (
        'The context force-destroy is "yes"; write `-c force-destroy=true`, or leave it out.'
    )


def test_missing_code_is_named_with_what_to_do(tmp_path: Path) -> None:
    stage = load_stage("dev")
    for name in set(FUNCTIONS) - {"seed_settings"}:
        (tmp_path / "lambdas" / name).mkdir(parents=True)
        (tmp_path / "lambdas" / name / "handler.py").touch()
    (tmp_path / "layers" / "core" / "python" / "governor").mkdir(parents=True)
    with pytest.raises(ArtifactError) as caught:
        find_artifacts(stage, tmp_path)
    assert caught.value.problems == (
        "lambdas/seed_settings/handler.py is missing; restore it, or remove seed_settings from "
        "stacks/function_permissions.py.",
        'build/layers/python3.13-arm64/dependencies is not built; run "make build STAGE=dev".',
    )


def test_code_that_is_there_is_found(tmp_path: Path) -> None:
    stage = load_stage("dev")
    for name in FUNCTIONS:
        (tmp_path / "lambdas" / name).mkdir(parents=True)
        (tmp_path / "lambdas" / name / "handler.py").touch()
    (tmp_path / "layers" / "core" / "python" / "governor").mkdir(parents=True)
    (tmp_path / stage.dependency_layer / "python").mkdir(parents=True)
    found = find_artifacts(stage, tmp_path)
    assert found.dependency_layer == tmp_path / "build/layers/python3.13-arm64/dependencies"
    assert set(found.functions) == set(FUNCTIONS)
