"""The tab Trace of a task, and the time-travel bar, in Chromium."""

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_core import from_json, to_json
from studio_page import enter, expect
from studio_server import StudioServer
from support.plugins.tiers import sized
from trace_swarm import REASONING, trace_swarm

from mail.core.decisions.conversation import Conversation
from mail.core.task.events import Event, EventKind, read_extra

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

ROWS = ".list-row"


@pytest.fixture(scope="module")
def swarm() -> Iterator[StudioServer]:
    with StudioServer(trace_swarm) as server:
        yield server


@pytest.fixture
def trace(page: "Page", swarm: StudioServer) -> Iterator[Callable[..., None]]:
    """Opens the trace of a task, for a role."""

    def open_trace(task: str, *, role: str = "user", more: str = "") -> None:
        enter(page, swarm, role, f"task={task}&tab=trace{more}")

    yield open_trace
    page.goto("about:blank")  # no stream is left that the server would wait for


def test_the_waterfall_and_its_inspector(
    page: "Page", swarm: StudioServer, trace: Callable[..., None], shoot: Callable[[str], None]
) -> None:
    swarm.ask("find gold", role="admin", task_id="gold")
    trace("gold", role="admin")
    names = page.locator(".span-row .span-what")
    expect(names).to_have_text(
        [
            "root writes to supervisor",
            "asks worker",
            "waits for worker",
            "calls dig",
            "dig",
            "answers supervisor",
            "completes the task",
            "the answer",
        ]
    )
    asks = page.get_by_role("option", name="asks worker")
    expect(asks).to_contain_text("openai/gpt-5")  # its only model call, with the same tokens and cost
    expect(asks).to_contain_text("1.2k → 34")
    expect(asks).to_contain_text("$0.012")
    expect(page.get_by_role("option", name="calls dig")).to_contain_text("unknown")

    rows = page.get_by_role("listbox", name="Waterfall")
    rows.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(asks).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("complementary", name="supervisor asks worker")).to_have_count(0)
    page.keyboard.press("Enter")
    details = page.get_by_role("complementary", name="supervisor asks worker")
    expect(details).to_contain_text(REASONING)
    expect(details).to_contain_text("send_request")
    expect(details).to_contain_text("1,200 in, 34 out (20 reasoning)")
    details.get_by_role("tab", name="Read").click()
    expect(details.locator(".message")).to_have_count(1)
    letter = details.locator(".letter")
    expect(letter).to_contain_text(re.compile(r"root\s*→\s*supervisor"))
    expect(letter.locator(".markdown")).to_have_text("find gold")
    expect(letter.get_by_text("<body>find gold</body>")).to_be_hidden()
    letter.get_by_text("XML").click()
    expect(letter.get_by_text("<body>find gold</body>")).to_be_visible()
    details.get_by_role("tab", name="Setup").click()
    expect(details).to_contain_text("System prompt")
    shoot("trace-inspector")
    page.keyboard.press("Escape")
    expect(details).to_have_count(0)

    page.get_by_label("Search the trace").fill("hills")
    page.get_by_label("Kind").select_option("Actions")
    expect(names).to_have_text(["calls dig", "dig"])
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Tree").click()
    nodes = page.get_by_role("treeitem")
    expect(nodes.nth(1)).to_have_accessible_name(
        re.compile("^Entry 5 ?: supervisor asks worker ?, find gold")
    )
    expect(nodes.nth(2)).to_have_attribute("aria-level", "3")
    page.get_by_role("tree").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(nodes).to_have_count(1)  # the first message, and what it led to
    expect(nodes.first).to_have_attribute("aria-expanded", "false")


@pytest.mark.soak
def test_a_long_history_is_read_up_to_what_the_server_returns(
    page: "Page", swarm: StudioServer, trace: Callable[..., None]
) -> None:
    swarm.ask("find gold", task_id="long")
    asked: list[int] = []

    def lengthen(route: "Route") -> None:
        asked.append(int(route.request.url.rpartition("limit=")[2]))
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | {"omitted": 5_000 - asked[-1]})

    page.route("**/task/turn?*", lengthen)
    trace("long")
    page.get_by_role("option", name="asks worker").click()
    page.get_by_role("tab", name="Read").click()
    more = page.get_by_role("button", name="Show more")
    for omitted in ("4,970", "4,670", "4,370", "4,070"):
        expect(page.get_by_text(f"{omitted} older entries")).to_be_visible()
        more.click()
    expect(page.get_by_text("4,000 older entries")).to_be_visible()
    expect(more).to_have_count(0)
    assert asked == [30, 330, 630, 930, 1000]


@pytest.mark.soak
def test_a_trace_grows_while_agents_work(
    page: "Page", swarm: StudioServer, trace: Callable[..., None], shoot: Callable[[str], None]
) -> None:
    swarm.ask("please wait", task_id="live", wait=False)
    trace("live")
    running = page.get_by_role("option", name="worker is working")
    expect(running).to_contain_text("is working")
    first = running.locator(".span-took").inner_text()
    expect(running.locator(".span-took")).not_to_have_text(first)
    shoot("trace-live")
    swarm.step()
    expect(page.get_by_role("option", name="the answer")).to_be_visible()
    expect(running).to_have_count(0)


@pytest.mark.soak
def test_time_travel(
    page: "Page", swarm: StudioServer, trace: Callable[..., None], shoot: Callable[[str], None]
) -> None:
    swarm.ask("find gold", task_id="past")
    trace("past")
    bar = page.get_by_role("region", name="Time travel")
    slider = bar.get_by_role("slider", name="Moment")
    expect(bar).to_contain_text("Entry 15 of 15")
    slider.focus()
    page.keyboard.press("Home")
    expect(bar).to_contain_text("Entry 1 of 15")
    bar.get_by_role("button", name="Show this moment").click()
    expect(bar).to_contain_text("As of entry 1")
    expect(bar).to_contain_text("1 message waits")
    expect(page.locator(".list-row.later")).to_have_count(7)
    assert page.url.endswith("at=1")

    bar.get_by_role("button", name="Fork from here…").click()
    dialog = page.get_by_role("dialog", name="Fork from entry 1")
    expect(dialog.get_by_label("Message", exact=True)).to_have_value("find gold")
    dialog.get_by_label("Run again").check()
    actions = dialog.get_by_label("Actions that are not read-only")
    expect(actions).to_have_value("ask")
    shoot("fork-dialog")
    actions.select_option("run")
    dialog.get_by_role("button", name="Create fork").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("option", name="the answer")).to_be_visible()
    assert "task=past" not in page.url
    bar.get_by_role("button", name="Compare with the original").click()
    expect(page.locator(".compare-words")).to_contain_text("They don't differ.")

    trace("past", more="&at=1")
    bar.get_by_role("button", name="Fork from here…").click()
    page.get_by_role("dialog").get_by_label("Message", exact=True).fill("find copper")
    page.get_by_role("button", name="Create fork").click()
    expect(page.get_by_role("option", name="the answer")).to_be_visible()
    bar.get_by_role("button", name="Compare with the original").click()
    expect(page.locator(".compare-words")).to_contain_text("The first message was edited")

    trace("past", more="&at=5")
    bar.get_by_role("button", name="Fork from here…").click()
    dialog = page.get_by_role("dialog", name="Fork from entry 5")
    dialog.get_by_label("Message", exact=True).fill("find silver")
    dialog.get_by_label("Actions that are not read-only").select_option("run")
    dialog.get_by_role("button", name="Create fork").click()
    expect(page.get_by_role("option", name="the answer")).to_be_visible()
    bar.get_by_role("button", name="Compare with the original").click()
    expect(page.locator(".compare-words")).to_contain_text("They part at")
    expect(page.locator(".pair.parts")).to_have_count(1)
    shoot("trace-compare")


def test_a_message_is_edited_and_an_answer_made_again_where_they_are(
    page: "Page", swarm: StudioServer, shoot: Callable[[str], None]
) -> None:
    swarm.ask("find gold", task_id="edited")
    enter(page, swarm, "user", "task=edited")
    expect(page.get_by_role("button", name="Answer again, in a fork")).to_be_visible()
    shoot("edit-and-again")
    page.get_by_role("button", name="Edit this message").click()
    dialog = page.get_by_role("dialog", name="Fork from entry 1")
    dialog.get_by_label("Message", exact=True).fill("find silver")
    dialog.get_by_role("button", name="Create fork").click()
    mine = page.get_by_role("article", name="Message from you")
    expect(mine).to_contain_text("find silver")
    expect(page.get_by_role("article", name="Answer", exact=True)).to_contain_text("gold in the hills")
    assert "task=edited" not in page.url
    again = page.get_by_role("button", name="Answer again, in a fork")
    again.click()
    expect(page.get_by_text("Continues another task from its entry")).to_be_visible()
    page.goto("about:blank")


@pytest.mark.soak
def test_costs_stay_on_a_small_laptop(
    page: "Page", swarm: StudioServer, shoot: Callable[[str], None]
) -> None:
    swarm.ask("find gold", task_id="cost")
    page.set_viewport_size({"width": 1024, "height": 768})
    enter(page, swarm, "user", "task=cost&tab=trace")
    row = page.get_by_role("option", name="asks worker")
    expect(row.locator(".span-price")).to_contain_text("$0.012")
    expect(row.locator(".span-price")).to_be_visible()
    note = page.locator('[data-task="cost"] .fact-note')
    expect(note).to_contain_text("$0.044")
    assert note.evaluate("(it) => it.scrollWidth <= it.clientWidth"), "the cost is cut"
    shoot("trace-1024")
    page.goto("about:blank")


@pytest.mark.soak
def test_a_failed_task_runs_again(page: "Page", swarm: StudioServer, trace: Callable[..., None]) -> None:
    swarm.ask("please break", task_id="broken")
    trace("broken")
    bar = page.get_by_role("region", name="Time travel")
    failed = page.locator(".span-row.turn.failed")
    expect(failed).to_have_count(1)
    bar.get_by_role("button", name="Redrive dead letter").click()
    expect(failed).to_have_count(2)

    bar.get_by_role("button", name="Run again from entry").click()
    expect(bar).to_contain_text("Compare with the original")
    expect(failed).to_have_count(1)
    assert "task=broken" not in page.url


@pytest.mark.soak
def test_axe_finds_nothing(
    page: "Page", swarm: StudioServer, trace: Callable[..., None], inspect: Callable[[str], None]
) -> None:
    trace(swarm.ask("find nowhere"), more="&at=5")
    bar = page.get_by_role("region", name="Time travel")
    steps: dict[str, Callable[[], object]] = {
        "waterfall": lambda: bar.get_by_text("As of entry 5").wait_for(),
        "tree": lambda: page.get_by_role("button", name="Tree").click(),
        "entries": lambda: page.get_by_role("button", name="Entries").click(),
        "details": lambda: (
            page.get_by_role("option", name="Entry 6").click(),
            page.get_by_role("button", name="Show the turn of").click(),
            page.get_by_role("tab", name="Setup").click(),
            page.locator(".tools").wait_for(),
        ),
        "fork": page.get_by_role("button", name="Fork from here…").first.click,
        "compare": lambda: (
            page.get_by_label("Pause").check(),
            page.get_by_role("button", name="Create fork").click(),
            page.get_by_role("button", name="Compare with the original").click(),
            page.locator(".compare-words").wait_for(),
        ),
    }
    for name, step in steps.items():
        step()
        inspect(name)


LONG = sized(fast=3_000, full=3_000, soak=10_000)


def long_task(page: "Page") -> None:
    """Let the server's answer about a task be one of `LONG` events."""
    stamp = "2026-01-01T00:{:02}:{:02}.{:03}+00:00"

    def event(n: int) -> Event:
        turn, part = divmod(n - 1, 4)
        extra: dict[str, Any] = {"agent": f"agent-{turn % 7}"}
        if part == 0:
            extra |= {"tool_name": "dig", "tool_args": {"hole": turn}, "tool_call_id": str(n)}
        ms = turn * 100
        time = stamp.format(ms // 60_000 % 60, ms // 1000 % 60, ms % 1000)
        kind = EventKind(("tool_call", "action_call", "action_complete", "await_message")[part])
        return Event(n, kind, time, f"agent did number {n}", read_extra(kind, extra))

    def record_of(event: Event) -> dict[str, Any]:
        data = json.dumps(event.data("long"))
        return {"event": event.kind, "id": str(event.seq), "data": data, "retry": None, "comment": None}

    reader = Conversation()
    events = [event(n) for n in range(1, LONG + 1)]
    items = [from_json(to_json(reader.read(event))) for event in events]

    def answer(route: "Route") -> None:
        response = route.fetch()
        record = response.json()
        after = int(route.request.url.partition("after=")[2].partition("&")[0] or 0)
        last = min(LONG, after + 1000)
        record |= {"seq": LONG, "events": [record_of(event) for event in events[after:last]]}
        record["items"] = [item for changes in items[after:last] for item in changes]
        headers = {"X-Next-Cursor": str(last)} if last < LONG else {}
        route.fulfill(status=200, headers={"Content-Type": "application/json", **headers}, json=record)

    page.route("**/task?*", answer)
    page.route("**/task/stream*", lambda route: route.fulfill(status=204))


@pytest.mark.soak
def test_thousands_of_entries_scroll(
    page: "Page", swarm: StudioServer, trace: Callable[..., None], shoot: Callable[[str], None]
) -> None:
    swarm.ask("find gold", task_id="long")
    long_task(page)
    trace("long")
    expect(page.get_by_role("listbox", name=f"Waterfall, {LONG // 2} rows")).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="Entries").click()
    rows = page.get_by_role("listbox", name=f"Entries, {LONG} rows")
    expect(page.locator(ROWS).first).to_be_visible()
    expect(page.locator(".entry .entry-text").first).to_have_css("white-space", "nowrap")
    assert page.locator(ROWS).count() < 80
    rows.focus()
    page.keyboard.press("End")
    expect(page.get_by_role("option", name=f"Entry {LONG}")).to_be_visible()
    assert page.locator(ROWS).count() < 80
    frames = page.evaluate(
        """async () => {
            const list = document.querySelector('.list-scroller');
            const times = [];
            for (let n = 0; n < 40; n += 1) {
                list.scrollTop = (n * 7001) % list.scrollHeight;
                const begin = performance.now();
                await new Promise(requestAnimationFrame);
                await new Promise(requestAnimationFrame);
                times.push(performance.now() - begin);
            }
            return times.sort((a, b) => a - b);
        }"""
    )
    print(f"two frames of a jump: median {frames[20]:.0f} ms, slowest {frames[-1]:.0f} ms")
    assert page.locator(ROWS).count() < 80
    assert page.locator(ROWS).first.is_visible()
    page.get_by_label("Search the trace").fill(f"number {LONG - 1}")
    expect(page.locator(ROWS)).to_have_count(1)
    shoot("trace-long")
