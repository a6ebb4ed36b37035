"""What agents may ask of an MCP server, over the MCP SDK. Imported by the first call that needs it."""

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from mcp import Client, MCPError
from mcp_types import METHOD_NOT_FOUND, PaginatedResult

from mail.stdlib.mcp import contents
from mail.stdlib.mcp.connection import MAX_PROBLEM, ask
from mail.stdlib.mcp.contents import Shown
from mail.stdlib.mcp.servers import find_server
from mail.stdlib.outcomes import ActionFailed, cut

MAX_PAGES = 20
"""Pages of a listing that are asked for."""

MAX_TEXT = 4000
"""Characters of a description or of instructions that are shown."""


async def ping(server: str, timeout: float) -> Shown:
    """Who the server is. A handshake is enough to tell: the protocol's own ping is gone since 2026-07-28."""
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

    return await ask(find_server(server), server, timeout, work)


async def list_tools(server: str, timeout: float) -> Shown:
    """The server's tools."""

    async def work(client: Client) -> Shown:
        pages, is_partial = await _pages(lambda cursor: client.list_tools(cursor=cursor))
        tools = (
            _described(tool.name, tool.title, tool.description, input_schema=tool.input_schema)
            for page in pages
            for tool in page.tools
        )
        return contents.listing("tools", tools, is_partial=is_partial)

    return await ask(find_server(server), server, timeout, work)


async def call_tool(server: str, timeout: float, tool: str, arguments: dict[str, Any]) -> Shown:
    """What a tool returns. Raises ActionFailed with its own words where it says that it has failed."""
    result = await ask(find_server(server), server, timeout, lambda client: client.call_tool(tool, arguments))
    if result.is_error:
        raise ActionFailed(
            f"the tool {tool} of MCP server {server}: {cut(contents.tool_error(result), MAX_PROBLEM)}"
        )
    return contents.tool_result(result)


async def list_resources(server: str, timeout: float) -> Shown:
    """The server's resources, and the templates of others."""

    async def work(client: Client) -> Shown:
        pages, is_partial = await _pages(lambda cursor: client.list_resources(cursor=cursor))
        resources = (
            {"uri": each.uri, **_described(each.name, each.title, each.description, mime_type=each.mime_type)}
            for page in pages
            for each in page.resources
        )
        shown = contents.listing("resources", resources, is_partial=is_partial)
        if templates := await _templates(client):
            shown |= contents.listing("templates", templates, is_partial=bool(shown.get("is_partial")))
        return shown

    return await ask(find_server(server), server, timeout, work)


async def read_resource(server: str, timeout: float, uri: str) -> Shown:
    """What is in a resource."""
    read = await ask(find_server(server), server, timeout, lambda client: client.read_resource(uri))
    return contents.resource(read)


async def list_prompts(server: str, timeout: float) -> Shown:
    """The server's prompts."""

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
        return contents.listing("prompts", prompts, is_partial=is_partial)

    return await ask(find_server(server), server, timeout, work)


async def get_prompt(server: str, timeout: float, prompt: str, arguments: dict[str, str]) -> Shown:
    """A prompt, filled in."""
    filled = await ask(
        find_server(server), server, timeout, lambda client: client.get_prompt(prompt, arguments)
    )
    return contents.prompt(filled)


async def _templates(client: Client) -> list[Shown]:
    """The templates of resources; not all servers know the question."""
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
    """The pages of a listing, and whether there are more."""
    pages = [await get(None)]
    while (cursor := pages[-1].next_cursor) is not None:
        if len(pages) == MAX_PAGES:
            return pages, True
        pages.append(await get(cursor))
    return pages, False


def _described(name: str, title: str | None, description: str | None, **others: Any) -> Shown:
    fields = {
        "name": name,
        "title": title,
        "description": cut(description, MAX_TEXT) if description else None,
        **others,
    }
    return {key: value for key, value in fields.items() if value is not None}
