"""Routes as a function behind an HTTP API (payload format 2.0), by Mangum."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from mangum import Mangum

from handlers import telemetry
from handlers.serving import serve_system
from handlers.wiring import make_loop, make_system
from mail.http.app import create_app

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def serve(*routers: APIRouter) -> Handler:
    """The handler of a function that serves these routes.

    What would take longer than the function lives is answered before: a message with 202 and where to look for
    its answer, a stream with the events so far.
    """
    make_loop()
    system = make_system()
    mangum = Mangum(create_app(serve_system(system, _time_left), routers), lifespan="off")

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        telemetry.begin_invocation(context)
        try:
            return mangum(event, context)
        finally:
            system.telemetry.flush()

    return handler


def _time_left(request: Request) -> float:
    """Seconds until Lambda ends this invocation."""
    milliseconds: int = request.scope["aws.context"].get_remaining_time_in_millis()
    return milliseconds / 1000
