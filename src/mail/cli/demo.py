"""`mail demo`: a swarm answers a question, and one watches its mail."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.event_stream import read_events
from mail.cli.timeline import printer, read_line
from mail.errors import MAILError

if TYPE_CHECKING:
    import httpx

    from mail.config import ServerConfig

QUESTION = "weather in Tokyo and 12*(3+4)"

PATIENCE = 60.0
"""Seconds of silence after which something is wrong: the server sends a ping every 15."""

HOW_TO_GO_ON = """\
Go on:
  mail demo "ask a human: may I?"   another message; this one makes the swarm pause and ask back
  mail server                       a server of your own; README.md shows how to talk to it
"""


def demo(
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to ask the swarm.")] = QUESTION,
) -> None:
    """Start a server with the example swarm, send it a message, and show its events as they stream."""
    if not message.strip():
        raise typer.BadParameter("write a message", param_hint="MESSAGE")
    with tempfile.TemporaryDirectory(prefix="mail-demo-") as folder:
        asyncio.run(_demo(message, str(Path(folder) / "demo.db")))


async def _demo(message: str, database: str) -> None:
    import httpx

    from mail.bootstrap import local
    from mail.server import serving
    from mail.utils.callers import Caller
    from mail.utils.tokens import issue_token

    system = local(_config(database), environ={})
    token = await issue_token(system.records, Caller("user", "you"))
    async with serving(system) as url, httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        typer.echo(f"Swarm {system.swarm.name} ({', '.join(system.swarm.agents)}) listens on {url}")
        typer.echo(f"POST /message: {message}\n")
        (await client.get("/health")).raise_for_status()
        answer = await _ask(client, token, message)
    typer.echo(f"\nAnswer: {answer}\n\n{HOW_TO_GO_ON}", nl=False)


def _config(database: str) -> "ServerConfig":
    """The documented defaults with the packaged example, whatever the current folder configures."""
    from mail.config.models import AS_GIVEN, ServerConfig
    from mail.swarms_json.utils import PACKAGED_SOURCE

    defaults = ServerConfig.model_validate({}, context=AS_GIVEN)
    return defaults.with_overrides(database=database, swarm_source=str(PACKAGED_SOURCE))


async def _ask(client: "httpx.AsyncClient", token: str, message: str) -> str:
    """Send the message as any client would, show each event as it arrives, and return the answer."""
    show = printer(sys.stdout)
    sent = time.monotonic()
    request = {"body": message, "stream": True}
    headers = {"Authorization": f"Bearer {token}"}
    async with client.stream("POST", "/message", json=request, headers=headers) as response:
        if response.is_error:
            raise MAILError(f"POST /message: {response.status_code} {(await response.aread()).decode()}")
        async for kind, data in read_events(response.aiter_lines()):
            if kind == "ping":
                continue
            show(read_line(kind, data, time.monotonic() - sent))
            if "response" in data:
                return str(data["response"])
    raise MAILError("the stream ended without an answer")
