"""The requests that agents make to MCP servers, each over a connection of its own, and how they see the results.

Imports the MCP SDK, so this module is itself imported by the first call that needs it.
"""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Any

import anyio
import httpx
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    METHOD_NOT_FOUND,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Implementation,
    PaginatedResult,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from mail.core.protocol import PROTOCOL_VERSION
from mail.errors import MAILError
from mail.net.public_urls import async_public_address
from mail.stdlib.mcp.servers import ForeignServer, HTTPServer, Server, StdioServer, find_server
from mail.stdlib.outcomes import ActionFailed, cut, seconds_left
from mail.stdlib.web import private_allowed, tls

Shown = dict[str, Any]
"""A result as JSON, ready to be shown to an agent."""

MAX_PAGES = 20
"""Pages of a listing that are requested."""

MAX_TEXT = 4000
"""Characters of a description or of instructions that an agent sees."""


async def ping(server: str, timeout: float) -> Shown:
    """Return the server's description. The handshake suffices: version 2026-07-28 of the protocol removed `ping`."""
    begin = perf_counter()

    async def work(client: Client) -> Shown:
        latency = round(perf_counter() - begin, 3)
        info = client.server_info
        return {
            "latency": latency,
            "protocol_version": client.protocol_version,
            "name": info.name if info else None,
            "version": info.version if info else None,
            "capabilities": sorted(client.server_capabilities.model_dump(by_alias=True, exclude_none=True)),
            "instructions": cut(client.instructions, MAX_TEXT) if client.instructions else None,
        }

    return await _with_client(server, timeout, work)


async def list_tools(server: str, timeout: float) -> Shown:
    async def work(client: Client) -> Shown:
        pages, is_partial = await _pages(lambda cursor: client.list_tools(cursor=cursor))
        tools = (
            _described(tool.name, tool.title, tool.description, input_schema=tool.input_schema)
            for page in pages
            for tool in page.tools
        )
        return show_listing("tools", tools, is_partial=is_partial)

    return await _with_client(server, timeout, work)


async def call_tool(server: str, timeout: float, tool: str, arguments: dict[str, Any]) -> Shown:
    """Call a tool and return its result. Raises ActionFailed with the tool's message if it fails."""
    result = await _with_client(server, timeout, lambda client: client.call_tool(tool, arguments))
    if result.is_error:
        raise ActionFailed(
            f"the tool {tool} of MCP server {server}: {cut(show_tool_error(result), MAX_PROBLEM)}"
        )
    return show_tool_result(result)


async def list_resources(server: str, timeout: float) -> Shown:
    """List the server's resources and resource templates."""

    async def work(client: Client) -> Shown:
        pages, is_partial = await _pages(lambda cursor: client.list_resources(cursor=cursor))
        resources = (
            {"uri": each.uri, **_described(each.name, each.title, each.description, mime_type=each.mime_type)}
            for page in pages
            for each in page.resources
        )
        shown = show_listing("resources", resources, is_partial=is_partial)
        if templates := await _templates(client):
            shown |= show_listing("templates", templates, is_partial=bool(shown.get("is_partial")))
        return shown

    return await _with_client(server, timeout, work)


async def read_resource(server: str, timeout: float, uri: str) -> Shown:
    read = await _with_client(server, timeout, lambda client: client.read_resource(uri))
    return show_resource(read)


async def list_prompts(server: str, timeout: float) -> Shown:
    async def work(client: Client) -> Shown:
        pages, is_partial = await _pages(lambda cursor: client.list_prompts(cursor=cursor))
        prompts = (
            _described(
                each.name,
                each.title,
                each.description,
                arguments=[
                    {
                        "name": argument.name,
                        "description": argument.description,
                        "required": bool(argument.required),
                    }
                    for argument in each.arguments or ()
                ],
            )
            for page in pages
            for each in page.prompts
        )
        return show_listing("prompts", prompts, is_partial=is_partial)

    return await _with_client(server, timeout, work)


async def get_prompt(server: str, timeout: float, prompt: str, arguments: dict[str, str]) -> Shown:
    """Return a prompt with its arguments filled in."""
    filled = await _with_client(server, timeout, lambda client: client.get_prompt(prompt, arguments))
    return show_prompt(filled)


async def _templates(client: Client) -> list[Shown]:
    """Return the resource templates; not all servers support them."""
    try:
        pages, _ = await _pages(lambda cursor: client.list_resource_templates(cursor=cursor))
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:
            return []
        raise
    return [
        {"uri_template": each.uri_template, **_described(each.name, each.title, each.description)}
        for page in pages
        for each in page.resource_templates
    ]


async def _pages[Page: PaginatedResult](
    get: Callable[[str | None], Awaitable[Page]],
) -> tuple[list[Page], bool]:
    """Return the pages of a listing, and whether there are more."""
    pages = [await get(None)]
    while (cursor := pages[-1].next_cursor) is not None:
        if len(pages) == MAX_PAGES:
            return pages, True
        pages.append(await get(cursor))
    return pages, False


def _described(name: str, title: str | None, description: str | None, **more: Any) -> Shown:
    fields = {
        "name": name,
        "title": title,
        "description": cut(description, MAX_TEXT) if description else None,
        **more,
    }
    return {key: value for key, value in fields.items() if value is not None}


MAX_REPLY_BYTES = 16 * 1024 * 1024
"""Bytes of a response that are read from a server that an agent names by URL."""

MAX_PROBLEM = 4000
"""Characters of an error that the agent sees."""

_CONNECTION_ERRORS = (
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


async def _with_client[Result](
    name: str, timeout: float, work: Callable[[Client], Awaitable[Result]]
) -> Result:
    """Run `work` on a connection to the server of this name or URL, and return its result.

    Raises ActionFailed if the server can't be reached, refuses, or takes longer than `timeout` seconds.
    """
    server = find_server(name)
    seconds = seconds_left(timeout)
    try:
        with anyio.fail_after(seconds):
            async with AsyncExitStack() as stack:
                client = Client(await _transport(server, stack), cache=None, client_info=_CLIENT)
                return await work(await stack.enter_async_context(client))
    except _CONNECTION_ERRORS as error:
        cause = _first(error)
        if isinstance(cause, MAILError):
            raise cause from error
        reason = _explain(cause, server, seconds)
        raise ActionFailed(f"MCP server {name}: {cut(reason, MAX_PROBLEM)}") from error


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The transport for a server that an agent names: only public addresses by default, and a limited response size."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=tls())
        self._allows_private = private_allowed()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises httpx2.ConnectError if its host is not public."""
        url, host = request.url, request.url.raw_host.decode("ascii")
        if not self._allows_private:
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


async def _transport(server: Server, stack: AsyncExitStack) -> Transport:
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
            client = httpx2.AsyncClient(headers=plain, timeout=None, transport=GuardedTransport())
    return streamable_http_client(server.url, http_client=await stack.enter_async_context(client))


def _first(error: Exception) -> Exception:
    """Return the first error inside nested exception groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _explain(error: Exception, server: Server, seconds: float) -> str:
    """Describe an error to the agent, without the addresses and commands of configured servers, which may be secret."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.3g} seconds"
    if isinstance(error, MCPError):
        return error.message
    if isinstance(server, ForeignServer):
        return str(error) or type(error).__name__
    return f"it can't be used: {type(error).__name__}"


MAX_SHOWN = 64 * 1024
"""Characters of a result, or of a listing, that an agent sees."""


class Texts:
    """A budget of characters, shared by the texts of one result."""

    def __init__(self) -> None:
        self._left = MAX_SHOWN

    def show(self, text: str) -> str:
        """Return the text, cut to the rest of the budget."""
        shown = cut(text, self._left)
        self._left -= min(len(text), self._left)
        return shown


def show_tool_result(result: CallToolResult) -> Shown:
    """Return the result of a tool, without images, audio and files."""
    texts = Texts()
    shown: Shown = {"content": [_block(block, texts) for block in result.content]}
    if result.structured_content is not None:
        size = len(json.dumps(result.structured_content, ensure_ascii=False))
        if size <= MAX_SHOWN:
            shown["structured_content"] = result.structured_content
        else:
            shown["structured_content_not_shown"] = f"{size} characters of JSON"
    return shown


def show_tool_error(result: CallToolResult) -> str:
    said = [block.text for block in result.content if isinstance(block, TextContent)]
    return "\n".join(said) or "it failed without a message"


def show_resource(result: ReadResourceResult) -> Shown:
    texts = Texts()
    return {"contents": [_contents(contents, texts) for contents in result.contents]}


def show_prompt(result: GetPromptResult) -> Shown:
    """Return a prompt with its arguments filled in."""
    texts = Texts()
    messages = [{"role": each.role, "content": _block(each.content, texts)} for each in result.messages]
    return {**_given(description=result.description and texts.show(result.description)), "messages": messages}


def show_listing(name: str, items: Iterable[Shown], *, is_partial: bool) -> Shown:
    """Return the items under their name, cut to the limit."""
    shown: list[Shown] = []
    left = MAX_SHOWN
    for item in items:
        left -= len(json.dumps(item, ensure_ascii=False))
        if left < 0:
            is_partial = True
            break
        shown.append(item)
    return {name: shown, **({"is_partial": True} if is_partial else {})}


def _block(block: ContentBlock, texts: Texts) -> Shown:
    match block:
        case TextContent():
            return {"type": "text", "text": texts.show(block.text)}
        case ImageContent() | AudioContent():
            return {"type": block.type, "mime_type": block.mime_type, "not_shown": _size(block.data)}
        case EmbeddedResource():
            return {"type": "resource", **_contents(block.resource, texts)}
        case ResourceLink():
            return {
                "type": "resource_link",
                "uri": block.uri,
                "name": block.name,
                **_given(mime_type=block.mime_type),
            }


def _contents(contents: TextResourceContents | BlobResourceContents, texts: Texts) -> Shown:
    known = {"uri": contents.uri, **_given(mime_type=contents.mime_type)}
    if isinstance(contents, TextResourceContents):
        return {**known, "text": texts.show(contents.text)}
    return {**known, "not_shown": _size(contents.blob)}


def _size(base64: str) -> str:
    return f"{len(base64.rstrip('=')) * 3 // 4} bytes"


def _given(**fields: Any) -> Shown:
    return {name: value for name, value in fields.items() if value is not None}
