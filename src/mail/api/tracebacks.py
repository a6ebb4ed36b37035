"""Tracebacks of errors that a program's own mistakes cause: they end where the program calls this package."""

from collections.abc import Callable
from contextlib import aclosing
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, cast

from mail.errors import MAILError


def without_frames[F: Callable[..., Any]](public: F) -> F:
    """Leave the frames below a public function out of its MAILErrors, whose text says what to change.

    It may be a coroutine function, or an asynchronous generator.
    """

    @wraps(public)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return public(*arguments, **named)
        except MAILError as error:
            raise error.with_traceback(None)  # noqa: B904  # with its own cause

    @wraps(public)
    async def wait(*arguments: Any, **named: Any) -> Any:
        try:
            return await public(*arguments, **named)
        except MAILError as error:
            raise error.with_traceback(None)  # noqa: B904

    @wraps(public)
    async def iterate(*arguments: Any, **named: Any) -> Any:
        try:
            async with aclosing(public(*arguments, **named)) as items:
                async for item in items:
                    yield item
        except MAILError as error:
            raise error.with_traceback(None)  # noqa: B904

    if isasyncgenfunction(public):
        return cast(F, iterate)
    return cast(F, wait if iscoroutinefunction(public) else call)
