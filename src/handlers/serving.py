"""What the functions that speak HTTP serve; kept from those that don't, which do without FastAPI."""

from collections.abc import Callable

from fastapi import Request

from mail.bootstrap.system import AwsSystem
from mail.http.rates import rates_of
from mail.http.service import Service


def serve_system(system: AwsSystem, time_left: Callable[[Request], float | None]) -> Service:
    """What HTTP routes serve; `time_left` says when the invocation of a request ends."""
    return Service(
        runtime=system.runtime,
        records=system.documents,
        authenticator=system.authenticator,
        started=system.clock.now().timestamp(),
        max_body_bytes=system.config.settings.max_body_bytes,
        debug=system.config.debug,
        time_left=time_left,
        stream_url=system.stream_url,
        served=system.served,
        registry=system.registry,
        budgets=system.config.budgets,
        tracer=system.telemetry.tracer,
        rates=rates_of(system.config.limits),
    )
