"""The runtime of one user's swarm: submits messages, works on them, and lets agents take steps in manual mode.

It runs on the engine of `mail.core.engine.runtime`, in this process; `mail.core.engine.runtime.MAILRuntime` is this class.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from pydantic import ValidationError

from mail.api.compression import shortener
from mail.api.engine import EmbeddedEngine, Mode
from mail.api.interswarm import InterswarmLink
from mail.api.overrides import ActionOverrideFunction, with_model
from mail.core.decisions.manual import ResponseType, Step
from mail.core.decisions.submit import Submission
from mail.core.engine.manual import StepOptions, take_step
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.problems import describe
from mail.core.task.actions import ActionCore
from mail.core.task.ports import Store
from mail.core.task.swarm import AgentCore, SwarmCore
from mail.core.task.task import TaskKey
from mail.errors import BadRequest, ConfigurationError, MAILError, StepFailed
from mail.swarms_json.wiring import DEFAULT_TASK_MESSAGE_LIMIT, warn_of_inert_setting

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse, ServerSentEvent

    from mail.net import SwarmRegistry

UserRole = Literal["admin", "agent", "user"]

IN_MEMORY = ":memory:"

ANSWER_SECONDS = 3600.0
"""How long an answer is awaited by default."""

KEPT = 1000
"""How many tasks a runtime remembers by itself; the store has all of them."""


class MAILRuntime:
    """Runs one user's tasks on a swarm, in this process.

    Args:
        user_role: `agent` for another swarm.
        swarm_registry: the other swarms that agents may write to, once `start_interswarm` was called.
        enable_interswarm: whether that may be called.
        exclude_tools: MAIL tools that no agent may call.
        enable_db_agent_histories: has no effect; histories are always kept in the store.
        print_llm_streams: False silences every agent that prints what its model streams.
        task_message_limit: steps a task may take; None for the default.
        database: where tasks are kept: a store, or what `[server.storage] database` takes. The default is in memory.

    Attributes:
        pending_requests: per task, the future of its answer, while somebody waits for it.
        response_queue: the newest answers, as `(task_id, message)`.

    Raises ConfigurationError where the parts don't fit together.
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
        self._workers = EmbeddedEngine(swarm, database, print_llm_streams=print_llm_streams)
        self._set_up(user_id, user_role, swarm_registry, enable_interswarm, enable_db_agent_histories)

    @classmethod
    def from_core(
        cls,
        swarm: SwarmCore,
        user_id: str,
        user_role: UserRole,
        *,
        swarm_registry: "SwarmRegistry | None" = None,
        enable_interswarm: bool = False,
        enable_db_agent_histories: bool = False,
        print_llm_streams: bool = True,
        database: Store | str = IN_MEMORY,
    ) -> Self:
        """The runtime of a swarm that is assembled already."""
        runtime = cls.__new__(cls)
        runtime._workers = EmbeddedEngine(swarm, database, print_llm_streams=print_llm_streams)
        runtime._set_up(user_id, user_role, swarm_registry, enable_interswarm, enable_db_agent_histories)
        return runtime

    def _set_up(
        self,
        user_id: str,
        user_role: UserRole,
        registry: "SwarmRegistry | None",
        enable_interswarm: bool,
        histories: bool,
    ) -> None:
        self.user_id = user_id
        self.user_role = user_role
        self.enable_interswarm = enable_interswarm
        self.enable_db_agent_histories = histories
        if histories:
            warn_of_inert_setting(f"swarm {self.swarm.name!r}")
        self.principal = _principal(user_id, user_role, self.swarm.name)
        self.pending_requests: dict[str, asyncio.Future[MAILMessage]] = {}
        self.response_queue: deque[tuple[str, MAILMessage]] = deque(maxlen=KEPT)
        self._task_ids: deque[str] = deque(maxlen=KEPT)
        self._unanswered: deque[Submitted] = deque(maxlen=KEPT)
        self._stepping: set[tuple[TaskKey, str]] = set()
        self._others = InterswarmLink(self._workers, self.principal, registry, self._handle_local_message)

    @property
    def swarm(self) -> SwarmCore:
        """The swarm; tasks go on with one that is set in its place."""
        return self._workers.swarm

    @swarm.setter
    def swarm(self, swarm: SwarmCore) -> None:
        self._workers.swarm = swarm

    @property
    def print_llm_streams(self) -> bool:
        """Whether agents print what their models stream."""
        return self._workers.print_llm_streams

    # ------------------------------------------------------------------------------------------- to submit

    async def submit(
        self, message: MAILMessage, *, resume_from: str | None = None, **options: Any
    ) -> Submitted:
        """Accept a message; when this returns, it is stored. It is worked on as soon as somebody works.

        Options are the further fields of `mail.core.decisions.submit.Submission`. Raises BadRequest or TaskNotFound.
        """
        return await self.post(
            message=message,
            body=message.message.body,
            task_id=message.task_id,
            resume_from=resume_from,
            **options,
        )

    async def post(self, **fields: Any) -> Submitted:
        """Accept what somebody writes, as the fields of `mail.core.decisions.submit.Submission`; see `submit`.

        `steps` may be called `max_steps`, as it is everywhere else.
        """
        given = {
            "steps" if name == "max_steps" else name: value
            for name, value in fields.items()
            if value is not None
        }
        try:
            submission = Submission(**given, manual=self._workers.mode == "manual")
        except ValidationError as error:
            raise BadRequest(describe(error, Submission, {"steps": "max_steps"})) from error
        submitted = await self._workers.engine.submit(self.principal, submission)
        task_id = submitted.key.task_id
        if task_id in self._task_ids:
            self._task_ids.remove(task_id)
        self._task_ids.append(task_id)
        self._unanswered.append(submitted)
        return submitted

    async def find(self, task_id: str, message_id: str) -> Submitted | None:
        """What became of a message that was submitted to a task, by whichever process; None if it never was."""
        return await self._workers.engine.find(TaskKey(str(self.principal), task_id), message_id)

    async def submit_and_wait(
        self,
        message: MAILMessage,
        timeout: float | None = ANSWER_SECONDS,
        resume_from: str | None = None,
        **options: Any,
    ) -> MAILMessage:
        """Submit a message and wait for its answer. Raises TimeoutError after `timeout` seconds; the task goes on."""
        return await self.wait(await self.submit(message, resume_from=resume_from, **options), timeout)

    async def submit_and_stream(
        self,
        message: MAILMessage,
        timeout: float | None = ANSWER_SECONDS,
        resume_from: str | None = None,
        **options: Any,
    ) -> "EventSourceResponse":
        """Submit a message and stream what happens, up to its answer, but no longer than `timeout` seconds."""
        return await self.stream(await self.submit(message, resume_from=resume_from, **options), timeout)

    async def wait(self, submitted: Submitted, timeout: float | None = ANSWER_SECONDS) -> MAILMessage:
        """The answer to a submission; see `submit_and_wait`."""
        await self._workers.ensure()
        task_id = submitted.key.task_id
        waiting = asyncio.ensure_future(self._answer(submitted, timeout))
        self.pending_requests[task_id] = waiting
        try:
            return await waiting
        finally:
            if self.pending_requests.get(task_id) is waiting:
                del self.pending_requests[task_id]

    async def stream(
        self, submitted: Submitted, timeout: float | None = ANSWER_SECONDS
    ) -> "EventSourceResponse":
        """What happens from a submission to its answer, as Server-Sent Events."""
        from mail.api.events import stream

        await self._workers.ensure()
        return stream(self._workers.engine, submitted, timeout)

    async def _answer(self, submitted: Submitted, timeout: float | None) -> MAILMessage:
        answer = await self._workers.engine.wait(submitted, timeout)
        if answer is None:
            raise TimeoutError(f"task {submitted.key.task_id!r} gave no answer within {timeout:g} seconds")
        if submitted in self._unanswered:
            self._unanswered.remove(submitted)
        self.response_queue.append((submitted.key.task_id, answer))
        return answer

    # --------------------------------------------------------------------------------------------- to work

    async def run(self, action_override: ActionOverrideFunction | None = None) -> MAILMessage | None:
        """Work until all that was submitted is answered; returns the last answer, None if there was nothing to do.

        Raises BadRequest in manual mode.
        """
        answer = None
        self.require_continuous()
        with self._workers.overriding(action_override):
            async with self._workers.at_work():
                while self._unanswered:
                    answer = await self.wait(self._unanswered[0], None)
        return answer

    def run_continuous(
        self, action_override: ActionOverrideFunction | None = None, mode: Mode = "continuous"
    ) -> Coroutine[Any, Any, None]:
        """Work until `shutdown`; see `MAILSwarm.run_continuous`."""
        running = self._workers.run(mode)
        self._workers.override_actions(action_override)
        return running

    async def run_and_wait(
        self, submitted: Submitted, timeout: float | None, action_override: ActionOverrideFunction | None
    ) -> MAILMessage:
        """Work until a submission is answered, and no longer if nobody worked before."""
        with self._workers.overriding(action_override):
            async with self._workers.at_work():
                return await self.wait(submitted, timeout)

    def require_continuous(self) -> None:
        """Raise BadRequest in manual mode, for what waits for an answer that nobody would give."""
        self._workers.require_continuous()

    async def await_queue_empty(self) -> None:
        """Return once all mail is worked on; in manual mode mail waits for steps, so that is at once."""
        await self._workers.idle()

    async def shutdown(self) -> None:
        """Begin no new turn, let running ones finish for some seconds, and close what was opened."""
        await self._graceful_shutdown()

    async def _graceful_shutdown(self) -> None:
        await self._workers.shut_down()
        await self.stop_interswarm()
        await self._others.close()

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
        """Let an agent take a step; see `MAILSwarm.manual_step`."""
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
        engine = self._workers.engine
        function = with_model(target, engine.swarm.agent(target).function, _llm, _system)
        options = StepOptions(function, shortener(function, dynamic_ctx_ratio))
        key = TaskKey(str(self.principal), task_id or self._task_ids[-1])
        self._workers.require_manual()
        if (key, target) in self._stepping:
            raise StepFailed(f"agent {target!r} is busy: another step of it is under way")
        self._stepping.add((key, target))
        try:
            return await take_step(engine, key, step, options)
        finally:
            self._stepping.remove((key, target))

    # -------------------------------------------------------------------------------------- what has happened

    @property
    def events(self) -> dict[str, list["ServerSentEvent"]]:
        """The events of the tasks that were submitted here, by their ids."""
        return {task_id: self.get_events_by_task_id(task_id) for task_id in self._task_ids}

    def get_events_by_task_id(self, task_id: str) -> list["ServerSentEvent"]:
        """What has happened in a task so far; nothing, if there is no such task.

        Raises MAILError on a store that can't be read without waiting; `read_events` can.
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
        """What has happened in a task so far; nothing, if there is no such task."""
        from mail.http.sse import frame

        key, store = TaskKey(str(self.principal), task_id), self._workers.engine.store
        if await store.load(key) is None:
            return []
        return [frame(event, task_id) for event in await store.read_events(key)]

    async def read_answer_events(self, submitted: Submitted) -> list["ServerSentEvent"]:
        """What has happened from a submission to its answer."""
        from mail.api.events import up_to_answer

        events = await self._workers.engine.store.read_events(submitted.key, after=submitted.after)
        return up_to_answer(events, submitted)

    # ------------------------------------------------------------------------------------------ other swarms

    @property
    def swarm_registry(self) -> "SwarmRegistry | None":
        """The other swarms that agents may write to."""
        return self._others.registry

    async def start_interswarm(self) -> None:
        """Connect to other swarms: mail to `agent@swarm` is delivered from now on, by the registry.

        Raises ConfigurationError where `enable_interswarm` is off.
        """
        if not self.enable_interswarm:
            raise ConfigurationError(
                f"swarm {self.swarm.name!r} keeps to itself; set enable_interswarm to let it write to others"
            )
        await self._others.start()

    async def stop_interswarm(self) -> None:
        """Cut the connection to other swarms, if there is one. Mail to them comes back to its sender."""
        await self._others.stop()

    def is_interswarm_running(self) -> bool:
        """Whether there is a connection to other swarms."""
        return self._others.is_running

    async def handle_interswarm_response(self, response_message: MAILMessage) -> None:
        """Take another swarm's message: it goes into the mailbox of the agent that it is for.

        In a task that has asked that swarm, it is what the swarm answers; else somebody's message.
        """
        await self._handle_local_message(response_message)

    async def _handle_local_message(self, message: MAILMessage) -> None:
        if not await self._others.receive(message):
            await self.submit(message)

    async def route_interswarm_message(self, message: MAILMessage) -> MAILMessage:
        """Send a message that belongs to no task here; see `InterswarmRouter.route_message`.

        Raises MAILError where there is no connection.
        """
        return await self._others.route(message)


def _principal(user_id: str, user_role: UserRole, swarm: str) -> Principal:
    role = "swarm" if user_role == "agent" else user_role
    try:
        return Principal.parse(f"{role}:{user_id}@{swarm}")
    except BadRequest as error:
        raise ConfigurationError(
            f"user_id {user_id!r} with role {user_role!r}: an id holds neither ':' nor '@', "
            "and a role is admin, agent or user"
        ) from error
