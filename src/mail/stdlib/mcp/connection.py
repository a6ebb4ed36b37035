"""The requests that agents make to MCP servers, each over a connection of its own.

Imports the MCP SDK, so this module is itself imported by the first call that needs it.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Any

import anyio
from mcp import Client, MCPError
from mcp_types import METHOD_NOT_FOUND

from mail.mcp.connection import CONNECTION_ERRORS, connect, read_pages, reason_of
from mail.mcp.results import (
    Shown,
    show_listing,
    show_prompt,
    show_resource,
    show_tool_error,
    show_tool_result,
)
from mail.mcp.servers import find_server
from mail.utils.outcomes import ActionFailed, cut, seconds_left

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
        pages, is_partial = await read_pages(lambda cursor: client.list_tools(cursor=cursor))
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
        raise ActionFailed(f"the tool {tool} of MCP server {server}: {show_tool_error(result)}")
    return show_tool_result(result)


async def list_resources(server: str, timeout: float) -> Shown:
    """List the server's resources and resource templates."""

    async def work(client: Client) -> Shown:
        pages, is_partial = await read_pages(lambda cursor: client.list_resources(cursor=cursor))
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
        pages, is_partial = await read_pages(lambda cursor: client.list_prompts(cursor=cursor))
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
        pages, _ = await read_pages(lambda cursor: client.list_resource_templates(cursor=cursor))
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:
            return []
        raise
    return [
        {"uri_template": each.uri_template, **_described(each.name, each.title, each.description)}
        for page in pages
        for each in page.resource_templates
    ]


def _described(name: str, title: str | None, description: str | None, **more: Any) -> Shown:
    fields = {
        "name": name,
        "title": title,
        "description": cut(description, MAX_TEXT) if description else None,
        **more,
    }
    return {key: value for key, value in fields.items() if value is not None}


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
                return await work(await connect(server, stack))
    except CONNECTION_ERRORS as error:
        raise ActionFailed(f"MCP server {name}: {reason_of(error, server, seconds)}") from error
