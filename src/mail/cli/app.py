"""Every command of `mail`. Those that perform an operation of a server come from the tables of their nouns."""

import argparse
import inspect
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from mail.cli import build, check, client, database, demo, init, local_aws, register, smoke, swarms, token, ui
from mail.cli.command import Argument, Command, Completes, Namespace
from mail.cli.completion import complete_agents, complete_tasks
from mail.cli.examples import epilog
from mail.cli.help import Commands, PlainCommand
from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerOption, Timeout
from mail.cli.output import Output, printable
from mail.cli.repl.commands import COMMANDS
from mail.cli.session import Session, exit_code
from mail.cli.version import version
from mail.server.__main__ import server

GROUPS = {
    "task": "List, show, watch, approve, cancel and fork your tasks.",
    "dead-letter": "Manage messages that could not be processed.",
    "webhook": "Manage webhooks for task events.",
}

METAVARS: dict[Callable[[str], Any], str] = {int: "NUMBER", float: "SECONDS"}

CONNECTION = {
    "server": (ServerOption, None),
    "api_key": (ApiKey, None),
    "timeout": (Timeout, None),
    "config": (ConfigPath, None),
    "as_json": (AsJson, False),
}
"""The options of every command that performs an operation: types and defaults."""


def _typer_command(command: Command) -> Callable[..., None]:
    """Return a function that performs a command, with the signature that typer reads options from."""

    def perform(**given: Any) -> None:
        import asyncio

        from mail.cli.connection import connect

        server, api_key, timeout, config, as_json = (given.pop(name) for name in CONNECTION)
        session = Session(
            connect(server, api_key, timeout=timeout, config=config),
            Output(sys.stdout, as_json),
            is_prompt=False,
        )

        async def run() -> int | None:
            async with session.client:
                return await command.run(session, Namespace(**given))

        try:
            code = asyncio.run(run())
        except KeyboardInterrupt:
            if session.waiting_for is not None:
                print(f"\nmail: {printable(session.stopped())}", file=sys.stderr)  # noqa: T201
            raise
        if code := code or exit_code(session.statuses.values()):
            raise typer.Exit(code)

    own = {argument.key: _typer_parameter(argument) for argument in command.arguments}
    kind = inspect.Parameter.KEYWORD_ONLY
    perform.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # typer's way to see options
        [
            inspect.Parameter(name, kind, annotation=annotation, default=default)
            for name, (annotation, default) in (own | CONNECTION).items()
        ]
    )
    return perform


def _parser(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser that raises typer's error for text that `read` refuses."""

    def parse(text: str) -> Any:
        try:
            return read(text)
        except argparse.ArgumentTypeError as error:
            raise typer.BadParameter(str(error)) from error

    return parse


def _typer_parameter(argument: Argument) -> tuple[Any, Any]:
    """Return the type of an argument as typer declares it, and the default."""
    kind: Any = argument.type if argument.type in (int, float) else str
    if argument.choices:
        enum: Any = StrEnum  # mypy would want literal members
        kind = enum("Choice", {choice: choice for choice in argument.choices})
    if argument.is_switch:
        kind = bool
    elif argument.repeats:
        kind = list[kind]
    settings: dict[str, Any] = {"help": argument.help}
    if argument.minimum is not None:
        settings |= {"min": argument.minimum, "max": argument.maximum}
    if argument.type not in (str, int, float):
        settings["parser"] = _parser(argument.type)
    if argument.metavar:
        settings["metavar"] = argument.metavar
    elif argument.is_flag and not argument.is_switch and not argument.choices:
        settings["metavar"] = METAVARS.get(argument.type, "TEXT")
    if argument.completes is Completes.TASK:
        settings["autocompletion"] = complete_tasks
    elif argument.completes is Completes.AGENT:
        settings["autocompletion"] = complete_agents
    if not argument.is_flag and argument.is_required:
        return Annotated[kind, typer.Argument(**settings)], inspect.Parameter.empty
    if argument.default is None:
        kind = kind | None
    if argument.is_flag:
        return Annotated[kind, typer.Option(*argument.names, **settings)], argument.default
    return Annotated[kind, typer.Argument(show_default=False, **settings)], argument.default


app = typer.Typer(
    name="mail",
    cls=Commands,
    help="Run swarms of agents that work by sending each other mail.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def options(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version, and exit.")] = False,
) -> None:
    """Handle the options that need no command."""


app.command("server", cls=PlainCommand, epilog=epilog("server"))(server)
app.command("client", cls=client.ClientCommand, epilog=epilog("client"))(client.client)
app.command("chat", cls=PlainCommand, epilog=epilog("chat"))(client.chat)
app.command("demo", cls=PlainCommand, epilog=epilog("demo"))(demo.demo)
app.command("init", cls=PlainCommand, epilog=epilog("init"))(init.init)
app.command("build", cls=PlainCommand, epilog=epilog("build"))(build.build)
app.command("local-aws", cls=PlainCommand, epilog=epilog("local-aws"))(local_aws.local_aws)
app.command("check", cls=PlainCommand, epilog=epilog("check"))(check.check)
app.command("ui", cls=PlainCommand, epilog=epilog("ui"))(ui.ui)
app.command("ping", cls=PlainCommand, epilog=epilog("ping"))(swarms.ping)
app.command("smoke", cls=PlainCommand, epilog=epilog("smoke"))(smoke.smoke)
app.command("version", cls=PlainCommand, epilog=epilog("version"))(version)
app.command("db-init", cls=PlainCommand, epilog=epilog("db-init"))(database.db_init)
app.command("db-import", cls=PlainCommand, epilog=epilog("db-import"))(database.db_import)
app.command("register", cls=PlainCommand, epilog=epilog("register"))(register.register)
app.add_typer(token.app, name="token")

_groups = {
    name: typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None) for name, text in GROUPS.items()
}
for _command in COMMANDS:
    if not _command.shell_name:
        continue
    _group, _, _name = _command.shell_name.rpartition(" ")
    _help = f"{_command.summary}\n\n{_command.details}".strip()
    _groups.get(_group, app).command(_name, cls=PlainCommand, help=_help, epilog=epilog(_command.shell_name))(
        _typer_command(_command)
    )
for _name, _app in _groups.items():
    app.add_typer(_app, name=_name)
