"""Messages on their way out of a swarm, one for each swarm that they are for."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from mail.core.protocol.address import (
    MAILAddress,
    create_agent_address,
    create_system_address,
    format_agent_address,
    parse_agent_address,
)
from mail.core.protocol.clock import Clock
from mail.core.protocol.compose import compose_message
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage
from mail.errors import BadRequest, Subject


def destinations(message: MAILMessage, local: str) -> dict[str | None, list[MAILAddress]]:
    """The recipients by their swarms, None for those here."""
    found: dict[str | None, list[MAILAddress]] = {}
    for recipient in message.message.recipients:
        swarm = None
        if recipient.address_type == "agent":
            swarm = parse_agent_address(recipient.address)[1]
        found.setdefault(None if swarm == local else swarm, []).append(recipient)
    return found


def for_swarm(
    message: MAILMessage, recipients: Sequence[MAILAddress], swarm: str | None, local: str
) -> MAILMessage:
    """The message for some of its recipients: all those in a swarm, or with None those here."""
    fields: dict[str, Any] = {}
    if swarm is None:
        recipients = [_without_swarm(recipient) for recipient in recipients]
    else:
        fields["sender"] = _with_swarm(message.sender, local)
        fields["sender_swarm"] = local
    if message.msg_type in ("request", "response"):
        fields["recipient"] = recipients[0]
        fields["recipient_swarm"] = swarm or local
    else:
        fields["recipients"] = tuple(recipients)
        fields["recipient_swarms"] = (swarm or local,)
    return message.model_copy(update={"message": message.message.model_copy(update=fields)})


def wrap(
    message: MAILMessage, local: str, swarm: str, owner: str, contributors: Sequence[str], clock: Clock
) -> MAILInterswarmMessage:
    """The message in the wrapper in which it travels. Raises BadRequest where the principals are none."""
    try:
        return MAILInterswarmMessage(
            message_id=message.id,
            source_swarm=local,
            target_swarm=swarm,
            timestamp=clock.now().isoformat(),
            payload=message.message,
            msg_type=message.msg_type,
            task_owner=owner,
            task_contributors=tuple(dict.fromkeys((owner, *contributors))),
            auth_token="",
            metadata={},
        )
    except (ValidationError, TypeError) as error:
        raise BadRequest(f"the message can't be sent to swarm {swarm!r}: {error}") from error


def returned(message: MAILMessage, reason: str, local: str, clock: Clock) -> MAILMessage:
    """What the system of a swarm tells the sender of a message that could not be delivered."""
    sender = message.sender
    if sender.address_type == "agent":
        sender = _without_swarm(sender)
    return compose_message(
        "response",
        task_id=message.task_id,
        sender=create_system_address(local),
        recipients=[sender],
        subject=Subject.RUNTIME_ERROR,
        body=f"your message {message.message.subject!r} could not be delivered: {reason}",
        clock=clock,
        request_id=message.message.get("request_id"),
    )


def _with_swarm(address: MAILAddress, swarm: str) -> MAILAddress:
    agent, given = parse_agent_address(address.address)
    if address.address_type != "agent" or given is not None:
        return address
    return create_agent_address(format_agent_address(agent, swarm))


def _without_swarm(address: MAILAddress) -> MAILAddress:
    if address.address_type != "agent":
        return address
    return create_agent_address(parse_agent_address(address.address)[0])
