"""`mail client` and `mail chat`: the prompt for commands to a server, and for messages to its swarm."""

import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mail.cli.options import choose_server, on_server, server_url
from mail.cli.output import Output
from mail.cli.session import Session, exit_code
from mail.cli.values import Task
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.cli.repl.commands import Grammar
    from mail.cli.repl.shell import Read

LEVEL_VARIABLE = "MAIL_LOG_LEVEL"


class ClientCommand(click.Command):
    """A command line that explains how to run a command of the prompt: not as `mail client responses …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Raises click.BadParameter for a command of the prompt."""
        from mail.cli.repl.commands import PROMPT

        valued = {
            name for option in self.params if not getattr(option, "is_flag", False) for name in option.opts
        }
        for previous, word in zip(["", *args], args, strict=False):
            if word in PROMPT.words and previous not in valued and not ctx.resilient_parsing:
                raise click.BadParameter(
                    f"{word} is a command of the prompt: write mail client URL -c '{word} …', "
                    "or type it at the prompt of mail client URL",
                    ctx,
                )
        return super().parse_args(ctx, args)


@click.command(cls=ClientCommand)
@server_url
@click.option(
    "-c", "--command", multiple=True, metavar="LINE", help="Run this command and exit; may be repeated."
)
@click.option("--verbose", is_flag=True, help="Log requests to stderr.")
@on_server
def client(
    url: str | None, server: str | None, command: tuple[str, ...], output: Output, **connection: Any
) -> int:
    """Run commands on a server, typed at the prompt or piped in.

    `help` lists the commands. At the prompt, anything that is not a command is sent to the swarm.

    Exit codes: 3 a task has failed, 4 a task is paused.
    """
    from mail.cli.repl.commands import Grammar
    from mail.cli.repl.shell import PlainLines, is_interactive

    session = _session(choose_server(url, server), output=output, **connection)
    if not command and is_interactive():
        return _prompt(session, Grammar.MIXED)
    read = partial(next, iter(command), None) if command else PlainLines(sys.stdin).read
    return _run(session, read, Grammar.COMMANDS)


@click.command()
@server_url
@click.option(
    "--task-id",
    type=Task(may_be_new=True),
    metavar="TASK",
    help="The task to continue, or the id of a new one.",
)
@click.option("--continue", "continues", is_flag=True, help="Continue your last task.")
@on_server
def chat(
    url: str | None,
    server: str | None,
    task_id: str | None,
    continues: bool,
    output: Output,
    **connection: Any,
) -> int:
    """Chat with a swarm.

    What you type is sent to the swarm, which remembers the conversation. If an agent asks you something, type the
    answer. Commands begin with a slash: /help, /new, /tasks, /open TASK, /exit. In a pipe, each line is a message.

    Exit codes: 3 a task has failed, 4 a task is paused.
    """
    from mail.cli.repl.commands import Grammar
    from mail.cli.repl.shell import PlainLines, is_interactive

    session = _session(choose_server(url, server), output=output, **connection)
    session.slash = "/"
    if continues and task_id is not None:
        raise click.BadParameter("name the task with --task-id, or give --continue for the last one")
    task_id = "last" if continues else task_id
    if is_interactive():
        return _prompt(session, Grammar.CHAT, task_id)
    return _run(session, PlainLines(sys.stdin, Grammar.CHAT).read, Grammar.CHAT, task_id)


def _session(server: str | None, *, output: Output, **connection: Any) -> Session:
    from mail.cli.connection import connect

    mail_client = connect(server, **connection)
    _log(verbose=mail_client.config.verbose)
    return Session(mail_client, output)


def _prompt(session: Session, grammar: "Grammar", task_id: str | None = None) -> int:
    """Run the commands and messages typed at a terminal."""
    from mail.cli.repl.shell import Shell
    from mail.cli.repl.terminal import TerminalLines

    session.is_chat = True
    session.ask_key = _ask_key
    lines = TerminalLines(session, grammar)
    Shell(session, lines.read, grammar=grammar, errors=sys.stderr).run(greeting=True, task_id=task_id)
    return 0


def _run(session: Session, read: "Read", grammar: "Grammar", task_id: str | None = None) -> int:
    """Run the commands and messages of a pipe or a command line; return the exit code."""
    from mail.cli.repl.shell import Shell

    session.is_chat = grammar is not grammar.COMMANDS
    worked = Shell(session, read, grammar=grammar, errors=sys.stderr).run(task_id=task_id)
    return exit_code(session.memory.statuses.values()) if worked else 1


def _ask_key() -> str:
    from getpass import getpass

    return getpass("API key: ")


def _log(*, verbose: bool) -> None:
    """Log to stderr from the level MAIL_LOG_LEVEL up; by default warnings, with `verbose` also requests."""
    level = os.environ.get(LEVEL_VARIABLE, "").upper() or ("INFO" if verbose else "WARNING")
    if level not in logging.getLevelNamesMapping():
        raise ConfigurationError(
            f"{LEVEL_VARIABLE} must be one of DEBUG, INFO, WARNING and ERROR, not {level!r}"
        )
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("mail").setLevel(level)
