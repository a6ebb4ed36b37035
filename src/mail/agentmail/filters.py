"""Choosing messages. All filters keep the order."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.kinds import COMPLETIONS, SUCCESSES
from mail.errors import BadRequest


def filter_completions(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Return those that end a worker's work on a bead: OFFERING_READY, DONE, FAILED and CHECKPOINT."""
    return [message for message in messages if message.type in COMPLETIONS]


def filter_successes(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Return those that tell of success: OFFERING_READY and DONE."""
    return [message for message in messages if message.type in SUCCESSES]


def filter_pending(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Return those that have to be acknowledged and haven't been, and aren't closed."""
    return [message for message in messages if message.is_pending]


def filter_by_bead_id(messages: Iterable[AgentMailMessage], bead_id: str) -> list[AgentMailMessage]:
    """Return those that name this bead."""
    return [message for message in messages if message.bead_id == bead_id]


ACK_WITHIN = timedelta(minutes=15)
"""How long an acknowledgement may take, unless the caller says otherwise."""


def deadline(message: AgentMailMessage, within: timedelta = ACK_WITHIN) -> datetime | None:
    """When a message must have been acknowledged; None if it need not be, or doesn't say when it was sent."""
    sent_at = message.sent_at
    return sent_at + within if message.ack_required and sent_at else None


def filter_overdue(
    messages: Iterable[AgentMailMessage], now: datetime, within: timedelta = ACK_WITHIN
) -> list[AgentMailMessage]:
    """Return the pending messages whose deadline has passed at `now`, in their order.

    Raises BadRequest where `now` has no time zone.
    """
    if now.utcoffset() is None:
        raise BadRequest("now must have a time zone")
    return [
        message
        for message in filter_pending(messages)
        if (due := deadline(message, within)) is not None and due < now
    ]
