"""The base class of turns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine

from mail.core.engine.commit import Committer
from mail.core.engine.telemetry import DeliveryEnd, TurnReport
from mail.core.protocol.clock import Clock
from mail.core.task.change import TaskChange
from mail.core.task.leases import Claim
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.errors import StoreError


class LeasedTurn(ABC):
    """Base class of turns, which a worker has leased: an agent's, a delivery or a webhook's."""

    def __init__(self, turn: Claim, swarm: SwarmCore, store: Store, clock: Clock) -> None:
        self.turn = turn
        self._swarm = swarm
        self._store = store
        self._clock = clock
        self._committer = Committer(store)
        self._end: DeliveryEnd | None = None

    @abstractmethod
    async def run(self, seconds: float) -> TaskChange | None:
        """Run the turn, for `seconds` at most, and commit it; None if it may not run."""

    @abstractmethod
    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn as failed after so many attempts, without running it; None if its message is newer than `upto`."""

    def interrupt(self) -> None:  # noqa: B027  # only agents keep a turn waiting for long
        """Stop waiting for the agent, whose result would be discarded; safe to call at any time."""

    def stop(self, error: StoreError) -> None:  # noqa: B027  # the requests of deliveries are short
        """Stop waiting for the agent and end with the error, as the turn has lost its lease; safe to call at any time."""

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """Return the turn's measurements."""
        return TurnReport(outcome, self._committer.conflicts, delivery=self._end)

    def commit(self, decide: Callable[[Task], TaskChange | None]) -> Coroutine[None, None, TaskChange | None]:
        """Commit what `decide` makes of the turn's task; None if it decides to change nothing."""
        return self._committer.commit(decide, self.turn.task)
