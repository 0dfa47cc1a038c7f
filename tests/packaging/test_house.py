"""The rules of the house that no other tool checks."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from layers.build import CONSTRAINTS, CORE, REQUIREMENTS, ROOT

DOMAIN = CORE / "python" / "governor" / "domain"
TARGETS = (
    *("help", "setup", "demo", "local", "check", "test", "unit", "integration", "lint", "type"),
    *("synth", "deploy", "diff", "bench", "build", "clean"),
)


def read_pins(path: Path) -> dict[str, str]:
    """Package -> release of a requirements file, names normalised. Fails on a line that pins nothing."""
    pins = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith(("#", "-r ", "-c ")):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[a-z0-9,-]+\])?==([0-9][A-Za-z0-9.]*)", line)
            assert match, f"{path.name}: {line!r} is not pinned to one release"
            pins[normalise_name(match[1])] = match[2]
    return pins


def normalise_name(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_modules(path: Path) -> set[str]:
    """The modules that a file imports, absolute."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            found.add(node.module or "")
    return found


def test_the_domain_imports_the_standard_library_and_itself_alone() -> None:
    files = sorted(DOMAIN.rglob("*.py"))
    assert files
    foreign = {
        (path.name, module)
        for path in files
        for module in imported_modules(path)
        if module.split(".")[0] not in sys.stdlib_module_names and not (module + ".").startswith("governor.domain.")
    }
    assert foreign == set()


@pytest.mark.parametrize("module", ["time", "random", "socket", "subprocess", "os", "pathlib", "logging"])
def test_the_domain_has_no_clock_no_chance_and_no_reach(module: str) -> None:
    users = {path.name for path in DOMAIN.rglob("*.py") if module in {m.split(".")[0] for m in imported_modules(path)}}
    assert users == set()


def test_every_requirement_is_pinned_and_agrees_with_the_constraints() -> None:
    constraints = read_pins(CONSTRAINTS)
    direct = read_pins(ROOT / "requirements.txt") | read_pins(REQUIREMENTS)
    assert {name: constraints.get(name) for name in direct} == direct


def test_the_environment_holds_what_is_pinned_and_nothing_else() -> None:
    installed = {normalise_name(d.metadata["Name"]): d.version for d in metadata.distributions()}
    unpinned = {"pip", "setuptools", "gpu-governor"}
    assert {name: version for name, version in installed.items() if name not in unpinned} == read_pins(CONSTRAINTS)


def test_requirements_start_with_the_layers_own() -> None:
    assert (ROOT / "requirements.txt").read_text().startswith("-r layers/dependencies/requirements.txt\n")


def test_make_help_lists_every_target() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert set(TARGETS) <= listed.keys()
    assert all(len(line.split()) > 3 for line in listed.values())


def test_the_command_is_what_pyproject_names() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        named = tomllib.load(file)["project"]["scripts"]["governor"]
    (entry,) = metadata.entry_points(group="console_scripts", name="governor")
    assert entry.value == named
    assert callable(entry.load())
