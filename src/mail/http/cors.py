"""Cross-origin requests: what web pages of other origins may send to the API and read of its answers.

The lists follow from the OpenAPI document and from what the clients of other protocols send. `template.yaml` has the
same for API Gateway and function URLs, which answer before any function runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from mail.core.protocol.interswarm import BEARER_HEADER

MAX_AGE = 600
"""Seconds for which a browser may cache the answer to a preflight request."""

PROTOCOL_HEADERS = {
    "a2a-extensions",
    "a2a-version",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "x-stainless-arch",
    "x-stainless-helper-method",
    "x-stainless-lang",
    "x-stainless-os",
    "x-stainless-package-version",
    "x-stainless-retry-count",
    "x-stainless-runtime",
    "x-stainless-runtime-version",
    "x-stainless-timeout",
}
"""What clients of A2A, MCP and OpenAI send from a page, which a browser refuses unless the server allows it."""


def allow_origins(app: ASGIApp, origins: Sequence[str], document: Mapping[str, Any]) -> CORSMiddleware:
    """Return the application with CORS for some origins; `document` is its OpenAPI document."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=methods(document),
        allow_headers=request_headers(document),
        expose_headers=response_headers(document),
        max_age=MAX_AGE,
    )


def methods(document: Mapping[str, Any]) -> list[str]:
    """Return the methods of the API, sorted."""
    return sorted({method.upper() for path in document["paths"].values() for method in path})


def request_headers(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the headers that a request may have, in lower case and sorted."""
    names = {"authorization", BEARER_HEADER.lower(), *PROTOCOL_HEADERS}
    for operation in _operations(document):
        if "requestBody" in operation:
            names.add("content-type")
        names |= {each["name"].lower() for each in operation.get("parameters", ()) if each["in"] == "header"}
    return sorted(names)


def response_headers(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the headers that the API's answers have, in lower case and sorted."""
    return sorted(
        {
            name.lower()
            for operation in _operations(document)
            for response in operation["responses"].values()
            for name in response.get("headers", ())
        }
    )


def _operations(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()
