"""Dead letters: messages that left their mailbox without having been processed. Pure functions.

A dead letter is an event of its task (`Draft.dead_letter`); the task knows which of them nobody has dealt with (`Task.dead_letters`).

| it was for | redriven |
| --- | --- |
| an agent | it enters the mailbox again; a failed task goes on, one that has stopped otherwise keeps it until it is resumed |
| another swarm | it is delivered, as if for the first time, save in a cancelled task; the answer is awaited again |
| a webhook | its events are delivered again |
| anybody | or it is discarded: it only leaves the list |

Either is a commit of the task, so that of two who redrive one letter at once, the second finds it gone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mail.core.decisions.submit import resume
from mail.core.decisions.webhooks import rewind
from mail.core.protocol.address import Principal, parse_agent_address
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import MAILBroadcast, MAILMessage, MAILRequest
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import REDRIVES, Event, EventKind
from mail.core.task.interswarm import OpenRequest, Peer
from mail.core.task.limits import ANSWER_SECONDS
from mail.core.task.mailboxes import ALL_PEERS, goes_out, hook_of, peer_of
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import DeadLetterNotFound


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be processed.

    Attributes:
        seq: that of the event that it is.
        mailbox: the one that it left: an agent's, `@` and a swarm's name, or `!` and a webhook's id.
        attempts: how often it was tried to process it.
        message_seq: the event that announced the message; the dead letter's own where none had.
        sender, subject, msg_type: of the message; empty where it is no message but events, for a webhook.
        message: the message itself, where it was read.
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


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of a dead letter that was to be redriven.

    Attributes:
        seq: that of the message's new place in its mailbox; None where it has none.
        waits: whether it waits there until the task is resumed.
        refusal: why it could not be redriven; then it stays on the list.
    """

    letter: DeadLetter
    seq: int | None = None
    waits: bool = False
    refusal: str = ""


def read_letters(task: Task, events: Iterable[Event]) -> list[DeadLetter]:
    """The dead letters of a task that nobody has dealt with, the newest first; `events` hold them."""
    left = set(task.dead_letters)
    letters = [_letter(task.key, event) for event in events if event.seq in left]
    return letters[::-1]


def with_messages(letters: Iterable[DeadLetter], events: Iterable[Event]) -> list[DeadLetter]:
    """The same letters with their messages; `events` hold these. What is for a webhook is events, not their messages."""
    messages = {event.seq: event.message for event in events if event.message is not None}
    return [
        letter
        if hook_of(letter.mailbox) is not None
        else replace(letter, message=messages.get(letter.message_seq))
        for letter in letters
    ]


def _letter(key: TaskKey, event: Event) -> DeadLetter:
    extra = event.extra
    return DeadLetter(
        key=key,
        seq=event.seq,
        mailbox=extra["mailbox"],
        reason=extra["reason"],
        attempts=extra["attempts"],
        timestamp=event.timestamp,
        message_seq=event.seq if extra["message_seq"] is None else extra["message_seq"],
        sender=extra.get("sender", ""),
        subject=extra.get("subject", ""),
        msg_type=extra.get("msg_type", ""),
    )


def choose(task: Task, seq: int | None) -> tuple[int, ...]:
    """The dead letters of a task that are meant: one, or all. Raises DeadLetterNotFound where that one is gone."""
    if seq is None:
        return task.dead_letters
    if seq not in task.dead_letters:
        raise DeadLetterNotFound(
            f"task {task.task_id!r} has no dead letter {seq}, or it has been redriven or discarded"
        )
    return (seq,)


# ------------------------------------------------------------------------------------------------- redriving


def redrive(
    task: Task, letters: Sequence[DeadLetter], swarm: SwarmCore, caller: Principal, clock: Clock
) -> tuple[TaskChange | None, list[Redriven]]:
    """Let these letters of a task, with their messages, be processed again; those that are gone are passed over.

    The change is None where none of them can be.
    """
    draft = Draft(task, swarm, clock)
    left = [letter for letter in letters if letter.seq in task.dead_letters]
    refusals = {letter.seq: refusal for letter in left if (refusal := _refusal(letter, task, swarm))}
    again = [
        letter for letter in reversed(left) if letter.seq not in refusals
    ]  # in the order of their burial
    for letter in again:
        draft.emit(
            EventKind.DEAD_LETTER_REDRIVEN,
            f"dead letter {letter.seq} for {letter.mailbox} is redriven by {caller.id}",
            dead_letter=letter.seq,
            by=str(caller),
        )
        if (hook_id := hook_of(letter.mailbox)) is not None:
            rewind(draft, hook_id, letter.message_seq)
    if task.status is TaskStatus.FAILED and any(map(_needs_turns, again)):
        resume(draft)
        draft.limits = draft.limits.within(draft.limits.budget, clock.now().timestamp())
    seqs = {letter.seq: _send_again(draft, letter) for letter in again if letter.message is not None}
    outcomes = [
        Redriven(letter, refusal=refusals[letter.seq])
        if letter.seq in refusals
        else Redriven(letter, seqs.get(letter.seq), waits=_rests(draft, letter))
        for letter in left
    ]
    if not again:
        return None, outcomes
    _take_off(draft, {letter.seq for letter in again})
    return draft.seal(), outcomes


def _refusal(letter: DeadLetter, task: Task, swarm: SwarmCore) -> str:
    """Why a letter can't be redriven; empty where it can."""
    mailbox = letter.mailbox
    if (hook_id := hook_of(mailbox)) is not None:
        return "" if hook_id in task.webhooks else f"the task has no webhook {hook_id!r} any more"
    if letter.message is None:
        return "its message is not kept any more"
    if peer_of(mailbox) is None and mailbox not in swarm.agents:
        return f"swarm {swarm.name!r} has no agent {mailbox!r} any more{did_you_mean(mailbox, swarm.agents)}"
    if task.status is TaskStatus.CANCELLED and peer_of(mailbox) is not None and _needs_turns(letter):
        return "the task was cancelled, and another swarm would work on it all the same; resume it first"
    return ""


def _needs_turns(letter: DeadLetter) -> bool:
    """Whether a letter is of use only in a task that runs: what another swarm is merely told, it takes at any time."""
    if letter.message is None:
        return False
    return peer_of(letter.mailbox) is None or letter.message.msg_type != "response"


def _rests(draft: Draft, letter: DeadLetter) -> bool:
    return not goes_out(letter.mailbox) and (draft.before.manual or not draft.is_running)


def _send_again(draft: Draft, letter: DeadLetter) -> int:
    """Put a letter's message into its mailbox, as it was put there first; returns its seq."""
    message, mailbox = letter.message, letter.mailbox
    assert message is not None
    draft.send(message, (mailbox,), **{REDRIVES: letter.seq})
    seq = draft.last_seq
    swarm = peer_of(mailbox)
    if swarm is None:
        _await_agent(draft, message, mailbox, seq)
    elif mailbox != ALL_PEERS:
        peer = draft.peers.get(swarm) or Peer(agent=_names(message)[0])
        draft.peers[swarm] = replace(peer, failures=0, retry_at=0.0)
        _await_peer(draft, message, swarm)
    return seq


def _await_agent(draft: Draft, message: MAILMessage, mailbox: str, seq: int) -> None:
    """Whoever asked is to be answered: an agent by its reader, a person by the task's answer."""
    payload, sender = message.message, message.sender
    if sender.address_type == "system":
        return
    by_person = sender.address_type in ("user", "admin")
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
        )
        _ask_again(draft, request)
    if joins and (by_person or isinstance(payload, MAILRequest)) and message.msg_type != "broadcast":
        draft.add_unread_question(mailbox, seq)


def _await_peer(draft: Draft, message: MAILMessage, swarm: str) -> None:
    """The answer of the other swarm is awaited again, as long as at first."""
    payload, sender = message.message, message.sender
    by_person = sender.address_type in ("user", "admin")
    if isinstance(payload, MAILRequest) or (by_person and isinstance(payload, MAILBroadcast)):
        request = OpenRequest(
            request_id=payload.own_id,
            sender="" if by_person else sender.address,
            recipient=payload.recipients[0].address,
            answer_deadline=draft.time_in(ANSWER_SECONDS),
            routing_info=None if by_person else payload.routing_info,
        )
        _ask_again(draft, request)
    elif message.msg_type == "broadcast":
        draft.open_broadcast(message, swarm)


def _ask_again(draft: Draft, request: OpenRequest) -> None:
    ends = (request.request_id, request.sender, request.recipient)
    if not any((other.request_id, other.sender, other.recipient) == ends for other in draft.requests):
        draft.open_request(request)


def _names(message: MAILMessage) -> list[str]:
    return [parse_agent_address(recipient.address)[0] for recipient in message.message.recipients]


# ------------------------------------------------------------------------------------------------ discarding


def discard(
    task: Task, seqs: Iterable[int], swarm: SwarmCore, caller: Principal, clock: Clock
) -> tuple[TaskChange | None, list[int]]:
    """Take dead letters off the list, for good; those that are gone are passed over. Returns which it were."""
    gone = sorted(set(seqs) & set(task.dead_letters), reverse=True)
    if not gone:
        return None, []
    draft = Draft(task, swarm, clock)
    which = ", ".join(map(str, gone))
    draft.emit(
        EventKind.DEAD_LETTER_DISCARDED,
        f"dead letter {which} discarded by {caller.id}",
        dead_letters=gone,
        by=str(caller),
    )
    _take_off(draft, set(gone))
    return draft.seal(), gone


def _take_off(draft: Draft, seqs: set[int]) -> None:
    draft.dead_letters = tuple(seq for seq in draft.dead_letters if seq not in seqs)
