"""The envelope of a message, before and after parsing; its subject; filters of messages, and deadlines.

A subject is `TYPE`, `[bead] TYPE` or `bead: TYPE`. Lenient parsing returns the first type in order of precedence that
occurs anywhere behind the bead, so that "ABANDONED" is `DONE`. Exact parsing requires that only the type follows the
bead. Either ignores the `Re:` of a reply when it looks for the bead, but an exact type has no `Re:` before it.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, computed_field

from mail.agentmail.messages import (
    ACK_REQUIRED,
    COMPLETIONS,
    SUCCESSES,
    TYPED,
    MessageType,
    Parsed,
    TypedMessage,
)
from mail.agentmail.notation import BEAD, TIMESTAMP
from mail.core.protocol.message import MAILMessage, Text
from mail.errors import BadRequest

_WORDS = [(kind, re.compile(kind.value, re.IGNORECASE | re.ASCII)) for kind in TYPED]
_REPLY = re.compile(r"(?:\s*+(?:re|fwd?):)*+\s*+", re.IGNORECASE)
_BEAD = re.compile(r"\s*+(?:\[([^\[\]\n]++)\]|([A-Za-z0-9_.]++-[A-Za-z0-9_.-]++):)\s*+")
_BY_NAME = {kind.value: kind for kind in TYPED}


def split_subject(subject: str) -> tuple[str, str]:
    """Return the bead at the start of a subject, perhaps empty, and the rest of the subject.

    Before a colon, a word without a hyphen is a bead only if nothing but a type follows: "Note: I am done" names none.
    """
    if (found := _BEAD.match(subject)) is not None:
        return (found[1] or found[2]).strip(), subject[found.end() :]
    bead, colon, rest = subject.rpartition(":")
    if colon and _type_named(rest) is not MessageType.UNKNOWN and _is_bead(bead):
        return bead.strip(), rest
    return "", subject


def bead_of(subject: str) -> str:
    """Return the bead at the start of a subject or of the subject that it replies to, or the empty string."""
    return split_subject(_without_reply(subject))[0]


def bead_replied_to(subject: str) -> str:
    """Return the bead of a subject that is a reply to a subject of an exact type, or the empty string."""
    original = _without_reply(subject)
    return split_subject(original)[0] if exact_type_of(original) is not MessageType.UNKNOWN else ""


def type_of(subject: str) -> MessageType:
    """Return the type that occurs in the subject, in any case, even inside a word; in the bead only if nowhere else."""
    _, rest = split_subject(_without_reply(subject))
    kind = _type_in(rest)
    return _type_in(subject) if kind is MessageType.UNKNOWN else kind


def exact_type_of(subject: str) -> MessageType:
    """Return the type if the subject contains nothing else but a bead before it; in any case."""
    return _type_named(split_subject(subject)[1])


def _type_in(text: str) -> MessageType:
    return next((kind for kind, word in _WORDS if word.search(text)), MessageType.UNKNOWN)


def _type_named(word: str) -> MessageType:
    return _BY_NAME.get(word.strip().upper(), MessageType.UNKNOWN) if word.isascii() else MessageType.UNKNOWN


def _without_reply(subject: str) -> str:
    found = _REPLY.match(subject)
    return subject[found.end() :] if found else subject


def _is_bead(text: str) -> bool:
    return BEAD.accepts(text.strip()) and text.strip().lower() not in ("re", "fw", "fwd")


def write_subject(kind: MessageType, bead_id: str) -> str:
    """Return the subject of a message of this type.

    It leaves out a bead whose id contains the name of another type, as some parsers would read that.
    """
    subject = f"[{bead_id}] {kind}" if bead_id else kind.value
    return subject if _type_in(subject) is kind else kind.value


def possible_subjects(kind: MessageType, bead_id: str) -> tuple[str, ...]:
    """Return all subjects of a message of this type that may be about the bead, the shortest first."""
    return (kind.value, f"[{bead_id}] {kind}", f"{bead_id}: {kind}") if bead_id else (kind.value,)


def _is_timestamp(text: str) -> str:
    if not TIMESTAMP.fits(text):
        raise ValueError(f"must be {TIMESTAMP.expected}")
    return text


class Envelope(BaseModel):
    """A message as it is sent. Missing fields are empty, and unknown ones ignored.

    `timestamp` is RFC 3339; `reply_to` is the id of the answered message. The default of `ack_required` depends on the
    message's type.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

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

    A `closed` message expects no answer any more, because its task or the work on its bead has ended.
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
        return self if self.acknowledged else self._with(acknowledged=True, acknowledged_by=by)

    def place(self, thread_id: str, *, closed: bool) -> "AgentMailMessage":
        """Return this message as part of a thread, and perhaps closed."""
        return self._with(thread_id=thread_id, closed=closed)

    def answer(self, message_id: str) -> "AgentMailMessage":
        """Return this message as the answer to another one."""
        return self._with(reply_to=message_id)

    def _with(self, **changes: str | bool) -> "AgentMailMessage":
        return AgentMailMessage(**{**dict(self), **changes})

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
