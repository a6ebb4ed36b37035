"""A swarm whose turns take time, for the tests of the trace: models and actions with durations, tokens and
reasoning.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

from support.processes.http_server import TIMEOUT, HTTPServer

from mail.core.task.activity import model_call
from mail.core.task.swarm import SwarmCore
from mail.core.task.usage import Usage
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, request, respond, wait

REASONING = "The worker knows <b>this</b> better."
PACE = 0.02


async def think(model: str, tokens: int, **usage: Any) -> None:
    """Call a model that takes a moment."""
    with model_call(model) as calling:
        await asyncio.sleep(PACE * 3)
        calling.report(Usage(calls=1, input_tokens=tokens, output_tokens=34, **usage))


async def dig(arguments: dict[str, Any]) -> str:
    await asyncio.sleep(PACE * 2)
    if arguments.get("where") == "nowhere":
        raise ValueError("there is nothing to dig")
    return f"gold in {arguments.get('where', 'the hills')}"


class TraceServer:
    """A server on an event loop of its own, as playwright's synchronous API occupies this one.

    `gate` holds the worker.
    """

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._over, self.gate = asyncio.Event(), asyncio.Event()
        try:
            async with HTTPServer(self._swarm()) as self.server:
                self.url, self.tokens = self.server.uvicorn.url, self.server.keys
                self._ready.set()
                while not self._over.is_set():
                    await self.server.uvicorn.on_tick(0)  # the page reads the clock in the header Date
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._over.wait(), 1)
        finally:
            self._ready.set()

    def _swarm(self) -> SwarmCore:
        async def supervise(view: View) -> Sequence[Call]:
            if "break" in view.mail.body:
                raise RuntimeError("the map is lost")
            if view.mail.sender_type == "system":
                return [complete("We could not dig.")]
            if view.mail.sender_type == "agent":
                await think("openai/gpt-5", 2_400, cost=0.0321)
                return [complete(f"We found: **{view.mail.body}**")]
            await think("openai/gpt-5", 1_200, reasoning_tokens=20, cost=0.0123)
            ask = request("worker", view.mail.body)._replace(
                reasoning=[REASONING], preamble="I ask the worker."
            )
            return [ask, wait("for the worker")]

        async def work(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "system":
                return [respond("supervisor", view.mail.body)]
            if "wait" in view.mail.body:
                await self.gate.wait()
            await think("ollama_chat/qwen3", 800, unpriced_calls=1)
            if "fail" in view.mail.body:
                raise RuntimeError("the shovel is broken")
            return [call("dig", where="nowhere" if "nowhere" in view.mail.body else "the hills")]

        return build_swarm(
            {
                "supervisor": build_agent(supervise, targets=["worker"], supervises=True, name="supervisor"),
                "worker": build_agent(work, targets=["supervisor"], actions=["dig"], name="worker"),
            },
            actions={"dig": dig},
        )

    def ask(self, role: str = "user", **fields: Any) -> dict[str, Any]:
        """Send a message and return the answer; with `wait=False` return at once."""
        headers = self.server.headers(role)
        if not fields.pop("wait", True):
            headers["Prefer"] = "respond-async"
        work = self.server.client.post("/message", json=fields, headers=headers)
        answer: dict[str, Any] = asyncio.run_coroutine_threadsafe(work, self.loop).result(TIMEOUT).json()
        return answer

    def release(self) -> None:
        """Let the worker go on."""
        self.loop.call_soon_threadsafe(self.gate.set)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(TIMEOUT)
        return self

    def __exit__(self, *_error: object) -> None:
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(TIMEOUT)
