"""What needs the caller, what is found, and the shortcuts, on the page in a headless Chromium."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from studio_page import answers, ask, enter, expect, new_task, send, sign_in, status_of
from studio_server import StudioServer
from support.processes.approval_swarm import Bank

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

WIDTHS = (360, 390, 1024, 1440)

NOTED = """
    window.noted = [];
    class Noted {
      static permission = "default";
      static async requestPermission() { return (Noted.permission = "granted"); }
      constructor(title, { body }) { window.noted.push(`${title}: ${body}`); }
    }
    window.Notification = Noted;
    Object.defineProperty(document, "visibilityState", { get: () => window.hides ? "hidden" : "visible" });
"""


def needs_link(page: "Page") -> "Locator":
    return page.get_by_role("navigation", name="Views").get_by_role("link", name="Needs you")


def test_what_needs_the_caller_is_counted_shown_and_dealt_with(
    page: "Page", bank: Bank, shoot: Callable[[str], Path]
) -> None:
    bank.post("ask may", task_id="asked")
    bank.post("pay 1", task_id="late", kwargs={"timeout": 0.001})
    bank.post("pay 700", task_id="large")
    enter(page, bank, "user", "new")
    expect(needs_link(page)).to_have_text("Needs you 3")
    expect(page).to_have_title("(3) bank · MAIL")
    expect(page.locator('link[rel="icon"][href$="/icon-marked.svg"]')).to_have_count(1)

    needs_link(page).click()
    region = page.get_by_role("region", name="Needs you")
    entries = region.get_by_role("article")
    expect(entries).to_have_count(2)
    shoot("needs")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 1440, "height": 900})

    card = region.get_by_role("group", name="pay needs your approval")
    card.get_by_role("button", name="Edit").click()
    card.get_by_label("amount").fill("70")
    expect(card.get_by_label("Changes").locator("del")).to_have_text("700")
    expect(card.get_by_label("Changes").locator("ins")).to_have_text("70")
    shoot("approval-form")
    card.get_by_role("button", name="Approve with these arguments").click()
    expect(card).to_have_count(0)
    assert bank.paid[-1] == "bob 70"

    failed = entries.filter(has_text="has failed")
    expect(failed).to_contain_text("time")
    failed.get_by_role("button", name="Dismiss").click()
    expect(failed).to_have_count(0)

    asked = entries.filter(has_text="asks you")
    expect(asked.get_by_role("group")).to_have_text(re.compile("payer asks: *may *Your answer"))
    asked.get_by_role("textbox").fill("you may")
    asked.get_by_role("button", name="Send").click()
    expect(region).to_contain_text("Nothing waits for you")
    expect(needs_link(page)).to_have_text("Needs you")
    expect(page).to_have_title("bank · MAIL")
    expect(page.locator('link[rel="icon"][href$="/icon.svg"]')).to_have_count(1)
    page.reload()
    expect(region).to_contain_text("Nothing waits for you")


@pytest.mark.soak
def test_the_browser_says_what_is_new_while_the_page_is_hidden(page: "Page", bank: Bank) -> None:
    page.add_init_script(NOTED)
    enter(page, bank, "user", "approvals")
    region = page.get_by_role("region", name="Needs you")
    expect(region.get_by_role("status")).to_have_count(0)
    page.get_by_role("button", name="Notify me").click()
    expect(page.get_by_role("button", name="Notify me")).to_have_count(0)
    page.clock.install()
    page.evaluate("window.hides = true")
    bank.post("pay 800", task_id="larger")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.clock.run_for(61_000)
    page.wait_for_function("() => window.noted.length")  # a text would be evaluated, against the policy
    assert page.evaluate("window.noted") == ["MAIL: pay needs your approval"]


@pytest.mark.soak
def test_texts_are_found_and_the_last_changed_task_is_the_first(page: "Page", studio: StudioServer) -> None:
    ask(page, studio, "say 2**77 in long-talk")
    new_task(page)
    send(page, "say 東京")
    expect(status_of(page)).to_have_text("completed")
    tasks = page.locator(".task-item")
    expect(tasks.first).to_contain_text("東京")
    search = page.get_by_role("searchbox", name="Search tasks")
    for text, found in (("2**77", "2**77"), ("京", "東京"), ("LONG-talk", "long-talk")):
        search.fill(text)
        expect(tasks).to_have_count(1)
        expect(tasks).to_contain_text(found)
        expect(tasks.locator("mark").first).to_have_text(text.lower())
    search.fill("in none of them")
    expect(page.get_by_text("No tasks match")).to_be_visible()
    page.get_by_role("button", name="Show all tasks").click()
    expect(search).to_have_value("")
    expect(tasks.first).to_contain_text("東京")
    page.locator(".task-item", has_text="long-talk").click()
    expect(answers(page).first).to_contain_text("long-talk")
    send(page, "again")
    expect(tasks.first).to_contain_text("long-talk")


def test_tasks_are_found_by_their_dates_and_the_address_says_which(
    page: "Page", studio: StudioServer, shoot: Callable[[str], Path]
) -> None:
    studio.ask("say when")
    enter(page, studio, "user", "q=when&changed=yesterday")
    expect(page.get_by_text("No tasks match")).to_be_visible()
    changed = page.get_by_role("combobox", name="Changed")
    expect(changed).to_have_value("yesterday")
    changed.focus()
    page.keyboard.press("ArrowUp")
    tasks = page.locator(".task-item")
    expect(tasks).to_have_count(1)
    expect(page).to_have_url(f"{studio.url}/ui#q=when&changed=today")
    tasks.click()
    expect(answers(page)).to_contain_text("when")
    assert page.url.endswith("&q=when&changed=today")
    changed.select_option("Between …")
    page.get_by_label("To", exact=True).fill("2026-01-31")
    expect(page.get_by_text("No tasks match")).to_be_visible()
    page.get_by_label("From", exact=True).fill("2026-01-01")
    expect(page).to_have_url(re.compile(r"changed=2026-01-01\.\.2026-01-31$"))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shoot(f"dates-{width}")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.reload()
    expect(page.get_by_label("To", exact=True)).to_have_value("2026-01-31")
    page.get_by_role("button", name="Show all tasks").click()
    expect(changed).to_have_value("")
    expect(tasks.first).to_be_visible()
    page.go_back()
    expect(page.get_by_label("From", exact=True)).to_have_value("2026-01-01")


def test_a_choice_just_after_typing_stays(page: "Page", studio: StudioServer) -> None:
    studio.ask("say when")
    enter(page, studio, "user", "q=nothing")
    expect(page.get_by_text("No tasks match")).to_be_visible()
    page.clock.install()
    page.get_by_label("Search tasks").fill("when")
    page.get_by_label("Status").select_option("completed")
    page.clock.run_for(1_000)
    expect(page).to_have_url(f"{studio.url}/ui#q=when&status=completed")


@pytest.mark.soak
def test_a_server_without_an_index_says_so(page: "Page", studio: StudioServer) -> None:
    def titles(route: "Route") -> None:
        response = route.fetch()
        route.fulfill(response=response, headers={**response.headers, "x-searched": "titles"})

    page.route("**/tasks?*", titles)
    sign_in(page, studio)
    page.get_by_role("searchbox", name="Search tasks").fill("x")
    expect(page.get_by_text("This server searches titles and ids only.")).to_be_visible()


@pytest.mark.soak
def test_the_keyboard_finds_tasks_agents_and_commands(
    page: "Page", studio: StudioServer, shoot: Callable[[str], Path]
) -> None:
    ask(page, studio, "say find me")
    page.get_by_label("Message", exact=True).press("Control+k")
    field = page.get_by_role("combobox", name="Find a task, an agent or a command")
    expect(field).to_be_focused()
    options = page.get_by_role("listbox", name="Found").get_by_role("option")
    expect(options.filter(has_text="find me")).to_be_visible()
    shoot("palette")
    field.fill("worker")
    expect(options.first).to_contain_text("worker")
    field.press("Enter")
    expect(page).to_have_url(f"{studio.url}/ui#swarm=worker")
    page.keyboard.press("Control+k")
    field.fill("find me")
    expect(options).to_have_count(1)
    field.press("ArrowDown")
    field.press("Enter")
    expect(status_of(page)).to_have_text("completed")
    page.keyboard.press("Control+k")
    field.fill("nothing of that name")
    expect(page.get_by_text("Nothing is found.")).to_be_visible()
    field.press("Escape")
    expect(field).to_have_count(0)
    page.locator("#main").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_label("Message", exact=True).press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.soak
def test_axe_finds_nothing(page: "Page", studio: StudioServer, inspect: Callable[[str], None]) -> None:
    for body in ("ask may I?", "fail please", "pay 700"):
        studio.ask(body)
    enter(page, studio, "user", "approvals")
    expect(page.get_by_role("group", name="pay needs your approval").first).to_be_visible()
    inspect("needs")
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("amount").first.fill("70")
    inspect("form")
    page.get_by_role("button", name="JSON").first.click()
    inspect("json")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("listbox", name="Found")).to_be_visible()
    inspect("palette")
    page.keyboard.press("Escape")
    page.locator("#main").focus()
    page.keyboard.press("?")
    inspect("shortcuts")
