"""A server for tests of the studio: scripted agents that do what a message asks, among them a model that streams."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from page_server import PageServer
from support.processes.http_server import HTTPServer

from mail.core.task.activity import model_call
from mail.core.task.callbacks import LATER, Later
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.usage import Usage
from mail.core.turns.context import current_context
from mail.net import SwarmRegistry
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, request, respond, wait

MODEL = "openai/gpt-5-mini"
PRICED = Usage(calls=1, input_tokens=1200, output_tokens=34, reasoning_tokens=20, cost=0.0123)
UNPRICED = Usage(calls=1, input_tokens=800, output_tokens=90, unpriced_calls=1)

MARKDOWN = """## Two cities

Tokyo is **rainy**, Oslo is *dry*. See [the forecast](https://example.com/weather), not [this](javascript:alert(1)).

| City | °C | Sky |
| --- | ---: | --- |
| Tokyo | 6 | rain |
| Oslo | -2 | sun |

1. Take an umbrella.
2. Or stay in:
   - read
   - `print("hello")`

```python
def warm(celsius: float) -> bool:
    return celsius > 18
```

> Weather is what you get. <b>Climate</b> is what you expect.
"""

PIECES = ("Gold was found ", "in **three** places: ", "the river, the hill, ", "and the cellar.")


class Gate:
    """Lets the model of the worker go on, one step at each `open`."""

    def __init__(self) -> None:
        self._steps = asyncio.Semaphore(0)

    async def step(self) -> None:
        """Wait for the next step."""
        await self._steps.acquire()

    def open(self, steps: int) -> None:
        """Allow steps."""
        for _ in range(steps):
            self._steps.release()


def finished_actions(view: View) -> list[str]:
    """Return what the agent has read of actions that finished later."""
    return [letter.body for letter in view.messages if letter.subject == "::action_complete::"]


callbacks: list[str] = []
"""The tokens of the calls of `render`, the newest last."""


def studio_swarm(gate: Gate) -> SwarmCore:
    """Return a swarm whose supervisor acts on the first word of a message."""

    async def ask_worker(view: View) -> list[Call]:
        with model_call(MODEL) as called:
            called.report(PRICED)
        ask = request("worker", "Dig for gold.", subject="Gold")
        return [ask._replace(reasoning=["The worker knows <b>this</b> better."]), wait("the worker digs")]

    async def say(*pieces: str) -> list[Call]:
        """Write plain text, as models do that don't call tools."""
        with model_call(MODEL) as called:
            for piece in pieces:
                await gate.step()
                called.delta("text", piece)
            await gate.step()
            called.report(PRICED)
        return [call("text_output", content="".join(pieces))]

    async def tell(text: str) -> list[Call]:
        with model_call(MODEL) as called:
            for piece in PIECES:
                called.delta("answer", piece)
                await gate.step()
            called.report(PRICED)
        return [complete(text)]

    async def supervise(view: View) -> list[Call]:
        if view.mail.sender_type == "agent" and view.mail.subject == "Re: Places":
            return await say(
                "## Gold\n\n",
                "It lies in **three** places:\n\n",
                "- the river\n- the hill\n",
                "- the cellar\n",
            )
        if view.mail.sender_type == "agent":
            return await tell("".join(PIECES))
        if view.mail.subject == "::action_complete::":
            return [complete(view.mail.body)]
        if view.mail.subject == "::action_error::":
            return [call("render", title="sound"), call("render", title="light")]
        if view.mail.sender_type == "system" and (finished := finished_actions(view)):
            return [complete(finished[-1])]  # once more, as calls were still open
        if view.mail.sender_type == "system":
            return [complete("\n".join(result for result in view.results if "message sent" not in result))]
        match view.mail.body.split()[0].lower():
            case "dig":
                return await ask_worker(view)
            case "plainly":
                return [request("worker", "Say where.", subject="Places"), wait("the worker")]
            case "markdown":
                return [complete(MARKDOWN)]
            case "render":
                return [call("render", title="waves")]
            case "free":
                with model_call("local/llama") as called:
                    called.report(UNPRICED)
                return [complete("Done for an unknown price.")]
            case "ask":
                return [call("ask_human", question=view.mail.body.partition(" ")[2])]
            case "pay":
                amounts = view.mail.body.split()[1:]
                return [
                    call("pay", to="bob", amount=int(amount), note="for the *roof*") for amount in amounts
                ]
            case "json":
                return [call("task_complete", output={"cities": [{"name": "Tokyo", "celsius": 6}]})]
            case "show":
                files = view.history[-1].get("files", [])
                return [complete(" ".join(["Shown:", *(f"file:{each['id']}" for each in files)]))]
            case "fail":
                raise RuntimeError("the model's provider refused the key")
            case "long":
                return [
                    complete("\n\n".join(f"Paragraph {n}. " + "Words follow words. " * 12 for n in range(30)))
                ]
            case _:
                return [complete(f"You said: {view.mail.body}")]

    async def work(view: View) -> list[Call]:
        if view.mail.subject == "Places":
            return await say("**The river**, ", "the hill and ", "the cellar.")
        with model_call(MODEL) as called:
            await gate.step()
            called.report(PRICED)
        return [respond("supervisor", "Dug.", subject="Re: Gold")]

    async def render(_arguments: dict[str, object]) -> Later:
        callbacks.append(current_context().callback.token)
        return LATER

    async def pay(arguments: dict[str, object]) -> str:
        return f"paid {arguments['amount']} to {arguments['to']}"

    payment = ActionCore(
        "pay",
        pay,
        "Pay somebody.",
        {
            "type": "object",
            "properties": {
                "to": {"type": "string"},
                "amount": {"type": "integer"},
                "note": {"type": "string"},
            },
            "required": ["to", "amount"],
            "additionalProperties": False,
        },
        needs_approval=True,
    )
    question = ActionCore("ask_human", pay, "Ask the user a question.")
    film = ActionCore("render", render, "Render a film.", finish_within=7200.0)
    actions = {"pay": payment, "ask_human": question, "render": film}
    return build_swarm(
        {
            "supervisor": build_agent(
                supervise,
                targets=["worker", "sage@far"],
                actions=list(actions),
                supervises=True,
                name="supervisor",
                enable_interswarm=True,
            ),
            "worker": build_agent(work, targets=["supervisor"], name="worker"),
        },
        actions=actions,
        breakpoint_tools=frozenset({"ask_human"}),
    )


class StudioServer(PageServer):
    """Serves a swarm, with a registry of other swarms if there is one. Tests let its models go on with `step`."""

    def __init__(
        self, swarm: Callable[[Gate], SwarmCore] = studio_swarm, registry: SwarmRegistry | None = None
    ) -> None:
        self._swarm, self._registry = swarm, registry

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self._gate = Gate()
        async with HTTPServer(self._swarm(self._gate), registry=self._registry) as server:
            self.url, self.tokens = server.uvicorn.url, server.keys
            clock = asyncio.create_task(tick(server))
            yield
            clock.cancel()
            if self._registry is not None:
                await self._registry.stop()

    def step(self, steps: int = 1) -> None:
        """Let the models that wait, or the next ones, go on by this number of steps."""
        self.loop.call_soon_threadsafe(self._gate.open, steps)


async def tick(server: HTTPServer) -> None:
    """Keep the clock of the header Date, which the page reads."""
    while True:
        await server.uvicorn.on_tick(0)
        await asyncio.sleep(1)
