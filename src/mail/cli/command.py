"""The model of a command: its arguments, the operation of the server that it performs, and the view of the answer.

The tables of the nouns (`tasks`, `webhooks`, …) have one row per command. A row is available at the prompt of
`mail client` and, if it has a `shell_name`, as `mail …`; `mail.cli.app` derives the latter from it.
"""

import argparse
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn

from mail.cli.output import Output
from mail.cli.session import Session, UsageError, reveal

Namespace = argparse.Namespace


class HelpRequested(Exception):
    """The line asks for a command's help, which is the text of the exception."""


class Completes(Enum):
    """What completes a value."""

    NOTHING = auto()
    TASK = auto()
    AGENT = auto()
    COMMAND = auto()
    SECRET = auto()
    """Nothing; the value is revealed if it names an environment variable, and is kept out of the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a command. `positional`, `option` and `switch` build them.

    Attributes:
        names: the flags, or the one name of a positional argument.
        key: the parameter that gets the value.
        type: what parses the value; an Enum in which texts are the choices.
        is_required: whether a positional argument must be given.
        repeats: whether a flag may be repeated, or a positional argument takes several words, joined by spaces.
        is_list: whether the words of a positional argument that repeats are not joined.
        uses_last_task: whether it may be left out at the prompt, for the last task.
        may_be_new: whether the name of a task may also be the id of a new one, or of a thread.
    """

    names: tuple[str, ...]
    key: str
    help: str
    type: Callable[[str], Any] = str
    default: Any = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    completes: Completes = Completes.NOTHING
    is_required: bool = False
    is_switch: bool = False
    repeats: bool = False
    is_list: bool = False
    uses_last_task: bool = False
    may_be_new: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether a flag introduces it."""
        return self.names[0].startswith("-")

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `ArgumentParser.add_argument`."""
        default = "the last task" if self.uses_last_task else self.default
        text = self.help if default in (None, "", False, []) else f"{self.help} [default: {default}]"
        text = text.replace("%", "%%")
        if self.is_switch:
            return {"help": text, "dest": self.key, "action": "store_true", "default": self.default}
        found: dict[str, Any] = {"help": text, "type": self._parse, "default": self.default}
        if self.choices:
            found["choices"] = self.choices
        elif self.metavar:
            found["metavar"] = self.metavar
        if self.is_flag:
            return found | {"dest": self.key, "action": "append" if self.repeats else "store"}
        if self.repeats:
            return found | {"nargs": "+"}
        return found if self.is_required and not self.uses_last_task else found | {"nargs": "?"}

    def _parse(self, text: str) -> Any:
        value = self.type(text)
        if self.minimum is not None and value < self.minimum:
            raise argparse.ArgumentTypeError(f"must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise argparse.ArgumentTypeError(f"must be at most {self.maximum}")
        return value


def positional(name: str, help: str, *, required: bool = True, **settings: Any) -> Argument:  # noqa: A002
    """Build an argument that is identified by its position."""
    return Argument(names=(name,), key=name, help=help, is_required=required, **settings)


def option(*names: str, help: str, key: str = "", **settings: Any) -> Argument:  # noqa: A002
    """Build an argument that a flag introduces."""
    return Argument(names=names, key=key or names[-1].lstrip("-").replace("-", "_"), help=help, **settings)


def switch(*names: str, help: str, key: str = "", default: bool | None = False) -> Argument:  # noqa: A002
    """Build a flag without a value."""
    return option(*names, help=help, key=key, is_switch=True, default=default)


Handler = Callable[[Session, Namespace], Coroutine[Any, Any, int | None]]
"""Performs a command that is more than one operation; returns the exit code of `mail …`, None for success."""

View = Callable[[Any, Output], None]
"""Prints an answer as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command.

    Attributes:
        name: its name at the prompt.
        operation: the method of the client that it performs; the arguments are the parameters of the method.
        view: prints the answer as text; without it the answer is printed as JSON.
        handler: performs the command if that is more than `operation` and `view`.
        shell_name: its name as a command of `mail`, such as `task list`; empty if it exists only at the prompt.
        details: what `mail … --help` says besides the summary.
        also: further names at the prompt.
        needs_slash: whether it is a command at the prompt only after a slash, as its name begins many sentences.
        asks: the argument that the prompt asks for, without an echo, if it is left out.
    """

    name: str
    summary: str
    operation: str = ""
    view: View | None = None
    handler: Handler | None = None
    arguments: tuple[Argument, ...] = ()
    shell_name: str = ""
    details: str = ""
    also: tuple[str, ...] = field(default=())
    asks: str = ""
    needs_slash: bool = False

    async def run(self, session: Session, given: Namespace) -> int | None:
        """Perform the command, and print the answer. Returns the exit code; None for success. Raises MAILError."""
        values = {argument.key: await self._value(argument, given, session) for argument in self.arguments}
        if self.handler is not None:
            return await self.handler(session, Namespace(**values))
        answer = await getattr(session.client, self.operation)(**values)
        session.output.result(answer, self.view and partial(self.view, answer, session.output))
        return None

    @staticmethod
    async def _value(argument: Argument, given: Namespace, session: Session) -> Any:
        value = getattr(given, argument.key)
        if argument.completes is Completes.SECRET:
            return reveal(value)
        if argument.uses_last_task and value is None:
            return session.require_task()
        if argument.completes is Completes.TASK and value:
            return await session.find_task(value, may_be_new=argument.may_be_new)
        if argument.repeats:
            if argument.is_flag:
                return value or None
            return value if argument.is_list else " ".join(value)
        return value

    def parse(self, words: Sequence[str], slash: str = "") -> Namespace:
        """Parse the words after the command's name, which stood after `slash`. Raises UsageError, HelpRequested."""
        return self._parser(slash).parse_args(words)

    def usage(self, slash: str = "") -> str:
        """Return how the command is written, and what its arguments mean."""
        return self._parser(slash).format_help()

    def secrets(self, words: Sequence[str]) -> list[str]:
        """Return the words that must stay secret: all of them if the words can't be parsed."""
        secret = [argument for argument in self.arguments if argument.completes is Completes.SECRET]
        if not secret:
            return []
        try:
            parsed = vars(self.parse(words))
        except (UsageError, HelpRequested):
            return list(words)
        return [value for argument in secret if (value := parsed[argument.key])]

    def _parser(self, slash: str = "") -> "_Parser":
        parser = _Parser(prog=f"{slash}{self.name}", description=self.summary, allow_abbrev=False)
        for argument in self.arguments:
            parser.add_argument(*argument.names, **argument.settings())
        return parser


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        name = self.prog.removeprefix("/")
        slash = self.prog.removesuffix(name)
        raise UsageError(f"{self.prog}: {message}; see {slash}help {name}")

    def print_help(self, file: IO[str] | None = None) -> NoReturn:  # type: ignore[override]
        raise HelpRequested(self.format_help())


def any_json(text: str) -> Any:
    """Parse JSON, given as text or as `@file`."""
    try:
        return json.loads(json_text(text))
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}; put it in single quotes") from None


def json_text(text: str) -> str:
    """Return the text, or the content of the file that `@file` names."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{text[1:]} can't be read: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    value = any_json(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('not a JSON object, such as {"max_steps": 20}')
    return value


def json_list(text: str) -> list[Any]:
    """Parse a JSON list."""
    value = any_json(text)
    if not isinstance(value, list):
        raise argparse.ArgumentTypeError("not a JSON list, such as []")
    return value


def texts(text: str) -> list[str]:
    """Parse a JSON list of texts; any other text is a list of one."""
    if not text.lstrip().startswith("["):
        return [text]
    value = json_list(text)
    if not all(isinstance(item, str) for item in value):
        raise argparse.ArgumentTypeError('not a list of texts, such as ["agent@swarm"]')
    return value


def json_or_text(text: str) -> Any:
    """Parse a JSON list or object; any other text is itself."""
    return any_json(text) if text.lstrip().startswith(("[", "{", "@")) else text
