"""The envelope of a message, before and after parsing."""

from datetime import datetime
from typing import Annotated

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
    """A message as it is sent. Missing fields are empty, and unknown ones ignored.

    `timestamp` is RFC 3339; `reply_to` is the id of the answered message. The default of `ack_required` depends on the
    message's type.
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
    """A parsed message: `parsed` holds the fields of its body.

    A `closed` message expects no answer any more, because its task has ended.
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
        """The bead that the message names, if any."""
        return self.parsed.bead_id

    @property
    def is_pending(self) -> bool:
        """Whether it still has to be acknowledged."""
        return self.ack_required and not (self.acknowledged or self.closed)

    def acknowledge(self, by: str) -> "AgentMailMessage":
        """Return this message as acknowledged; the first acknowledgement is kept."""
        return self if self.acknowledged else self._amend(acknowledged_by=by)

    def place(self, thread_id: str, *, closed: bool) -> "AgentMailMessage":
        """Return this message as part of a thread, and perhaps closed."""
        return self._amend(thread_id=thread_id, closed=closed)

    def answer(self, message_id: str) -> "AgentMailMessage":
        """Return this message as the answer to another one."""
        return self._amend(reply_to=message_id)

    def _amend(
        self,
        *,
        thread_id: str | None = None,
        reply_to: str | None = None,
        closed: bool | None = None,
        acknowledged_by: str | None = None,
    ) -> "AgentMailMessage":
        """Return a copy with the fields that aren't None."""
        return AgentMailMessage(
            id=self.id,
            thread_id=self.thread_id if thread_id is None else thread_id,
            sender=self.sender,
            recipient=self.recipient,
            subject=self.subject,
            body=self.body,
            timestamp=self.timestamp,
            reply_to=self.reply_to if reply_to is None else reply_to,
            ack_required=self.ack_required,
            acknowledged=self.acknowledged or acknowledged_by is not None,
            acknowledged_by=self.acknowledged_by if acknowledged_by is None else acknowledged_by,
            closed=self.closed if closed is None else closed,
            parsed=self.parsed,
        )

    @property
    def thread(self) -> str:
        """Its thread: the one that it names, else that of its bead."""
        return self.thread_id or self.bead_id


def read_envelope(envelope: Envelope, parsed: TypedMessage) -> AgentMailMessage:
    """Return the envelope with its parsed body."""
    fields = {name: getattr(envelope, name) for name in Envelope.model_fields}
    if envelope.ack_required is None:
        fields["ack_required"] = parsed.type in ACK_REQUIRED
    return AgentMailMessage(**fields, parsed=parsed)


def envelope_of(message: MAILMessage) -> Envelope:
    """Return the envelope of a MAIL message. Its thread is `routing_info["thread_id"]`, if that is a string."""
    payload = message.message
    thread_id = (payload.routing_info or {}).get("thread_id")
    return Envelope(
        id=message.id,
        thread_id=thread_id if isinstance(thread_id, str) else "",
        sender=payload.sender.address,
        recipient=", ".join(recipient.address for recipient in payload.recipients),
        subject=payload.subject,
        body=payload.body,
        timestamp=message.timestamp,
    )
