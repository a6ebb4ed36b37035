"""Which messages wait for an acknowledgement, and for how long they may. Nothing here reads a clock."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.filters import filter_pending
from mail.errors import BadRequest

ACK_WITHIN = timedelta(minutes=15)
"""How long an acknowledgement may take, unless the caller says otherwise."""


def deadline(message: AgentMailMessage, within: timedelta = ACK_WITHIN) -> datetime | None:
    """When a message must have been acknowledged; None if it need not be, or doesn't say when it was sent."""
    sent_at = message.sent_at
    return sent_at + within if message.ack_required and sent_at else None


def filter_overdue(
    messages: Iterable[AgentMailMessage], now: datetime, within: timedelta = ACK_WITHIN
) -> list[AgentMailMessage]:
    """The pending messages whose deadline has passed at `now`, in their order.

    Raises BadRequest where `now` has no time zone.
    """
    if now.utcoffset() is None:
        raise BadRequest("now must have a time zone")
    return [
        message
        for message in filter_pending(messages)
        if (due := deadline(message, within)) is not None and due < now
    ]
