"""The tasks that need their owner, or wait for others."""

from datetime import timedelta

from mail.core.decisions.needs import Need, need_of
from mail.core.engine.wiring import Wiring
from mail.core.protocol.values import value
from mail.core.task.search import Search
from mail.core.task.task import Task, TaskStatus

MOST = 20
"""Tasks of each kind, the last changed."""

MOST_REASON = 1_000
"""Characters of the reason of a failure; its task has the rest."""

FAILURE_DAYS = 7
"""Days after which nobody is reminded of a failure."""


@value
class TaskNeed:
    """A task that needs its owner; `reason` begins the last answer of one that has failed."""

    task: Task
    need: Need
    reason: str = ""


async def tasks_in_need(wiring: Wiring, instance: str) -> list[TaskNeed]:
    """Return the tasks of an instance that need their owner or wait for others, the last changed first."""
    store, week_ago = wiring.store, wiring.clock.now() - timedelta(days=FAILURE_DAYS)
    searches = (
        Search(status=TaskStatus.PAUSED),
        Search(status=TaskStatus.FAILED, since=week_ago.isoformat()),
        Search(status=TaskStatus.RUNNING),
    )
    pages = [await store.search(instance, search, limit=MOST) for search in searches]
    pages.append(await store.list_dead(instance, limit=MOST))
    tasks = {task.task_id: task for page in pages for task in page.tasks}
    found = []
    for task in sorted(tasks.values(), key=lambda task: task.updated, reverse=True):
        need = need_of(task)
        if need is not None:
            is_failure = need is Need.FAILURE
            answer = await store.read_response(task.key, task.generation.number) if is_failure else None
            found.append(TaskNeed(task, need, "" if answer is None else answer.message.body[:MOST_REASON]))
    return found
