"""The actions of a swarm: references to Python functions become actions that run."""

import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from mail.core.actions import ActionCore, ActionFunction
from mail.errors import ConfigurationError, ToolCallFault
from mail.swarms_json.entries import ActionEntry, SwarmEntry
from mail.swarms_json.references import Resolve
from mail.utils.threads import in_daemon_thread


@runtime_checkable
class _MadeIntoAction(Protocol):
    """What the `@action` decorator of `mail.api` makes of a function."""

    def to_core(self) -> ActionCore:
        """The action, ready to run."""
        ...


def build_actions(entry: SwarmEntry, resolve: Resolve) -> list[ActionCore]:
    """All actions of the swarm, declared and imported. Raises ConfigurationError for a reference that is none."""
    declared = [_build(action, entry, resolve) for action in entry.actions]
    return declared + [_import(reference, resolve) for reference in entry.action_imports]


def as_async(function: Callable[[dict[str, Any]], Any]) -> ActionFunction:
    """The function as a coroutine function; one that isn't runs in a thread, so that it can't block other agents."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return function

    async def run(arguments: dict[str, Any]) -> str:
        result = await in_daemon_thread(function, arguments)
        if inspect.isawaitable(result):
            result = await result
        return result  # type: ignore[no-any-return]  # the engine checks that it is text

    return run


def _build(action: ActionEntry, entry: SwarmEntry, resolve: Resolve) -> ActionCore:
    return ActionCore(
        name=action.name,
        function=_function(action, entry, resolve),
        description=action.description,
        parameters=action.parameters,
        idempotent=action.idempotent,
    )


def _function(action: ActionEntry, entry: SwarmEntry, resolve: Resolve) -> ActionFunction:
    where = f"swarm {entry.name!r}, action {action.name!r}"
    if action.function is None:
        if action.name not in entry.breakpoint_tools:
            raise ConfigurationError(f"{where}: name its function, or list it in breakpoint_tools")
        return _left_to_the_user
    found = resolve(action.function)
    if isinstance(found, _MadeIntoAction):
        return found.to_core().function
    if not callable(found):
        raise ConfigurationError(f"{where}: {action.function!r} is no function")
    return as_async(found)


def _import(reference: str, resolve: Resolve) -> ActionCore:
    found = resolve(reference)
    if isinstance(found, ActionCore):
        return found
    if isinstance(found, _MadeIntoAction):
        return found.to_core()
    raise ConfigurationError(
        f"action_imports: {reference!r} is no action; let it name a mail.core.ActionCore"
    )


async def _left_to_the_user(_arguments: dict[str, Any]) -> str:
    raise ToolCallFault("the user gives the result of this tool; it has no function")
