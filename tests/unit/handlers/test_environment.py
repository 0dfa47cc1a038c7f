"""The environment of a function: what is missing or odd is said in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from governor.domain.tags import TagKeys
from governor.shell.environment import (
    MODELS,
    CheckSettingsEnvironment,
    Environment,
    GuardBudgetEnvironment,
    OddEnvironmentError,
    SeedSettingsEnvironment,
    SendMessagesEnvironment,
    read_environment,
    variable_names,
)

BASE = {
    "GOVERNOR_STAGE": "dev",
    "TABLE_NAME": "Governor-dev-State-Table",
    "GOVERNOR_REGIONS": "eu-west-1,us-east-1",
    "ACCOUNT_ID": "123456789012",
    "POWERTOOLS_SERVICE_NAME": "check_settings",
    "TAG_KEYS": '{"managed": "m", "criticality": "c", "project": "p", "pool": "o"}',
}


def test_a_whole_environment_is_read() -> None:
    found = read_environment(CheckSettingsEnvironment, {**BASE, "PATH": "/bin"})
    assert (found.stage, found.regions, found.home_region) == ("dev", ("eu-west-1", "us-east-1"), "eu-west-1")
    assert found.tag_keys == TagKeys("m", "c", "p", "o")


def test_it_is_read_from_the_process_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in BASE.items():
        monkeypatch.setenv(name, value)
    assert read_environment(CheckSettingsEnvironment).account_id == "123456789012"


def test_each_function_reads_its_own_variables() -> None:
    topic = "arn:aws-cn:sns:cn-north-1:123456789012:topic"
    guard = read_environment(GuardBudgetEnvironment, {**BASE, "BUDGET_NAME": "gpu", "BUDGET_FAMILIES": "p4d,g4dn"})
    assert (guard.budget_name, guard.budget_families) == ("gpu", ("p4d", "g4dn"))
    topics = {f"{name}_TOPIC_ARN": topic for name in ("PAGE", "WARN", "INFO", "SLACK")}
    send = read_environment(SendMessagesEnvironment, {**BASE, "BUS_NAME": "bus", **topics})
    assert send.slack_topic_arn == topic
    seed = read_environment(SeedSettingsEnvironment, {**BASE, "INITIAL_SETTINGS": '{"budget/mode": "enforce"}'})
    assert seed.initial_settings == {"budget/mode": "enforce"}


def test_the_names_of_variables_are_known_for_each_function() -> None:
    assert variable_names(Environment) == set(BASE)
    assert variable_names(MODELS["guard_budget"]) == {
        *BASE,
        "BUDGET_FAMILIES",
        "BUDGET_NAME",
        "CHECKPOINT_DOCUMENTS",
    }
    assert set(MODELS) == {
        "check_settings",
        "guard_budget",
        "confirm_actions",
        "send_messages",
        "seed_settings",
        "check_retired",
    }


@pytest.mark.parametrize(
    ("model", "changes", "said"),
    [
        (CheckSettingsEnvironment, {"GOVERNOR_STAGE": None}, "GOVERNOR_STAGE is missing; it must hold the name of"),
        (CheckSettingsEnvironment, {"GOVERNOR_STAGE": "De v"}, "GOVERNOR_STAGE holds 'De v'; it must hold the name"),
        (CheckSettingsEnvironment, {"GOVERNOR_REGIONS": ""}, "GOVERNOR_REGIONS holds ''; it must hold Regions"),
        (CheckSettingsEnvironment, {"GOVERNOR_REGIONS": "eu-west-1,"}, "GOVERNOR_REGIONS holds ''; it must hold"),
        (CheckSettingsEnvironment, {"ACCOUNT_ID": "12345678901\u0662"}, "ACCOUNT_ID holds"),
        (CheckSettingsEnvironment, {"TAG_KEYS": "x"}, "TAG_KEYS holds 'x' (is not JSON"),
        (CheckSettingsEnvironment, {"TAG_KEYS": "[]"}, "(is not an object of tag keys)"),
        (CheckSettingsEnvironment, {"TAG_KEYS": '{"manged": "m"}'}, "names a tag that is not managed, criticality"),
        (GuardBudgetEnvironment, {}, "BUDGET_NAME is missing; it must hold the name of the AWS budget"),
        (SendMessagesEnvironment, {"PAGE_TOPIC_ARN": "page"}, "PAGE_TOPIC_ARN holds 'page'; it must hold the ARN"),
        (SeedSettingsEnvironment, {"INITIAL_SETTINGS": '{"a": 1}'}, "INITIAL_SETTINGS holds 1; it must hold a JSON"),
    ],
)
def test_what_is_missing_or_odd_is_named(model: type[Environment], changes: dict[str, Any], said: str) -> None:
    variables = {name: text for name, text in {**BASE, **changes}.items() if text is not None}
    with pytest.raises(OddEnvironmentError) as raised:
        read_environment(model, variables)
    assert said in str(raised.value)


def test_every_variable_that_is_wrong_is_named_once() -> None:
    with pytest.raises(OddEnvironmentError) as raised:
        read_environment(GuardBudgetEnvironment, {"TABLE_NAME": "", "GOVERNOR_REGIONS": "a,b"})
    for name in (*BASE, "BUDGET_NAME"):
        assert str(raised.value).count(f"variable {name} ") == 1
