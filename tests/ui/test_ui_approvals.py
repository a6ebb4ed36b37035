"""Calls that wait for approval, on the page in a headless Chromium."""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from studio_page import answers, ask, enter, expect, new_task, send, status_of
from studio_server import Gate, StudioServer
from support.processes.approval_swarm import Bank

from mail.core.task.approvals import Approval
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.testing.agents import View, build_swarm, call, complete

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


def test_one_call_is_edited_and_the_other_rejected(page: "Page", bank: Bank) -> None:
    ask(page, bank, "pay 500 600", "paused")
    cards = page.get_by_role("group", name="pay needs your approval")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text("payer wants to run pay")
    expect(cards.first.locator("dd")).to_have_text(["bob", "500"])

    cards.first.get_by_role("button", name="Edit").click()
    form = cards.first.locator(".arguments-form")
    expect(form.get_by_label("to")).to_be_focused()
    expect(cards.first).to_contain_text("Nothing is changed.")
    form.get_by_label("amount").fill("50.5")
    approve = cards.first.get_by_role("button", name="Approve with these arguments")
    approve.click()
    expect(cards.first.get_by_text("amount must be a whole number.")).to_be_visible()
    form.get_by_label("amount").fill("7")
    expect(cards.first.get_by_label("Changes").locator("dd")).to_have_text("5007")
    cards.first.get_by_role("button", name="JSON").click()
    arguments = cards.first.get_by_label("Arguments")
    expect(arguments).to_have_value('{\n  "to": "bob",\n  "amount": 7\n}')
    arguments.fill('{"to": "eve"')
    approve.click()
    expect(cards.first.get_by_text("The arguments are not valid JSON.")).to_be_visible()
    arguments.fill('{"to": "eve"}')
    approve.click()
    expect(cards.first.get_by_text("pay does not take these arguments")).to_be_visible()
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium reports each request that failed
    arguments.fill('{"to": "eve", "amount": 5}')
    approve.click()

    expect(cards).to_have_count(1)
    expect(cards).to_be_focused()
    expect(page.locator(".answered").get_by_text("approved with changes by user")).to_be_visible()
    expect(status_of(page)).to_have_text("paused")
    assert bank.paid == []
    cards.get_by_role("button", name="Reject").click()
    cards.get_by_label("Reason").fill("too much")
    cards.get_by_role("button", name="Reject").click()
    expect(status_of(page)).to_have_text("completed")
    expect(cards).to_have_count(0)
    expect(answers(page).last).to_contain_text("paid 5 to eve")
    expect(answers(page).last).to_contain_text("too much")
    assert bank.paid == ["eve 5"]
    expect(page.locator(".answered").first).to_contain_text("→ paid 5 to eve")

    new_task(page)
    send(page, "pay 700")
    cards.get_by_role("button", name="Edit").click()
    cards.get_by_role("button", name="Approve with these arguments").click()
    expect(page.locator(".answered").last).to_contain_text("approved by user")
    expect(page.locator(".answered").last).to_contain_text("→ paid 700 to bob")


HIDDEN = "\u202e00001 MORF\u202c safe\u200b"
HEBREW = "\u05d0\u05d1\u05d2"


def hiding_swarm(_gate: Gate) -> SwarmCore:
    """An agent that pays with arguments in which something is hidden, and answers with what it was asked."""

    async def pay(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    def act(view: View) -> Any:
        if not view.mail.body.startswith("pay"):
            return [complete(view.mail.body)]
        if view.results:
            return [complete(view.results[-1])]
        return [
            call("pay", to=HIDDEN, account=12345678901234567, note=f"{HEBREW} 1", more={HIDDEN: [HIDDEN]})
        ]

    return build_swarm({"payer": act}, actions={"pay": ActionCore("pay", pay, needs_approval=True)})


@pytest.fixture(scope="module")
def hiding() -> Iterator[StudioServer]:
    with StudioServer(hiding_swarm) as server:
        yield server


@pytest.mark.soak
def test_what_is_approved_is_what_was_shown(
    page: "Page", hiding: StudioServer, shoot: Callable[[str], None]
) -> None:
    ask(page, hiding, f"pay {HIDDEN}", "paused")
    escaped = r"\u202e00001 MORF\u202c safe\u200b"
    expect(page.locator(".task-head")).to_contain_text(f"pay {escaped}")
    expect(page.get_by_role("navigation", name="Your tasks")).to_contain_text(f"pay {escaped}")
    card = page.get_by_role("group", name="pay needs your approval")
    shoot("approval-hidden")
    values = card.locator("dd")
    expect(values.nth(0)).to_have_text(escaped)
    expect(values.nth(1)).to_have_text("12345678901234567")
    expect(values.nth(2).locator("bdi")).to_have_text(f"{HEBREW} 1")
    expect(values.nth(3)).to_contain_text(rf'"{escaped}": [')
    card.get_by_role("button", name="Edit").click()
    expect(card.get_by_label("to", exact=True)).to_have_value(f'"{escaped}"')
    card.get_by_role("button", name="JSON").click()
    arguments = card.get_by_label("Arguments")
    assert escaped in arguments.input_value()
    arguments.fill(arguments.input_value().replace("safe", "unsafe"))
    card.get_by_role("button", name="Approve with these arguments").click()
    expect(card.get_by_text("can't send a number with so many digits")).to_be_visible()
    card.get_by_role("button", name="Back").click()
    with page.expect_request("**/message") as sent:
        card.get_by_role("button", name="Approve", exact=True).click()
    assert len(sent.value.post_data_json["kwargs"]["approvals"][0]["arguments_sha256"]) == 64
    expect(status_of(page)).to_have_text("completed")
    expect(page.locator(".answered")).to_contain_text("approved by")


@pytest.mark.soak
def test_extreme_text_and_an_error_leave_the_rest_of_a_conversation(
    page: "Page", hiding: StudioServer, shoot: Callable[[str], None]
) -> None:
    ask(page, hiding, "> " * 3000 + "quoted")
    expect(answers(page).last).to_contain_text("quoted")
    send(page, "a." * 60_000 + "@")
    expect(answers(page)).to_have_count(2)
    expect(answers(page).last).to_contain_text("a.a.@")
    send(page, "this one breaks")
    expect(answers(page)).to_have_count(3)

    def break_one(route: "Route") -> None:
        answer = route.fetch()
        task = answer.json()
        for item in task.get("items", []):
            if item.get("kind") == "answer" and "breaks" in item["text"]:
                item["text"] = None
        route.fulfill(response=answer, json=task)

    page.route("**/task?*", break_one)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("This entry can't be shown.")
    expect(answers(page)).to_have_count(2)
    expect(page.locator(".bubble.mine").last).to_contain_text("this one breaks")
    expect(page.get_by_role("navigation", name="Your tasks")).to_be_visible()
    shoot("broken-entry")
    page.wrong.clear()  # type: ignore[attr-defined]  # the error is in the console


def reviewed_swarm(_gate: Gate) -> SwarmCore:
    """An agent whose payments an admin approves, and whose questions one answers."""

    async def pay(arguments: dict[str, Any]) -> str:
        return f"paid {arguments['to']}"

    def act(view: View) -> Any:
        if view.results:
            return [complete(view.results[-1])]
        body = view.mail.body
        return [call("consult", question=body) if body.endswith("?") else call("pay", to=body)]

    rule = Approval(by=("admin",), not_requester=True)
    action = ActionCore("pay", pay, needs_approval=True, reviewers=rule)
    asked = ActionCore("consult", pay, reviewers=rule)
    return build_swarm(
        {"payer": act}, actions={"pay": action, "consult": asked}, breakpoint_tools=frozenset({"consult"})
    )


@pytest.fixture(scope="module")
def reviewed() -> Iterator[StudioServer]:
    with StudioServer(reviewed_swarm) as server:
        yield server


def test_a_reviewer_decides_in_the_list_of_what_waits(
    page: "Page", reviewed: StudioServer, shoot: Callable[[str], None]
) -> None:
    ask(page, reviewed, f"<b>eve</b>{HIDDEN}", "paused")
    card = page.get_by_role("group", name="pay needs your approval")
    expect(card).to_contain_text("Waits for the decision of admin")
    expect(card.get_by_role("button")).to_have_text(["JSON"])
    views = page.get_by_role("navigation", name="Views")
    expect(views.get_by_role("link", name="Needs you")).to_have_text("Needs you")

    other = page.context.new_page()
    enter(other, reviewed, "admin", "approvals")
    link = other.get_by_role("navigation", name="Views").get_by_role("link", name="Needs you 1")
    expect(link).to_have_attribute("aria-current", "page")
    waiting = other.get_by_role("region", name="Needs you")
    expect(waiting).to_contain_text("Asked for by user:ann@example")
    expect(waiting.locator("dd")).to_have_text([r"<b>eve</b>\u202e00001 MORF\u202c safe\u200b"])
    expect(waiting.get_by_role("link")).to_have_count(0)
    waiting.get_by_role("button", name="Reject").click()
    waiting.get_by_label("Reason").fill("no")
    waiting.get_by_role("button", name="Reject").click()
    expect(waiting).to_contain_text("Nothing waits for you")
    expect(other.get_by_role("navigation", name="Views").get_by_role("link", name="Needs you")).to_have_text(
        "Needs you"
    )
    other.close()
    expect(status_of(page)).to_have_text("completed")
    expect(page.locator(".answered")).to_contain_text("rejected by root")
    shoot("reviewed")


def test_a_reviewer_answers_a_question(
    page: "Page", reviewed: StudioServer, shoot: Callable[[str], None]
) -> None:
    ask(page, reviewed, "Which <b>day</b>?", "paused")
    card = page.get_by_role("group", name="consult needs an answer")
    expect(card).to_contain_text("Waits for the answer of admin")
    expect(card.get_by_role("button")).to_have_count(0)
    other = page.context.new_page()
    enter(other, reviewed, "admin", "approvals")
    waiting = other.get_by_role("region", name="Needs you")
    expect(waiting).to_contain_text("Which <b>day</b>?")
    shoot("asked")
    waiting.get_by_label("Your answer").fill("on Friday")
    waiting.get_by_role("button", name="Send").click()
    expect(waiting).to_contain_text("Nothing waits for you")
    other.close()
    expect(status_of(page)).to_have_text("completed")
    expect(page.get_by_role("article", name="Answer of root")).to_contain_text("on Friday")
