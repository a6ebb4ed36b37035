"""Tasks at peers that never call this server: what their states change in the task. Pure functions.

A peer answers a delivery with a task of its own. While that works, its state is polled; its question, its answer or its
failure becomes mail of the peer, as if the peer had sent it. `mail.core.engine.interswarm` performs the polls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mail.core.decisions.backoff import POLL_SECONDS
from mail.core.decisions.interswarm import ANSWER_RETRY_SECONDS, note_delivery
from mail.core.decisions.receive import add_answer
from mail.core.decisions.stalls import prevent_stall
from mail.core.protocol.address import create_agent_address, join_agent_address, parse_agent_address
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILPayload, MAILResponse
from mail.core.task.change import TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.files import FileRef, with_files
from mail.core.task.interswarm import RemoteState, RemoteStatus, RemoteTask
from mail.core.task.leases import Claim
from mail.core.task.limits import ANSWER_SECONDS
from mail.core.task.mailboxes import polled_by
from mail.core.task.task import Task
from mail.errors import PeerError, PeerUnavailable, Subject

REMOTE_SECONDS = 86_400.0
"""Seconds after which a remote task that has not ended is given up."""

MAX_REMOTE_TASKS = 32
"""Remote tasks that one peer may have for one task."""

SUBJECTS = {
    RemoteStatus.ASKING: Subject.BREAKPOINT_TOOL_CALL,
    RemoteStatus.COMPLETED: Subject.INTERSWARM_TASK_COMPLETE,
    RemoteStatus.FAILED: Subject.TASK_ERROR,
}

Answers = Mapping[str, RemoteState | PeerError]
"""By the id of a remote task: its state, or why that could not be read."""

Files = Mapping[str, Sequence[FileRef]]
"""By the id of a remote task: the files of its answer, as they are stored here."""


def accepted(draft: Draft, turn: Turn, state: RemoteState, files: Files) -> TaskChange:
    """Note that a peer has taken a message and answered with a task of its own, or at once."""
    peer = note_delivery(draft, turn, None)
    message = turn.entry.message
    remote = RemoteTask(
        id=state.id,
        context=state.context,
        asked_by=_asked_by(draft, message.message),
        agent=_agent(message.message, peer),
        request_id=message.message.own_id,
        until=draft.time_in(REMOTE_SECONDS),
    )
    known = draft.peers[peer]
    others = tuple(each for each in known.remote_tasks if each.id != state.id or each.poll_at)
    draft.peers = {**draft.peers, peer: replace(known, remote_tasks=others, context=state.context)}
    joined = any(each.id == state.id for each in others) and message.msg_type not in ("request", "broadcast")
    if not joined:  # else the answer to what it has joined is the answer
        _update(draft, peer, remote, state, files)
    prevent_stall(draft)
    return draft.seal()


def due(task: Task, swarm: str, now: float) -> list[RemoteTask]:
    """Return the tasks at a peer whose states are to be polled now."""
    return [each for each in task.peers[swarm].remote_tasks if 0.0 < each.poll_at <= now]


def polled(draft: Draft, claim: Claim, answers: Answers, files: Files) -> TaskChange:
    """End a claim on the mailbox of polls: deliver what peers have answered or asked, and set the next polls."""
    draft.end_claim(claim)
    peer = polled_by(claim.mailbox) or ""
    known = draft.peers.get(peer)
    now = draft.time_in(0)
    for remote in () if known is None else known.remote_tasks:
        answer = answers.get(remote.id)
        if answer is None or not remote.poll_at:
            continue
        kept = draft.peers[peer]
        left = tuple(each for each in kept.remote_tasks if each is not remote)
        draft.peers = {**draft.peers, peer: replace(kept, remote_tasks=left)}
        _update(draft, peer, replace(remote, polls=remote.polls + 1), _outcome(remote, answer, now), files)
    prevent_stall(draft)
    return draft.seal()


def _outcome(
    remote: RemoteTask, answer: RemoteState | PeerError, now: float
) -> RemoteState | PeerUnavailable:
    """Return the state that counts: a task that can't be read, or takes too long, has failed."""
    reason = ""
    match answer:
        case PeerUnavailable() if remote.failures < len(ANSWER_RETRY_SECONDS) and now < remote.until:
            return answer
        case PeerUnavailable():
            reason = f"its answer could not be read: {answer.detail}"
        case PeerError():
            reason = f"its answer can't be read: {answer.detail}"
        case RemoteState(status=RemoteStatus.WORKING) if now >= remote.until:
            reason = f"it has not finished within {REMOTE_SECONDS / 3600:g} hours"
        case RemoteState():
            return answer
    return RemoteState(id=remote.id, context=remote.context, status=RemoteStatus.FAILED, text=reason)


def _update(
    draft: Draft, peer: str, remote: RemoteTask, outcome: RemoteState | PeerUnavailable, files: Files
) -> None:
    """Keep a remote task that has not ended, and deliver what it asks or answers."""
    match outcome:
        case PeerUnavailable():
            pause: float = ANSWER_RETRY_SECONDS[remote.failures]
            _keep(draft, peer, replace(remote, failures=remote.failures + 1, poll_at=draft.time_in(pause)))
            return
        case RemoteState(status=RemoteStatus.WORKING):
            pause = POLL_SECONDS[min(remote.polls, len(POLL_SECONDS) - 1)]
            _keep(draft, peer, replace(remote, failures=0, poll_at=draft.time_in(pause)))
            if not remote.polls:
                _wait_longer(draft, peer, remote)
            return
        case RemoteState(status=RemoteStatus.ASKING):
            _keep(draft, peer, replace(remote, poll_at=0.0))
    add_answer(draft, _answer(draft, peer, remote, outcome, files.get(outcome.id, ())))


def _keep(draft: Draft, peer: str, remote: RemoteTask) -> None:
    known = draft.peers[peer]
    draft.peers = {**draft.peers, peer: replace(known, remote_tasks=(*known.remote_tasks, remote))}


def _wait_longer(draft: Draft, peer: str, remote: RemoteTask) -> None:
    """Let a request wait for as long as its remote task is polled, and a little longer."""
    draft.requests = tuple(
        replace(each, answer_deadline=remote.until + ANSWER_SECONDS)
        if each.request_id == remote.request_id and each.recipient_swarm == peer
        else each
        for each in draft.requests
    )


def _asked_by(draft: Draft, payload: MAILPayload) -> str:
    sender = payload.sender
    return sender.address if sender.address_type == "agent" and sender.address in draft.swarm.agents else ""


def _agent(payload: MAILPayload, peer: str) -> str:
    """Return the first agent of a peer that a message is for."""
    names = [parse_agent_address(each.address) for each in payload.recipients]
    return next((name for name, swarm in names if swarm == peer), names[0][0])


def _answer(
    draft: Draft, peer: str, remote: RemoteTask, state: RemoteState, files: Sequence[FileRef]
) -> MAILInterswarmMessage:
    """Return what a remote task says as a response of the peer's agent to whom has asked."""
    draft.stored_bytes += sum(file.size for file in files)
    payload = MAILResponse(
        task_id=draft.task_id,
        request_id=remote.request_id,
        sender=create_agent_address(join_agent_address(remote.agent, peer)),
        recipient=create_agent_address(remote.asked_by or draft.entrypoint),
        subject=SUBJECTS[state.status].value,
        body=state.text,
        routing_info=with_files({}, files) or None,
    )
    return MAILInterswarmMessage(
        message_id=draft.clock.new_id(),
        source_swarm=peer,
        target_swarm=draft.swarm.name,
        timestamp=draft.timestamp,
        task_owner=draft.before.owner,
        task_contributors=tuple(dict.fromkeys((draft.before.owner, *draft.contributors))),
        msg_type="response",
        payload=payload,
    )
