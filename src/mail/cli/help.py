"""The help and the errors of commands, in plain words."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

SECTIONS = {
    "Start": ("demo", "init", "check", "server", "ping"),
    "Talk to a swarm": ("chat", "send", "reply", "agents", "ui", "client"),
    "Follow its work": ("task", "thread", "inbox", "usage"),
    "Deploy it to AWS": ("build", "local-aws", "smoke"),
    "Administer a server": ("token", "webhook", "dead-letter", "db-init", "db-import", "register", "version"),
}
"""The commands as `mail --help` groups them."""


class Commands(TyperGroup):
    """The commands of `mail`, which the help lists by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section of the help for each group of commands."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:<11}", self.commands[name].get_short_help_str(100)) for name in names]
                )


class PlainCommand(TyperCommand):
    """A command whose help and errors don't name types of Python."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of arguments and options; an argument without its type."""
        rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                rows[param.param_type_name].append(record)
        rows["argument"] = [(name.partition(" <")[0], text) for name, text in rows["argument"]]
        for title, found in (("Arguments", rows["argument"]), ("Options", rows["option"])):
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line. Raises typer.BadParameter."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _in_plain_words(error.message)
            raise


def _in_plain_words(message: str) -> str:
    """Return a message of pydantic, which typer checks values with, as the end of an error's sentence."""
    return (
        message.removeprefix("Value error, ")
        .replace("Input should be", "must be")
        .partition(", unable to")[0]
    )
