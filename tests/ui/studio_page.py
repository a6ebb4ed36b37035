"""What tests do on the page of a server, as a person does it."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


class Served(Protocol):
    """A server with a page."""

    url: str
    tokens: dict[str, str]


def expect(locator: "Locator"):
    """Playwright's assertions, imported when the first is used."""
    from playwright.sync_api import expect

    return expect(locator, "")


def sign_in(page: "Page", server: Served, role: str = "user", fragment: str = "") -> None:
    """Open the page, and sign in with the role's token."""
    page.goto(f"{server.url}/ui{fragment}")
    page.get_by_label("Token").fill(server.tokens[role])
    page.get_by_role("button", name="Sign in").click()


def enter(page: "Page", server: Served, role: str, fragment: str) -> None:
    """Open the page as one who has signed in before with the role's token."""
    page.add_init_script(f"if (location.host) sessionStorage.setItem('mail-token', '{server.tokens[role]}')")
    page.goto(f"{server.url}/ui#{fragment}")


def send(page: "Page", body: str) -> None:
    """Write a message into the composer, and send it."""
    page.get_by_label("Message", exact=True).fill(body)
    page.get_by_label("Message", exact=True).press("Enter")


def new_task(page: "Page") -> None:
    """Leave the open task for the composer of a new one: the browser reports the new address a moment later."""
    page.get_by_role("link", name="New task").click()
    expect(status_of(page)).to_have_count(0)


def ask(page: "Page", server: Served, body: str, status: str = "completed") -> None:
    """Sign in, begin a task, and wait until it has stopped."""
    sign_in(page, server)
    send(page, body)
    expect(status_of(page)).to_have_text(status)


def status_of(page: "Page") -> "Locator":
    """The state of the open task."""
    return page.locator(".task-head .chip")


def answers(page: "Page") -> "Locator":
    """The answers of the conversation, oldest first."""
    return page.get_by_role("article", name="Answer", exact=True)


def is_in_view(locator: "Locator") -> bool:
    """Whether the beginning of an element is inside the pane that scrolls the conversation."""
    return locator.evaluate(
        """element => {
          const pane = element.closest(".chat-scroll").getBoundingClientRect();
          const { top } = element.getBoundingClientRect();
          return top >= pane.top - 1 && top < pane.bottom - 10;
        }"""
    )


def ground(page: "Page") -> int:
    """How bright the page's background is, 0 to 255."""
    return page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")


def violations(page: "Page", axe: str) -> list[str]:
    """The rules of axe that the page breaks, and where: WCAG 2.2 AA and best practices."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    options = {"runOnly": tags, "resultTypes": ["violations"], "preload": False}
    result = page.evaluate("options => axe.run(document, options)", options)
    return [f"{rule['id']}: {node['target']}" for rule in result["violations"] for node in rule["nodes"]]
