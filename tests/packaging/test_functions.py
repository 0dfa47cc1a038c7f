"""Each function is whole with its own folder and the two layers: nothing of this environment is missing on Lambda."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from layers.build import CORE, ROOT

FUNCTIONS = sorted(path.parent for path in (ROOT / "lambdas").glob("*/handler.py"))

# Runs without site-packages (-S) and prints where each imported module came from.
PROBE = """
import json, sys
import handler
if not callable(handler.handler):
    raise SystemExit("handler.handler is not callable")
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print(json.dumps({name: file for name, file in files.items() if file}))
"""


def import_alone(folder: Path, layers: list[Path], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Import a function's handler in a fresh interpreter that sees its folder and the layers alone."""
    environment = {
        "PYTHONPATH": ":".join([str(folder), *(str(layer / "python") for layer in layers)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_REGION": "eu-west-1",
        "AWS_LAMBDA_FUNCTION_NAME": folder.name,
    }
    python = Path(sys.base_exec_prefix, "bin", f"python3.{sys.version_info.minor}")
    command = [str(python), "-S", "-c", PROBE]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


def test_there_are_functions() -> None:
    assert FUNCTIONS


@pytest.mark.parametrize("folder", FUNCTIONS, ids=lambda folder: folder.name)
def test_a_handler_is_imported_with_its_folder_and_the_layers_alone(
    folder: Path, host_layer: Path, tmp_path: Path
) -> None:
    done = import_alone(folder, [CORE, host_layer], tmp_path)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)
    here = {name for name, file in files.items() if Path(file).is_relative_to(ROOT)}
    allowed = (folder, CORE / "python", host_layer / "python")
    assert {name for name in here if not any(Path(files[name]).is_relative_to(a) for a in allowed)} == set()
    assert "site-packages" not in done.stdout
    assert "governor" in here


@pytest.mark.parametrize("folder", FUNCTIONS, ids=lambda folder: folder.name)
def test_a_missing_layer_is_noticed(folder: Path, tmp_path: Path) -> None:
    done = import_alone(folder, [CORE], tmp_path)
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr
