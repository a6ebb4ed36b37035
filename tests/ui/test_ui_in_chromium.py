"""The page in a headless Chromium, against `mail server` with the rule-based swarm."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, Route

WAITING = "ask a human: may I?"
Shoot = Callable[[str], Path]


def expect(locator):
    from playwright.sync_api import expect

    return expect(locator, "")


def sign_in(page: "Page", server: ServerProcess, role: str = "user") -> None:
    page.goto(f"{server.url}/ui")
    page.get_by_label("Token").fill(server.tokens[role])
    page.get_by_role("button", name="Sign in").click()


def send(page: "Page", body: str) -> None:
    page.get_by_label("Message", exact=True).fill(body)
    page.get_by_role("button", name="Send", exact=True).click()


def ground(page: "Page") -> int:
    """How bright the page's background is, 0 to 255."""
    return page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")


def size(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


def test_from_the_token_to_the_answer(page: "Page", server: ServerProcess, shoot: Shoot) -> None:
    sign_in(page, server)
    expect(page.locator("#whoami")).to_have_text("user user")
    expect(page.locator("#health")).to_have_text("healthy")

    graph = page.get_by_role("img", name="Who writes to whom in example-no-proxy")
    expect(graph.locator(".node title")).to_have_text(["supervisor", "weather", "math"])
    expect(graph.locator(".edge")).to_have_count(2)
    expect(page.get_by_label("To", exact=True).locator("option")).to_have_text(["supervisor"])

    send(page, "weather in Tokyo and 12*(3+4)")
    expect(page.locator("#task-status")).to_have_text("completed")
    last = page.locator("#timeline > li").last
    expect(last).to_contain_text("Tokyo")
    expect(last).to_contain_text("84")
    assert "task complete" in last.inner_text()
    expect(page.locator(".tier-2").first).to_have_text("2 person")
    expect(page.locator(".tier-5").first).to_have_text("5 agent")
    assert "task complete" in page.locator("#latest").text_content()

    call = page.locator("#timeline > li", has_text="calculate_expression").first
    expect(call.locator("pre").first).not_to_be_visible()
    call.locator("summary", has_text="Tool call").click()
    expect(call.locator("pre").first).to_contain_text("12*(3+4)")

    numbers = page.locator("#timeline > li").evaluate_all(
        "items => items.map(item => Number(item.dataset.seq))"
    )
    assert numbers == list(range(1, len(numbers) + 1))
    width, height = size(shoot("answered-light"))
    assert width == 1400
    assert height >= 900


def test_a_breakpoint_is_answered(page: "Page", server: ServerProcess, shoot: Shoot) -> None:
    sign_in(page, server)
    send(page, WAITING)
    expect(page.locator("#timeline > li").last).to_contain_text("waits for the results")
    form = page.get_by_role("form", name="The task waits for you")
    expect(form).to_contain_text("ask_human")
    expect(form).to_contain_text("may I?")
    expect(page.locator("#task-status")).to_have_text("paused")
    shoot("breakpoint-light")
    form.get_by_label("Result of ask_human").fill("Yes, you may.")
    form.get_by_role("button", name="Send results").click()
    expect(page.locator("#task-status")).to_have_text("completed")
    expect(form).not_to_be_visible()
    expect(page.locator("#timeline > li").last).to_contain_text("Yes, you may.")


def test_a_task_is_cancelled(page: "Page", server: ServerProcess) -> None:
    sign_in(page, server)
    send(page, WAITING)
    expect(page.locator("#task-status")).to_have_text("paused")
    page.get_by_role("button", name="Cancel task").click()
    expect(page.locator("#task-status")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel task")).not_to_be_visible()
    expect(page.get_by_role("form", name="The task waits for you")).not_to_be_visible()
    expect(page.locator("#timeline > li").last).to_contain_text("The task was cancelled by user")


def test_a_task_as_it_was_and_a_fork_of_it(page: "Page", server: ServerProcess) -> None:
    sign_in(page, server)
    send(page, "2+3")
    expect(page.locator("#task-status")).to_have_text("completed")
    page.get_by_label("As of event").fill("1")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("#task-status")).to_have_text("running")
    expect(page.get_by_role("button", name="Cancel task")).not_to_be_visible()
    lines = page.locator("#timeline > li")
    expect(page.locator("#timeline > li.later")).to_have_count(lines.count() - 1)
    page.get_by_role("button", name="Fork").click()
    expect(page.locator("#task-status")).to_have_text("paused")
    expect(page.get_by_label("As of event")).to_have_value("")
    expect(lines.first).to_contain_text("task forked")
    send(page, "2+4")
    expect(page.locator("#task-status")).to_have_text("completed")
    page.get_by_label("As of event").fill("1")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("#task-status")).to_have_text("paused")
    page.get_by_label("As of event").fill("")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("#task-status")).to_have_text("completed")
    expect(page.locator("#timeline > li.later")).to_have_count(0)


def test_a_follow_up_streams_on_and_survives_a_broken_stream(page: "Page", server: ServerProcess) -> None:
    sign_in(page, server)
    send(page, "1+1")
    expect(page.locator("#task-status")).to_have_text("completed")
    first = page.locator("#timeline > li").count()

    asked: list[str | None] = []

    def break_once(route: "Route", request: "Request") -> None:
        asked.append(request.headers.get("last-event-id"))
        if len(asked) == 1:
            # A server that goes away for a moment. (An aborted request would be an error on the console.)
            route.fulfill(status=200, content_type="text/event-stream", body=": nothing\n\n")
        else:
            route.continue_()

    page.route("**/task/stream*", break_once)
    expect(page.get_by_role("heading", name="Follow up")).to_be_visible()
    send(page, "2+40")
    expect(page.locator("#timeline > li").last).to_contain_text("42")
    expect(page.locator("#task-facts")).to_contain_text("generation 2")
    assert asked[:2] == [str(first), str(first)]
    numbers = page.locator("#timeline > li").evaluate_all(
        "items => items.map(item => Number(item.dataset.seq))"
    )
    assert numbers == list(range(1, len(numbers) + 1))


def open_beside(page: "Page", server: ServerProcess) -> "Page":
    """The same page in another tab, by a clock that can be turned forward."""
    other = page.context.new_page()
    other.clock.install()
    other.goto(page.url)
    other.get_by_label("Token").fill(server.tokens["user"])
    other.get_by_role("button", name="Sign in").click()
    return other


def answer(page: "Page", result: str) -> None:
    page.get_by_label("Result of ask_human").fill(result)
    page.get_by_role("button", name="Send results").click()


def test_what_happens_in_another_tab_is_seen_here(page: "Page", server: ServerProcess) -> None:
    sign_in(page, server)
    send(page, WAITING)
    expect(page.locator("#task-status")).to_have_text("paused")
    other = open_beside(page, server)
    expect(other.locator("#task-status")).to_have_text("paused")
    answer(page, "Yes, from the first tab.")
    expect(page.locator("#task-status")).to_have_text("completed")
    other.clock.fast_forward(10_000)
    expect(other.locator("#task-status")).to_have_text("completed")
    expect(other.get_by_label("Result of ask_human")).not_to_be_visible()
    expect(other.locator("#timeline > li").last).to_contain_text("Yes, from the first tab.")

    send(page, "40+2")
    expect(page.locator("#timeline > li").last).to_contain_text("42")
    other.get_by_role("button", name="Refresh").click()
    expect(other.locator("#timeline > li").last).to_contain_text("42")
    expect(other.locator("#task-facts")).to_contain_text("generation 3")


def test_an_answer_that_comes_too_late_is_refused_and_the_task_shown_as_it_is(
    page: "Page", server: ServerProcess
) -> None:
    sign_in(page, server)
    send(page, WAITING)
    expect(page.locator("#task-status")).to_have_text("paused")
    other = open_beside(page, server)
    expect(other.locator("#task-status")).to_have_text("paused")
    other.get_by_label("Result of ask_human").fill("Yes, from the second tab.")
    answer(page, "Yes, from the first tab.")
    expect(page.locator("#task-status")).to_have_text("completed")
    other.get_by_role("button", name="Send results").click()
    expect(other.get_by_role("alert")).to_contain_text("waits for no tool result")
    expect(other.locator("#task-status")).to_have_text("completed")
    expect(other.get_by_label("Result of ask_human")).not_to_be_visible()
    expect(other.locator("#timeline > li").last).to_contain_text("Yes, from the first tab.")


@pytest.mark.parametrize("opens_task", [True, False])
def test_a_server_that_is_away_is_said_in_our_words_until_it_is_back(
    page: "Page", server: ServerProcess, opens_task: bool
) -> None:
    page.clock.install()
    sign_in(page, server)
    expect(page.get_by_role("heading", name="Your tasks")).to_be_visible()
    if opens_task:
        send(page, "1+1")
        expect(page.locator("#task-status")).to_have_text("completed")
    page.context.set_offline(True)
    send(page, "1+2")
    expect(page.get_by_role("alert")).to_have_text("The server can't be reached.")
    expect(page.get_by_label("Message", exact=True)).to_have_value("1+2")
    page.context.set_offline(False)
    page.clock.fast_forward(10_000)
    expect(page.get_by_role("alert")).not_to_be_visible()
    page.wrong.clear()  # Chromium reports each request that failed


def test_text_stays_text(page: "Page", server: ServerProcess) -> None:
    sign_in(page, server)
    attack = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script><b>hi</b>"
    send(page, attack)
    expect(page.locator("#task-status")).to_have_text("completed")
    expect(page.locator("#timeline .text").first).to_have_text(attack)
    assert page.locator("#timeline img, #timeline script, #timeline b").count() == 0
    assert page.title() != "owned"
    # What the scripts don't do, the browser would not let them do.
    assert page.evaluate(
        "(() => { try { document.body.innerHTML = '<b>x</b>' } catch (e) { return e.name } })()"
    ) == ("TypeError")
    page.wrong[:] = [text for text in page.wrong if "TrustedHTML" not in text]


def test_the_list_of_tasks_in_pages(page: "Page", server: ServerProcess) -> None:
    with server.client() as client:
        for n in range(23):
            client.post("/message", json={"body": f"{n}+1", "task_id": str(n)}).raise_for_status()
    sign_in(page, server)
    tasks = page.locator("#tasks > li")
    expect(tasks).to_have_count(20)
    assert tasks.first.get_attribute("data-task") == "22"
    page.get_by_role("button", name="Older tasks").click()
    expect(page.locator('#tasks > li[data-task="0"]')).to_be_visible()
    page.locator('#tasks > li[data-task="0"] a').click()
    expect(page.locator("#task-facts")).to_contain_text("0 · to supervisor")
    expect(page.locator("#timeline > li").last).to_contain_text("1")
    page.get_by_label("Show").select_option("running")
    expect(page.locator("#tasks")).to_have_text("None yet.")


def test_dark_and_light(page: "Page", server: ServerProcess, shoot: Shoot) -> None:
    sign_in(page, server)
    send(page, WAITING)
    expect(page.locator("#task-status")).to_have_text("paused")
    switch = page.get_by_role("button", name="Dark")
    assert ground(page) > 200
    page.emulate_media(color_scheme="dark")
    expect(switch).to_have_attribute("aria-pressed", "true")
    assert ground(page) < 60
    shoot("breakpoint-dark")
    switch.click()
    assert ground(page) > 200
    page.reload()
    expect(switch).to_have_attribute("aria-pressed", "false")
    assert ground(page) > 200, "the switch holds against the system"


def test_the_token_is_this_tabs_only(page: "Page", server: ServerProcess) -> None:
    sign_in(page, server)
    expect(page.get_by_role("heading", name="Your tasks")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Your tasks")).to_be_visible()
    assert server.tokens["user"] not in page.content()
    stored = page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
    assert server.tokens["user"] not in stored
    other = page.context.new_page()
    other.goto(f"{server.url}/ui")
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(
    ("token", "says"), [("mail_wrong", "not valid"), ("agent", "role"), ("ké☃", "not valid")]
)
def test_a_token_that_won_t_do(page: "Page", server: ServerProcess, token: str, says: str) -> None:
    page.goto(f"{server.url}/ui")
    page.get_by_label("Token").fill(server.tokens.get(token, token))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text(says)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0, "it is not kept"
    page.wrong[:] = [text for text in page.wrong if "40" not in text]


def test_narrow_and_by_keyboard(page: "Page", server: ServerProcess, shoot: Shoot) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{server.url}/ui")
    assert page.evaluate("document.activeElement.id") == "token", "one can type at once"
    page.keyboard.type(server.tokens["user"])
    page.keyboard.press("Enter")
    page.get_by_role("button", name="New task").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "body"
    page.keyboard.type("weather in Oslo")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#task-status")).to_have_text("completed")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert size(shoot("narrow"))[0] == 360
