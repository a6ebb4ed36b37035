"""The base class of turns, and the report of what became of one."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import field
from enum import StrEnum
from functools import partial
from math import inf

from mail.core.decisions.turn import abandon
from mail.core.engine.commit import Committer
from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.change import TaskChange, Turn
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.draft import Draft
from mail.core.task.leases import Lease, WebhookClaim
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.core.turns.activity import TurnActivity
from mail.core.turns.context import TurnContext
from mail.errors import LeaseLost, StoreError, StoreUnavailable

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0
"""Seconds before a refused write is repeated: they double up to the second number."""


class OutboundResult(StrEnum):
    """The result of sending outbound mail: accepted, returned to the sender, postponed, or copied to every swarm."""

    DELIVERED = "delivered"
    RETURNED = "returned"
    DELAYED = "delayed"
    FANNED_OUT = "fanned_out"


@value
class TurnReport:
    """The result of a wake-up.

    Attributes:
        conflicts: how often another commit came first, so that the turn was settled again.
        agent_seconds: how long the agent function, and so its model, took.
        usage: what the turn's models cost, earlier runs of the turn included.
        models: the cost of this run by model.
        problem: why the entrypoint could not take its turn, such as a missing key; the task fails with it.
        outbound: the result for a message to another swarm, or for a webhook's events.
    """

    class Outcome(StrEnum):
        """BUSY and IDLE: there was no turn to run; LOST: another worker took the turn over; PARKED: it continues later.

        FAILED: an error of the engine ended the turn; it is raised, so that only live events report it.
        """

        COMMITTED = "committed"
        HANDED_BACK = "handed_back"
        PARKED = "parked"
        BUSY = "busy"
        IDLE = "idle"
        LOST = "lost"
        FAILED = "failed"

    outcome: Outcome
    conflicts: int = 0
    agent_seconds: float = 0.0
    usage: Usage = NO_USAGE
    models: Mapping[str, Usage] = field(default_factory=dict)
    problem: str = ""
    outbound: OutboundResult | None = None

    @property
    def is_of_model(self) -> bool:
        """Whether it is a committed turn that called a model, in this run or an earlier one."""
        return self.outcome is TurnReport.Outcome.COMMITTED and self.usage.calls > 0


class LeasedTurn(ABC):
    """Base class of turns, which a worker has leased: an agent's, a peer's or a webhook's.

    Attributes:
        activity: what the turn of an agent does; None for the others.
        until: when it must have ended, by the clock of the event loop; later no refused write is repeated.
    """

    activity: TurnActivity | None = None
    until: float = inf
    _end: OutboundResult | None = None

    def __init__(self, turn: Turn | WebhookClaim, swarm: SwarmCore, store: Store, clock: Clock) -> None:
        self.turn = turn
        self._swarm = swarm
        self._store = store
        self._clock = clock
        self._committer = Committer(store, partial(self._insist, store.commit))

    def context(self, seconds: float) -> TurnContext:
        """Return the context of the turn's code, which runs for `seconds` at most."""
        message_id = self.turn.entry.message.id if isinstance(self.turn, Turn) else ""
        return TurnContext(agent=self.turn.mailbox, message_id=message_id)

    @abstractmethod
    async def run(self, seconds: float) -> TaskChange | Lease | None:
        """Run the turn, for `seconds` at most, and commit it, or park it; None if it may not run."""

    @abstractmethod
    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn as failed after so many attempts, without a run; None if its message is newer than `upto`."""

    async def abandon(self, reason: str, attempts: int) -> TaskChange | None:
        """End the task, for that reason, by a commit that contains nothing of the turn."""
        turn = self.turn
        assert isinstance(turn, Turn)
        return await self.commit(lambda draft: abandon(draft, turn, reason, attempts))

    def interrupt(self) -> None:  # noqa: B027  # only agents keep a turn waiting for long
        """Stop waiting for the agent, whose result would be discarded; safe to call at any time."""

    def stop(self, error: StoreError) -> None:  # noqa: B027  # requests to peers and webhooks are short
        """Stop waiting for the agent and end with the error, as the turn lost its lease; safe to call at any time."""

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """Return the turn's measurements."""
        return TurnReport(outcome, self._committer.conflicts, outbound=self._end)

    async def _insist[Made](self, write: Callable[[Made], Awaitable[None]], made: Made) -> None:
        """Write what the turn has made in the name of the lease, and again while the store refuses it: it was paid for.

        Raises StoreUnavailable when the time of the turn ends, or if the lease is gone after a refusal: the write may
        have gone through, and the next wake-up finds out.
        """
        pause, refused = FIRST_PAUSE, None
        while True:
            try:
                return await write(made)
            except StoreUnavailable as error:
                refused = error
                if asyncio.get_running_loop().time() + pause > self.until:
                    raise
            except LeaseLost:
                if refused is not None:
                    raise refused from None
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def commit(
        self,
        decide: Callable[[Draft], TaskChange | None],
        task: Task | None = None,
        reload: Callable[[], Awaitable[Task]] | None = None,
    ) -> Coroutine[None, None, TaskChange | None]:
        """Commit what `decide` makes of the turn's task, or of a later `task`; None if it decides to change nothing."""
        return self._committer.commit(
            lambda task: decide(Draft(task, self._swarm, self._clock)), task or self.turn.task, reload=reload
        )


def conceal(error: Exception) -> str:
    """Describe an error for agents and users: its text may contain secrets, so only the log has it."""
    return f"{type(error).__name__}; the server's log says more"
