"""Where the tests of `POST /responses` play: a server in debug mode, and OpenAI's SDK pointed at it."""

import asyncio
from typing import Any

import httpx2
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseFunctionToolCall
from support.processes.http_server import HTTPServer

from mail.core.task.swarm import SwarmCore
from mail.testing.agents import Call, Rule, View, build_swarm, complete

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Look up the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Bridge(HTTPServer):
    """Serves a swarm, or an agent that plays a policy, in debug mode."""

    def __init__(self, swarm: SwarmCore | Rule, **settings: Any) -> None:
        if not isinstance(swarm, SwarmCore):
            swarm = build_swarm({"supervisor": swarm})
        super().__init__(swarm, debug=True, **settings)

    def sdk(self, role: str = "user", path: str = "", key: str | None = None) -> AsyncOpenAI:
        """OpenAI's client, for a caller of this server; it is closed with it."""
        client = AsyncOpenAI(
            base_url=self.uvicorn.url + path, api_key=key or self.keys[role], max_retries=0, timeout=60.0
        )
        self._open.push_async_callback(client.close)
        return client

    async def respond(self, **fields: Any) -> httpx2.Response:
        """`POST /responses` with these fields, as they are."""
        return await self.client.post("/responses", json=fields)


class Slow:
    """An agent that answers once its gate is open."""

    def __init__(self) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def __call__(self, view: View) -> list[Call]:
        self.begun.set()
        await self.gate.wait()
        return [complete("at last")]


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    calls = [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]
    assert len(calls) == len(response.output)
    return calls


def result(call: ResponseFunctionToolCall, output: str) -> Any:
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


def problem(response: httpx2.Response, status: int = 400) -> dict[str, Any]:
    """An error in OpenAI's shape; MAIL's own is beside it."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["detail"] == body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error
