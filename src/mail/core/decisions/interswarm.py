"""Mail to other swarms: its form on the wire, and the effect on the task when delivery succeeds or fails.

Pure functions; `mail.core.engine.interswarm` performs them. A peer's mailbox is processed even when the task has
stopped, as the end of a task is reported by mail too.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from mail.core.decisions.stalls import prevent_stall
from mail.core.protocol.address import (
    EVERYONE,
    MAX_PRINCIPAL,
    MAILAddress,
    Principal,
    create_agent_address,
    join_agent_address,
)
from mail.core.protocol.clock import format_time
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.traceparent import TRACEPARENT
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.files import FileRef, with_files
from mail.core.task.interswarm import Peer
from mail.core.task.limits import UNREACHABLE_SECONDS
from mail.core.task.mailboxes import ALL_PEERS, peer_mailbox, peer_of
from mail.core.task.members import member_of, show_peer
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.errors import PeerUnavailable, PeerUnreachable, Subject

HOPS = "hops"
STEPS_LEFT = "steps_left"
BUDGET_LEFT = "budget_left"
"""Keys in `routing_info`: the swarms passed, and the steps and budget that the sender has left (SPEC, section 7)."""

RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 30, 60, 60, 60, 60)
"""Pauses after each failed attempt to reach a peer; delivery fails for good after the last."""

ANSWER_RETRY_SECONDS = (*RETRY_SECONDS, *(300,) * 11)
"""The same for responses: the recipient waits for an hour, and no agent here would notice the failure."""

RECENT_SECONDS = 3600
"""Seconds after an answer of a peer in which it counts as restarting, if no connection to it can be made."""

PROBLEM_LENGTH = 500
"""Characters of the reason for a failed delivery that a task stores."""


def wrap_entry(
    task: Task,
    swarm: SwarmCore,
    entry: InboxEntry,
    now: float,
    traceparent: str = "",
    files: Sequence[FileRef] = (),
) -> MAILInterswarmMessage:
    """Return a message from a peer's mailbox as it travels; the same entry always has the same `message_id`.

    `now` is in seconds since the epoch; `traceparent` belongs to the delivery if it is traced. The peer fetches the
    `files` by their links.
    """
    message, payload = entry.message, entry.message.message
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
        payload=payload.sent_to(
            target,
            sender=_at_home(payload.sender, swarm.name),
            sender_swarm=swarm.name,
            routing_info={
                **(payload.routing_info or {}),
                HOPS: task.hops + 1,
                STEPS_LEFT: max(1, task.max_steps - task.generation.steps),
                **_budget_left(task, now),
                **({TRACEPARENT: traceparent} if traceparent else {}),
                **with_files({}, files),
            },
        ),
        auth_token="",
        metadata={},
    )


def goes_back(task: Task, swarm: str) -> bool:
    """Return whether mail goes to `/interswarm/back`: the peer got the task from here, or this swarm from there.

    A peer that got it from a third swarm stores it for that swarm only.
    """
    peer = task.peers.get(swarm)
    return peer is not None and peer.has_task


def is_moot(task: Task, turn: Turn) -> bool:
    """Return whether a message only reports the task's end to a peer that does not have the task."""
    peer = peer_of(turn.mailbox) or ""
    return not task.is_running and turn.entry.message.msg_type == "response" and not goes_back(task, peer)


def _contributors(task: Task, target: str) -> tuple[str, ...]:
    """Return the contributors; of those added by the peer, its `runner` comes first."""
    peer = task.peers.get(target)
    runner = peer.runner if peer else ""
    theirs = [each for each in task.contributors if Principal.parse(each).swarm == target]
    if runner not in theirs or theirs[0] == runner:
        return task.contributors
    sorted_for_peer = [each for each in task.contributors if each != runner]
    sorted_for_peer.insert(sorted_for_peer.index(theirs[0]), runner)
    return tuple(sorted_for_peer)


def _budget_left(task: Task, now: float) -> dict[str, Any]:
    """Return the rest of the task's budget as `routing_info`; empty without a budget."""
    limits, spent = task.limits, task.generation.spent
    seconds = None if limits.finish_by is None else limits.finish_by - now
    left = limits.budget.left(task.generation.turns, spent.tokens, spent.cost, seconds).model_dump(
        exclude_none=True
    )
    return {BUDGET_LEFT: left} if left else {}


def _at_home(address: MAILAddress, swarm: str) -> MAILAddress:
    """Return an address with its swarm; a system address is the name of a swarm already."""
    if address.address_type == "system" or address.swarm is not None:
        return address
    return MAILAddress(address_type=address.address_type, address=join_agent_address(address.address, swarm))


# ------------------------------------------------------------------------------------ effects on the task


def delivered(draft: Draft, turn: Turn, runner: str | None) -> TaskChange:
    """Note that the peer has accepted the message; `runner` is the principal that stores the task there, if known."""
    note_delivery(draft, turn, runner)
    prevent_stall(draft)
    return draft.seal()


def note_delivery(draft: Draft, turn: Turn, runner: str | None) -> str:
    """Begin the change of `delivered`, and return the name of the peer."""
    peer = _end_delivery(draft, turn)
    _reached(draft, peer, turn.entry)
    if member_of(peer) is not None:
        draft.peers = {**draft.peers, peer: replace(draft.peers[peer], has_task=True)}
    elif not goes_back(draft.before, peer):
        ours = f"swarm:{draft.swarm.name}@{peer}"
        contributor = runner if runner is not None and _is_of(runner, peer) else ours
        draft.contributors = tuple(dict.fromkeys((*draft.contributors, contributor)))
        known = draft.peers.get(peer) or Peer(agent=EVERYONE)
        draft.peers = {**draft.peers, peer: replace(known, has_task=True, runner=contributor)}
    return peer


def undelivered(draft: Draft, turn: Turn, reason: str, *, attempts: int = 1) -> TaskChange:
    """Make the message a dead letter and notify its sender; the task continues.

    `attempts` counts crashed workers; failed attempts to reach the peer are stored with the peer.
    """
    peer = _end_delivery(draft, turn)
    draft.emit(EventKind.INTERSWARM_MESSAGE_ERROR, f"can't send to {show_peer(peer)}: {reason}")
    if not is_moot(turn.task, turn):
        _dead_letter(draft, turn, reason, attempts)
    known = draft.peers.get(peer)
    is_uncertain = known is not None and known.failures > 0
    _reached(draft, peer, turn.entry)
    _tell_sender(draft, turn.entry, peer, reason, is_uncertain=is_uncertain)
    prevent_stall(draft)
    return draft.seal()


def delayed(
    draft: Draft, turn: Turn, failure: PeerUnavailable, *, unreachable_seconds: float = UNREACHABLE_SECONDS
) -> TaskChange:
    """Pause the peer's mailbox after a failed attempt; after the last attempt, delivery fails."""
    peer, reason = peer_of(turn.mailbox) or "", failure.detail
    known = draft.peers.get(peer, Peer(agent=EVERYONE))
    pauses: Sequence[float] = RETRY_SECONDS
    if turn.entry.message.msg_type == "response":
        pauses = ANSWER_RETRY_SECONDS
    elif isinstance(failure, PeerUnreachable):
        last = failure.last_answer
        if last is None or last < draft.time_in(-RECENT_SECONDS):
            reason += f" (it last answered at {format_time(last)})" if last else " (it has never answered)"
            pauses = _first_seconds(RETRY_SECONDS, unreachable_seconds)
    if known.failures >= len(pauses):
        return undelivered(draft, turn, f"no delivery after {known.failures + 1} tries: {reason}")
    seconds = pauses[known.failures]
    draft.end_turn(turn, consume=False)
    until = draft.time_in(sum(pauses[known.failures :]))
    draft.emit(
        EventKind.INTERSWARM_MESSAGE_ERROR,
        f"can't reach {show_peer(peer)}, and will try again in {seconds:g} s, until {format_time(until)}: {reason}",
    )
    failed = replace(
        known,
        failures=known.failures + 1,
        retry_at=draft.time_in(seconds),
        retry_until=until,
        problem=reason[:PROBLEM_LENGTH],
    )
    draft.peers = {**draft.peers, peer: failed}
    return draft.seal()


def _first_seconds(pauses: Sequence[float], seconds: float) -> Sequence[float]:
    """Return the first pauses, which take so many seconds together."""
    starts = accumulate(pauses, initial=0.0)
    return [
        min(pause, seconds - start) for start, pause in zip(starts, pauses, strict=False) if start < seconds
    ]


def fan_out(draft: Draft, turn: Turn, peers: Sequence[str]) -> TaskChange:
    """Copy a broadcast to all known swarms into the mailbox of each."""
    draft.end_turn(turn, consume=True)
    targets = [peer for peer in peers if peer != draft.swarm.name]
    for peer in targets:
        draft.add_peer(peer, EVERYONE)
        draft.open_broadcast(turn.entry.message, peer)
    if targets:
        draft.send(turn.entry.message, [peer_mailbox(peer) for peer in targets])
    else:
        draft.emit(EventKind.INTERSWARM_MESSAGE_ERROR, "there is no other swarm to send to")
        _dead_letter(draft, turn, "no other swarm is known", 1)
        _tell_sender(draft, turn.entry, "other swarms", "none is known")
    prevent_stall(draft)
    return draft.seal()


def _end_delivery(draft: Draft, turn: Turn) -> str:
    draft.end_turn(turn, consume=True)
    return peer_of(turn.mailbox) or ALL_PEERS


def _dead_letter(draft: Draft, turn: Turn, reason: str, attempts: int) -> None:
    peer = draft.peers.get(peer_of(turn.mailbox) or "")
    tries = max(attempts, 1 + (peer.failures if peer else 0))
    draft.dead_letter(turn.mailbox, reason, tries, message=turn.entry.message, message_seq=turn.entry.seq)


def _reached(draft: Draft, peer: str, entry: InboxEntry) -> None:
    """Reset the failures of a peer, as its next message starts fresh, and note whether it knows the task's end.

    It then works for the task no longer, unless that could not be delivered.
    """
    known = draft.peers.get(peer)
    if known is not None:
        is_end = known.end_message == entry.message.id
        end_message = "" if is_end else known.end_message
        reached = replace(
            known,
            failures=0,
            retry_at=0.0,
            retry_until=0.0,
            problem="",
            end_delivered=is_end,
            end_message=end_message,
            remote_tasks=() if is_end else known.remote_tasks,
        )
        draft.peers = {**draft.peers, peer: reached}


def _is_of(principal: str, swarm: str) -> bool:
    """Return whether a principal belongs to the peer that reported it."""
    return (
        len(principal) <= MAX_PRINCIPAL
        and principal.startswith("swarm:")
        and principal.endswith(f"@{swarm}")
        and principal.count("@") == 1
    )


def _tell_sender(
    draft: Draft, entry: InboxEntry, peer: str, reason: str, *, is_uncertain: bool = False
) -> None:
    """Notify the agent or the person that wrote the message; system messages have no sender to notify.

    If it is uncertain whether the peer has got the message, it may still answer.
    """
    payload = entry.message.message
    text = f"Your message {payload.subject!r} could not be delivered to {show_peer(peer)}: {reason}"
    sender = payload.sender
    asked = [
        request
        for request in draft.requests
        if request.request_id == payload.own_id and request.recipient_swarm == peer
    ]
    for request in asked:
        draft.close_request(request)
        if is_uncertain:
            draft.note_unanswered(request)
    if not draft.is_running:
        return
    if sender.address_type == "agent" and sender.address in draft.swarm.agents:
        draft.tell(asked[0].sender if asked else sender.address, Subject.RUNTIME_ERROR, text)
    for request in asked:
        if not request.sender:
            draft.answer_owner(create_agent_address(request.recipient), text, failed=True)
