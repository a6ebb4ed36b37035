"""`mail demo`: a swarm that answers a question, and the mail of its agents."""

import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.options import AsJson
from mail.cli.output import Output
from mail.cli.session import Status, answer_line, client_command, program
from mail.cli.views.events import show_answer, show_stream
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.config import ServerConfig

QUESTION = "weather in Tokyo and 12*(3+4)"

TIMEOUT = 60.0
"""Seconds to wait for the stream to begin."""

NEXT_STEPS = """\
Next:
  {mail} demo "ask a human: may I?"     the swarm pauses and asks back
  {mail} server                         run a server; it prints a token for "user"
  {mail} client http://localhost:8000 --api-key TOKEN       send it messages, from another terminal
  {mail} init my-swarm                  create a project of your own, with a language model or without
"""


def demo(
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="The message for the swarm.")] = QUESTION,
    as_json: AsJson = False,
) -> None:
    """Start a server with the example swarm, send it a message, and show its events as they stream."""
    import asyncio

    if not message.strip():
        raise typer.BadParameter("write a message", param_hint="MESSAGE")
    with tempfile.TemporaryDirectory(prefix="mail-demo-") as folder:
        asyncio.run(_demo(message, str(Path(folder) / "demo.db"), Output(sys.stdout, as_json)))


async def _demo(message: str, database: str, output: Output) -> None:
    from mail.auth.keys import Caller
    from mail.auth.tokens import issue_token
    from mail.bootstrap import local
    from mail.client import MAILClient
    from mail.config import ClientConfig
    from mail.config.models import AS_GIVEN
    from mail.server.uvicorn import serving

    system = local(_config(database), environ={})
    token = await issue_token(system.documents, Caller("user", "you"))
    config = ClientConfig.model_validate({"timeout": TIMEOUT}, context=AS_GIVEN)
    async with serving(system) as url, MAILClient(url, token, config=config) as client:
        if not output.as_json:
            output.text(f"Swarm {system.swarm.name} ({', '.join(system.swarm.agents)}) listens on {url}")
            output.text(f"POST /message: {message}\n")
        shown = await show_stream(
            client, await client.post_message_stream(message, live=output.is_terminal), output
        )
    if shown.answer is None:
        raise MAILError("the stream ended without an answer")
    if not output.as_json:
        show_answer(shown, output)
        if shown.status is Status.PAUSED:
            output.text(_answer_steps(message))
        output.text(f"\n{NEXT_STEPS.format(mail=program())}".rstrip("\n"))


def _answer_steps(message: str) -> str:
    message_line = shlex.join(["message", message, "--task-id", "asked"])
    command = client_command("http://localhost:8000", message_line, answer_line("asked"))
    return (
        "The task waits for the results of these calls. This server ends with the demo; on a mail server, run\n"
        f"  MAIL_API_KEY=TOKEN {command}"
    )


def _config(database: str) -> "ServerConfig":
    """Return the default configuration with the example swarm, without the current folder's configuration."""
    from mail.config.models import AS_GIVEN, ServerConfig
    from mail.swarms_json.load import PACKAGED_SOURCE

    defaults = ServerConfig.model_validate({}, context=AS_GIVEN)
    return defaults.with_overrides(database=database, swarm_source=str(PACKAGED_SOURCE))
