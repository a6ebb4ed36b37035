"""`mail client`: talk to a server, line by line."""

import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerUrl, Timeout
from mail.cli.output import Output
from mail.cli.status import exit_code
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.cli.repl.session import Session
    from mail.cli.repl.shell import Lines

LEVEL_VARIABLE = "MAIL_LOG_LEVEL"


class ClientCommand(TyperCommand):
    """A command line that knows how one of the client's commands is performed: not as `mail client responses …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises typer.BadParameter, and whatever else is wrong with a command line."""
        from mail.cli.repl.commands import names

        known = names()
        valued = {
            name for option in self.params if not getattr(option, "is_flag", False) for name in option.opts
        }
        for before, word in zip(["", *args], args, strict=False):
            if word in known and before not in valued and not ctx.resilient_parsing:
                raise typer.BadParameter(
                    f"{word} is a command of the client: write mail client URL -c '{word} …', "
                    "or type it at the prompt of mail client URL",
                    ctx,
                )
        return super().parse_args(ctx, args)


def client(
    url: ServerUrl,
    api_key: ApiKey = None,
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="LINE", help="Perform this and leave; may be repeated."),
    ] = None,
    timeout: Timeout = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log requests to stderr.")] = False,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Talk to a server: type commands, or pipe them in. `help` lists them.

    The exit code tells how tasks have ended: 3 failed, 4 paused.
    """
    from mail.cli.connecting import connect
    from mail.cli.repl.session import Session
    from mail.cli.repl.shell import GivenLines, PlainLines, Shell, is_attended

    mail_client = connect(url, api_key, timeout=timeout, verbose=verbose, config=config)
    _log(verbose=mail_client.config.verbose)
    session = Session(mail_client, Output(sys.stdout, as_json))
    if command is None and is_attended():
        Shell(session, _terminal(session), ask=_ask_key, errors=sys.stderr).run(greet=True)
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
    """Log to stderr: warnings, requests where `verbose`, or from the level on that MAIL_LOG_LEVEL names."""
    level = os.environ.get(LEVEL_VARIABLE, "").upper() or ("INFO" if verbose else "WARNING")
    if level not in logging.getLevelNamesMapping():
        raise ConfigurationError(
            f"{LEVEL_VARIABLE}: {level!r} is no level; use DEBUG, INFO, WARNING or ERROR"
        )
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("mail").setLevel(level)
