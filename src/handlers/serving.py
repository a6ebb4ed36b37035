"""What the functions that speak HTTP serve; kept from those that don't, which do without FastAPI."""

from collections.abc import Callable

from fastapi import Request

from mail.bootstrap.aws_system import AwsSystem
from mail.http.rates import rates_of
from mail.http.service import Service


def serve_system(system: AwsSystem, time_left: Callable[[Request], float | None]) -> Service:
    """What HTTP routes serve; `time_left` says when the invocation of a request ends."""
    return Service(
        runtime=system.runtime,
        documents=system.records,
        authenticator=system.authenticator,
        started=system.clock.now().timestamp(),
        max_body_bytes=system.config.server.settings.max_body_bytes,
        debug=system.config.server.debug,
        time_left=time_left,
        stream_url=system.config.stream_url,
        served=system.served,
        registry=system.registry,
        budgets=system.config.server.budgets,
        tracer=system.watched.tracer,
        rates=rates_of(system.config.server.limits),
    )
