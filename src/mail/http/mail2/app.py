"""The application of MAIL 2.0: its routes and its errors."""

import json
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError

from mail.auth.fastapi import headers_of
from mail.errors import BadRequest, MAILError, Unauthenticated
from mail.http.app import MAILApp
from mail.http.bodies import JSON
from mail.http.mail2 import boxes, logins
from mail.http.service import Service
from mail.mail2.accounts import NOT_VALID, WRONG_PASSWORD, WRONG_REFRESH

DESCRIPTION = """\
Mail between people, daemons and agents, as the protocol MAIL 2.0 defines it. Log in with `POST /v2/auth/token`, or send
an API key of this server as the bearer token. Every success is 200.
"""

_REASONS: Sequence[str] = (NOT_VALID, WRONG_PASSWORD, WRONG_REFRESH)
"""What a 401 may say."""

logger = logging.getLogger(__name__)


class _App(MAILApp):
    """An application with the OpenAPI document of FastAPI, which reads the bodies here."""

    def openapi(self) -> dict[str, Any]:
        return FastAPI.openapi(self)


def build(service: Service | None, *, is_whole: bool = True) -> MAILApp:
    """Make the application that serves the MAIL host of a service; None only for its documentation.

    One that isn't whole has the routes of mail clients alone, and is made sooner.
    """
    modules: list[Any] = [logins, boxes]
    if is_whole:
        modules += [import_module(f"{__package__}.{name}") for name in ("accounts", "daemon", "directory")]
    app = _App(
        title="MAIL 2.0",
        description=DESCRIPTION,
        version="2.0",
        openapi_url="/v2/openapi.json" if is_whole else None,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # the service has its own
        routes=[route for module in modules for router in module.routers for route in router.routes],
    )
    if service is not None:
        app.service = service
        app.state.authenticator = service.authenticator
    app.add_exception_handler(MAILError, _mail_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    return app


async def _mail_error(request: Request, error: Exception) -> JSON:
    assert isinstance(error, MAILError)
    if error.http_status >= 500 and error.retry_after is None:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    status, detail = error.http_status, error.detail
    if isinstance(error, BadRequest):
        status = 422
    elif isinstance(error, Unauthenticated) and detail not in _REASONS:
        detail = NOT_VALID
    return JSON({"detail": detail}, status_code=status, headers=headers_of(error))


async def _invalid(_request: Request, error: Exception) -> JSON:
    """Answer 422 as FastAPI does, also for text that UTF-8 doesn't have."""
    assert isinstance(error, RequestValidationError)
    problems = [{name: part for name, part in each.items() if name != "url"} for each in error.errors()]
    detail = jsonable_encoder({"detail": problems}, custom_encoder={Exception: str})
    return JSON(json.dumps(detail).encode(), status_code=422)
