"""The page while agents are at work: what arrives live, and what a language model adds."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from support.http_server import TIMEOUT, HTTPServer

from mail.core.task.swarm import SwarmCore
from mail.core.task.usage import Usage, report_usage
from mail.testing.agents import Call, View, build_agent, build_swarm, complete, request, respond, wait

if TYPE_CHECKING:
    from playwright.sync_api import Page

SPENT = Usage(calls=1, input_tokens=1200, output_tokens=34, reasoning_tokens=20, cost=0.0123)
REASONING = "The worker knows <b>this</b> better."


class Thread:
    """A server on an event loop of its own, as playwright's synchronous API occupies this one."""

    def __init__(self, swarm: Callable[[asyncio.Event], SwarmCore]) -> None:
        self._swarm = swarm
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over, self._gate = asyncio.Event(), asyncio.Event()
        try:
            async with HTTPServer(self._swarm(self._gate)) as server:
                self.url, self.tokens = server.uvicorn.url, server.keys
                self._ready.set()
                await self._over.wait()
        finally:
            self._ready.set()

    def release(self) -> None:
        """Let the worker go on."""
        self._loop.call_soon_threadsafe(self._gate.set)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(TIMEOUT)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(TIMEOUT)


def swarm(gate: asyncio.Event) -> SwarmCore:
    """A supervisor that says why it asks, a worker that waits for the gate, and a target in another swarm."""

    def supervise(view: View) -> list[Call]:
        if view.mail.sender_type == "agent":
            return [complete(view.mail.body)]
        report_usage(SPENT, "gpt-5-mini")
        ask = request("worker", "dig")._replace(reasoning=[REASONING], preamble="I ask the worker.")
        return [ask, wait("for the worker")]

    async def work(view: View) -> list[Call]:
        await gate.wait()
        return [respond("supervisor", "dug")]

    return build_swarm(
        {
            "supervisor": build_agent(
                supervise,
                targets=["worker", "sage@far"],
                supervises=True,
                name="supervisor",
                enable_interswarm=True,
            ),
            "worker": work,
        }
    )


@pytest.fixture
def shown(page: "Page"):
    with Thread(swarm) as server:
        page.goto(f"{server.url}/ui")
        page.get_by_label("Token").fill(server.tokens["user"])
        page.keyboard.press("Enter")
        page.get_by_label("Message", exact=True).fill("find gold")
        page.get_by_role("button", name="Send", exact=True).click()
        yield server
        page.goto("about:blank")  # no stream is left that the server would wait for


def test_it_is_live(page: "Page", shown: Thread, shoot: Callable[[str], Path]) -> None:
    from playwright.sync_api import expect

    lines = page.locator("#timeline > li")
    expect(lines.filter(has_text="supervisor → worker")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("● live")
    expect(page.locator("#task-status")).to_have_text("running")
    expect(page.locator("#tasks .running")).to_be_visible()
    expect(page.locator(".node.remote title")).to_have_text("sage@far")
    expect(page.locator("#working")).to_contain_text("worker, ")
    assert "dug" not in page.locator("#timeline").inner_text()
    shoot("live")

    shown.release()
    expect(page.locator("#task-status")).to_have_text("completed")
    expect(lines.last).to_contain_text("dug")
    expect(page.locator("#connection")).to_be_empty()
    expect(page.locator("#working")).to_be_hidden()
    expect(page.locator("#tasks .running")).to_have_count(0)


def test_reasoning_and_usage(page: "Page", shown: Thread, shoot: Callable[[str], Path]) -> None:
    from playwright.sync_api import expect

    shown.release()
    expect(page.locator("#task-status")).to_have_text("completed")
    call = page.locator("#timeline > li", has_text="send_request").first
    reasoning = call.locator("details", has_text="Reasoning")
    expect(reasoning.locator("pre")).not_to_be_visible()
    reasoning.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(reasoning.locator("pre")).to_have_text(REASONING)
    page.get_by_role("button", name="Reasoning: see the earlier call").click()
    assert page.evaluate("document.activeElement.textContent").count(REASONING) == 1

    expect(page.locator("#timeline")).to_contain_text("1200 tokens in, 34 out, $0.0123")
    page.locator("#usage summary").click()
    row = page.get_by_role("row", name="supervisor")
    expect(row.locator("td")).to_have_text(["1", "1200", "0", "34", "20", "0.0123"])
    model = page.get_by_role("row", name="gpt-5-mini")
    expect(model.locator("td")).to_have_text(["1", "1200", "0", "34", "20", "0.0123"])
    shoot("reasoning-and-usage")


def test_a_server_that_is_gone_is_said(page: "Page", shown: Thread) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#connection")).to_have_text("● live")
    page.context.set_offline(True)
    page.get_by_role("button", name="Refresh").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.context.set_offline(False)
    page.get_by_role("button", name="Refresh").click()
    expect(page.get_by_role("alert")).not_to_be_visible()
    shown.release()
    expect(page.locator("#task-status")).to_have_text("completed")
    page.wrong.clear()  # Chromium reports each request that failed
