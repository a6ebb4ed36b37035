"""Actions: one for each HTTP method, and `http_request` for any."""

import codecs
from typing import Any, Literal

import httpx2
from pydantic import ConfigDict, Field, model_validator

from mail.api.actions import action
from mail.core.turns.context import idempotency_key
from mail.errors import ToolCallFault
from mail.stdlib.arguments import Arguments
from mail.stdlib.web import READABLE_ENCODINGS, Fetched, fetch
from mail.utils.outcomes import Timeout, as_json

__all__ = [
    "http_delete",
    "http_get",
    "http_head",
    "http_options",
    "http_patch",
    "http_post",
    "http_put",
    "http_request",
]

SHOWN_HEADERS = (
    "allow",
    "content-type",
    "content-length",
    "content-language",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "www-authenticate",
)
"""The response headers that an agent sees."""

_TEXT_TYPES = (
    "application/json",
    "application/xml",
    "application/javascript",
    "application/ecmascript",
    "application/graphql",
    "application/sql",
    "application/toml",
    "application/x-www-form-urlencoded",
    "application/x-ndjson",
    "application/x-yaml",
    "application/yaml",
)


def write_answer(answer: Fetched) -> str:
    """Return the response as JSON text: status, URL, headers, and the body, or its size and type if it isn't text."""
    shown: dict[str, Any] = {
        "status": answer.status,
        "url": answer.url,
        "headers": {name: answer.headers[name] for name in SHOWN_HEADERS if name in answer.headers},
        "body": _text(answer),
    }
    size = f"{'more than ' if answer.is_cut else ''}{len(answer.body)} bytes"
    if shown["body"] is None:
        shown["not_shown"] = (
            f"{size} of {_media_type(answer.headers) or 'an unknown kind'}, which is not text"
        )
    elif answer.is_cut:
        shown["cut"] = f"the body has {size}; this is its beginning"
    return as_json(shown)


def _text(answer: Fetched) -> str | None:
    """Return the body as text; None if it isn't text."""
    if answer.headers.get("content-encoding", "").strip().lower() not in READABLE_ENCODINGS:
        return None
    kind = _media_type(answer.headers)
    if not kind:
        return None if b"\0" in answer.body else _decode(answer.body, "utf-8", answer.is_cut)
    if kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml", "+yaml")):
        charset = httpx2.Response(200, headers=answer.headers).charset_encoding
        return _decode(answer.body, charset or "utf-8", answer.is_cut)
    return "" if not answer.body else None


def _media_type(headers: httpx2.Headers) -> str:
    return str(headers.get("content-type", "")).partition(";")[0].strip().lower()


def _decode(body: bytes, charset: str, is_cut: bool) -> str:
    """Return the decoded text, without a character that was cut."""
    try:
        body.decode(charset, "replace")  # raises for codecs that don't produce text, such as `hex`
        return codecs.getincrementaldecoder(charset)("replace").decode(body, final=not is_cut)
    except (LookupError, UnicodeError):
        return codecs.getincrementaldecoder("utf-8")("replace").decode(body, final=not is_cut)


MAX_BODY_BYTES = 64 * 1024
"""Decompressed bytes of a body that an agent sees."""

RESERVED_HEADERS = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "proxy-authorization",
        "te",
        "transfer-encoding",
    )
)
"""Headers that an agent may not set: they control the transport of the request."""

Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]


class HTTPGet(Arguments):
    """The arguments of `http_get`, `http_head` and `http_options`."""

    url: str = Field(max_length=8192, description="The http or https URL.")
    headers: dict[str, str] | None = Field(default=None, description="Request headers.")
    params: dict[str, str | int | float | bool] | None = Field(
        default=None, description="Query parameters to add to the URL."
    )
    timeout: Timeout = 30.0


class HTTPPost(HTTPGet):
    """The arguments of `http_post`, `http_put`, `http_patch` and `http_delete`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    json_body: dict[str, Any] | list[Any] | None = Field(
        default=None, alias="json", description="The body, to be sent as JSON."
    )
    body: str | None = Field(
        default=None, description="The body as text, instead of json; set its type in a Content-Type header."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_body(cls, given: Any) -> Any:
        """Take a body that is not text as JSON, as MAIL 1.3.6 does."""
        if not isinstance(given, dict) or not isinstance(given.get("body"), dict | list) or "json" in given:
            return given
        return {"json": given["body"], **{name: value for name, value in given.items() if name != "body"}}


class HTTPRequest(HTTPPost):
    """The arguments of `http_request`."""

    method: Method = Field(description="The HTTP method.")


@action(read_only=True)
async def http_get(request: HTTPGet) -> str:
    """Get a web page or a resource of a web API. Returns JSON: status, url (after redirects), headers and body."""
    return await _request("GET", request)


@action
async def http_post(request: HTTPPost) -> str:
    """Post JSON or text to a web API. Returns JSON: status, url (after redirects), headers and body."""
    return await _request("POST", request, request.json_body, request.body)


@action(idempotent=True)
async def http_put(request: HTTPPost) -> str:
    """Put JSON or text at a URL. Returns JSON: status, url (after redirects), headers and body."""
    return await _request("PUT", request, request.json_body, request.body)


@action
async def http_patch(request: HTTPPost) -> str:
    """Change a resource of a web API. Returns JSON: status, url (after redirects), headers and body."""
    return await _request("PATCH", request, request.json_body, request.body)


@action(idempotent=True)
async def http_delete(request: HTTPPost) -> str:
    """Delete a resource of a web API. Returns JSON: status, url (after redirects), headers and body."""
    return await _request("DELETE", request, request.json_body, request.body)


@action(read_only=True)
async def http_head(request: HTTPGet) -> str:
    """Get the headers of a resource alone. Returns JSON: status, url (after redirects) and headers."""
    return await _request("HEAD", request)


@action(read_only=True)
async def http_options(request: HTTPGet) -> str:
    """Ask which methods a resource allows. Returns JSON: status, url (after redirects), headers and body."""
    return await _request("OPTIONS", request)


@action
async def http_request(request: HTTPRequest) -> str:
    """Send an HTTP request of any method. Returns JSON: status, url (after redirects), headers and body."""
    return await _request(request.method, request, request.json_body, request.body)


async def _request(method: Method, request: HTTPGet, json: Any = None, body: str | None = None) -> str:
    """Send the request, with an `Idempotency-Key` derived from the tool call."""
    if json is not None and body is not None:
        raise ToolCallFault("give json or body, not both")
    headers = dict(request.headers or {})
    if refused := sorted(name for name in headers if name.strip().lower() in RESERVED_HEADERS):
        raise ToolCallFault(f"the header {refused[0]!r} can't be set")
    key = idempotency_key()
    if key and method not in ("GET", "HEAD", "OPTIONS") and "idempotency-key" not in map(str.lower, headers):
        headers["Idempotency-Key"] = key
    answer = await fetch(
        method,
        request.url,
        headers=headers,
        params=request.params,
        content=body,
        json=json,
        timeout=request.timeout,
        limit=MAX_BODY_BYTES,
    )
    return write_answer(answer)
