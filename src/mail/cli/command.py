"""The model of a command that talks to a server: its arguments, its operation, and the view of the answer.

The tables of the nouns (`tasks`, `webhooks`, …) have one row per command. A row is available at the prompt of
`mail client` and, if it has a `shell_name`, as `mail …`; `mail.cli.app` derives the latter from it.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import click

from mail.cli.output import Output
from mail.cli.session import Session
from mail.cli.values import Reference, Secret, Task

Namespace = SimpleNamespace

Handler = Callable[[Session, Namespace], Coroutine[Any, Any, int | None]]
"""Performs a command that is more than one operation; returns the exit code of `mail …`, None for success."""

View = Callable[[Any, Output], None]
"""Prints an answer as text."""


def says(text: str) -> View:
    """Return a view that is a text, in which `{name}` stands for a field of the answer."""
    return lambda answer, output: output.text(text.format_map(answer))


def positional(name: str, help: str, **settings: Any) -> click.Argument:  # noqa: A002
    """Build an argument that is identified by its position."""
    return click.Argument([name], help=help, **settings)


def option(*names: str, help: str, **settings: Any) -> click.Option:  # noqa: A002
    """Build an argument that a flag introduces. The name of the parameter that gets it may be the last of the names."""
    return click.Option(names, help=help, **settings)


def switch(*names: str, help: str, default: bool | None = False) -> click.Option:  # noqa: A002
    """Build a flag without a value."""
    return option(*names, help=help, is_flag=True, default=default)


def joined(context: click.Context, parameter: click.Parameter, words: Sequence[str]) -> str:
    """Return the words of a text that needs no quotes."""
    return " ".join(words)


class Group(click.Group):
    """A group of commands that its help lists in their own order; without one, it does what its `list` does, if any."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line. Raises click.UsageError."""
        are_options = all(each.startswith("-") for each in args[:1]) and not {*args} & {
            *ctx.help_option_names
        }
        is_list = "list" in self.commands and are_options and not ctx.resilient_parsing
        return super().parse_args(ctx, ["list", *args] if is_list else args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)


class Command(click.Command):
    """A command of the prompt. Its callback returns a coroutine that performs it.

    Args:
        name: its name at the prompt; by default `shell_name` with hyphens.
        operation: the method of the client that it performs; the arguments are the parameters of the method.
        view: prints the answer as text; without it the answer is printed as JSON.
        handler: performs the command if that is more than `operation` and `view`.
        shell_name: its name as a command of `mail`, such as `task list`; empty if it exists only at the prompt.
        details: what `mail … --help` says besides the summary.
        also: further names at the prompt.
        needs_slash: whether it is a command at the prompt only after a slash, as its name begins many sentences.
    """

    name: str

    def __init__(
        self,
        *,
        summary: str,
        name: str = "",
        operation: str = "",
        view: View | None = None,
        handler: Handler | None = None,
        arguments: Sequence[click.Parameter] = (),
        shell_name: str = "",
        details: str = "",
        also: tuple[str, ...] = (),
        needs_slash: bool = False,
    ) -> None:
        super().__init__(
            name or shell_name.replace(" ", "-"),
            params=list(arguments),
            help=summary,
            callback=click.pass_obj(self.run),
        )
        self.summary = summary
        self.operation = operation
        self.view = view
        self.handler = handler
        self.shell_name = shell_name
        self.details = details
        self.also = also
        self.needs_slash = needs_slash

    async def run(self, session: Session, **given: Any) -> int | None:
        """Perform the command, and print the answer. Returns the exit code; None for success. Raises MAILError."""
        for param in self.params:
            if isinstance(param.type, Reference):
                given[param.name] = await param.type.resolve(given[param.name], session)
        if self.handler is not None:
            return await self.handler(session, Namespace(**given))
        answer = await getattr(session.client, self.operation)(**given)
        session.output.result(answer, self.view and partial(self.view, answer, session.output))
        return None

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the words after the command's name; one that is too few is the last task. Raises click.UsageError."""
        words = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.MissingParameter:
            if not any(isinstance(param.type, Task) and param.type.or_last for param in self.params[:1]):
                raise
        return super().make_context(info_name, ["", *words], parent, **extra)

    def secrets(self, words: Sequence[str]) -> list[str]:
        """Return the words that must stay secret: all of them if the words can't be parsed."""
        names = [param.name for param in self.params if isinstance(param.type, Secret)]
        if not names:
            return []
        try:
            given = self.make_context(self.name, list(words), help_option_names=[]).params
        except click.UsageError:
            return list(words)
        return [given[name] for name in names if given[name]]
