"""From the description of an agent to its function: the factory is called with all that it should know."""

import logging
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.swarm import AGENT_FUNCTION, AgentFunction
from mail.errors import ConfigurationError
from mail.swarms_json.references import LOOKS_LIKE_REFERENCE

logger = logging.getLogger(__name__)


def make_function(
    where: str,
    factory: Any,
    *,
    wiring: Mapping[str, Any],
    params: Mapping[str, Any],
    instance_params: Mapping[str, Any],
    print_llm_streams: bool = True,
) -> AgentFunction:
    """Call a factory (seed 000, docs/factories.md: Instance Parameters vs. Top-Level Wiring).

    Args:
        where: the agent, for messages.
        wiring: what `agent_wiring` makes; goes before all else.
        params: the agent's own `agent_params`, resolved.
        instance_params: what whoever instantiates the swarm gives to every agent, such as `user_token`.
        print_llm_streams: False silences every factory that takes the parameter.

    Raises ConfigurationError for a factory that refuses them or returns no function.
    """
    _warn(where, wiring, params)
    own = {name: value for name, value in params.items() if name not in wiring}
    given = {"user_token": "", **instance_params, **own, **wiring}
    if not print_llm_streams and _takes(factory, "print_llm_streams"):
        given["print_llm_streams"] = False
    if not _takes(factory, "exclude_tools"):  # older than the others, some factories don't know it
        del given["exclude_tools"]
    try:
        function = factory(**given)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{where}: its factory {_name(factory)!r} refused: {error}") from error
    if not callable(function):
        raise ConfigurationError(
            f"{where}: its factory {_name(factory)!r} returned no function, but {type(function).__name__}; {AGENT_FUNCTION}"
        )
    return function  # type: ignore[no-any-return]  # a factory is foreign code


def agent_wiring(
    *,
    name: str,
    comm_targets: Sequence[str],
    tools: Sequence[Mapping[str, Any]],
    enable_entrypoint: bool,
    enable_interswarm: bool,
    can_complete_tasks: bool,
    tool_format: ToolFormat,
    exclude_tools: frozenset[str],
) -> dict[str, Any]:
    """What every factory is told of its agent's place in the swarm; `tools` declare its actions."""
    return {
        "name": name,
        "comm_targets": list(comm_targets),
        "tools": list(tools),
        "enable_entrypoint": enable_entrypoint,
        "enable_interswarm": enable_interswarm,
        "can_complete_tasks": can_complete_tasks,
        "tool_format": tool_format,
        "exclude_tools": sorted(exclude_tools),
    }


def _warn(where: str, wiring: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    for name in sorted(wiring.keys() & params.keys()):
        logger.warning("%s: %r in agent_params is ignored; set it on the agent itself", where, name)
    for name, value in params.items():
        if isinstance(value, str) and LOOKS_LIKE_REFERENCE.fullmatch(value):
            logger.warning(
                "%s: %r in agent_params is taken as text; write 'python::%s' for the object",
                where,
                name,
                value,
            )


def _takes(factory: Any, parameter: str) -> bool:
    """Whether a factory can be called with this parameter."""
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError):  # a callable that doesn't tell
        return True
    return parameter in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _name(factory: Any) -> str:
    return getattr(factory, "__qualname__", None) or repr(factory)
