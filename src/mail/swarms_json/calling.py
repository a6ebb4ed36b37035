"""How a Python function becomes the function of an action: called with checked arguments, whatever its kind.

A function takes one argument: a dictionary, or what its annotation says if that is a pydantic model. It may
be a coroutine function or not, and take no argument at all where there are none.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from contextvars import copy_context
from threading import Thread
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError

from mail.core.protocol.json_schema import model_of
from mail.core.protocol.mail_tools import explain
from mail.core.task.actions import ActionFunction
from mail.errors import ToolCallFault

MAX_SHOWN = 2000
"""Characters of a schema that are repeated to an agent whose arguments don't fit it."""


def as_action_function(
    name: str,
    function: Callable[..., Any],
    parameters: Mapping[str, Any],
    model: type[BaseModel] | None = None,
) -> ActionFunction:
    """The function of the action `name`, which checks the arguments before anything is run.

    They are checked by `model`, or by the schema `parameters` without one. A function that takes a dictionary
    gets JSON values: with a model its defaults are filled in, without one they are as the agent sent them.

    The returned function raises ToolCallFault that says what is wrong and what was expected. This one raises
    ConfigurationError for `parameters` that are no schema of an object.
    """
    run = as_async(function)
    takes_nothing = not _positional(function)
    wanted = argument_model(function)
    described = model or model_of(name, parameters)
    checks = model or wanted or described

    async def call(arguments: dict[str, Any]) -> str:
        checked = _check(name, checks, arguments, parameters)
        if takes_nothing:
            result = await run()
        elif wanted is None:
            result = await run(checked.model_dump(mode="json", by_alias=True) if model else arguments)
        elif isinstance(checked, wanted):
            result = await run(checked)
        else:
            result = await run(_check(name, wanted, arguments, parameters))
        return result  # type: ignore[no-any-return]  # the engine checks that it is text

    return call


def as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a coroutine function; one that isn't runs in a thread, so that it can't block other agents."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return function

    async def run(*arguments: Any) -> Any:
        result = await in_daemon_thread(function, *arguments)
        return await result if inspect.isawaitable(result) else result

    return run


def argument_model(function: Callable[..., Any]) -> type[BaseModel] | None:
    """The pydantic model that the function's argument is annotated with, if it is."""
    for parameter in _positional(function)[:1]:
        annotation = parameter.annotation
        if isinstance(annotation, str):
            annotation = _type_hints(function).get(parameter.name)
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            return annotation
    return None


def _check(
    name: str, model: type[BaseModel], arguments: dict[str, Any], parameters: Mapping[str, Any]
) -> BaseModel:
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        expected = json.dumps(dict(parameters), ensure_ascii=False, default=str)
        if len(expected) > MAX_SHOWN:
            expected = f"{expected[:MAX_SHOWN]}…"
        raise ToolCallFault(
            f"{name} was not run, its arguments are wrong: {explain(error)}. Expected: {expected}"
        ) from error


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters by which the function can be given its argument; what `partial` has bound is none."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable that doesn't tell
        return [inspect.Parameter("arguments", inspect.Parameter.POSITIONAL_ONLY)]
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return [parameter for parameter in parameters if parameter.kind in kinds]


def _type_hints(function: Any) -> dict[str, Any]:
    """Annotations that were written as text, read; none where they name what can't be found from here."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return {}


async def in_daemon_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a blocking function in a thread of its own, with the caller's context variables, and return its result.

    Unlike `asyncio.to_thread`'s, the thread is a daemon: a function that hangs must not delay the shutdown of a server.

    Raises what the function raises, with RuntimeError instead of exceptions that would stop a coroutine or the whole
    program, such as StopIteration and SystemExit.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if outcome.done():
            return
        match error:
            case None:
                outcome.set_result(result)
            case Exception() if not isinstance(error, StopIteration):
                outcome.set_exception(error)
            case _:
                outcome.set_exception(_contained(error))

    def run() -> None:
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as raised:  # noqa: BLE001  # passed to the caller
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return await outcome


def _contained(error: BaseException) -> RuntimeError:
    contained = RuntimeError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    contained.__cause__ = error
    return contained
