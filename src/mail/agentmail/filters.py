"""Filters of messages, which keep the order, and deadlines of acknowledgements. Nothing here reads a clock."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.kinds import COMPLETIONS, SUCCESSES
from mail.errors import BadRequest


def filter_completions(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Return the messages that end a worker's work on a bead: OFFERING_READY, DONE, FAILED and CHECKPOINT."""
    return [message for message in messages if message.type in COMPLETIONS]


def filter_successes(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Return the messages of success: OFFERING_READY and DONE."""
    return [message for message in messages if message.type in SUCCESSES]


def filter_pending(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Return the messages that still have to be acknowledged and aren't closed."""
    return [message for message in messages if message.is_pending]


def filter_by_bead_id(messages: Iterable[AgentMailMessage], bead_id: str) -> list[AgentMailMessage]:
    """Return the messages that name this bead."""
    return [message for message in messages if message.bead_id == bead_id]


ACK_WITHIN = timedelta(minutes=15)
"""The default time for an acknowledgement."""


def deadline(message: AgentMailMessage, within: timedelta = ACK_WITHIN) -> datetime | None:
    """Return the deadline for acknowledging a message; None if it needs no acknowledgement or has no timestamp."""
    sent_at = message.sent_at
    return sent_at + within if message.ack_required and sent_at else None


def filter_overdue(
    messages: Iterable[AgentMailMessage], now: datetime, within: timedelta = ACK_WITHIN
) -> list[AgentMailMessage]:
    """Return the pending messages whose deadline has passed at `now`, in their order.

    Raises BadRequest if `now` has no time zone.
    """
    if now.utcoffset() is None:
        raise BadRequest("now must have a time zone")
    return [
        message
        for message in filter_pending(messages)
        if (limit := deadline(message, within)) is not None and limit < now
    ]
