"""A2A, AG-UI, MCP and OpenAI's APIs behind a function URL, as they choose in the body of a request whether to stream.

Their SDKs are in a layer of this function alone; the first request of each protocol imports its own.
"""

from handlers.function_url import serve
from mail.http.routes import a2a, agui, health, mcp, openai, shared_files

app = serve(health.router, a2a.router, agui.router, mcp.router, openai.router, shared_files.router)
