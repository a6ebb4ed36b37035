"""What the tests of the page share: a Chromium, a server, and where screenshots go.

They need the `playwright` package and a Chromium: playwright's own (`playwright install chromium`), the system's, or the
one that MAIL_CHROMIUM names. Without them they are skipped, in CI they fail.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.server_process import ServerProcess
from ui_needs import unavailable

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium(playwright: "Playwright") -> str | None:
    """The executable; None where there is none."""
    if named := os.environ.get("MAIL_CHROMIUM"):
        return named
    own = playwright.chromium.executable_path
    return own if Path(own).exists() else next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """For a module whose tests are all synchronous: until it is closed, playwright's event loop occupies the thread."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("playwright")
    with sync_playwright() as playwright:
        executable = chromium(playwright)
        if executable is None:
            unavailable("Chromium")
        # Chromium's sandbox doesn't start for root, which is who runs in most containers.
        browser = playwright.chromium.launch(
            executable_path=executable, chromium_sandbox=hasattr(os, "geteuid") and os.geteuid() != 0
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`mail server` with the rule-based swarm."""
    with ServerProcess(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def context(browser: "Browser") -> Iterator["BrowserContext"]:
    """A browser of its own for each test: nothing stored, a light system."""
    context = browser.new_context(viewport={"width": 1400, "height": 950}, color_scheme="light")
    context.set_default_timeout(15_000)
    yield context
    context.close()


@pytest.fixture
def page(context: "BrowserContext") -> Iterator["Page"]:
    """A page on which nothing may go wrong unseen: no script error, no violation of the policy."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.wrong = wrong
    yield page
    assert not wrong


@pytest.fixture
def shoot(page: "Page", tmp_path: Path) -> Callable[[str], Path]:
    """Keeps a screenshot: in the folder that MAIL_ARTEFACTS names, or with the test's other files."""
    folder = Path(os.environ.get("MAIL_ARTEFACTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def shoot(name: str) -> Path:
        path = folder / f"ui-{name}.png"
        page.screenshot(path=path, full_page=True)
        return path

    return shoot
