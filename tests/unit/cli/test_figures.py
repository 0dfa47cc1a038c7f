"""Figures that the CLI works out itself, and how it shows them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.init import propose_limit_usd
from cli.own_cost import estimate_own_cost
from cli.terminal import age, bar, count, usd, who


@pytest.mark.parametrize(
    ("rate", "limit"), [(0, 100), (99.9, 100), (101, 110), (1000, 1000), (16029, 17000), (33323.98, 34000)]
)
def test_proposed_limit(rate: float, limit: int) -> None:
    assert propose_limit_usd(rate) == limit


@given(st.floats(0, 1e7))
def test_proposed_limit_holds_what_runs_and_not_much_more(usd_per_month: float) -> None:
    limit = propose_limit_usd(usd_per_month)
    assert usd_per_month <= limit + 1e-6
    assert limit <= max(100, usd_per_month * 1.1 + 1)


def test_the_governor_costs_about_ten_dollars_a_month_without_free_tier() -> None:
    assert 8 < sum(item.usd_per_month for item in estimate_own_cost(1)) < 13


@given(st.integers(1, 17))
def test_a_further_region_costs_more_time_and_nothing_else(regions: int) -> None:
    fewer, more = estimate_own_cost(regions), estimate_own_cost(regions + 1)
    assert [a.what for a, b in zip(fewer, more, strict=True) if a != b] == ["Lambda time"]
    assert sum(b.usd_per_month for b in more) > sum(a.usd_per_month for a in fewer)


@given(st.floats(0, 1000), st.floats(1, 200), st.floats(1, 200))
def test_bar_always_has_its_width_and_both_marks(share: float, warn: float, stop: float) -> None:
    drawn = bar([(share, "good")], [(warn, "warn"), (stop, "bad")], full=200, width=40).plain
    assert len(drawn) == 42
    assert 1 <= drawn.count("|") <= 2


def test_bar_is_filled_to_its_share() -> None:
    assert bar([(50.0, "")], [(80.0, "")], full=100, width=10).plain == "[█████···|·]"


@pytest.mark.parametrize(
    ("seconds", "words"), [(-3, "0 s"), (59, "59 s"), (150, "2 min"), (7300, "2 h"), (400_000, "4 d")]
)
def test_age(seconds: int, words: str) -> None:
    assert age(timedelta(seconds=seconds)) == words


def test_words_for_figures() -> None:
    assert (usd(None), usd(1234.5)) == ("unknown", "$1,234.50")
    assert (count(1), count(2, "stop")) == ("1 instance", "2 stops")


@pytest.mark.parametrize(
    ("arn", "words"),
    [
        ("arn:aws:iam::123456789012:user/alice", "user/alice"),
        ("arn:aws:sts::123456789012:assumed-role/Admin/alice", "alice (Admin)"),
        ("arn:aws:iam::123456789012:root", "root"),
        ("", "somebody unknown"),
        (
            "arn:aws:sts::1:assumed-role/Governor-dev-Control-X/Governor-dev-Control-SeedSettingsFunctionCF8085FB-4FF7",
            "the Governor (SeedSettings)",
        ),
        (f"arn:aws:sts::1:assumed-role/{'R' * 40}/{'s' * 40}", f"{'s' * 21}... ({'R' * 21}...)"),
    ],
)
def test_people_are_named_shortly(arn: str, words: str) -> None:
    assert who(arn) == words
