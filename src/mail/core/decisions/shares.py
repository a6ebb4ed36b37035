"""Links with which a task's owner lets others read it: given, revoked, and what they show. Pure functions.

A link shows the conversation and the spans of one task, as they are when it is opened, and changes nothing.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mail.core.decisions.fork import FORK_OF
from mail.core.decisions.items import (
    Action,
    Answer,
    Failed,
    Fault,
    Forked,
    Item,
    Mail,
    Message,
    Note,
    Opened,
    Question,
)
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import format_time
from mail.core.protocol.question_text import QUESTIONS
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.task import Share, Task
from mail.errors import BadRequest, ShareNotFound

MOST_SHARES = 10
"""Links that a task has at the same time."""


def valid_shares(task: Task, now: float) -> tuple[Share, ...]:
    """Return the links of a task that can be used."""
    return tuple(share for share in task.shares if share.expires > now)


def share_with(task: Task, digest: str, now: float) -> Share | None:
    """Return the link whose secret has this digest, if it can be used."""
    return next((share for share in valid_shares(task, now) if share.digest == digest), None)


def share(draft: Draft, given: Share, by: Principal) -> TaskChange:
    """Add a link to a task. Raises BadRequest if it has too many."""
    draft.shares = (*valid_shares(draft.before, draft.time_in(0.0)), given)
    if len(draft.shares) > MOST_SHARES:
        raise BadRequest(f"a task has at most {MOST_SHARES} links; revoke one first")
    until = format_time(given.expires)
    draft.emit(EventKind.TASK_SHARED, f"{by} gave link {given.number} to read the task until {until}")
    return draft.seal()


def revoke(draft: Draft, number: str, by: Principal) -> TaskChange:
    """Remove a link from a task. Raises ShareNotFound."""
    valid = valid_shares(draft.before, draft.time_in(0.0))
    draft.shares = tuple(share for share in valid if share.number != number)
    if len(draft.shares) == len(valid):
        raise ShareNotFound
    draft.emit(EventKind.TASK_SHARED, f"{by} revoked link {number} to read the task")
    return draft.seal()


def shown_title(task: Task) -> str | None:
    """Return the title of a task without what says that it is a fork."""
    return task.title.removeprefix(FORK_OF) if task.title and task.forked_from else task.title


def shown(items: Iterable[Item]) -> list[Item]:
    """Return what a link shows of items: what people and agents wrote, and what they did and when.

    It leaves out what models were given and thought, what actions got and returned, what reviewers decide on, errors,
    other tasks, and who else has read this one.
    """
    return [replace(item, **_hidden(item)) for item in items if not isinstance(item, Note | Opened | Forked)]


def _hidden(item: Item) -> dict[str, Any]:
    """Return the fields of an item that a link shows otherwise."""
    match item:
        case Message():
            return {"files": _files(item.files)}
        case Mail() | Answer():
            return {"files": _files(item.files), "reasoning": "", "said": ""}
        case Action():
            return {"arguments": {}, "result": "", "reasoning": "", "said": ""}
        case Fault():
            return {"text": f"{item.agent or 'The system'} met an error"}
        case Failed():
            return {"text": "The person who gave you the link can see why."}
        case Question():
            wants = "wants to call" if item.needs_approval else "asks with"
            reply = item.reply and replace(item.reply, arguments=None, by="", reason="")
            is_in_words = item.asked is not None and item.asked.argument in ("", *QUESTIONS)
            if reply is not None and not is_in_words:
                reply = replace(reply, text=None)
            return {
                "asked": item.asked if is_in_words else None,
                "arguments": {},
                "words": f"{item.agent} {wants} {item.name}",
                "reviewers": (),
                "reasoning": "",
                "said": "",
                "reply": reply,
                "result": None,
            }
    return {}


def _files(files: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return files without the ids by which they are fetched."""
    return tuple({name: each[name] for name in ("name", "type", "bytes")} for each in files)
