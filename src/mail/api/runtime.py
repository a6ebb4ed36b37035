"""The runtime of one user's swarm, in this process: submits messages, runs agents, and steps them in manual mode."""

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, get_args, overload

from pydantic import ValidationError
from pydantic_core import to_json

from mail import bootstrap
from mail.api.embedded import EmbeddedSwarm
from mail.api.overrides import ActionOverrideFunction
from mail.core.decisions.manual import ResponseType, Step
from mail.core.decisions.submit import Submission
from mail.core.engine.commit import load_task
from mail.core.engine.manual import ManualMode, StepOptions
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal, parse_agent_address
from mail.core.protocol.awaitables import Flag
from mail.core.protocol.compose import read_message
from mail.core.protocol.error_text import describe
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage
from mail.core.task.context import Context
from mail.core.task.documents import IN_MEMORY
from mail.core.task.events import Event
from mail.core.task.live import LiveEvent
from mail.core.task.ports import Store
from mail.core.task.swarm import ActionCore, AgentCore, AgentFunction, ModelFunction, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.errors import BadRequest, ConfigurationError, MAILError, StepFailed
from mail.factories.variants import with_model
from mail.swarms_json.build import DEFAULT_TASK_MESSAGE_LIMIT

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse, ServerSentEvent

    from mail.net import InterswarmRouter, SwarmRegistry

UserRole = Literal["admin", "agent", "user"]

AnyMessage = MAILMessage | Mapping[str, Any]
"""A message, or one as a mapping in its wire format."""

ANSWER_SECONDS = 3600.0
"""Default timeout of an answer, in seconds."""

PING_SECONDS = 15.0
"""Default interval of pings in a stream without events, in seconds."""

LOCAL_URL = "http://localhost:8000"
"""The default base URL of a swarm."""

MAX_TASKS = 1000
"""Number of recent tasks that a runtime remembers; the store has all of them."""


class RuntimeOptions(TypedDict, total=False):
    """The settings of a runtime apart from its swarm; see `MAILRuntime`."""

    swarm_registry: "SwarmRegistry | None"
    enable_interswarm: bool
    enable_db_agent_histories: bool
    print_llm_streams: bool
    database: Store | str


class EventsAhead:
    """A stream of events that begins when it is awaited or iterated over."""

    def __init__(self, begin: Callable[[], Awaitable["EventSourceResponse"]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, "EventSourceResponse"]:
        return self._begin().__await__()

    async def __aiter__(self) -> AsyncIterator["ServerSentEvent"]:
        frames: Any = (await self).body_iterator
        async with aclosing(frames):
            async for event in frames:
                yield event


class MAILRuntime(EmbeddedSwarm):
    """The runtime of one user's tasks on a swarm, in this process.

    Args:
        user_role: `agent` for another swarm.
        swarm_registry: the other swarms that agents may write to after `start_interswarm`, which creates it by default.
        enable_interswarm: whether `start_interswarm` may be called.
        exclude_tools: MAIL tools that no agent may call.
        enable_db_agent_histories: has no effect; histories are always kept in the store.
        print_llm_streams: False silences every agent that prints its model's output.
        task_message_limit: maximum number of steps of a task; None for the default.
        database: the store of the tasks: a `Store`, or a value of `[server.storage] database`. In memory by default.

    Attributes:
        pending_requests: the future of the answer of each task with a waiting caller.
        response_queue: the most recent answers, as `(task_id, message)`.

    Raises ConfigurationError for invalid settings.
    """

    def __init__(
        self,
        agents: Mapping[str, AgentCore],
        actions: Mapping[str, ActionCore],
        user_id: str,
        user_role: UserRole,
        swarm_name: str = "example",
        entrypoint: str = "supervisor",
        swarm_registry: "SwarmRegistry | None" = None,
        enable_interswarm: bool = False,
        breakpoint_tools: Sequence[str] | None = None,
        exclude_tools: Sequence[str] | None = None,
        enable_db_agent_histories: bool = False,
        print_llm_streams: bool = True,
        *,
        task_message_limit: int | None = None,
        database: Store | str = IN_MEMORY,
    ) -> None:
        hidden = frozenset(exclude_tools or ())
        swarm = SwarmCore(
            name=swarm_name,
            version="0",
            entrypoint=entrypoint,
            agents={
                name: replace(agent, exclude_tools=agent.exclude_tools | hidden)
                for name, agent in agents.items()
            },
            actions=actions,
            breakpoint_tools=frozenset(breakpoint_tools or ()),
            task_message_limit=DEFAULT_TASK_MESSAGE_LIMIT
            if task_message_limit is None
            else task_message_limit,
        )
        self._set_up(
            swarm,
            user_id,
            user_role,
            swarm_registry=swarm_registry,
            enable_interswarm=enable_interswarm,
            enable_db_agent_histories=enable_db_agent_histories,
            print_llm_streams=print_llm_streams,
            database=database,
        )

    @classmethod
    def from_core(
        cls, swarm: SwarmCore, user_id: str, user_role: UserRole, **options: Unpack[RuntimeOptions]
    ) -> Self:
        """Return the runtime of a swarm that is already assembled."""
        runtime = cls.__new__(cls)
        runtime._set_up(swarm, user_id, user_role, **options)
        return runtime

    def _set_up(
        self,
        swarm: SwarmCore,
        user_id: str,
        user_role: UserRole,
        *,
        swarm_registry: "SwarmRegistry | None" = None,
        enable_interswarm: bool = False,
        enable_db_agent_histories: bool = False,
        print_llm_streams: bool = True,
        database: Store | str = IN_MEMORY,
    ) -> None:
        super().__init__(swarm, database, print_llm_streams=print_llm_streams)
        self.user_id = user_id
        self.user_role: UserRole = user_role
        self.enable_interswarm = enable_interswarm
        self.enable_db_agent_histories = enable_db_agent_histories
        self.principal = _principal(user_id, user_role, swarm.name)
        self.pending_requests: dict[str, asyncio.Future[MAILMessage]] = {}
        self.response_queue: deque[tuple[str, MAILMessage]] = deque(maxlen=MAX_TASKS)
        self._task_ids: deque[str] = deque(maxlen=MAX_TASKS)
        self._unanswered: deque[Submitted] = deque(maxlen=MAX_TASKS)
        self._stepping: set[tuple[TaskKey, str]] = set()
        self.swarm_registry = swarm_registry
        self._router: InterswarmRouter | None = None

    # ------------------------------------------------------------------------------------------- submitting

    async def submit(
        self, message: AnyMessage, *, resume_from: str | None = None, **options: Any
    ) -> Submitted:
        """Store a message, to be processed as soon as the swarm runs.

        Options are further fields of `mail.core.decisions.submit.Submission`. Raises BadRequest or TaskNotFound.
        """
        message = read_message(message)
        return await self.post(
            message=message,
            body=message.message.body,
            task_id=message.task_id,
            resume_from=resume_from,
            **options,
        )

    async def post(self, **fields: Any) -> Submitted:
        """Store a message given as the fields of `mail.core.decisions.submit.Submission`; see `submit`.

        `max_steps`, the public name, is accepted for `steps`.
        """
        given = {
            "steps" if name == "max_steps" else name: value
            for name, value in fields.items()
            if value is not None
        }
        try:
            submission = Submission(**given, manual=self.mode == "manual")
        except ValidationError as error:
            raise BadRequest(describe(error, Submission, {"steps": "max_steps"})) from error
        submitted = await self.engine.submit(self.principal, submission)
        task_id = submitted.key.task_id
        if task_id in self._task_ids:
            self._task_ids.remove(task_id)
        self._task_ids.append(task_id)
        self._unanswered.append(submitted)
        return submitted

    async def find(self, task_id: str, message_id: str) -> Submitted | None:
        """Return the submission of a message to a task, by any process; None if there was none."""
        return await self.engine.find(TaskKey(str(self.principal), task_id), message_id)

    async def load_task(self, task_id: str) -> Task | None:
        """Return the present state of a task, by any process; None for an unknown one."""
        return await self.engine.store.load(TaskKey(str(self.principal), task_id))

    async def read_messages(self, task_id: str, *, after: int = 0) -> list[MAILMessage]:
        """Return the messages of a task whose seq is higher than `after`, in order."""
        key = TaskKey(str(self.principal), task_id)
        events = await self.engine.store.read_events(key, after=after)
        return [event.message for event in events if event.message is not None]

    async def submit_and_wait(
        self,
        message: AnyMessage,
        timeout: float | None = ANSWER_SECONDS,
        resume_from: str | None = None,
        **options: Any,
    ) -> MAILMessage:
        """Submit a message and wait for its answer. Raises TimeoutError after `timeout` seconds; the task continues."""
        return await self.wait(await self.submit(message, resume_from=resume_from, **options), timeout)

    def submit_and_stream(
        self,
        message: AnyMessage,
        timeout: float | None = ANSWER_SECONDS,
        resume_from: str | None = None,
        *,
        ping_interval: float = PING_SECONDS,
        **options: Any,
    ) -> "EventsAhead":
        """Submit a message and stream the events up to its answer, for at most `timeout` seconds.

        Await the result for a response that serves the stream, or iterate over its events with `async for`. After each
        `ping_interval` seconds without an event comes a `ping`.
        """

        async def begin() -> "EventSourceResponse":
            submitted = await self.submit(message, resume_from=resume_from, **options)
            return await self.stream(submitted, timeout, ping_interval)

        return EventsAhead(begin)

    async def wait(self, submitted: Submitted, timeout: float | None = ANSWER_SECONDS) -> MAILMessage:
        """Wait for the answer to a submission and return it; see `submit_and_wait`."""
        await self.start()
        task_id = submitted.key.task_id
        waiting = asyncio.ensure_future(self._answer(submitted, timeout))
        self.pending_requests[task_id] = waiting
        try:
            return await waiting
        finally:
            if self.pending_requests.get(task_id) is waiting:
                del self.pending_requests[task_id]

    async def wait_until_stopped(
        self, task_id: str, timeout: float | None
    ) -> tuple[Task, MAILMessage | None]:
        """Wait until a task has stopped; return it, and its last answer if it has one.

        Raises TaskNotFound, and TimeoutError after `timeout` seconds; the task continues.
        """
        key, now = TaskKey(str(self.principal), task_id), asyncio.get_running_loop().time
        until = None if timeout is None else now() + timeout
        while True:
            task = await load_task(self.engine.store, key)
            generation = task.generation.number
            seconds = None if until is None else max(0.0, until - now())
            answer = await self.engine.wait(
                Submitted(key, generation, 0, 0), seconds if task.is_running else 0
            )
            task = await load_task(self.engine.store, key)
            if not task.is_running and task.generation.number == generation:
                return task, answer
            if until is not None and now() >= until:
                raise TimeoutError(f"task {task_id!r} gave no answer within {timeout:g} seconds")

    async def stream(
        self,
        submitted: Submitted,
        timeout: float | None = ANSWER_SECONDS,
        ping_interval: float = PING_SECONDS,
    ) -> "EventSourceResponse":
        """Stream the events from a submission to its answer; ends early after `timeout` seconds."""
        from sse_starlette import EventSourceResponse

        from mail.http.sse import HEADERS, NEVER_PING

        await self.start()
        frames = self._frames(submitted, timeout, ping_interval)
        return EventSourceResponse(frames, headers=HEADERS, ping=NEVER_PING)

    @overload
    def watch(
        self, submitted: Submitted, timeout: float | None = ..., heartbeat: float = ...
    ) -> AsyncGenerator[Event | None]: ...

    @overload
    def watch(
        self, submitted: Submitted, timeout: float | None = ..., heartbeat: float = ..., *, live: bool
    ) -> AsyncGenerator[Event | LiveEvent | None]: ...

    async def watch(
        self,
        submitted: Submitted,
        timeout: float | None = ANSWER_SECONDS,
        heartbeat: float = PING_SECONDS,
        *,
        live: bool = False,
    ) -> AsyncGenerator[Any]:
        """Yield the events from a submission to its answer; None after each `heartbeat` seconds without one.

        With `live`, live events are among them, also the pieces of models' replies. Ends early after `timeout` seconds.
        """
        key = submitted.key
        end = None if timeout is None else asyncio.get_running_loop().time() + timeout
        batches = self.engine.watch(
            key, after=submitted.after, answer_to=submitted.seq, heartbeat=heartbeat, calls=live
        )
        async with aclosing(self.engine.with_live(key, batches, deltas=True) if live else batches) as watch:
            while True:
                try:
                    async with asyncio.timeout_at(end):
                        events = await anext(watch, None)
                except TimeoutError:
                    return
                if events is None:
                    return
                for event in events or (None,):
                    yield event

    async def _frames(
        self, submitted: Submitted, timeout: float | None, heartbeat: float
    ) -> "AsyncGenerator[ServerSentEvent]":
        task_id, clock = submitted.key.task_id, self.engine.clock
        async with aclosing(self.watch(submitted, timeout, heartbeat)) as events:
            async for event in events:
                if event is not None:
                    yield _frame(event.kind, event.data(task_id), event.seq)
                else:
                    yield _frame("ping", {"timestamp": clock.now().isoformat(), "task_id": task_id})

    async def _answer(self, submitted: Submitted, timeout: float | None) -> MAILMessage:
        answer = await self.engine.wait(submitted, timeout)
        if answer is None:
            raise TimeoutError(f"task {submitted.key.task_id!r} gave no answer within {timeout:g} seconds")
        if submitted in self._unanswered:
            self._unanswered.remove(submitted)
        self.response_queue.append((submitted.key.task_id, answer))
        return answer

    # --------------------------------------------------------------------------------------------- running

    async def run(self, action_override: ActionOverrideFunction | None = None) -> MAILMessage | None:
        """Run until every submitted message is answered; return the last answer, or None without any message.

        Raises BadRequest in manual mode.
        """
        answer = None
        self.require_continuous()
        with self.overriding(action_override):
            async with self.at_work():
                while self._unanswered:
                    answer = await self.wait(self._unanswered[0], None)
        return answer

    async def run_and_wait(
        self, submitted: Submitted, timeout: float | None, action_override: ActionOverrideFunction | None
    ) -> MAILMessage:
        """Run until a submission is answered; if the swarm was running before, it keeps running."""
        with self.overriding(action_override):
            async with self.at_work():
                return await self.wait(submitted, timeout)

    async def _graceful_shutdown(self) -> None:
        await super()._graceful_shutdown()
        await self.stop_interswarm()
        if self.swarm_registry is not None:
            await self.swarm_registry.http.aclose()

    async def manual_step(
        self,
        task_id: str | None = None,
        target: str = "",
        response_targets: Sequence[str] | None = None,
        response_type: ResponseType = "broadcast",
        payload: str | None = None,
        dynamic_ctx_ratio: float = 0.0,
        _llm: str | None = None,
        _system: str | None = None,
    ) -> MAILMessage:
        """Let one agent read its mail and respond.

        It reads all its unread mail, public and private, and then `payload`. It may call its actions first. Its
        response goes to `response_targets` only, whichever tool it uses. If it says nothing, the response has no text
        and goes to nobody.

        Args:
            task_id: by default the task of the most recent message.
            target: the agent.
            response_targets: agents that receive the response; `["all"]`, the default of a broadcast, for everyone.
            response_type: a broadcast is one message to all targets; a response or request is one message to each.
            payload: instructions for this step.
            dynamic_ctx_ratio: the share of its model's context window that the agent's context may fill; half of that
                is kept when it is cut (docs/context.md). 0.0 for the agent's own setting.
            _llm: another model for this step.
            _system: another system prompt for this step.

        Returns the response; the first if there are several. After a breakpoint tool it is the call.

        Raises BadRequest, TaskNotFound, or StepFailed: then all mail is still unread, and the step can be retried.
        """
        if task_id is None and not self._task_ids:
            raise BadRequest("task_id is missing, and there is no task yet: submit a message first")
        if response_type not in get_args(ResponseType):
            raise BadRequest(
                f"response_type must be 'broadcast', 'response' or 'request', not {response_type!r}"
            )
        if response_targets is None and response_type != "broadcast":
            raise BadRequest(f"response_targets is missing: say who gets the {response_type}")
        if isinstance(response_targets, str):
            response_targets = (response_targets,)
        audience = ("all",) if response_targets is None else tuple(response_targets)
        step = Step(target, audience, response_type, payload or "")
        step.check(self.swarm)
        engine = self.engine
        function = with_model(target, engine.swarm.agent(target).function, _llm, _system)
        agent = engine.swarm.agent(target)
        options = StepOptions(function, _context(agent.context, function, dynamic_ctx_ratio))
        key = TaskKey(str(self.principal), task_id or self._task_ids[-1])
        self.require_manual()
        if (key, target) in self._stepping:
            raise StepFailed(f"agent {target!r} is busy: another step of it is under way")
        self._stepping.add((key, target))
        try:
            return await ManualMode(engine, engine.turns).take_step(key, step, options)
        finally:
            self._stepping.remove((key, target))

    # ---------------------------------------------------------------------------------------------- events

    @property
    def events(self) -> dict[str, list["ServerSentEvent"]]:
        """The events of the tasks submitted here, by task id."""
        return {task_id: self.get_events_by_task_id(task_id) for task_id in self._task_ids}

    def get_events_by_task_id(self, task_id: str) -> list["ServerSentEvent"]:
        """Return the events of a task so far; none for an unknown task.

        Raises MAILError on a store that can only be read asynchronously, with `read_events`.
        """
        reading = self.read_events(task_id)
        try:
            reading.send(None)
        except StopIteration as end:
            events: list[ServerSentEvent] = end.value
            return events
        reading.close()
        raise MAILError("this store can't be read without waiting: await read_events(task_id) instead")

    async def read_events(self, task_id: str) -> list["ServerSentEvent"]:
        """Return the events of a task so far; none for an unknown task."""
        key, store = TaskKey(str(self.principal), task_id), self.engine.store
        if await store.load(key) is None:
            return []
        return [
            _frame(event.kind, event.logged(task_id), event.seq) for event in await store.read_events(key)
        ]

    async def read_answer_events(self, submitted: Submitted) -> list["ServerSentEvent"]:
        """Return the events from a submission up to its answer."""
        frames = []
        for event in await self.engine.store.read_events(submitted.key, after=submitted.after):
            frames.append(_frame(event.kind, event.logged(submitted.key.task_id), event.seq))
            if event.answers(submitted.seq):
                break
        return frames

    # ------------------------------------------------------------------------------------------ other swarms

    async def start_interswarm(self) -> None:
        """Connect to other swarms: from now on, mail to `agent@swarm` is delivered to the swarms of the registry.

        Raises ConfigurationError if `enable_interswarm` is off.
        """
        if not self.enable_interswarm:
            raise ConfigurationError(
                f"swarm {self.swarm.name!r} keeps to itself; set enable_interswarm to let it write to other swarms"
            )
        if self.swarm_registry is None:
            self.swarm_registry = bootstrap.interswarm_registry(self.principal.swarm, LOCAL_URL)
        if self._router is None:
            self._router = bootstrap.interswarm_router(self.swarm_registry)
            self._router.register_message_handler("*", self._handle_local_message)
        await self._router.start()
        self.peers = self._router

    async def stop_interswarm(self) -> None:
        """Disconnect from other swarms; mail to them is then returned to its sender."""
        self.peers = None
        if self._router is not None:
            await self._router.stop()

    def is_interswarm_running(self) -> Flag:
        """Return whether the swarm is connected to other swarms; may be awaited."""
        return Flag(self._router is not None and self._router.is_running())

    async def handle_interswarm_response(self, response_message: AnyMessage) -> None:
        """Deliver another swarm's message to the mailbox of its recipient.

        In a task with an open request to that swarm it counts as the answer, otherwise as a new message.
        """
        await self._handle_local_message(read_message(response_message))

    async def _handle_local_message(self, message: MAILMessage) -> None:
        """Deliver a message to an agent here: within its task, if it is from a swarm that participates in that."""
        sender, engine = message.sender, self.engine
        source = parse_agent_address(sender.address)[1] if sender.address_type == "agent" else None
        task = await self.load_task(message.task_id)
        if source is None or task is None or source not in task.peers:
            await self.submit(message)
            return
        known = () if engine.peers is None else await engine.peers.caller_ids(source)
        wrapped = MAILInterswarmMessage(
            message_id=message.id,
            source_swarm=source,
            target_swarm=self.principal.swarm,
            timestamp=message.timestamp,
            task_owner=task.owner,
            task_contributors=task.contributors,
            msg_type=message.msg_type,
            payload=message.message,
        )
        await engine.receive(known[0] if known else source, wrapped, back=True)

    async def route_interswarm_message(self, message: AnyMessage) -> MAILMessage:
        """Send a message that belongs to no task here; agents' mail to `agent@swarm` needs no such call.

        Returns the message as sent, or a system message with the reason why it could not be delivered. Raises
        MAILError if the swarm is not connected.
        """
        return await self._connection().route_message(read_message(message), owner=str(self.principal))

    async def post_interswarm_user_message(
        self, message: MAILInterswarmMessage | Mapping[str, Any]
    ) -> MAILMessage:
        """Send a person's message to another swarm's `/interswarm/message`, and return the answer.

        See `InterswarmRouter.post_interswarm_user_message`. Raises MAILError if the swarm is not connected.
        """
        return await self._connection().post_interswarm_user_message(message)

    def _connection(self) -> "InterswarmRouter":
        if self._router is None or not self._router.is_running():
            raise MAILError("there is no connection to other swarms: await start_interswarm() first")
        return self._router


def _principal(user_id: str, user_role: UserRole, swarm: str) -> Principal:
    role = "swarm" if user_role == "agent" else user_role
    try:
        return Principal.parse(f"{role}:{user_id}@{swarm}")
    except BadRequest as error:
        raise ConfigurationError(
            f"user_id {user_id!r} with role {user_role!r}: an id must not contain ':' or '@', "
            "and the role must be one of admin, agent, user"
        ) from error


def _frame(event: str, data: Mapping[str, Any], seq: int | None = None) -> "ServerSentEvent":
    """Return an event as MAIL 1.3.6 hands it to programs."""
    from sse_starlette import ServerSentEvent

    return ServerSentEvent(
        to_json(data, ensure_ascii=True).decode(), event=str(event), id=None if seq is None else str(seq)
    )


def _context(own: Context | None, function: AgentFunction, ratio: float) -> Context | None:
    """Return how the context of a step is kept within a share of its model's window. Raises BadRequest.

    None for an agent without a model, and for a ratio of 0: the agent's own setting.
    """
    if not isinstance(ratio, int | float) or not 0.0 <= ratio <= 1.0:
        raise BadRequest(f"dynamic_ctx_ratio must be a number between 0.0 and 1.0, not {ratio!r}")
    if not ratio or not isinstance(function, ModelFunction):
        return None
    own = own or Context()
    return Context(at=ratio, keep=ratio / 2, model=own.model, results=own.results)
