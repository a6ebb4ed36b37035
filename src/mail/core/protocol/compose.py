"""Composing messages, the right payload for each type in its envelope, and reading them from mappings."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mail.core.protocol.address import MAILAddress
from mail.core.protocol.clock import Clock
from mail.core.protocol.error_text import explain
from mail.core.protocol.message import (
    PAYLOAD_TYPES,
    MAILMessage,
    MessageType,
)
from mail.errors import BadRequest


def compose_message(
    kind: MessageType,
    *,
    task_id: str,
    sender: MAILAddress,
    recipients: Sequence[MAILAddress],
    subject: str,
    body: str,
    clock: Clock,
    request_id: str | None = None,
    sender_swarm: str | None = None,
    routing_info: dict[str, Any] | None = None,
) -> MAILMessage:
    """Return a message that is sent now. Raises BadRequest for invalid values, such as a request to two recipients.

    `request_id` is the id by which answers refer to it; for a response, the id of the request that it answers.
    """
    if kind not in PAYLOAD_TYPES:
        raise BadRequest(f"unknown message type {kind!r}")
    shape, several = PAYLOAD_TYPES[kind], tuple(recipients)
    is_to_one = "recipient" in shape.model_fields
    if is_to_one and len(several) != 1:
        raise BadRequest(f"a {kind} goes to exactly one recipient, not to {len(several)}")
    given: dict[str, Any] = {
        shape.id_field: request_id or clock.new_id(),
        **({"recipient": several[0]} if is_to_one else {"recipients": several}),
        "task_id": task_id,
        "sender": sender,
        "subject": subject,
        "body": body,
        "sender_swarm": sender_swarm,
        "routing_info": routing_info,
    }
    try:
        payload = shape(**given)
    except ValidationError as error:
        raise BadRequest(explain(error)) from error
    return MAILMessage.trusted(
        message_id=clock.new_id(), timestamp=clock.now().isoformat(), msg_type=kind, message=payload
    )


def read_message(message: MAILMessage | Mapping[str, Any]) -> MAILMessage:
    """Return a message that may also be a mapping, in its wire format. Raises BadRequest for an invalid one."""
    try:
        return message if isinstance(message, MAILMessage) else MAILMessage.model_validate(message)
    except ValidationError as error:
        raise BadRequest(f"the message is not valid: {explain(error)}") from error
