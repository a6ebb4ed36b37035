"""An open turn, and what is the same for all kinds of them: its commit, and what there is to report of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mail.core.protocol.clock import Clock
from mail.core.task.change import Claim, TaskChange
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.core.task.usage import NO_USAGE, Usage
from mail.errors import TaskNotFound, VersionConflict


class DeliveryEnd(StrEnum):
    """What became of mail for another swarm: it was taken, given back to its sender, put off, or meant for all swarms."""

    DELIVERED = "delivered"
    RETURNED = "returned"
    DELAYED = "delayed"
    FANNED_OUT = "fanned_out"


@dataclass(frozen=True, slots=True)
class TurnReport:
    """What became of a token, for whoever measures.

    Attributes:
        conflicts: how often somebody else's commit came first, so that the turn was settled again.
        agent_seconds: how long the agent function took, and so its model.
        usage: what the turn's models were paid, in earlier runs of it as well.
        models: what they were paid in this run, by model.
        delivery: what became of the message, where it was for another swarm.
    """

    class Outcome(StrEnum):
        """LEASED and IDLE: there was no turn to run; LOST: somebody else had taken it over meanwhile."""

        COMMITTED = "committed"
        HANDED_BACK = "handed_back"
        LEASED = "leased"
        IDLE = "idle"
        LOST = "lost"

    outcome: Outcome
    conflicts: int = 0
    agent_seconds: float = 0.0
    usage: Usage = NO_USAGE
    models: Mapping[str, Usage] = field(default_factory=dict)
    delivery: DeliveryEnd | None = None


class TurnWork(ABC):
    """A turn, or another claim on a mailbox, that its worker has leased."""

    def __init__(self, turn: Claim, swarm: SwarmCore, store: Store, clock: Clock) -> None:
        self.turn = turn
        self._swarm = swarm
        self._store = store
        self._clock = clock
        self._conflicts = 0

    @abstractmethod
    async def run(self, seconds: float) -> TaskChange | None:
        """Run the turn, for `seconds` at most, and commit it; None where it may not run."""

    @abstractmethod
    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn, which was tried so often, as failed without running it; None where its message is newer than
        `upto`.
        """

    def interrupt(self) -> None:  # noqa: B027  # only agents keep a turn waiting for long
        """Wait no longer for the agent, as nothing that it does will count; it may be called at any time."""

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """What there is to measure."""
        return TurnReport(outcome, self._conflicts)

    async def _commit(self, decide: Callable[[Task], TaskChange | None]) -> TaskChange | None:
        """Commit what `decide` makes of the task, deciding again as long as others commit first.

        None where it decides for nothing.
        """
        task = self.turn.task
        while True:
            change = decide(task)
            if change is None:
                return None
            try:
                await self._store.commit(change)
            except VersionConflict as conflict:
                self._conflicts += 1
                task = conflict.current or await self._load()
                continue
            return change

    async def _load(self) -> Task:
        key = self.turn.task.key
        task = await self._store.load(key)
        if task is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        return task
