"""What holds for every test: a clean environment, no network, one marker a folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.isolation import clear_environment, stay_on_this_machine

TESTS = Path(__file__).parent
KINDS = ("unit", "contract", "infrastructure", "integration", "packaging")

# At import, because modules under test may read the environment when they are imported.
clear_environment(os.environ)
stay_on_this_machine()

# `check` gives the same examples on every run; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("check", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the kind that its folder names."""
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        if kind not in KINDS:
            raise pytest.UsageError(f"{item.path} lies in none of the folders tests/{{{','.join(KINDS)}}}")
        item.add_marker(kind)
        # The first test of a module waits for a deploy.
        if kind == "integration" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(autouse=True)
def restored_environment() -> Iterator[None]:
    """Take back what a test did to the environment."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
