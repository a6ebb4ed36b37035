"""`/a2a`, `/mcp` and `/v1` behind a function URL: A2A, MCP and OpenAI's APIs choose in the body whether they stream.

The SDKs of A2A and MCP are in a layer of this function alone; the first request of each imports its own.
"""

from handlers.function_url import serve
from mail.http.routes import a2a, health, mcp, openai, shared_files

app = serve(health.router, a2a.router, mcp.router, openai.router, shared_files.router)
