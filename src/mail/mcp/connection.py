"""Connections to MCP servers, and what agents are shown of their errors. Imports the MCP SDK."""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, Implementation, PaginatedResult

from mail.auth.claims import read_issuer
from mail.core.protocol import PROTOCOL_VERSION
from mail.core.protocol.traceparent import TRACEPARENT, read_traceparent
from mail.errors import MAILError
from mail.mcp.servers import ForeignServer, HTTPServer, Server, StdioServer
from mail.public_urls import AsyncPublicTransport, NoAddress, NotPublic, tls
from mail.utils.outcomes import cut, private_allowed

MAX_REPLY_BYTES = 16 * 1024 * 1024
"""Bytes of a response that are read from a server that an agent names by URL."""

MAX_PROBLEM = 4000
"""Characters of an error that the agent sees."""

MAX_PAGES = 20
"""Pages of a listing that are requested."""

CONNECTION_ERRORS = (
    ExceptionGroup,
    MCPError,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    OSError,
    ValueError,
    RuntimeError,
)
"""Errors of a failed connection, from the SDK or its dependencies."""

_CLIENT = Implementation(name="mail", version=PROTOCOL_VERSION)


async def connect(
    server: Server, stack: AsyncExitStack, bearer: Callable[[], str] | None = None, **options: Any
) -> Client:
    """Open a client of a server, which `stack` closes. Raises one of `CONNECTION_ERRORS`.

    Args:
        bearer: returns the token that a configured server gets with each request; None if it gets none.
    """
    client = Client(await _transport(server, stack, bearer), cache=None, client_info=_CLIENT, **options)
    return await stack.enter_async_context(client)


async def read_pages[Page: PaginatedResult](
    get: Callable[[str | None], Awaitable[Page]],
) -> tuple[list[Page], bool]:
    """Return the pages of a listing, and whether there are more."""
    pages = [await get(None)]
    while (cursor := pages[-1].next_cursor) is not None:
        if len(pages) == MAX_PAGES:
            return pages, True
        pages.append(await get(cursor))
    return pages, False


def reason_of(error: Exception, server: Server | None, seconds: float) -> str:
    """Describe one of `CONNECTION_ERRORS` to an agent. Raises it if it is an error of MAIL."""
    cause = _first(error)
    if isinstance(cause, MAILError):
        raise cause from error
    return cut(_explain(cause, server, seconds), MAX_PROBLEM)


def own_reason(error: Exception, seconds: float) -> str:
    """Describe one of `CONNECTION_ERRORS` in MAIL's own words, for a system prompt: no text of the server is in it."""
    match _first(error):
        case TimeoutError():
            return f"no answer within {seconds:.3g} seconds"
        case MCPError(code=code):
            return f"it can't be used: it answered with error {code}"
        case httpx2.HTTPStatusError(response=response):
            return f"it can't be used: HTTP {response.status_code}"
        case NotPublic() | NoAddress() as refused:
            return str(refused)
        case cause:
            return f"it can't be used: {type(cause).__name__}"


class ForeignTransport(httpx2.AsyncBaseTransport):
    """The transport for a server that an agent names: only public addresses by default, and a limited response size."""

    def __init__(self) -> None:
        kind = httpx2.AsyncHTTPTransport if private_allowed() else AsyncPublicTransport
        self._inner: httpx2.AsyncBaseTransport = kind(verify=tls())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises httpx2.ConnectError if its host is not public."""
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError(
                "the server sent a compressed response although none was accepted"
            )
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Limited(response.stream)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Limited(httpx2.AsyncByteStream):
    """A body with a limit on its length."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_REPLY_BYTES
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"the answer has more than {MAX_REPLY_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _transport(server: Server, stack: AsyncExitStack, bearer: Callable[[], str] | None) -> Transport:
    """Open the transport to a server; `stack` closes its HTTP client."""
    match server:
        case StdioServer():
            started = StdioServerParameters(
                command=server.command, args=server.args, env=server.env, cwd=server.cwd
            )
            log = sys.__stderr__ or sys.stderr  # the process's log; sys.stderr may not be a file
            return stdio_client(started, errlog=log)
        case HTTPServer():
            client = httpx2.AsyncClient(headers=server.headers, timeout=None, verify=tls())
        case ForeignServer():
            plain = {"Accept-Encoding": "identity"}
            client = httpx2.AsyncClient(
                headers={**(server.headers or {}), **plain}, timeout=None, transport=ForeignTransport()
            )
    client.event_hooks = {"request": [_copy_traceparent]}
    if bearer is not None:
        assert isinstance(server, HTTPServer)
        read_issuer(server.url)  # encrypted, but on this machine
        client.auth = lambda request: _authorize(request, bearer())
    return streamable_http_client(server.url, http_client=await stack.enter_async_context(client))


def _authorize(request: httpx2.Request, token: str) -> httpx2.Request:
    request.headers["Authorization"] = f"Bearer {token}"
    return request


async def _copy_traceparent(request: httpx2.Request) -> None:
    """Send the trace of a message as an HTTP header, too, as gateways and HTTP frameworks don't read messages."""
    message = json.loads(request.content) if TRACEPARENT.encode() in request.content else {}
    match message:
        case {"params": {"_meta": {"traceparent": given}}} if trace := read_traceparent(given):
            request.headers[TRACEPARENT] = trace


def is_over(error: Exception) -> bool:
    """Return whether an error means that the connection is of no more use."""
    cause = _first(error)
    if isinstance(cause, MCPError):
        return cause.code == CONNECTION_CLOSED
    return isinstance(
        cause, anyio.BrokenResourceError | anyio.ClosedResourceError | OSError | httpx2.TransportError
    )


def is_rejected(error: Exception) -> bool:
    """Return whether the server has refused to process the request, as of a session that it doesn't know any more."""
    cause = _first(error)
    return isinstance(cause, MCPError) and cause.code == INVALID_REQUEST


def _first(error: Exception) -> Exception:
    """Return the first error inside nested exception groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _explain(error: Exception, server: Server | None, seconds: float) -> str:
    """Describe an error to the agent, without the addresses and commands of configured servers, which may be secret."""
    match error:
        case MCPError():
            return error.message
        case _ if isinstance(server, ForeignServer) and not isinstance(error, TimeoutError):
            return str(error) or type(error).__name__
        case _:
            return own_reason(error, seconds)
