"""`mail client`: the prompt for commands to a server."""

import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerUrl, Timeout
from mail.cli.output import Output
from mail.cli.session import Session, exit_code
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.cli.repl.shell import Lines

LEVEL_VARIABLE = "MAIL_LOG_LEVEL"


class ClientCommand(TyperCommand):
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
    url: ServerUrl,
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
    """Connect to a server: type commands at the prompt, or pipe them in. `help` lists them.

    Exit codes: 3 a task has failed, 4 a task is paused.
    """
    from mail.cli.connection import connect
    from mail.cli.repl.shell import GivenLines, PlainLines, Shell, is_interactive

    mail_client = connect(url, api_key, timeout=timeout, verbose=verbose, config=config)
    _log(verbose=mail_client.config.verbose)
    session = Session(mail_client, Output(sys.stdout, as_json))
    if command is None and is_interactive():
        Shell(session, _terminal(session), ask=_ask_key, errors=sys.stderr).run(greeting=True)
        return
    lines: Lines = PlainLines(sys.stdin) if command is None else GivenLines(command)
    worked = Shell(session, lines, errors=sys.stderr).run()
    if code := exit_code(session.statuses.values()) if worked else 1:
        raise typer.Exit(code)


def _terminal(session: "Session") -> "Lines":
    from mail.cli.repl.terminal import TerminalLines

    return TerminalLines(session)


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
