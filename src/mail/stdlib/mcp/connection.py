"""The connections over which agents call MCP servers, one for each call, and the listings of a server.

Imports the MCP SDK, so this module is itself imported by the first call that needs it.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Literal

import anyio
from mcp import Client, MCPError
from mcp_types import METHOD_NOT_FOUND

from mail.mcp import results
from mail.mcp.connection import CONNECTION_ERRORS, connect, read_pages, reason_of
from mail.mcp.servers import find_server
from mail.utils.outcomes import ActionFailed, cut, seconds_left

MAX_TEXT = 4000
"""Characters of a description or of instructions that an agent sees."""

Listed = Literal["tools", "resources", "resource_templates", "prompts"]

_NAMES = ("name", "title", "description")
_FIELDS: Mapping[Listed, tuple[str, ...]] = MappingProxyType(
    {
        "tools": (*_NAMES, "input_schema"),
        "resources": ("uri", *_NAMES, "mime_type"),
        "resource_templates": ("uri_template", *_NAMES),
        "prompts": (*_NAMES, "arguments"),
    }
)
"""What an agent sees of each item of a listing."""


@asynccontextmanager
async def open_client(name: str, timeout: float) -> AsyncIterator[Client]:
    """Connect to the server of this name or URL.

    Raises ActionFailed if the server can't be reached, refuses, or takes longer than `timeout` seconds.
    """
    server = find_server(name)
    seconds = seconds_left(timeout)
    try:
        with anyio.fail_after(seconds):
            async with AsyncExitStack() as stack:
                yield await connect(server, stack)
    except CONNECTION_ERRORS as error:
        raise ActionFailed(f"MCP server {name}: {reason_of(error, server, seconds)}") from error


def show_info(client: Client, latency: float) -> results.Shown:
    """Return the server's description. The handshake suffices: version 2026-07-28 of the protocol removed `ping`."""
    info = client.server_info
    return {
        "latency": round(latency, 3),
        "protocol_version": client.protocol_version,
        "name": info.name if info else None,
        "version": info.version if info else None,
        "capabilities": sorted(client.server_capabilities.model_dump(by_alias=True, exclude_none=True)),
        "instructions": cut(client.instructions, MAX_TEXT) if client.instructions else None,
    }


async def show_all(client: Client, kind: Listed, shown_as: str = "") -> results.Shown:
    """List what the server has of a kind, under the name of the kind or another one."""
    method = getattr(client, f"list_{kind}")
    pages, is_partial = await read_pages(lambda cursor: method(cursor=cursor))
    found = (each for page in pages for each in getattr(page, kind))
    items = (each.model_dump(include=set(_FIELDS[kind]), exclude_none=True) for each in found)
    return results.show_listing(shown_as or kind, map(_shortened, items), is_partial=is_partial)


async def show_templates(client: Client) -> results.Shown:
    """List the templates of resources; nothing if there are none, or the server doesn't support them."""
    try:
        shown = await show_all(client, "resource_templates", "templates")
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:
            return {}
        raise
    return shown if shown["templates"] else {}


def _shortened(item: results.Shown) -> results.Shown:
    return {**item, "description": cut(item["description"], MAX_TEXT)} if "description" in item else item
