"""Calls that wait for approval, on the page in a headless Chromium."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from studio_page import answers, ask, expect, send, status_of
from support.processes.approval_swarm import Bank

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with Bank(tmp_path_factory.mktemp("bank")) as running:
        yield running


def test_one_call_is_edited_and_the_other_rejected(page: "Page", bank: Bank) -> None:
    ask(page, bank, "pay 500 600", "paused")
    cards = page.get_by_role("group", name="pay needs your approval")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text("payer wants to run pay")
    expect(cards.first.locator("dd")).to_have_text(["bob", "500"])

    cards.first.get_by_role("button", name="Edit").click()
    arguments = cards.first.get_by_label("Arguments")
    expect(arguments).to_be_focused()
    approve = cards.first.get_by_role("button", name="Approve with these arguments")
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

    page.get_by_role("link", name="New task").click()
    send(page, "pay 700")
    cards.get_by_role("button", name="Edit").click()
    cards.get_by_role("button", name="Approve with these arguments").click()
    expect(page.locator(".answered").last).to_contain_text("approved by user")
    expect(page.locator(".answered").last).to_contain_text("→ paid 700 to bob")
