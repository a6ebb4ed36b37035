"""MAIL 2.0, below `/v2`. Not in the OpenAPI document, as it has its own, `/v2/openapi.json`.

Everything but this route is in `mail.http.mail2`, imported by the first request.
"""

import asyncio
from functools import partial
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING

from fastapi import APIRouter, HTTPException
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

if TYPE_CHECKING:
    from mail.http.app import MAILApp
    from mail.http.service import Service


class _MAIL2:
    """Hands requests to the application of MAIL 2.0, which is made when the first one comes: whole, or a part of it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = scope["app"]
        if app.service.mail_host is None:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, "MAIL 2.0 is off here; the parameter Mail2 of the stack turns it on"
            )
        usual = await _made(app, is_whole=False)
        suffices = any(route.matches(scope)[0] is Match.FULL for route in usual.routes)
        await (usual if suffices else await _made(app, is_whole=True))(scope, receive, send)


def _made(app: "MAILApp", *, is_whole: bool) -> "asyncio.Future[MAILApp]":
    name = f"mail2_{is_whole}"
    if not hasattr(app.state, name):
        make = partial(_build, app.service, is_whole=is_whole)
        setattr(app.state, name, asyncio.ensure_future(asyncio.to_thread(make)))
    made: asyncio.Future[MAILApp] = getattr(app.state, name)
    return made


def _build(service: "Service", *, is_whole: bool) -> "MAILApp":
    app: MAILApp = import_module("mail.http.mail2.app").build(service, is_whole=is_whole)
    return app


router = APIRouter(include_in_schema=False)
router.routes.append(Route("/v2{rest:path}", _MAIL2(), include_in_schema=False))
