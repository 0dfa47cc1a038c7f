"""Cold start of guard_budget against an empty function that imports boto3, Powertools and pydantic.

Both start in a fresh interpreter without site-packages and see only what Lambda gives them: their folder and the
layers. The guard is timed from the first import to its first decision; reading AWS is left out on both sides.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

EMPTY = """
import time
began = time.perf_counter()
import boto3, pydantic
from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics
class Model(pydantic.BaseModel):
    text: str = ""
logger = Logger(service="empty")
Model.model_validate({"text": "event"})
print(time.perf_counter() - began)
"""

GUARD = """
import time, io, contextlib
began = time.perf_counter()
import handler
imported = time.perf_counter() - began
from bench.world import EVENT, make_deps
deps = make_deps(20, 100.0)
with contextlib.redirect_stdout(io.StringIO()):
    began = time.perf_counter()
    handler.handler(EVENT, None, deps)
    decided = time.perf_counter() - began
print(imported + decided)
"""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Seconds of the empty function and of the guard, one pair a run."""

    empty_seconds: tuple[float, ...]
    guard_seconds: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of the guard over the empty function, pair by pair."""
        return statistics.median(
            guard / empty for guard, empty in zip(self.guard_seconds, self.empty_seconds, strict=True)
        )


def measure(runs: int, *, compiled: bool) -> ColdStart:
    """Alternate the two `runs` times; `compiled` says whether bytecode lies beside the sources, as on a warm host."""
    layer = _dependency_layer()
    with tempfile.TemporaryDirectory(prefix="governor-bench-") as folder:
        place = Path(folder)
        shutil.copytree(layer, place / "dependencies")
        shutil.copytree(ROOT / "layers" / "core" / "python", place / "core")
        shutil.copytree(ROOT / "lambdas" / "guard_budget", place / "task")
        shutil.copytree(ROOT / "bench", place / "extra" / "bench")
        shutil.copytree(ROOT / "tests" / "fakes", place / "extra" / "tests" / "fakes")
        (place / "extra" / "tests" / "__init__.py").touch()
        for cache in place.rglob("__pycache__"):
            shutil.rmtree(cache)
        if compiled:
            command = [sys._base_executable, "-m", "compileall", "-q", str(place)]  # type: ignore[attr-defined]
            subprocess.run(command, check=True)
        paths = [place / "task", place / "core", place / "dependencies", place / "extra"]
        empty, guard = [], []
        for _ in range(runs):
            empty.append(_seconds(EMPTY, paths))
            guard.append(_seconds(GUARD, paths))
    return ColdStart(tuple(empty), tuple(guard))


def _seconds(program: str, paths: list[Path]) -> float:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    command = [sys._base_executable, "-S", "-c", program]  # type: ignore[attr-defined]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout))


def _dependency_layer() -> Path:
    built = sorted((ROOT / "build" / "layers").glob(f"python3.{sys.version_info.minor}-*/dependencies/python"))
    found = [path for path in built if "arm64" not in str(path) or os.uname().machine in ("arm64", "aarch64")]
    if not found:
        raise FileNotFoundError("the layer for this machine is not built; run `make build STAGE=local`")
    return found[0]
