"""Telemetry of requests: an ASGI middleware around all routes that measures and traces them."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mail.core.protocol.traceparent import TRACEPARENT, read_traceparent
from mail.http.service import Service

UNMATCHED = "unmatched"
"""The route of requests for unknown paths, of which there may be any number."""


class TelemetryMiddleware:
    """Reports each request to the service's observers and tracer, by its route's pattern rather than its path."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # if no response starts here, the server around this app sends one

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
    """Return the pattern of the route that handled the request."""
    return str(getattr(scope.get("route"), "path", UNMATCHED))


def _traceparent(scope: Scope) -> str:
    name = TRACEPARENT.encode()
    given = [value for key, value in scope["headers"] if key == name]
    return read_traceparent(given[0].decode("latin-1")) if len(given) == 1 else ""
