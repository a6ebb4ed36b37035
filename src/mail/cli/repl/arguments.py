"""What a command takes, and how its words are parsed."""

import argparse
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.cli.repl.session import Session

Namespace = argparse.Namespace


class UsageError(MAILError):
    """The line is no command, or not one that can be performed."""


class HelpWanted(Exception):
    """Somebody asks what a command takes. The text says it."""


class Completes(Enum):
    """What a value can be completed with."""

    NOTHING = auto()
    TASK = auto()
    AGENT = auto()
    COMMAND = auto()
    SECRET = auto()
    """Nothing; and it is not to be kept in the history."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument, or one with a flag.

    Attributes:
        names: the flags, or the one name of a positional argument.
        settings: further arguments of `ArgumentParser.add_argument`.
    """

    names: tuple[str, ...]
    help: str
    completes: Completes = Completes.NOTHING
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_flag(self) -> bool:
        """Whether it is found by a flag, not by its place."""
        return self.names[0].startswith("-")

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the flag."""
        return "action" not in self.settings

    @property
    def key(self) -> str:
        """Its name among the parsed ones."""
        return self.names[-1].lstrip("-").replace("-", "_")


Run = Callable[["Session", Namespace], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the client.

    Attributes:
        also: other names for it.
        asks: the argument that people are asked for where they leave it out, without an echo.
    """

    name: str
    summary: str
    run: Run
    arguments: tuple[Argument, ...] = ()
    also: tuple[str, ...] = ()
    asks: str = ""

    def parse(self, words: Sequence[str]) -> Namespace:
        """What the words behind the command's name say. Raises UsageError, HelpWanted."""
        return self._parser().parse_args(words)

    def usage(self) -> str:
        """How it is written, and what its arguments mean."""
        return self._parser().format_help()

    def secrets(self, words: Sequence[str]) -> list[str]:
        """The words that nobody else may read: all of them where it can't be told."""
        secret = [argument for argument in self.arguments if argument.completes is Completes.SECRET]
        if not secret:
            return []
        try:
            parsed = vars(self.parse(words))
        except (UsageError, HelpWanted):
            return list(words)
        return [value for argument in secret if (value := parsed[argument.key])]

    def _parser(self) -> "_Parser":
        parser = _Parser(prog=self.name, description=self.summary, allow_abbrev=False)
        for argument in self.arguments:
            parser.add_argument(*argument.names, help=argument.help.replace("%", "%%"), **argument.settings)
        return parser


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see help {self.prog}")

    def print_help(self, file: IO[str] | None = None) -> NoReturn:  # type: ignore[override]
        raise HelpWanted(self.format_help())


def positional(name: str, help: str, completes: Completes = Completes.NOTHING, **settings: Any) -> Argument:  # noqa: A002
    """An argument that is found by its place."""
    return Argument((name,), help, completes, settings)


def flag(*names: str, help: str, completes: Completes = Completes.NOTHING, **settings: Any) -> Argument:  # noqa: A002
    """An argument with a flag."""
    return Argument(names, help, completes, settings)


def any_json(text: str) -> Any:
    """JSON, as it is or in the file behind an `@`."""
    try:
        return json.loads(json_text(text))
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}; put it in single quotes") from None


def json_text(text: str) -> str:
    """Text as it is, or what the file behind an `@` holds."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{text[1:]} can't be read: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    value = any_json(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('no JSON object, such as {"max_steps": 20}')
    return value


def json_list(text: str) -> list[Any]:
    """A JSON list."""
    value = any_json(text)
    if not isinstance(value, list):
        raise argparse.ArgumentTypeError("no JSON list, such as []")
    return value


def texts(text: str) -> list[str]:
    """A JSON list of texts; or one text, for a list of one."""
    if not text.lstrip().startswith("["):
        return [text]
    value = json_list(text)
    if not all(isinstance(item, str) for item in value):
        raise argparse.ArgumentTypeError('no list of texts, such as ["agent@swarm"]')
    return value


def json_or_text(text: str) -> Any:
    """A JSON list or object; anything else is text."""
    return any_json(text) if text.lstrip().startswith(("[", "{", "@")) else text
