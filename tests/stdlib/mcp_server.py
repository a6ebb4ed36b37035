"""An MCP server for tests, written with the SDK: `python mcp_server.py` speaks over stdio, `app()` is an ASGI
application.
"""

import asyncio
from typing import Annotated

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field
from starlette.applications import Starlette

PIXEL = b"\x89PNG" + bytes(96)

server = MCPServer("toolbox", version="7.1", instructions="Use the tools.", log_level="ERROR")
calls: list[str] = []
"""What `remember` was told, in this process."""


class Sum(BaseModel):
    total: int
    parts: list[int]


@server.tool(description="Add whole numbers.")
def add(a: Annotated[int, Field(description="One of them")], b: int) -> Sum:
    return Sum(total=a + b, parts=[a, b])


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool(structured_output=False)
def remember(text: str) -> str:
    """Keep it."""
    calls.append(text)
    return "kept"


@server.tool()
def fail(reason: str) -> str:
    """Fail for a reason."""
    raise ToolError(f"no luck: {reason}")


@server.tool(structured_output=False)
def picture() -> Image:
    """A picture."""
    return Image(data=PIXEL, format="png")


@server.tool(structured_output=False)
async def slow(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "at last"


@server.resource("notes://today", mime_type="text/plain", description="What is up today.")
def today() -> str:
    return "Buy tea."


@server.resource("notes://icon", mime_type="image/png")
def icon() -> bytes:
    return PIXEL


@server.resource("notes://{day}/list")
def list_of(day: str) -> str:
    return f"The list of {day}."


@server.prompt(description="Ask for a poem.")
def poem(subject: str, tone: str = "merry") -> str:
    return f"Write a {tone} poem on {subject}."


def app() -> Starlette:
    """The server over streamable HTTP, at /mcp."""
    return server.streamable_http_app()


if __name__ == "__main__":
    server.run()
