"""Dead letters being listed, redriven and discarded: what `mail.core.decisions.dead_letters` decides is read and committed."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from mail.core.decisions.dead_letters import (
    DeadLetter,
    Redriven,
    choose,
    discard,
    read_letters,
    redrive,
    with_messages,
)
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.context import CURRENT_TASK
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import MAILError, StoreUnavailable, TaskNotFound, VersionConflict

LETTERS_PER_COMMIT = 50
"""Messages that one commit puts into mailboxes again: a commit on DynamoDB changes 100 items at most."""

LETTERS_AT_ONCE = 500
"""About how many are redriven or discarded at once, so that whoever asks for all is answered in time."""

TASKS_PER_PAGE = 20


@dataclass(frozen=True, slots=True)
class ListedLetter:
    """A dead letter, and how its task is."""

    letter: DeadLetter
    status: TaskStatus


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Some dead letters; `cursor` asks for the next page, None on the last."""

    letters: list[ListedLetter]
    cursor: str | None


async def letters_of(store: Store, task: Task) -> list[ListedLetter]:
    """The dead letters of a task, the newest first."""
    return [ListedLetter(letter, task.status) for letter in await _read(store, task, task.dead_letters)]


async def list_letters(
    runtime: Runtime, instance: str | None, *, limit: int, cursor: str | None
) -> LetterPage:
    """The dead letters of an instance's tasks, or of all tasks of the swarm.

    Those of one task stay together, so that a page can hold more than `limit` where one task has. Raises BadRequest for
    a cursor that the store did not make.
    """
    size = limit
    while True:
        page = await runtime.store.list_dead(instance, limit=size, cursor=cursor)
        letters: list[ListedLetter] = []
        for count, task in enumerate(page.tasks):
            found = await letters_of(runtime.store, task) if runtime.serves(task.key) else []
            if count and len(letters) + len(found) > limit:
                size = count  # only a page of so many tasks has a cursor that goes on behind them
                break
            letters += found
        else:
            return LetterPage(letters, page.cursor)


async def redrive_letters(
    runtime: Runtime, caller: Principal, key: TaskKey, seq: int | None = None
) -> list[Redriven]:
    """Redrive the dead letters of a task, or one of them; what of several can't be redriven says why.

    Raises TaskNotFound, DeadLetterNotFound where that one is gone, or RateLimited.
    """
    CURRENT_TASK.set(key.task_id)
    outcomes: dict[int, Redriven] = {}
    task = await _load(runtime.store, key)
    wanted = frozenset(choose(task, seq))  # not those that come meanwhile, as what is redriven may fail again
    while True:
        chosen = [each for each in task.dead_letters if each in wanted and each not in outcomes][
            :LETTERS_PER_COMMIT
        ]
        if not chosen:
            return list(outcomes.values())
        letters = await _with_messages(runtime.store, task, chosen)
        change, redriven = redrive(task, letters, runtime.swarm, caller, runtime.clock)
        if change is not None:
            try:
                await runtime.adopt(task, change)
            except VersionConflict as conflict:
                task = conflict.current or await _load(runtime.store, key)
                choose(task, seq)
                continue
            task = change.task
        outcomes |= {each.letter.seq: each for each in redriven}


async def discard_letters(
    runtime: Runtime, caller: Principal, key: TaskKey, seq: int | None = None
) -> list[int]:
    """Discard the dead letters of a task, or one of them; returns which it were. Raises as `redrive_letters`."""
    CURRENT_TASK.set(key.task_id)
    task = await _load(runtime.store, key)
    wanted = choose(task, seq)  # not those that come meanwhile, which nobody has seen
    while True:
        change, gone = discard(task, wanted, runtime.swarm, caller, runtime.clock)
        if change is None:
            return gone
        try:
            await runtime.adopt(task, change)
        except VersionConflict as conflict:
            task = conflict.current or await _load(runtime.store, key)
            choose(task, seq)
            continue
        return gone


@dataclass(frozen=True, slots=True)
class Sweep[Outcome]:
    """What became of the dead letters of several tasks.

    Attributes:
        outcomes: of each task.
        troubles: why nothing became of those of a task, in words.
        cursor: where to go on, as there are more; None where that was all.
    """

    outcomes: dict[TaskKey, list[Outcome]]
    troubles: dict[TaskKey, str]
    cursor: str | None


async def sweep[Outcome](
    runtime: Runtime,
    work: Callable[[Runtime, Principal, TaskKey], Coroutine[Any, Any, list[Outcome]]],
    caller: Principal,
    instance: str | None,
    cursor: str | None,
) -> Sweep[Outcome]:
    """Do the work with all dead letters of an instance, or of the swarm; with so many at a time as take no time."""
    outcomes: dict[TaskKey, list[Outcome]] = {}
    troubles: dict[TaskKey, str] = {}
    while True:
        page = await runtime.store.list_dead(instance, limit=TASKS_PER_PAGE, cursor=cursor)
        for task in page.tasks:
            if not runtime.serves(task.key):
                continue
            try:
                outcomes[task.key] = await work(runtime, caller, task.key)
            except StoreUnavailable:
                raise
            except MAILError as error:  # one task's trouble must not keep the others waiting
                troubles[task.key] = error.detail
        cursor = page.cursor
        if cursor is None or sum(map(len, outcomes.values())) >= LETTERS_AT_ONCE:
            return Sweep(outcomes, troubles, cursor)


async def _load(store: Store, key: TaskKey) -> Task:
    task = await store.load(key)
    if task is None:
        raise TaskNotFound(f"there is no task {key.task_id!r}")
    return task


async def _read(store: Store, task: Task, seqs: Sequence[int]) -> list[DeadLetter]:
    if not seqs:
        return []
    chosen = set(seqs)
    events = await store.read_events(task.key, after=min(seqs) - 1)
    return [letter for letter in read_letters(task, events) if letter.seq in chosen]


async def _with_messages(store: Store, task: Task, seqs: Sequence[int]) -> list[DeadLetter]:
    letters = await _read(store, task, seqs)
    first = min((letter.message_seq for letter in letters), default=0)
    return with_messages(letters, await store.read_events(task.key, after=first - 1))
