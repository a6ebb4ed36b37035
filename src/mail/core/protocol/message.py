"""The MAIL message: an envelope with one of four payloads (SPEC, section 3)."""

import re
from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
)

from mail.core.protocol.address import EVERYONE, MAILAddress
from mail.core.protocol.values import Value
from mail.errors import Subject

DEFAULT_SUBJECT = "New Message"
"""The subject of a caller's message that has been given none."""

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def _is_rfc_3339(text: str) -> str:
    if _RFC_3339.fullmatch(text) is None:
        raise ValueError("must be an RFC 3339 date and time with an offset, such as 2026-01-31T08:00:00Z")
    if not 1 < datetime.fromisoformat(text).year < 9999:
        raise ValueError("must be in the years 0002 to 9998, so that it can be converted to UTC")
    return text


Timestamp = Annotated[str, AfterValidator(_is_rfc_3339), Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 text, kept unchanged, so that a message survives a round trip exactly."""

TaskId = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f#]+$")]
"""Chosen by the client or the server; `#` is reserved for storage keys."""

MessageId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Uuid = Annotated[
    str,
    StringConstraints(
        pattern=r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
    ),
    Field(json_schema_extra={"format": "uuid"}),
]

Text = Annotated[str, StringConstraints(min_length=0), WithJsonSchema({"type": "string"})]
"""Any text that UTF-8 can encode; pydantic checks that only for constrained text, hence the constraint."""


def _check_encodable(subject: str, body: str) -> None:
    """Raise UnicodeEncodeError for text that UTF-8 can't encode."""
    subject.encode()
    body.encode()


MessageType = Literal["request", "response", "broadcast", "interrupt", "broadcast_complete"]


def never_null(schema: dict[str, Any]) -> None:
    """Document an optional member: it is absent without a value, although null is read alike (SPEC, MSG-7)."""
    schema |= next(each for each in schema.pop("anyOf") if each != {"type": "null"})
    del schema["default"]


OPTIONAL: Any = Field(default=None, json_schema_extra=never_null)


class _Payload(Value):
    """Base class of the payloads."""

    task_id: TaskId
    sender: MAILAddress
    subject: Text
    body: Text
    sender_swarm: Text | None = OPTIONAL
    routing_info: dict[str, Any] | None = OPTIONAL

    id_field: ClassVar[str]

    @property
    def own_id(self) -> str:
        """The id by which an answer refers to the message."""
        own_id: str = getattr(self, self.id_field)
        return own_id

    def as_json(self) -> dict[str, Any]:
        """Return the payload as JSON for other programs: without members that have no value (SPEC, MSG-7)."""
        return {"routing_info": {}, **self.model_dump(mode="json", exclude_none=True)}

    def copied_to(self, task_id: str) -> Self:
        """Return the payload as one of another task."""
        return type(self)(**{**self, "task_id": task_id})

    def without_texts(self) -> Self:
        """Return the payload without what may be long."""
        return type(self)(**{**self, "subject": "", "body": "", "routing_info": None})

    def routed(self, routing_info: dict[str, Any]) -> Self:
        """Return the payload with its `routing_info`. Raises ValidationError."""
        return type(self)(**{**self, "routing_info": routing_info})


class _OneRecipient(_Payload):
    request_id: MessageId
    recipient: MAILAddress
    recipient_swarm: Text | None = OPTIONAL
    id_field = "request_id"

    @classmethod
    def trusted(
        cls,
        *,
        task_id: str,
        sender: MAILAddress,
        subject: str,
        body: str,
        request_id: str,
        recipient: MAILAddress,
    ) -> Self:
        """Return a payload of our own making; only its texts are checked. Raises UnicodeEncodeError."""
        if not (subject.isascii() and body.isascii()):  # spares the usual message a call
            _check_encodable(subject, body)
        return cls._trusted(
            {
                "task_id": task_id,
                "sender": sender,
                "subject": subject,
                "body": body,
                "sender_swarm": None,
                "routing_info": None,
                "request_id": request_id,
                "recipient": recipient,
                "recipient_swarm": None,
            }
        )

    @property
    def recipients(self) -> tuple[MAILAddress, ...]:
        """The recipient, as in payloads with several."""
        return (self.recipient,)

    def sent_to(
        self, swarm: str, *, sender: MAILAddress, sender_swarm: str, routing_info: dict[str, Any]
    ) -> Self:
        """Return the payload as it travels to another swarm."""
        route = {"sender": sender, "sender_swarm": sender_swarm, "routing_info": routing_info}
        return type(self)(**{**self, **route, "recipient_swarm": swarm})


class _ManyRecipients(_Payload):
    recipients: tuple[MAILAddress, ...] = Field(min_length=1)
    recipient_swarms: tuple[Text, ...] | None = OPTIONAL

    def sent_to(
        self, swarm: str, *, sender: MAILAddress, sender_swarm: str, routing_info: dict[str, Any]
    ) -> Self:
        """Return the payload as it travels to another swarm, for the recipients there."""
        there = [each for each in self.recipients if each.address == EVERYONE or each.swarm == swarm]
        route = {"sender": sender, "sender_swarm": sender_swarm, "routing_info": routing_info}
        addressed = {"recipients": tuple(there) or self.recipients, "recipient_swarms": (swarm,)}
        return type(self)(**{**self, **route, **addressed})


class MAILRequest(_OneRecipient):
    """One agent asks another (or a user asks an agent) to do something."""


class MAILResponse(_OneRecipient):
    """The answer to a request; `request_id` is that of the request."""


class MAILBroadcast(_ManyRecipients):
    """A notice to several agents."""

    broadcast_id: MessageId
    id_field = "broadcast_id"

    @classmethod
    def trusted(
        cls,
        *,
        task_id: str,
        sender: MAILAddress,
        subject: str,
        body: str,
        recipients: tuple[MAILAddress, ...],
        broadcast_id: str,
    ) -> Self:
        """Return a payload as `MAILRequest.trusted` does."""
        if not (subject.isascii() and body.isascii()):  # spares the usual message a call
            _check_encodable(subject, body)
        return cls._trusted(
            {
                "task_id": task_id,
                "sender": sender,
                "subject": subject,
                "body": body,
                "sender_swarm": None,
                "routing_info": None,
                "recipients": recipients,
                "recipient_swarms": None,
                "broadcast_id": broadcast_id,
            }
        )


class MAILInterrupt(_ManyRecipients):
    """An urgent instruction; it overtakes broadcasts, requests and responses of agents."""

    interrupt_id: MessageId
    id_field = "interrupt_id"


MAILPayload = MAILRequest | MAILResponse | MAILBroadcast | MAILInterrupt

PAYLOAD_TYPES: dict[str, type[MAILPayload]] = {
    "request": MAILRequest,
    "response": MAILResponse,
    "broadcast": MAILBroadcast,
    "interrupt": MAILInterrupt,
    "broadcast_complete": MAILBroadcast,
}


def _shape_by_type(value: Any, _handler: Any, info: ValidationInfo) -> MAILPayload:
    kind = PAYLOAD_TYPES.get(info.data.get("msg_type", ""))
    if kind is None:
        raise ValueError("can't be read without a valid msg_type")
    if type(value) is kind:
        return value
    if isinstance(value, Value):
        raise ValueError(f"a message of type {info.data['msg_type']} carries a {kind.__name__}")
    return kind.model_validate(value)


ShapedPayload = Annotated[MAILPayload, WrapValidator(_shape_by_type)]
"""A payload whose shape depends on the `msg_type` declared before it in the same model."""


def bind_shape(field: str) -> Callable[[dict[str, Any]], None]:
    """Return a JSON Schema extension for what `_shape_by_type` checks: `msg_type` determines the shape of `field`."""

    def extend(schema: dict[str, Any]) -> None:
        shapes = dict(zip(get_args(MAILPayload), schema["properties"][field].pop("anyOf"), strict=True))
        schema["properties"][field]["type"] = "object"
        schema["oneOf"] = [
            {"properties": {"msg_type": {"const": kind}, field: shapes[payload]}}
            for kind, payload in PAYLOAD_TYPES.items()
        ]

    return extend


class MAILMessage(Value):
    """The envelope. `msg_type` decides the shape of `message`."""

    model_config = ConfigDict(json_schema_extra=bind_shape("message"))

    id: Uuid
    timestamp: Timestamp
    msg_type: MessageType
    message: ShapedPayload

    @classmethod
    def trusted(cls, *, message_id: str, timestamp: str, msg_type: MessageType, message: MAILPayload) -> Self:
        """Return a message of our own making, without a check."""
        return cls._trusted(
            {"id": message_id, "timestamp": timestamp, "msg_type": msg_type, "message": message}
        )

    @property
    def is_completion(self) -> bool:
        """Whether an agent has completed the task with it, so that its body is the answer."""
        return (
            self.msg_type == "broadcast_complete"
            and self.sender.address_type == "agent"
            and self.message.subject == Subject.TASK_COMPLETE
        )

    @property
    def sender(self) -> MAILAddress:
        return self.message.sender

    @property
    def task_id(self) -> str:
        """The task it belongs to."""
        return self.message.task_id

    @property
    def stays(self) -> bool:
        """Whether it stays in the context of its reader in this run: a person's does, and one marked with `pin`."""
        payload = self.message
        return payload.sender.is_person or bool(
            payload.routing_info and payload.routing_info.get("pin") is True
        )

    def as_json(self) -> dict[str, Any]:
        """Return the message as JSON for other programs (SPEC, MSG-7)."""
        return {
            "id": self.id,
            "timestamp": self.timestamp,
            "msg_type": self.msg_type,
            "message": self.message.as_json(),
        }

    def copied_to(self, task_id: str, *, new_id: str) -> "MAILMessage":
        """Return the message as one of another task; it gets its own id, as ids are unique across tasks."""
        return MAILMessage(
            id=new_id,
            timestamp=self.timestamp,
            msg_type=self.msg_type,
            message=self.message.copied_to(task_id),
        )


class Tier(IntEnum):
    """The priority of a message: lower first, first in first out inside a tier (SPEC, section 4)."""

    SYSTEM = 1
    PERSON = 2
    INTERRUPT = 3
    BROADCAST = 4
    AGENT = 5


_TIER_BY_SENDER = {"system": Tier.SYSTEM, "admin": Tier.PERSON, "user": Tier.PERSON}
_TIER_BY_TYPE = {
    "interrupt": Tier.INTERRUPT,
    "broadcast_complete": Tier.INTERRUPT,
    "broadcast": Tier.BROADCAST,
    "request": Tier.AGENT,
    "response": Tier.AGENT,
}


def tier_of(message: MAILMessage) -> Tier:
    """Return the priority of a message: by its sender, and among agents by its type."""
    return _TIER_BY_SENDER.get(message.message.sender.address_type) or _TIER_BY_TYPE[message.msg_type]
