"""The charts draw what the samples say, and nothing between them that was not so."""

from __future__ import annotations

import re

import pytest

from demo.charts import NARROW, WIDE, crossing_chart, rate_chart, spend_chart
from demo.story import Story
from tests.unit.demo.small_story import small_story


@pytest.fixture(scope="module")
def story() -> Story:
    return small_story()


def paths_of(svg: str, kind: str) -> list[str]:
    """The `d` of each path of a class."""
    return re.findall(rf'<path class="{kind}" d="([^"]*)"', svg)


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_the_true_bill_is_one_line_a_month(story: Story, size: object) -> None:
    svg = spend_chart(story, WIDE if size is WIDE else NARROW)
    assert len(paths_of(svg, "true")) == 2


def test_the_report_of_aws_budgets_is_a_staircase(story: Story) -> None:
    (path,) = paths_of(spend_chart(story, WIDE), "reported")
    assert path.count("V") > 50
    assert "L" not in path


def test_the_report_lies_below_the_true_bill_within_a_month(story: Story) -> None:
    """Drawn later and lower: pixels grow downwards."""
    (path,) = paths_of(spend_chart(story, WIDE), "reported")
    true = [
        (float(x), float(y))
        for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", paths_of(spend_chart(story, WIDE), "true")[0])
    ]
    steps = [(float(x), float(y)) for x, y in re.findall(r"H([\d.]+) V([\d.]+)", path)]
    for x, y in steps:
        at_that_time = [true_y for true_x, true_y in true if abs(true_x - x) < 0.05]
        assert all(true_y < y for true_y in at_that_time)


def test_thresholds_change_when_they_were_edited(story: Story) -> None:
    svg = spend_chart(story, WIDE)
    for kind in ("warn", "stop"):
        (path,) = paths_of(svg, kind)
        levels = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
        assert len(levels) == 2
        assert levels[1] > levels[0], "a lower threshold lies lower"


def test_marks_that_lie_too_close_are_counted(story: Story) -> None:
    svg = spend_chart(story, WIDE)
    assert svg.count('class="mark page"') == 1
    assert ">2</text>" in svg
    assert "stopping 1\n16 Jan 22:15 page: &lt;stopped&gt;" in svg


def test_a_restore_has_its_mark_on_a_line_of_its_own(story: Story) -> None:
    svg = spend_chart(story, WIDE)
    assert svg.count('class="mark start"') == 1
    assert ">starts</text>" in svg
    assert "restore of 2</title>" in svg


def test_the_run_rate_has_no_slopes(story: Story) -> None:
    (path,) = paths_of(rate_chart(story, WIDE), "rate")
    assert "L" not in path


def test_the_lag_is_shaded_from_crossing_to_report(story: Story) -> None:
    svg = crossing_chart(story, WIDE)
    found = re.search(r'<rect class="lag" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    assert found is not None
    assert float(found[2]) > 100
    assert "not known yet: 9 h 00 min" in svg


@pytest.mark.parametrize("draw", [spend_chart, rate_chart, crossing_chart])
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_nothing_is_drawn_outside(draw: object, size: object, story: Story) -> None:
    chosen = WIDE if size is WIDE else NARROW
    svg = {spend_chart: spend_chart, rate_chart: rate_chart, crossing_chart: crossing_chart}[draw](story, chosen)  # type: ignore[index]
    view = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert view is not None
    width, height = float(view[1]), float(view[2])
    for name, value in re.findall(r'\b(x|x1|x2|cx|y|y1|y2|cy)="(-?[\d.]+)"', svg):
        assert -0.1 <= float(value) <= (width if name.endswith("x") or name.startswith("x") else height) + 0.1
