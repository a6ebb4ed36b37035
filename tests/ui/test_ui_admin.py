"""Signing in by a link, and the pages for administrators, in Chromium."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import httpx2
import pytest
from admin_server import AdminServer
from studio_page import expect
from support.processes.http_server import TIMEOUT
from support.processes.server import run_mail

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Route

Shoot = Callable[[str], None]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminServer]:
    with AdminServer(tmp_path_factory.mktemp("admin")) as server:
        yield server


@pytest.fixture
def admin(page: "Page", busy: AdminServer) -> Callable[[str], "Page"]:
    """Opens one of the pages, signed in."""
    page.goto(busy.link())
    expect(page.get_by_role("link", name="Admin")).to_be_visible()

    def show(name: str) -> "Page":
        page.get_by_role("link", name="Admin").click()
        page.get_by_role("navigation", name="Administration").get_by_role("link", name=name).click()
        expect(page.locator(".admin-title").get_by_role("heading", level=2)).to_have_text(name)
        return page

    return show


@pytest.fixture
def admin_with_key(
    page: "Page", busy: AdminServer, admin: Callable[[str], "Page"]
) -> Callable[[str], "Page"]:
    """Opens one of the pages, signed in with an API key."""
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").fill(busy.tokens["admin"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name="Admin")).to_be_visible()
    return admin


def whoami(server: AdminServer, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.get(f"{server.url}/whoami", headers=headers, timeout=TIMEOUT).status_code


def test_a_link_signs_in_once_and_leaves_no_trace(
    page: "Page", context: "BrowserContext", busy: AdminServer
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    link = busy.link("user", "ann")
    code = link.partition("=")[2]
    page.goto(link)
    expect(page.locator(".who")).to_contain_text("ann")
    expect(page.get_by_role("link", name="Admin")).to_have_count(0)
    assert code not in page.url
    assert asked
    assert not [url for url in asked if code in url], "fragments are sent to no server"
    page.go_back()
    assert code not in page.url, "nor is it in the history"

    other = context.new_page()  # a tab of its own, with a session storage of its own
    other.goto(link)
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(other.get_by_text("was used already or has expired")).to_be_visible()
    assert code not in other.url

    page.goto(f"{busy.url}/ui#sign-in={code}")
    expect(page.locator(".who")).to_contain_text("ann")
    page.goto(busy.link())
    expect(page.locator(".who")).to_contain_text("root")
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium's own lines about the 401 responses


@pytest.mark.soak(on="sign-in")
@pytest.mark.parametrize("path", ["sign-in", "whoami"])
def test_a_link_is_not_lost_with_a_request(page: "Page", busy: AdminServer, path: str) -> None:
    refused = []

    def refuse_once(route: "Route") -> None:
        refused.append(route.request.url)
        route.fulfill(status=503) if len(refused) == 1 else route.continue_()

    page.route(f"**/{path}", refuse_once)
    page.goto(busy.link("user", "ben"))
    expect(page.locator(".who")).to_have_text("ben · user")
    assert len(refused) == 2
    assert "sign-in" not in page.url
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium reports the request that failed


@pytest.mark.soak
def test_a_link_to_another_caller_ends_the_session_and_its_drafts(page: "Page", busy: AdminServer) -> None:
    page.goto(busy.link("user", "same"))
    expect(page.locator(".who")).to_have_text("same · user")
    former = page.evaluate("sessionStorage.getItem('mail-token')")
    draft = page.get_by_label("Message", exact=True)
    draft.fill("what only the user may see")
    with page.expect_response("**/sign-out") as ended:
        page.goto(busy.link("admin", "same"))
    expect(page.locator(".who")).to_have_text("same · admin")
    expect(draft).to_have_value("")
    assert ended.value.request.headers["authorization"] == f"Bearer {former}"
    assert ended.value.json()["revoked"]


def test_the_audit_is_listed_and_filtered(
    page: "Page", busy: AdminServer, admin: Callable[[str], "Page"]
) -> None:
    headers = {"Authorization": f"Bearer {busy.tokens['admin']}"}
    made = httpx2.post(
        f"{busy.url}/tokens", json={"role": "user", "id": "fay"}, headers=headers, timeout=TIMEOUT
    )
    assert made.status_code == 201
    shell = run_mail("token", "create", "--role", "user", "--id", "gus", cwd=busy.folder)
    assert shell.returncode == 0, shell.stderr
    admin("Audit")
    rows = page.get_by_role("table", name="Audit").get_by_role("row")
    created = rows.filter(has_text="user:fay")
    expect(created).to_contain_text("create token")
    expect(created).to_contain_text("admin:root")
    expect(created).to_contain_text("done")
    by_operator = rows.filter(has_text="user:gus")
    expect(by_operator).to_contain_text("create token")
    expect(by_operator.get_by_role("cell").first).to_have_text("operator")
    page.get_by_label("Act").fill("sign in")
    page.get_by_label("Act").press("Enter")
    expect(rows.filter(has_text="create token")).to_have_count(0)
    expect(rows.filter(has_text="sign in").first).to_be_visible()
    page.get_by_label("By").fill("user:nobody")
    page.get_by_label("By").press("Enter")
    expect(page.get_by_text("No entries")).to_be_visible()
    page.get_by_label("By").fill("operator")
    page.get_by_label("By").press("Enter")
    page.get_by_label("Act").fill("")
    page.get_by_label("Act").press("Enter")
    expect(by_operator).to_have_count(1)
    expect(rows.filter(has_text="user:fay")).to_have_count(0)


@pytest.mark.soak
def test_axe_finds_nothing(
    page: "Page", admin: Callable[[str], "Page"], inspect: Callable[[str], None]
) -> None:
    names = (
        "All tasks",
        "Usage and cost",
        "Dead letters",
        "Drafts",
        "Other swarms",
        "Schedules",
        "Webhooks",
        "Tokens",
        "Audit",
        "Loaded swarm",
    )
    for name in names:
        admin(name)
        expect(page.locator(".loading")).to_have_count(0)
        for summary in page.locator("details > summary").all():
            summary.click()
        inspect(name)
    page.get_by_label("swarms.json entry").fill('{"name": "x", "agents": [{"nmae": ""}]}')
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".problems li").first).to_be_visible()
    inspect("problems")
    admin("Tokens")
    page.get_by_role("button", name="Revoke").first.click()
    inspect("dialog")


def test_tasks_of_all_callers(admin: Callable[[str], "Page"], shoot: Shoot) -> None:
    page = admin("All tasks")
    rows = page.get_by_role("table", name="Tasks of all callers").locator("tbody").get_by_role("row")
    expect(rows).to_have_count(14)
    news = rows.filter(has_text="Summarise the news")
    expect(news).to_contain_text("user:ann")
    expect(news).to_contain_text("Price unknown")
    expect(news.get_by_role("link")).to_have_count(0)
    expect(rows.filter(has_text="invoice").get_by_role("link", name="1 dead letter")).to_be_visible()
    page.get_by_label("Search").fill("ADMIN:root")
    expect(rows).to_have_count(6)
    page.get_by_label("Search").fill("")
    page.get_by_label("State").select_option("failed")
    expect(rows).to_have_count(1)
    page.get_by_label("State").select_option("")
    shoot("admin-tasks")
    rows.filter(has_text="letters-5").get_by_role("link").click()
    expect(page).to_have_url(page.url.partition("#")[0] + "#task=letters-5")


@pytest.mark.soak
def test_a_task_of_another_caller_is_read_for_a_reason_that_its_owner_sees(
    page: "Page",
    busy: AdminServer,
    admin: Callable[[str], "Page"],
    inspect: Callable[[str], None],
    shoot: Shoot,
) -> None:
    admin("All tasks")
    expect(page.get_by_role("button", name="Read 2 Answer the letters")).to_have_count(0)
    page.get_by_role("button", name=re.compile("^Read .*report of day 2")).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("user:ann")
    inspect("reason")
    dialog.get_by_label("Reason").fill("ticket 42")
    dialog.get_by_role("button", name="Read the task").click()
    conversation = dialog.get_by_role("region", name="Conversation")
    expect(conversation).to_contain_text("Write the report of day 2")
    expect(conversation).to_contain_text("done: Write the report of day 2")
    expect(conversation).to_contain_text("admin:root@")
    expect(conversation.get_by_role("textbox")).to_have_count(0)
    inspect("opened")
    shoot("admin-opened")
    page.goto(busy.link("user", "ann"))
    expect(page.locator(".who")).to_contain_text("ann")
    page.goto(f"{busy.url}/ui#task=report-2")
    expect(page.get_by_role("region", name="Conversation")).to_contain_text(
        "opened the task to read it: ticket 42"
    )
    expect(page.get_by_role("button", name="Answer again, in a fork")).to_be_visible()


@pytest.mark.soak
def test_usage(admin: Callable[[str], "Page"], shoot: Shoot) -> None:
    page = admin("Usage and cost")
    rows = page.get_by_role("table").locator("tbody").get_by_role("row")
    expect(page.locator(".chart-column")).to_have_count(30)
    expect(rows.first).to_contain_text("Price unknown")
    shoot("admin-usage")
    page.get_by_label("Group by").select_option("models")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("openai/gpt-5-mini")
    expect(rows.nth(1)).to_contain_text("Price unknown")
    page.get_by_label("Group by").select_option("callers")
    expect(rows.first).to_contain_text("user:ann@")
    expect(page.get_by_label("Version of the swarm")).to_have_count(0)

    def with_another(route: "Route") -> None:
        response = route.fetch()
        answer = response.json()
        answer["versions"]["an-earlier-one"] = answer["total"]
        route.fulfill(response=response, json=answer)

    page.route("**/usage?*", with_another)
    page.get_by_label("Period").select_option("7 days")
    page.get_by_label("Group by").select_option("versions")
    expect(rows).to_have_count(2)
    page.unroute("**/usage?*")
    page.get_by_label("Version of the swarm").select_option("an-earlier-one")
    expect(page.get_by_text("No calls of models in this period")).to_be_visible()
    page.get_by_label("Version of the swarm").select_option("all")
    expect(rows).to_have_count(1)


def test_a_token_is_revoked_by_keyboard(
    admin: Callable[[str], "Page"], busy: AdminServer, shoot: Shoot
) -> None:
    with busy.client("admin") as client:
        token = client.post("/tokens", json={"role": "user", "id": "eve"}).json()["token"]
    page = admin("Tokens")
    page.get_by_text("Create a token").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".adding pre")).to_contain_text("mail token create --role user")
    assert whoami(busy, token) == 200
    page.get_by_role("button", name="Revoke the token of user:eve").press("Enter")
    asked = page.get_by_role("dialog", name="Revoke this token?")
    shoot("admin-revoke")
    page.keyboard.press("Escape")
    expect(asked).to_have_count(0)
    page.get_by_role("button", name="Revoke the token of user:eve").press("Enter")
    asked.get_by_role("button", name="Revoke").press("Enter")
    expect(page.get_by_text("The token of user:eve is revoked.")).to_be_visible()
    expect(page.get_by_role("button", name="Revoke the token of user:eve")).to_have_count(0)
    assert whoami(busy, token) == 401


def test_a_swarm_is_checked_and_loaded(
    admin_with_key: Callable[[str], "Page"], busy: AdminServer, shoot: Shoot
) -> None:
    page = admin_with_key("Loaded swarm")
    editor = page.get_by_label("swarms.json entry")
    good = editor.input_value().replace('"version": "1.3.0"', '"version": "9.9.9"')
    assert "9.9.9" in good
    editor.fill(good.replace('"enable_entrypoint"', '"enable_entripoint"', 1))
    page.get_by_role("button", name="Check").click()
    problem = page.get_by_role("listitem").filter(has_text="agents.0.enable_entripoint")
    expect(problem).to_contain_text("enable_entrypoint")
    problem.get_by_role("button").click()
    selected = (
        "document.activeElement.value.slice(document.activeElement.selectionStart, "
        "document.activeElement.selectionEnd)"
    )
    assert page.evaluate(selected) == '"enable_entripoint"'
    shoot("admin-swarm-problem")
    editor.fill(good)
    expect(problem).to_have_count(0)
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("This swarm can be loaded.")).to_be_visible()
    page.get_by_role("button", name="Load…").click()
    page.get_by_role("dialog").get_by_role("button", name="Load").click()
    expect(page.get_by_text("is loaded.")).to_be_visible()
    assert httpx2.get(busy.url, timeout=TIMEOUT).json()["swarm"]["version"] == "9.9.9"


@pytest.mark.soak
def test_a_dead_letter_is_discarded_after_a_question(admin: Callable[[str], "Page"], shoot: Shoot) -> None:
    page = admin("Dead letters")
    letter = page.get_by_role("row").filter(has_text="user:ann")
    expect(letter).to_contain_text("RuntimeError")
    shoot("admin-dead-letters")
    letter.get_by_role("button", name="Discard").click()
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(page.get_by_text("1 message is discarded.")).to_be_visible()
    expect(page.get_by_text("No dead letters")).to_be_visible()


@pytest.mark.soak
def test_other_swarms_and_webhooks(admin: Callable[[str], "Page"], shoot: Shoot) -> None:
    page = admin("Other swarms")
    rows = page.get_by_role("table").locator("tbody").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.filter(has_text="beta")).to_contain_text("${SWARM_AUTH_TOKEN_BETA}")
    expect(rows.filter(has_text="gamma")).to_contain_text("down")
    shoot("admin-swarms")
    page.get_by_role("button", name="Remove delta").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(rows).to_have_count(2)

    page = admin("Webhooks")
    expect(rows).to_have_count(1)
    page.get_by_text("Register a webhook").click()
    expect(page.locator(".adding pre")).to_contain_text("mail webhook register")
    expect(page.get_by_role("button", name="Register")).to_have_count(0)


@pytest.mark.soak
def test_schedules_are_run_disabled_and_deleted(
    admin: Callable[[str], "Page"], shoot: Shoot, busy: AdminServer
) -> None:
    page = admin("Schedules")
    rows = page.get_by_role("table").locator("tbody").get_by_role("row")
    expect(rows).to_have_count(2)
    morning, evening = rows.filter(has_text="morning"), rows.filter(has_text="evening")
    expect(morning).to_contain_text("30 8 * * mon-fri (Europe/Berlin)")
    expect(evening).to_contain_text("disabled")
    page.get_by_role("button", name="Run now: morning").click()
    expect(page.get_by_text("has begun")).to_be_visible()
    expect(morning.locator(".chip")).to_have_text(re.compile("running|completed"))
    page.get_by_role("button", name="Disable: morning").click()
    expect(page.get_by_text("morning is disabled")).to_be_visible()
    expect(morning).to_contain_text("disabled")
    page.get_by_role("button", name="Enable: morning").click()
    expect(morning.locator("time").first).to_be_visible()
    page.get_by_text("Create a schedule").click()
    expect(page.locator(".adding pre")).to_contain_text("mail schedule create")
    shoot("admin-schedules")
    page.get_by_role("button", name="Delete: evening").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(rows).to_have_count(1)


@pytest.mark.soak
def test_a_key_registers_webhooks(admin_with_key: Callable[[str], "Page"]) -> None:
    page = admin_with_key("Webhooks")
    page.get_by_text("Register a webhook").click()
    page.get_by_label("URL", exact=True).fill("http://insecure.example")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("https")
    assert page.wrong.pop().endswith("400 (Bad Request)"), (  # type: ignore[attr-defined]
        "Chromium's own line, of nothing else that went wrong"
    )
    page.get_by_role("button", name="Delete the webhook").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No webhooks yet")).to_be_visible()
