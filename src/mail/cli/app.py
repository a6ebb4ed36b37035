"""Every command of `mail`. Those that perform an operation of a server come from the tables of their nouns."""

import sys
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from mail.cli.command import Command, Group
from mail.cli.examples import epilog
from mail.cli.options import on_server
from mail.cli.output import Output

SECTIONS = {
    "Start": {
        "demo": "mail.cli.demo",
        "init": "mail.cli.init",
        "check": "mail.cli.check",
        "server": "mail.server.__main__",
        "ping": "mail.cli.swarms",
    },
    "Talk to a swarm": {
        "chat": "mail.cli.client",
        "send": "mail.cli.conversation",
        "reply": "mail.cli.conversation",
        "agents": "mail.cli.swarms",
        "ui": "mail.cli.ui",
        "mcp": "mail.cli.mcp",
        "client": "mail.cli.client",
    },
    "Follow its work": {
        "task": "mail.cli.tasks",
        "thread": "mail.cli.threads",
        "inbox": "mail.cli.inbox",
        "approvals": "mail.cli.approvals",
        "usage": "mail.cli.usage",
        "file": "mail.cli.files",
    },
    "Deploy it to AWS": {
        "build": "mail.cli.build",
        "local-aws": "mail.cli.local_aws",
        "smoke": "mail.cli.smoke",
        "aws-check": "mail.cli.aws_check",
        "aws-versions": "mail.cli.aws_versions",
        "worker": "mail.cli.worker",
    },
    "Administer a server": {
        "token": "mail.cli.token",
        "caller": "mail.cli.callers",
        "audit": "mail.cli.audit",
        "swarm": "mail.cli.swarms",
        "draft": "mail.cli.drafts",
        "webhook": "mail.cli.webhooks",
        "schedule": "mail.cli.schedules",
        "action": "mail.cli.callbacks",
        "dead-letter": "mail.cli.dead_letters",
        "db-init": "mail.cli.database",
        "db-import": "mail.cli.database",
        "db-reindex": "mail.cli.database",
        "backup": "mail.cli.database",
        "restore": "mail.cli.database",
        "register": "mail.cli.register",
        "version": "mail.cli.version",
    },
}
"""The commands as `mail --help` groups them, and the modules that have them: as rows of a table, or by their names."""

MODULES = {name: module for names in SECTIONS.values() for name, module in names.items()}

GROUPS = {
    "task": "List, show, watch, approve, cancel and fork your tasks.",
    "approvals": "Decide on the calls that wait for you, in your tasks and others'.",
    "caller": "Delete everything of a caller, and hold what nobody may delete.",
    "swarm": "List the versions of the server's swarm.",
    "draft": "Try other prompts, models and options of agents, and let new tasks use them.",
    "dead-letter": "Manage messages that could not be processed.",
    "thread": "Read the mail of your tasks by subject matter, and answer agents.",
    "inbox": "Read and write mail of MAIL 2.0, with people and agents.",
    "webhook": "Manage webhooks for task events.",
    "schedule": "Manage messages that the server posts at certain times.",
    "action": "Finish calls of actions that finish later.",
    "file": "Upload files for messages, and fetch those of your tasks.",
}


class ReaderGone(Exception):
    """Nobody reads the output any more."""


class Commands(click.Group):
    """The commands of `mail`. Each is loaded when it is needed, so that it starts soon."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, if there is one of this name."""
        if cmd_name not in self.commands and cmd_name in MODULES:
            self.add_command(_load(cmd_name), cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that words begin with. Raises click.UsageError."""
        if args[0] not in MODULES and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=MODULES, ctx=ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Raises ReaderGone, as click would exit with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section of the help for each group of commands."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                found = {name: self.get_command(ctx, name) for name in names}
                rows = [(name, command.get_short_help_str(100)) for name, command in found.items() if command]
                formatter.write_dl([(f"{name:<12}", text) for name, text in rows])


def _load(name: str) -> click.Command:
    module = import_module(MODULES[name])
    rows = {row.shell_name: row for row in getattr(module, "COMMANDS", ()) if row.shell_name}
    if name in rows:
        return _shell_command(rows[name])
    if name in GROUPS:
        below = [_shell_command(row) for each, row in rows.items() if each.startswith(f"{name} ")]
        return Group(name, below, help=GROUPS[name])
    command: click.Command = getattr(module, name.replace("-", "_"))
    command.epilog = epilog(name)
    return command


def _shell_command(row: Command) -> click.Command:
    """Return the command of `mail` for a row of a table, which it performs on the server that its options name."""

    @on_server
    def perform(
        server: str | None,
        api_key: str | None,
        timeout: float | None,
        config: Path | None,
        output: Output,
        **given: Any,
    ) -> int | None:
        import asyncio

        from mail.cli.connection import connect
        from mail.cli.session import Session, exit_code
        from mail.core.protocol.visible_text import printable

        client = connect(server, api_key, timeout=timeout, config=config)
        session = Session(client, output, is_prompt=False)

        async def run() -> int | None:
            async with client:
                return await row.run(session, **given)

        try:
            code = asyncio.run(run())
        except KeyboardInterrupt:
            if session.memory.waiting_for is not None:
                print(f"\nmail: {printable(session.stopped())}", file=sys.stderr)  # noqa: T201
            raise
        return code or exit_code(session.memory.statuses.values())

    params = [copy(param) for param in row.params]
    for param in params:
        param.required |= getattr(param.type, "or_last", False)  # only a prompt has a last task
    name = row.shell_name.rpartition(" ")[2]
    text = f"{row.summary}\n\n{row.details}".strip()
    return click.command(name, params=params, help=text, epilog=epilog(row.shell_name))(perform)


def _complete(context: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    """Install or print the script that completes words in a shell, and exit. Raises MAILError, click.UsageError."""
    if shell is None or context.resilient_parsing:
        return
    from mail.cli import completion

    write = completion.install if parameter.name == "install_completion" else completion.script
    click.echo(write(context.command, completion.named_shell(shell)))
    context.exit()


_SHELL: dict[str, Any] = {
    "metavar": "[SHELL]",
    "is_flag": False,
    "flag_value": "",
    "is_eager": True,
    "expose_value": False,
    "callback": _complete,
}


@click.group(
    "mail",
    cls=Commands,
    help="Run swarms of agents that work by sending each other mail.",
    context_settings={"show_default": True},
)
@click.option("--version", is_flag=True, expose_value=False, help="Print the version, and exit.")
@click.option("--install-completion", help="Install completion for the current shell.", **_SHELL)
@click.option(
    "--show-completion", help="Print the script that completes words in the current shell.", **_SHELL
)
def app() -> None:
    """Handle the options that need no command."""
