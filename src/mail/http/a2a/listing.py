"""A page of a caller's tasks: the runs of the tasks that the store lists, the newest contexts first."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from a2a.types import ListTasksRequest, ListTasksResponse
from a2a.types import Task as A2ATask
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size

from mail.core.task.task import Task, TaskKey
from mail.errors import BadRequest
from mail.http.a2a.call import Call

PAGE = 50
"""Tasks of a page, unless the caller asks for another number."""

CONTEXTS = 200
"""Contexts that are read for a page at most: one with a rare status may be short, or even empty."""

_TOKEN = re.compile(r"([0-9]{1,9}):([0-9]{1,9}):(.*)", re.DOTALL)


class _Place(NamedTuple):
    """Where a page begins.

    Attributes:
        before: only runs of the first context with lower numbers, and 0 for all.
        given: how many tasks the pages before had.
        cursor: the store's, of the page that begins with that context; empty for the first.
    """

    before: int = 0
    given: int = 0
    cursor: str = ""

    def __str__(self) -> str:
        return f"{self.before}:{self.given}:{self.cursor}"

    @classmethod
    def read(cls, token: str) -> "_Place":
        found = _TOKEN.fullmatch(token)
        if found is None:
            raise BadRequest("pageToken must be the nextPageToken of the page before")
        return cls(int(found[1]), int(found[2]), found[3])


async def list_tasks(call: Call, params: ListTasksRequest) -> ListTasksResponse:
    """Return a page of the caller's tasks: their messages and artifacts only if they are asked for.

    Raises BadRequest for an invalid token.
    """
    validate_history_length(params)
    status_only = not params.history_length and not params.include_artifacts
    size = params.page_size if params.HasField("page_size") else PAGE
    validate_page_size(size)
    place = _Place.read(params.page_token) if params.page_token else _Place()
    tasks: list[A2ATask] = []
    following, read, contexts = "", 0, 0
    async for task, cursor in _contexts(call, params.context_id, place.cursor):
        if len(tasks) == size or read > call.service.page_bytes or contexts == CONTEXTS:
            following = str(_Place(0, place.given + len(tasks), cursor))
            break
        contexts, read = contexts + 1, read + task.stored_bytes
        before = place.before if cursor == place.cursor else 0
        async with aclosing(call.newest_first(task, status_only=status_only)) as runs:
            async for progress in runs:
                number = progress.found.number
                if before and number >= before:
                    continue
                drawn = await call.draw(task, progress)
                if not _is_wanted(drawn, params):
                    continue
                if not params.include_artifacts:
                    drawn.ClearField("artifacts")
                if not params.history_length:
                    drawn.ClearField("history")
                tasks.append(apply_history_length(drawn, params))
                if len(tasks) == size and number > 1:
                    following = str(_Place(number, place.given + len(tasks), cursor))
                    break
        if following:
            break
    tasks.sort(key=lambda task: task.status.timestamp.ToNanoseconds(), reverse=True)
    return ListTasksResponse(
        tasks=tasks, next_page_token=following, page_size=size, total_size=place.given + len(tasks)
    )


async def _contexts(call: Call, context: str, cursor: str) -> AsyncGenerator[tuple[Task, str]]:
    """Yield the caller's tasks, each with the cursor of the page that begins with it."""
    store, instance = call.runtime.store, str(call.principal)
    if context:
        task = await store.load(TaskKey(instance, context))
        if task is not None:
            yield task, ""
        return
    while True:
        page = await store.list_tasks(instance, limit=CONTEXTS, cursor=cursor or None)
        for task, behind in zip(page.tasks, page.cursors, strict=True):
            yield task, cursor
            cursor = behind
        if page.cursor is None:
            return
        cursor = page.cursor


def _is_wanted(task: A2ATask, params: ListTasksRequest) -> bool:
    if params.status and task.status.state != params.status:
        return False
    if not params.HasField("status_timestamp_after"):
        return True
    return bool(task.status.timestamp.ToNanoseconds() >= params.status_timestamp_after.ToNanoseconds())
