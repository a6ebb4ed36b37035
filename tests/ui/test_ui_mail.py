"""Mail of MAIL 2.0 on the page in a headless Chromium."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from studio_page import enter, expect, sign_in, status_of
from support.processes.approval_swarm import Bank
from support.processes.server import eventually

from mail.public_urls import tls

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WIDTHS = (360, 390, 1024, 1440)
USER, ADMIN, PAYER, TEA = (
    "user:user@localhost",
    "admin:admin@localhost",
    "payer@bank@localhost",
    "list:tea@bank@localhost",
)


class Mail:
    """The mail of a role, as another program sees it."""

    def __init__(self, bank: Bank, role: str) -> None:
        headers = {"Authorization": f"Bearer {bank.tokens[role]}"}
        self.client = httpx2.Client(base_url=f"{bank.url}/v2", headers=headers, verify=tls())

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def send(self, to: str, subject: str, body: str, **fields: Any) -> str:
        draft = self.ask("POST", "/drafts", {"subject": subject, "body": body, **fields})["entry"]["draft"]
        sent = self.ask("POST", f"/drafts/{draft['draft_id']}/send", {"recipients": [to]})
        return str(sent["message"]["message_id"])

    def subjects(self, box: str) -> list[str]:
        return [entry["subject"] for entry in self.ask("GET", f"/{box}")["entries"]]


@pytest.fixture(scope="module")
def admin(bank: Bank) -> Iterator[Mail]:
    mail = Mail(bank, "admin")
    with mail.client:
        yield mail


@pytest.fixture(scope="module")
def user(bank: Bank) -> Iterator[Mail]:
    mail = Mail(bank, "user")
    with mail.client:
        mail.ask("GET", "/auth/whoami")  # makes the account
        yield mail


def pane(page: "Page") -> "Locator":
    return page.get_by_role("region", name="Mail", exact=True)


def write(page: "Page", to: str, subject: str, body: str) -> None:
    form = page.get_by_role("form", name="New message")
    form.get_by_label("To").fill(to)
    form.get_by_label("Subject").fill(subject)
    form.get_by_label("Text").fill(body)
    form.get_by_role("button", name="Send").press("Enter")


def test_mail_is_loaded_when_it_is_opened(page: "Page", bank: Bank) -> None:
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    sign_in(page, bank)
    link = page.get_by_role("navigation", name="Views").get_by_role("link", name="Mail")
    expect(link).to_be_visible()
    assert not [url for url in loaded if ("/ui/" in url and "/mail/" in url) or "/v2/" in url]
    link.click()
    expect(pane(page)).to_contain_text(USER)
    assert [url for url in loaded if "/mail/mail.js" in url]


def test_an_answer_shows_its_task_and_an_approval_what_needs_its_reader(
    page: "Page", bank: Bank, user: Mail, shoot: Callable[[str], None]
) -> None:
    enter(page, bank, "user", "mail")
    pane(page).get_by_role("link", name="Write").click()
    form = page.get_by_role("form", name="New message")
    expect(form.get_by_label("To")).to_be_focused()
    form.get_by_text("Agents and lists").click()
    form.get_by_role("button", name=PAYER).click()
    expect(form.get_by_label("To")).to_have_value(PAYER)
    write(page, PAYER, "Rent", "pay 5")
    expect(pane(page).get_by_role("status")).to_have_text("Sent.")
    eventually(lambda: "Re: Rent" in user.subjects("inbox"), "the answer")
    assert user.ask("GET", "/drafts")["entries"] == []
    page.reload()
    expect(pane(page).get_by_role("link", name="Unread: Re: Rent")).to_be_visible()
    pane(page).get_by_role("link", name="Re: Rent").click()
    answer = page.get_by_role("article", name=f"From {PAYER}")
    expect(answer).to_contain_text("paid 5 to bob")
    expect(pane(page).get_by_role("link", name="Unread: Re: Rent")).to_have_count(0)
    own = page.get_by_role("article", name=f"From {USER}")
    expect(own).to_have_count(1)
    shoot("mail-thread")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 1440, "height": 900})
    answer.get_by_role("link", name="Show the task behind it").click()
    expect(status_of(page)).to_have_text("completed")

    user.send(PAYER, "House", "pay 700")
    eventually(lambda: "Re: House" in user.subjects("inbox"), "the question")
    page.goto(f"{bank.url}/ui#mail")
    pane(page).get_by_role("link", name="Re: House").click()
    page.get_by_role("link", name="Decide in Needs you").click()
    needs = page.get_by_role("region", name="Needs you")
    expect(needs.get_by_role("group", name="pay needs your approval")).to_be_visible()


def test_what_is_no_address_is_explained_and_leaves_no_draft(page: "Page", bank: Bank, user: Mail) -> None:
    before = user.ask("GET", "/drafts")["entries"]
    enter(page, bank, "user", "mail")
    pane(page).get_by_role("link", name="Write").click()
    for given, meant in (("ann", "user:ann@localhost"), ("payer@bank", "payer@bank@localhost")):
        write(page, f"{USER}, {given}", "Tea", "At four?")
        expect(page.get_by_role("form", name="New message")).to_contain_text(
            f"“{given}” is no address; write {meant}"
        )
    assert user.ask("GET", "/drafts")["entries"] == before


def test_people_write_to_each_other_by_keyboard(page: "Page", bank: Bank, user: Mail, admin: Mail) -> None:
    first = admin.send(USER, "Tea", "At four?")
    enter(page, bank, "user", "mail")
    pane(page).get_by_role("link", name="Tea").press("Enter")
    page.get_by_role("button", name="Reply", exact=True).press("Enter")
    reply = page.get_by_role("form", name="Reply")
    expect(reply.get_by_label("Text")).to_be_focused()
    expect(reply.get_by_label("To")).to_have_value(ADMIN)
    page.keyboard.type("Gladly.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name=f"From {USER}")).to_contain_text("Gladly.")
    (entry,) = admin.ask("GET", "/inbox")["entries"]
    assert (entry["subject"], entry["thread"]) == ("Re: Tea", first)
    page.get_by_role("article", name=f"From {ADMIN}").get_by_role("button", name="Delete").click()
    expect(pane(page).get_by_role("link", name="Tea")).to_have_count(0)
    pane(page).get_by_role("link", name="Trash").click()
    pane(page).get_by_role("link", name="Tea").click()
    page.get_by_role("button", name="Restore").click()
    eventually(lambda: "Tea" in user.subjects("inbox"), "the restored message")


def test_a_refusal_keeps_the_text_and_a_draft_is_written_on(
    page: "Page", bank: Bank, user: Mail, admin: Mail
) -> None:
    enter(page, bank, "user", "mail=new")
    write(page, "user:Nobody@localhost", "Draft", "Hello")
    form = page.get_by_role("form", name="New message")
    expect(form.get_by_role("alert")).to_contain_text("recipients")
    page.wrong[:] = [text for text in page.wrong if "422" not in text]  # type: ignore[attr-defined]
    form.get_by_role("button", name="Save as a draft").click()
    expect(pane(page).get_by_role("status")).to_have_text("Saved as a draft.")
    pane(page).get_by_role("link", name="Drafts").click()
    pane(page).get_by_role("link", name="Draft just now").click()
    expect(form.get_by_label("Text")).to_have_value("Hello")
    form.get_by_label("To").fill(ADMIN)
    form.get_by_role("button", name="Send").click()
    eventually(lambda: admin.subjects("inbox").count("Draft") == 1, "the message")
    eventually(lambda: "Draft" not in user.subjects("drafts"), "the end of the draft")


def test_a_message_that_reaches_nobody_says_why(page: "Page", bank: Bank, user: Mail) -> None:
    user.send("user:nobody@localhost", "Lost", "Hello")
    enter(page, bank, "user", "mail=outbox")
    pane(page).get_by_role("link", name="Lost").click()
    expect(page.get_by_role("alert")).to_contain_text("user:nobody@localhost: this account does not exist")


def test_filters_and_pages(page: "Page", bank: Bank, user: Mail, admin: Mail) -> None:
    for n in range(25):
        admin.send(USER, f"Note {n}", "x", tags=["note"])
    enter(page, bank, "user", "mail")
    pane(page).get_by_label("Tag").select_option("note")
    notes = pane(page).get_by_role("link", name="Note")
    expect(notes).to_have_count(20)
    pane(page).get_by_role("button", name="Older").click()
    expect(notes).to_have_count(25)
    notes.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Note 23")).to_be_visible()
    pane(page).get_by_label("Unread").check()
    expect(pane(page).get_by_role("link", name="Note 23")).to_have_count(0)
    expect(notes).to_have_count(20)


def test_lists_are_joined_and_left(page: "Page", bank: Bank, user: Mail, admin: Mail) -> None:
    new = {"name": "tea", "swarm_name": "bank", "owner": ADMIN, "policy": {"join_policy": "approval"}}
    admin.ask("POST", "/admin/lists", new)
    enter(page, bank, "user", "mail=lists")
    pane(page).get_by_role("link", name="tea@bank").click()
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_text("Your request to join waits for the owner.")).to_be_visible()
    admin.ask("POST", f"/lists/{TEA}/members", {"member_address": USER})
    page.reload()
    expect(page.get_by_role("button", name="Leave")).to_be_visible()
    expect(pane(page)).to_contain_text("joined")
    page.get_by_role("link", name="Write to it").click()
    expect(page.get_by_role("form", name="New message").get_by_label("To")).to_have_value(TEA)
    page.go_back()
    page.get_by_role("button", name="Leave").click()
    expect(page.get_by_role("button", name="Join")).to_be_visible()


@pytest.mark.soak
def test_axe_finds_nothing(page: "Page", bank: Bank, admin: Mail, inspect: Callable[[str], None]) -> None:
    admin.send(USER, "Axe", "Is it sharp?", tags=["note"])
    enter(page, bank, "user", "mail")
    pane(page).get_by_role("link", name="Axe").first.click()
    page.get_by_role("button", name="Reply", exact=True).click()
    expect(page.get_by_role("form", name="Reply")).to_be_visible()
    inspect("thread")
    page.goto(f"{bank.url}/ui#mail=new")
    page.get_by_text("Agents and lists").click()
    expect(page.get_by_role("button", name=PAYER)).to_be_visible()
    inspect("new message")
    page.goto(f"{bank.url}/ui#mail=lists")
    expect(pane(page)).to_contain_text("Lists")
    inspect("lists")
