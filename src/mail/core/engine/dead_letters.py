"""Dead letters: lists, redrives and discards them, as `mail.core.decisions.dead_letters` decides."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import batched
from typing import Any

from mail.core.decisions.dead_letters import (
    DeadLetter,
    Redriven,
    choose,
    discard,
    read_dead_letters,
    redrive,
    with_messages,
)
from mail.core.engine.admission import Admission
from mail.core.engine.commit import load_task
from mail.core.engine.watch import SLICE_BYTES
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.protocol.values import value
from mail.core.task.change import TaskChange
from mail.core.task.events import Event
from mail.core.task.mailboxes import hook_of
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.turns.context import CURRENT_TASK
from mail.errors import MAILError, StoreUnavailable

REDRIVEN_PER_COMMIT = 50
"""How many dead letters one commit redrives, so that its size stays bounded."""

SWEEP_SIZE = 500
"""After about how many dead letters a sweep stops, so that its caller gets an answer in time."""

TASKS_PER_PAGE = 20

EVENTS_PER_READ = 100


@value
class ListedDeadLetter:
    """A dead letter, and the status of its task."""

    dead_letter: DeadLetter
    status: TaskStatus


@value
class DeadLetterPage:
    """A page of dead letters; `cursor` is for the next page, None on the last."""

    dead_letters: list[ListedDeadLetter]
    cursor: str | None


@value
class Sweep[Outcome]:
    """The results for the dead letters of several tasks.

    Attributes:
        outcomes: the results by task.
        failures: by task, why its dead letters could not be processed, in words.
        cursor: where to resume if there are more; None after the last.
    """

    outcomes: dict[TaskKey, list[Outcome]]
    failures: dict[TaskKey, str]
    cursor: str | None


class DeadLetters:
    """The dead letters of a swarm's tasks."""

    def __init__(self, wiring: Wiring, admission: Admission) -> None:
        self._wiring = wiring
        self._admission = admission

    async def of(self, task: Task) -> list[ListedDeadLetter]:
        """Return the dead letters of a task, the newest first."""
        return [ListedDeadLetter(each, task.status) for each in await self._read(task, task.dead_letters)]

    async def page(self, instance: str | None, *, limit: int, cursor: str | None) -> DeadLetterPage:
        """Return a page of the dead letters of an instance's tasks, or of all tasks of the swarm.

        The dead letters of one task are never split, so a task with more than `limit` fills a longer page. Raises
        BadRequest for a cursor that the store did not make.
        """
        size = limit
        while True:
            page = await self._wiring.store.list_dead(instance, limit=size, cursor=cursor)
            dead_letters: list[ListedDeadLetter] = []
            for count, task in enumerate(page.tasks):
                found = await self.of(task) if self._wiring.serves(task.key) else []
                if count and len(dead_letters) + len(found) > limit:
                    size = count  # only a page of this many tasks has a cursor behind them
                    break
                dead_letters += found
            else:
                return DeadLetterPage(dead_letters, page.cursor)

    async def redrive(self, caller: Principal, key: TaskKey, seq: int | None = None) -> list[Redriven]:
        """Redrive the dead letters of a task, or one of them; a result names the reason if one can't be redriven.

        Raises TaskNotFound, DeadLetterNotFound if that one is no longer listed, or RateLimited.
        """
        CURRENT_TASK.set(key.task_id)
        task = await load_task(self._wiring.store, key)
        wanted = choose(task, seq)  # new ones stay, as a redriven message may fail again
        redriven: list[Redriven] = []
        for seqs in batched(wanted, REDRIVEN_PER_COMMIT):
            found = await self._read(task, seqs)
            messages = [each.message_seq for each in found if hook_of(each.mailbox) is None]
            dead_letters = with_messages(found, await self._read_events(key, messages))
            task, some = await self._redrive(caller, task, dead_letters, seq)
            redriven += some
        return redriven

    async def _redrive(
        self, caller: Principal, task: Task, dead_letters: Sequence[DeadLetter], seq: int | None
    ) -> tuple[Task, list[Redriven]]:
        redriven: list[Redriven] = []

        def decide(task: Task) -> TaskChange | None:
            nonlocal redriven
            choose(task, seq)
            change, redriven = redrive(self._wiring.draft(task), dead_letters, caller)
            return change

        change = await self._admission.adopt(task, decide)
        return (task if change is None else change.task), redriven

    async def discard(self, caller: Principal, key: TaskKey, seq: int | None = None) -> list[int]:
        """Discard the dead letters of a task, or one of them; return their seqs. Raises as `redrive`."""
        CURRENT_TASK.set(key.task_id)
        task = await load_task(self._wiring.store, key)
        wanted = choose(task, seq)  # new ones stay, as the caller has not seen them
        discarded: list[int] = []

        def decide(task: Task) -> TaskChange | None:
            nonlocal discarded
            choose(task, seq)
            change, discarded = discard(self._wiring.draft(task), wanted, caller)
            return change

        await self._admission.adopt(task, decide)
        return discarded

    async def sweep[Outcome](
        self,
        work: Callable[[Principal, TaskKey], Coroutine[Any, Any, list[Outcome]]],
        caller: Principal,
        instance: str | None,
        cursor: str | None,
    ) -> Sweep[Outcome]:
        """Do the work on the dead letters of an instance, or of the swarm, up to about `SWEEP_SIZE` of them."""
        outcomes: dict[TaskKey, list[Outcome]] = {}
        failures: dict[TaskKey, str] = {}
        while True:
            page = await self._wiring.store.list_dead(instance, limit=TASKS_PER_PAGE, cursor=cursor)
            for task in page.tasks:
                if not self._wiring.serves(task.key):
                    continue
                try:
                    outcomes[task.key] = await work(caller, task.key)
                except StoreUnavailable:
                    raise
                except MAILError as error:  # the failure of one task must not stop the rest
                    failures[task.key] = error.detail
            cursor = page.cursor
            if cursor is None or sum(map(len, outcomes.values())) >= SWEEP_SIZE:
                return Sweep(outcomes, failures, cursor)

    async def _read(self, task: Task, seqs: Iterable[int]) -> list[DeadLetter]:
        """Read dead letters of a task, the newest first."""
        return read_dead_letters(task, await self._read_events(task.key, seqs))

    async def _read_events(self, key: TaskKey, seqs: Iterable[int]) -> list[Event]:
        """Read single events of a timeline, in order; events near each other share one bounded read."""
        found: dict[int, Event] = {}
        left = sorted(wanted := set(seqs))
        while left:
            first = left[0]
            near = [seq for seq in left if seq < first + EVENTS_PER_READ]
            limit = near[-1] - first + 1
            events = await self._wiring.store.read_events(
                key, after=first - 1, limit=limit, max_bytes=SLICE_BYTES
            )
            found |= {event.seq: event for event in events if event.seq in wanted}
            read = max(first, events[-1].seq) if events else near[-1]
            left = [seq for seq in left if seq > read]
        return list(found.values())
