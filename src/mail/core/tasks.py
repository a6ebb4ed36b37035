"""Tasks: a documented import path for `mail.core.task`; `MAILTask` is a task as `GET /task` returns it."""

from typing import TYPE_CHECKING

from mail.core.task.task import *  # noqa: F403
from mail.core.task.turn_state import *  # noqa: F403
from mail.startup import lazy_exports

if TYPE_CHECKING:
    from mail.http.task_records import TaskRecord

    MAILTask = TaskRecord

__getattr__, __dir__ = lazy_exports(__name__, {"MAILTask": "mail.http.task_records:TaskRecord"})
