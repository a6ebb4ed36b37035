"""The parts of the OpenAPI document that don't follow from the routes' own signatures."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, get_type_hints

from fastapi import APIRouter
from fastapi.params import Depends
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from mail.http.bodies import SCHEMAS, JSONBody, Problem
from mail.http.sse import StreamEvent

DESCRIPTION = """\
A swarm of agents that work on your tasks by sending each other messages.

Send a message with `POST /message` and wait for the answer, watch the events as they happen
(`"stream": true`), or fetch the answer later (`Prefer: respond-async`, then `GET /task`).
"""

TAGS = [
    {"name": "messages", "description": "Talk to the swarm."},
    {"name": "tasks", "description": "Follow, inspect and control your tasks."},
    {"name": "approvals", "description": "Decide on the calls that wait for you."},
    {"name": "files", "description": "Upload files for messages, and fetch those of your tasks."},
    {"name": "threads", "description": "Read the messages of your tasks by thread."},
    {"name": "webhooks", "description": "Manage webhooks for task events."},
    {"name": "schedules", "description": "Manage messages that the server posts at certain times."},
    {"name": "callers", "description": "Delete everything of a caller, and hold what nobody may delete."},
    {"name": "server", "description": "The server, and your identity on it."},
    {"name": "tokens", "description": "Sign in to the page, and manage the server's API tokens."},
    {"name": "swarms", "description": "The swarm that the server runs, and the swarms it knows."},
    {"name": "interswarm", "description": "Messages from and to other swarms."},
]
"""In the order in which the document lists the routes."""

_MEANINGS = {
    400: "The request is not valid; `detail` says what to change.",
    401: "The API key is missing or not valid.",
    403: "The key's role may not use this endpoint.",
    404: "The task, call, dead letter, thread, file, webhook, schedule, token, hold or swarm was not found, or the "
    "server has this feature turned off.",
    409: "The state of the task at that event is no longer stored, the call has ended, there is a schedule of this "
    "name already, it is declared in `mail.toml`, or something is on hold.",
    410: "A text of the task is no longer stored, or the task of this `Idempotency-Key` has been deleted.",
    412: "The task is at another generation than `If-Match` says.",
    413: "The request body is too large.",
    422: "This `Idempotency-Key` was used for another request.",
    429: "The caller sends too many requests, has too many running tasks or streams, holds too much memory, "
    "or writes to an agent whose mailbox is full. "
    "Nothing is stored.",
    500: "The server failed to handle the request.",
    503: "The store or the authentication service is not available; try again later.",
}

_RETRY_AFTER: dict[str, Any] = {
    "headers": {
        "Retry-After": {
            "description": "Seconds to wait before the next request.",
            "schema": {"type": "integer", "minimum": 1},
        }
    }
}
_CHALLENGE: dict[str, Any] = {
    "headers": {"WWW-Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}}}
}
_PROBLEM = {"application/json": {"schema": {"$ref": f"{SCHEMAS}{Problem.__name__}"}}}
"""A reference: FastAPI would make a field of a `model` for each error of each route, 50 ms of a start."""

_HEADERS = {401: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}

_ALWAYS = (500, 503)
_OF_CALLERS = (401, 403, 429)
_OF_BODIES = (400, 413)

PAGE_HEADERS: dict[str, Any] = {
    "Link": {"description": 'The next page, if any: `<…>; rel="next"`.', "schema": {"type": "string"}},
    "X-Next-Cursor": {"description": "The cursor of that page.", "schema": {"type": "string"}},
}

ETAG: dict[str, Any] = {
    "description": "The task's generation, for `If-Match`; none for a task as it was.",
    "schema": {"type": "string"},
}


_ATTRIBUTES = "\n\nAttributes:\n"
_ATTRIBUTE = re.compile(r"^ {4}(\w+(?:, \w+)*): (.+(?:\n {8}.+)*)$", re.MULTILINE)
_FASTAPIS_DESCRIPTION = "Successful Response"


def complete(document: dict[str, Any], routes: Iterable[APIRoute]) -> None:
    """Complete FastAPI's document with what this server does in its own way.

    It reads bodies itself, streams events, and answers invalid parameters with 400 instead of 422.
    """
    schemas: dict[str, Any] = document["components"]["schemas"]
    models: dict[type[BaseModel], None] = {Problem: None, StreamEvent: None}
    for route in routes:
        for body in _bodies(route.endpoint) if route.include_in_schema else ():
            models[body.model] = None
            for method in route.methods or ():
                document["paths"][route.path_format][method.lower()]["requestBody"] = body.docs()
    _, more = models_json_schema(
        [(model, "validation") for model in models], ref_template=SCHEMAS + "{model}"
    )
    schemas.update(more["$defs"])
    for operations in document["paths"].values():
        for operation in operations.values():
            _complete_errors(operation)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    _describe(document)


def _complete_errors(operation: dict[str, Any]) -> None:
    """Document the errors that follow from what an operation takes, besides those that its route names."""
    responses = operation["responses"]
    if _is_fastapis(responses.get("422", {})):
        del responses["422"]
    of_callers = _OF_CALLERS if "security" in operation else ()
    of_bodies = _OF_BODIES if "requestBody" in operation else ()
    shared = problems(*_ALWAYS, *of_callers, *of_bodies)
    everything = {**{str(status): deepcopy(docs) for status, docs in shared.items()}, **responses}
    operation["responses"] = dict(sorted(everything.items()))


def _bodies(endpoint: Callable[..., Any]) -> Iterator[JSONBody[Any]]:
    """Yield the body that an endpoint reads, if any."""
    for hint in get_type_hints(endpoint, include_extras=True).values():
        for annotation in getattr(hint, "__metadata__", ()):
            if isinstance(annotation, Depends):
                reader = getattr(annotation.dependency, "__self__", annotation.dependency)
                if isinstance(reader, JSONBody):
                    yield reader


def _is_fastapis(response: dict[str, Any]) -> bool:
    """Return whether FastAPI added this response for invalid parameters."""
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).endswith("/HTTPValidationError")


def _describe(document: dict[str, Any]) -> None:
    """Write the descriptions of an OpenAPI document for its readers.

    What the docstring of a class says about its attributes becomes the descriptions of its properties, and a response
    that nobody has described gets the description of its model.
    """
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        about, _, attributes = schema.get("description", "").partition(_ATTRIBUTES)
        if not attributes:
            continue
        schema["description"] = about
        for names, text in _ATTRIBUTE.findall(attributes):
            for name in names.split(", "):
                if (property_ := schema["properties"].get(name)) is not None:
                    sentence = " ".join(text.split())
                    property_.setdefault("description", sentence[0].upper() + sentence[1:])
    for operations in document["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                if response["description"] == _FASTAPIS_DESCRIPTION:
                    model = response["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                    response["description"] = schemas[model]["description"]


def make_router(tag: str) -> APIRouter:
    """Make the router of a module with routes; `tag` is one of `TAGS`."""
    return APIRouter(tags=[tag], generate_unique_id_function=lambda route: route.name)


def answers(
    model: Any, *statuses: int, text: str = "", headers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the documentation of a route's answers: of the model, and of the errors that only some routes have.

    `text` describes the answer, if its model doesn't, with its headers.
    """
    described = {200: {"description": text, **({"headers": headers} if headers else {})}} if text else {}
    return {"response_model": model, "responses": described | problems(*statuses)}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of error responses, for the `responses` of a route.

    Every route has 500 and 503, one for callers 401, 403 and 429, and one with a body 400 and 413, without naming them.
    """
    return {
        status: {"description": _MEANINGS[status], **_HEADERS.get(status, {}), "content": _PROBLEM}
        for status in sorted(statuses)
    }
