"""Every region of the page by keyboard alone, the trace on a narrow screen, and what admins do with others' tasks."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from studio_page import expect, sign_in, status_of, violations
from studio_server import Gate, StudioServer, studio_swarm

from mail.core.task.swarm import ActionCore, ProvidedTools, SwarmCore

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

Shoot = Callable[[str], None]
TOOL = ActionCore("files_read", lambda _arguments: "text", "Read a file.", {"type": "object"})  # type: ignore[return-value]


class Files:
    """The tools of an MCP server, as after a turn."""

    def known(self) -> ProvidedTools:
        return ProvidedTools({TOOL.name: TOOL})

    async def tools(self) -> ProvidedTools:
        return self.known()

    async def aclose(self) -> None:
        """Nothing is open."""


def with_files(gate: Gate) -> SwarmCore:
    swarm = studio_swarm(gate)
    worker = replace(swarm.agents["worker"], tool_source=Files(), mcp_servers=("files",))
    worker.function.system = "You dig for gold. Never ask twice."  # type: ignore[attr-defined]
    return replace(swarm, agents={**swarm.agents, "worker": worker})


@pytest.fixture(scope="module")
def files() -> Iterator[StudioServer]:
    with StudioServer(with_files) as server:
        yield server


FOCUSED = """() => {
  const { tagName, labels, textContent } = document.activeElement;
  const name = document.activeElement.getAttribute("aria-label") ?? labels?.[0]?.textContent ?? textContent;
  return `${document.activeElement.getAttribute("role") ?? tagName.toLowerCase()} ${name.trim()}`;
}"""


def press(page: "Page", keys: str, leads_to: str = "") -> None:
    """Press keys one after the other; wait until what begins with these words, a role and a name, has the focus."""
    for key in keys.split():
        page.keyboard.press(key)
    if leads_to:
        page.wait_for_function(f"words => ({FOCUSED})().startsWith(words)", arg=leads_to)


# --------------------------------------------------------------------------------------------- keyboard


@pytest.mark.soak
def test_the_list_of_tasks_and_the_tabs_by_keyboard(page: "Page", studio: StudioServer) -> None:
    for name in ("list-a", "list-b", "list-c"):
        studio.ask(f"hello {name}", task_id=name)
    sign_in(page, studio)
    expect(page.locator(".task-item").first).to_contain_text("list-c")
    page.get_by_label("Status").focus()
    press(page, "Tab", "select Changed")
    press(page, "Tab", "a hello list-c")
    press(page, "ArrowDown ArrowDown", "a hello list-a")
    press(page, "ArrowUp", "a hello list-b")
    press(page, "Enter")
    expect(page.locator(".task-title")).to_have_text("hello list-b")
    press(page, "Tab", "button Share this task")  # one stop for the whole list
    press(page, "Tab", "button Details and usage")
    press(page, "Enter", "button Close")
    press(page, "Escape", "button Details and usage")
    press(page, "Tab", "tab Conversation")
    press(page, "ArrowRight", "tab Trace")
    press(page, "ArrowRight", "tab Graph")
    press(page, "Home", "tab Conversation")
    expect(page.get_by_role("tab", name="Conversation")).to_have_attribute("aria-selected", "true")
    press(page, "Tab", "region Conversation")


@pytest.mark.soak
def test_an_approval_by_keyboard(page: "Page", studio: StudioServer) -> None:
    studio.ask("pay 3", task_id="keys-pay")
    sign_in(page, studio, fragment="#task=keys-pay")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    page.get_by_role("button", name="Approve").focus()
    press(page, "Tab", "button Edit")
    press(page, "Enter", "input to")
    press(page, "Escape", "button Edit")  # back, where it was
    press(page, "Tab", "button Reject")
    press(page, "Enter", "input Reason, for the agent to read")
    press(page, "Tab Tab", "button Back")
    press(page, "Enter", "button Reject")
    press(page, "Shift+Tab Shift+Tab", "button Approve")
    press(page, "Enter", "group pay needs your approval")  # it asks once more
    expect(page.locator(".answered")).to_contain_text("approved by ann")


@pytest.mark.soak
def test_the_trace_by_keyboard(page: "Page", studio: StudioServer) -> None:
    studio.ask("pay 3", task_id="keys-trace")
    page.set_viewport_size({"width": 900, "height": 800})
    sign_in(page, studio, fragment="#task=keys-trace&tab=trace")
    rows = page.get_by_role("listbox")
    rows.focus()
    press(page, "ArrowDown")
    press(page, "ArrowDown")
    expect(page.locator(".list-row.current")).to_contain_text("supervisor")
    press(page, "Enter")
    sheet = page.locator(".inspector")
    expect(sheet).to_be_focused()  # it covers the rows
    press(page, "Tab", "button Close the details")
    press(page, "Tab", "group Details")
    press(page, "Escape")
    expect(sheet).to_have_count(0)
    expect(rows).to_be_focused()

    page.get_by_label("Search the trace").fill("pay")
    expect(page.get_by_role("button", name="Clear")).to_be_visible()
    press(page, "Tab Tab Tab", "button Clear")
    press(page, "Enter", "input Search the trace")  # the button is gone

    slider = page.get_by_role("slider", name="Moment")
    slider.focus()
    press(page, "ArrowLeft")
    expect(page.get_by_role("button", name="Show this moment")).to_be_visible()
    press(page, "Enter")
    expect(page.get_by_text("As of entry")).to_be_visible()
    expect(slider).to_be_focused()
    page.get_by_role("button", name="Back to now").focus()
    press(page, "Enter")
    expect(page.get_by_text("As of entry")).to_have_count(0)
    expect(slider).to_be_focused()


@pytest.mark.soak
def test_a_task_is_cancelled_by_keyboard(page: "Page", studio: StudioServer) -> None:
    studio.ask("ask may I?", task_id="keys-cancel")
    sign_in(page, studio, fragment="#task=keys-cancel")
    page.get_by_role("button", name="Cancel the task").focus()
    press(page, "Enter")
    expect(status_of(page)).to_have_text("cancelled")
    page.wait_for_function("document.activeElement !== document.body")  # the button is gone


# -------------------------------------------------------------------------------------------- the trace


@pytest.mark.soak
def test_on_a_narrow_screen_a_row_of_the_trace_has_two_lines(
    page: "Page", studio: StudioServer, axe: str, shoot: Shoot
) -> None:
    studio.ask("free", task_id="narrow")
    page.set_viewport_size({"width": 390, "height": 800})
    sign_in(page, studio, fragment="#task=narrow&tab=trace")
    turn = page.locator(".span-row.turn").first
    expect(turn).to_be_visible()
    name, took, bar = (
        turn.locator(part).bounding_box() for part in (".span-name", ".span-took", ".span-track")
    )
    assert name["y"] + name["height"] <= bar["y"] + 1
    assert bar["width"] > 300
    assert took["width"] > 20
    assert turn.locator(".span-took").inner_text().strip() != ""
    assert violations(page, axe) == []
    shoot("trace-narrow")


@pytest.mark.soak
def test_the_details_of_a_turn_say_when_the_swarm_was_replaced_since(
    page: "Page", studio: StudioServer
) -> None:
    studio.ask("hello", task_id="replaced")

    def replaced(route: "Route") -> None:
        answer = route.fetch()
        turn = answer.json()
        turn["setup"] |= {"is_present": False, "code": "abc123"}
        route.fulfill(response=answer, body=json.dumps(turn))

    page.route("**/task/turn?*", replaced)
    sign_in(page, studio, fragment="#task=replaced&tab=trace")
    page.locator(".span-row.turn").first.click()
    expect(page.locator(".message-role").first).to_have_text("Reply")  # it has no model
    page.get_by_role("tab", name="Setup").click()
    expect(page.locator(".inspector")).to_contain_text(
        "of the swarm, code abc123, which has been replaced since."
    )


# --------------------------------------------------------------------------------------------- an agent


@pytest.mark.soak
def test_an_agents_tools_of_mcp_servers_and_what_it_is_for(
    page: "Page", files: StudioServer, axe: str, shoot: Shoot
) -> None:
    sign_in(page, files, "admin", fragment="#swarm")
    expect(page.locator(".node[data-id=worker]")).to_contain_text("files_read")
    page.get_by_role("button", name="worker", exact=False).first.click()
    panel = page.locator(".agent-panel")
    expect(panel.get_by_text("From the MCP server files:")).to_be_visible()
    expect(panel.get_by_text("files_read")).to_be_visible()
    expect(panel.locator(".agent-about")).to_have_text("You dig for gold.")
    assert violations(page, axe) == []
    shoot("agent-mcp")


# ----------------------------------------------------------------------------------------------- admins


def test_an_admin_stops_and_measures_anothers_task_by_keyboard(
    page: "Page", studio: StudioServer, axe: str, shoot: Shoot
) -> None:
    studio.ask("ask a secret question?", task_id="runaway")
    sign_in(page, studio, "admin")
    page.get_by_role("link", name="All tasks").focus()
    press(page, "Enter")
    row = page.get_by_role("row").filter(has_text="runaway")
    row.get_by_role("button", name="Turns of").focus()
    press(page, "Enter")
    turns = page.get_by_role("table", name="Turns").get_by_role("row")
    expect(turns).to_have_count(2)
    expect(turns.nth(1)).to_contain_text("supervisor")
    assert violations(page, axe) == []
    shoot("admin-turns")
    press(page, "Escape", "button Turns of ask a secret")
    press(page, "Tab", "button Read ask a secret")
    press(page, "Tab", "button Cancel ask a secret")
    press(page, "Enter")
    page.get_by_role("button", name="Cancel the task").focus()
    press(page, "Enter")
    expect(page.get_by_text("is cancelled.")).to_be_visible()
    expect(row).to_contain_text("cancelled")
