"""`mail demo`: a swarm that answers a question, and the mail of its agents."""

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mail.cli.options import as_json, run
from mail.cli.output import Output
from mail.cli.program import program
from mail.cli.views.events import show_stream
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.config import ServerConfig

QUESTION = "weather in Tokyo and 12*(3+4)"

TIMEOUT = 60.0
"""Seconds to wait for the stream to begin."""

NEXT_STEPS = """\
Next:
  {mail} demo "ask a human: may I?"     the swarm pauses and asks back
  {mail} server                         run a server, with a page in the browser
  {mail} chat                           in another terminal: chat with the swarm
  {mail} init my-swarm                  create a project of your own, with a language model or without
"""


@click.command()
@click.argument("message", default=QUESTION, help=f"The message for the swarm. [default: {QUESTION}]")
@as_json
def demo(message: str, output: Output) -> None:
    """Ask the example swarm something, and show its events.

    A server with a temporary database runs for as long as this takes.
    """
    if not message.strip():
        raise click.BadParameter("write a message", param_hint="MESSAGE")
    with tempfile.TemporaryDirectory(prefix="mail-demo-") as folder:
        run(_demo(message, str(Path(folder) / "demo.db"), output))


async def _demo(message: str, database: str, output: Output) -> None:
    from mail.auth.keys import Caller
    from mail.auth.tokens import issue_token
    from mail.bootstrap import local
    from mail.client import MAILClient
    from mail.config import ClientConfig
    from mail.server.process import serving

    system = local(_config(database), environ={})
    token = await issue_token(system.documents, Caller("user", "you"))
    config = ClientConfig.model_validate({"timeout": TIMEOUT})
    async with serving(system) as url, MAILClient(url, token, config=config) as client:
        if not output.as_json:
            output.text(f"Swarm {system.swarm.name} ({', '.join(system.swarm.agents)}) listens on {url}")
            output.text(f"POST /message: {message}\n")
        stream = await client.post_message_stream(message, live=output.is_terminal, items=True)
        shown = await show_stream(client, stream, output)
    if shown.answer is None:
        raise MAILError("the stream ended without an answer")
    if not output.as_json:
        for question in shown.questions:
            output.text(f"\n{question}", style="bold")
        if shown.questions:
            output.text(_answer_steps(message))
        output.text(f"\n{_aligned(NEXT_STEPS.format(mail=program()))}".rstrip("\n"))


def _answer_steps(message: str) -> str:
    mail = program()
    return (
        "The task waits for the answer. This server ends with the demo; on a mail server, run\n"
        f"  {mail} send {_quoted(message)} --task-id asked\n"
        f'  {mail} reply asked "your answer"'
    )


def _quoted(text: str) -> str:
    """Return a text in double quotes if a shell reads it unchanged there."""
    return shlex.quote(text) if any(each in text for each in '"$`\\!') else f'"{text}"'


def _aligned(steps: str) -> str:
    """Align the explanations of steps, however long the name of the program is."""
    rows = [line.rpartition("   ") for line in steps.splitlines()]
    width = max(len(command.rstrip()) for command, gap, _ in rows if gap)
    return "\n".join(f"{command.rstrip():<{width}}   {what}" if gap else what for command, gap, what in rows)


def _config(database: str) -> "ServerConfig":
    """Return the default configuration with the example swarm, without the current folder's configuration."""
    from mail.config.models import ServerConfig
    from mail.swarms_json.load import PACKAGED_SOURCE

    defaults = ServerConfig.model_validate({})
    return defaults.with_overrides(database=database, swarm_source=str(PACKAGED_SOURCE))
