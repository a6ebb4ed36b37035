"""The client side of the Model Context Protocol: servers, connections, and their tools as tools of an agent.

Nothing here imports the MCP SDK before a server is needed.
"""

TASKS = "io.modelcontextprotocol/tasks"
"""The extension of MCP by which a call is answered with a task."""
