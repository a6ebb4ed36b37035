"""Calls that wait for approval, on the page in a headless Chromium."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.approval_swarm import Bank
from test_ui_in_chromium import expect, send, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with Bank(tmp_path_factory.mktemp("bank")) as running:
        yield running


def test_one_call_is_edited_and_the_other_rejected(page: "Page", bank: Bank) -> None:
    sign_in(page, bank)
    send(page, "pay 500 600")
    form = page.get_by_role("form", name="The task waits for you")
    expect(form.get_by_text("pay needs your approval.")).to_have_count(2)
    expect(form.get_by_role("button", name="Send results")).not_to_be_visible()

    arguments = form.get_by_label("Arguments of pay").first
    arguments.fill('{"to": "eve"')
    form.get_by_role("button", name="Approve").first.click()
    expect(page.get_by_text("The arguments are not JSON.")).to_be_visible()
    arguments.fill('{"to": "eve"}')
    form.get_by_role("button", name="Approve").first.click()
    expect(page.get_by_text("pay does not take these arguments")).to_be_visible()
    page.wrong.clear()  # Chromium reports each request that failed
    arguments.fill('{"to": "eve", "amount": 5}')
    form.get_by_role("button", name="Approve").first.click()

    expect(form.get_by_text("pay needs your approval.")).to_have_count(1)
    expect(page.locator("#task-status")).to_have_text("paused")
    assert bank.paid == []
    form.get_by_label("Reason").fill("too much")
    form.get_by_role("button", name="Reject").click()
    expect(page.locator("#task-status")).to_have_text("completed")
    expect(form).not_to_be_visible()
    last = page.locator("#timeline > li").last
    expect(last).to_contain_text("paid 5 to eve")
    expect(last).to_contain_text("too much")
    assert bank.paid == ["eve 5"]
