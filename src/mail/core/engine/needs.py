"""The tasks that need their owner, or wait for others."""

from collections import Counter
from datetime import timedelta

from mail.core.decisions.dead_letters import read_dead_letters
from mail.core.decisions.needs import Need, need_of
from mail.core.engine.wiring import Wiring
from mail.core.protocol.values import value
from mail.core.task.ports import Store
from mail.core.task.search import Search, Searched
from mail.core.task.task import Task, TaskStatus
from mail.errors import BadRequest, StoreUnavailable

MOST = 20
"""Tasks of each kind, the last changed."""

PAGES = 20
"""Pages of as many tasks in a state that are read in search of those."""

MOST_REASON = 1_000
"""Characters of the reason of a failure; its task has the rest."""

FAILURE_DAYS = 7
"""Days after which nobody is reminded of a failure."""


FRESH_SECONDS = 300
"""Seconds after which the tasks are read again: an index may have missed a change, or a failure is old now."""


@value
class TaskNeed:
    """A task that needs its owner; `reason` begins the answer of one that has failed, or says why of a dead letter."""

    task: Task
    need: Need
    reason: str = ""


async def last_change(wiring: Wiring, instance: str) -> str | None:
    """Return a text that changes with the tasks of an instance, and every `FRESH_SECONDS`.

    It costs one search, where `tasks_in_need` may read hundreds of tasks. None if the store can't tell.
    """
    try:
        page = await wiring.store.search(instance, Search(), limit=1)
    except (StoreUnavailable, BadRequest):
        return None
    if page.searched != Searched.TEXTS:
        return None
    last = "".join(f"{task.version}-{task.task_id}" for task in page.tasks)
    return f"{wiring.clock.now().timestamp() // FRESH_SECONDS:.0f}-{last}"


async def tasks_in_need(wiring: Wiring, instance: str) -> list[TaskNeed]:
    """Return the tasks of an instance that need their owner or wait for others, the last changed first."""
    store, week_ago = wiring.store, wiring.clock.now() - timedelta(days=FAILURE_DAYS)
    searches = {
        Need.QUESTION: Search(status=TaskStatus.PAUSED),
        Need.FAILURE: Search(status=TaskStatus.FAILED, since=week_ago.isoformat()),
        Need.OTHERS: Search(status=TaskStatus.RUNNING),
    }
    pages = [await _find(store, instance, search, need) for need, search in searches.items()]
    pages.append((await store.list_dead(instance, limit=MOST)).tasks)
    tasks = {task.task_id: task for page in pages for task in page}
    found, counts = [], Counter[Need]()
    for task in sorted(tasks.values(), key=lambda task: task.updated, reverse=True):
        need = need_of(task)
        if need is not None and counts[need] < MOST:
            counts[need] += 1
            found.append(TaskNeed(task, need, (await _reason(store, task, need))[:MOST_REASON]))
    return found


async def _reason(store: Store, task: Task, need: Need) -> str:
    """Return why a task has failed, or its last dead letter was not processed; empty for others."""
    if need is Need.FAILURE:
        answer = await store.read_response(task.key, task.generation.number)
        return "" if answer is None else answer.message.body
    if need is Need.DEAD_LETTERS:
        events = await store.read_events(task.key, after=task.dead_letters[-1] - 1, limit=1)
        return "".join(letter.reason for letter in read_dead_letters(task, events))
    return ""


async def _find(store: Store, instance: str, search: Search, need: Need) -> list[Task]:
    """Return the first tasks of a search that have a need, the last changed first: many have none.

    Ends at a page without tasks, behind which a store that filters by itself may read all others. If the search fails,
    return those of the last tasks that have begun.
    """
    found, counts = list[Task](), Counter[Need]()
    cursor = None
    for _ in range(PAGES):
        try:
            page = await store.search(instance, search, limit=MOST, cursor=cursor)
        except (StoreUnavailable, BadRequest):  # the index can't be read, or not in time
            begun = await store.list_tasks(instance, status=search.status, limit=MOST)
            return [*found, *(task for task in begun.tasks if search.admits(task))]
        for task in page.tasks:
            if (its := need_of(task)) is not None and counts[its] < MOST:
                counts[its] += 1
                found.append(task)
        cursor = page.cursor
        if cursor is None or not page.tasks or counts[need] >= MOST:
            break
    return found
