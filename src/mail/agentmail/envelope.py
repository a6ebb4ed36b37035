"""The envelope of a message: as it comes, and with what has been read of it."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, computed_field

from mail.agentmail.kinds import ACK_REQUIRED, MessageType
from mail.agentmail.messages import Parsed, TypedMessage
from mail.agentmail.notation import TIMESTAMP
from mail.core.protocol.message import MAILMessage, Text


def _is_timestamp(text: str) -> str:
    if not TIMESTAMP.fits(text):
        raise ValueError(f"must be {TIMESTAMP.expected}")
    return text


class Envelope(BaseModel):
    """A message as it is sent; what isn't known is empty, and fields of other programs are ignored.

    `timestamp` is RFC 3339; `reply_to` is the id of the message that this one answers. Without `ack_required` the type
    of the message decides.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Text = ""
    thread_id: Text = ""
    sender: Text = ""
    recipient: Text = ""
    subject: Text = ""
    body: Text = ""
    timestamp: Annotated[Text, AfterValidator(_is_timestamp)] = ""
    reply_to: Text = ""
    ack_required: bool | None = None
    acknowledged: bool = False
    acknowledged_by: Text = ""

    @property
    def sent_at(self) -> datetime | None:
        """The timestamp, if there is one."""
        return datetime.fromisoformat(self.timestamp) if self.timestamp else None


class AgentMailMessage(Envelope):
    """A message that has been read: `parsed` is what its body says.

    One that is `closed` waits for nothing any more, though nobody has answered: what it was a part of has ended.
    """

    ack_required: bool
    closed: bool = False
    parsed: Parsed

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> MessageType:
        """The type of the message."""
        return self.parsed.type

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bead_id(self) -> str:
        """The bead that the message names, or the empty text."""
        return self.parsed.bead_id

    @property
    def is_pending(self) -> bool:
        """Whether somebody still has to acknowledge it."""
        return self.ack_required and not (self.acknowledged or self.closed)

    def acknowledge(self, by: str) -> Self:
        """This message, acknowledged; who did so first stays on record."""
        if self.acknowledged:
            return self
        return self.model_copy(update={"acknowledged": True, "acknowledged_by": by})

    @property
    def thread(self) -> str:
        """The thread it belongs to: the one it names, else that of its bead."""
        return self.thread_id or self.bead_id


def read_envelope(envelope: Envelope, parsed: TypedMessage) -> AgentMailMessage:
    """Return the envelope with what has been read of it."""
    fields = {name: getattr(envelope, name) for name in Envelope.model_fields}
    if envelope.ack_required is None:
        fields["ack_required"] = parsed.type in ACK_REQUIRED
    return AgentMailMessage(**fields, parsed=parsed)


def envelope_of(message: MAILMessage) -> Envelope:
    """Return the envelope of a MAIL message. Its thread is `routing_info["thread_id"]`, if that is a text."""
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
