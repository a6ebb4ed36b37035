"""Dead letters: messages that left their mailbox unprocessed. Pure functions.

A dead letter is an event of its task (`Draft.dead_letter`); `Task.dead_letters` lists those not dealt with yet.

| mailbox | when it is redriven |
| --- | --- |
| an agent's | it enters the mailbox again; a failed task resumes, another stopped one reads it when it is resumed |
| another swarm's | it is delivered as if for the first time, except in a cancelled task; its answer is awaited again |
| a webhook's | its events are delivered again |

Discarding a dead letter only takes it off the list. Both are commits of the task, so two clients can't redrive the same
one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mail.core.decisions.submit import resume
from mail.core.decisions.webhooks import rewind
from mail.core.protocol.address import Principal, parse_agent_address
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.message import MAILBroadcast, MAILMessage, MAILRequest
from mail.core.protocol.values import fill, value
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import DeadLetterExtra, DiscardExtra, MessageExtra, RedriveExtra
from mail.core.task.interswarm import SUBJECT_LENGTH, OpenRequest, Peer
from mail.core.task.mailboxes import ALL_PEERS, agent_of, goes_out, hook_of, peer_of
from mail.core.task.members import member_address, member_of
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import DeadLetterNotFound


@value
class DeadLetter:
    """A message that could not be processed.

    Attributes:
        seq: the seq of its event.
        mailbox: the mailbox that it left (`mail.core.task.mailboxes`).
        attempts: the number of attempts to process it.
        message_seq: the seq of the message; the dead letter's own if no event had announced it.
        sender, subject, msg_type: of the message; empty for a webhook's events.
        message: the message itself, if it was read.
    """

    key: TaskKey
    seq: int
    mailbox: str
    reason: str
    attempts: int
    timestamp: str
    message_seq: int
    sender: str = ""
    subject: str = ""
    msg_type: str = ""
    message: MAILMessage | None = None


@value
class Redriven:
    """The outcome of redriving a dead letter.

    Attributes:
        seq: the new seq of the message; None without one.
        waits: whether it waits until the task is resumed.
        refusal: why it could not be redriven and stays on the list; empty if it was.
    """

    letter: DeadLetter
    seq: int | None = None
    waits: bool = False
    refusal: str = ""


def read_dead_letters(task: Task, events: Iterable[Event]) -> list[DeadLetter]:
    """Return the listed dead letters of a task among its `events`, newest first."""
    left = set(task.dead_letters)
    entries = [_letter(task.key, event) for event in events if event.seq in left]
    return entries[::-1]


def with_messages(entries: Iterable[DeadLetter], events: Iterable[Event]) -> list[DeadLetter]:
    """Return the dead letters with their messages from `events`; those of webhooks have none."""
    messages = {event.seq: event.message for event in events if event.message is not None}
    return [
        letter
        if hook_of(letter.mailbox) is not None
        else replace(letter, message=messages.get(letter.message_seq))
        for letter in entries
    ]


def _letter(key: TaskKey, event: Event) -> DeadLetter:
    about = event.extra
    assert isinstance(about, DeadLetterExtra)
    message_seq = event.seq if about.message_seq is None else about.message_seq
    own = {"key": key, "seq": event.seq, "timestamp": event.timestamp, "message_seq": message_seq}
    return DeadLetter(**fill(DeadLetter, about, **own))


def choose(task: Task, seq: int | None) -> tuple[int, ...]:
    """Return the seqs of one dead letter, or of all. Raises DeadLetterNotFound if that one is not listed."""
    if seq is None:
        return task.dead_letters
    if seq not in task.dead_letters:
        raise DeadLetterNotFound(
            f"task {task.task_id!r} has no dead letter {seq}; it may have been redriven or discarded"
        )
    return (seq,)


# ------------------------------------------------------------------------------------------------- redriving


def redrive(
    draft: Draft, entries: Sequence[DeadLetter], caller: Principal
) -> tuple[TaskChange | None, list[Redriven]]:
    """Redrive dead letters of a task, read with their messages; those no longer listed are skipped.

    The change is None if none can be redriven.
    """
    task = draft.before
    left = [letter for letter in entries if letter.seq in task.dead_letters]
    refusals = {letter.seq: refusal for letter in left if (refusal := _refusal(letter, task, draft.swarm))}
    again = [letter for letter in reversed(left) if letter.seq not in refusals]  # oldest first
    for letter in again:
        draft.emit(
            EventKind.DEAD_LETTER_REDRIVEN,
            f"dead letter {letter.seq} for {letter.mailbox} is redriven by {caller.id}",
            RedriveExtra(dead_letter=letter.seq, by=str(caller)),
        )
        if (hook_id := hook_of(letter.mailbox)) is not None:
            rewind(draft, hook_id, letter.message_seq)
    if task.status is TaskStatus.FAILED and any(map(_needs_turns, again)):
        resume(draft)
        draft.limits = draft.limits.within(draft.limits.budget, draft.time_in(0.0))
    seqs = {letter.seq: _send_again(draft, letter) for letter in again if letter.message is not None}
    rests = draft.before.manual or not draft.is_running
    outcomes = [
        Redriven(letter, refusal=refusals[letter.seq])
        if letter.seq in refusals
        else Redriven(letter, seqs.get(letter.seq), waits=rests and not goes_out(letter.mailbox))
        for letter in left
    ]
    if not again:
        return None, outcomes
    _take_off(draft, {letter.seq for letter in again})
    return draft.seal(), outcomes


def _refusal(letter: DeadLetter, task: Task, swarm: SwarmCore) -> str:
    """Return why a dead letter can't be redriven; empty if it can."""
    mailbox = letter.mailbox
    if (hook_id := hook_of(mailbox)) is not None:
        return "" if hook_id in task.webhooks else f"the task no longer has a webhook {hook_id!r}"
    if letter.message is None:
        return "its message is no longer stored"
    agent = agent_of(mailbox)
    if peer_of(mailbox) is None and agent not in swarm.agents:
        return f"swarm {swarm.name!r} no longer has an agent {agent!r}{did_you_mean(agent, swarm.agents)}"
    has_copies = agent != mailbox or swarm.hands_over(agent, task.entrypoint)
    if has_copies and not isinstance(letter.message.message, MAILRequest):
        return "its reader was a copy that has ended its work; redrive the request of that"
    if task.status is TaskStatus.CANCELLED and peer_of(mailbox) is not None and _needs_turns(letter):
        return "the task was cancelled, but another swarm would work on it; resume the task first"
    return ""


def _needs_turns(letter: DeadLetter) -> bool:
    """Return whether the message needs a running task; a response to another swarm does not."""
    if letter.message is None:
        return False
    return peer_of(letter.mailbox) is None or letter.message.msg_type != "response"


def _send_again(draft: Draft, letter: DeadLetter) -> int:
    """Put a dead letter's message into its mailbox again and return the new seq."""
    message, mailbox = letter.message, letter.mailbox
    assert message is not None
    [mailbox] = draft.send(message, (agent_of(mailbox),), MessageExtra(redrives=letter.seq))
    seq = draft.last_seq
    swarm = peer_of(mailbox)
    if swarm is None:
        _await_agent(draft, message, mailbox, seq)
    elif mailbox != ALL_PEERS:
        peer = draft.peers.get(swarm) or Peer(
            agent=parse_agent_address(message.message.recipients[0].address)[0]
        )
        draft.peers = {**draft.peers, swarm: replace(peer, failures=0, retry_at=0.0)}
        _await_peer(draft, message, swarm)
    return seq


def _await_agent(draft: Draft, message: MAILMessage, mailbox: str, seq: int) -> None:
    """Await the answer again: an agent's request from its reader, a person's from the task."""
    payload, sender = message.message, message.sender
    if sender.address_type == "system":
        return
    by_person = sender.is_person
    swarm = parse_agent_address(sender.address)[1]
    task = draft.before
    joins = task.is_running and (by_person if swarm is None else swarm == task.parent_swarm)
    if (isinstance(payload, MAILRequest) and not by_person) or (swarm is not None and by_person):
        request = OpenRequest(
            request_id=payload.own_id,
            sender=sender.address,
            recipient=mailbox,
            seq=seq if joins else 0,
            routing_info=payload.routing_info,
            subject=payload.subject[:SUBJECT_LENGTH],
        )
        _reopen_request(draft, request)
    if joins and (by_person or isinstance(payload, MAILRequest)) and message.msg_type != "broadcast":
        draft.add_unread_question(mailbox, seq)


def _await_peer(draft: Draft, message: MAILMessage, swarm: str) -> None:
    """Await the other swarm's answer again, for the full time."""
    payload, sender = message.message, message.sender
    by_person = sender.is_person
    name = member_of(swarm)
    recipient = payload.recipients[0].address if name is None else member_address(name)
    if isinstance(payload, MAILRequest) or (by_person and isinstance(payload, MAILBroadcast)):
        request = OpenRequest(
            request_id=payload.own_id,
            sender="" if by_person else sender.address,
            recipient=recipient,
            answer_deadline=draft.answer_deadline(recipient),
            routing_info=None if by_person else payload.routing_info,
        )
        _reopen_request(draft, request)
    elif message.msg_type == "broadcast":
        draft.open_broadcast(message, swarm)


def _reopen_request(draft: Draft, request: OpenRequest) -> None:
    ends = (request.request_id, request.sender, request.recipient)
    if not any((each.request_id, each.sender, each.recipient) == ends for each in draft.requests):
        draft.open_request(request)


# ------------------------------------------------------------------------------------------------ discarding


def discard(draft: Draft, seqs: Iterable[int], caller: Principal) -> tuple[TaskChange | None, list[int]]:
    """Take dead letters off the list for good and return their seqs; those no longer listed are skipped."""
    gone = sorted(set(seqs) & set(draft.dead_letters), reverse=True)
    if not gone:
        return None, []
    which = ", ".join(map(str, gone))
    draft.emit(
        EventKind.DEAD_LETTER_DISCARDED,
        f"dead letter {which} discarded by {caller.id}",
        DiscardExtra(dead_letters=gone, by=str(caller)),
    )
    _take_off(draft, set(gone))
    return draft.seal(), gone


def _take_off(draft: Draft, seqs: set[int]) -> None:
    draft.dead_letters = tuple(seq for seq in draft.dead_letters if seq not in seqs)
