"""Cursors of lists of tasks, which are numbered in the order in which they began. Pages list the newest first."""

from collections.abc import Callable

from mail.core.task.ports import TaskPage
from mail.core.task.task import Task
from mail.errors import BadRequest

LAST_NUMBER = 2**63 - 1


def make_page(
    tasks: list[tuple[int, Task]], numbers: list[int], limit: int, place: Callable[[int], str] = str
) -> TaskPage:
    """Return a page of `limit` tasks or, if they are large, of the first of them, given with their numbers.

    `numbers` are those of all tasks, and one more if others follow; some may have been deleted meanwhile. `place`
    makes a cursor of a number.
    """
    last = tasks[-1][0] if tasks else (numbers or [0])[:limit][-1]
    following = place(last) if numbers and last != numbers[-1] else None
    return TaskPage(
        [task for _, task in tasks], following, cursors=tuple(place(number) for number, _ in tasks)
    )


def read_cursor(cursor: str | None) -> int:
    """Return the number of the task that a page ends before. Raises BadRequest for a cursor that no page gave out."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise foreign_cursor(cursor)
    return int(cursor or LAST_NUMBER)


def foreign_cursor(cursor: str) -> BadRequest:
    """Return the error for a cursor that no page gave out."""
    return BadRequest(f"cursor {cursor!r} is not a cursor of this server; use the one in its last answer")
