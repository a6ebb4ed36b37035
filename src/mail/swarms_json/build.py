"""From a spec to a swarm that runs: references are imported, factories called, functions wrapped as actions.

Most rules on how agents and actions fit together are checked by `SwarmCore`. `assemble` checks the ones that need
lists: `SwarmCore` has mappings, in which a duplicate name would be lost.
"""

import inspect
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from mail.core.engine.action_threads import ACTION_THREADS
from mail.core.protocol.error_text import did_you_mean, explain
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.output_schema import OutputSchema, check_of, schema_of
from mail.core.protocol.tool_schemas import model_of, pydantic_model_to_tool
from mail.core.task.failing_calls import FAILING_CALL_LIMIT
from mail.core.task.swarm import (
    AGENT_FUNCTION,
    ActionCore,
    ActionFunction,
    AgentFunction,
    ApprovalPredicate,
    SwarmCore,
)
from mail.core.turns.context import current_context
from mail.errors import BadRequest, ConfigurationError, ToolCallFault
from mail.mcp.servers import ToolServer, tool_servers
from mail.mcp.tools import names_of, tool_sources
from mail.swarms_json.entries import ActionEntry, AgentEntry, AgentSpec, SwarmEntry, SwarmSpec
from mail.swarms_json.references import LOOKS_LIKE_REFERENCE, Resolve, resolve_params, resolver
from mail.swarms_json.signatures import Signature, TypedArguments, signature_of, typed_arguments

logger = logging.getLogger(__name__)

DEFAULT_TASK_MESSAGE_LIMIT = 15

BUILT_IN_PYTHON = "(built in Python)"
"""Placeholder for a factory without a name."""

MAX_SHOWN = 2000
"""Maximum number of characters of a schema that an error message repeats to an agent."""


# ------------------------------------------------------------------------------------------------- swarms


def build_swarm(
    entry: SwarmEntry,
    *,
    task_message_limit: int = DEFAULT_TASK_MESSAGE_LIMIT,
    failing_call_limit: int = FAILING_CALL_LIMIT,
    user_token: str = "",
    allowed_prefixes: Collection[str] | None = None,
    print_llm_streams: bool = True,
) -> SwarmCore:
    """Import everything that the entry refers to and build its agents.

    Args:
        task_message_limit, failing_call_limit: the server's settings; the entry's own take precedence.
        user_token: the token of the user, passed to the factories.
        allowed_prefixes: the modules that the entry may import from; None for all.
        print_llm_streams: the server's setting; False silences every factory that takes the parameter.

    Raises ConfigurationError if a reference can't be resolved or the settings contradict each other.
    """
    resolve = resolver(allowed_prefixes)
    actions = build_actions(entry, resolve)
    servers = mcp_servers(entry, is_trusted=allowed_prefixes is None)
    agents = [
        agent_spec(
            agent,
            _located(entry, agent, resolve),
            servers[agent.name],
            swarm=entry.name,
            is_trusted=allowed_prefixes is None,
        )
        for agent in entry.agents
    ]
    tools = {action.name: action for action in actions}
    functions = {
        agent.name: build_function(
            f"swarm {entry.name!r}, agent {agent.name!r}",
            replace(
                agent,
                factory=_located(entry, each, resolve)(each.factory),
                exclude_tools=[*entry.exclude_tools, *agent.exclude_tools],
            ),
            # An unknown name is reported by `assemble`, with a hint.
            [tools[name].to_tool_dict(agent.tool_format) for name in agent.actions if name in tools],
            instance_params={"user_token": user_token},
            print_llm_streams=print_llm_streams,
        )
        for each, agent in zip(entry.agents, agents, strict=True)
    }
    return assemble(
        swarm_spec(entry, agents, actions, resolve),
        functions,
        task_message_limit=task_message_limit,
        failing_call_limit=failing_call_limit,
    )


def read_params(
    where: str, params: Mapping[str, Any], resolve: Resolve, *, is_trusted: bool
) -> dict[str, Any]:
    """Return an agent's `agent_params`, their references resolved.

    Unless the operator has written them (`is_trusted`), raises ConfigurationError for those that could read the server's
    secrets: options that could send its keys elsewhere, and references to its environment variables.
    """
    found = resolve_params(params, resolve)
    if is_trusted:
        return found
    # no function that loads no swarm needs it
    from mail.factories.options import choose_connection, name_variables

    if refused := choose_connection(found):
        raise ConfigurationError(
            f"{where}: {', '.join(refused)} can be set only in the server's own swarms.json, not in a loaded swarm"
        )
    if refused := name_variables(found):
        raise ConfigurationError(
            f"{where}: {', '.join(refused)}: a swarm that is loaded over HTTP may not read environment variables"
        )
    return found


def _located(entry: SwarmEntry, agent: AgentEntry, resolve: Resolve) -> Resolve:
    """Return `resolve` with errors that name the agent."""

    def located(reference: str) -> Any:
        try:
            return resolve(reference)
        except ConfigurationError as error:
            raise ConfigurationError(f"swarm {entry.name!r}, agent {agent.name!r}: {error.detail}") from error

    return located


def swarm_spec(
    entry: SwarmEntry, agents: list[AgentSpec], actions: list[ActionCore], resolve: Resolve | None = None
) -> SwarmSpec:
    """Return the spec of an entry whose agents' references are resolved and whose actions are built.

    Without `resolve`, its `output_type` is left out.
    """
    if entry.output_schema is not None and entry.output_type is not None:
        raise ConfigurationError(f"swarm {entry.name!r}: give output_schema or output_type, not both")
    output_type: Any = entry.output_schema
    if entry.output_type is not None and resolve is not None:
        output_type = resolve(entry.output_type)
    return SwarmSpec(
        name=entry.name,
        version=entry.version,
        entrypoint=entry.entrypoint,
        agents=agents,
        actions=actions,
        enable_interswarm=entry.enable_interswarm,
        breakpoint_tools=entry.breakpoint_tools,
        exclude_tools=entry.exclude_tools,
        task_message_limit=entry.task_message_limit,
        failing_call_limit=entry.failing_call_limit,
        description=entry.description,
        keywords=entry.keywords,
        public=entry.public,
        enable_db_agent_histories=entry.enable_db_agent_histories,
        strict_tools=entry.strict_tools,
        output_type=output_type,
    )


def mcp_servers(entry: SwarmEntry, *, is_trusted: bool) -> dict[str, tuple[ToolServer, ...]]:
    """Return the MCP servers of each agent: the swarm's, and its own. Raises ConfigurationError."""
    return {
        agent.name: tool_servers(
            f"swarm {entry.name!r}, agent {agent.name!r}", {**entry.mcp, **agent.mcp}, is_trusted=is_trusted
        )
        for agent in entry.agents
    }


def agent_spec(
    entry: AgentEntry,
    resolve: Resolve | None = None,
    mcp: tuple[ToolServer, ...] = (),
    *,
    swarm: str = "",
    is_trusted: bool = True,
) -> AgentSpec:
    """Return the spec of an entry; without `resolve`, its `agent_params` stay as they are (see `read_params`).

    `swarm` is the name of its swarm, for messages.
    """
    where = f"swarm {swarm!r}, agent {entry.name!r}" if swarm else f"agent {entry.name!r}"
    params = entry.agent_params
    return AgentSpec(
        name=entry.name,
        factory=entry.factory,
        comm_targets=entry.comm_targets,
        actions=entry.actions,
        agent_params=read_params(where, params, resolve, is_trusted=is_trusted) if resolve else params,
        enable_entrypoint=entry.enable_entrypoint,
        enable_interswarm=entry.enable_interswarm,
        can_complete_tasks=entry.can_complete_tasks,
        tool_format=entry.tool_format,
        exclude_tools=entry.exclude_tools,
        sequential=entry.sequential,
        mcp=mcp,
        strict_tools=entry.strict_tools,
        approve=entry.approve,
        description=entry.description,
    )


def assemble(
    spec: SwarmSpec,
    functions: Mapping[str, AgentFunction],
    *,
    task_message_limit: int = DEFAULT_TASK_MESSAGE_LIMIT,
    failing_call_limit: int = FAILING_CALL_LIMIT,
) -> SwarmCore:
    """Return the swarm of a spec, given its agents' functions.

    `task_message_limit` and `failing_call_limit` are the server's settings; the spec's own take precedence. Raises
    ConfigurationError if the settings contradict each other.
    """
    where = f"swarm {spec.name!r}"
    _require_unique(f"{where}: agents", (agent.name for agent in spec.agents))
    _require_unique(f"{where}: actions", (action.name for action in spec.actions))
    by_name = {action.name: action for action in spec.actions}
    for tool in spec.breakpoint_tools:
        if tool not in by_name and tool not in MAIL_TOOLS:
            hint = did_you_mean(tool, [*by_name, *MAIL_TOOLS])
            raise ConfigurationError(
                f"{where}: breakpoint tool {tool!r} is not an action of the swarm{hint or '; declare it in actions, where it needs no function'}"
            )
    for agent in spec.agents:
        _check_approve(f"{where}, agent {agent.name!r}", agent, spec)
    source = tool_sources()
    return SwarmCore(
        name=spec.name,
        version=spec.version,
        entrypoint=spec.entrypoint,
        agents={
            agent.name: replace(
                agent,
                exclude_tools=[*spec.exclude_tools, *agent.exclude_tools],
                strict_tools=spec.strict_tools if agent.strict_tools is None else agent.strict_tools,
            ).to_core(functions[agent.name], source(agent.mcp, {*agent.actions, *MAIL_TOOLS}, agent.approve))
            for agent in spec.agents
        },
        actions=by_name,
        breakpoint_tools=frozenset(spec.breakpoint_tools),
        task_message_limit=spec.task_message_limit or task_message_limit,
        failing_call_limit=failing_call_limit if spec.failing_call_limit is None else spec.failing_call_limit,
        description=spec.description,
        keywords=tuple(spec.keywords),
        public=spec.public,
        output_schema=output_schema(where, spec.output_type),
        output_check=check_of(spec.output_type),
    )


def _check_approve(where: str, agent: AgentSpec, swarm: SwarmSpec) -> None:
    """Raise ConfigurationError if `approve` names a tool that the agent lacks, or that the engine doesn't run.

    Names may be those of MCP tools if these are not listed in the settings.
    """
    if isinstance(agent.approve, bool):
        return
    forms = {action.name for action in swarm.actions if action.form is not None}
    listed = {
        name
        for server in agent.mcp
        for tool in server.settings.tools or ()
        for name in names_of(server, tool)
    }
    is_open = any(server.settings.tools is None for server in agent.mcp)
    for name in agent.approve:
        if name in swarm.breakpoint_tools or name in forms:
            raise ConfigurationError(
                f"{where}: approve names {name!r}, whose calls are not run: it is a {'form' if name in forms else 'breakpoint tool'}"
            )
        if name in agent.actions or name in listed or (is_open and name not in MAIL_TOOLS):
            continue
        hint = did_you_mean(name, [*agent.actions, *listed])
        raise ConfigurationError(f"{where}: approve names {name!r}, which is not one of its actions{hint}")


def output_schema(where: str, output_type: Any) -> OutputSchema | None:
    """Return the schema of a type, or the schema itself. Raises ConfigurationError if it can't be used."""
    try:
        return None if output_type is None else schema_of(output_type)
    except BadRequest as error:
        raise ConfigurationError(f"{where}: {error.detail}") from error


def _require_unique(what: str, names: Iterable[str]) -> None:
    double = sorted(name for name, count in Counter(names).items() if count > 1)
    if double:
        raise ConfigurationError(
            f"{what} must have different names, but there are several: {', '.join(double)}"
        )


def describe_swarm(swarm: SwarmCore) -> SwarmEntry:
    """Return an entry for a swarm built in Python: its agents and their permissions, but not their factories."""
    return SwarmEntry(
        name=swarm.name,
        version=swarm.version,
        entrypoint=swarm.entrypoint,
        agents=[
            AgentEntry(
                name=name,
                factory=BUILT_IN_PYTHON,
                comm_targets=list(agent.comm_targets),
                actions=list(agent.actions),
                enable_entrypoint=agent.enable_entrypoint,
                enable_interswarm=agent.enable_interswarm,
                can_complete_tasks=agent.can_complete_tasks,
                tool_format=agent.tool_format,
                exclude_tools=sorted(agent.exclude_tools),
                sequential=agent.sequential,
                strict_tools=agent.strict_tools or None,
                approve=agent.approve if isinstance(agent.approve, bool) else sorted(agent.approve),
                description=agent.description,
            )
            for name, agent in swarm.agents.items()
        ],
        actions=[
            ActionEntry(
                name=action.name,
                description=action.description,
                parameters=dict(action.parameters),
                idempotent=action.idempotent,
                sequential=action.sequential,
            )
            for action in swarm.actions.values()
        ],
        breakpoint_tools=sorted(swarm.breakpoint_tools),
        task_message_limit=swarm.task_message_limit,
        # absent like other later keys, so that the digest of an entry stays the same
        failing_call_limit=None
        if swarm.failing_call_limit == FAILING_CALL_LIMIT
        else swarm.failing_call_limit,
        description=swarm.description,
        keywords=list(swarm.keywords),
        public=swarm.public,
        output_schema=swarm.output_schema,
    )


# ------------------------------------------------------------------------------------------------- agents


def build_function(
    where: str,
    spec: AgentSpec,
    tools: Sequence[Mapping[str, Any]],
    *,
    instance_params: Mapping[str, Any],
    print_llm_streams: bool = True,
) -> AgentFunction:
    """Call an agent's factory.

    Args:
        where: the agent, for messages.
        spec: the agent, its factory imported.
        tools: declare the agent's actions.
        instance_params: parameters that every agent of this instance gets, such as `user_token`. The agent's own
            `agent_params` take precedence over them, and the wiring over both.
        print_llm_streams: False silences every factory that takes the parameter.

    Raises ConfigurationError if the factory rejects its parameters or returns no function.
    """
    factory: Any = spec.factory
    wiring = spec.wiring(tools)
    _warn(where, wiring, spec.agent_params)
    given = {"user_token": "", **instance_params, **spec.agent_params, **wiring}
    if not print_llm_streams and _takes(factory, "print_llm_streams"):
        given["print_llm_streams"] = False
    if not _takes(factory, "exclude_tools"):  # a later addition, which some factories don't know
        del given["exclude_tools"]
    _check_parameters(where, factory, given, spec.agent_params)
    try:
        function = factory(**given)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{where}: its factory {_name(factory)!r} rejected its parameters: {error}"
        ) from error
    if not callable(function):
        raise ConfigurationError(
            f"{where}: its factory {_name(factory)!r} returned no function, but {type(function).__name__}; {AGENT_FUNCTION}"
        )
    return function  # type: ignore[no-any-return]  # a factory is foreign code


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


def _check_parameters(where: str, factory: Any, given: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for a key of `agent_params` that the factory doesn't take, and for one that is missing."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # no function, or one without a signature
        return
    try:
        signature.bind(**given)
    except TypeError as error:
        names = signature.parameters
        known = [name for name in names if name not in given or name in params]
        for name in params:
            if name not in names:
                hint = did_you_mean(name, known) or f"; it takes: {', '.join(known) or 'none'}"
                raise ConfigurationError(
                    f"{where}, agent_params.{name}: its factory {_name(factory)!r} has no such parameter{hint}"
                ) from error


def _takes(factory: Any, parameter: str) -> bool:
    """Return whether a factory can be called with this parameter."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return True
    return parameter in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _name(factory: Any) -> str:
    """Return the name of a factory or of its type; its text could hold anything, such as the globals of a module."""
    name = getattr(factory, "__qualname__", None)
    return name if isinstance(name, str) else type(factory).__name__


# ------------------------------------------------------------------------------------------------ actions


@runtime_checkable
class ConvertsToAction(Protocol):
    """An object that the `@action` decorator of `mail.api` returns."""

    def to_core(self) -> ActionCore:
        """Return the action in the form that the engine runs."""


def build_actions(entry: SwarmEntry, resolve: Resolve) -> list[ActionCore]:
    """Build all actions of the swarm, declared and imported. Raises ConfigurationError if one can't be built."""
    for action in entry.actions:
        if action.function is None and action.name not in entry.breakpoint_tools:
            raise ConfigurationError(
                f"swarm {entry.name!r}, action {action.name!r}: name its function, or list it in breakpoint_tools"
            )
    declared = [build_action(action, resolve, f"swarm {entry.name!r}, ") for action in entry.actions]
    return declared + [import_action(reference, resolve) for reference in entry.action_imports]


def build_action(action: ActionEntry, resolve: Resolve, where: str = "") -> ActionCore:
    """Build a declared action; without a function it can only be a breakpoint tool.

    Without `parameters`, those of a typed function are its arguments; without a description, its docstring describes it.
    """
    found = None if action.function is None else resolve(action.function)
    declared = ActionCore(
        name=action.name,
        function=_no_function,
        description=action.description,
        parameters=action.parameters,
        idempotent=action.idempotent,
        sequential=action.sequential,
        needs_approval=_needs_approval(action, resolve, where),
        approval_timeout=action.approval_timeout,
    )
    given = action.model_fields_set
    states_parameters = "parameters" in given
    if isinstance(found, ConvertsToAction):
        core = found.to_core()
        return replace(
            declared,
            function=core.function,
            description=action.description or core.description,
            parameters=action.parameters if states_parameters else core.parameters,
            model=None if states_parameters else core.model,
            idempotent=declared.idempotent if "idempotent" in given else core.idempotent,
            sequential=declared.sequential if "sequential" in given else core.sequential,
            needs_approval=declared.needs_approval if "needs_approval" in given else core.needs_approval,
            approval_timeout=declared.approval_timeout
            if "approval_timeout" in given
            else core.approval_timeout,
        )
    if found is None:
        model_of(action.name, action.parameters)  # reports errors in the schema, which nothing else checks
        return declared
    if not callable(found):
        raise ConfigurationError(f"{where}action {action.name!r}: {action.function!r} is not a function")
    signature = signature_of(found)
    if not states_parameters and signature.is_typed:
        function, parameters, arguments = typed_action(action.name, found, signature)
        return replace(
            declared,
            function=function,
            description=action.description or arguments.description,
            parameters=parameters,
            model=arguments.model,
        )
    return replace(declared, function=as_action_function(action.name, found, action.parameters))


def _needs_approval(action: ActionEntry, resolve: Resolve, where: str) -> bool | ApprovalPredicate:
    if isinstance(action.needs_approval, bool):
        return action.needs_approval
    found = resolve(action.needs_approval)
    if not callable(found):
        raise ConfigurationError(
            f"{where}action {action.name!r}: needs_approval: {action.needs_approval!r} is not a function"
        )
    return as_async(found)


def import_action(reference: str, resolve: Resolve) -> ActionCore:
    """Return the ready-made action that a reference names. Raises ConfigurationError if it names something else."""
    found = resolve(reference)
    if isinstance(found, ActionCore):
        return found
    if isinstance(found, ConvertsToAction):
        return found.to_core()
    raise ConfigurationError(
        f"action_imports: {reference!r} is not an action; name an object made by @mail.action"
    )


async def _no_function(_arguments: dict[str, Any]) -> str:
    """Stand in for the function of a breakpoint tool, which has none."""
    raise ToolCallFault("the user gives the result of this tool; it has no function")


# --------------------------------------------------------------------------------- functions as actions


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
    checks = model or wanted or described

    async def call(arguments: dict[str, Any]) -> str:
        checked = _check(name, checks, arguments, parameters)
        given: Any = checked
        if wanted is None:
            given = checked.model_dump(mode="json", by_alias=True) if model else arguments
        elif not isinstance(checked, wanted):
            given = _check(name, wanted, arguments, parameters)
        if signature.context is None:
            return as_text(name, await (run() if takes_nothing else run(given)))
        named = {signature.context: current_context()}
        if not takes_nothing:
            named[signature.by_position[0].name] = given
        return as_text(name, await run(**named))

    return call


def typed_action(
    name: str, function: Callable[..., Any], signature: Signature
) -> tuple[ActionFunction, dict[str, Any], TypedArguments]:
    """Wrap a function with typed parameters as the function of the action `name`; see `as_action_function`.

    Returns it with its arguments and their JSON Schema.
    """
    run = as_async(function)
    arguments = typed_arguments(name, function, signature)
    parameters: dict[str, Any] = pydantic_model_to_tool(arguments.model, name, "", "responses")["parameters"]

    async def call(given: dict[str, Any]) -> str:
        by_position, by_name = arguments.unpack(_check(name, arguments.model, given, parameters))
        if signature.context is not None:
            by_name[signature.context] = current_context()
        return as_text(name, await run(*by_position, **by_name))

    return call, parameters, arguments


def as_text(name: str, result: Any) -> str:
    """Return the result of an action as text: JSON, unless it is text. Raises TypeError for what JSON can't express."""
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
