"""The page while agents are at work: what arrives live, and what language models add."""

import re
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING

import pytest
from studio_page import answers, ask, expect, is_in_view, send, sign_in, status_of
from studio_server import StudioServer, callbacks

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, Route

Shoot = Callable[[str], None]


def test_who_works_and_what_is_written_are_live(page: "Page", studio: StudioServer, shoot: Shoot) -> None:
    sign_in(page, studio)
    send(page, "dig for gold")
    working = page.get_by_role("list", name="Working now")
    expect(working).to_contain_text("worker")
    expect(working).to_contain_text("calls openai/gpt-5-mini")
    expect(working.locator(".elapsed")).to_have_text(re.compile(r"[1-9]\d* s"))
    expect(page.locator(".work-line")).to_have_text("supervisor asked worker · 1 turn")
    expect(page.locator(".task-item .chip").first).to_have_text("running")
    studio.step(3)
    writing = page.get_by_role("article", name="The answer so far")
    expect(writing).to_contain_text("Gold was found in three places: the river,")
    expect(writing.locator("strong")).to_have_text("three")
    shoot("live")
    studio.step(2)
    expect(status_of(page)).to_have_text("completed")
    expect(answers(page).last).to_contain_text("and the cellar.")
    expect(writing).to_have_count(0)
    expect(working).to_have_count(0)
    expect(page.locator(".task-item .chip").first).to_have_text("completed")


@pytest.mark.soak
def test_plain_text_grows_as_an_answer(page: "Page", studio: StudioServer, shoot: Shoot) -> None:
    sign_in(page, studio)
    send(page, "plainly now")
    expect(page.get_by_role("list", name="Working now")).to_contain_text("calls openai/gpt-5-mini")
    studio.step(1)
    letter = page.get_by_role("article", name="worker writes to supervisor")
    expect(letter).to_contain_text("The river,")
    expect(letter.locator("strong")).to_have_text("The river")
    studio.step(1)
    expect(letter).to_contain_text("the hill and")
    shoot("plain-worker")
    studio.step(3)
    writing = page.get_by_role("article", name="The answer so far")
    expect(writing.get_by_role("heading")).to_have_text("Gold")
    expect(letter).to_have_count(0)
    studio.step(2)
    expect(writing.locator("li")).to_have_count(2)
    expect(page.locator(".job-said")).to_have_count(0)
    shoot("plain-answer")
    studio.step(2)
    expect(status_of(page)).to_have_text("completed")
    expect(answers(page).last.locator("li")).to_have_count(3)
    page.locator(".work-line").click()
    steps = page.locator(".steps")
    expect(steps.locator("strong")).to_have_text("The river")
    expect(steps).to_contain_text("Re: Places")
    expect(steps).not_to_contain_text("text_output")
    shoot("plain-work")
    page.get_by_role("tab", name="Trace").click()
    expect(page.locator("body")).not_to_contain_text("text_output")


@pytest.mark.soak
def test_what_a_task_waits_for_is_listed_and_cancelled(
    page: "Page", studio: StudioServer, shoot: Shoot
) -> None:
    def report(**body: str) -> None:
        with studio.client() as client:
            client.post(f"/callbacks/{callbacks[-1]}", json=body).raise_for_status()

    sign_in(page, studio)
    send(page, "render a film")
    waits = page.get_by_role("list", name="Waits for")
    expect(waits).to_contain_text("supervisor waits for render")
    expect(page.get_by_role("list", name="Working now")).to_have_count(0)
    report(progress="12 of 24 frames")
    expect(waits).to_contain_text("12 of 24 frames (just now)")
    report(progress="23 of 24 frames")
    expect(waits).to_contain_text("23 of 24 frames")
    task_id = page.locator(".task-item").first.get_attribute("data-task")
    studio.ask("and now?", task_id=task_id, not_before=time() + 86_400)
    page.reload()
    expect(waits).to_contain_text("Message on")
    expect(waits).to_contain_text("23 of 24 frames")
    shoot("waits")
    page.get_by_role("button", name="Cancel the message").click()
    expect(waits.get_by_role("listitem")).to_have_count(1)
    page.get_by_role("button", name="Cancel the call of render").click()
    expect(waits.get_by_role("listitem")).to_have_count(2)  # its agent begins two others
    expect(waits).not_to_contain_text("frames")
    report(result="films.example/light")
    expect(status_of(page)).to_have_text("completed")
    expect(answers(page).last).to_contain_text("render: films.example/light")
    expect(waits).to_have_count(0)


def test_a_broken_stream_is_resumed(page: "Page", studio: StudioServer) -> None:
    asked: list[str | None] = []

    def break_once(route: "Route", request: "Request") -> None:
        asked.append(request.headers.get("last-event-id"))
        if len(asked) == 1:
            # A server that goes away for a moment. (An aborted request would be an error on the console.)
            route.fulfill(status=200, content_type="text/event-stream", body=": nothing\n\n")
        else:
            route.continue_()

    page.route("**/task/stream*", break_once)
    sign_in(page, studio)
    send(page, "dig again")
    expect(page.get_by_role("list", name="Working now")).to_contain_text("worker")
    studio.step(5)
    expect(answers(page).last).to_contain_text("and the cellar.")
    assert len(asked) >= 2


@pytest.mark.soak
def test_a_server_that_comes_back_is_followed_again(page: "Page", studio: StudioServer) -> None:
    sign_in(page, studio)
    send(page, "dig while away")
    expect(page.get_by_role("list", name="Working now")).to_contain_text("worker")
    page.context.set_offline(True)
    expect(page.locator(".health")).to_have_text("offline")
    studio.step(5)
    page.context.set_offline(False)
    expect(page.locator(".health")).to_have_text("healthy")
    expect(answers(page).last).to_contain_text("and the cellar.")
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium reports each request that failed


@pytest.mark.soak
def test_the_reader_is_not_pulled_away(page: "Page", studio: StudioServer) -> None:
    ask(page, studio, "long story")
    first = answers(page).last
    assert is_in_view(first), "a long answer is shown from its beginning"
    jump = page.get_by_role("button", name="Jump to the latest")
    expect(jump).to_be_visible()
    send(page, "dig meanwhile")
    expect(page.get_by_role("list", name="Working now")).to_be_in_viewport()
    page.locator(".chat-scroll").evaluate("pane => pane.scrollTo(0, 300)")
    expect(jump).to_be_visible()
    studio.step(5)
    expect(status_of(page)).to_have_text("completed")
    expect(answers(page)).to_have_count(2)
    assert page.locator(".chat-scroll").evaluate("pane => pane.scrollTop") == 300
    jump.click()
    assert is_in_view(answers(page).last)
    expect(jump).not_to_be_visible()


def test_markdown_is_shown_and_is_safe(page: "Page", studio: StudioServer, shoot: Shoot) -> None:
    ask(page, studio, "markdown please")
    answer = answers(page).last
    expect(answer.get_by_role("heading", name="Two cities")).to_be_visible()
    expect(answer.get_by_role("cell")).to_have_text(["Tokyo", "6", "rain", "Oslo", "-2", "sun"])
    link = answer.get_by_role("link")
    expect(link).to_have_count(1)
    expect(link).to_have_attribute("href", "https://example.com/weather")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(answer.locator("blockquote")).to_contain_text("<b>Climate</b>")
    expect(answer.locator("pre")).to_contain_text("return celsius > 18")
    expect(answer.get_by_role("button", name="Copy the code")).to_be_visible()
    shoot("markdown")


@pytest.mark.soak
def test_a_typed_answer_is_shown_as_json(page: "Page", studio: StudioServer) -> None:
    sign_in(page, studio)
    studio.ask("json", task_id="typed", output_schema={"type": "object"})
    page.goto(f"{studio.url}/ui#task=typed")
    expect(answers(page).locator("pre")).to_contain_text('"name": "Tokyo",\n')


@pytest.mark.soak
def test_a_phone_begins_with_the_welcome(page: "Page", studio: StudioServer) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    sign_in(page, studio, role="admin")  # who has no task yet
    expect(page.get_by_role("heading", name="What should example work on?")).to_be_visible()
    expect(page.get_by_role("link", name="New task")).not_to_be_visible()
    page.get_by_role("list", name="Agents").get_by_role("link", name="worker").click()
    expect(page.locator(".inspector h2")).to_have_text("worker")


@pytest.mark.soak
def test_a_failure_is_said_once_and_can_be_retried(page: "Page", studio: StudioServer) -> None:
    ask(page, studio, "fail please", "failed")
    failure = page.get_by_role("group", name="The task failed")
    expect(failure).to_contain_text("agent 'supervisor' has failed: RuntimeError")
    expect(page.locator(".work-line")).not_to_contain_text("error")
    failure.get_by_role("button", name="Retry").click()
    expect(page.locator(".failure")).to_have_count(2)
    expect(page.get_by_role("button", name="Retry")).to_have_count(1)
    page.get_by_role("button", name="Show in the trace").last.click()
    expect(page.locator(".inspector h2")).to_have_text("Task fails")


@pytest.mark.soak
def test_an_unknown_price_is_not_zero(page: "Page", studio: StudioServer) -> None:
    ask(page, studio, "free of charge")
    expect(page.locator(".task-usage")).to_have_text("800 tokens in · 90 out · Price unknown")
    expect(page.locator(".task-item .fact-note").first).to_have_text("$?")
    page.get_by_role("button", name="Details and usage").click()
    row = page.get_by_role("dialog").get_by_role("row", name="local/llama")
    expect(row.locator("td")).to_have_text(["1", "800", "90", "Price unknown"])
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Details and usage")).to_be_focused()


@pytest.mark.soak
def test_options_of_a_message(page: "Page", studio: StudioServer) -> None:
    sign_in(page, studio)
    page.get_by_role("button", name="Options").click()
    expect(page.get_by_label("To", exact=True).locator("option")).to_have_text(["supervisor"])
    page.get_by_label("Subject").fill("Urgent matter")
    page.get_by_label("Type").select_option("interrupt")
    send(page, "hello")
    expect(status_of(page)).to_have_text("completed")
    message = page.get_by_role("article", name="Message from you")
    expect(message).to_contain_text("You · interrupt")
    expect(message).to_contain_text("Urgent matter")


def test_only_admins_have_the_admin_view(page: "Page", studio: StudioServer) -> None:
    sign_in(page, studio, "admin", "#admin")
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(views).to_have_text(["Tasks", "Needs you", "Mail", "Swarm", "Admin"])
    expect(views.last).to_have_attribute("aria-current", "page")


@pytest.mark.soak
def test_a_token_that_is_revoked_leads_back_to_the_form(page: "Page", studio: StudioServer) -> None:
    sign_in(page, studio)
    expect(page.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()
    revoked = {"detail": "unknown API key"}
    page.route("**/tasks?*", lambda route: route.fulfill(status=401, json=revoked))
    expect(page.get_by_text("Your token is no longer valid. Sign in again.")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium reports each request that failed


@pytest.mark.soak
@pytest.mark.parametrize(("path", "status"), [("whoami", None), ("whoami", 429), ("swarm", 503)])
def test_a_page_that_is_reloaded_while_the_server_can_t_answer_waits_for_it(
    page: "Page", studio: StudioServer, path: str, status: int | None
) -> None:
    ask(page, studio, "hello")
    page.route(f"**/{path}", lambda route: route.fulfill(status=status) if status else route.abort())
    page.reload()
    expect(page.get_by_text("Trying again…").last).to_contain_text(str(status or "can't be reached"))
    page.unroute(f"**/{path}")
    expect(answers(page)).to_contain_text(["You said: hello"])
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium reports each request that failed


STATES = {
    "empty": "",
    "markdown": "markdown",
    "asked": "ask may I?",
    "approvals": "pay 500 600",
    "failed": "fail please",
}


def test_axe_finds_nothing(page: "Page", studio: StudioServer, inspect: Callable[[str], None]) -> None:
    page.goto(f"{studio.url}/ui")
    expect(page.get_by_label("Token")).to_be_visible()
    inspect("sign-in")
    sign_in(page, studio)
    for name, body in STATES.items():
        page.goto(f"{studio.url}/ui#new")
        expect(page.get_by_label("Message", exact=True)).to_be_visible()
        if body:
            send(page, body)
            expect(status_of(page)).to_be_visible()
            expect(status_of(page)).not_to_have_text("running")
        if name == "approvals":
            page.get_by_role("button", name="Edit", exact=True).first.click()
            page.get_by_role("button", name="Reject").last.click()
        inspect(name)
    page.goto(f"{studio.url}/ui#")
    expect(page.locator(".task-item").first).to_be_visible()
    inspect("list")
