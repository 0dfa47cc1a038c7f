"""Run the checks by name (none: all of them), print the seconds of each, and end non-zero if one fails.

A failed check does not keep the later ones from running: one run tells everything that is wrong.
"""

import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "build" / "check"
COVERAGE_DATA = ROOT / "build" / "coverage"
COVERAGE_FLOOR_PERCENT = 90
SIDE_BY_SIDE = frozenset({"unit", "contract"})
"""Tests that may run in several processes at once."""
MAX_PROCESSES = 4


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one check; `reason` is empty where it held."""

    name: str
    seconds: float
    reason: str


def run(*arguments: str) -> str:
    """Run a module of the environment in the project's folder; the reason of its failure, or nothing."""
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=False)
    return "" if done.returncode == 0 else f"{arguments[0]} ended with {done.returncode}"


def first_reason(*reasons: str) -> str:
    """The first reason that is not empty."""
    return next((reason for reason in reasons if reason), "")


def check_lint() -> str:
    """Rules and form of the code."""
    return first_reason(run("ruff", "check", "."), run("ruff", "format", "--check", "."))


def check_imports() -> str:
    """The import contracts of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        roots = tomllib.load(file)["tool"]["importlinter"]["root_packages"]
    missing = [name for name in roots if importable_folder(name) is None]
    if missing:
        return f"the import contracts name packages that are not in this version yet: {', '.join(missing)}"
    command = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = subprocess.run([sys.executable, "-c", command, "--cache-dir", "build/import-linter"], cwd=ROOT, check=False)
    return "" if done.returncode == 0 else "an import contract is broken"


def importable_folder(package: str) -> Path | None:
    """Where a package of this project lies, or None."""
    folders = (ROOT / "layers" / "core" / "python" / package, ROOT / package)
    return next((folder for folder in folders if folder.is_dir()), None)


def check_type() -> str:
    """mypy, strict."""
    return run("mypy")


def run_tests(kind: str, *, measured: bool) -> str:
    """Run one folder of tests; where measured, add what they cover to the coverage data."""
    folder = ROOT / "tests" / kind
    if not any(folder.rglob("test_*.py")):
        return f"there are no tests in tests/{kind} in this version yet"
    arguments = ["pytest", str(folder.relative_to(ROOT)), "--continue-on-collection-errors"]
    if kind in SIDE_BY_SIDE:
        # Modules share fixtures within themselves; a local AWS a module and process.
        arguments += ["--numprocesses", str(min(MAX_PROCESSES, os.cpu_count() or 1)), "--dist", "loadfile"]
    arguments.append(f"--junitxml={REPORTS / kind}.xml")
    if measured:
        arguments += ["--cov", "--cov-append", "--cov-report="]
    return run(*arguments)


def check_coverage() -> str:
    """Branch coverage of the core by the tests that ran before in the same call."""
    return run("coverage", "report", "--include=layers/core/*", f"--fail-under={COVERAGE_FLOOR_PERCENT}")


def check_build() -> str:
    """The layer that runs here, and the one of the stages on Lambda: its arm64 wheels exist and it is not too big."""
    return first_reason(
        run("layers.build", "--runtime", "host", "--architecture", "host"),
        run("layers.build", "--runtime", "python3.13", "--architecture", "arm64"),
    )


def list_checks(*, measured: bool) -> dict[str, Callable[[], str]]:
    """All checks in their order, the quick ones first; the tests from `contract` on run what `build` makes."""
    return {
        "lint": check_lint,
        "imports": check_imports,
        "type": check_type,
        "build": check_build,
        "unit": lambda: run_tests("unit", measured=measured),
        "contract": lambda: run_tests("contract", measured=measured),
        "coverage": check_coverage,
        "infrastructure": lambda: run_tests("infrastructure", measured=False),
        "packaging": lambda: run_tests("packaging", measured=False),
        "integration": lambda: run_tests("integration", measured=False),
    }


def run_check(name: str, check: Callable[[], str]) -> Result:
    """Run one check and time it."""
    print(f"\n==> {name}", flush=True)
    started = time.monotonic()
    reason = check()
    seconds = time.monotonic() - started
    print(f"<== {name}: {reason or 'ok'}, {seconds:.0f} s", flush=True)
    return Result(name, seconds, reason)


def count_tests() -> tuple[int, int, int]:
    """Passed, failed and skipped tests of this call, from the reports that pytest left."""
    total = failed = skipped = 0
    for report in REPORTS.glob("*.xml"):
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
    return total - failed - skipped, failed, skipped


def print_summary(results: Sequence[Result]) -> None:
    """A line a check, the tests, and the verdict."""
    print(f"\nsummary (Python {platform.python_version()})")
    for result in results:
        print(f"  {'FAILED' if result.reason else 'ok':<7}{result.name:<15}{result.seconds:6.0f} s  {result.reason}")
    print(f"  {'':<7}{'together':<15}{sum(result.seconds for result in results):6.0f} s")
    passed, failed, skipped = count_tests()
    if passed + failed + skipped:
        print(f"tests: {passed} passed, {failed} failed, {skipped} skipped")
    failures = [result.name for result in results if result.reason]
    print(f"FAILED: {', '.join(failures)}" if failures else "everything holds")


def main(names: Sequence[str]) -> int:
    """Run the named checks, or all."""
    checks = list_checks(measured=not names or "coverage" in names)
    unknown = sorted(set(names) - set(checks))
    if unknown:
        print(f"There is no check {', '.join(unknown)}; there are {', '.join(checks)}.", file=sys.stderr)
        return 2
    for folder in (REPORTS, COVERAGE_DATA):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    print(f"The checks run on Python {platform.python_version()} ({os.cpu_count()} cores).", flush=True)
    results = [run_check(name, checks[name]) for name in names or checks]
    print_summary(results)
    return 1 if any(result.reason for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
