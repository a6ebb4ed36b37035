"""Routes that few requests of a function need, added when the first of these comes."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from mail.http.app import MAILApp, create_app
from mail.http.service import Service

Load = Callable[[], Iterable[APIRouter]]
"""Imports modules with routes, and returns their routers."""


class LaterRoutes:
    """ASGI app that starts with the routes that a function usually serves, and adds an app of others when needed.

    All routes of a server would take 70 of the 550 ms of a function's start.
    """

    def __init__(self, service: Service, usual: Sequence[APIRouter], load: Load) -> None:
        self._service = service
        self._routes = [route for router in usual for route in router.routes]
        self._usual = create_app(service, usual)
        self._load = load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_usual = scope["type"] != "http" or any(
            route.matches(scope)[0] is Match.FULL for route in self._routes
        )
        await (self._usual if is_usual else self._others)(scope, receive, send)

    @cached_property
    def _others(self) -> ASGIApp:
        return create_app(self._service, self._load())


def app_of(service: Service, usual: Sequence[APIRouter], load: Load | None) -> MAILApp | LaterRoutes:
    """Return the app of a function that serves these routes and, if `load` is given, later others, too."""
    return create_app(service, usual) if load is None else LaterRoutes(service, usual, load)
