"""The built layers, made once."""

from pathlib import Path

import pytest

from layers.build import build_layer, make_target


@pytest.fixture(scope="session")
def host_layer() -> Path:
    """The dependency layer for the interpreter that runs the tests."""
    return build_layer(make_target("host", "host"))


@pytest.fixture(scope="session")
def arm64_layer() -> Path:
    """The dependency layer of the stages that run on Lambda."""
    return build_layer(make_target("python3.13", "arm64"))
