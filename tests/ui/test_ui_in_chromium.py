"""The page in a headless Chromium, against `mail server` with the rule-based swarm."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from studio_page import answers, ask, expect, ground, is_in_view, send, sign_in, status_of
from support.processes.server import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

WAITING = "ask a human: may I?"
Shoot = Callable[[str], None]


def test_from_the_token_to_the_answer(page: "Page", server: ServerProcess, shoot: Shoot) -> None:
    sign_in(page, server)
    expect(page.locator(".who")).to_have_text("user")
    expect(page.locator(".health")).to_have_text("healthy")
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(views).to_have_text(["Tasks", "Needs you", "Mail", "Swarm"])
    page.get_by_role("button", name="The weather in Tokyo, and 12*(3+4)?").click()
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(status_of(page)).to_have_text("completed")
    expect(answers(page)).to_contain_text(["84"])
    expect(page.get_by_role("status").filter(has_text="Answer: ")).to_contain_text("Tokyo")
    expect(page.locator(".task-item").first).to_contain_text("The weather in Tokyo")
    assert page.title() == "The weather in Tokyo, and 12*(3+4)? · MAIL"

    work = page.get_by_role("button", name="supervisor asked weather and math · 7 turns")
    expect(page.locator(".step")).to_have_count(0)
    work.click()
    expect(page.locator(".step").first).to_contain_text("supervisor→weather")
    expect(page.locator(".step").filter(has_text="used calculate_expression")).to_contain_text("12*(3+4)")
    shoot("answered-light")


@pytest.mark.soak
def test_the_answer_is_in_view_after_many_follow_ups(page: "Page", server: ServerProcess) -> None:
    ask(page, server, "1+1")
    for n in range(2, 13):
        send(page, f"{n}+{n}")
        expect(answers(page)).to_have_count(n)
    assert is_in_view(answers(page).last)
    expect(answers(page).last).to_contain_text("24")
    expect(page.get_by_label("Message", exact=True)).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollHeight") <= 900, "panes scroll, the page doesn't"


def test_a_breakpoint_is_answered(page: "Page", server: ServerProcess, shoot: Shoot) -> None:
    ask(page, server, WAITING, "paused")
    question = page.get_by_role("group", name="Question for you")
    expect(question).to_contain_text("supervisor asks:")
    expect(question).to_contain_text("may I?")
    expect(question.get_by_role("textbox", name="Your answer")).to_be_focused()
    expect(page.get_by_label("Message", exact=True)).to_have_count(0)
    expect(page.locator(".task-item .fact-note").first).to_have_text("question")
    shoot("question-light")
    page.keyboard.type("Yes, you may.")
    question.get_by_role("button", name="Send").click()
    expect(status_of(page)).to_have_text("completed")
    expect(question).not_to_be_visible()
    expect(page.get_by_role("article", name="Your answer")).to_contain_text("Yes, you may.")
    expect(answers(page).last).to_contain_text("Yes, you may.")


@pytest.mark.soak
def test_a_message_to_a_task_that_waits_becomes_its_answer(page: "Page", server: ServerProcess) -> None:
    ask(page, server, WAITING, "paused")
    page.get_by_role("button", name="Write a message instead").click()
    send(page, "Yes, as an answer.")
    refusal = page.get_by_role("alert").filter(has_text="The task waits for your answer")
    expect(refusal.get_by_role("button", name="Drop the question and send")).to_be_visible()
    refusal.get_by_role("button", name="Send as the answer").click()
    expect(status_of(page)).to_have_text("completed")
    expect(answers(page).last).to_contain_text("Yes, as an answer.")
    page.wrong[:] = [text for text in page.wrong if "409" not in text]  # type: ignore[attr-defined]


@pytest.mark.soak
def test_a_task_is_cancelled(page: "Page", server: ServerProcess) -> None:
    ask(page, server, WAITING, "paused")
    page.get_by_role("button", name="Cancel the task").click()
    expect(status_of(page)).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel the task")).not_to_be_visible()
    expect(page.get_by_role("textbox", name="Your answer")).not_to_be_visible()
    expect(page.locator(".chat .aside")).to_contain_text("The task was cancelled by user")


def test_a_task_is_saved_and_deleted_after_a_question(
    page: "Page", server: ServerProcess, shoot: Shoot
) -> None:
    ask(page, server, "2+3")
    before = page.locator(".task-item").count()
    page.get_by_role("button", name="Details and usage").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as Markdown").click()
    assert "\n> 2+3\n" in Path(download.value.path()).read_text(encoding="utf-8")
    page.get_by_role("button", name="Delete the task").click()
    expect(page.get_by_role("dialog", name="Delete this task?")).to_contain_text("can't be undone")
    shoot("delete")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".task-item")).to_have_count(before - 1)
    expect(page.get_by_role("heading", name="Delete this task?")).not_to_be_visible()


@pytest.mark.soak
def test_a_moment_of_a_task(page: "Page", server: ServerProcess) -> None:
    ask(page, server, "2+3")
    page.goto(f"{page.url}&at=1")
    expect(status_of(page)).to_have_text(["entry 1", "running"])
    expect(page.get_by_text("This is the task as of entry 1.")).to_be_visible()
    expect(answers(page)).to_have_count(0)
    expect(page.get_by_label("Message", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Back to now").click()
    expect(status_of(page)).to_have_text(["completed"])
    expect(answers(page)).to_have_count(1)


@pytest.fixture
def other(browser: "Browser") -> Iterator["Page"]:
    """A page in another browser, by a clock that can be turned forward."""
    context = browser.new_context()
    page = context.new_page()
    page.clock.install()
    yield page
    context.close()


def open_beside(other: "Page", page: "Page", server: ServerProcess) -> None:
    """Open the same task in the other browser."""
    other.goto(page.url)
    other.get_by_label("Token").fill(server.tokens["user"])
    other.get_by_role("button", name="Sign in").click()


@pytest.mark.soak
def test_what_happens_elsewhere_is_seen_here(page: "Page", other: "Page", server: ServerProcess) -> None:
    ask(page, server, WAITING, "paused")
    open_beside(other, page, server)
    expect(status_of(other)).to_have_text("paused")
    page.get_by_role("textbox", name="Your answer").fill("Yes, from the first tab.")
    page.keyboard.press("Enter")
    expect(status_of(page)).to_have_text("completed")
    other.clock.fast_forward(15_000)
    expect(status_of(other)).to_have_text("completed")
    expect(answers(other).last).to_contain_text("Yes, from the first tab.")

    with server.client() as client:
        client.post("/message", json={"body": "40+2", "task_id": "elsewhere"}).raise_for_status()
    other.clock.fast_forward(15_000)
    expect(other.locator('[data-task="elsewhere"]')).to_contain_text("40+2")


@pytest.mark.soak
def test_an_answer_that_comes_too_late_is_refused_and_the_task_shown_as_it_is(
    page: "Page", other: "Page", server: ServerProcess
) -> None:
    ask(page, server, WAITING, "paused")
    open_beside(other, page, server)
    other.route("**/tasks?*", lambda route: route.fulfill(json={}))
    other.get_by_role("textbox", name="Your answer").fill("Yes, from the second tab.")
    page.get_by_role("textbox", name="Your answer").fill("Yes, from the first tab.")
    page.keyboard.press("Enter")
    expect(status_of(page)).to_have_text("completed")
    other.get_by_role("button", name="Send").click()
    expect(status_of(other)).to_have_text("completed")
    expect(other.get_by_role("textbox", name="Your answer")).not_to_be_visible()
    expect(answers(other).last).to_contain_text("Yes, from the first tab.")


@pytest.mark.parametrize("opens_task", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_offline_is_said_and_a_failed_message_stays(
    page: "Page", server: ServerProcess, opens_task: bool
) -> None:
    if opens_task:
        ask(page, server, "1+1")
    else:
        sign_in(page, server)
    expect(page.locator(".health")).to_have_text("healthy")
    page.context.set_offline(True)
    expect(page.locator(".health")).to_have_text("offline")
    send(page, "1+2")
    refusal = page.get_by_role("alert").filter(has_text="Not sent. The server can't be reached.")
    expect(refusal).to_be_visible()
    expect(page.get_by_label("Message", exact=True)).to_have_value("1+2")
    page.context.set_offline(False)
    expect(page.locator(".health")).to_have_text("healthy")
    refusal.get_by_role("button", name="Retry").click()
    expect(answers(page).last).to_contain_text("3")
    expect(refusal).not_to_be_visible()
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium reports each request that failed


def test_text_stays_text(page: "Page", server: ServerProcess) -> None:
    attack = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script><b>hi</b>"
    ask(page, server, attack)
    expect(page.locator(".bubble-text").first).to_have_text(attack)
    assert page.locator(".chat img, .chat script, .chat b").count() == 0
    assert page.title() != "owned"
    # What the scripts don't do, the browser would not let them do.
    assert page.evaluate(
        "(() => { try { document.body.innerHTML = '<b>x</b>' } catch (e) { return e.name } })()"
    ) == ("TypeError")
    page.wrong[:] = [text for text in page.wrong if "TrustedHTML" not in text]  # type: ignore[attr-defined]


@pytest.mark.soak
def test_the_list_of_tasks_in_pages(page: "Page", server: ServerProcess) -> None:
    with server.client() as client:
        for n in range(23):
            client.post("/message", json={"body": f"{n}+1", "task_id": str(n)}).raise_for_status()
    sign_in(page, server)
    tasks = page.locator(".task-item")
    expect(tasks).to_have_count(20)
    assert tasks.first.get_attribute("data-task") == "22"
    page.get_by_role("button", name="Older tasks").click()
    first = page.locator('[data-task="0"]')
    first.click()
    expect(first).to_have_attribute("aria-current", "true")
    expect(answers(page)).to_contain_text(["1"])
    page.get_by_role("searchbox", name="Search tasks").fill("21+1")
    expect(tasks).to_have_count(1)
    page.get_by_role("searchbox", name="Search tasks").fill("")
    page.get_by_label("Status").select_option("running")
    expect(page.get_by_text("No tasks match")).to_be_visible()


@pytest.mark.soak
def test_dark_and_light(page: "Page", server: ServerProcess, shoot: Shoot) -> None:
    ask(page, server, WAITING, "paused")
    assert ground(page) > 200
    page.emulate_media(color_scheme="dark")
    switch = page.get_by_role("button", name="Use the light theme")
    expect(switch).to_be_visible()
    assert ground(page) < 60
    shoot("question-dark")
    switch.click()
    expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()
    assert ground(page) > 200
    page.reload()
    expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()
    assert ground(page) > 200, "the switch holds against the system"


def test_the_token_is_this_tabs_only(page: "Page", server: ServerProcess) -> None:
    sign_in(page, server)
    tasks = page.get_by_role("heading", name="Tasks", exact=True)
    expect(tasks).to_be_visible()
    page.reload()
    expect(tasks).to_be_visible()
    assert server.tokens["user"] not in page.content()
    stored = page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
    assert server.tokens["user"] not in stored
    other = page.context.new_page()
    other.goto(f"{server.url}/ui")
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_sign_in_link_begins_a_session_that_sign_out_ends(page: "Page", server: ServerProcess) -> None:
    codes, ended = [], []

    def sign_in_with(route: "Route") -> None:
        codes.append(route.request.post_data_json)
        route.fulfill(json={"token": server.tokens["user"]})

    def sign_out(route: "Route") -> None:
        ended.append(route.request.headers["authorization"])
        route.fulfill(json={})

    page.route("**/sign-in", sign_in_with)
    page.route("**/sign-out", sign_out)
    page.goto(f"{server.url}/ui#sign-in=a-code")
    expect(page.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()
    assert codes == [{"code": "a-code"}]
    assert "code" not in page.url
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert ended == [f"Bearer {server.tokens['user']}"]
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.soak
@pytest.mark.parametrize(
    ("token", "says"),
    [("mail_wrong", "Invalid or revoked"), ("agent", "role"), ("ké☃", "Invalid or revoked")],
)
def test_a_token_that_won_t_do(page: "Page", server: ServerProcess, token: str, says: str) -> None:
    page.goto(f"{server.url}/ui")
    page.get_by_label("Token").fill(server.tokens.get(token, token))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text(says)
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0, "it is not kept"
    page.wrong[:] = [text for text in page.wrong if "40" not in text]  # type: ignore[attr-defined]


@pytest.mark.soak
def test_narrow_and_by_keyboard(page: "Page", server: ServerProcess, shoot: Shoot) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{server.url}/ui")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(server.tokens["user"])
    page.keyboard.press("Enter")
    page.get_by_role("link", name="New task").focus()
    expect(page.get_by_label("Message", exact=True)).not_to_be_visible()
    page.keyboard.press("Enter")
    field = page.get_by_label("Message", exact=True)
    expect(field).to_be_visible()
    field.focus()
    page.keyboard.type("weather in Oslo")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("please")
    expect(field).to_have_value("weather in Oslo\nplease")
    page.keyboard.press("Enter")
    expect(status_of(page)).to_have_text("completed")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for name in ("Send", "Details and usage", "Sign out"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 360, name
    shoot("narrow")
    tab = page.get_by_role("tab", name="Conversation")
    tab.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Trace")).to_be_focused()
    expect(page.get_by_role("tab", name="Trace")).to_have_attribute("aria-selected", "true")
    page.get_by_role("button", name="Back to the list").press("Enter")
    expect(page.locator(".task-item").first).to_be_visible()
