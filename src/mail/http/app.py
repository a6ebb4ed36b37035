"""The application: routes, errors and documentation around one `Service`."""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send, StatelessLifespan

from mail.core.protocol import PROTOCOL_VERSION
from mail.http.account import HELD
from mail.http.errors import install_error_handlers
from mail.http.openapi import DESCRIPTION, TAGS, complete
from mail.http.service import Service


class MAILApp(FastAPI):
    """FastAPI with a `Service`, which the routes read from it.

    Attributes:
        service: what it serves.
        cors_origins: the origins of web pages that may call it.
    """

    service: Service
    cors_origins: Sequence[str] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, and end what it holds.

        One in absolute form (RFC 9112, section 3.2.2), as for a proxy, is handled like one for its path.
        """
        if scope["type"] == "http" and not scope["path"].startswith("/"):
            _to_origin_form(scope)
        try:
            await super().__call__(scope, receive, send)
        finally:
            if HELD in scope:
                scope[HELD].end()

    def build_middleware_stack(self) -> ASGIApp:
        """Return the app with its middleware; CORS comes first, so that pages can read every answer, even a 500."""
        stack = super().build_middleware_stack()
        if not self.cors_origins:
            return stack
        from mail.http.cors import allow_origins

        return allow_origins(stack, self.cors_origins, self.openapi())

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document: FastAPI's, with the bodies that `mail.http` reads itself."""
        if self.openapi_schema is None:
            complete(super().openapi(), [route for route in self.routes if isinstance(route, APIRoute)])
        return super().openapi()


def _to_origin_form(scope: Scope) -> None:
    """Change the scope of a request for `http://host/path` to one for `/path` at this host; leave others as they are.

    The scope stays the same dictionary, in which the server's connection finds the caller.
    """
    target: bytes = scope.get("raw_path") or b""
    try:
        url = urlsplit(target)
    except ValueError:  # such as http://[
        return
    if url.scheme.lower() not in (b"http", b"https") or not url.netloc:
        return
    path = url.path or b"/"
    headers = [(name, text) for name, text in scope["headers"] if name != b"host"]
    scope.update(
        path=unquote(path.decode("latin-1")), raw_path=path, headers=[(b"host", url.netloc), *headers]
    )


def create_app(
    service: Service,
    routers: Iterable[APIRouter],
    *,
    lifespan: StatelessLifespan[FastAPI] | None = None,
    cors_origins: Sequence[str] = (),
) -> MAILApp:
    """Create the app that serves a swarm through some routes (all of them: `mail.http.routes.load_routers`).

    `lifespan` starts and stops what the service needs; web pages of `cors_origins` may call the app.
    """
    app = MAILApp(
        title="MAIL",
        summary="Multi-Agent Interface Layer",
        description=DESCRIPTION,
        version=PROTOCOL_VERSION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        openapi_tags=TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # the service has its own
        # included routers would make each of their routes a second time
        routes=[route for router in routers for route in router.routes],
    )
    app.cors_origins = cors_origins
    app.service = service
    app.state.authenticator = service.authenticator
    if service.is_observed:
        from mail.http.telemetry import TelemetryMiddleware

        app.add_middleware(TelemetryMiddleware, service=service)
    if service.debug:
        from mail.http.reference import router as reference
        from mail.http.routes.openai import debug_router as responses

        app.include_router(reference)
        app.include_router(responses)
    install_error_handlers(app)
    return app
