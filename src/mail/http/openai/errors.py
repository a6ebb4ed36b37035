"""Errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`, with MAIL's `detail` beside it."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from mail.auth.fastapi import headers_of
from mail.errors import (
    BadBreakpointResult,
    BadClientTools,
    BadRequest,
    MAILError,
    TaskMovedOn,
    UnknownEntrypoint,
)
from mail.http.audit import audit_refusal
from mail.http.bodies import JSON
from mail.http.inputs import BadFile

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 503: "server_error"}
"""OpenAI's error types by HTTP status; the rest are invalid requests."""

_PARAMS: dict[type[MAILError], str] = {
    BadBreakpointResult: "input",
    BadClientTools: "tools",
    BadFile: "input",
    TaskMovedOn: "previous_response_id",
    UnknownEntrypoint: "entrypoint",
}
"""The request's field that an error of the engine is about."""


class RefusedRequest(BadRequest):
    """The request is not valid, or asks for something that is not supported.

    Attributes:
        param: the invalid field.
        code: OpenAI's code for the error, if it has one.
    """

    def __init__(self, detail: str, *, param: str, code: str | None = None) -> None:
        super().__init__(detail)
        self.param = param
        self.code = code


class ModelNotFound(RefusedRequest):
    """The server has no swarm and no agent of this name."""

    http_status = 404


class ResponseNotFound(MAILError):
    """The caller has no response with this id."""

    http_status = 404


class Problem(NamedTuple):
    """The content of `error`."""

    message: str
    type: str
    param: str | None
    code: str | None


def describe_error(error: MAILError) -> Problem:
    """Return an error in OpenAI's terms."""
    kind = _TYPES.get(error.http_status, "invalid_request_error")
    if isinstance(error, RefusedRequest):
        return Problem(error.detail, kind, error.param, error.code)
    code = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(error.http_status)
    return Problem(error.detail, kind, _PARAMS.get(type(error)), code)


class OpenAIRoute(APIRoute):
    """A route whose errors are in OpenAI's shape; unexpected errors are left to the app."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that answers errors."""
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except MAILError as error:
                if error.http_status == 500:
                    raise
                await audit_refusal(request, error)
                body = {"error": describe_error(error)._asdict(), "detail": error.detail}
                return JSON(body, status_code=error.http_status, headers=headers_of(error))

        return handler
