"""Commands that run in the process of the test, on a server in it."""

import asyncio

from click.testing import CliRunner, Result

from mail.cli.app import app
from support.processes.http_server import HTTPServer


async def mail(server: HTTPServer, *arguments: str, role: str = "user") -> Result:
    """Run a command on a server, with the key of a role."""
    options = ("--server", server.uvicorn.url, "--api-key", server.keys[role])
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *options])
