"""Tracebacks of errors that a program's own mistakes cause: they end where the program calls this package."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from functools import wraps
from typing import Any

from mail.errors import MAILError


def without_frames[**P, T](public: Callable[P, T]) -> Callable[P, T]:
    """Leave the frames below a public function out of its MAILErrors, whose text says what to change."""

    @wraps(public)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return public(*arguments, **named)
        except MAILError as error:
            raise error.with_traceback(None)  # noqa: B904  # with its own cause

    return call


def without_frames_async[**P, T](
    public: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Leave out the frames below a public coroutine function; see `without_frames`."""

    @wraps(public)
    async def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return await public(*arguments, **named)
        except MAILError as error:
            raise error.with_traceback(None)  # noqa: B904  # with its own cause

    return call


def without_frames_iterating[**P, T](
    public: Callable[P, AsyncGenerator[T]],
) -> Callable[P, AsyncGenerator[T]]:
    """Leave out the frames below a public asynchronous generator; see `without_frames`."""

    @wraps(public)
    async def call(*arguments: P.args, **named: P.kwargs) -> AsyncGenerator[T]:
        try:
            async with aclosing(public(*arguments, **named)) as items:
                async for item in items:
                    yield item
        except MAILError as error:
            raise error.with_traceback(None)  # noqa: B904  # with its own cause

    return call
