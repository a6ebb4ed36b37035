"""The person at the terminal and on the page is one: the page of an operator's link has the tasks of commands, and an
admin's tabs.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from studio_page import answers, expect, new_task, send, status_of
from support.processes.server import ServerProcess, run_mail

from mail.auth.keys import digest
from mail.auth.tokens import NUMBER_CHARACTERS

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

FOR_ADMINS = re.compile(
    r"/(approvals|audit|tokens|swarms|swarms/dump|usage|dead-letters|schedules|drafts|"
    r"tasks\?.*all=true|webhooks\?.*all=true|swarm\?prompts=true)\b"
)


def new_link(server: ServerProcess, folder: Path) -> str:
    """The link that `mail ui` makes."""
    made = run_mail("ui", "--server", server.url, "--no-browser", "--json", cwd=folder)
    return str(json.loads(made.stdout)["url"])


def test_what_one_begins_the_other_shows_and_opens(
    page: "Page", server: ServerProcess, tmp_path: Path
) -> None:
    sent = run_mail("send", "2**10", "--task-id", "typed", "--server", server.url, cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    page.goto(new_link(server, tmp_path))
    expect(page.locator(".who")).to_have_text("user")
    page.locator('[data-task="typed"]').click()
    expect(answers(page)).to_contain_text(["1024"])

    new_task(page)
    send(page, "2**11")
    expect(status_of(page)).to_have_text("completed")
    begun = re.findall(r"task=([^&]+)", page.url)[0]
    shown = run_mail("task", "show", begun, "--server", server.url, cwd=tmp_path)
    assert "2048" in shown.stdout

    page.get_by_role("link", name="Admin").click()
    expect(page.get_by_role("table")).to_contain_text("user:user")
    page.get_by_role("table").get_by_role("link", name="2**10").click()
    expect(answers(page)).to_contain_text(["1024"])


@pytest.mark.soak
def test_the_admin_s_session_is_for_the_admin_s_pages(
    page: "Page", server: ServerProcess, tmp_path: Path
) -> None:
    used: list[tuple[str, str]] = []

    def record(request: "Request") -> None:
        if bearer := request.headers.get("authorization"):
            used.append((bearer.removeprefix("Bearer "), request.url.removeprefix(server.url)))

    page.on("request", record)
    page.goto(new_link(server, tmp_path))
    send(page, "2**12")
    expect(status_of(page)).to_have_text("completed")
    user, admin = page.evaluate("['mail-token', 'mail-admin'].map((name) => sessionStorage.getItem(name))")
    outside = {url.partition("?")[0] for token, url in used if token != user}
    assert outside == {"/approvals"}, "outside those pages it is used only for the number of calls that wait"
    assert any(url.startswith("/approvals") for token, url in used if token == user), "one's own wait, too"

    page.get_by_role("link", name="Admin").click()
    pages = page.get_by_role("navigation", name="Administration").get_by_role("link")
    for name in pages.all_text_contents():
        pages.filter(has_text=name).click()
        expect(page.locator(".admin-title").get_by_role("heading", level=2)).to_have_text(name)
        expect(page.locator(".loading")).to_have_count(0)
        expect(page.locator(".notice.bad")).to_have_count(0)
    page.get_by_role("link", name="Swarm", exact=True).click()
    page.locator(".graph").get_by_text("supervisor").first.click()
    expect(
        page.get_by_role("button", name="Show the prompt").or_(page.get_by_text("System prompt")).first
    ).to_be_visible()
    as_admin = {url for token, url in used if token == admin}
    assert {url for url in as_admin if not FOR_ADMINS.search(url)} == set()
    assert {url.partition("?")[0] for url in as_admin} >= {"/tokens", "/tasks", "/usage", "/swarms/dump"}
    own = [token for token, url in used if url == "/webhooks"]
    assert own
    assert set(own) == {user}, "one's own webhooks are for one's own tasks"

    with page.expect_response("**/sign-out"):
        page.get_by_role("button", name="Sign out").click()
    assert page.evaluate("sessionStorage.length") == 0
    valid = {
        each["number"] for each in json.loads(run_mail("token", "list", "--json", cwd=server.folder).stdout)
    }
    assert valid.isdisjoint(digest(token)[:NUMBER_CHARACTERS] for token in (user, admin))


@pytest.mark.soak
def test_a_key_of_one_s_own_is_one_session(page: "Page", server: ServerProcess) -> None:
    page.goto(f"{server.url}/ui")
    page.get_by_label("Token").fill(server.tokens["user"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".who")).to_have_text("user")
    expect(page.get_by_role("link", name="Admin")).to_have_count(0)
    assert page.evaluate("sessionStorage.getItem('mail-admin')") is None
