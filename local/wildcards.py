"""Filter values with `*` and `?`, which EC2 matches as wildcards and moto compares letter by letter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from moto.ec2 import utils

from local.patching import replace


def allow_wildcards() -> None:
    """Let filters of moto's EC2 match wildcards (Amazon EC2 API Reference, "Filter": values may hold wildcards)."""
    replace(utils, "instance_value_in_filter_values", ("instance_value", "filter_values"), matches)


def matches(instance_value: Any, filter_values: Sequence[str]) -> bool:
    """True where a value of an instance (or one of its values) matches one of the patterns."""
    if isinstance(instance_value, bool):
        instance_value = str(instance_value).lower()
    values = instance_value if isinstance(instance_value, list) else [instance_value]
    return any(_pattern(text).fullmatch(str(value)) for value in values for text in filter_values)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Only `*` and `?` are wildcards; a bracket is a letter like any other."""
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
