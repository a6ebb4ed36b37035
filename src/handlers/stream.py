"""Every route behind a function URL that streams: an ASGI app, run by uvicorn under the Lambda Web Adapter."""

import asyncio
import json
import time
from collections.abc import Callable

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handlers.serving import serve_system
from handlers.wiring import make_system
from mail.http.app import create_app
from mail.http.routers import ROUTERS

CONTEXT_HEADER = "x-amzn-lambda-context"
"""In which the adapter hands on the context of the invocation, as JSON."""

DEADLINES = ("deadline", "deadline_ms")
"""The key of the invocation's end in it, in milliseconds since the epoch: as the adapter writes, and documents, it."""


def time_left(request: Request) -> float | None:
    """Seconds until Lambda ends this invocation; None where the adapter doesn't say."""
    context = json.loads(request.headers.get(CONTEXT_HEADER) or "{}")
    deadline = next((context[key] for key in DEADLINES if key in context), None)
    return None if deadline is None else deadline / 1000 - time.time()


class SentBeforeTheEnd:
    """Ends a response only when the spans of its request are sent: once it has ended, the process may be frozen.

    What a client waits for is there before: only the end of a stream is held back, and answers that come at once.
    """

    def __init__(self, app: ASGIApp, flush: Callable[[], None]) -> None:
        self._app = app
        self._flush = flush

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        end: list[Message] = []

        async def hold_the_end(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                end.append(message)
            else:
                await send(message)

        try:
            await self._app(scope, receive, hold_the_end)
        finally:
            await asyncio.to_thread(self._flush)
            for message in end:
                await send(message)


def _make_app() -> ASGIApp:
    system = make_system()
    served = create_app(serve_system(system, time_left), ROUTERS)
    return served if system.telemetry.spans is None else SentBeforeTheEnd(served, system.telemetry.flush)


app = _make_app()
