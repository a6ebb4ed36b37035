"""What the tests of the page share: a Chromium, a server, and where screenshots go.

They need the `playwright` package and a Chromium: the one that MAIL_CHROMIUM names, `chromium-headless-shell`,
playwright's own (`playwright install chromium`), or the system's. Without them they are skipped, in CI they fail.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from studio_page import violations
from studio_server import StudioServer
from support.processes.approval_swarm import Bank
from support.processes.server import ServerProcess
from ui_needs import unavailable

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

SHELLS = ("chromium-headless-shell", "chrome-headless-shell")
"""Chromiums without windows, which take half the CPU time."""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FLAGS = (
    "--headless",
    "--remote-debugging-port=0",
    "--hide-scrollbars",
    "--no-first-run",
    # Nothing but the page: no requests of Chromium's own, no reports.
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    # Few processes: one draws all pages, none is started for a page that may come.
    "--disable-gpu",
    "--in-process-gpu",
    "--enable-features=NetworkServiceInProcess2",
    "--disable-features=SpareRendererForSitePerProcess",
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
    # What lives for a second isn't worth optimizing.
    "--js-flags=--no-opt,--no-maglev,--single-threaded-gc",
)


def chromium() -> str | None:
    """The executable; None where there is none."""
    if named := os.environ.get("MAIL_CHROMIUM") or next(filter(None, map(shutil.which, SHELLS)), None):
        return named
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def chromium_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one headless Chromium for all tests."""
    if find_spec("playwright") is None:
        unavailable("playwright")
    executable = chromium()
    if executable is None:
        unavailable("Chromium")
    flags = list(FLAGS)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # the sandbox doesn't start for root, who runs in most containers
    profile = tmp_path_factory.mktemp("chromium")
    with (profile / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [executable, *flags, f"--user-data-dir={profile}", "about:blank"],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield _debugging_url(process, profile)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # Debian's program is a script that starts another one
        process.wait()


def _debugging_url(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Wait until Chromium has written its port."""
    port = profile / "DevToolsActivePort"
    deadline = time.monotonic() + 60
    while not (port.exists() and "\n" in port.read_text()):
        log = (profile / "log.txt").read_text(errors="replace")
        assert process.poll() is None, log
        assert time.monotonic() < deadline, log
        time.sleep(0.05)
    return f"http://127.0.0.1:{port.read_text().split()[0]}"


@pytest.fixture(scope="module")
def browser(chromium_url: str) -> Iterator["Browser"]:
    """For a module whose tests are all synchronous: until it is closed, playwright's event loop occupies the thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.connect_over_cdp(chromium_url)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`mail server` with the rule-based swarm."""
    with ServerProcess(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """A server whose agent asks before it pays."""
    with Bank(tmp_path_factory.mktemp("bank")) as running:
        yield running


@pytest.fixture(scope="module")
def studio() -> Iterator[StudioServer]:
    """A server with scripted agents and models, in this process."""
    with StudioServer() as studio:
        yield studio


@pytest.fixture(scope="module")
def context(browser: "Browser") -> Iterator["BrowserContext"]:
    """A browser of its own for each module, with a light system. What one test has loaded, the next needn't."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(15_000)
    context.new_page()  # keeps the process that draws pages
    yield context
    context.close()


@pytest.fixture
def page(context: "BrowserContext") -> Iterator["Page"]:
    """A page on which nothing may go wrong unseen: no script error, no violation of the policy. Nothing is stored."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.wrong = wrong
    yield page
    context.set_offline(False)
    if page.url.startswith("http"):
        page.evaluate("localStorage.clear()")
    for opened in context.pages[1:]:
        opened.close()
    assert not wrong


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which finds barriers for people with disabilities."""
    package = find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        unavailable("axe-playwright-python")
    return (Path(package.origin).parent / "axe.min.js").read_text(encoding="utf-8")


LOOKS = [(1440, "light"), pytest.param((360, "dark"), marks=pytest.mark.soak)]


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
def inspect(page: "Page", axe: str, request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Looks for barriers, and for what is wider than the window, in each state of the page that it is called for."""
    width, scheme = request.param
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    found: dict[str, list[str]] = {}

    def inspect(state: str) -> None:
        found[state] = violations(page, axe)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, state

    yield inspect
    assert {state: rules for state, rules in found.items() if rules} == {}


@pytest.fixture
def shoot(page: "Page") -> Callable[[str], None]:
    """Keeps a screenshot in the folder that MAIL_ARTEFACTS names; without it, none is taken."""
    folder = os.environ.get("MAIL_ARTEFACTS")

    def shoot(name: str) -> None:
        if folder:
            page.screenshot(path=Path(folder) / f"ui-{name}.png")

    return shoot
