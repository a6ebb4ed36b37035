"""The guards of a turn judge the reply of the agent, before anything of it happens, and the results of its actions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from mail.core.decisions.guards import (
    Case,
    after,
    apply,
    apply_to_results,
    cases_of,
    edited_cases,
    failed_verdict,
    result_cases,
    verdict_on,
)
from mail.core.engine.telemetry import Tracer
from mail.core.task.change import Turn
from mail.core.task.client_tools import NO_CLIENT_TOOLS
from mail.core.task.guards import (
    NO_JUDGEMENT,
    REPLIES,
    WORDS,
    Guard,
    Guards,
    Judgement,
    Outcome,
    Stage,
    Verdict,
    judges,
)
from mail.core.task.swarm import AgentCore, SwarmCore
from mail.core.task.turn_state import Breakpoint, Checkpoint
from mail.core.turns.context import NOTHING_PROVIDED, TURN
from mail.core.turns.usage import UsageMeter
from mail.errors import StoreError, TaskFull

logger = logging.getLogger(__name__)

RESULTS: frozenset[Stage] = frozenset({"result"})


@dataclass(eq=False, repr=False)
class TurnGuards:
    """The guards of one turn.

    Attributes:
        judge_words: whether they judge what the agent writes to others, so that nobody sees that before.
        judge_replies: whether they judge anything that its model says.
        judge_results: whether they judge what its actions return.
    """

    turn: Turn
    swarm: SwarmCore
    agent: AgentCore
    meter: UsageMeter
    tracer: Tracer
    keep: Callable[[Checkpoint], Awaitable[None]]

    def __post_init__(self) -> None:
        self._guards = guards = self.swarm.guards_of(self.agent)
        self._kept: Checkpoint | None = None
        self.judge_words = judges(guards, WORDS)
        self.judge_replies = judges(guards, REPLIES)
        self.judge_results = judges(guards, RESULTS)

    async def judge(self, output: Checkpoint, text_recipient: str) -> Checkpoint:
        """Return the reply of the agent as its verdicts leave it."""
        if output.judgement is not None and output.judgement.is_applied:
            return output
        cases = cases_of(output, self.swarm, self.turn, text_recipient)
        return apply(*await self._judge_all(output, cases), self.agent.tool_format)

    async def judge_edited(self, output: Checkpoint, approved: Breakpoint) -> Checkpoint:
        """Return approved calls with the verdicts on those whose arguments a person has changed."""
        edited = [
            call.call_id
            for call in approved.calls
            if call.approval is not None and call.approval.arguments is not None
        ]
        return (await self._judge_all(output, edited_cases(output, self.turn, edited)))[0]

    async def judge_what_came(self, output: Checkpoint) -> Checkpoint:
        """Return a turn whose actions have run with their results as the verdicts leave them."""
        return apply_to_results(*await self._judge_all(output, result_cases(output, self.turn)))

    async def _judge_all(self, output: Checkpoint, cases: Iterable[Case]) -> tuple[Checkpoint, list[Case]]:
        """Return a checkpoint with the verdicts on all cases, and what these leave of those that are judged.

        Each guard judges what those before it have left.
        """
        left: list[Case] = []
        for each in cases:
            case = each
            guards = [guard for guard in self._guards if case.stages & guard.on]
            for guard in guards:
                stages = case.stages & guard.on
                if case.act.on not in stages:
                    case = replace(case, act=replace(case.act, on=min(stages)))
                output, verdict = await self._decide(output, case, guard)
                case = after(case, verdict)
                if verdict.outcome is Outcome.REFUSE:
                    break
            if guards:
                left.append(case)
        return output, left

    async def _decide(self, output: Checkpoint, case: Case, guard: Guard) -> tuple[Checkpoint, Verdict]:
        """Return what a guard decides, or has decided in an earlier attempt at the turn, and the checkpoint with it."""
        judgement: Judgement = output.judgement or NO_JUDGEMENT
        if (known := judgement.find(case.act.on, case.place, guard.name)) is not None:
            return output, known
        if guard.checkpointed and output is not self._kept:
            await self.keep(output)
        verdict = await _ask(case, guard)
        self.tracer.verdict(verdict)
        spent, models = self.meter.spent, self.meter.spent_by_model
        output = replace(output, judgement=judgement.and_(verdict), usage=spent, models=models)
        if guard.checkpointed:
            await self.keep(output)
            self._kept = output
        return output, verdict


async def judge_later(guards: Guards, case: Case) -> tuple[str, list[Verdict]]:
    """Return a result that has come after its turn as the verdicts leave it, and these."""
    verdicts: list[Verdict] = []
    for guard in guards:
        if case.stages & guard.on and not any(each.outcome is Outcome.REFUSE for each in verdicts):
            verdicts.append(await _ask(case, guard))
            case = after(case, verdicts[-1])
    return case.act.text, verdicts


async def _ask(case: Case, guard: Guard) -> Verdict:
    """Have a guard judge an act; what it raises is no more than its type in the log, as it may quote the act."""
    lent = replace(
        TURN.get(),
        tools=NO_CLIENT_TOOLS,
        provided=NOTHING_PROVIDED,
        is_private=True,
        is_judged=True,
        may_park=False,
        may_cut=False,
    )
    token = TURN.set(lent)
    try:
        async with asyncio.timeout(guard.timeout):
            ruling: object = await guard.function(case.act)
    except (StoreError, TaskFull):
        raise
    except TimeoutError:
        logger.warning("guard %s took too long, or a call in it", guard.name)
        return failed_verdict(case, guard, "took too long")
    except Exception as error:  # noqa: BLE001  # a guard is foreign code
        logger.warning("guard %s failed: %s", guard.name, type(error).__name__)
        return failed_verdict(case, guard, "failed")
    finally:
        TURN.reset(token)
    return verdict_on(case, guard, ruling)
