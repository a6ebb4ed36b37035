"""Routes as a function behind an HTTP API (payload format 2.0), by Mangum."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from mangum import Mangum

from handlers import telemetry
from handlers.routing import Load, app_of
from handlers.wiring import make_loop, make_system, survive_snapshots
from mail import startup
from mail.bootstrap import RequestMetrics
from mail.server.app import make_service

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""A response of Lambda may have 6 MB, in which quotation marks and backslashes of the answer count twice."""

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def serve(*routers: APIRouter, later: Load | None = None) -> Handler:
    """Build the handler of a function that serves these routes, and those that `later` loads when one is asked for.

    Responses that would take longer than the invocation are sent early: 202 with the task's URL for a message, the
    events so far for a stream.
    """
    make_loop()
    system = make_system()
    service = make_service(
        system,
        system.config,
        time_left=_time_left,
        stream_url=system.stream_url,
        max_answer_bytes=MAX_ANSWER_BYTES,
        domain_of=_domain_of,
        observers=(RequestMetrics(),),
    )
    app = app_of(service, routers, later)
    mangum = Mangum(app, lifespan="off")
    survive_snapshots(system)
    startup.end()

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        telemetry.begin_invocation(context)
        try:
            return mangum(event, context)
        finally:
            system.telemetry.flush()

    return handler


def _time_left(request: Request) -> float:
    """Return the seconds until Lambda ends this invocation."""
    milliseconds: int = request.scope["aws.context"].get_remaining_time_in_millis()
    return milliseconds / 1000


def _domain_of(request: Request) -> str:
    domain: str = request.scope["aws.event"]["requestContext"]["domainName"]
    return domain
