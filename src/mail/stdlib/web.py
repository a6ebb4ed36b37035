"""HTTP requests on behalf of an agent: only to public addresses, with a timeout and a limit on the body.

Each call makes its own client, as calls may run in different event loops.
"""

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from mail.errors import ToolCallFault
from mail.public_urls import AsyncPublicTransport, tls
from mail.utils.outcomes import ActionFailed, private_allowed, seconds_left

MAX_REDIRECTS = 5
READABLE_ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response; `is_cut` if `body` is only its beginning."""

    status: int
    url: str
    headers: httpx2.Headers
    body: bytes
    is_cut: bool


async def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    content: str | None = None,
    json: Any = None,
    timeout: float,
    limit: int,
) -> Fetched:
    """Send a request, follow redirects, and return the response.

    Args:
        timeout: seconds for the whole exchange; less if the turn ends earlier.
        limit: bytes of the body to read.

    Raises ToolCallFault for an invalid request, ActionFailed if there is no response.
    """
    seconds = seconds_left(timeout)
    transport = None if private_allowed() else AsyncPublicTransport(verify=tls())
    try:
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(verify=tls(), timeout=None, transport=transport) as client,
        ):
            try:
                request = client.build_request(
                    method,
                    _merged(url, params),
                    headers=headers,
                    content=content and content.encode(),
                    json=json,
                )
                request.headers["Accept-Encoding"] = "gzip, deflate"
            except (httpx2.InvalidURL, ValueError, TypeError) as error:
                raise ToolCallFault(f"the request can't be sent: {error}") from error
            private = frozenset(name.lower() for name in headers or ()) - {"accept", "content-type"}
            return await _follow(client, request, private, limit)
    except TimeoutError as error:
        raise ActionFailed(f"{url} did not answer within {seconds:.3g} seconds") from error
    except httpx2.HTTPError as error:
        raise ActionFailed(f"{url} can't be called: {str(error) or type(error).__name__}") from error


def _merged(url: str, params: Mapping[str, Any] | None) -> httpx2.URL:
    parsed = httpx2.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url!r} is not an http or https URL")
    return parsed.copy_merge_params(dict(params)) if params else parsed


async def _follow(
    client: httpx2.AsyncClient, request: httpx2.Request, private_headers: frozenset[str], limit: int
) -> Fetched:
    """Send the request and follow redirects; another origin does not get the private headers."""
    for _ in range(MAX_REDIRECTS + 1):
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            following = response.next_request
            if following is None:
                body, is_cut = await _read(response, limit)
                return Fetched(response.status_code, str(request.url), response.headers, body, is_cut)
        finally:
            await response.aclose()
        if _origin(following.url) != _origin(request.url):
            for name in private_headers & set(following.headers):
                del following.headers[name]
        request = following
    raise ActionFailed(f"{request.url} redirects more than {MAX_REDIRECTS} times")


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _read(response: httpx2.Response, limit: int) -> tuple[bytes, bool]:
    """Return the decompressed body, and whether it was cut. It is never decompressed beyond the limit."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    unzip = zlib.decompressobj(wbits=47) if encoding in ("gzip", "x-gzip", "deflate") else None
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            room = limit + 1 - len(body)
            body += unzip.decompress(chunk, room) if unzip else chunk[:room]
            if len(body) > limit:
                return bytes(body[:limit]), True
    except zlib.error as error:
        raise ActionFailed(f"{response.url} sends a broken {encoding} body") from error
    return bytes(body), False
