"""The application: routes, errors and documentation around one `Service`."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send, StatelessLifespan

from mail.core.protocol import PROTOCOL_VERSION
from mail.http.bodies import referenced_models
from mail.http.errors import install_error_handlers
from mail.http.openapi import DESCRIPTION, TAGS, DocumentedRoute, describe
from mail.http.service import Service


class MAILApp(FastAPI):
    """FastAPI whose OpenAPI document covers the bodies that `mail.http` reads itself, and omits FastAPI's own 422.

    A process can answer its first requests before all routes are loaded: a request that none of those loaded can handle
    loads more, until one can.

    Attributes:
        service: what it serves; the routes read it from here.
        cors_origins: the origins of web pages that may call it.
    """

    service: Service
    cors_origins: Sequence[str] = ()

    def add_routers(self, routers: Iterable[APIRouter], later: Iterable[Callable[[], APIRouter]]) -> None:
        """Serve the routes of some routers; those of `later` are loaded when they are needed."""
        self._routers: list[APIRouter] = []
        for router in routers:
            self._add(router)
        self._first_paths = {
            route.path for router in self._routers for route in router.routes if isinstance(route, Route)
        }
        self._later = deque(later)

    def load_routes(self) -> None:
        """Load the routes that are not loaded yet."""
        while self._later:
            self._load_next()

    async def load_routes_between_requests(self) -> None:
        """Load the routes that are not loaded yet; requests are handled meanwhile."""
        while self._later:
            self._load_next()
            await asyncio.sleep(0)

    def _load_routes_for(self, scope: Scope) -> None:
        """Load routes until one can handle the request; all if none can, so that the answer is a 404 or a 405."""
        while self._later and not any(route.matches(scope)[0] is Match.FULL for route in self.routes):
            self._load_next()

    def _load_next(self) -> None:
        self._add(self._later[0]())
        self._later.popleft()

    def _add(self, router: APIRouter) -> None:
        """Put the routes of a router before FastAPI's own, in the document's order: `POST /message` is found first."""
        served = sum(len(each.routes) for each in self._routers)
        self._routers = sorted((*self._routers, router), key=_position)
        # `include_router` would build each of them again
        self.router.routes[:served] = [route for each in self._routers for route in each.routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, without FastAPI's own telemetry: the service has its own."""
        if self.root_path:
            scope["root_path"] = self.root_path
        if self._later and scope["type"] == "http" and scope["path"] not in self._first_paths:
            self._load_routes_for(scope)
        await Starlette.__call__(self, scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Return the app with its middleware; CORS comes first, so that pages can read every answer, even a 500."""
        stack = super().build_middleware_stack()
        if not self.cors_origins:
            return stack
        from mail.http.cors import allow_origins

        return allow_origins(stack, self.cors_origins, self.openapi())

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, built on the first call."""
        if self.openapi_schema is None:
            self.load_routes()
            for route in self.routes:
                if isinstance(route, DocumentedRoute):
                    route.build_models()
            document = super().openapi()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            referenced = {
                model
                for router in self._routers
                for route in router.routes
                if isinstance(route, APIRoute)
                for documentation in (route.openapi_extra, route.responses)
                for model in referenced_models(documentation)
            }
            if referenced:
                _, extra = models_json_schema(
                    [(model, "validation") for model in referenced],
                    ref_template="#/components/schemas/{model}",
                )
                schemas.update(extra["$defs"])
            for operations in document["paths"].values():
                for operation in operations.values():
                    if _is_fastapis(operation["responses"].get("422", {})):
                        del operation["responses"]["422"]
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            document["components"]["schemas"] = dict(sorted(schemas.items()))
            describe(document)
        assert self.openapi_schema is not None
        return self.openapi_schema


def create_app(
    service: Service,
    routers: Iterable[APIRouter],
    *,
    later: Iterable[Callable[[], APIRouter]] = (),
    lifespan: StatelessLifespan[FastAPI] | None = None,
    cors_origins: Sequence[str] = (),
) -> MAILApp:
    """Create the app that serves a swarm through some routes (all of them: `mail.http.routes.load_routers`).

    Those of `later` are loaded in their order when they are needed. `lifespan` starts and stops what the service needs;
    web pages of `cors_origins` may call the app.
    """
    app = MAILApp(
        title="MAIL",
        summary="Multi-Agent Interface Layer",
        description=DESCRIPTION,
        version=PROTOCOL_VERSION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        openapi_tags=TAGS,
        docs_url="/docs" if service.debug else None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.cors_origins = cors_origins
    app.service = service
    app.state.authenticator = service.authenticator
    if service.is_observed:
        from mail.http.telemetry import TelemetryMiddleware

        app.add_middleware(TelemetryMiddleware, service=service)
    app.add_routers(routers, later)
    if service.debug:
        from mail.http.openai.routes import router as responses

        app.include_router(responses)
        app.include_router(responses, prefix="/v1")  # programs written for OpenAI may look for it there
    install_error_handlers(app)
    return app


def _position(router: APIRouter) -> int:
    """Return the place of a router's routes in the document."""
    return next((place for place, tag in enumerate(TAGS) if tag["name"] in router.tags), len(TAGS))


def _is_fastapis(response: dict[str, Any]) -> bool:
    """Return whether FastAPI added this response for invalid parameters; this server answers those with 400."""
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).endswith("/HTTPValidationError")
