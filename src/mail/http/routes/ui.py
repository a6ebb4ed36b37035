"""`GET /ui`: the page in `mail/http/ui`, as it lies there; it does the rest through the other routes.

The page holds no secret and knows nobody, so it needs no key; what it asks for does.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

FOLDER = Path(__file__).parent / "ui"
PAGE = "index.html"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Kept here, as what `mimetypes` says of `.js` depends on the machine; nothing else in the folder is served."""

HEADERS = {
    # Names don't change with the content, so a browser asks each time, and is told 304 as long as nothing has changed.
    "Cache-Control": "no-cache",
    # The last one makes a browser refuse text from the server where it would become HTML or code.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

router = APIRouter(include_in_schema=False)


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """The page's files by name, read once."""
    files = (path for path in FOLDER.iterdir() if path.suffix in MEDIA_TYPES)
    return {path.name: _asset(path) for path in files}


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, MEDIA_TYPES[path.suffix], f'"{sha256(content).hexdigest()[:32]}"')


@router.get("/ui")
def get_page(request: Request) -> Response:
    """The page. Its links are relative, so that it works below any path."""
    return _answer(request, PAGE)


@router.get("/ui/{name}")
def get_asset(request: Request, name: str) -> Response:
    """A file that the page is made of."""
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    asset = assets().get(name)
    if asset is None:
        raise HTTPException(404)
    headers = {**HEADERS, "ETag": asset.etag}
    # A proxy that compresses makes the tag a weak one.
    known = (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(","))
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)
