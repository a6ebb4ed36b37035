"""Carrying out steps of manual mode: what `mail.core.decisions.manual` decides is run and committed, turn by turn."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from mail.core.decisions.manual import (
    Step,
    StepSettlement,
    StepTurn,
    begin_step,
    portion,
    read_ahead,
    summarize,
    visible,
)
from mail.core.decisions.turn import AgentFailure, TurnOutput
from mail.core.engine.runtime import LEASE_MARGIN, Runtime
from mail.core.engine.turn import Execution
from mail.core.engine.turn_work import TurnReport
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.context import CURRENT_TASK
from mail.core.task.swarm import AgentCore, AgentFunction, History, ToolChoice
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import Checkpoint
from mail.errors import StepFailed, TaskNotFound, VersionConflict

logger = logging.getLogger(__name__)

TURNS_TO_RESPOND = 25
"""An agent that goes on calling actions for longer than this gives no response any more."""

Shorten = Callable[[History, History], Awaitable[tuple[int, str] | None]]
"""From what an agent sees of its history, and what it is to read now, to how many entries of the first to replace,
and the text to replace them by; None where nothing needs to be."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How a step is run.

    Attributes:
        function: what is called in place of the agent's own function.
        shorten: makes the agent's history shorter before it is called.
    """

    function: AgentFunction | None = None
    shorten: Shorten | None = None


async def take_step(
    runtime: Runtime, key: TaskKey, step: Step, options: StepOptions = StepOptions()
) -> MAILMessage:
    """Let an agent take a step, and return its response.

    One step of an agent at a time: another one that is under way, here or elsewhere, is an error.

    Raises BadRequest for names that are no agents, TaskNotFound, and StepFailed where the agent gives no response;
    what it has not read then still waits.
    """
    CURRENT_TASK.set(key.task_id)
    step.check(runtime.swarm)
    instructions = await _begin(runtime, key, step)
    for _ in range(TURNS_TO_RESPOND):
        said = await _take_turn(runtime, key, step, instructions, options)
        if said is not None:
            return said
    raise StepFailed(f"agent {step.target!r} gave no response within {TURNS_TO_RESPOND} turns")


async def _begin(runtime: Runtime, key: TaskKey, step: Step) -> int:
    """Put the instructions into the mailbox; returns their seq."""
    task = await runtime.store.load(key)
    while True:
        if task is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}; submit a message with this task_id first")
        change = begin_step(task, runtime.swarm, step, runtime.clock)
        try:
            await runtime.store.commit(change)
        except VersionConflict as conflict:
            task = conflict.current or await runtime.store.load(key)
            continue
        return change.deliveries[0].seq


async def _take_turn(
    runtime: Runtime, key: TaskKey, step: Step, instructions: int, options: StepOptions
) -> MAILMessage | None:
    """One turn of a step; returns the response, once there is one."""
    while True:
        turn, known = await _lease(runtime, key, step.target)
        mail = await _other_mail(runtime, turn)
        also_read = portion(mail) if mail else ()
        if len(also_read) == len(mail) or turn.checkpoint is not None:
            break
        first, *rest = portion([entry for entry in mail if entry.seq != instructions])
        reading = {**_fields(turn), "entry": first, "also_read": tuple(rest)}
        execution = StepExecution(
            StepTurn(**reading, step=step, instructions=instructions), known, runtime, options
        )
        await _execute(runtime, execution, execution.read())
    execution = StepExecution(
        StepTurn(**_fields(turn), also_read=also_read, step=step, instructions=instructions),
        known,
        runtime,
        options,
    )
    await _execute(runtime, execution, execution.run(runtime.turn_seconds))
    if execution.failed is not None:
        raise StepFailed(f"agent {step.target!r} gave no response: {execution.failed}")
    return execution.said


async def _lease(runtime: Runtime, key: TaskKey, agent: str) -> tuple[Turn, int]:
    opened = await runtime.lease(key, agent, runtime.turn_seconds + LEASE_MARGIN)
    match opened:
        case TurnReport.Outcome.LEASED:
            raise StepFailed(f"agent {agent!r} is busy: another step of it is under way")
        case TurnReport.Outcome():
            raise StepFailed(f"task {key.task_id!r} has stopped")
    return opened


async def _other_mail(runtime: Runtime, turn: Turn) -> list[InboxEntry]:
    """What is in the turn's mailbox besides the message that the turn is for."""
    mail = await runtime.store.read_inbox(turn.task.key)
    return [entry for entry in mail if entry.mailbox == turn.mailbox and entry.seq != turn.entry.seq]


async def _execute(
    runtime: Runtime, execution: "StepExecution", work: Coroutine[None, None, TaskChange | None]
) -> None:
    report = await runtime.execute(execution, work)
    if report.outcome is not TurnReport.Outcome.COMMITTED:
        raise StepFailed(f"the turn of agent {execution.turn.mailbox!r} was taken over by another worker")


def _fields(turn: Turn) -> dict[str, Any]:
    return {each.name: getattr(turn, each.name) for each in fields(turn) if each.name != "also_read"}


class StepExecution(Execution):
    """A turn of a step being carried out.

    Attributes:
        said: the response, once the turn is committed and has brought one.
        failed: why there is none.
    """

    turn: StepTurn

    def __init__(self, turn: StepTurn, known: int, runtime: Runtime, options: StepOptions) -> None:
        swarm = runtime.swarm
        if options.function is not None:
            agent = replace(swarm.agent(turn.mailbox), function=options.function)
            swarm = replace(swarm, agents={**swarm.agents, turn.mailbox: agent})
        super().__init__(
            turn, known, swarm, runtime.store, runtime.clock, runtime.histories, tracer=runtime.tracer
        )
        self.said: MAILMessage | None = None
        self.failed: str | None = None
        self._shorten = options.shorten

    async def read(self) -> TaskChange | None:
        """Read the turn's mail, and do nothing else."""
        return await self._commit(lambda task: read_ahead(task, self._swarm, self.turn, self._clock))

    def _used_up(self) -> str | None:
        return None

    async def _call(self, agent: AgentCore, history: History) -> Checkpoint | AgentFailure:
        if self._shorten is not None:
            await self._make_shorter(history, self._shorten)
        return await super()._call(agent, history)

    async def _make_shorter(self, history: History, shorten: Shorten) -> None:
        """Replace the beginning of a long history by its summary, which is kept with this turn's record."""
        seen = visible(history)
        shortened = await shorten(seen, self.turn.prompts)
        if shortened is None:
            return
        self.turn = replace(self.turn, summary=summarize(history, *shortened))

    def _messages(self, history: History) -> History:
        return visible(super()._messages(history))

    def _choice(self) -> ToolChoice:
        return "auto"

    async def _settle(self, output: TurnOutput) -> TaskChange | None:
        mail = await self._mail_for(output)
        return await self._commit(lambda task: self._settle_step(task, output, mail))

    def _settle_step(self, task: Task, output: TurnOutput, mail: Sequence[MAILMessage]) -> TaskChange:
        failed = isinstance(output, AgentFailure)  # then what it has not read stays unread
        turn = replace(self.turn, also_read=()) if failed else self.turn
        settlement = StepSettlement(task, self._swarm, turn, self._clock, mail)
        settlement.charge(output.usage, output.models)
        match output:
            case AgentFailure(reason, attempts=attempts):
                settlement.agent_failed(reason, attempts)
            case Checkpoint():
                settlement.process(output)
        change = settlement.seal()
        self.said, self.failed = settlement.said, settlement.failed
        return change
