"""docs/settings.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from governor.domain.settings import SETTINGS
from governor.shell.seeding import PAUSE
from tools.settings_reference import page

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_page_is_what_the_generator_prints() -> None:
    assert PAGE.read_text() == page(), "run: python -m tools.settings_reference > docs/settings.md"


def test_every_setting_has_one_row_with_range_default_unit_and_meaning() -> None:
    for spec in SETTINGS:
        (line,) = [line for line in page().splitlines() if line.startswith(f"| `{spec.name}`")]
        for said in (spec.rule, f"`{spec.default}`", spec.unit, spec.description):
            assert said in line


def test_the_pauses_that_the_page_shows_pass_the_pattern() -> None:
    shown = re.findall(r"^\| `(on[^`]*|off)`", page(), re.MULTILINE)
    assert len(shown) == 3
    for text in shown:
        assert re.fullmatch(PAUSE.allowed_pattern, text)
        assert re.fullmatch(PAUSE.allowed_pattern, f"{text} because we say so")
