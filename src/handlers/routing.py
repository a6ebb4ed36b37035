"""All routes of a server, for the functions that serve them all."""

from functools import cached_property

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from mail.http.app import create_app
from mail.http.routes import load_routers
from mail.http.service import Service


class EveryRoute:
    """ASGI app that starts with the routes that a function usually serves, and adds an app of all when needed.

    All of them would take 70 of the 550 ms of a function's start.
    """

    def __init__(self, service: Service, *usual: APIRouter) -> None:
        self._service = service
        self._routes = [route for router in usual for route in router.routes]
        self._usual = create_app(service, usual)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_usual = scope["type"] != "http" or any(
            route.matches(scope)[0] is Match.FULL for route in self._routes
        )
        await (self._usual if is_usual else self._all)(scope, receive, send)

    @cached_property
    def _all(self) -> ASGIApp:
        return create_app(self._service, load_routers())
