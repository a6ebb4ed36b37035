"""Mail to other swarms: how it is put on the wire, and what becomes of its task when it has been delivered, or can't be.

Pure functions; `mail.core.delivery` carries them out. A peer's mailbox is worked on whether the task runs or not: how
a task has ended is also told by mail.
"""

from collections.abc import Sequence
from typing import Any

from mail.core.address import (
    EVERYONE,
    MAILAddress,
    Principal,
    create_agent_address,
    format_agent_address,
    parse_agent_address,
)
from mail.core.agents import SwarmCore
from mail.core.change import InboxEntry, TaskChange, Turn
from mail.core.draft import Draft
from mail.core.events import EventKind
from mail.core.interswarm import MAILInterswarmMessage
from mail.core.message import MAILBroadcast, MAILPayload, MAILRequest, MAILResponse
from mail.core.peers import ALL_PEERS, peer_mailbox, peer_of
from mail.core.prompt import render_message
from mail.core.stall import prevent_stall
from mail.core.stamp import Stamp
from mail.core.tasks import Contact, OpenRequest, Task
from mail.errors import Subject

HOPS = "hops"
STEPS_LEFT = "steps_left"
"""In `routing_info`: how many swarms the task has come through, and how many steps its asker has left (SPEC, section 7)."""

RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 30, 60, 60, 60, 60)
"""How long mail rests after each time that its peer could not be reached; the time after the last, it fails."""


def wrap(task: Task, swarm: SwarmCore, entry: InboxEntry) -> MAILInterswarmMessage:
    """The message of a peer's mailbox, ready for the wire. The same entry always gets the same `message_id`."""
    message = entry.message
    target = peer_of(entry.mailbox)
    assert target
    return MAILInterswarmMessage(
        message_id=message.id,
        source_swarm=swarm.name,
        target_swarm=target,
        timestamp=message.timestamp,
        task_owner=task.owner,
        task_contributors=_contributors(task, target),
        msg_type=message.msg_type,
        payload=_addressed(task, swarm, target, message.message),
        auth_token="",
        metadata={},
    )


def goes_back(task: Task, swarm: str) -> bool:
    """Whether the peer has the task already from here, or this swarm from there: then mail goes to `/interswarm/back`.

    That others have brought it there as well is not enough: what it keeps for them is not for this swarm.
    """
    contact = task.contacts.get(swarm)
    return contact is not None and contact.knows


def is_moot(task: Task, turn: Turn) -> bool:
    """Whether a message only says how the task has ended, to a peer that has never heard of it."""
    peer = peer_of(turn.mailbox) or ""
    return not task.is_running and turn.entry.message.msg_type == "response" and not goes_back(task, peer)


def _contributors(task: Task, target: str) -> tuple[str, ...]:
    """The contributors; of those that the peer itself has added, the one first under which it keeps what is from here."""
    contact = task.contacts.get(target)
    runner = contact.runner if contact else ""
    theirs = [each for each in task.contributors if Principal.parse(each).swarm == target]
    if runner not in theirs or theirs[0] == runner:
        return task.contributors
    others = [each for each in task.contributors if each != runner]
    others.insert(others.index(theirs[0]), runner)
    return tuple(others)


def _addressed(task: Task, swarm: SwarmCore, target: str, payload: MAILPayload) -> MAILPayload:
    """The payload with the addresses that it has outside of this swarm."""
    changes: dict[str, Any] = {
        "sender": _at_home(payload.sender, swarm.name),
        "sender_swarm": swarm.name,
        "routing_info": {
            **(payload.routing_info or {}),
            HOPS: task.hops + 1,
            STEPS_LEFT: max(1, task.limits.steps - task.steps),
        },
    }
    if isinstance(payload, MAILRequest | MAILResponse):
        changes["recipient_swarm"] = target
    else:
        there = [each for each in payload.recipients if each.address == EVERYONE or _swarm(each) == target]
        changes |= {"recipients": tuple(there) or payload.recipients, "recipient_swarms": (target,)}
    return payload.model_copy(update=changes)


def _at_home(address: MAILAddress, swarm: str) -> MAILAddress:
    """An address with its swarm; a system's is the name of a swarm already."""
    if address.address_type == "system" or _swarm(address) is not None:
        return address
    return address.model_copy(update={"address": format_agent_address(address.address, swarm)})


def _swarm(address: MAILAddress) -> str | None:
    return parse_agent_address(address.address)[1]


# ---------------------------------------------------------------------------------- what becomes of the task


def delivered(task: Task, swarm: SwarmCore, turn: Turn, runner: str | None, stamp: Stamp) -> TaskChange:
    """The peer has taken the message; `runner` is the principal under which it keeps the task, where it said so."""
    draft, peer = _end_delivery(task, swarm, turn, stamp)
    way = "back" if goes_back(turn.task, peer) else "forward"
    draft.emit(
        EventKind.INTERSWARM_MESSAGE_SENT,
        f"sent interswarm message {way} to swarm {peer}:\n{render_message(turn.entry.message)}",
    )
    _reached(draft, peer)
    if not goes_back(task, peer):
        contributor = runner if runner is not None and _is_of(runner, peer) else f"swarm:{swarm.name}@{peer}"
        draft.updates["contributors"] = tuple(dict.fromkeys((*task.contributors, contributor)))
        contact = draft.contacts.get(peer) or Contact(agent=EVERYONE)
        draft.contacts[peer] = contact.model_copy(update={"knows": True, "runner": contributor})
    prevent_stall(draft)
    return draft.seal()


def undelivered(task: Task, swarm: SwarmCore, turn: Turn, reason: str, stamp: Stamp) -> TaskChange:
    """The message can't be delivered: whoever wrote it is told, and the task goes on."""
    draft, peer = _end_delivery(task, swarm, turn, stamp)
    draft.emit(EventKind.INTERSWARM_MESSAGE_ERROR, f"can't send to swarm {peer}: {reason}")
    _reached(draft, peer)
    _tell_sender(draft, turn.entry, peer, reason)
    prevent_stall(draft)
    return draft.seal()


def delayed(task: Task, swarm: SwarmCore, turn: Turn, reason: str, stamp: Stamp) -> TaskChange:
    """The peer can't be reached now: its mailbox rests, and the message stays; after the last try it fails."""
    peer = peer_of(turn.mailbox) or ""
    contact = task.contacts.get(peer, Contact(agent=EVERYONE))
    if contact.failures >= len(RETRY_SECONDS):
        return undelivered(task, swarm, turn, f"given up after {contact.failures + 1} tries: {reason}", stamp)
    seconds = RETRY_SECONDS[contact.failures]
    draft = Draft(task, swarm, stamp)
    draft.end_turn(turn, consume=False)
    draft.emit(
        EventKind.INTERSWARM_MESSAGE_ERROR,
        f"can't reach swarm {peer}, and will try again in {seconds} s: {reason}",
    )
    draft.contacts[peer] = contact.model_copy(
        update={"failures": contact.failures + 1, "retry_at": stamp.now().timestamp() + seconds}
    )
    return draft.seal()


def fan_out(task: Task, swarm: SwarmCore, turn: Turn, peers: Sequence[str], stamp: Stamp) -> TaskChange:
    """Put mail to all known swarms into the mailbox of each."""
    draft = Draft(task, swarm, stamp)
    draft.end_turn(turn, consume=True)
    others = [peer for peer in peers if peer != swarm.name]
    for peer in others:
        draft.meet(peer, EVERYONE)
    if others:
        draft.send(turn.entry.message, [peer_mailbox(peer) for peer in others])
    else:
        draft.emit(EventKind.INTERSWARM_MESSAGE_ERROR, "there is no other swarm to send to")
        _tell_sender(draft, turn.entry, "other swarms", "none is known")
    prevent_stall(draft)
    return draft.seal()


def _end_delivery(task: Task, swarm: SwarmCore, turn: Turn, stamp: Stamp) -> tuple[Draft, str]:
    draft = Draft(task, swarm, stamp)
    draft.end_turn(turn, consume=True)
    peer = peer_of(turn.mailbox)
    assert peer is not None
    return draft, peer or ALL_PEERS


def _reached(draft: Draft, peer: str) -> None:
    """What was counted for the message that is gone does not count for the next."""
    contact = draft.contacts.get(peer)
    if contact is not None and contact.failures:
        draft.contacts[peer] = contact.model_copy(update={"failures": 0, "retry_at": 0.0})


def _is_of(principal: str, swarm: str) -> bool:
    """Whether a peer's word for where it keeps the task can be believed: a principal of its own."""
    return principal.startswith("swarm:") and principal.endswith(f"@{swarm}") and principal.count("@") == 1


def _tell_sender(draft: Draft, entry: InboxEntry, peer: str, reason: str) -> None:
    """Give the message back to the agent that wrote it, or to the person; mail of the system itself has no reader."""
    payload = entry.message.message
    text = f"Your message {payload.subject!r} could not be delivered to swarm {peer}: {reason}"
    sender = payload.sender
    asked = _request_in(draft, payload, peer)
    if asked is not None:
        draft.settle_request(asked)
    if not draft.is_running:
        return
    if sender.address_type == "agent" and sender.address in draft.swarm.agents:
        draft.tell(sender.address, Subject.RUNTIME_ERROR, text)
    elif asked is not None:
        draft.answer_owner(create_agent_address(asked.recipient), text, failed=True)


def _request_in(draft: Draft, payload: MAILPayload, peer: str) -> OpenRequest | None:
    """The open request that a message has brought to a peer, if it has."""
    ids = {payload.request_id} if isinstance(payload, MAILRequest) else set()
    if isinstance(payload, MAILBroadcast):
        ids = {payload.broadcast_id}
    return next(
        (request for request in draft.requests if request.request_id in ids and request.asked == peer), None
    )
