"""Error responses: every error as `{"detail": …}` with its status."""

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from mail.auth.fastapi import headers_of
from mail.errors import MAILError, QuestionOpen
from mail.http.audit import audit_refusal
from mail.http.bodies import JSON
from mail.http.task_json import pending_call

logger = logging.getLogger(__name__)


def install_error_handlers(app: FastAPI) -> None:
    """Make the app answer every error in MAIL's format."""
    app.add_exception_handler(MAILError, _mail_error)
    app.add_exception_handler(RequestValidationError, _invalid_parameters)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> JSON:
    return JSON({"detail": detail, **more}, status_code=status, headers=headers)


async def _mail_error(request: Request, error: Exception) -> JSON:
    assert isinstance(error, MAILError)
    if error.http_status == 500:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return await _unexpected(request, error)
    await audit_refusal(request, error)
    more = (
        {"pending_tool_calls": list(map(pending_call, error.calls))}
        if isinstance(error, QuestionOpen)
        else {}
    )
    return _problem(error.http_status, error.detail, headers_of(error), **more)


async def _invalid_parameters(_request: Request, error: Exception) -> JSON:
    """Answer invalid query parameters and headers with 400; bodies are checked in `mail.http.bodies`."""
    assert isinstance(error, RequestValidationError)
    problems = (
        f"{' '.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()
    )
    return _problem(400, f"the request is not valid: {'; '.join(problems)}")


async def _http_error(request: Request, error: Exception) -> JSON:
    """Answer Starlette's own errors: an unknown path, or a method that the path doesn't support."""
    assert isinstance(error, HTTPException)
    detail = error.detail
    if error.status_code == 404:
        detail = "unknown endpoint; GET /openapi.json lists all endpoints"
    elif error.status_code == 405:
        detail = f"this endpoint does not support {request.method}"
    return _problem(error.status_code, detail, error.headers)


async def _unexpected(_request: Request, _error: Exception) -> JSON:
    """Answer 500 without details; the server that runs this app logs the traceback."""
    return _problem(500, "internal error")
