"""`GET /ui`: the static files of the page in `mail/http/ui`, which works through the API's other routes.

The page contains no secret, so it needs no key; its requests do.
"""

import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

FOLDER = Path(__file__).parents[1] / "ui"
PAGE = "index.html"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ts": "text/plain; charset=utf-8",  # the types of the client, for editors
}
"""Listed here because the result of `mimetypes` for `.js` depends on the machine; no other files are served."""

HEADERS = {
    # Browsers must revalidate what the version in its path doesn't name; unchanged files are answered with 304.
    "Cache-Control": "no-cache",
    # The last directive makes browsers refuse text from the server that would become HTML or code.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

FOREVER = "public, max-age=31536000, immutable"

_TAKES_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", re.IGNORECASE)

router = APIRouter(include_in_schema=False)


class Asset(NamedTuple):
    """A static file."""

    content: bytes
    media_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """Return the page's files by their paths below its folder, read on the first call."""
    files = (path for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES)
    return {path.relative_to(FOLDER).as_posix(): _asset(path) for path in files}


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, MEDIA_TYPES[path.suffix], _etag(content))


def _etag(content: bytes) -> str:
    return f'"{sha256(content).hexdigest()[:32]}"'


@cache
def version() -> str:
    """Return the version of all files together, a folder in the paths of those that the page loads."""
    tags = "".join(asset.etag for _, asset in sorted(assets().items()))
    return f"v-{sha256(tags.encode()).hexdigest()[:16]}"


@cache
def page() -> Asset:
    """Return the page, whose links name the version of its files, so that browsers may keep these."""
    content = assets()[PAGE].content.replace(b'"ui/', f'"ui/{version()}/'.encode())
    return Asset(content, MEDIA_TYPES[".html"], _etag(content))


@router.api_route("/ui", methods=["GET", "HEAD"])
def get_page(request: Request) -> Response:
    """Return the page. Its links are relative, so that it works below any path."""
    return _answer(request, page(), HEADERS)


@router.api_route("/ui/{name:path}", methods=["GET", "HEAD"])
def get_asset(request: Request, name: str) -> Response:
    """Return a file of the page."""
    folder, _, rest = name.partition("/")
    # A page of another version, before or after an update, gets what there is.
    asset = assets().get(rest if folder.startswith("v-") else name)
    if asset is None:
        raise HTTPException(404)
    return _answer(request, asset, {**HEADERS, "Cache-Control": FOREVER} if folder == version() else HEADERS)


@cache
def _packed(content: bytes) -> bytes:
    import gzip

    return gzip.compress(content, mtime=0)


def _answer(request: Request, asset: Asset, headers: dict[str, str]) -> Response:
    is_packed = _TAKES_GZIP.search(request.headers.get("accept-encoding", "")) is not None
    # Compressed responses, ours or a proxy's, have a weak tag.
    headers = {**headers, "ETag": f"W/{asset.etag}" if is_packed else asset.etag, "Vary": "Accept-Encoding"}
    known = (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(","))
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    if not is_packed:
        return Response(asset.content, media_type=asset.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(_packed(asset.content), media_type=asset.media_type, headers=headers)
