"""A connection to an MCP server: opened for a call, and closed after it.

Imports the MCP SDK, so it is itself imported by the first call that needs it.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import anyio
import httpx
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation

from mail.core.protocol.message import PROTOCOL_VERSION
from mail.errors import MAILError
from mail.stdlib.deadlines import seconds_left
from mail.stdlib.mcp.servers import ForeignServer, HTTPServer, Server, StdioServer
from mail.stdlib.outcomes import ActionFailed, cut
from mail.stdlib.web import private_allowed, tls
from mail.utils.public_urls import async_public_address

MAX_REPLY_BYTES = 16 * 1024 * 1024
"""Bytes of an answer that are read from a server that an agent has named by its URL."""

MAX_PROBLEM = 4000
"""Characters of an error that are told to the agent."""

_TROUBLES = (
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
"""What a connection that fails raises, from the SDK or what it stands on."""

_US = Implementation(name="mail", version=PROTOCOL_VERSION)


async def ask[Result](
    server: Server, name: str, timeout: float, work: Callable[[Client], Awaitable[Result]]
) -> Result:
    """What `work` makes of a connection to the server, which agents know as `name`.

    Raises ActionFailed where the server can't be reached, refuses, or takes longer than `timeout` seconds.
    """
    seconds = seconds_left(timeout)
    try:
        with anyio.fail_after(seconds):
            async with AsyncExitStack() as stack:
                client = Client(await _transport(server, stack), cache=None, client_info=_US)
                return await work(await stack.enter_async_context(client))
    except _TROUBLES as error:
        cause = _first(error)
        if isinstance(cause, MAILError):
            raise cause from error
        told = _explain(cause, server, seconds)
        raise ActionFailed(f"MCP server {name}: {cut(told, MAX_PROBLEM)}") from error


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Asks a server that an agent has named: at public addresses only, unless others are allowed, and for so much."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=tls())
        self._asks_all = private_allowed()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises httpx2.ConnectError where it must not be sent."""
        url, host = request.url, request.url.raw_host.decode("ascii")
        if not self._asks_all:
            try:
                url = url.copy_with(
                    host=await async_public_address(host, url.port or (443 if url.scheme == "https" else 80))
                )
            except httpx.ConnectError as error:
                raise httpx2.ConnectError(str(error)) from error
        request = httpx2.Request(
            request.method,
            url,
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the server compresses what was asked for uncompressed")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Limited(response.stream)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Limited(httpx2.AsyncByteStream):
    """A body that breaks off where it gets too long."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_REPLY_BYTES
        async for part in self._stream:
            left -= len(part)
            if left < 0:
                raise httpx2.ReadError(f"the answer has more than {MAX_REPLY_BYTES} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _transport(server: Server, stack: AsyncExitStack) -> Transport:
    """How the server is spoken to; `stack` closes what the transport leaves open."""
    match server:
        case StdioServer():
            started = StdioServerParameters(
                command=server.command, args=server.args, env=server.env, cwd=server.cwd
            )
            log = sys.__stderr__ or sys.stderr  # where our own log goes; the second may be no file
            return stdio_client(started, errlog=log)
        case HTTPServer():
            client = httpx2.AsyncClient(headers=server.headers, timeout=None, verify=tls())
        case ForeignServer():
            plain = {"Accept-Encoding": "identity"}
            client = httpx2.AsyncClient(headers=plain, timeout=None, transport=GuardedTransport())
    return streamable_http_client(server.url, http_client=await stack.enter_async_context(client))


def _first(error: Exception) -> Exception:
    """The error itself, out of the groups that task groups wrap it in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _explain(error: Exception, server: Server, seconds: float) -> str:
    """What an agent is told. Of the operator's servers no more than they say: addresses and commands may be secret."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.3g} seconds"
    if isinstance(error, MCPError):
        return error.message
    if isinstance(server, ForeignServer):
        return str(error) or type(error).__name__
    return f"it can't be used: {type(error).__name__}"
