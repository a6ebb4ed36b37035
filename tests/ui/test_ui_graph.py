"""The graph of the swarm, in a real browser: what it shows, and how it is used with mouse and keyboard."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from studio_page import enter, expect
from studio_server import MODEL, Gate, StudioServer

from mail.core.task.swarm import SwarmCore
from mail.net import SwarmRegistry
from mail.testing.agents import build_agent, build_swarm, complete

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WORKERS = [f"{team}-{work}" for team in ("research", "sales", "law", "finance") for work in range(14)]
LONG = "quarterly-financial-report-summarizer"


def many(_gate: Gate) -> SwarmCore:
    """Return a swarm of 60 agents, which also writes to another swarm."""

    def agent(targets: list[str], **settings: bool):
        return build_agent(lambda _: [complete()], targets=targets, **settings)

    targets = [*WORKERS, LONG, "WWWWWW MMMMMM", "x", "sage@far", "oracle@far"]
    return build_swarm(
        {
            "supervisor": agent(targets, supervises=True, enable_interswarm=True),
            **{name: agent(["supervisor"]) for name in targets if "@" not in name},
        },
        name="crowd",
        description="A crowd of agents.",
        public=True,
    )


@pytest.fixture(scope="module")
def crowd() -> Iterator[StudioServer]:
    with StudioServer(many) as server:
        yield server


def show(page: "Page", server: StudioServer, fragment: str, role: str = "user") -> None:
    """Open a graph, and wait until it is drawn."""
    enter(page, server, role, fragment)
    page.locator(".node").first.wait_for()


def begin(page: "Page", server: StudioServer, body: str) -> None:
    """Open the graph of a new task."""
    show(page, server, f"task={server.ask(body, wait=False)}&tab=graph")


def node(page: "Page", name: str) -> "Locator":
    return page.locator(f'.node[data-id="{name}"]')


def scale(page: "Page") -> int:
    return int(page.locator(".graph-scale").inner_text().rstrip("%"))


def place(page: "Page", name: str) -> tuple[float, float]:
    box = node(page, name).bounding_box()
    return box["x"], box["y"]


@pytest.mark.soak
def test_names_of_sixty_agents_are_whole_and_fit(
    page: "Page", crowd: StudioServer, shoot: Callable[[str], None]
) -> None:
    show(page, crowd, "swarm")
    assert page.locator(".node").count() == 62
    assert "".join(node(page, LONG).locator(".node-name").all_text_contents()) == LONG
    too_wide = page.evaluate(
        """[...document.querySelectorAll(".node")].filter((node) => {
            const box = node.querySelector(".node-box").getBBox();
            return [...node.querySelectorAll("text")].some((text) => {
                const { x, width } = text.getBBox();
                return x < box.x + 6 || x + width > box.x + box.width - 2;
            });
        }).map((node) => node.dataset.id)"""
    )
    assert too_wide == []
    assert page.locator(".group").all_text_contents() == ["far"]
    shoot("graph-60")
    page.get_by_role("button", name="Show the whole graph").click()
    pane = page.locator(".graph-pane").bounding_box()
    for box in (page.locator(".node").nth(index).bounding_box() for index in (0, 30, 61)):
        assert pane["x"] <= box["x"] <= pane["x"] + pane["width"] - box["width"]
        assert pane["y"] <= box["y"] <= pane["y"] + pane["height"] - box["height"]


@pytest.mark.soak
def test_it_is_zoomed_and_moved_by_mouse_and_keyboard(page: "Page", studio: StudioServer) -> None:
    show(page, studio, "swarm")
    assert scale(page) == 100
    page.get_by_role("button", name="Zoom in").click()
    assert scale(page) == 125
    x, y = place(page, "worker")
    page.mouse.move(x + 5, y + 5)
    page.keyboard.down("Control")
    page.mouse.wheel(0, 100)
    page.keyboard.up("Control")
    page.wait_for_function("() => parseInt(document.querySelector('.graph-scale').textContent) < 100")
    # The point below the pointer stays there.
    assert place(page, "worker") == pytest.approx((x, y), abs=5)

    before = place(page, "worker")
    page.mouse.down()
    page.mouse.move(before[0] - 35, before[1] + 45, steps=4)
    page.mouse.up()
    after = place(page, "worker")
    assert (after[0] - before[0], after[1] - before[1]) == pytest.approx((-35, 45), abs=5)
    assert page.locator(".agent-panel").count() == 0, "a drag has opened an agent"

    page.locator(".graph-pane").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        f"() => document.querySelector('.node[data-id=worker]').getBoundingClientRect().x < {after[0] - 40}"
    )
    page.keyboard.press("0")
    page.wait_for_function("() => document.querySelector('.graph-scale').textContent === '100%'")


@pytest.mark.soak
def test_keys_lead_from_agent_to_agent(page: "Page", studio: StudioServer) -> None:
    show(page, studio, "swarm")
    assert [each.get_attribute("tabindex") for each in page.locator(".node").all()] == ["0", "-1", "-1"]
    page.locator(".graph-pane").focus()
    page.keyboard.press("Tab")
    expect(node(page, "supervisor")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(node(page, "worker")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(node(page, "sage@far")).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("svg").get_by_role("button", name="supervisor entrypoint")).to_be_focused()
    page.keyboard.press("Enter")
    panel = page.locator(".agent-panel")
    expect(panel).to_contain_text("completes tasks")
    expect(panel).to_contain_text("Pay somebody.")
    expect(panel.locator(".tools li", has_text="pay")).to_contain_text("needs approval")
    expect(panel.locator(".tools li", has_text="ask_human")).to_contain_text("pauses the task")
    panel.get_by_role("button", name="sage@far").click()
    expect(page.locator(".inspector h2")).to_have_text("sage@far")
    page.wait_for_function("() => document.activeElement.closest('.inspector')")  # the clicked button is gone
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)


def test_a_task_is_live(page: "Page", studio: StudioServer, shoot: Callable[[str], None]) -> None:
    begin(page, studio, "dig for gold")
    expect(page.locator(".node.is-working")).to_have_attribute("data-id", "worker")
    expect(node(page, "worker")).to_contain_text(MODEL.split("/")[1])
    expect(node(page, "worker").locator(".node-time")).to_have_text(re.compile(r"^\d+ s$"))
    expect(page.locator(".edge-count")).to_have_text(["1", "1"])
    expect(page.locator(".edge.is-last")).to_have_count(1)
    shoot("graph-live")
    studio.step(5)
    expect(page.locator(".edge-count")).to_have_text(["1⇄1", "1⇄1"])
    expect(page.locator(".edge.is-undeclared .edge-arrow")).to_have_count(2)  # the answer has come back
    expect(page.locator(".node.is-working")).to_have_count(0)

    node(page, "supervisor").click()
    panel = page.locator(".agent-panel")
    expect(panel).to_contain_text("2 received · 2 sent · 0 actions")
    expect(panel).to_contain_text("2 model calls · 2,400 tokens in · 68 out · $0.025")
    expect(panel.locator(".history > li").first).to_contain_text("From the caller · request")
    panel.get_by_text("Reasoning").click()
    expect(panel).to_contain_text("The worker knows <b>this</b> better.")
    panel.get_by_role("button", name="Entry 1 in the trace").click()
    page.wait_for_url("**&tab=trace&entry=1")


@pytest.mark.soak
def test_an_unknown_price_is_said_to_be_unknown(page: "Page", studio: StudioServer) -> None:
    begin(page, studio, "free of charge")
    node(page, "supervisor").click()
    expect(page.locator(".agent-panel")).to_contain_text("Price unknown")


def test_prompts_are_for_admins(page: "Page", studio: StudioServer) -> None:
    show(page, studio, "swarm=worker", role="admin")
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.locator(".agent-panel")).to_contain_text("None, or its function doesn't show it.")


@pytest.mark.soak
def test_other_swarms_are_shown_with_their_health(page: "Page", crowd: StudioServer) -> None:
    with StudioServer(registry=SwarmRegistry("example", "", allow_private=True)) as server:
        with server.client("admin") as admin:
            other = {"name": "crowd", "base_url": crowd.url}
            assert admin.post("/swarms", json=other).status_code == 200
        show(page, server, "swarm")
        swarms = page.locator(".other-swarms > li")
        expect(swarms).to_have_count(1)
        expect(swarms).to_contain_text("crowd")
        expect(swarms).to_contain_text("A crowd of agents.")
        expect(swarms.locator(".chip")).to_have_text("up")
        page.goto("about:blank")


@pytest.mark.soak
def test_axe_finds_nothing(page: "Page", studio: StudioServer, inspect: Callable[[str], None]) -> None:
    begin(page, studio, "free of charge")
    inspect("task")
    node(page, "supervisor").focus()
    page.keyboard.press("Enter")
    inspect("agent in a task")
    page.goto(f"{studio.url}/ui#swarm=supervisor")
    page.locator(".swarm-view .tools").wait_for()
    inspect("agent")
