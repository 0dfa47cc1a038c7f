"""cdk.json is checked before anything is made of it: each problem is one sentence with what, where and what to do."""

from __future__ import annotations

import copy
import json
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from governor.domain import tags as governor_tags
from stacks.artifacts import ROOT
from stacks.config import CDK_JSON, StageConfig, StageError, load_stage, read_switch
from stacks.initial_settings import initial_settings
from stacks.sections import GPU_FAMILIES

MISSING = object()
DEV = "cdk.json: context.stages.dev"
LADDER = "write 1 to 9 percentages of the limit, above 0 and ascending, such as [50, 80, 95, 100]."
REGIONS = 'write a list of at most 12 Regions, each once, the home Region first, such as ["eu-west-1"].'
FAMILIES = 'write the instance families that the budget counts, each once, such as ["p4d", "g4dn"].'
LIMIT = "write the limit for one month in US dollars, above 0 and at most 10000000."
RUNTIMES = 'write one of "python3.11", "python3.12", "python3.13", "python3.14", or "host" in a stage that runs here.'
EMAILS = 'write a list of e-mail addresses, such as ["ops@example.com"], or [].'
SETTINGS = 'write an object from setting name to text, such as {"budget/grace-minutes": "5"}.'

DOCUMENTS = (
    "write a list of at most 10 names of SSM documents of this account that may run before a stop, each once, "
    'such as ["Governor-SaveCheckpoint"], or [].'
)
KEYS = (
    "write a list of at most 24 ARNs of the KMS keys of encrypted volumes, each once and in a listed Region, such as "
    '["arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"], or [].'
)
FOREIGN_KEY = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
BRAKE = {"percent": 110, "role_names": ["TrainingLauncher"]}
BRAKE_FAMILIES = 'write the instance families that may not be launched then, each once, such as ["p4d", "g4dn"].'
BRAKED_ROLES = (
    "write 1 to 100 names of IAM roles without a path that may launch no more GPU instances then, "
    'such as ["TrainingLauncher"].'
)

PROBLEMS: list[tuple[dict[str, Any], list[str]]] = [
    ({"budget.limit_usd": 0}, [f"{DEV}.budget.limit_usd is 0; {LIMIT}"]),
    ({"budget.limit_usd": "much"}, [f'{DEV}.budget.limit_usd is "much"; {LIMIT}']),
    ({"budget.limit_usd": MISSING}, [f"{DEV}.budget.limit_usd is missing; {LIMIT}"]),
    (
        {"budget": MISSING},
        [f"{DEV}.budget is missing; write an object with limit_usd, threshold_percents, forecast_percent, families."],
    ),
    (
        {"budget": 5},
        [f"{DEV}.budget is 5; write an object with limit_usd, threshold_percents, forecast_percent, families."],
    ),
    ({"budget.threshold_percents": []}, [f"{DEV}.budget.threshold_percents is []; {LADDER}"]),
    (
        {"budget.threshold_percents": [80, 50]},
        [f"{DEV}.budget.threshold_percents is [80, 50] (the steps do not ascend); {LADDER}"],
    ),
    ({"budget.threshold_percents": [0, 50]}, [f"{DEV}.budget.threshold_percents[0] is 0; {LADDER}"]),
    (
        {"budget.threshold_percents": list(range(1, 11))},
        [f"{DEV}.budget.threshold_percents is [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]; {LADDER}"],
    ),
    (
        {"budget.families": ["p4d", "p4d"]},
        [f'{DEV}.budget.families is ["p4d", "p4d"] (an entry stands there twice); {FAMILIES}'],
    ),
    ({"budget.families": ["P4D"]}, [f'{DEV}.budget.families[0] is "P4D"; {FAMILIES}']),
    (
        {"budget.limit": 4},
        [
            f"{DEV}.budget.limit is not a known field; remove it or write one of "
            "limit_usd, threshold_percents, forecast_percent, families."
        ],
    ),
    ({"regions": []}, [f"{DEV}.regions is []; {REGIONS}"]),
    ({"regions": "us-east-1"}, [f'{DEV}.regions is "us-east-1"; {REGIONS}']),
    ({"regions": ["us-east-1", "nowhere"]}, [f'{DEV}.regions[1] is "nowhere"; {REGIONS}']),
    (
        {"regions": ["us-east-1", "us-east-1"]},
        [f'{DEV}.regions is ["us-east-1", "us-east-1"] (an entry stands there twice); {REGIONS}'],
    ),
    (
        {"regions": ["us-east-1", "cn-north-1"]},
        [f"{DEV}: regions lie in several AWS partitions (aws, aws-cn); make one stage for each partition."],
    ),
    (
        {"regions": ["us-gov-west-1"]},
        [
            f"{DEV}: regions lie in aws-us-gov, where this app does not run (it needs AWS Budgets); "
            "choose commercial or China Regions."
        ],
    ),
    (
        {"regions": ["eu-north-1", "us-east-1"]},
        [
            f"{DEV}: regions starts with eu-north-1, where CloudFormation makes no budgets; "
            "put a Region such as eu-central-1 first and eu-north-1 after it."
        ],
    ),
    ({"initial_mode": "on"}, [f'{DEV}.initial_mode is "on"; write "off", "observe" or "enforce".']),
    (
        {"runtime": "python3.9"},
        [f'{DEV}.runtime is "python3.9" (python3.9 is not a runtime that this app is built for); {RUNTIMES}'],
    ),
    ({"runtime": 3.13}, [f"{DEV}.runtime is 3.13; {RUNTIMES}"]),
    (
        {"architecture": "arm"},
        [f'{DEV}.architecture is "arm"; write "arm64", "x86_64", or "host" in a stage that runs here.'],
    ),
    (
        {"tag_keys.managed": "aws:managed"},
        [
            f'{DEV}.tag_keys.managed is "aws:managed" (aws: is reserved by AWS); '
            "write a tag key of 1 to 128 plain characters."
        ],
    ),
    (
        {"tag_keys.managed": "managed*"},
        [f'{DEV}.tag_keys.managed is "managed*"; write a tag key of 1 to 128 plain characters.'],
    ),
    (
        {"tag_keys.managed": "Governor:Criticality"},
        [f"{DEV}.tag_keys: two of the tag keys are the same; give each its own key."],
    ),
    ({"subscribers.page": ["ops"]}, [f'{DEV}.subscribers.page[0] is "ops"; {EMAILS}']),
    (
        {"subscribers.slack": []},
        [f"{DEV}.subscribers.slack is not a known field; remove it or write one of page, warn, info."],
    ),
    ({"settings": []}, [f"{DEV}.settings is []; {SETTINGS}"]),
    ({"settings": {"Stop At": "1"}}, [f"{DEV}.settings['Stop At'] is \"Stop At\"; {SETTINGS}"]),
    (
        {"settings": {"budget/stop-percent": True}},
        [f"{DEV}.settings['budget/stop-percent'] is true; {SETTINGS}"],
    ),
    (
        {"keep_state": MISSING},
        [
            f"{DEV}.keep_state is missing; "
            "write true to keep table, bucket and key when the stacks are deleted, else false."
        ],
    ),
    (
        {"log_retention_days": 31},
        [
            f"{DEV}.log_retention_days is 31 (CloudWatch Logs does not offer that many days); write one of 1, 3, 5, 7, "
            "14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3653."
        ],
    ),
    (
        {"tag_keys.keep": "governor:pool"},
        [f"{DEV}.tag_keys: two of the tag keys are the same; give each its own key."],
    ),
    ({"checkpoint_documents": "SaveModel"}, [f'{DEV}.checkpoint_documents is "SaveModel"; {DOCUMENTS}']),
    ({"checkpoint_documents": ["a b"]}, [f'{DEV}.checkpoint_documents[0] is "a b"; {DOCUMENTS}']),
    (
        {"checkpoint_documents": ["AWS-RunShellScript"]},
        [
            f'{DEV}.checkpoint_documents[0] is "AWS-RunShellScript" '
            f"(names that start with aws, amazon or amzn belong to AWS); {DOCUMENTS}"
        ],
    ),
    ({"volume_key_arns": ["alias/ebs"]}, [f'{DEV}.volume_key_arns[0] is "alias/ebs"; {KEYS}']),
    (
        {"volume_key_arns": [FOREIGN_KEY]},
        [
            f"{DEV}: volume_key_arns holds {FOREIGN_KEY}, which no volume of us-east-1 can use; "
            "remove it or write the ARN of a key of a listed Region."
        ],
    ),
    (
        {"native_brake": 5},
        [f"{DEV}.native_brake is 5; write an object with percent, role_names, families, or leave it out for no brake."],
    ),
    ({"native_brake": {"percent": 110}}, [f"{DEV}.native_brake.role_names is missing; {BRAKED_ROLES}"]),
    (
        {"native_brake": {**BRAKE, "role_names": ["team/Launcher"]}},
        [f'{DEV}.native_brake.role_names[0] is "team/Launcher"; {BRAKED_ROLES}'],
    ),
    (
        {"native_brake": {**BRAKE, "role_names": []}},
        [f"{DEV}.native_brake.role_names is []; {BRAKED_ROLES}"],
    ),
    (
        {"native_brake": {**BRAKE, "percent": 0}},
        [
            f"{DEV}.native_brake.percent is 0; write the percentage of the limit at which AWS Budgets puts the brake "
            "on, above 0 and at most 1000."
        ],
    ),
    (
        {"native_brake": {**BRAKE, "families": ["p4d", "p4d"]}},
        [f'{DEV}.native_brake.families is ["p4d", "p4d"] (an entry stands there twice); {BRAKE_FAMILIES}'],
    ),
    (
        {"native_brake": {**BRAKE, "roles": []}},
        [f"{DEV}.native_brake.roles is not a known field; remove it or write one of percent, role_names, families."],
    ),
    ({"name": "dev"}, [f"{DEV}.name is not a known field; remove it, the key of the stage is its name."]),
    (
        {"regions": [], "keep_state": MISSING, "budget.limit_usd": -1},
        [
            f"{DEV}.regions is []; {REGIONS}",
            f"{DEV}.budget.limit_usd is -1; {LIMIT}",
            f"{DEV}.keep_state is missing; "
            "write true to keep table, bucket and key when the stacks are deleted, else false.",
        ],
    ),
]


def written_dev() -> dict[str, Any]:
    stage: dict[str, Any] = json.loads(CDK_JSON.read_text())["context"]["stages"]["dev"]
    return copy.deepcopy(stage)


def write_stages(folder: Path, stages: object) -> Path:
    path = folder / "cdk.json"
    path.write_text(json.dumps({"context": {"stages": stages}}))
    return path


def change(stage: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for place, value in changes.items():
        *sections, field = place.split(".")
        target = stage
        for section in sections:
            target = target[section]
        if value is MISSING:
            del target[field]
        else:
            target[field] = value
    return stage


def problems_of(name: str | None, path: Path) -> tuple[str, ...]:
    with pytest.raises(StageError) as caught:
        load_stage(name, path)
    return caught.value.problems


@pytest.mark.parametrize(("changes", "sentences"), PROBLEMS, ids=[str(list(changes)) for changes, _ in PROBLEMS])
def test_each_problem_is_one_sentence_with_what_where_and_what_to_do(
    tmp_path: Path, changes: dict[str, Any], sentences: list[str]
) -> None:
    path = write_stages(tmp_path, {"dev": change(written_dev(), changes)})
    assert list(problems_of("dev", path)) == sentences


def test_the_stages_are_named_when_none_or_an_unknown_one_is_chosen(tmp_path: Path) -> None:
    path = write_stages(tmp_path, {"prod": {}, "dev": {}})
    assert problems_of(None, path) == (
        "No stage was chosen; add `-c stage=NAME` with one of dev, prod (cdk.json: context.stages).",
    )
    assert problems_of("test", path) == (
        "Stage 'test' is not in cdk.json (context.stages); choose one of dev, prod, or add it there.",
    )


@pytest.mark.parametrize("name", ["Dev", "dev_1", "a-very-long-stage-name", "1st"])
def test_a_stage_name_that_cannot_be_in_names_of_stacks_is_refused(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(name, write_stages(tmp_path, {name: written_dev()}))
    assert problem == (
        f"cdk.json: context.stages.{name}: the name of the stage is not usable; write a stage name of at most 16 "
        "lower-case letters, digits and hyphens, starting with a letter."
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "{",
            "cdk.json is not valid JSON at line 1, column 2 (Expecting property name enclosed in double quotes); "
            "correct it there.",
        ),
        ("[]", "cdk.json holds no JSON object; restore it or write one with `governor init`."),
        ("{}", 'cdk.json: context.stages holds no stage; add one such as "dev".'),
        (
            '{"context": []}',
            "cdk.json: context is no object; write the feature flags and stages there.",
        ),
        (
            '{"context": {"stages": {"dev": 1}}}',
            "cdk.json: context.stages.dev is 1; write an object with the fields of a stage.",
        ),
    ],
)
def test_a_file_without_stages_says_what_is_wrong(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "cdk.json"
    path.write_text(content)
    assert problems_of("dev", path) == (sentence,)


def test_a_missing_file_says_where_it_should_be(tmp_path: Path) -> None:
    (problem,) = problems_of("dev", tmp_path / "cdk.json")
    assert problem == f"cdk.json is missing in {tmp_path}; restore it or write one with `governor init`."


def test_sections_that_need_nothing_may_be_left_out(tmp_path: Path) -> None:
    optional = {
        "tag_keys",
        "subscribers",
        "settings",
        "reserve_concurrency",
        "checkpoint_documents",
        "volume_key_arns",
        "native_brake",
    }
    path = write_stages(tmp_path, {"dev": {key: value for key, value in written_dev().items() if key not in optional}})
    assert load_stage("dev", path) == load_stage("dev")


def test_a_brake_stands_where_the_stage_writes_one_and_nowhere_else(tmp_path: Path) -> None:
    assert {name: load_stage(name).native_brake for name in ("dev", "prod", "local")} == dict.fromkeys(
        ("dev", "prod", "local")
    )
    path = write_stages(tmp_path, {"dev": change(written_dev(), {"native_brake": BRAKE})})
    brake = load_stage("dev", path).native_brake
    assert brake is not None
    assert (brake.percent, brake.role_names, brake.families) == (110, ("TrainingLauncher",), GPU_FAMILIES)


def test_the_local_stage_lets_the_sample_fleet_save_its_work() -> None:
    assert load_stage("local").checkpoint_documents == ("Governor-SaveCheckpoint",)
    assert load_stage("dev").checkpoint_documents == load_stage("prod").checkpoint_documents == ()


def test_the_tag_keys_of_a_stage_are_those_that_the_functions_know() -> None:
    assert load_stage("dev").tag_keys.model_dump() == asdict(governor_tags.TagKeys())


@pytest.mark.parametrize(
    ("value", "expected"), [(None, False), ("true", True), ("True", True), (True, True), ("false", False)]
)
def test_a_switch_of_the_context_is_on_or_off(value: object, expected: bool) -> None:
    assert read_switch("force-destroy", value) is expected


@pytest.mark.parametrize("value", ["yes", "", "1", 1])
def test_a_switch_that_says_neither_is_refused(value: object) -> None:
    with pytest.raises(StageError) as caught:
        read_switch("force-destroy", value)
    assert caught.value.problems == (
        f"The context force-destroy is {json.dumps(value)}; write `-c force-destroy=true`, or leave it out.",
    )


def test_host_is_the_interpreter_and_the_machine_that_run_the_app() -> None:
    stage = load_stage("local")
    assert stage.runtime == f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert stage.architecture == {"x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]


def test_a_machine_that_lambda_does_not_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    path = write_stages(tmp_path, {"dev": change(written_dev(), {"architecture": "host"})})
    assert problems_of("dev", path) == (
        f'{DEV}.architecture is "host" (no Lambda architecture runs on this machine (riscv64)); '
        'write "arm64", "x86_64", or "host" in a stage that runs here.',
    )


def test_stages_are_read_without_the_cdk_so_that_builds_can_read_them() -> None:
    program = "import sys, stacks.config, stacks.permissions, stacks.artifacts; print('aws_cdk' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


# Values of settings --------------------------------------------------------------------------------------------------


def stage_with(settings: dict[str, str]) -> StageConfig:
    return load_stage("dev").model_copy(update={"settings": settings})


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"budget/stop-percent": "much"}, "a number from 2 to 500"),
        ({"budget/stop-percent": "501"}, "a number from 2 to 500"),
        ({"budget/grace-minutes": "1.5"}, "a whole number from 0 to 120"),
        ({"budget/mode": "on"}, "one of off, observe, enforce"),
        ({"budget/stop-families": "p4d, g4dn"}, "lower-case words separated by commas, without spaces"),
    ],
)
def test_a_value_that_parameter_store_or_the_functions_would_refuse_never_leaves_this_machine(
    settings: dict[str, str], rule: str
) -> None:
    with pytest.raises(StageError) as caught:
        initial_settings(stage_with(settings))
    ((name, value),) = settings.items()
    assert caught.value.problems == (f'{DEV}.settings.{name} is "{value}"; write {rule}.',)


def test_a_setting_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(StageError) as caught:
        initial_settings(stage_with({"budget/stop-percents": "95"}))
    (problem,) = caught.value.problems
    assert problem.startswith(f"{DEV}.settings.budget/stop-percents is not a known setting; remove it or write one of ")
    assert "budget/stop-percent," in problem


def test_what_the_stage_overrides_wins() -> None:
    values = initial_settings(stage_with({"budget/limit-usd": "7", "budget/mode": "off"}))
    assert (values["budget/limit-usd"], values["budget/mode"]) == ("7", "off")
