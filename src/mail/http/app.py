"""The application: routes, errors and documentation around one `Service`."""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from pydantic.json_schema import models_json_schema
from starlette.types import StatelessLifespan

from mail.core.protocol import PROTOCOL_VERSION
from mail.http.dead_letters_schemas import PostDeadLetters
from mail.http.errors import install_error_handlers
from mail.http.interswarm_schemas import PostInterswarm, PostInterswarmMessage
from mail.http.openapi import DESCRIPTION, TAGS
from mail.http.registry_schemas import PostSwarms
from mail.http.schemas import (
    GetTask,
    GivenWebhook,
    PostCancel,
    PostFork,
    PostHealth,
    PostMessage,
    PostSwarmsLoad,
    StreamEvent,
)
from mail.http.service import Service

_REFERRED_TO = (
    GetTask,
    GivenWebhook,
    PostCancel,
    PostDeadLetters,
    PostFork,
    PostHealth,
    PostInterswarm,
    PostInterswarmMessage,
    PostMessage,
    PostSwarms,
    PostSwarmsLoad,
    StreamEvent,
)
_COMPONENT = "#/components/schemas/{model}"


class MAILApp(FastAPI):
    """FastAPI whose OpenAPI knows what `mail.http` reads and streams by itself, and no 422 of FastAPI's."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            schemas = document["components"]["schemas"]
            _, extra = models_json_schema(
                [(model, "validation") for model in _REFERRED_TO], ref_template=_COMPONENT
            )
            schemas.update(extra["$defs"])
            for operations in document["paths"].values():
                for operation in operations.values():
                    if _is_fastapis(operation["responses"].get("422", {})):
                        del operation["responses"]["422"]
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            document["components"]["schemas"] = dict(sorted(schemas.items()))
        assert self.openapi_schema is not None
        return self.openapi_schema


def create_app(
    service: Service, routers: Iterable[APIRouter], *, lifespan: StatelessLifespan[FastAPI] | None = None
) -> FastAPI:
    """The app that serves a swarm by some routes (all of them: `mail.http.routers.ROUTERS`).

    Its `lifespan` starts and stops whatever the service needs.
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
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.service = service
    app.state.authenticator = service.authenticator
    if service.is_observed:
        from mail.http.telemetry import Observed

        app.add_middleware(Observed, service=service)
    for router in routers:
        app.include_router(router)
    if service.debug:
        from mail.http.openai.routes import router as responses

        app.include_router(responses)
        app.include_router(responses, prefix="/v1")  # where programs written for OpenAI may look for it
    install_error_handlers(app)
    return app


def _is_fastapis(response: dict[str, Any]) -> bool:
    """Whether a response is the one that FastAPI adds for parameters that aren't valid; ours are 400."""
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).endswith("/HTTPValidationError")
