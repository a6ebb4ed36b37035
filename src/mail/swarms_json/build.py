"""From a spec to a swarm that runs: references are imported, factories called, actions built.

Most rules on how agents and actions fit together are checked by `SwarmCore`. `assemble` checks the ones that need
lists: `SwarmCore` has mappings, in which a duplicate name would be lost.
"""

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol, TypedDict, runtime_checkable

from mail.actions.functions import as_action_function, as_async, as_cancel_function, typed_action
from mail.actions.signatures import signature_of
from mail.actions.timing import Finishes, Timing, read_timing
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.json_schema import model_of
from mail.core.protocol.mail_tools import MAIL_TOOLS, ReadMore
from mail.core.protocol.output_schema import OutputSchema, check_of, schema_of
from mail.core.protocol.values import fill
from mail.core.task.approvals import Approval
from mail.core.task.failing_calls import FAILING_CALL_LIMIT
from mail.core.task.guards import Guard
from mail.core.task.skills import add_to_prompt
from mail.core.task.swarm import (
    AGENT_FUNCTION,
    ActionCore,
    AgentFunction,
    ApprovalPredicate,
    ModelFunction,
    SwarmCore,
)
from mail.errors import BadRequest, ConfigurationError, ToolCallFault
from mail.mcp.servers import MCPServer, loaded_servers, tool_servers
from mail.mcp.tools import names_of, tool_sources
from mail.swarms_json.references import LOOKS_LIKE_REFERENCE, Resolve, resolve_params, resolver
from mail.swarms_json.secrets import without_secrets
from mail.swarms_json.skills import load_skills
from mail.swarms_json.specs import ActionSpec, AgentSpec, GuardSpec, SwarmSpec

logger = logging.getLogger(__name__)

DEFAULT_TASK_MESSAGE_LIMIT = 15

# ------------------------------------------------------------------------------------------------- swarms


def build_swarm(
    entry: SwarmSpec,
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
    tools = {action.name: action for action in actions}
    agents, functions = list[AgentSpec](), dict[str, AgentFunction]()
    for given in entry.agents:
        where = f"{entry.where}, {given.where}"
        located = _located(where, resolve)
        is_trusted = allowed_prefixes is None
        agent = resolve_agent(where, given, located, swarm_servers=entry.mcp, is_trusted=is_trusted)
        agents.append(agent)
        functions[agent.name] = build_function(
            where,
            agent.but(exclude_tools=[*entry.exclude_tools, *agent.exclude_tools]),
            # An unknown name is reported by `assemble`, with a hint.
            [tools[name].to_tool_dict(agent.tool_format) for name in agent.actions if name in tools],
            resolve=located,
            instance_params={"user_token": user_token},
            print_llm_streams=print_llm_streams,
        )
    swarm = assemble(
        resolve_swarm(entry, agents, resolve),
        actions,
        functions,
        task_message_limit=task_message_limit,
        failing_call_limit=failing_call_limit,
    )
    kept = without_secrets(entry.model_dump(mode="json", exclude={"on_update"}))
    return replace(swarm, entry=kept, is_loaded=allowed_prefixes is not None)


def read_params(
    where: str, params: Mapping[str, Any], resolve: Resolve, *, is_trusted: bool
) -> dict[str, Any]:
    """Return an agent's `agent_params`, their references resolved.

    Unless the operator has written them (`is_trusted`), raises ConfigurationError for those that could read the
    server's secrets: options that could send its keys elsewhere, and references to its environment variables.
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


def _located(where: str, resolve: Resolve) -> Resolve:
    """Return `resolve` with errors that begin with `where`."""

    def located(reference: str) -> Any:
        try:
            return resolve(reference)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error.detail}") from error

    return located


def resolve_swarm(swarm: SwarmSpec, agents: Sequence[AgentSpec], resolve: Resolve) -> SwarmSpec:
    """Return a swarm of a file with its `output_type` and its guards resolved.

    `agents` have its MCP servers already, and its actions are built apart, so it names neither any more.
    """
    output_type = swarm.output_type
    return swarm.but(
        agents=list(agents),
        actions=[],
        action_imports=[],
        mcp={},
        guards=resolve_guards(swarm.where, swarm.guards, resolve),
        output_type=resolve(output_type) if isinstance(output_type, str) else output_type,
    )


def resolve_agent(
    where: str,
    agent: AgentSpec,
    resolve: Resolve,
    *,
    swarm_servers: Mapping[str, MCPServer] = MappingProxyType({}),
    is_trusted: bool = True,
) -> AgentSpec:
    """Return an agent of a file with the references in its `agent_params` resolved, and the MCP servers of its swarm.

    Unless the operator has written the file (`is_trusted`), raises ConfigurationError for what could read the server's
    secrets or start programs; see `read_params` and `loaded_servers`. `where` is the agent, for messages.
    """
    servers = {**swarm_servers, **agent.mcp}
    return agent.but(
        agent_params=read_params(where, agent.agent_params, resolve, is_trusted=is_trusted),
        mcp=servers if is_trusted else loaded_servers(where, servers),
        guards=resolve_guards(where, agent.guards, resolve),
        skills=load_skills(where, agent.skills, is_trusted=is_trusted),
    )


def resolve_guards(where: str, guards: Sequence[Guard | GuardSpec | str], resolve: Resolve) -> list[Guard]:
    """Return the guards of a file; `where` is whose they are, for messages. Raises ConfigurationError."""
    found: list[Guard] = []
    for each in guards:
        if isinstance(each, Guard):
            found.append(each)
            continue
        reference = each if isinstance(each, str) else each.factory
        guard = resolve(reference)
        if isinstance(each, GuardSpec):
            try:
                guard = guard(**each.params)
            except (TypeError, ValueError) as error:
                raise ConfigurationError(f"{where}, guards: {reference!r}: {error}") from error
        if not isinstance(guard, Guard):
            problem = "is no guard; make it by @guard" if isinstance(each, str) else "makes no guard"
            raise ConfigurationError(f"{where}, guards: {reference!r} {problem}")
        found.append(guard)
    return found


def assemble(
    spec: SwarmSpec,
    actions: Sequence[ActionCore],
    functions: Mapping[str, AgentFunction],
    *,
    task_message_limit: int = DEFAULT_TASK_MESSAGE_LIMIT,
    failing_call_limit: int = FAILING_CALL_LIMIT,
) -> SwarmCore:
    """Return the swarm of a spec, given its actions and its agents' functions.

    `task_message_limit` and `failing_call_limit` are the server's settings; the spec's own take precedence. Raises
    ConfigurationError if the settings contradict each other.
    """
    where = spec.where
    _require_unique(f"{where}: agents", (agent.name for agent in spec.agents))
    _require_unique(f"{where}: actions", (action.name for action in actions))
    by_name = {action.name: action for action in actions}
    for tool in spec.breakpoint_tools:
        if tool not in by_name and tool not in MAIL_TOOLS:
            hint = did_you_mean(tool, [*by_name, *MAIL_TOOLS])
            raise ConfigurationError(
                f"{where}: breakpoint tool {tool!r} is not an action of the "
                f"swarm{hint or '; declare it in actions, where it needs no function'}"
            )
    for agent in spec.agents:
        _check_approve(f"{where}, agent {agent.name!r}", agent, spec.breakpoint_tools, by_name)
    if spec.output_schema is not None and spec.output_type is not None:
        raise ConfigurationError(f"{where}: give output_schema or output_type, not both")
    source = tool_sources()
    members = fill(
        SwarmCore,
        spec,
        finishes=spec.on_update == "finish",
        agents={
            agent.name: agent.but(
                exclude_tools=[*spec.exclude_tools, *agent.exclude_tools],
                strict_tools=spec.strict_tools if agent.strict_tools is None else agent.strict_tools,
            ).to_core(
                functions[agent.name],
                source(tool_servers(agent.mcp), {*agent.actions, *MAIL_TOOLS}, agent.approve),
            )
            for agent in spec.agents
        },
        actions=by_name,
        breakpoint_tools=frozenset(spec.breakpoint_tools),
        guards=tuple(spec.guards),
        task_message_limit=spec.task_message_limit or task_message_limit,
        failing_call_limit=failing_call_limit if spec.failing_call_limit is None else spec.failing_call_limit,
        keywords=tuple(spec.keywords),
        output_schema=output_schema(where, spec.answer_type),
        output_check=check_of(spec.answer_type),
    )
    return SwarmCore(**members)


def _check_approve(
    where: str, agent: AgentSpec, breakpoint_tools: Collection[str], actions: Mapping[str, ActionCore]
) -> None:
    """Raise ConfigurationError if `approve` names a tool that the agent lacks, or that the engine doesn't run.

    Names may be those of MCP tools if these are not listed in the settings.
    """
    if isinstance(agent.approve, bool):
        return
    forms = {name for name, action in actions.items() if action.form is not None}
    listed = {
        name
        for server in tool_servers(agent.mcp)
        for tool in server.settings.tools or ()
        for name in names_of(server, tool)
    }
    is_open = any(server.settings.tools is None for server in tool_servers(agent.mcp))
    for name in agent.approve:
        if name in breakpoint_tools or name in forms:
            raise ConfigurationError(
                f"{where}: approve names {name!r}, whose calls are not run: it is a "
                f"{'form' if name in forms else 'breakpoint tool'}"
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


def describe_swarm(swarm: SwarmCore) -> SwarmSpec:
    """Return an entry for a swarm built in Python: its agents and their permissions, but not their factories."""
    settings = fill(
        SwarmSpec,
        swarm,
        on_update="finish" if swarm.finishes else "switch",
        agents=[AgentSpec.of_core(name, agent) for name, agent in swarm.agents.items()],
        actions=[
            ActionSpec(
                name=action.name,
                description=action.description,
                parameters=dict(action.parameters),
                idempotent=action.idempotent,
                read_only=action.read_only,
                sequential=action.sequential,
                finishes="now" if action.finish_within is None else "later",
                timeout=action.timeout if action.finish_within is None else action.finish_within,
                heartbeat=action.heartbeat,
                retries=action.retries,
            )
            for action in swarm.actions.values()
        ],
        breakpoint_tools=sorted(swarm.breakpoint_tools),
        guards=list(swarm.guards),
        # absent like other later keys, so that the digest of an entry stays the same
        failing_call_limit=None
        if swarm.failing_call_limit == FAILING_CALL_LIMIT
        else swarm.failing_call_limit,
        model_limits=dict(swarm.model_limits),
        keywords=list(swarm.keywords),
    )
    return SwarmSpec(**settings)


# ------------------------------------------------------------------------------------------------- agents


def build_function(
    where: str,
    spec: AgentSpec,
    tools: Sequence[Mapping[str, Any]],
    *,
    resolve: Resolve,
    instance_params: Mapping[str, Any],
    print_llm_streams: bool = True,
) -> AgentFunction:
    """Call an agent's factory.

    Args:
        where: the agent, for messages.
        tools: declare the agent's actions.
        resolve: imports a factory that is given as an import string.
        instance_params: parameters that every agent of this instance gets, such as `user_token`. The agent's own
            `agent_params` take precedence over them, and the wiring over both.
        print_llm_streams: False silences every factory that takes the parameter.

    Raises ConfigurationError if the factory rejects its parameters or returns no function.
    """
    factory: Any = resolve(spec.factory) if isinstance(spec.factory, str) else spec.factory
    wiring = spec.wiring(tools)
    _warn(where, wiring, spec.agent_params)
    given = {"user_token": "", **instance_params, **spec.agent_params, **wiring}
    if spec.skills:
        given["system"] = add_to_prompt(given.get("system") or "", spec.skills)
    if not print_llm_streams and _takes(factory, "print_llm_streams"):
        given["print_llm_streams"] = False
    for later in ("exclude_tools", "reminders"):  # additions, which some factories don't know
        if later in wiring and not _takes(factory, later):
            del given[later]
    _check_parameters(where, factory, given, spec.agent_params)
    try:
        function = factory(**given)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{where}: its factory {_name(factory)!r} rejected its parameters: {error}"
        ) from error
    if not callable(function):
        raise ConfigurationError(
            f"{where}: its factory {_name(factory)!r} returned no function, but {type(function).__name__}; "
            f"{AGENT_FUNCTION}"
        )
    if spec.skills:
        _check_skills(where, spec, function, given["system"])
    return function  # type: ignore[no-any-return]  # a factory is foreign code


def _check_skills(where: str, spec: AgentSpec, function: AgentFunction, system: str) -> None:
    """Raise ConfigurationError if an agent with skills doesn't read of them in its prompt, or can't read them."""
    if spec.context == "off" or ReadMore.tool_name in spec.exclude_tools:
        raise ConfigurationError(
            f"{where}: skills are read with the tool {ReadMore.tool_name}, which context 'off' and exclude_tools take "
            "away"
        )
    if not isinstance(function, ModelFunction) or system not in (getattr(function, "system", None) or ""):
        raise ConfigurationError(
            f"{where}: skills are for agents with a model and a system prompt; the function of a factory needs the "
            "attributes llm and system, the latter with what the factory was given as system"
        )


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
    """Raise ConfigurationError for a key of `agent_params` that the factory doesn't take, or that is missing."""
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


def build_actions(entry: SwarmSpec, resolve: Resolve) -> list[ActionCore]:
    """Build all actions of the swarm, declared and imported. Raises ConfigurationError if one can't be built."""
    for action in entry.actions:
        if action.function is None and action.name not in entry.breakpoint_tools:
            raise ConfigurationError(
                f"{entry.where}, {action.where}: name its function, or list it in breakpoint_tools"
            )
    declared = [build_action(action, resolve, f"{entry.where}, ") for action in entry.actions]
    return declared + [import_action(reference, resolve) for reference in entry.action_imports]


def build_action(action: ActionSpec, resolve: Resolve, where: str = "") -> ActionCore:
    """Build a declared action; without a function it can only be a breakpoint tool.

    Without `parameters`, those of a typed function are its arguments; without a description, its docstring describes
    it.
    """
    core = _build_action(action, resolve, where)
    if action.on_cancel is None:
        return core
    found = resolve(action.on_cancel)
    return replace(core, on_cancel=as_cancel_function(action.name, found, core.parameters))


def _build_action(action: ActionSpec, resolve: Resolve, where: str) -> ActionCore:
    found = None if action.function is None else resolve(action.function)
    given = action.model_fields_set
    core = found.to_core() if isinstance(found, ConvertsToAction) else ActionCore(action.name, _no_function)
    declared = {name: getattr(action, name) for name in _DECLARED if name in given}
    if "needs_approval" in given:
        declared |= _needs_approval(action, resolve, where)
    core = replace(
        core,
        name=action.name,
        description=action.description or core.description,
        model=None if "parameters" in given else core.model,
        **_timing(action, core)._asdict(),
        **declared,
    )
    if isinstance(found, ConvertsToAction):
        return core
    if found is None:
        model_of(action.name, action.parameters)  # reports errors in the schema, which nothing else checks
        return core
    if not callable(found):
        raise ConfigurationError(f"{where}action {action.name!r}: {action.function!r} is not a function")
    signature = signature_of(found)
    if "parameters" not in given and signature.is_typed:
        function, parameters, arguments = typed_action(action.name, found, signature)
        return replace(
            core,
            function=function,
            description=action.description or arguments.description,
            parameters=parameters,
            model=arguments.model,
        )
    return replace(core, function=as_action_function(action.name, found, action.parameters))


_DECLARED = ("parameters", "idempotent", "read_only", "sequential", "retries", "approval_timeout")
"""The settings of a declared action that take precedence over those of its function, if they are given."""


def _timing(action: ActionSpec, core: ActionCore) -> Timing:
    """Return the time limits of an action, with those of `core` for what is not declared."""
    given, is_later = action.model_fields_set, core.finish_within is not None
    finishes: Finishes = action.finishes if "finishes" in given else "later" if is_later else "now"
    timeout = action.timeout if "timeout" in given else core.finish_within if is_later else core.timeout
    return read_timing(
        action.name, finishes, timeout, action.heartbeat if "heartbeat" in given else core.heartbeat
    )


class Terms(TypedDict):
    """Who must approve which calls of an action; fields of `ActionCore`."""

    needs_approval: bool | ApprovalPredicate
    reviewers: Approval | None


def terms_of(rule: Approval | None, when: bool | Callable[..., Any] | None) -> Terms:
    """Return the settings of an action whose calls must be approved by a rule, `when` a function says so, if given."""
    needs_approval = as_async(when) if callable(when) else when is not False
    return {"needs_approval": needs_approval, "reviewers": None if rule is None else rule.but(when=None)}


def _needs_approval(action: ActionSpec, resolve: Resolve, where: str) -> Terms:
    given = action.needs_approval
    rule, when = (given, given.when) if isinstance(given, Approval) else (None, given)
    if not isinstance(when, str):
        return terms_of(rule, when)
    if not callable(found := resolve(when)):
        raise ConfigurationError(f"{where}action {action.name!r}: needs_approval: {when!r} is not a function")
    return terms_of(rule, found)


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
