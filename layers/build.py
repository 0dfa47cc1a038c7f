"""Build the dependency layer of a stage without Docker: `python -m layers.build --stage NAME`.

The result lies in build/layers/<runtime>-<architecture>/dependencies/python and is the same bytes for the same pins,
so that its asset hash changes only with them. A stage that runs on this machine also gets build/lambda-runtime, the
client by which AWS runs Python functions, for the interpreter that runs this module.
"""

import argparse
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
CORE = ROOT / "layers" / "core"
REQUIREMENTS = ROOT / "layers" / "dependencies" / "requirements.txt"
CONSTRAINTS = ROOT / "constraints.txt"
LAMBDA_RUNTIME = BUILD / "lambda-runtime"

# Lambda refuses a function whose package and layers unzip to more than 250 MB; the budget is our own, so that growth
# (and with it the cold start) is somebody's decision.
LIMIT_BYTES = 250 * 1000**2
BUDGET_BYTES = 60 * 1000**2

# Amazon Linux 2023, on which the runtimes from python3.12 on stand, has glibc 2.34; python3.11 has 2.26.
WHEEL_PLATFORMS = {
    "arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "x86_64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
}
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}
# Who installed a package, from where and when: it differs from build to build and nobody reads it in a layer.
INSTALL_RECORDS = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")


class BuildError(Exception):
    """The build cannot go on; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a layer is built for. `runtime` is such as python3.13; `on_this_machine`: it runs here, not on Lambda."""

    runtime: str
    architecture: str
    on_this_machine: bool

    @property
    def folder(self) -> Path:
        """Where everything built for this target lies."""
        return BUILD / "layers" / f"{self.runtime}-{self.architecture}"

    @property
    def python_version(self) -> str:
        """Such as 3.13."""
        return self.runtime.removeprefix("python")

    def pip_options(self) -> list[str]:
        """What makes pip choose the wheels of this target.

        On Linux with glibc a layer that runs here is the very one that Lambda would get; elsewhere pip chooses for
        the running interpreter.
        """
        if self.on_this_machine and platform.libc_ver()[0] != "glibc":
            return []
        platforms = [f"--platform={name}" for name in WHEEL_PLATFORMS[self.architecture]]
        version = f"--python-version={self.python_version}"
        return [*platforms, version, "--implementation=cp", "--only-binary=:all:"]


def host_runtime() -> str:
    """The runtime of the interpreter that runs this, such as python3.13."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def host_architecture() -> str:
    """The architecture of this machine in Lambda's words. Raises BuildError where Lambda has none."""
    machine = platform.machine().lower()
    if machine not in MACHINES:
        raise BuildError(f"No Lambda architecture runs on this machine ({machine}).")
    return MACHINES[machine]


def make_target(runtime: str, architecture: str) -> Target:
    """The target of two values of a stage, either of which may be `host`. Raises BuildError for unknown ones."""
    here = "host" in (runtime, architecture)
    target = Target(
        runtime=host_runtime() if runtime == "host" else runtime,
        architecture=host_architecture() if architecture == "host" else architecture,
        on_this_machine=here,
    )
    if target.architecture not in WHEEL_PLATFORMS:
        raise BuildError(f"{architecture} is no Lambda architecture; there are {', '.join(WHEEL_PLATFORMS)} and host.")
    if not target.runtime.startswith("python3."):
        raise BuildError(f"{runtime} is no Python runtime of Lambda; give one such as python3.13, or host.")
    if here and (target.runtime, target.architecture) != (host_runtime(), host_architecture()):
        raise BuildError(
            f"A layer for this machine is {host_runtime()} on {host_architecture()}, "
            f"not {target.runtime} on {target.architecture}: give host for both."
        )
    return target


def read_target(stage: str) -> Target:
    """The target that cdk.json names for a stage. Raises BuildError if there is no such stage."""
    from stacks.config import StageError, load_stage, read_cdk_json

    try:
        config = load_stage(stage)
        written = read_cdk_json()["context"]["stages"][stage]
    except StageError as error:
        raise BuildError(str(error)) from error
    here = "host" in (written["runtime"], written["architecture"])
    return make_target("host", "host") if here else make_target(config.runtime, config.architecture)


def run_pip(arguments: Sequence[str]) -> None:
    """Run pip of this interpreter. Raises BuildError with the end of what it said."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-10:])
        raise BuildError(f"pip could not install the packages:\n{said}")


def remove_compiled(folder: Path) -> None:
    """Remove compiled copies: they hold times, so they would change the asset's hash."""
    for cache in list(folder.rglob("__pycache__")):
        shutil.rmtree(cache)


def normalise(folder: Path) -> None:
    """Remove what differs from build to build, and what no function reads."""
    shutil.rmtree(folder / "bin", ignore_errors=True)
    remove_compiled(folder)
    for info in folder.glob("*.dist-info"):
        for name in INSTALL_RECORDS:
            (info / name).unlink(missing_ok=True)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def fingerprint(arguments: Sequence[str]) -> str:
    """Hash of everything that decides the content: pins, pip's options, the platform, and this module."""
    texts = [path.read_text() for path in (REQUIREMENTS, CONSTRAINTS, Path(__file__))]
    here = [sysconfig.get_platform(), host_runtime()] if not any(a.startswith("--platform") for a in arguments) else []
    return hashlib.sha256(json.dumps([*texts, *arguments, *here]).encode()).hexdigest()


def install(arguments: Sequence[str], folder: Path, stamp: Path, label: str) -> None:
    """Install into `folder` unless the stamp says that the same thing lies there; an old one goes only at the end."""
    wanted = fingerprint(arguments)
    if folder.is_dir() and stamp.is_file() and stamp.read_text() == wanted:
        remove_compiled(folder)
        print(f"build: {label} is up to date ({measure_bytes(folder) / 1e6:.1f} MB)")
        return
    started = time.monotonic()
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="unfinished-") as name:
        unfinished = Path(name) / "python"
        run_pip([*arguments, "--no-compile", f"--constraint={CONSTRAINTS}", f"--target={unfinished}"])
        normalise(unfinished)
        stamp.unlink(missing_ok=True)
        if folder.exists():
            folder.rename(Path(name) / "replaced")
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished.rename(folder)
        stamp.write_text(wanted)
    print(f"build: {label}, {measure_bytes(folder) / 1e6:.1f} MB in {time.monotonic() - started:.0f} s", flush=True)


def build_layer(target: Target) -> Path:
    """Build the dependency layer of a target if it is not built; its root folder. Raises BuildError."""
    layer = target.folder / "dependencies"
    label = f"layer for {target.runtime} on {target.architecture}"
    install(
        [*target.pip_options(), f"--requirement={REQUIREMENTS}"],
        layer / "python",
        target.folder / "built.sha256",
        label,
    )
    check_size(measure_bytes(layer) + measure_bytes(CORE))
    return layer


def build_lambda_runtime() -> Path:
    """Install AWS's runtime client for Python for this interpreter if it is not there. Raises BuildError."""
    stamp = LAMBDA_RUNTIME.with_name("lambda-runtime.sha256")
    install(["awslambdaric"], LAMBDA_RUNTIME, stamp, f"Lambda runtime for {host_runtime()}")
    return LAMBDA_RUNTIME


def measure_bytes(folder: Path) -> int:
    """The unzipped size as Lambda counts it: all files, without compiled copies that a run left behind."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def check_size(unzipped_bytes: int) -> None:
    """Raise BuildError if both layers together are above our budget (Lambda's limit lies above it)."""
    if unzipped_bytes > BUDGET_BYTES:
        raise BuildError(
            f"Both layers unzip to {unzipped_bytes / 1e6:.1f} MB; the budget is {BUDGET_BYTES / 1e6:.0f} MB "
            f"(Lambda's limit: {LIMIT_BYTES / 1e6:.0f} MB). Drop a package or raise BUDGET_BYTES in layers/build.py."
        )


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """A stage, or a runtime with an architecture."""
    parser = argparse.ArgumentParser(prog="python -m layers.build", description="Build the dependency layer.")
    parser.add_argument("--stage", help="a stage of cdk.json")
    parser.add_argument("--runtime", help="instead of a stage: such as python3.13, or host")
    parser.add_argument("--architecture", help="with --runtime: arm64, x86_64 or host")
    options = parser.parse_args(arguments)
    if bool(options.stage) == bool(options.runtime or options.architecture):
        parser.error("give --stage, or --runtime and --architecture")
    if not options.stage and not (options.runtime and options.architecture):
        parser.error("--runtime and --architecture go together")
    return options


def main(arguments: Sequence[str]) -> int:
    """Build; 1 with the reason if it fails."""
    options = parse_arguments(arguments)
    try:
        target = read_target(options.stage) if options.stage else make_target(options.runtime, options.architecture)
        build_layer(target)
        if target.on_this_machine:
            build_lambda_runtime()
    except BuildError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
