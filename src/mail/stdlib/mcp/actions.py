"""Actions: `mcp_list_servers`, `mcp_ping`, `mcp_list_tools`, `mcp_call_tool`, and those for resources and prompts.

Each call opens a connection and closes it: an action may run in any process, so no connection can be kept.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from mail.api.actions import action
from mail.core.protocol.error_text import missing_package
from mail.errors import ConfigurationError
from mail.mcp.servers import list_servers
from mail.mcp.sessions import SDK_MODULES
from mail.stdlib.arguments import Arguments
from mail.utils.outcomes import ActionFailed, Timeout, as_json

if TYPE_CHECKING:
    from types import ModuleType

    from mcp import Client

__all__ = [
    "mcp_call_tool",
    "mcp_get_prompt",
    "mcp_list_prompts",
    "mcp_list_resources",
    "mcp_list_servers",
    "mcp_list_tools",
    "mcp_ping",
    "mcp_read_resource",
]


class ServerArguments(Arguments):
    """The arguments of all actions in this module except `mcp_list_servers`."""

    also_named: ClassVar = {
        "server_url": "server",
        "tool_name": "tool",
        "tool_input": "arguments",
        "resource_uri": "uri",
        "prompt_name": "prompt",
        "prompt_arguments": "arguments",
    }

    server: str = Field(
        min_length=1,
        max_length=2048,
        description="The MCP server: a name from mcp_list_servers, or the URL of a streamable HTTP endpoint.",
    )
    timeout: Timeout = 60.0


class CallTool(ServerArguments):
    """The arguments of `mcp_call_tool`."""

    tool: str = Field(
        min_length=1,
        description="The tool's name, from mcp_list_tools.",
    )
    arguments: dict[str, Any] | None = Field(
        default=None,
        description="The tool's arguments, as described by its input_schema.",
    )


class ReadResource(ServerArguments):
    """The arguments of `mcp_read_resource`."""

    uri: str = Field(
        min_length=1,
        description="The resource's URI, from mcp_list_resources.",
    )


class GetPrompt(ServerArguments):
    """The arguments of `mcp_get_prompt`."""

    prompt: str = Field(
        min_length=1,
        description="The prompt's name, from mcp_list_prompts.",
    )
    arguments: dict[str, str] | None = Field(
        default=None,
        description="The prompt's arguments.",
    )


@action(read_only=True)
def mcp_list_servers() -> str:
    """List the configured MCP servers. Returns JSON: servers, by name."""
    return as_json({"servers": list_servers()})


@action(read_only=True)
async def mcp_ping(request: ServerArguments) -> str:
    """Connect to an MCP server. Returns JSON: latency in seconds, protocol_version, name, version, capabilities."""
    begin = perf_counter()
    async with _client(request) as (client, sdk):
        return as_json(sdk.show_info(client, perf_counter() - begin))


@action(read_only=True)
async def mcp_list_tools(request: ServerArguments) -> str:
    """List the tools of an MCP server. Returns JSON: tools, each with name, description and input_schema."""
    async with _client(request) as (client, sdk):
        return as_json(await sdk.show_all(client, "tools"))


@action
async def mcp_call_tool(request: CallTool) -> str:
    """Call a tool of an MCP server. Returns JSON: content and, if the tool returns it, structured_content."""
    async with _client(request) as (client, sdk):
        result = await client.call_tool(request.tool, request.arguments or {})
    if result.is_error:
        problem = sdk.results.show_tool_error(result)
        raise ActionFailed(f"the tool {request.tool} of MCP server {request.server}: {problem}")
    return as_json(sdk.results.show_tool_result(result))


@action(read_only=True)
async def mcp_list_resources(request: ServerArguments) -> str:
    """List the resources of an MCP server. Returns JSON: resources, each with uri and name, and templates of URIs."""
    async with _client(request) as (client, sdk):
        return as_json(await sdk.show_all(client, "resources") | await sdk.show_templates(client))


@action(read_only=True)
async def mcp_read_resource(request: ReadResource) -> str:
    """Read a resource of an MCP server. Returns JSON: contents, each with uri and text."""
    async with _client(request) as (client, sdk):
        return as_json(sdk.results.show_resource(await client.read_resource(request.uri)))


@action(read_only=True)
async def mcp_list_prompts(request: ServerArguments) -> str:
    """List the prompts of an MCP server. Returns JSON: prompts, each with name, description and arguments."""
    async with _client(request) as (client, sdk):
        return as_json(await sdk.show_all(client, "prompts"))


@action(read_only=True)
async def mcp_get_prompt(request: GetPrompt) -> str:
    """Get a prompt of an MCP server, filled in. Returns JSON: description and messages."""
    async with _client(request) as (client, sdk):
        return as_json(
            sdk.results.show_prompt(await client.get_prompt(request.prompt, request.arguments or {}))
        )


@asynccontextmanager
async def _client(request: ServerArguments) -> "AsyncIterator[tuple[Client, ModuleType]]":
    """Connect to a server, by the module that needs the MCP SDK. Raises ConfigurationError if it is not installed."""
    try:
        from mail.stdlib.mcp import connection
    except ModuleNotFoundError as error:
        if error.name not in SDK_MODULES:
            raise
        raise ConfigurationError(f"MCP servers need {missing_package(error)}") from error
    async with connection.open_client(request.server, request.timeout) as client:
        yield client, connection
