"""The base class of turns, and the report of what became of one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field
from enum import StrEnum

from mail.core.decisions.turn import abandon
from mail.core.engine.commit import Committer
from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.change import TaskChange, Turn
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.leases import Lease, WebhookClaim
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.core.turns.activity import TurnActivity
from mail.errors import StoreError


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


class LeasedTurn(ABC):
    """Base class of turns, which a worker has leased: an agent's, a peer's or a webhook's.

    Attributes:
        activity: what the turn of an agent does; None for the others.
    """

    activity: TurnActivity | None = None
    _end: OutboundResult | None = None

    def __init__(self, turn: Turn | WebhookClaim, swarm: SwarmCore, store: Store, clock: Clock) -> None:
        self.turn = turn
        self._swarm = swarm
        self._store = store
        self._clock = clock
        self._committer = Committer(store)

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
        return await self.commit(lambda task: abandon(task, self._swarm, turn, reason, attempts, self._clock))

    def interrupt(self) -> None:  # noqa: B027  # only agents keep a turn waiting for long
        """Stop waiting for the agent, whose result would be discarded; safe to call at any time."""

    def stop(self, error: StoreError) -> None:  # noqa: B027  # requests to peers and webhooks are short
        """Stop waiting for the agent and end with the error, as the turn lost its lease; safe to call at any time."""

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """Return the turn's measurements."""
        return TurnReport(outcome, self._committer.conflicts, outbound=self._end)

    def commit(self, decide: Callable[[Task], TaskChange | None]) -> Coroutine[None, None, TaskChange | None]:
        """Commit what `decide` makes of the turn's task; None if it decides to change nothing."""
        return self._committer.commit(decide, self.turn.task)


def conceal(error: Exception) -> str:
    """Describe an error for agents and users: its text may contain secrets, so only the log has it."""
    return f"{type(error).__name__}; the server's log says more"
