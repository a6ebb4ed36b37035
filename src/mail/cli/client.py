"""`mail client` and `mail chat`: the prompt for commands to a server, and for messages to its swarm."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mail.cli.completion import complete_tasks
from mail.cli.help import PlainCommand
from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerOption, ServerUrl, Timeout, choose_server
from mail.cli.output import Output
from mail.cli.session import Session, exit_code
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.cli.repl.commands import Grammar
    from mail.cli.repl.shell import Lines

LEVEL_VARIABLE = "MAIL_LOG_LEVEL"


class ClientCommand(PlainCommand):
    """A command line that explains how to run a command of the prompt: not as `mail client responses …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line. Raises typer.BadParameter for a command of the prompt."""
        from mail.cli.repl.commands import names

        known = names()
        valued = {
            name for option in self.params if not getattr(option, "is_flag", False) for name in option.opts
        }
        for previous, word in zip(["", *args], args, strict=False):
            if word in known and previous not in valued and not ctx.resilient_parsing:
                raise typer.BadParameter(
                    f"{word} is a command of the prompt: write mail client URL -c '{word} …', "
                    "or type it at the prompt of mail client URL",
                    ctx,
                )
        return super().parse_args(ctx, args)


def client(
    url: ServerUrl = None,
    server: ServerOption = None,
    api_key: ApiKey = None,
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="LINE", help="Run this command and exit; may be repeated."),
    ] = None,
    timeout: Timeout = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log requests to stderr.")] = False,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Run commands on a server, typed at the prompt or piped in.

    `help` lists the commands. At the prompt, anything that is not a command is sent to the swarm.

    Exit codes: 3 a task has failed, 4 a task is paused.
    """
    from mail.cli.repl.commands import Grammar
    from mail.cli.repl.shell import GivenLines, PlainLines, is_interactive

    session = _session(choose_server(url, server), api_key, timeout, config, as_json=as_json, verbose=verbose)
    if command is None and is_interactive():
        _prompt(session, Grammar.MIXED)
    else:
        _run(session, PlainLines(sys.stdin) if command is None else GivenLines(command), Grammar.COMMANDS)


def chat(
    url: ServerUrl = None,
    server: ServerOption = None,
    api_key: ApiKey = None,
    task_id: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="The task to continue, or the id of a new one.",
            autocompletion=complete_tasks,
        ),
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Chat with a swarm.

    What you type is sent to the swarm, which remembers the conversation. If an agent asks you something, type the
    answer. Commands begin with a slash: /help, /new, /tasks, /open TASK, /exit. In a pipe, each line is a message.

    Exit codes: 3 a task has failed, 4 a task is paused.
    """
    from mail.cli.repl.commands import Grammar
    from mail.cli.repl.shell import PlainLines, is_interactive

    session = _session(choose_server(url, server), api_key, timeout, config, as_json=as_json, verbose=False)
    session.slash = "/"
    if is_interactive():
        _prompt(session, Grammar.CHAT, task_id)
    else:
        _run(session, PlainLines(sys.stdin, Grammar.CHAT), Grammar.CHAT, task_id)


def _session(
    server: str | None,
    api_key: str | None,
    timeout: float | None,
    config: Path | None,
    *,
    as_json: bool,
    verbose: bool,
) -> Session:
    from mail.cli.connection import connect

    mail_client = connect(server, api_key, timeout=timeout, verbose=verbose, config=config)
    _log(verbose=mail_client.config.verbose)
    return Session(mail_client, Output(sys.stdout, as_json))


def _prompt(session: Session, grammar: "Grammar", task_id: str | None = None) -> None:
    """Run the commands and messages typed at a terminal."""
    from mail.cli.repl.shell import Shell
    from mail.cli.repl.terminal import TerminalLines

    session.is_chat = True
    lines = TerminalLines(session, grammar)
    shell = Shell(session, lines, grammar=grammar, ask=_ask_key, errors=sys.stderr)
    shell.run(greeting=True, task_id=task_id)


def _run(session: Session, lines: "Lines", grammar: "Grammar", task_id: str | None = None) -> None:
    """Run the commands and messages of a pipe or a command line."""
    from mail.cli.repl.shell import Shell

    session.is_chat = grammar is not grammar.COMMANDS
    worked = Shell(session, lines, grammar=grammar, errors=sys.stderr).run(task_id=task_id)
    if code := exit_code(session.statuses.values()) if worked else 1:
        raise typer.Exit(code)


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
