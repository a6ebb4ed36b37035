"""Sharing a task by a link, and what somebody sees who has only the link, in Chromium."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from studio_page import answers, expect, send, sign_in, status_of
from studio_server import StudioServer

if TYPE_CHECKING:
    from playwright.sync_api import Page


def begin(page: "Page", studio: StudioServer) -> None:
    """Sign in, and begin a task."""
    sign_in(page, studio, fragment="#new")
    send(page, "markdown please")
    expect(status_of(page)).to_have_text("completed")


def test_a_link_shows_a_task_until_it_is_revoked(
    page: "Page", studio: StudioServer, inspect: Callable[[str], None], shoot: Callable[[str], None]
) -> None:
    begin(page, studio)
    page.get_by_role("button", name="Share this task").click()
    dialog = page.get_by_role("dialog", name="Share this task")
    dialog.get_by_label("Expires after").select_option("1 day")
    dialog.get_by_role("button", name="Create a link").click()
    link = dialog.get_by_label("The link; it is not shown again").input_value()
    assert link.startswith(f"{studio.url}/ui#shared=mail_share_")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    inspect("dialog")
    shoot("share")

    other = page.context.new_page()  # with a session storage of its own, so without a key
    other.goto(link)
    expect(answers(other)).to_contain_text("Two cities")
    expect(other.locator(".shared-by")).to_contain_text("Shared by user:ann")
    expect(other.get_by_role("textbox")).to_have_count(0)
    expect(other.get_by_label("Message from ann")).to_contain_text("markdown please")
    other.get_by_role("tab", name="Trace").click()
    expect(other.get_by_role("option").first).to_be_visible()

    dialog.get_by_role("button", name="Revoke the link").click()
    expect(dialog.get_by_role("listitem")).to_have_count(0)
    other.reload()
    expect(other.get_by_text("This task can't be shown.")).to_be_visible()
    expect(other.get_by_text("revoked")).to_be_visible()


def test_what_a_link_shows_is_for_everybody(
    page: "Page", studio: StudioServer, inspect: Callable[[str], None], shoot: Callable[[str], None]
) -> None:
    begin(page, studio)
    page.get_by_role("button", name="Share this task").click()
    page.get_by_role("button", name="Create a link").click()
    link = page.get_by_label("The link; it is not shown again").input_value()
    page.evaluate("sessionStorage.clear()")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(link)
    page.reload()
    expect(answers(page)).to_contain_text("Two cities")
    inspect("conversation")
    shoot("shared")
    page.get_by_role("tab", name="Trace").click()
    expect(page.get_by_role("option").first).to_be_visible()
    inspect("trace")
    shoot("shared-trace")
    assert asked
    assert not [url for url in asked if link.partition("=")[2] in url], "the code is sent in no address"
