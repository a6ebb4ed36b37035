"""The actions of a swarm: references to Python functions become actions that run."""

from typing import Any, Protocol, runtime_checkable

from mail.core.protocol.tool_schemas import model_of
from mail.core.task.swarm import ActionCore, ActionFunction
from mail.errors import ConfigurationError, ToolCallFault
from mail.swarms_json.calling import as_action_function
from mail.swarms_json.entries import ActionEntry, SwarmEntry
from mail.swarms_json.references import Resolve


@runtime_checkable
class MadeIntoAction(Protocol):
    """What the `@action` decorator of `mail.api` makes of a function."""

    def to_core(self) -> ActionCore:
        """The action, ready to run."""
        ...


def build_actions(entry: SwarmEntry, resolve: Resolve) -> list[ActionCore]:
    """All actions of the swarm, declared and imported. Raises ConfigurationError for a reference that is none."""
    for action in entry.actions:
        if action.function is None and action.name not in entry.breakpoint_tools:
            raise ConfigurationError(
                f"swarm {entry.name!r}, action {action.name!r}: name its function, or list it in breakpoint_tools"
            )
    declared = [build_action(action, resolve, f"swarm {entry.name!r}, ") for action in entry.actions]
    return declared + [import_action(reference, resolve) for reference in entry.action_imports]


def build_action(action: ActionEntry, resolve: Resolve, where: str = "") -> ActionCore:
    """A declared action; one without a function can only be a breakpoint tool."""
    return ActionCore(
        name=action.name,
        function=_function(action, resolve, where),
        description=action.description,
        parameters=action.parameters,
        idempotent=action.idempotent,
    )


def import_action(reference: str, resolve: Resolve) -> ActionCore:
    """The ready-made action that a reference names."""
    found = resolve(reference)
    if isinstance(found, ActionCore):
        return found
    if isinstance(found, MadeIntoAction):
        return found.to_core()
    raise ConfigurationError(
        f"action_imports: {reference!r} is no action; let it name what @mail.action has made of a function"
    )


def _function(action: ActionEntry, resolve: Resolve, where: str) -> ActionFunction:
    if action.function is None:
        model_of(action.name, action.parameters)  # else nobody would find out what is wrong with them
        return left_to_the_user
    found = resolve(action.function)
    if isinstance(found, MadeIntoAction):
        return found.to_core().function
    if not callable(found):
        raise ConfigurationError(f"{where}action {action.name!r}: {action.function!r} is no function")
    return as_action_function(action.name, found, action.parameters)


async def left_to_the_user(_arguments: dict[str, Any]) -> str:
    """The function of a breakpoint tool that has none."""
    raise ToolCallFault("the user gives the result of this tool; it has no function")
