"""The CDK app: the stacks of one stage. Makes no AWS calls."""

from __future__ import annotations

import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from governor.domain.settings import schema_hash
from stacks.artifacts import ArtifactError, Artifacts, find_artifacts
from stacks.config import StageConfig, StageError, load_stage, read_context, read_switch
from stacks.governor import add_stacks
from stacks.initial_settings import initial_settings


def main() -> None:
    """Synthesise the stage that `-c stage=NAME` names; exits with one sentence a problem."""
    try:
        app = App(context=read_context())
        stage: StageConfig = load_stage(app.node.try_get_context("stage"))
        values = initial_settings(stage)
        force_destroy = read_switch("force-destroy", app.node.try_get_context("force-destroy"))
        artifacts: Artifacts = find_artifacts(stage)
    except (StageError, ArtifactError) as error:
        sys.exit(str(error))
    add_stacks(
        app,
        stage,
        artifacts=artifacts,
        schema_hash=schema_hash(),
        initial_settings=values,
        force_destroy=force_destroy,
    )
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()


if __name__ == "__main__":
    main()
