"""The kinds of values that commands take: how a text is parsed, what completes it, and what it stands for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mail.cli.session import Session, reveal

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


PATH = click.Path(dir_okay=False, path_type=Path)
"""The path of a file, which need not exist."""


class Duration(click.ParamType[float]):
    """A duration, such as 90s or 2h; the command gets its seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        from mail.core.protocol.clock import read_duration

        try:
            return value if isinstance(value, float) else read_duration(value)
        except ValueError as error:
            self.fail(f"it must be {error}", param, ctx)


class Reference(click.ParamType[Any]):
    """A text that stands for something else, which the command gets in its place."""

    name = "text"

    async def resolve(self, value: Any, session: Session) -> Any:
        """Return what a value stands for; None for none. Raises MAILError."""
        return value


class Task(Reference):
    """A task.

    Args:
        may_be_new: whether it may also be the id of a new task, or of a thread.
        or_last: whether it may be left out at the prompt, for the last task.
    """

    def __init__(self, *, may_be_new: bool = False, or_last: bool = False) -> None:
        self._may_be_new = may_be_new
        self.or_last = or_last

    async def resolve(self, value: str | None, session: Session) -> str | None:
        """Return the id of a task. Raises MAILError."""
        if not value:
            return session.require_task() if self.or_last else value
        return await session.find_task(value, may_be_new=self._may_be_new)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list["CompletionItem"]:
        """Return tasks: those that the session has seen, or the server's newest."""
        from mail.cli import completion

        if isinstance(ctx.obj, Session):
            return completion.items(dict.fromkeys(reversed(ctx.obj.memory.tasks), ""), incomplete)
        return completion.ask_server(ctx, completion.newest_tasks, incomplete)


class Approval(Reference):
    """A call that waits for a decision."""

    async def resolve(self, value: str, session: Session) -> str:
        """Return the id of an approval. Raises MAILError."""
        return await session.find_approval(value)


class Agent(Reference):
    """An agent, which stands for itself."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list["CompletionItem"]:
        """Return agents: those that the session has seen, or the server's entrypoints."""
        from mail.cli import completion

        if isinstance(ctx.obj, Session):
            return completion.items(dict.fromkeys(sorted(ctx.obj.memory.agents), ""), incomplete)
        return completion.ask_server(ctx, completion.entrypoints, incomplete)


class Agents(Agent):
    """An agent, or a JSON list of agents."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Return the list. Raises click.BadParameter."""
        return texts(value)


class Secret(Reference):
    """A secret, or `$NAME` for that of an environment variable. The prompt keeps it out of the history."""

    async def resolve(self, value: str | None, session: Session) -> str | None:
        """Return the secret. Raises UsageError."""
        return reveal(value)


class Integer(click.IntRange):
    """An integer, perhaps within limits."""

    name = "integer"


class Number(click.FloatRange):
    """A number, perhaps within limits."""

    name = "number"


class Moment(click.ParamType[int | str]):
    """An event by its id, or `message`."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the value. Raises click.BadParameter."""
        return "message" if value == "message" else int(click.INT.convert(value, param, ctx))


# ---------------------------------------------------------------------------------------------------- JSON


class JSON(click.ParamType[Any]):
    """A value that `parse` reads from a text, which `@file` may hold."""

    name = "json"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value. Raises click.BadParameter."""
        return self._parse(value)


def any_json(text: str) -> Any:
    """Parse JSON, given as text or as `@file`."""
    try:
        return json.loads(json_text(text))
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"not JSON: {error}; put it in single quotes") from None


def json_text(text: str) -> str:
    """Return the text, or the content of the file that `@file` names."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{text[1:]} can't be read: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    value = any_json(text)
    if not isinstance(value, dict):
        raise click.BadParameter('not a JSON object, such as {"max_steps": 20}')
    return value


def json_list(text: str) -> list[Any]:
    """Parse a JSON list."""
    value = any_json(text)
    if not isinstance(value, list):
        raise click.BadParameter("not a JSON list, such as []")
    return value


def texts(text: str) -> list[str]:
    """Parse a JSON list of texts; any other text is a list of one."""
    if not text.lstrip().startswith("["):
        return [text]
    value = json_list(text)
    if not all(isinstance(item, str) for item in value):
        raise click.BadParameter('not a list of texts, such as ["agent@swarm"]')
    return value


def json_or_text(text: str) -> Any:
    """Parse a JSON list or object; any other text is itself."""
    return any_json(text) if text.lstrip().startswith(("[", "{", "@")) else text
