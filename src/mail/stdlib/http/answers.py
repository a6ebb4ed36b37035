"""An answer of the web as an agent reads it."""

import codecs
from typing import Any

import httpx

from mail.stdlib.outcomes import as_json
from mail.stdlib.web import READABLE_ENCODINGS, Fetched

SHOWN_HEADERS = (
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
"""The headers that an agent is shown, where there are any."""

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
    """The answer as JSON text: status, URL, headers, and its body, or what the body is where it is no text."""
    shown: dict[str, Any] = {
        "status": answer.status,
        "url": answer.url,
        "headers": {name: answer.headers[name] for name in SHOWN_HEADERS if name in answer.headers},
        "body": _text(answer),
    }
    size = f"{'more than ' if answer.is_cut else ''}{len(answer.body)} bytes"
    if shown["body"] is None:
        shown["not_shown"] = f"{size} of {_media_type(answer.headers) or 'an unknown kind'}, which is no text"
    elif answer.is_cut:
        shown["cut"] = f"the body has {size}; this is its beginning"
    return as_json(shown)


def _text(answer: Fetched) -> str | None:
    """The body as text; None where it is none."""
    if answer.headers.get("content-encoding", "").strip().lower() not in READABLE_ENCODINGS:
        return None
    kind = _media_type(answer.headers)
    if not kind:
        return None if b"\0" in answer.body else _decode(answer.body, "utf-8", answer.is_cut)
    if kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml", "+yaml")):
        charset = httpx.Response(200, headers=answer.headers).charset_encoding
        return _decode(answer.body, charset or "utf-8", answer.is_cut)
    return "" if not answer.body else None


def _media_type(headers: httpx.Headers) -> str:
    return str(headers.get("content-type", "")).partition(";")[0].strip().lower()


def _decode(body: bytes, charset: str, is_cut: bool) -> str:
    """The text; a character that was cut in two is left out."""
    try:
        body.decode(charset, "replace")  # refuses codecs that make no text, such as `hex`
        return codecs.getincrementaldecoder(charset)("replace").decode(body, final=not is_cut)
    except (LookupError, UnicodeError):
        return codecs.getincrementaldecoder("utf-8")("replace").decode(body, final=not is_cut)
