"""`MAILSwarm`: a swarm that runs, for one user."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgent
from mail.api.base import SwarmParts
from mail.api.engine import Mode
from mail.api.overrides import ActionOverrideFunction
from mail.api.runtime import ANSWER_SECONDS, MAILRuntime, UserRole
from mail.core.decisions.manual import ResponseType
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
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.errors import BadRequest

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse, ServerSentEvent

    from mail.api.templates import MAILSwarmTemplate
    from mail.net import SwarmRegistry

SenderType = Literal["admin", "agent", "user"]
LetterType = Literal["request", "response", "broadcast", "interrupt"]

NEW_MESSAGE = str(Submission.model_fields["subject"].default)

Answered = tuple[MAILMessage, list["ServerSentEvent"]]
"""The finishing message of a task, and what has happened up to it, where that was asked for."""


class MAILSwarm(SwarmParts[MAILAgent]):
    """A swarm that runs, for one user.

    Args:
        user_role: `agent` for another swarm.
        swarm_registry: the other swarms that agents may write to, once `start_interswarm` was called.
        enable_interswarm: whether that may be called.
        breakpoint_tools: tools whose call pauses the task until the user gives their result.
        exclude_tools: MAIL tools that no agent may call.
        task_message_limit: steps a task may take; None for the default.
        enable_db_agent_histories: has no effect; histories are always kept in the store.
        print_llm_streams: False silences every agent that prints what its model streams.
        database: where tasks are kept: a store, or what `[server.storage] database` takes. The default is in memory.

    Raises ConfigurationError where the parts don't fit together.
    """

    def __init__(
        self,
        name: str,
        version: str,
        agents: Sequence[MAILAgent],
        actions: Sequence[MAILAction],
        entrypoint: str,
        user_id: str = "default",
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
        database: Store | str = ":memory:",
    ) -> None:
        super().__init__(
            name,
            version,
            agents,
            actions,
            entrypoint,
            enable_interswarm=enable_interswarm,
            breakpoint_tools=breakpoint_tools,
            exclude_tools=exclude_tools,
            task_message_limit=task_message_limit,
            description=description,
            keywords=keywords,
            public=False,
            enable_db_agent_histories=enable_db_agent_histories,
        )
        self.user_id = user_id
        self.user_role: UserRole = user_role
        self._runtime = MAILRuntime.from_core(
            self._core(),
            user_id,
            user_role,
            swarm_registry=swarm_registry,
            enable_interswarm=enable_interswarm,
            enable_db_agent_histories=enable_db_agent_histories,
            print_llm_streams=print_llm_streams,
            database=database,
        )

    @property
    def runtime(self) -> MAILRuntime:
        """What runs the swarm's tasks."""
        return self._runtime

    @property
    def swarm_registry(self) -> "SwarmRegistry | None":
        """The other swarms that agents may write to."""
        return self._runtime.swarm_registry

    # ------------------------------------------------------------------------------ a person's words

    async def post_message(
        self,
        body: str,
        subject: str = NEW_MESSAGE,
        msg_type: LetterType = "request",
        entrypoint: str | None = None,
        show_events: bool = False,
        timeout: float | None = ANSWER_SECONDS,
        task_id: str | None = None,
        resume_from: str | None = None,
        *,
        breakpoint_tool_call_result: Any = None,
        max_steps: int | None = None,
    ) -> Answered:
        """Write to the swarm, and wait for its answer.

        Where nobody works on its mail, that begins now and goes on until `shutdown`.

        Args:
            entrypoint: the agent to write to; the default is the swarm's, or the one that the task has had.
            show_events: whether to return what has happened.
            timeout: seconds to wait; the task goes on afterwards.
            task_id: a new task's id, or the task to go on with; the default is a new task.
            resume_from: `user_response` or `breakpoint_tool_call`, to go on with a task that has stopped.
            breakpoint_tool_call_result: the results of breakpoint tools: JSON text, `{"content": …}`, a list of
                `{"call_id": …, "content": …}`, or plain text.
            max_steps: how many steps the agents may take.

        Returns the finishing message, `response["message"]["body"]`, and the events.

        Raises BadRequest, as in manual mode, TaskNotFound, or TimeoutError.
        """
        submitted = await self._post(
            body, subject, msg_type, entrypoint, task_id, resume_from, breakpoint_tool_call_result, max_steps
        )
        return await self._answer(submitted, await self._runtime.wait(submitted, timeout), show_events)

    async def post_message_stream(
        self,
        body: str,
        subject: str = NEW_MESSAGE,
        msg_type: LetterType = "request",
        entrypoint: str | None = None,
        timeout: float | None = ANSWER_SECONDS,
        task_id: str | None = None,
        resume_from: str | None = None,
        *,
        breakpoint_tool_call_result: Any = None,
        max_steps: int | None = None,
    ) -> "EventSourceResponse":
        """Write to the swarm; what happens up to its answer is streamed, for `timeout` seconds at most.

        See `post_message`.
        """
        submitted = await self._post(
            body, subject, msg_type, entrypoint, task_id, resume_from, breakpoint_tool_call_result, max_steps
        )
        return await self._runtime.stream(submitted, timeout)

    async def post_message_and_run(
        self,
        body: str,
        subject: str = NEW_MESSAGE,
        msg_type: LetterType = "request",
        entrypoint: str | None = None,
        show_events: bool = False,
        timeout: float | None = ANSWER_SECONDS,
        task_id: str | None = None,
        resume_from: str | None = None,
        action_override: ActionOverrideFunction | None = None,
        *,
        breakpoint_tool_call_result: Any = None,
        max_steps: int | None = None,
    ) -> Answered:
        """Write to the swarm, and work on its mail until there is an answer, but no longer. See `post_message`."""
        submitted = await self._post(
            body, subject, msg_type, entrypoint, task_id, resume_from, breakpoint_tool_call_result, max_steps
        )
        answer = await self._runtime.run_and_wait(submitted, timeout, action_override)
        return await self._answer(submitted, answer, show_events)

    # ----------------------------------------------------------------------------- whole messages

    def build_message(
        self,
        subject: str,
        body: str,
        targets: Sequence[str],
        sender_type: SenderType = "user",
        type: LetterType = "request",  # noqa: A002  # the documented name
        task_id: str | None = None,
        *,
        sender: str | None = None,
    ) -> MAILMessage:
        """A message that is ready to be submitted.

        Args:
            targets: agents; `["all"]` for all of them. A request or response has exactly one.
            sender: the sender's address, with `sender_type="agent"` an agent's; the default is this swarm's user.
            task_id: the default is a new one.

        Raises BadRequest for targets that don't fit the type, and for a sender that is no agent of this swarm.
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
        message: MAILMessage,
        timeout: float | None = ANSWER_SECONDS,
        show_events: bool = False,
        resume_from: str | None = None,
        **options: Any,
    ) -> Answered:
        """Submit a message, and wait for the answer to it; see `post_message`."""
        submitted = await self._runtime.submit(message, resume_from=resume_from, **options)
        return await self._answer(submitted, await self._runtime.wait(submitted, timeout), show_events)

    async def submit_message_stream(
        self,
        message: MAILMessage,
        timeout: float | None = ANSWER_SECONDS,
        resume_from: str | None = None,
        **options: Any,
    ) -> "EventSourceResponse":
        """Submit a message; what happens up to the answer to it is streamed, for `timeout` seconds at most."""
        return await self._runtime.submit_and_stream(message, timeout, resume_from, **options)

    async def submit_message_nowait(self, message: MAILMessage, **options: Any) -> None:
        """Submit a message; when this returns, it is stored, and in its recipients' mailboxes."""
        await self._runtime.submit(message, **options)

    # ------------------------------------------------------------------------------------ to work

    def run_continuous(
        self, action_override: ActionOverrideFunction | None = None, mode: Mode = "continuous"
    ) -> Coroutine[Any, Any, None]:
        """Work on the swarm's mail until `shutdown`.

        The mode holds from the call on, even before what it returns is awaited: with
        `asyncio.create_task(swarm.run_continuous(mode="manual"))`, the next message is already one of a manual task.

        Args:
            action_override: called with the name and arguments of each action, in place of its own function; where
                it returns None the action runs after all.
            mode: `manual` lets agents take turns only when `manual_step` says so.
        """
        return self._runtime.run_continuous(action_override, mode)

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
        """Let one agent read its mail, and say something.

        It reads all that waits for it, said in public or in private, and then `payload`. It may call its actions
        first. What it says then, by whatever means, goes to `response_targets` and to nobody else. Where it chooses
        to say nothing the response has no text, and goes to nobody.

        Args:
            task_id: the default is the task that was submitted to last.
            target: the agent.
            response_targets: agents that hear the response; `["all"]`, the default of a broadcast, for everyone.
            response_type: a broadcast is one message to all targets; of responses and requests each gets its own.
            payload: instructions for this step.
            dynamic_ctx_ratio: the part of its model's context window that the agent's history may fill; what is
                older is summarized by the model. 0.0 leaves histories alone.
            _llm: another model for this step.
            _system: another system prompt for this step.

        Returns the response; the first, where there are several. After a breakpoint tool it is the call.

        Raises BadRequest, TaskNotFound, or StepFailed: then nothing was read, and the step can be taken again.
        """
        return await self._runtime.manual_step(
            task_id, target, response_targets, response_type, payload, dynamic_ctx_ratio, _llm, _system
        )

    async def await_queue_empty(self) -> None:
        """Return once all mail is worked on; in manual mode mail waits for steps, so that is at once."""
        await self._runtime.await_queue_empty()

    async def shutdown(self) -> None:
        """Begin no new turn, let running ones finish for some seconds, and close what was opened."""
        await self._runtime.shutdown()

    def get_pending_requests(self) -> dict[str, asyncio.Future[MAILMessage]]:
        """Per task, the future of its answer, while somebody waits for it."""
        return dict(self._runtime.pending_requests)

    # ------------------------------------------------------------------------------------ its shape

    def get_subswarm(
        self, names: Sequence[str], name_suffix: str, entrypoint: str | None = None
    ) -> "MAILSwarmTemplate":
        """A template with these agents only; see `MAILSwarmTemplate.get_subswarm`."""
        from mail.api.templates import MAILSwarmTemplate

        return MAILSwarmTemplate(**self._subswarm(names, name_suffix, entrypoint))

    def update_from_adjacency_matrix(self, adj: Sequence[Sequence[int]]) -> None:
        """Let agent i write to agent j where row i has a 1 in column j, and nowhere else in the swarm.

        It holds from each agent's next turn on, also in tasks that run.
        """
        for agent, targets in zip(self.agents, self._targets_in(adj), strict=True):
            agent.rewire(targets)
        self._runtime.swarm = self._core()

    # --------------------------------------------------------------------------------- other swarms

    async def start_interswarm(self) -> None:
        """Connect to other swarms: mail to `agent@swarm` is delivered from now on, by the registry.

        Raises ConfigurationError where `enable_interswarm` is off.
        """
        await self._runtime.start_interswarm()

    async def stop_interswarm(self) -> None:
        """Cut the connection to other swarms, if there is one. Mail to them comes back to its sender."""
        await self._runtime.stop_interswarm()

    def is_interswarm_running(self) -> bool:
        """Whether there is a connection to other swarms."""
        return self._runtime.is_interswarm_running()

    async def handle_interswarm_response(self, response_message: MAILMessage) -> None:
        """Take another swarm's message: it goes into the mailbox of the agent that it is for.

        In a task that has asked that swarm, it is what the swarm answers; else somebody's message.
        """
        await self._runtime.handle_interswarm_response(response_message)

    async def route_interswarm_message(self, message: MAILMessage) -> MAILMessage:
        """Send a message that belongs to no task here. Agents' mail to `agent@swarm` needs no such call.

        Returns the message as it was sent, or one of the system that says why it could not be delivered. Raises
        MAILError where there is no connection.
        """
        return await self._runtime.route_interswarm_message(message)

    # --------------------------------------------------------------------------------------- inside

    def _core(self) -> SwarmCore:
        return self._assemble({agent.name: agent.function for agent in self.agents})

    def _require_agent(self, address: str) -> None:
        """Raise BadRequest where an address, `agent` or `agent@swarm`, names no agent of this swarm or another."""
        name, swarm = parse_agent_address(address)
        names = [agent.name for agent in self.agents]
        if swarm in (None, self.name) and name not in names:
            raise BadRequest(
                f"sender {address!r} is no agent of swarm {self.name!r}{did_you_mean(name, names)}"
            )

    async def _post(
        self,
        body: str,
        subject: str,
        msg_type: LetterType,
        entrypoint: str | None,
        task_id: str | None,
        resume_from: str | None,
        result: Any,
        max_steps: int | None,
    ) -> Submitted:
        self._runtime.require_continuous()
        return await self._runtime.post(
            body=body,
            subject=subject,
            msg_type=msg_type,
            entrypoint=entrypoint,
            task_id=task_id,
            resume_from=resume_from,
            breakpoint_tool_call_result=result,
            max_steps=max_steps,
        )

    async def _answer(self, submitted: Submitted, answer: MAILMessage, show_events: bool) -> Answered:
        return answer, await self._runtime.read_answer_events(submitted) if show_events else []


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
