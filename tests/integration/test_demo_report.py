"""The demo played as a user plays it, and its report opened in headless Chromium."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo.report import SECTIONS, write_report
from demo.story import read_story
from tests.unit.demo.small_story import small_story

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
MAX_BYTES = 1_000_000
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
WITH_PIPE = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Starts the browser with its debugging pipe, which it expects as file descriptors 3 and 4."""


class Page:
    """One page of a browser, spoken to over its debugging pipe; keeps every event."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._write, self._read = to_browser, from_browser
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer. Raises RuntimeError with the browser's own words."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._read, 1 << 16)
            if not chunk:
                raise RuntimeError("the browser has gone")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def show(self, url: str, width: int) -> None:
        """Open a page in a window of that many CSS pixels, and wait until it is loaded."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.ask("document.fonts.ready.then(() => true)")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Console messages, exceptions and entries of the browser's log."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        sent = (event for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [str(event["params"]["request"]["url"]) for event in sent]


@pytest.fixture(scope="module")
def browser() -> str:
    """The browser, or a skip that says what is missing."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is on the path (.ci/run installs chromium)")
    return found


@pytest.fixture(scope="module")
def page(browser: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page in a headless browser with an empty profile of its own."""
    from_test, to_browser = os.pipe()
    from_browser, to_test = os.pipe()
    profile = tmp_path_factory.mktemp("profile")
    command = [browser, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_PIPE, str(from_test), str(to_test), *command],
        pass_fds=(from_test, to_test),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_test)
    os.close(to_test)
    try:
        one = Page(to_browser, from_browser)
        yield one
        with contextlib.suppress(RuntimeError):  # it may be gone before it answers
            one._session = None
            one.call("Browser.close")
        process.wait(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(to_browser)
        os.close(from_browser)


@dataclass(frozen=True, slots=True)
class Played:
    """How the demo ended, and where its files are."""

    code: int
    said: str
    complained: str
    folder: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """`python -m demo`, played once."""
    folder = tmp_path_factory.mktemp("demo")
    ended = subprocess.run(
        [sys.executable, "-m", "demo", "--out", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    return Played(ended.returncode, ended.stdout, ended.stderr, folder)


@pytest.fixture(scope="module")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the small story."""
    path = tmp_path_factory.mktemp("small") / "report.html"
    write_report(small_story(failing=True), path)
    return path


def test_the_demo_ends_well_and_says_what_it_saw(played: Played) -> None:
    assert played.code == 0, played.said + played.complained
    assert "FAILED" not in played.said
    story = read_story(played.folder / "story.json")
    assert story.failures == ()
    assert len(story.checks) >= 75
    assert [scene.number for scene in story.scenes] == list(range(1, 10))
    assert {row.fate.value for row in story.fleet} == {"stopped", "spared"}


def test_kinds_are_stopped_in_their_own_way_or_left(played: Played) -> None:
    story = read_story(played.folder / "story.json")
    fates = {(row.kind, row.fate.value) for row in story.fleet if row.kind != "plain"}
    assert fates == {
        ("group member", "stopped"),
        ("persistent spot", "stopped"),
        ("one-time spot", "spared"),
        ("stop-protected", "spared"),
    }
    sizes = {moment.what: (moment.min_size, moment.desired, moment.max_size) for moment in story.group_moments}
    assert sizes == {
        "before the stop": (1, 2, 3),
        "stopped": (0, 0, 3),
        "before the restore": (0, 0, 3),
        "restored": (1, 2, 3),
        "stopped again": (0, 0, 3),
    }
    assert {moment.launched for moment in story.group_moments} == {2}


def test_nothing_is_stopped_under_the_override_that_the_command_wrote(played: Played) -> None:
    overriding = read_story(played.folder / "story.json").overriding
    assert overriding.command.exit_code == 0
    assert f"It keeps {len(overriding.machines)} instances" in overriding.command.printed
    assert overriding.stop_calls == 0
    assert overriding.command.at < overriding.ended_at < overriding.until
    assert overriding.ended_at < overriding.stopped_at


def test_the_command_of_the_mail_brings_back_exactly_what_was_stopped_and_the_time_is_printed(played: Played) -> None:
    story = read_story(played.folder / "story.json")
    restoring = story.restoring
    assert restoring.command.typed.startswith(restoring.in_mail)
    assert any(restoring.in_mail in mail.body and mail.subject == restoring.mail_subject for mail in story.mails)
    assert {row.name for row in restoring.rows} == {row.name for row in story.fleet if row.fate.value == "stopped"}
    for row in restoring.rows:
        assert row.running_after_seconds is not None, row.name
        assert row.running_after_seconds >= row.boot_minutes * 60, row.name
        assert row.confirmed_after_seconds is not None, row.name
    assert restoring.group_after_seconds is not None
    ending = played.said.partition("Restore: virtual time from the command")[2]
    assert all(row.name in ending for row in restoring.rows)
    assert restoring.command.typed in " ".join(ending.split())


def test_the_report_is_one_small_file(played: Played) -> None:
    assert sorted(path.name for path in played.folder.iterdir()) == ["report.html", "story.json"]
    assert (played.folder / "report.html").stat().st_size < MAX_BYTES


@pytest.mark.parametrize("width", [1280, 1024, 768, 390])
def test_the_played_report_is_whole_quiet_and_alone(played: Played, page: Page, width: int) -> None:
    assert_good(page, played.folder / "report.html", width)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_report_of_failures_is_whole_quiet_and_alone(small_report: Path, page: Page, width: int) -> None:
    assert_good(page, small_report, width)


def assert_good(page: Page, report: Path, width: int) -> None:
    """No complaint, no request, every section on the page, nothing wider than the window, folded or not."""
    url = report.as_uri()
    page.show(url, width)
    assert page.complaints() == []
    assert [one for one in page.requests() if not one.startswith("data:")] == [url]
    sections = page.ask("[...document.querySelectorAll('main > section')].map(one => [one.id, one.offsetHeight])")
    assert [name for name, _ in sections] == [name for name, _ in SECTIONS]
    assert all(height > 40 for _, height in sections)
    shown = page.ask("[...document.querySelectorAll('figure svg')].filter(one => one.clientWidth > 0).length")
    assert shown == 3, "each chart is shown in one of its two widths"
    assert page.ask(TOO_WIDE) == 0
    page.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.ask(TOO_WIDE) == 0
    assert page.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_schemes(small_report: Path, page: Page, scheme: str) -> None:
    """WCAG AA: at least 4.5 between each colour of text and the ground it stands on."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.show(small_report.as_uri(), 1280)
    page.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    poor = page.ask(CONTRAST)
    page.call("Emulation.setEmulatedMedia", features=[])
    assert poor == []


CONTRAST = """
(() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = one => {
    for (let at = one; at; at = at.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || ['title', 'desc', 'STYLE'].includes(one.nodeName) || !one.getClientRects().length) continue;
    const style = getComputedStyle(one);
    const colour = one.nodeName === 'text' ? style.fill : style.color;
    const [a, b] = [light(numbers(colour)), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.add(`${one.nodeName}.${one.getAttribute('class')} ${ratio.toFixed(2)}`);
  }
  return [...poor];
})()
"""
