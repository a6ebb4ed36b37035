"""Choosing messages. All filters keep the order."""

from collections.abc import Iterable

from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.kinds import COMPLETIONS, SUCCESSES


def filter_completions(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Those that end a worker's work on a bead: OFFERING_READY, DONE, FAILED and CHECKPOINT."""
    return [message for message in messages if message.type in COMPLETIONS]


def filter_successes(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Those that tell of success: OFFERING_READY and DONE."""
    return [message for message in messages if message.type in SUCCESSES]


def filter_pending(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    """Those that have to be acknowledged and haven't been, and aren't closed."""
    return [message for message in messages if message.is_pending]


def filter_by_bead_id(messages: Iterable[AgentMailMessage], bead_id: str) -> list[AgentMailMessage]:
    """Those that name this bead."""
    return [message for message in messages if message.bead_id == bead_id]
