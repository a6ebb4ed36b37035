"""Swarms (`MAILSwarm`) and the templates that build them (`MAILSwarmTemplate`)."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import wraps
from inspect import iscoroutinefunction, markcoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, Self, TypedDict, Unpack

from mail import bootstrap
from mail.api.actions import MAILAction, Setting
from mail.api.agents import MAILAgent, MAILAgentTemplate, template_for
from mail.api.embedded import Mode
from mail.api.overrides import ActionOverrideFunction
from mail.api.runtime import (
    ANSWER_SECONDS,
    LOCAL_URL,
    PING_SECONDS,
    AnyMessage,
    MAILRuntime,
    RuntimeOptions,
    UserRole,
)
from mail.api.tracebacks import without_frames
from mail.core.decisions.submit import Submission
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import (
    MAILAddress,
    create_admin_address,
    create_agent_address,
    create_user_address,
    parse_agent_address,
)
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.compose import compose_message
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.output_schema import schema_of
from mail.core.task.documents import IN_MEMORY
from mail.core.task.failing_calls import FAILING_CALL_LIMIT
from mail.core.task.guards import Guard
from mail.core.task.permits import ModelLimits
from mail.core.task.ports import Store
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.errors import BadRequest, ConfigurationError
from mail.swarms_json.build import (
    DEFAULT_TASK_MESSAGE_LIMIT,
    assemble,
    build_actions,
    resolve_swarm,
)
from mail.swarms_json.load import DEFAULT_SOURCE, load_swarm, load_swarm_json
from mail.swarms_json.references import resolver
from mail.swarms_json.specs import OnUpdate, SwarmOptions, SwarmSpec
from mail.swarms_json.validation import check_swarm, validate_swarm_from_swarms_json
from mail.utils.parsing import target_address_is_interswarm

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse, ServerSentEvent

    from mail.net import SwarmRegistry

SenderType = Literal["admin", "agent", "user"]
MessageType = Literal["request", "response", "broadcast", "interrupt"]

NEW_MESSAGE = str(Submission.model_fields["subject"].default)

UNVERSIONED = "0"
"""The version of a swarm that states none."""

DEFAULT_USER = "default"

Approvals = Mapping[str, Any] | Sequence[Mapping[str, Any]]

Answered = tuple[MAILMessage, list["ServerSentEvent"]]
"""The response that completes a task and, if requested, the events up to it."""


class PostOptions(TypedDict, total=False):
    """The keyword arguments of `MAILSwarm.post_message`."""

    breakpoint_tool_call_result: Any
    approvals: Approvals | None
    max_steps: int | None
    drop_question: bool
    output_type: Any


class _Swarm[Agent: (MAILAgent, MAILAgentTemplate)]:
    """Base class of swarms and their templates, with the fields of their spec as attributes.

    Raises ConfigurationError for invalid settings.
    """

    name = Setting[str]()
    version = Setting[str]()
    code = Setting[str]()
    on_update = Setting[OnUpdate]()
    entrypoint = Setting[str]()
    enable_interswarm = Setting[bool]()
    breakpoint_tools = Setting[list[str]]()
    exclude_tools = Setting[list[str]]()
    task_message_limit = Setting[int | None]()
    failing_call_limit = Setting[int | None]()
    model_limits = Setting[dict[str, ModelLimits]]()
    description = Setting[str]()
    keywords = Setting[list[str]]()
    public = Setting[bool]()
    enable_db_agent_histories = Setting[bool]()
    strict_tools = Setting[bool]()
    members = Setting[dict[str, str]]()
    member_days = Setting[float]()
    guards = Setting[list[Guard]]()
    output_type = Setting[Any]()

    def __init__(self, spec: SwarmSpec, agents: Sequence[Agent], actions: Sequence[MAILAction]) -> None:
        self._spec = spec
        self.agents: list[Agent] = list(agents)
        self.actions = list(actions)
        self._validate()

    @property
    def spec(self) -> SwarmSpec:
        """The present settings of the swarm and its agents; its actions are in `actions`."""
        return self._spec.but(agents=[agent.spec for agent in self.agents])

    def get_subswarm(
        self, names: Sequence[str], name_suffix: str, entrypoint: str | None = None
    ) -> "MAILSwarmTemplate":
        """Return a template with these agents only, named `<name>-<name_suffix>`.

        They may write to each other as before, and to other swarms. The entrypoint stays, or becomes the first
        agent with `enable_entrypoint`. Raises ConfigurationError if no entrypoint or no supervisor is left.
        """
        known = {agent.name: agent for agent in self.agents}
        for name in names:
            if name not in known:
                raise ConfigurationError(
                    f"swarm {self.name!r}: there is no agent {name!r}{did_you_mean(name, known)}"
                )
        kept = [agent for agent in self.agents if agent.name in names]
        actions = {id(action): action for agent in kept for action in agent.actions}
        own_tools = {action.name for action in actions.values()}
        lost_tools = {action.name for action in self._all_actions()} - own_tools
        spec = self.spec.but(
            name=f"{self.name}-{name_suffix}",
            entrypoint=entrypoint or self._entrypoint_of(kept),
            breakpoint_tools=[tool for tool in self.breakpoint_tools if tool not in lost_tools],
        )
        agents = [template_for(agent, names) for agent in kept]
        return MAILSwarmTemplate.from_spec(spec, agents, list(actions.values()))

    def _validate(self) -> None:
        """Raise ConfigurationError for invalid settings, with a hint at mistyped names."""
        check_swarm(self.spec, self._cores())

    def _cores(self) -> list[ActionCore]:
        """Return the actions of the swarm and of its agents in the form that the engine runs."""
        return [action.to_core() for action in self._all_actions()]

    def _all_actions(self) -> list[MAILAction]:
        """Return the actions of the swarm and of its agents, without duplicates."""
        actions = [*self.actions, *(action for agent in self.agents for action in agent.actions)]
        return list({id(action): action for action in actions}.values())

    def _build_adjacency_matrix(self) -> tuple[list[list[int]], list[str]]:
        """Return the matrix of permissions to write, and the agents' names.

        Row i has a 1 in column j if agent i may write to agent j.
        """
        names = [agent.name for agent in self.agents]
        rows = [
            [int(not {name, f"{name}@{self.name}"}.isdisjoint(agent.comm_targets)) for name in names]
            for agent in self.agents
        ]
        return rows, names

    def _targets_in(self, adj: Sequence[Sequence[int]]) -> list[list[str]]:
        """Return each agent's `comm_targets` by a matrix; remote ones stay. Raises ConfigurationError."""
        names = [agent.name for agent in self.agents]
        if len(adj) != len(names) or any(len(row) != len(names) for row in adj):
            raise ConfigurationError(
                f"swarm {self.name!r}: the matrix must have {len(names)} rows of {len(names)} columns, for {names}"
            )
        return [
            [name for name, may in zip(names, row, strict=True) if may]
            + [
                target
                for target in agent.comm_targets
                if target_address_is_interswarm(target) and not target.endswith(f"@{self.name}")
            ]
            for agent, row in zip(self.agents, adj, strict=True)
        ]

    def _entrypoint_of(self, agents: Sequence[Agent]) -> str:
        """Return the swarm's entrypoint if it is among the agents, else the first one with `enable_entrypoint`."""
        possible = [agent.name for agent in agents if agent.enable_entrypoint]
        if not possible:
            raise ConfigurationError(
                f"swarm {self.name!r}: none of these agents has enable_entrypoint: {[agent.name for agent in agents]}"
            )
        return self.entrypoint if self.entrypoint in possible else possible[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _of_runtime[**P, T](
    method: Callable[Concatenate[MAILRuntime, P], T],
) -> Callable[Concatenate["MAILSwarm", P], T]:
    """Return a method of a swarm that is one of its runtime."""

    @wraps(method)
    def call(swarm: "MAILSwarm", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(swarm.runtime, *args, **kwargs)

    return markcoroutinefunction(call) if iscoroutinefunction(method) else call


class MAILSwarm(_Swarm[MAILAgent]):
    """A swarm that runs, for one user.

    Args:
        user_role: `agent` for another swarm.
        swarm_registry: the other swarms that agents may write to after `start_interswarm`.
        enable_interswarm: whether `start_interswarm` may be called.
        breakpoint_tools: tools whose call pauses the task until the user provides their result.
        exclude_tools: MAIL tools that no agent may call.
        task_message_limit: maximum number of steps of a task; None for the default.
        enable_db_agent_histories: has no effect; histories are always kept in the store.
        print_llm_streams: False silences every agent that prints its model's output.
        database: the store of the tasks: a `Store`, or a value of `[server.storage] database`. In memory by default.
        code: the version of the swarm's code, such as a commit, which is recorded with the tasks' turns.
        on_update: whether running tasks `switch` to this version, or `finish` on the one that they began with.
        failing_call_limit: how often the same call of an action may fail with the same error before its agent's turn
            fails; 0 for no limit, None for the default.
        model_limits: the limits of providers, such as `{"anthropic/*": {"requests_per_minute": 60}}`.
        strict_tools: whether text of an agent without a tool call is an error, instead of an answer.
        guards: judge what all agents say and do before that leaves their turns (docs/guards.md).
        output_type: what final answers must be: a pydantic model, dataclass, `TypedDict`, `list[…]` or JSON Schema.

    Raises ConfigurationError for invalid settings.
    """

    def __init__(
        self,
        name: str,
        version: str,
        agents: Sequence[MAILAgent],
        actions: Sequence[MAILAction],
        entrypoint: str,
        user_id: str = DEFAULT_USER,
        user_role: UserRole = "user",
        swarm_registry: "SwarmRegistry | None" = None,
        enable_interswarm: bool = False,
        breakpoint_tools: Sequence[str] = (),
        exclude_tools: Sequence[str] = (),
        task_message_limit: int | None = None,
        description: str = "",
        keywords: Sequence[str] = (),
        enable_db_agent_histories: bool = False,
        print_llm_streams: bool = True,
        *,
        database: Store | str = IN_MEMORY,
        output_type: Any = None,
        **settings: Unpack[SwarmOptions],
    ) -> None:
        spec = read_swarm(
            name,
            agents,
            output_type,
            version=version,
            entrypoint=entrypoint,
            enable_interswarm=enable_interswarm,
            breakpoint_tools=list(breakpoint_tools),
            exclude_tools=list(exclude_tools),
            task_message_limit=task_message_limit,
            description=description,
            keywords=list(keywords),
            enable_db_agent_histories=enable_db_agent_histories,
            **settings,
        )
        super().__init__(spec, agents, actions)
        self._set_up(
            user_id,
            user_role,
            swarm_registry=swarm_registry,
            print_llm_streams=print_llm_streams,
            database=database,
        )

    @classmethod
    def from_spec(
        cls,
        spec: SwarmSpec,
        agents: Sequence[MAILAgent],
        actions: Sequence[MAILAction],
        user_id: str,
        user_role: UserRole,
        **options: Unpack[RuntimeOptions],
    ) -> Self:
        """Return the swarm with these settings; the agents and actions replace those of `spec`."""
        swarm = cls.__new__(cls)
        _Swarm.__init__(swarm, spec, agents, actions)
        swarm._set_up(user_id, user_role, **options)
        return swarm

    def _set_up(self, user_id: str, user_role: UserRole, **options: Unpack[RuntimeOptions]) -> None:
        self.user_id = user_id
        self.user_role: UserRole = user_role
        options["enable_interswarm"] = self.enable_interswarm
        options["enable_db_agent_histories"] = self.enable_db_agent_histories
        self._runtime = MAILRuntime.from_core(self._core(), user_id, user_role, **options)

    @property
    def runtime(self) -> MAILRuntime:
        """The runtime of the swarm's tasks."""
        return self._runtime

    @property
    def swarm_registry(self) -> "SwarmRegistry | None":
        """The other swarms that agents may write to."""
        return self._runtime.swarm_registry

    # ------------------------------------------------------------------------------ messages by their text

    async def post_message(
        self,
        body: str,
        subject: str = NEW_MESSAGE,
        msg_type: MessageType = "request",
        entrypoint: str | None = None,
        show_events: bool = False,
        timeout: float | None = ANSWER_SECONDS,
        task_id: str | None = None,
        resume_from: str | None = None,
        **options: Unpack[PostOptions],
    ) -> Answered:
        """Send a message to the swarm and wait for its answer.

        If the swarm isn't running yet, it starts now and runs until `shutdown`.

        Args:
            entrypoint: the agent to write to; by default that of the task, or the swarm's.
            show_events: whether to return the task's events.
            timeout: seconds to wait; the task continues afterwards.
            task_id: the id of a new task, or of the task to continue; by default a new task is created.
            resume_from: `user_response` or `breakpoint_tool_call`, to resume a task that has stopped.
            breakpoint_tool_call_result: the results of breakpoint tools: JSON text, `{"content": …}`, a list of
                `{"call_id": …, "content": …}`, or plain text.
            approvals: decisions on calls that wait for approval, or a single one: `{"decision": "approve"}`, `"reject"`
                or `"edit"`, and optionally `call_id` or `all`, `arguments` and `reason`.
            max_steps: maximum number of steps.
            drop_question: whether a message to a task that waits for an answer drops the question.
            output_type: what the answer must be: a pydantic model, dataclass, `TypedDict`, `list[…]` or JSON Schema.
                Its text is then JSON.

        Returns the response, whose text is `response["message"]["body"]`, and the events.

        Raises BadRequest (always in manual mode), TaskNotFound, QuestionOpen, or TimeoutError.
        """
        submitted = await self._post(body, subject, msg_type, entrypoint, task_id, resume_from, **options)
        return await self._answer(submitted, await self._runtime.wait(submitted, timeout), show_events)

    async def post_message_stream(
        self,
        body: str,
        subject: str = NEW_MESSAGE,
        msg_type: MessageType = "request",
        entrypoint: str | None = None,
        timeout: float | None = ANSWER_SECONDS,
        task_id: str | None = None,
        resume_from: str | None = None,
        **options: Unpack[PostOptions],
    ) -> "EventSourceResponse":
        """Send a message to the swarm and stream the events up to its answer, for at most `timeout` seconds.

        See `post_message`.
        """
        submitted = await self._post(body, subject, msg_type, entrypoint, task_id, resume_from, **options)
        return await self._runtime.stream(submitted, timeout)

    async def post_message_and_run(
        self,
        body: str,
        subject: str = NEW_MESSAGE,
        msg_type: MessageType = "request",
        entrypoint: str | None = None,
        show_events: bool = False,
        timeout: float | None = ANSWER_SECONDS,
        task_id: str | None = None,
        resume_from: str | None = None,
        action_override: ActionOverrideFunction | None = None,
        **options: Unpack[PostOptions],
    ) -> Answered:
        """Send a message to the swarm and run it until there is an answer. See `post_message`."""
        submitted = await self._post(body, subject, msg_type, entrypoint, task_id, resume_from, **options)
        answer = await self._runtime.run_and_wait(submitted, timeout, action_override)
        return await self._answer(submitted, answer, show_events)

    # ----------------------------------------------------------------------------- whole messages

    def build_message(
        self,
        subject: str,
        body: str,
        targets: Sequence[str],
        sender_type: SenderType = "user",
        type: MessageType = "request",  # noqa: A002  # the documented name
        task_id: str | None = None,
        *,
        sender: str | None = None,
    ) -> MAILMessage:
        """Return a message that is ready to be submitted.

        Args:
            targets: agents; `["all"]` for all of them. A request or response has exactly one.
            sender: the sender's address, with `sender_type="agent"` an agent's; the default is this swarm's user.
            task_id: the default is a new one.

        Raises BadRequest if the targets don't fit the type, or if the sender is not an agent of this swarm.
        """
        if sender is not None and sender_type == "agent":
            self._require_agent(sender)
        return compose_message(
            type,
            task_id=task_id or SYSTEM_CLOCK.new_id(),
            sender=_sender(sender_type, sender or self.user_id),
            recipients=[create_agent_address(target) for target in targets],
            subject=subject,
            body=body,
            clock=SYSTEM_CLOCK,
        )

    async def submit_message(
        self,
        message: AnyMessage,
        timeout: float | None = ANSWER_SECONDS,
        show_events: bool = False,
        resume_from: str | None = None,
        **options: Any,
    ) -> Answered:
        """Submit a message and wait for the answer to it; see `post_message`."""
        submitted = await self._runtime.submit(message, resume_from=resume_from, **options)
        return await self._answer(submitted, await self._runtime.wait(submitted, timeout), show_events)

    async def submit_message_stream(
        self,
        message: AnyMessage,
        timeout: float | None = ANSWER_SECONDS,
        resume_from: str | None = None,
        *,
        ping_interval: float = PING_SECONDS,
        **options: Any,
    ) -> "EventSourceResponse":
        """Submit a message and stream the events up to the answer, for at most `timeout` seconds.

        After each `ping_interval` seconds without an event comes a `ping`.
        """
        return await self._runtime.submit_and_stream(
            message, timeout, resume_from, ping_interval=ping_interval, **options
        )

    async def submit_message_nowait(self, message: AnyMessage, **options: Any) -> None:
        """Submit a message; when this returns, it is stored in its recipients' mailboxes."""
        await self._runtime.submit(message, **options)

    # ------------------------------------------------------------------------------------ running

    def run_continuous(
        self,
        action_override: ActionOverrideFunction | None = None,
        mode: Mode = "continuous",
        *,
        max_steps: int | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Run the swarm until `shutdown`.

        The mode takes effect immediately, even before the returned coroutine is awaited: after
        `asyncio.create_task(swarm.run_continuous(mode="manual"))`, the next message already starts a manual task.

        Args:
            action_override: called with the name and arguments of each action, in place of its own function; if it
                returns None, the action's own function runs after all.
            mode: with `manual`, agents take a turn only on `manual_step`.
            max_steps: maximum number of steps of a task, in place of the swarm's `task_message_limit`.
        """
        running = self._runtime.run_continuous(action_override, mode, max_steps=max_steps)
        if max_steps is not None:
            self.task_message_limit = max_steps
        return running

    manual_step = _of_runtime(MAILRuntime.manual_step)
    await_queue_empty = _of_runtime(MAILRuntime.await_queue_empty)
    shutdown = _of_runtime(MAILRuntime.shutdown)

    def get_pending_requests(self) -> dict[str, asyncio.Future[MAILMessage]]:
        """Return the future of the answer of each task with a waiting caller."""
        return dict(self._runtime.pending_requests)

    # ------------------------------------------------------------------------------------ structure

    def update_from_adjacency_matrix(self, adj: Sequence[Sequence[int]]) -> None:
        """Let agent i write to agent j if row i has a 1 in column j, and to no other agent of the swarm.

        This takes effect at each agent's next turn, in running tasks too.
        """
        for agent, targets in zip(self.agents, self._targets_in(adj), strict=True):
            agent.rewire(targets)
        self._runtime.swarm = self._core()

    # --------------------------------------------------------------------------------- other swarms

    start_interswarm = _of_runtime(MAILRuntime.start_interswarm)
    stop_interswarm = _of_runtime(MAILRuntime.stop_interswarm)
    is_interswarm_running = _of_runtime(MAILRuntime.is_interswarm_running)
    handle_interswarm_response = _of_runtime(MAILRuntime.handle_interswarm_response)
    route_interswarm_message = _of_runtime(MAILRuntime.route_interswarm_message)
    post_interswarm_user_message = _of_runtime(MAILRuntime.post_interswarm_user_message)

    # --------------------------------------------------------------------------------------- internals

    def _core(self) -> SwarmCore:
        return assemble(self.spec, self._cores(), {agent.name: agent.function for agent in self.agents})

    def _require_agent(self, address: str) -> None:
        """Raise BadRequest for an address that names an unknown agent of this swarm."""
        name, swarm = parse_agent_address(address)
        names = [agent.name for agent in self.agents]
        if swarm in (None, self.name) and name not in names:
            raise BadRequest(
                f"sender {address!r} is not an agent of swarm {self.name!r}{did_you_mean(name, names)}"
            )

    async def _post(
        self,
        body: str,
        subject: str,
        msg_type: MessageType,
        entrypoint: str | None,
        task_id: str | None,
        resume_from: str | None,
        *,
        approvals: Approvals | None = None,
        output_type: Any = None,
        **fields: Any,
    ) -> Submitted:
        self._runtime.require_continuous()
        return await self._runtime.post(
            body=body,
            subject=subject,
            msg_type=msg_type,
            entrypoint=entrypoint,
            task_id=task_id,
            resume_from=resume_from,
            approvals=[approvals] if isinstance(approvals, Mapping) else approvals,
            output_schema=None if output_type is None else schema_of(output_type),
            **fields,
        )

    async def _answer(self, submitted: Submitted, answer: MAILMessage, show_events: bool) -> Answered:
        return answer, await self._runtime.read_answer_events(submitted) if show_events else []


class MAILSwarmTemplate(_Swarm[MAILAgentTemplate]):
    """A template for building a swarm, for any number of users.

    Args:
        version: the version of the swarm itself.
        actions: the swarm's actions; those of its agents are added.
        entrypoint: the agent that users write to.
        breakpoint_tools: tools whose call pauses the task until the user provides their result.
        exclude_tools: MAIL tools that no agent may call.
        task_message_limit: maximum number of steps of a task; None for the default.
        public: whether it is visible to other swarms.
        enable_db_agent_histories: has no effect; histories are always kept in the store.
        code: the version of the swarm's code, such as a commit, which is recorded with the tasks' turns.
        on_update: whether running tasks `switch` to this version, or `finish` on the one that they began with.
        failing_call_limit: how often the same call of an action may fail with the same error before its agent's turn
            fails; 0 for no limit, None for the default.
        strict_tools: whether text of an agent without a tool call is an error, instead of an answer.
        guards: judge what all agents say and do before that leaves their turns (docs/guards.md).
        output_type: what final answers must be: a pydantic model, dataclass, `TypedDict`, `list[…]` or JSON Schema.

    Raises ConfigurationError for invalid settings.
    """

    @without_frames
    def __init__(
        self,
        name: str,
        version: str = UNVERSIONED,
        agents: Sequence[MAILAgentTemplate] = (),
        actions: Sequence[MAILAction] = (),
        entrypoint: str = "",
        enable_interswarm: bool = False,
        breakpoint_tools: Sequence[str] = (),
        exclude_tools: Sequence[str] = (),
        task_message_limit: int | None = None,
        description: str = "",
        keywords: Sequence[str] = (),
        public: bool = False,
        enable_db_agent_histories: bool = False,
        *,
        output_type: Any = None,
        **settings: Unpack[SwarmOptions],
    ) -> None:
        spec = read_swarm(
            name,
            agents,
            output_type,
            version=version,
            entrypoint=entrypoint,
            enable_interswarm=enable_interswarm,
            breakpoint_tools=list(breakpoint_tools),
            exclude_tools=list(exclude_tools),
            task_message_limit=task_message_limit,
            description=description,
            keywords=list(keywords),
            public=public,
            enable_db_agent_histories=enable_db_agent_histories,
            **settings,
        )
        super().__init__(spec, agents, actions)

    @classmethod
    def from_spec(
        cls, spec: SwarmSpec, agents: Sequence[MAILAgentTemplate], actions: Sequence[MAILAction]
    ) -> Self:
        """Return the template with these settings; the agents and actions replace those of `spec`."""
        template = cls.__new__(cls)
        _Swarm.__init__(template, spec, agents, actions)
        return template

    @classmethod
    @without_frames
    def from_swarm_json(
        cls, json_str: str = "", *, json_dump: str = "", allowed_prefixes: Collection[str] | None = None
    ) -> Self:
        """Return the template that an entry of swarms.json describes; its references are resolved immediately.

        With `allowed_prefixes` they may only name these modules, and public URLs. `json_dump` is an alias of
        `json_str`. Raises ConfigurationError.
        """
        swarm = load_swarm_json(json_str or json_dump)
        return cls._of_file(validate_swarm_from_swarms_json(swarm), allowed_prefixes=allowed_prefixes)

    @classmethod
    @without_frames
    def from_swarm_json_file(cls, swarm_name: str, json_filepath: str | Path = DEFAULT_SOURCE) -> Self:
        """Return the template of the swarm of that name in a swarms.json file. Raises ConfigurationError."""
        return cls._of_file(load_swarm(swarm_name, json_filepath))

    @classmethod
    def _of_file(cls, swarm: SwarmSpec, *, allowed_prefixes: Collection[str] | None = None) -> Self:
        resolve = resolver(allowed_prefixes)
        actions = {core.name: MAILAction.from_core(core) for core in build_actions(swarm, resolve)}
        agents = [
            MAILAgentTemplate.of_file(
                agent, actions, swarm_servers=swarm.mcp, allowed_prefixes=allowed_prefixes
            )
            for agent in swarm.agents
        ]
        spec = resolve_swarm(swarm, [agent.spec for agent in agents], resolve)
        return cls.from_spec(spec, agents, list(actions.values()))

    @without_frames
    def instantiate(
        self,
        instance_params: Mapping[str, Any],
        user_id: str = DEFAULT_USER,
        user_role: UserRole = "user",
        base_url: str | None = None,
        registry_file: str | None = None,
        print_llm_streams: bool = True,
        *,
        database: Store | str = IN_MEMORY,
    ) -> MAILSwarm:
        """Build the swarm for a user.

        Args:
            instance_params: parameters of every agent's factory for this instance, such as `user_token`.
            user_role: `agent` for another swarm.
            base_url: the URL at which other swarms reach this one, if `enable_interswarm` is on.
            registry_file: the file of the swarms that it knows; by default they are kept in memory.
            print_llm_streams: False silences all agents.
            database: the store of the tasks: a `Store`, or a value of `[server.storage] database`. In memory by
                default.

        Raises ConfigurationError if a factory can't be imported or rejects its parameters.
        """
        registry = None
        if self.enable_interswarm:
            registry = bootstrap.interswarm_registry(
                self.name,
                base_url or LOCAL_URL,
                registry_file,
                description=self.description,
                keywords=self.keywords,
                public=self.public,
            )
        return MAILSwarm.from_spec(
            self.spec,
            self._instantiate_agents(instance_params, print_llm_streams=print_llm_streams),
            self.actions,
            user_id,
            user_role,
            swarm_registry=registry,
            print_llm_streams=print_llm_streams,
            database=database,
        )

    def to_core(
        self,
        instance_params: Mapping[str, Any] | None = None,
        *,
        print_llm_streams: bool = True,
        task_message_limit: int = DEFAULT_TASK_MESSAGE_LIMIT,
        failing_call_limit: int = FAILING_CALL_LIMIT,
    ) -> SwarmCore:
        """Build the agents and return the swarm in the form that a server runs for all its users.

        `task_message_limit` and `failing_call_limit` are the server's settings; the template's own take precedence.
        """
        agents = self._instantiate_agents(instance_params or {}, print_llm_streams=print_llm_streams)
        functions = {agent.name: agent.function for agent in agents}
        return assemble(
            self.spec,
            self._cores(),
            functions,
            task_message_limit=task_message_limit,
            failing_call_limit=failing_call_limit,
        )

    def _instantiate_agents(
        self, instance_params: Mapping[str, Any], *, print_llm_streams: bool
    ) -> list[MAILAgent]:
        return [
            agent.instantiate(
                instance_params, exclude_tools=self.exclude_tools, print_llm_streams=print_llm_streams
            )
            for agent in self.agents
        ]

    def update_from_adjacency_matrix(self, adj: Sequence[Sequence[int]]) -> None:
        """Let agent i write to agent j if row i has a 1 in column j, and to no other agent of the swarm."""
        for agent, targets in zip(self.agents, self._targets_in(adj), strict=True):
            agent.comm_targets = targets

    @without_frames
    def start_server(
        self,
        port: int = 8000,
        host: str = "0.0.0.0",  # noqa: S104  # the documented default
        launch_ui: bool = False,
        ui_port: int = 3000,
        open_browser: bool = False,
        *,
        ui_path: str | Path | None = None,
        database: str | None = None,
    ) -> None:
        """Serve the swarm over HTTP until the process is stopped, like `mail server`.

        All other settings come from `mail.toml`, also the `database` by default. `launch_ui` opens the server's page
        `/ui` in a browser. If `ui_path`, by default `ui`, has a web interface of its own, it starts that instead
        (`npm run dev`). `open_browser` opens either. The server's page is signed in, unless an external service has
        the keys.

        Raises MAILError if it can't start.
        """
        from mail.api.serving import serve_swarm

        if not 0 <= port <= 65535:
            raise ConfigurationError(f"port must be a number from 0 to 65535, not {port}")
        serve_swarm(
            self.name,
            lambda settings: self.to_core(
                print_llm_streams=settings.print_llm_streams,
                task_message_limit=settings.task_message_limit,
                failing_call_limit=settings.failing_call_limit,
            ),
            port=port,
            host=host,
            ui_path=Path(ui_path or "ui") if launch_ui else None,
            ui_port=ui_port,
            open_browser=open_browser,
            database=database,
        )


def read_swarm(
    name: str, agents: Sequence[MAILAgent | MAILAgentTemplate], output_type: Any, **settings: Any
) -> SwarmSpec:
    """Return the spec of a swarm that is defined in Python. Raises ConfigurationError."""
    specs = [agent.spec for agent in agents]
    return SwarmSpec.read(
        f"swarm {name!r}", {**settings, "name": name, "agents": specs, "output_type": output_type}
    )


def _sender(sender_type: SenderType, address: str) -> MAILAddress:
    match sender_type:
        case "admin":
            return create_admin_address(address)
        case "user":
            return create_user_address(address)
        case "agent":
            return create_agent_address(address)
        case _:
            raise BadRequest(f"sender_type must be 'admin', 'agent' or 'user', not {sender_type!r}")
