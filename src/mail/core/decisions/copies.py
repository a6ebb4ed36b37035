"""Copies of an agent: which one works on a request that had to wait. A pure function.

    request ──► a copy that is free: its mailbox `agent~1` …, with a history of its own
            └─► else the mailbox of the agent, first come, first served ──► the next copy that is free

The rest is decided where mail is sent (`Draft.mailboxes_of`): a copy is at work as long as it has mail, an open request
that it got or sent, or a call whose result is to come. What it writes has the name of its agent, and an answer finds
the copy by its request.
"""

from dataclasses import replace

from mail.core.decisions.cancel import is_discarded
from mail.core.task.change import TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import Extra
from mail.core.task.interswarm import UnreadQuestion


def hand_over(draft: Draft, turn: Turn) -> TaskChange | None:
    """Give a message that waits for a copy of its agent to one that is free; None if the task knows that none is.

    In a task that was cancelled meanwhile, the message stays until it is resumed.
    """
    task, agent, entry = draft.before, turn.mailbox, turn.entry
    copy = draft.free_copy(agent)
    if copy is None or is_discarded(task, turn):
        draft.end_turn(turn, consume=False)
        return None if agent in task.queued else draft.seal()
    request_id, question = entry.message.message.own_id, UnreadQuestion(mailbox=agent, seq=entry.seq)
    draft.requests = tuple(
        replace(each, recipient=copy) if (each.request_id, each.recipient) == (request_id, agent) else each
        for each in task.requests
    )
    draft.unread_questions = tuple(
        replace(each, mailbox=copy) if each == question else each for each in task.unread_questions
    )
    draft.end_turn(turn, consume=True)
    draft.emit(
        EventKind.COPY_ASSIGNED,
        f"{copy} begins with a request that has waited: {entry.message.message.subject}",
        Extra(agent=copy),
    )
    draft.hand_over(entry, copy)
    return draft.seal()
