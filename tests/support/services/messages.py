"""Messages that go from swarm to swarm."""

from typing import Any

from mail.core.protocol.address import create_agent_address, create_user_address
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.compose import compose_message
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage, MessageType
from mail.net.router import compose_wrapper
from mail.testing.clock import FakeClock


def letter(
    *recipients: str, kind: MessageType = "request", sender: str | None = "boss", **fields: Any
) -> MAILMessage:
    return compose_message(
        kind,
        task_id="t",
        sender=create_agent_address(sender) if sender else create_user_address("ann"),
        recipients=[create_agent_address(recipient) for recipient in recipients],
        subject="Hi",
        body="how are you?",
        clock=FakeClock(),
        **fields,
    )


def wrapped(**changes: Any) -> MAILInterswarmMessage:
    """A request to `boss@beta`, on its way from `alpha` for user `ann`."""
    made = compose_wrapper(letter("boss@beta"), "alpha", "beta", "user:ann@alpha", (), SYSTEM_CLOCK)
    return made.model_copy(update=changes)
