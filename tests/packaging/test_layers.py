"""The layers: for the right machine, small, and the same bytes from the same pins."""

import struct
from pathlib import Path

import pytest

from layers import build
from layers.build import BUDGET_BYTES, CORE, LIMIT_BYTES, BuildError, check_size, make_target, measure_bytes, normalise

ELF_MACHINE_OF_ARM64 = 183


def elf_machine(library: Path) -> int:
    """The field e_machine of an ELF file's header."""
    header = library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF", library
    return int(struct.unpack_from("<H", header, 18)[0])


@pytest.mark.registry
def test_compiled_modules_of_the_arm64_layer_are_for_arm64_and_python_313(arm64_layer: Path) -> None:
    libraries = sorted(arm64_layer.rglob("*.so"))
    assert any(library.name.startswith("_pydantic_core") for library in libraries)
    assert {library: elf_machine(library) for library in libraries} == dict.fromkeys(libraries, ELF_MACHINE_OF_ARM64)
    assert [
        library.name for library in libraries if not (".cpython-313-" in library.name or ".abi3." in library.name)
    ] == []


@pytest.mark.registry
def test_both_layers_unzip_to_less_than_the_budget(arm64_layer: Path) -> None:
    unzipped_bytes = measure_bytes(arm64_layer) + measure_bytes(CORE)
    assert 10 * 1000**2 < unzipped_bytes < BUDGET_BYTES < LIMIT_BYTES


@pytest.mark.registry
def test_a_layer_holds_nothing_that_differs_from_build_to_build(arm64_layer: Path) -> None:
    names = {path.name for path in arm64_layer.rglob("*")}
    assert names & {"__pycache__", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "bin"} == set()
    assert {path.name for path in arm64_layer.iterdir()} == {"python"}


@pytest.mark.registry
def test_a_layer_that_is_built_is_not_built_again(arm64_layer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (arm64_layer / "python").stat().st_ino
    build.build_layer(make_target("python3.13", "arm64"))
    assert "is up to date" in capsys.readouterr().out
    assert (arm64_layer / "python").stat().st_ino == before


def test_normalising_keeps_code_and_licences_and_drops_records(tmp_path: Path) -> None:
    kept = ("six.py", "six.dist-info/METADATA", "six.dist-info/licenses/LICENSE")
    dropped = ("bin/jp.py", "__pycache__/six.pyc", "six.dist-info/RECORD", "six.dist-info/INSTALLER")
    for name in (*kept, *dropped):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(0o600)
    normalise(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(tmp_path)) for path in files) == sorted(kept)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}


def test_a_layer_above_the_budget_is_refused_with_both_figures() -> None:
    check_size(BUDGET_BYTES)
    with pytest.raises(BuildError, match=r"60\.1 MB; the budget is 60 MB"):
        check_size(BUDGET_BYTES + 100_000)


@pytest.mark.parametrize(
    ("runtime", "architecture", "reason"),
    [
        ("python3.13", "riscv", "no Lambda architecture"),
        ("nodejs24.x", "arm64", "no Python runtime"),
        ("python3.99", "host", "give host for both"),
    ],
)
def test_a_target_that_cannot_be_is_refused_with_a_reason(runtime: str, architecture: str, reason: str) -> None:
    with pytest.raises(BuildError, match=reason):
        make_target(runtime, architecture)


@pytest.mark.parametrize(("stage", "here"), [("local", True), ("dev", False), ("prod", False)])
def test_a_stage_is_built_for_what_its_context_says(stage: str, here: bool) -> None:
    target = build.read_target(stage)
    assert target.on_this_machine is here
    if here:
        assert target.runtime == build.host_runtime()
    else:
        assert (target.runtime, target.architecture) == ("python3.13", "arm64")


def test_an_unknown_stage_is_refused_with_the_stages_there_are() -> None:
    with pytest.raises(BuildError, match=r"dev, local, prod"):
        build.read_target("nowhere")
