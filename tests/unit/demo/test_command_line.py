"""The `governor` commands of the demo run as a person would run them, on the virtual clock."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo.command_line import Ended, run_governor
from local.client import REPOSITORY


def run(*arguments: str, moment: datetime = datetime(2100, 1, 1, tzinfo=UTC)) -> Ended:
    """The command without an AWS behind it: port 9 of this machine answers nobody."""
    return run_governor(
        list(arguments),
        moment=moment,
        url="http://127.0.0.1:9",
        region="us-east-1",
        keys=("id", "secret"),
        folder=Path(REPOSITORY),
    )


def test_its_now_is_the_moment_that_was_given() -> None:
    ended = run("override", "--until", "2099-12-31T23:00Z", "--because", "a test")
    assert ended.exit_code == 2
    assert "has passed" in ended.printed


def test_what_it_says_on_both_streams_is_kept_and_its_exit_code_is_its_own() -> None:
    assert run("no-such-verb").exit_code == 2
    assert "no-such-verb" in run("no-such-verb").printed
    assert run("--version-that-is-none").exit_code == 2


def test_it_gets_the_keys_of_the_person_and_no_profile_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    class StartedError(Exception):
        pass

    def start(*arguments: object, env: dict[str, str], **rest: object) -> None:
        seen.update(env)
        raise StartedError

    monkeypatch.setenv("AWS_PROFILE", "ours")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "ours")
    monkeypatch.setattr("demo.command_line.subprocess.run", start)
    with pytest.raises(StartedError):
        run("status")
    assert {name: value for name, value in seen.items() if name.startswith("AWS_")} == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
