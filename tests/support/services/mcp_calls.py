"""The client that MCP's conformance suite tests: a program that calls each tool of the server at a URL."""

import asyncio
import sys
from typing import Any

from mail.mcp.servers import MCPServer, ToolServer
from mail.mcp.sessions import Sessions

ARGUMENTS: dict[str, dict[str, Any]] = {"add_numbers": {"a": 2, "b": 3}}
"""Arguments of the suite's tools."""


async def call_all(url: str) -> None:
    sessions = Sessions()
    session = sessions.get(ToolServer("suite", MCPServer(url=url)))
    listing = await session.listing()
    if listing.problem:
        raise SystemExit(listing.problem)
    for tool in listing.tools:
        print(await session.call(tool.name, ARGUMENTS.get(tool.name, {}), idempotent=False))
    await sessions.aclose()


if __name__ == "__main__":
    asyncio.run(call_all(sys.argv[1]))
