"""MAIL 2.0, below `/v2`. Not in the OpenAPI document, as it has its own, `/v2/openapi.json`.

Everything but this route is in `mail.http.mail2`, imported by the first request.
"""

import asyncio
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING

from fastapi import APIRouter, HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from mail.http.service import Service


class _MAIL2:
    """Hands requests to the application of MAIL 2.0, which is made when the first one comes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = scope["app"]
        if app.service.mail_host is None:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, "MAIL 2.0 is off here; the parameter Mail2 of the stack turns it on"
            )
        if not hasattr(app.state, "mail2"):
            app.state.mail2 = asyncio.ensure_future(_build(app.service))
        await (await app.state.mail2)(scope, receive, send)


async def _build(service: "Service") -> ASGIApp:
    app: ASGIApp = await asyncio.to_thread(lambda: import_module("mail.http.mail2.app").build(service))
    return app


router = APIRouter(include_in_schema=False)
router.routes.append(Route("/v2{rest:path}", _MAIL2(), include_in_schema=False))
