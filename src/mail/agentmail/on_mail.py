"""MAIL messages as Agent Mail."""

from mail.agentmail.envelope import Envelope
from mail.core.protocol.message import MAILMessage


def envelope_of(message: MAILMessage) -> Envelope:
    """The envelope of a MAIL message. Its thread is `routing_info["thread_id"]`, if that is a text."""
    letter = message.message
    thread_id = (letter.routing_info or {}).get("thread_id")
    return Envelope(
        id=message.id,
        thread_id=thread_id if isinstance(thread_id, str) else "",
        sender=letter.sender.address,
        recipient=", ".join(recipient.address for recipient in letter.recipients),
        subject=letter.subject,
        body=letter.body,
        timestamp=message.timestamp,
    )
