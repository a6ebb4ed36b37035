"""Steps of manual mode: runs and commits, turn by turn, what `mail.core.decisions.manual` decides."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from mail.core.decisions.manual import (
    Step,
    StepPolicy,
    StepTurn,
    begin_step,
    portion,
    read_ahead,
    settle_step,
)
from mail.core.decisions.turn import Background, TurnOutput
from mail.core.engine.commit import Committer
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.turn import AgentTurn, TurnPolicy
from mail.core.engine.turns import Turns
from mail.core.engine.wiring import Wiring
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.context import Context
from mail.core.task.draft import Draft
from mail.core.task.swarm import AgentFunction
from mail.core.task.task import TaskKey
from mail.core.turns.context import CURRENT_TASK
from mail.errors import StepFailed, TaskNotFound

TURNS_TO_RESPOND = 25
"""How many turns an agent may use to call actions before a step fails."""


SettleStep = Callable[[Draft, StepTurn, TurnOutput, Background], TaskChange]


@dataclass(frozen=True, slots=True)
class StepOptions:
    """The options of a step.

    Attributes:
        function: called instead of the agent's own function.
        context: how the agent's context is kept within its window, instead of the agent's own setting.
    """

    function: AgentFunction | None = None
    context: Context | None = None


class ManualMode:
    """Takes the steps of manual tasks, on the turns of a runtime."""

    def __init__(self, wiring: Wiring, turns: Turns) -> None:
        self._wiring = wiring
        self._turns = turns

    async def take_step(self, key: TaskKey, step: Step, options: StepOptions = StepOptions()) -> MAILMessage:
        """Let an agent take a step, and return its response.

        An agent takes one step at a time; a second one that starts meanwhile, on any server, fails.

        Raises BadRequest for names that are not agents, TaskNotFound, and StepFailed if the agent gives no response;
        the mail that it has not read then still waits.
        """
        CURRENT_TASK.set(key.task_id)
        step.check(self._wiring.swarm)
        task = await self._wiring.store.load(key)
        if task is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}; submit a message with this task_id first")
        begun = await Committer(self._wiring.store).commit(
            lambda task: begin_step(Draft(task, self._wiring.swarm, self._wiring.clock), step), task
        )
        for _ in range(TURNS_TO_RESPOND):
            said = await self._take_turn(key, step, begun.deliveries[0].seq, options)
            if said is not None:
                return said
        raise StepFailed(f"agent {step.target!r} gave no response within {TURNS_TO_RESPOND} turns")

    async def _take_turn(
        self, key: TaskKey, step: Step, instructions: int, options: StepOptions
    ) -> MAILMessage | None:
        """Run one turn of a step, and return the response that it brought."""
        result: StepPolicy | None = None

        def settle(draft: Draft, turn: StepTurn, output: TurnOutput, background: Background) -> TaskChange:
            nonlocal result
            change, result = settle_step(draft, turn, output, background)
            return change

        while True:
            turn, known = await self._lease(key, step.target)
            mail = await self._other_mail(turn)
            also_read = portion(mail) if mail else ()
            is_next = turn.checkpoint is not None or turn.task.approved_calls_of(step.target) is not None
            if len(also_read) == len(mail) or is_next:
                break
            first, *rest = portion([entry for entry in mail if entry.seq != instructions])
            reading = _step_turn(replace(turn, entry=first, also_read=tuple(rest)), step, instructions)
            leased = self._agent_turn(reading, known, options, settle)
            await self._execute(leased, partial(read_ahead, turn=reading))
        turn = replace(turn, also_read=also_read)
        leased = self._agent_turn(_step_turn(turn, step, instructions), known, options, settle)
        await self._execute(leased)
        if result is not None and result.failed is not None:
            raise StepFailed(f"agent {step.target!r} gave no response: {result.failed}")
        return None if result is None else result.said

    async def _lease(self, key: TaskKey, agent: str) -> tuple[Turn, int]:
        opened = await self._turns.lease(key, agent, self._wiring.lease_seconds)
        match opened:
            case TurnReport.Outcome.BUSY:
                raise StepFailed(f"agent {agent!r} is busy: another step of it is under way")
            case TurnReport.Outcome():
                raise StepFailed(f"task {key.task_id!r} has stopped")
        return opened

    async def _other_mail(self, turn: Turn) -> list[InboxEntry]:
        """Return the mail of the turn's mailbox, without the message that the turn is for."""
        mail = await self._wiring.store.read_inbox(turn.task.key)
        return [entry for entry in mail if entry.mailbox == turn.mailbox and entry.seq != turn.entry.seq]

    def _agent_turn(
        self, turn: StepTurn, known: int, options: StepOptions, settle: SettleStep
    ) -> AgentTurn[StepTurn]:
        """Return a turn without limits, in which any output is a response."""
        swarm = self._wiring.swarm
        if options.function is not None or options.context is not None:
            agent = swarm.agent(turn.mailbox)
            agent = replace(
                agent, function=options.function or agent.function, context=options.context or agent.context
            )
            swarm = replace(swarm, agents={**swarm.agents, turn.mailbox: agent})
        policy = TurnPolicy[StepTurn](
            find_used_up=lambda task, swarm, turn, now: None,
            messages=lambda turn, history, prompts: [*history, *prompts],
            tool_choice=lambda turn: "auto",
            settle=settle,
        )
        return AgentTurn(turn, known, self._wiring, policy, self._turns.live, swarm)

    async def _execute(
        self, leased: AgentTurn[StepTurn], decide: Callable[[Draft], TaskChange] | None = None
    ) -> None:
        """Run a turn, or only commit what `decide` makes of its task."""
        work = leased.run if decide is None else lambda _: leased.commit(decide)
        report = await self._turns.execute(leased, work)
        if report.outcome is not TurnReport.Outcome.COMMITTED:
            raise StepFailed(f"the turn of agent {leased.turn.mailbox!r} was taken over by another worker")


def _step_turn(turn: Turn, step: Step, instructions: int) -> StepTurn:
    return StepTurn(
        task=turn.task,
        entry=turn.entry,
        lease=turn.lease,
        portions=turn.portions,
        checkpoint=turn.checkpoint,
        running_turns=turn.running_turns,
        also_read=turn.also_read,
        step=step,
        instructions=instructions,
    )
