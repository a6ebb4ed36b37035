"""Statements that are the same for every SQL database, but for a few words."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, LiteralString

Execute = Callable[[LiteralString, dict[str, object]], Awaitable[list[tuple[Any, ...]]]]
"""Run a statement, and return its rows."""


@dataclass(frozen=True)
class Dialect:
    """The words of a database.

    Args:
        schema: what comes before the name of a table.
        parameter: a parameter, with `{}` for its name.
        merge: an object of JSON with the fields of a second one in it, with `{}` for each.
        json: the type of a column with JSON.
        each: the function that returns the elements of a JSON array as rows.
    """

    schema: LiteralString
    parameter: LiteralString
    merge: LiteralString
    json: LiteralString
    each: LiteralString


class Statements:
    """Runs statements in which `{schema}`, `{each}`, the names of values and those of `words` are replaced."""

    def __init__(self, execute: Execute, dialect: Dialect, **words: LiteralString) -> None:
        self._execute = execute
        self._parameter = dialect.parameter
        self._words = {"schema": dialect.schema, "each": dialect.each, **words}

    def written(self, statement: LiteralString, names: Iterable[str]) -> LiteralString:
        """Return a statement as the database reads it."""
        parameters: dict[str, LiteralString] = {name: self._parameter.format(name) for name in names}
        return statement.format(**self._words, **parameters)

    async def run(self, statement: LiteralString, **values: object) -> list[tuple[Any, ...]]:
        return await self._execute(self.written(statement, values), values)
