"""Actions: `mcp_list_servers`, `mcp_ping`, `mcp_list_tools`, `mcp_call_tool`, and those for resources and prompts.

Each call opens a connection and closes it: an action may run in any process, so no connection can be kept.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from mail.api.actions import action
from mail.core.protocol.error_text import missing_package
from mail.errors import ConfigurationError
from mail.mcp.servers import list_servers
from mail.mcp.sessions import SDK_MODULES
from mail.stdlib.arguments import Arguments
from mail.utils.outcomes import Timeout, as_json

if TYPE_CHECKING:
    from types import ModuleType


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
    return as_json(await _sdk().ping(request.server, request.timeout))


@action(read_only=True)
async def mcp_list_tools(request: ServerArguments) -> str:
    """List the tools of an MCP server. Returns JSON: tools, each with name, description and input_schema."""
    return as_json(await _sdk().list_tools(request.server, request.timeout))


@action
async def mcp_call_tool(request: CallTool) -> str:
    """Call a tool of an MCP server. Returns JSON: content and, if the tool returns it, structured_content."""
    called = _sdk().call_tool(request.server, request.timeout, request.tool, request.arguments or {})
    return as_json(await called)


@action(read_only=True)
async def mcp_list_resources(request: ServerArguments) -> str:
    """List the resources of an MCP server. Returns JSON: resources, each with uri and name, and templates of URIs."""
    return as_json(await _sdk().list_resources(request.server, request.timeout))


@action(read_only=True)
async def mcp_read_resource(request: ReadResource) -> str:
    """Read a resource of an MCP server. Returns JSON: contents, each with uri and text."""
    return as_json(await _sdk().read_resource(request.server, request.timeout, request.uri))


@action(read_only=True)
async def mcp_list_prompts(request: ServerArguments) -> str:
    """List the prompts of an MCP server. Returns JSON: prompts, each with name, description and arguments."""
    return as_json(await _sdk().list_prompts(request.server, request.timeout))


@action(read_only=True)
async def mcp_get_prompt(request: GetPrompt) -> str:
    """Get a prompt of an MCP server, filled in. Returns JSON: description and messages."""
    got = _sdk().get_prompt(request.server, request.timeout, request.prompt, request.arguments or {})
    return as_json(await got)


def _sdk() -> "ModuleType":
    """Import the module that needs the MCP SDK. Raises ConfigurationError if it is not installed."""
    try:
        from mail.stdlib.mcp import connection
    except ModuleNotFoundError as error:
        if error.name not in SDK_MODULES:
            raise
        raise ConfigurationError(f"MCP servers need {missing_package(error)}") from error
    return connection
