"""Cursors of lists of tasks, which are numbered in the order in which they began. Pages list the newest first."""

from mail.core.task.ports import TaskPage
from mail.core.task.task import Task
from mail.errors import BadRequest

LAST_NUMBER = 2**63 - 1


def make_page(tasks: list[Task], cursors: list[str], limit: int) -> TaskPage:
    """Return a page of `limit` tasks; `cursors` are those behind each task, and one more if there are more tasks."""
    following = cursors[limit - 1] if len(cursors) > limit else None
    return TaskPage(tasks, following, cursors=tuple(cursors[: len(tasks)]))


def read_cursor(cursor: str | None) -> int:
    """Return the number of the task that a page ends before. Raises BadRequest for a cursor that no page gave out."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise foreign_cursor(cursor)
    return int(cursor or LAST_NUMBER)


def foreign_cursor(cursor: str) -> BadRequest:
    """Return the error for a cursor that no page gave out."""
    return BadRequest(f"cursor {cursor!r} is not a cursor of this server; use the one in its last answer")
