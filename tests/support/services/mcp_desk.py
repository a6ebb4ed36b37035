"""An MCP server, written with the SDK: `python mcp_desk.py` speaks over stdio, `serving` over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(92)


class Sum(BaseModel):
    total: int
    parts: list[int]


def desk() -> MCPServer:
    """Return a new server."""
    server = MCPServer("desk", version="7.1", instructions="Use the tools.", log_level="ERROR")

    @server.tool(description="Add whole numbers.")
    def add(a: Annotated[int, Field(description="One of them")], b: int) -> Sum:
        return Sum(total=a + b, parts=[a, b])

    @server.tool(structured_output=False)
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool(structured_output=False)
    async def slow(seconds: float) -> str:
        """Take a while."""
        await asyncio.sleep(seconds)
        return "at last"

    @server.tool()
    def note(text: str) -> str:
        """Write something down."""
        return "noted"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def look(text: str) -> str:
        """Look something up."""
        return f"all about {text}"

    @server.tool(name="files.read/one")
    def read_one() -> Image:
        """Read a picture."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    def fail(reason: str) -> str:
        """Fail for a reason."""
        raise ToolError(f"no luck: {reason}")

    @server.tool(structured_output=False)
    def trace(context: Context) -> str:
        """Return the trace that the call belongs to."""
        return str((context.request_context.meta or {}).get("traceparent"))

    @server.tool(structured_output=False)
    def trace_header(context: Context) -> str:
        """Return the trace that the HTTP request belongs to."""
        request = context.request_context.request
        return str(request.headers.get("traceparent")) if isinstance(request, Request) else "no request"

    @server.tool()
    async def grow(context: Context) -> str:
        """Get another tool."""
        server.add_tool(lambda: "bloom", name="flower", description="Bloom.")
        await context.notify_tools_changed()
        return "grown"

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

    return server


@asynccontextmanager
async def serving(server: MCPServer, port: int = 0) -> AsyncIterator[str]:
    """The URL of the server over streamable HTTP. It runs in a task of its own, for the SDK's task groups."""
    from support.processes.http_server import QuickUvicorn

    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    is_over = asyncio.Event()

    async def serve() -> None:
        app = server.streamable_http_app()
        async with app.router.lifespan_context(app), QuickUvicorn(app, port=port) as http:
            url.set_result(f"{http.url}/mcp")
            await is_over.wait()
            for connection in list(http.server_state.connections):  # clients keep one open for notifications
                connection.transport.abort()

    running = asyncio.create_task(serve())
    try:
        yield await url
    finally:
        is_over.set()
        await running


@asynccontextmanager
async def refusing(message: str) -> AsyncIterator[str]:
    """The URL of a server that answers every request with an error of this text."""
    from support.processes.http_server import QuickUvicorn

    async def answer(request: Request) -> JSONResponse:
        asked = json.loads(await request.body() or b"{}")
        error = {"code": -32000, "message": message}
        return JSONResponse({"jsonrpc": "2.0", "id": asked.get("id"), "error": error})

    async with QuickUvicorn(Starlette(routes=[Route("/mcp", answer, methods=["POST"])])) as http:
        yield f"{http.url}/mcp"


if __name__ == "__main__":
    desk().run()
