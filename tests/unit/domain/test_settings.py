"""Text to settings and back; whatever stands in a parameter, reading it never raises."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from governor.domain.settings import (
    SETTINGS,
    SPEC_BY_NAME,
    BudgetSettings,
    Settings,
    SettingSpec,
    ValueKind,
    as_texts,
    cross_field_errors,
    schema_hash,
)
from governor.domain.settings_review import MissingSettingError, UnknownSettingError
from governor.shell.settings import parse_tree

DEFAULTS = {spec.name: spec.default for spec in SETTINGS}
NUMBERS = (ValueKind.NUMBER, ValueKind.INTEGER, ValueKind.OPTIONAL_NUMBER)


def read_one(name: str, text: str) -> tuple[object, bool]:
    """The value of one setting in an otherwise default tree, and whether it was taken."""
    settings, errors = parse_tree({**DEFAULTS, name: text})
    spec = SPEC_BY_NAME[name]
    return getattr(getattr(settings, spec.area), spec.attribute), name not in {error.name for error in errors}


def ranged(spec: SettingSpec, places: int) -> st.SearchStrategy[float]:
    assert spec.minimum is not None
    assert spec.maximum is not None
    scale = 10**places
    return st.integers(int(spec.minimum * scale), int(spec.maximum * scale)).map(lambda number: number / scale)


WORD = st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True)
WORDS = st.lists(WORD, min_size=1, max_size=8, unique=True).map(tuple)


def values_of(spec: SettingSpec) -> st.SearchStrategy[object]:
    """Every value that a setting may have, in the precision that its text can carry."""
    match spec.kind:
        case ValueKind.NUMBER:
            return ranged(spec, 4)
        case ValueKind.INTEGER:
            return ranged(spec, 0).map(int)
        case ValueKind.CHOICE:
            return st.sampled_from(spec.choices)
        case ValueKind.WORDS:
            return WORDS
        case ValueKind.OPTIONAL_NUMBER:
            return st.none() | ranged(spec, 4)
        case ValueKind.TAGS | ValueKind.PAIRS:
            pair = st.tuples(st.from_regex(r"[A-Za-z0-9:-]{1,8}", fullmatch=True), WORD)
            return st.lists(pair, max_size=4, unique=True).map(tuple)


BUDGETS = st.builds(
    BudgetSettings,
    **{spec.attribute: values_of(spec) for spec in SETTINGS if spec.area == "budget"},
).map(Settings)


@given(BUDGETS)
def test_settings_survive_being_written_and_read(settings: Settings) -> None:
    read, errors = parse_tree(as_texts(settings))
    assert read == settings
    assert errors == cross_field_errors(settings)


@given(BUDGETS)
def test_what_is_written_passes_the_pattern_that_parameter_store_checks(settings: Settings) -> None:
    for name, text in as_texts(settings).items():
        assert re.fullmatch(SPEC_BY_NAME[name].allowed_pattern, text)


@given(st.sampled_from(SETTINGS), st.data())
def test_what_passes_pattern_and_range_is_taken_and_nothing_else(spec: SettingSpec, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(spec.allowed_pattern.strip("^$").join(("^", r"\Z"))))
    value, taken = read_one(spec.name, text)
    if spec.kind in NUMBERS and text != "same":
        assert spec.minimum is not None
        assert spec.maximum is not None
        in_range = spec.minimum <= float(text) <= spec.maximum
        # Out of range, or in range and against a rule between settings: only these two can be the latter.
        between = ("budget/warn-percent", "budget/stop-preemptible-percent")
        assert taken is in_range or (in_range and spec.name in between)
        if in_range:
            assert value == float(text)
    elif text in ("same", "any", "none"):
        assert taken
    elif spec.kind in (ValueKind.TAGS, ValueKind.PAIRS):
        pairs = [pair.strip() for pair in text.split(",")]
        named = all(pair.partition("=")[0].strip() for pair in pairs)
        assert taken is (named and len(set(pairs)) == len(pairs))
    elif spec.kind is ValueKind.WORDS:
        words = text.split(",")
        assert taken is (len(set(words)) == len(words))
    else:
        assert taken


ODD_TEXTS = [
    "", " ", "\n", "NaN", "nan", "inf", "-inf", "1e5", "1E2", "+80", "-1", "80 ", " 80", "80\n", "80\u2028", "８０",
    "٨٠", "੮੦", "80,5", "80%", "$80", "0x50", "8_0", "1,000", ".5", "5.", "80.12345", "123456789", "true", "None",
    "x" * 4096, "9" * 4096, "p4d,", ",p4d", "p4d, g4dn", "P4D", "p4d;g4dn", "enforce ", "Enforce", "\x00", "\ud800",
    "🙂",
]  # fmt: skip


@given(
    st.sampled_from(SETTINGS), st.text() | st.text("0123456789.,e+-_ ٠١\n", max_size=12) | st.sampled_from(ODD_TEXTS)
)
@example(SPEC_BY_NAME["budget/limit-usd"], "9" * 4096)
def test_any_text_is_read_without_raising_and_a_number_is_finite_and_in_range(spec: SettingSpec, text: str) -> None:
    value, taken = read_one(spec.name, text)
    if isinstance(value, int | float):
        assert spec.minimum is not None
        assert spec.maximum is not None
        assert math.isfinite(value)
        assert spec.minimum <= value <= spec.maximum
    if not taken:
        _, errors = parse_tree({**DEFAULTS, spec.name: text})
        (error,) = [error for error in errors if error.name == spec.name]
        assert error.value == text or "below" in error.rule or "budget/stop-percent" in error.rule
        assert error.rule in error.sentence


@pytest.mark.parametrize("text", ODD_TEXTS)
@pytest.mark.parametrize("name", ["budget/stop-percent", "budget/grace-minutes", "budget/mode"])
def test_odd_texts_are_refused(name: str, text: str) -> None:
    assert not read_one(name, text)[1]


@given(st.dictionaries(st.text(max_size=30) | st.sampled_from(sorted(DEFAULTS)), st.text(max_size=30), max_size=12))
def test_any_tree_is_read_without_raising_and_every_name_that_is_wrong_is_named_once(tree: dict[str, str]) -> None:
    _, errors = parse_tree(tree)
    names = [error.name for error in errors]
    assert len(set(names)) == len(names)
    assert {name for name in names if name not in DEFAULTS} == {name for name in tree if name not in DEFAULTS}
    assert set(DEFAULTS) - set(tree) <= set(names)


def test_an_unknown_name_is_answered_with_the_nearest_known_one() -> None:
    (error,) = parse_tree({**DEFAULTS, "budget/stop-percnt": "60"})[1]
    assert isinstance(error, UnknownSettingError)
    assert error.sentence == "budget/stop-percnt is not a setting: did you mean budget/stop-percent?"
    (error,) = parse_tree({**DEFAULTS, "zzz": "60"})[1]
    assert error.sentence == "zzz is not a setting: delete it"


def test_a_missing_setting_is_an_error_and_an_empty_tree_names_all() -> None:
    settings, errors = parse_tree({})
    assert settings == Settings()
    assert [error.name for error in errors] == sorted(DEFAULTS)
    assert all(isinstance(error, MissingSettingError) for error in errors)
    (one,) = [error for error in errors if error.name == "budget/confirm-minutes"]
    assert one.sentence == "budget/confirm-minutes is missing: it must be a whole number from 0 to 240"


def test_words_that_repeat_are_refused() -> None:
    (error,) = parse_tree({**DEFAULTS, "budget/stop-families": "p4d,g4dn,p4d"})[1]
    assert error.rule.endswith("each one once")


def test_a_warning_at_or_above_the_stop_is_refused_also_beside_an_unknown_name() -> None:
    for warn in ("95", "99"):
        (error,) = parse_tree({**DEFAULTS, "budget/warn-percent": warn})[1]
        assert error.sentence == f"budget/warn-percent is '{warn}': must be below budget/stop-percent (95)"
    _, errors = parse_tree({**DEFAULTS, "budget/warn-percent": "99", "budget/odd": "1"})
    assert [error.name for error in errors] == ["budget/odd", "budget/warn-percent"]


def test_rules_between_settings_wait_until_each_can_be_read() -> None:
    # The default of stop-percent stands in for the unreadable one; comparing with it would invent an error.
    _, errors = parse_tree({**DEFAULTS, "budget/warn-percent": "150", "budget/stop-percent": "two hundred"})
    assert [error.name for error in errors] == ["budget/stop-percent"]


def test_every_setting_is_described_ranged_and_fits_into_a_standard_parameter() -> None:
    assert parse_tree(DEFAULTS) == (Settings(), ())
    for spec in SETTINGS:
        assert spec.description.endswith(".")
        assert spec.unit
        assert len(spec.allowed_pattern) <= 1024
        re.compile(spec.allowed_pattern)
        if spec.kind in NUMBERS:
            assert spec.minimum is not None
            assert spec.maximum is not None
            assert spec.default == "same" or spec.minimum <= float(spec.default) <= spec.maximum


def test_the_schema_hash_follows_a_changed_range(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_hash()
    changed = (replace(SETTINGS[1], maximum=5.0), *SETTINGS[2:])
    monkeypatch.setattr("governor.domain.settings.SETTINGS", (SETTINGS[0], *changed))
    assert schema_hash() != before
