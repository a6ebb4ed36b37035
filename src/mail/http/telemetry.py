"""Measures and traces requests, where somebody wants that: an ASGI middleware around all routes."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mail.core.protocol.traceparent import TRACEPARENT, read_traceparent
from mail.http.service import Service

UNMATCHED = "unmatched"
"""The route of requests for what isn't there: their paths are as many as anybody likes."""


class Observed:
    """Tells a service's observers and tracer of each request, by the pattern of its route and not by its path."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # an answer that is not begun is one of the server's own, further out

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method = scope["method"]
        begin = time.perf_counter()
        try:
            with self._service.tracer.request(method, _traceparent(scope)) as span:
                try:
                    await self._app(scope, receive, note_status)
                finally:
                    if (route := route_of(scope)) != UNMATCHED:
                        span.note("http.route", route)
                    span.note("http.response.status_code", status)
        finally:
            seconds = time.perf_counter() - begin
            for observer in self._service.observers:
                observer.request_ended(method, route_of(scope), status, seconds)


def route_of(scope: Scope) -> str:
    """The pattern of the route that has answered."""
    return str(getattr(scope.get("route"), "path", UNMATCHED))


def _traceparent(scope: Scope) -> str:
    name = TRACEPARENT.encode()
    given = [value for key, value in scope["headers"] if key == name]
    return read_traceparent(given[0].decode("latin-1")) if len(given) == 1 else ""
