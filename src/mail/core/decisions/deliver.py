"""Mail to other swarms: how it is put on the wire, and what becomes of its task when it has been delivered, or can't be.

Pure functions; `mail.core.engine.delivery` carries them out. A peer's mailbox is worked on whether the task runs or not: how
a task has ended is also told by mail.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mail.core.decisions.turn import prevent_stall
from mail.core.protocol.address import (
    EVERYONE,
    MAX_PRINCIPAL,
    MAILAddress,
    Principal,
    create_agent_address,
    format_agent_address,
)
from mail.core.protocol.clock import Clock
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import (
    MAILPayload,
)
from mail.core.protocol.traceparent import TRACEPARENT
from mail.core.protocol.xml import render_message
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.interswarm import Peer
from mail.core.task.mailboxes import ALL_PEERS, peer_mailbox, peer_of
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.errors import Subject

HOPS = "hops"
STEPS_LEFT = "steps_left"
BUDGET_LEFT = "budget_left"
"""In `routing_info`: how many swarms the task has come through, and what its asker has left (SPEC, section 7)."""

RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 30, 60, 60, 60, 60)
"""How long mail rests after each time that its peer could not be reached; the time after the last, it fails."""

ANSWER_RETRY_SECONDS = (*RETRY_SECONDS, *(300,) * 11)
"""The same for responses: somebody waits for them as long as a request waits, and nobody here would miss them."""


def wrap(
    task: Task, swarm: SwarmCore, entry: InboxEntry, now: float, traceparent: str = ""
) -> MAILInterswarmMessage:
    """The message of a peer's mailbox, ready for the wire. The same entry always gets the same `message_id`.

    `now` is in seconds since the epoch; `traceparent` is that of its delivery, where it is traced.
    """
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
        payload=_addressed(task, swarm, target, message.message, now, traceparent),
        auth_token="",
        metadata={},
    )


def goes_back(task: Task, swarm: str) -> bool:
    """Whether the peer has the task already from here, or this swarm from there: then mail goes to `/interswarm/back`.

    That others have brought it there as well is not enough: what it keeps for them is not for this swarm.
    """
    peer = task.peers.get(swarm)
    return peer is not None and peer.has_task


def is_moot(task: Task, turn: Turn) -> bool:
    """Whether a message only says how the task has ended, to a peer that has never heard of it."""
    peer = peer_of(turn.mailbox) or ""
    return not task.is_running and turn.entry.message.msg_type == "response" and not goes_back(task, peer)


def _contributors(task: Task, target: str) -> tuple[str, ...]:
    """The contributors; of those that the peer itself has added, the one first under which it keeps what is from here."""
    peer = task.peers.get(target)
    runner = peer.runner if peer else ""
    theirs = [each for each in task.contributors if Principal.parse(each).swarm == target]
    if runner not in theirs or theirs[0] == runner:
        return task.contributors
    sorted_for_peer = [each for each in task.contributors if each != runner]
    sorted_for_peer.insert(sorted_for_peer.index(theirs[0]), runner)
    return tuple(sorted_for_peer)


def _addressed(
    task: Task, swarm: SwarmCore, target: str, payload: MAILPayload, now: float, traceparent: str
) -> MAILPayload:
    """The payload with the addresses that it has outside of this swarm."""
    return payload.sent_to(
        target,
        sender=_at_home(payload.sender, swarm.name),
        sender_swarm=swarm.name,
        routing_info={
            **(payload.routing_info or {}),
            HOPS: task.hops + 1,
            STEPS_LEFT: max(1, task.limits.steps - task.generation.steps),
            **_budget_left(task, now),
            **({TRACEPARENT: traceparent} if traceparent else {}),
        },
    )


def _budget_left(task: Task, now: float) -> dict[str, Any]:
    """What the task may still use up, where that is limited."""
    limits, spent = task.limits, task.generation.spent
    seconds = None if limits.finish_by is None else limits.finish_by - now
    left = limits.budget.left(task.generation.turns, spent.tokens, spent.cost, seconds).model_dump(
        exclude_none=True
    )
    return {BUDGET_LEFT: left} if left else {}


def _at_home(address: MAILAddress, swarm: str) -> MAILAddress:
    """An address with its swarm; a system's is the name of a swarm already."""
    if address.address_type == "system" or address.swarm is not None:
        return address
    return MAILAddress(
        address_type=address.address_type, address=format_agent_address(address.address, swarm)
    )


# ---------------------------------------------------------------------------------- what becomes of the task


def delivered(task: Task, swarm: SwarmCore, turn: Turn, runner: str | None, clock: Clock) -> TaskChange:
    """The peer has taken the message; `runner` is the principal under which it keeps the task, where it said so."""
    draft, peer = _end_delivery(task, swarm, turn, clock)
    way = "back" if goes_back(turn.task, peer) else "forward"
    draft.emit(
        EventKind.INTERSWARM_MESSAGE_SENT,
        f"sent interswarm message {way} to swarm {peer}:\n{render_message(turn.entry.message)}",
    )
    _reached(draft, peer, turn.entry)
    if not goes_back(task, peer):
        contributor = runner if runner is not None and _is_of(runner, peer) else f"swarm:{swarm.name}@{peer}"
        draft.contributors = tuple(dict.fromkeys((*task.contributors, contributor)))
        known = draft.peers.get(peer) or Peer(agent=EVERYONE)
        draft.peers[peer] = replace(known, has_task=True, runner=contributor)
    prevent_stall(draft)
    return draft.seal()


def undelivered(
    task: Task, swarm: SwarmCore, turn: Turn, reason: str, clock: Clock, *, attempts: int = 1
) -> TaskChange:
    """The message can't be delivered: whoever wrote it is told, it is a dead letter, and the task goes on.

    `attempts` is how often a worker has died of it; those that the peer could not be reached in are known.
    """
    draft, peer = _end_delivery(task, swarm, turn, clock)
    draft.emit(EventKind.INTERSWARM_MESSAGE_ERROR, f"can't send to swarm {peer}: {reason}")
    if not is_moot(turn.task, turn):
        _dead_letter(draft, turn, reason, attempts)
    _reached(draft, peer, turn.entry)
    _tell_sender(draft, turn.entry, peer, reason)
    prevent_stall(draft)
    return draft.seal()


def delayed(task: Task, swarm: SwarmCore, turn: Turn, reason: str, clock: Clock) -> TaskChange:
    """The peer can't be reached now: its mailbox rests, and the message stays; after the last try it fails."""
    peer = peer_of(turn.mailbox) or ""
    known = task.peers.get(peer, Peer(agent=EVERYONE))
    pauses = ANSWER_RETRY_SECONDS if turn.entry.message.msg_type == "response" else RETRY_SECONDS
    if known.failures >= len(pauses):
        return undelivered(task, swarm, turn, f"given up after {known.failures + 1} tries: {reason}", clock)
    seconds = pauses[known.failures]
    draft = Draft(task, swarm, clock)
    draft.end_turn(turn, consume=False)
    draft.emit(
        EventKind.INTERSWARM_MESSAGE_ERROR,
        f"can't reach swarm {peer}, and will try again in {seconds} s: {reason}",
    )
    draft.peers[peer] = replace(known, failures=known.failures + 1, retry_at=draft.time_in(seconds))
    return draft.seal()


def fan_out(task: Task, swarm: SwarmCore, turn: Turn, peers: Sequence[str], clock: Clock) -> TaskChange:
    """Put mail to all known swarms into the mailbox of each."""
    draft = Draft(task, swarm, clock)
    draft.end_turn(turn, consume=True)
    others = [peer for peer in peers if peer != swarm.name]
    for peer in others:
        draft.add_peer(peer, EVERYONE)
        draft.open_broadcast(turn.entry.message, peer)
    if others:
        draft.send(turn.entry.message, [peer_mailbox(peer) for peer in others])
    else:
        draft.emit(EventKind.INTERSWARM_MESSAGE_ERROR, "there is no other swarm to send to")
        _dead_letter(draft, turn, "no other swarm is known", 1)
        _tell_sender(draft, turn.entry, "other swarms", "none is known")
    prevent_stall(draft)
    return draft.seal()


def _end_delivery(task: Task, swarm: SwarmCore, turn: Turn, clock: Clock) -> tuple[Draft, str]:
    draft = Draft(task, swarm, clock)
    draft.end_turn(turn, consume=True)
    peer = peer_of(turn.mailbox)
    assert peer is not None
    return draft, peer or ALL_PEERS


def _dead_letter(draft: Draft, turn: Turn, reason: str, attempts: int) -> None:
    peer = draft.peers.get(peer_of(turn.mailbox) or "")
    tries = max(attempts, 1 + (peer.failures if peer else 0))
    draft.dead_letter(turn.mailbox, reason, tries, message=turn.entry.message, message_seq=turn.entry.seq)


def _reached(draft: Draft, peer: str, entry: InboxEntry) -> None:
    """The message is gone: what was counted for it does not count for the next, and the peer knows how things stand."""
    known = draft.peers.get(peer)
    if known is not None:
        is_end = known.end_message == entry.message.id
        end_message = "" if is_end else known.end_message
        draft.peers[peer] = replace(
            known, failures=0, retry_at=0.0, end_delivered=is_end, end_message=end_message
        )


def _is_of(principal: str, swarm: str) -> bool:
    """Whether a peer's word for where it keeps the task can be believed: a principal of its own."""
    return (
        len(principal) <= MAX_PRINCIPAL
        and principal.startswith("swarm:")
        and principal.endswith(f"@{swarm}")
        and principal.count("@") == 1
    )


def _tell_sender(draft: Draft, entry: InboxEntry, peer: str, reason: str) -> None:
    """Give the message back to the agent that wrote it, or to the person; mail of the system itself has no reader."""
    payload = entry.message.message
    text = f"Your message {payload.subject!r} could not be delivered to swarm {peer}: {reason}"
    sender = payload.sender
    asked = [
        request
        for request in draft.requests
        if request.request_id == payload.own_id and request.recipient_swarm == peer
    ]
    for request in asked:
        draft.close_request(request)
    if not draft.is_running:
        return
    if sender.address_type == "agent" and sender.address in draft.swarm.agents:
        draft.tell(sender.address, Subject.RUNTIME_ERROR, text)
    for request in asked:
        if not request.sender:
            draft.answer_owner(create_agent_address(request.recipient), text, failed=True)
