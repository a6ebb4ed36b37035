"""Functions as actions: a call's arguments are checked, the function runs, and its result becomes text."""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from mail.actions.signatures import (
    Signature,
    TypedArguments,
    signature_of,
    typed_arguments,
    validator_of,
)
from mail.core.engine.action_threads import ACTION_THREADS
from mail.core.protocol.error_text import explain
from mail.core.protocol.json_schema import model_of
from mail.core.protocol.tool_schemas import pydantic_model_to_tool
from mail.core.task.callbacks import Later
from mail.core.task.files import File
from mail.core.task.swarm import ActionFunction, CancelFunction
from mail.core.turns.context import TURN, current_context
from mail.errors import ConfigurationError, ToolCallFault

MAX_SHOWN = 2000
"""Maximum number of characters of a schema that an error message repeats to an agent."""


def as_action_function(
    name: str,
    function: Callable[..., Any],
    parameters: Mapping[str, Any],
    model: type[BaseModel] | None = None,
) -> ActionFunction:
    """Wrap a function as the function of the action `name`, with its arguments checked before each call.

    `function` takes one argument, a dictionary or the pydantic model of its annotation, or none at all, and perhaps an
    `ActionContext`; it may be a coroutine function. Arguments are validated by `model`, or by the schema `parameters`
    without one. A function that takes a dictionary gets JSON values: with a model its defaults are filled in, without
    one they are as the agent sent them.

    The wrapper raises ToolCallFault with the problem and the expected schema. A result that is not text becomes JSON.
    Raises ConfigurationError if `parameters` is not the schema of an object.
    """
    run = as_async(function)
    signature = signature_of(function)
    wanted = signature.model
    takes_nothing = not signature.by_position
    described = model or model_of(name, parameters)
    checks = validator_of(model or wanted or described)
    reads = validator_of(wanted) if wanted else checks

    async def call(arguments: dict[str, Any]) -> str | Later:
        checked = _check(name, checks, arguments, parameters)
        given: Any = checked
        if wanted is None:
            given = checked.model_dump(mode="json", by_alias=True) if model else arguments
        elif not isinstance(checked, wanted):
            given = _check(name, reads, arguments, parameters)
        if signature.context is None:
            return await as_result(name, await (run() if takes_nothing else run(given)))
        named = {signature.context: current_context()}
        if not takes_nothing:
            named[signature.by_position[0].name] = given
        return await as_result(name, await run(**named))

    return call


def typed_action(
    name: str, function: Callable[..., Any], signature: Signature
) -> tuple[ActionFunction, dict[str, Any], TypedArguments]:
    """Wrap a function with typed parameters as the function of the action `name`; see `as_action_function`.

    Returns it with its arguments and their JSON Schema.
    """
    run = as_async(function)
    arguments = typed_arguments(name, function, signature)
    check = validator_of(arguments.model)
    parameters: dict[str, Any] = pydantic_model_to_tool(arguments.model, name, "", "responses")["parameters"]

    async def call(given: dict[str, Any]) -> str | Later:
        by_position, by_name = arguments.unpack(_check(name, check, given, parameters))
        if signature.context is not None:
            by_name[signature.context] = current_context()
        return await as_result(name, await run(*by_position, **by_name))

    return call, parameters, arguments


def as_cancel_function(
    name: str, function: Callable[..., Any], parameters: Mapping[str, Any]
) -> CancelFunction:
    """Wrap a function as `on_cancel` of the action `name`, whose arguments have the schema `parameters`.

    It may take an `ActionContext`, and the arguments of the call: a dictionary or model of all, or those that it names.
    Raises ConfigurationError if it names others.
    """
    if not callable(function):
        raise ConfigurationError(f"action {name!r}: on_cancel: {function!r} is not a function")
    run, signature = as_async(function), signature_of(function)
    typed = typed_arguments(f"{name}: on_cancel", function, signature) if signature.is_typed else None
    reads = None if signature.model is None else validator_of(signature.model)
    fields = {} if typed is None else {each.alias: each for each in typed.model.model_fields.values()}
    known = parameters.get("properties", {})
    if unknown := [field for field, each in fields.items() if each.is_required() and field not in known]:
        raise ConfigurationError(
            f"action {name!r}: on_cancel takes {unknown[0]!r}, which is no argument of it"
        )

    async def call(arguments: dict[str, Any]) -> object:
        context = {} if signature.context is None else {signature.context: current_context()}
        if typed is not None:
            takes_all = typed.model.model_config.get("extra") == "allow"
            wanted = arguments if takes_all else {k: v for k, v in arguments.items() if k in fields}
            by_position, by_name = typed.unpack(typed.model.model_validate(wanted))
            return await run(*by_position, **by_name, **context)
        if not signature.by_position:
            return await run(**context)
        given = arguments if reads is None else reads(arguments)
        return await (run(**context, **{signature.by_position[0].name: given}) if context else run(given))

    return call


async def as_result(name: str, result: Any) -> str | Later:
    """Return the result of an action as text; files in it are stored, and the text refers to them.

    A result with files is a `File`, or a list of files and texts. Raises as `as_text` and `FilesOfTurn.add` do.
    """
    members = result if isinstance(result, list | tuple) else (result,)
    if not any(isinstance(member, File) for member in members):
        return as_text(name, result)
    files = TURN.get().files
    if files is None:
        raise TypeError(f"{name} has returned a file, which can be stored only in a turn of a task")
    lines = [
        (await files.add(member)).in_words if isinstance(member, File) else str(as_text(name, member))
        for member in members
    ]
    return "\n".join(lines)


def as_text(name: str, result: Any) -> str | Later:
    """Return the result of an action as text: JSON, unless it is text. Raises TypeError for what JSON can't express.

    `LATER` is no result, and stays what it is.
    """
    if isinstance(result, Later):
        return result
    if isinstance(result, str):
        return str.__str__(result)
    try:
        return to_json(result, by_alias=True, inf_nan_mode="null").decode()
    except (PydanticSerializationError, ValueError) as error:
        kind = type(result).__name__
        raise TypeError(f"{name} must return text or what JSON can express, but returned {kind}") from error


def as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as a coroutine function; a plain one runs in a thread (`ACTION_THREADS`)."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return function

    async def run(*arguments: Any, **named: Any) -> Any:
        result = await ACTION_THREADS.run(partial(function, *arguments, **named))
        return await result if inspect.isawaitable(result) else result

    return run


def _check(
    name: str, check: Callable[[Any], Any], arguments: dict[str, Any], parameters: Mapping[str, Any]
) -> Any:
    try:
        return check(arguments)
    except ValidationError as error:
        expected = json.dumps(dict(parameters), ensure_ascii=False, default=str)
        if len(expected) > MAX_SHOWN:
            expected = f"{expected[:MAX_SHOWN]}…"
        raise ToolCallFault(
            f"{name} was not run, its arguments are wrong: {explain(error)}. Expected: {expected}"
        ) from error
