"""The swarm as a server of the Model Context Protocol (MCP), for assistants and coding agents.

- `tools`      the tools that a client gets: one for each entrypoint, and those that look after tasks
- `calls`      what a call of one does to the caller's tasks
- `content`    a run as the content of a result, and its questions as forms; files in both directions
- `tasks`      the Tasks extension: runs as tasks that a client follows
- `resources`  the caller's tasks and their files
- `server`     the SDK's server of both generations of the protocol, without sessions

Everything that is stored is the runtime's. `mail.http.routes.mcp` imports this package, and with it the SDK, for the
first request.
"""
