"""Requests over an existing `aiohttp.ClientSession`, with its connector, cookies, headers and limits.

Imported only when a caller passes such a session; aiohttp is not a dependency.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import httpx2
from aiohttp.client import DEFAULT_TIMEOUT
from yarl import URL

from mail.client.errors import ConnectionLost, RequestTimedOut, ServerUnreachable

DECODED_BY_AIOHTTP = ("content-encoding", "content-length")
"""Headers that don't apply to the body that aiohttp has decoded."""


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """A transport that sends the requests of an `httpx2.AsyncClient` over an aiohttp session, and never closes it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises MAILClientError with aiohttp's error chained."""
        content = await request.aread()
        headers = [(name, value) for name, value in request.headers.multi_items() if name != "host"]
        with _translated(request):
            response = await self._session.request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=headers,
                data=content or None,
                allow_redirects=False,
                timeout=self._timeout(request),
            )
        return httpx2.Response(
            response.status,
            headers=[each for each in response.headers.items() if each[0].lower() not in DECODED_BY_AIOHTTP],
            stream=_Body(request, response),
        )

    def _timeout(self, request: httpx2.Request) -> aiohttp.ClientTimeout:
        """Return the session's time limits if they were set; aiohttp's default would end long answers."""
        if self._session.timeout != DEFAULT_TIMEOUT:
            return self._session.timeout
        limits = request.extensions["timeout"]
        return aiohttp.ClientTimeout(total=None, sock_connect=limits["connect"], sock_read=limits["read"])


class _Body(httpx2.AsyncByteStream):
    def __init__(self, request: httpx2.Request, response: aiohttp.ClientResponse) -> None:
        self._request = request
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated(self._request):
            async for chunk in self._response.content.iter_any():
                yield chunk

    async def aclose(self) -> None:
        self._response.close()


@contextmanager
def _translated(request: httpx2.Request) -> Iterator[None]:
    def describe(error: Exception) -> str:
        return f"{request.method} {request.url.path}: {type(error).__name__} {error}".strip()

    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise ServerUnreachable(describe(error)) from error
    except TimeoutError as error:  # aiohttp's own are TimeoutErrors too
        raise RequestTimedOut(describe(error)) from error
    except aiohttp.ClientError as error:
        raise ConnectionLost(describe(error)) from error


def over(session: aiohttp.ClientSession) -> httpx2.AsyncClient:
    """Return an httpx2 client that sends over this session and adds no headers of its own."""
    client = httpx2.AsyncClient(transport=AiohttpTransport(session))
    client.headers.clear()
    return client
