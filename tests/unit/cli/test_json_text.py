"""One member of a JSON text is set, and every other byte stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.json_text import set_member

CDK_JSON = Path(__file__).parents[3] / "cdk.json"

keys = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(keys, values, max_size=4)


@given(objects, keys, values, st.sampled_from([None, 1, 2, "\t"]))
def test_text_reads_as_the_object_with_that_member(before: dict[str, Any], key: str, value: Any, indent: Any) -> None:
    text = json.dumps(before, indent=indent)
    after = set_member(text, [key], value)
    assert json.loads(after) == {**before, key: value}
    assert list(json.loads(after)) == list({**before, key: value})


@given(objects, objects, keys, values)
def test_nested_member_is_set_and_its_neighbours_keep_their_order(
    inner: dict[str, Any], outer: dict[str, Any], key: str, value: Any
) -> None:
    document = {**outer, "context": {"first": 1, "stages": inner, "last": [1, 2]}}
    after = set_member(json.dumps(document), ["context", "stages", key], value)
    assert json.loads(after)["context"] == {"first": 1, "stages": {**inner, key: value}, "last": [1, 2]}
    assert [name for name in json.loads(after) if name != "context"] == [n for n in outer if n != "context"]


def test_every_other_byte_of_cdk_json_stays() -> None:
    text = CDK_JSON.read_text(encoding="utf-8")
    after = set_member(text, ("context", "stages", "dev"), {"regions": ["eu-west-1"]})
    start = text.index('"dev": ') + len('"dev": ')
    end = text.index(',\n      "prod"')
    assert after.startswith(text[:start])
    assert after.endswith(text[end:])
    written = after[start : len(after) - len(text[end:])]
    assert written == '{\n        "regions": [\n          "eu-west-1"\n        ]\n      }'


def test_a_new_stage_comes_last_and_changes_nothing_before_it() -> None:
    text = CDK_JSON.read_text(encoding="utf-8")
    after = set_member(text, ("context", "stages", "new"), {})
    place = after.index(',\n      "new": {}')
    assert text == after[:place] + after[place + len(',\n      "new": {}') :]


@pytest.mark.parametrize("text", ["", "[1]", '{"context": 3}', '{"context": {"stages": []}}', '{"context": {}}', "{"])
def test_text_without_that_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        set_member(text, ("context", "stages", "dev"), {})
