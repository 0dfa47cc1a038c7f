"""The exit code of the demo tells the truth."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import demo.__main__ as command
from demo.story import Story
from demo.terminal import Narrator
from demo.theatre import PlayError
from tests.unit.demo.small_story import small_story


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, outcome: Story | Exception) -> int:
    """The command with a play that ends so."""

    def perform(narrator: Narrator) -> Story:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(command, "_perform", perform)
    monkeypatch.setattr(sys, "argv", ["demo", "--out", str(folder)])
    return command.main()


def test_it_is_zero_when_every_check_held(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path / "new" / "folder", small_story()) == 0
    assert "2 of 2" in capsys.readouterr().out
    assert (tmp_path / "new" / "folder" / "report.html").exists()


def test_it_is_one_when_a_check_failed_and_the_report_is_written_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, small_story(failing=True)) == 1
    assert "1 check failed" in capsys.readouterr().err
    assert "1 of 2 checks failed" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_it_is_one_with_a_clear_line_when_the_play_cannot_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, PlayError("guard_budget has recorded no decision")) == 1
    assert "The demo could not be played: guard_budget has recorded no decision" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
