"""Routes behind a streaming function URL: an ASGI app, run by uvicorn under the Lambda Web Adapter."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handlers import telemetry
from handlers.routing import Load, app_of
from handlers.wiring import make_system
from mail import startup
from mail.bootstrap import RequestMetrics
from mail.server.app import make_service

CONTEXT_HEADER = "x-amzn-lambda-context"
"""Carries the context of the invocation, as JSON, from the adapter to the application."""

DEADLINES = ("deadline", "deadline_ms")
"""Keys of the deadline in that context, in ms since the epoch: the one that the adapter writes, then the documented
one.
"""


def time_left(request: Request) -> float | None:
    """Return the seconds until Lambda ends this invocation; None if the adapter doesn't say."""
    context = _context(request.headers)
    deadline = next((context[key] for key in DEADLINES if key in context), None)
    return None if deadline is None else deadline / 1000 - time.time()


def _context(headers: Headers) -> dict[str, Any]:
    context: dict[str, Any] = json.loads(headers.get(CONTEXT_HEADER) or "{}")
    return context


class InvocationLog:
    """Middleware that adds the invocation to the log lines of each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            context = _context(Headers(scope=scope))
            telemetry.begin_request(context.get("request_id", ""), self._function)
        await self._app(scope, receive, send)


class FlushBeforeEnd:
    """Middleware that exports the spans of a request before the response ends, as the process may then be frozen.

    Only the last chunk of a response is delayed.
    """

    def __init__(self, app: ASGIApp, flush: Callable[[], None]) -> None:
        self._app = app
        self._flush = flush

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        end: list[Message] = []

        async def delay_end(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                end.append(message)
            else:
                await send(message)

        try:
            await self._app(scope, receive, delay_end)
        finally:
            await asyncio.to_thread(self._flush)
            for message in end:
                await send(message)


def serve(*routers: APIRouter, later: Load | None = None) -> ASGIApp:
    """Build the app of a function that serves these routes, and those that `later` loads when one is asked for."""
    system = make_system()
    service = make_service(
        system,
        system.config,
        time_left=time_left,
        stream_seconds=system.stream_seconds,
        stream_url=system.stream_url,
        observers=(RequestMetrics(),),
    )
    app = app_of(service, routers, later)
    served = InvocationLog(app)
    startup.end()
    return served if system.telemetry.spans is None else FlushBeforeEnd(served, system.telemetry.flush)
