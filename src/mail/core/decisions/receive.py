"""Mail from other swarms: it begins, joins, answers or ends a task here. Pure functions.

| from | the task here | effect |
| --- | --- | --- |
| its parent swarm | unknown | it begins, under the instance of the caller's token |
| | running | more mail for it |
| | stopped | a new generation, as for a person's message |
| | any, and the whole task is over | it ends, and the swarms that it has involved are notified |
| a swarm that it has involved | running | the answer, or other mail, goes to the agent addressed |
| | stopped | an awaited answer or a request waits until the task resumes; other mail becomes a dead letter |

The task itself records who involved whom (`Task.parent_swarm`, `Task.peers`); a message can't claim access.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from pydantic import ValidationError

from mail.core.decisions.breakpoints import abandon_breakpoint
from mail.core.decisions.interswarm import BUDGET_LEFT, HOPS, STEPS_LEFT
from mail.core.decisions.submit import swarm_limits, title_of
from mail.core.protocol.address import (
    EVERYONE,
    MAX_PRINCIPAL,
    MAILAddress,
    Principal,
    create_agent_address,
    is_swarm_name,
    join_agent_address,
    parse_agent_address,
)
from mail.core.protocol.clock import Clock
from mail.core.protocol.compose import compose_message
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage, MAILPayload, MAILRequest, MAILResponse, MessageType
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.files import MAX_FILE_BYTES, files_in
from mail.core.task.interswarm import SUBJECT_LENGTH, OpenRequest, Peer
from mail.core.task.limits import TURNS_PER_STEP, Budget
from mail.core.task.mailboxes import agent_of
from mail.core.task.members import member_of, show_peer
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Generation, Task, TaskKey, TaskStatus, Transition
from mail.errors import BadRequest, Forbidden, Subject, TaskNotFound

FINGERPRINT = 12
"""The length of a message's fingerprint, in hexadecimal digits."""

REMEMBERED = 256
"""The number of fingerprints that a task stores, to drop duplicates."""

MAX_CONTRIBUTORS = 64
"""The number of contributors that a message may name; a task may have twice as many."""

MAX_NUMBER = 1_000_000


def possible_keys(
    message: MAILInterswarmMessage, swarm: SwarmCore, caller_id: str, *, back: bool
) -> list[TaskKey]:
    """Return the keys under which the message's task may be stored, most likely first; a new task gets the last.

    They follow the contributors of this swarm, in order. Raises BadRequest for a message to another swarm.
    """
    if message.target_swarm != swarm.name:
        raise BadRequest(f"this is swarm {swarm.name!r}; the message is for {message.target_swarm!r}")
    if message.source_swarm == swarm.name or not is_swarm_name(message.source_swarm):
        raise BadRequest(f"source_swarm {message.source_swarm[:200]!r} must be the name of another swarm")
    principals = message.task_contributors
    if len(principals) > MAX_CONTRIBUTORS or max(map(len, principals)) > MAX_PRINCIPAL:
        raise BadRequest(
            f"task_contributors are more than {MAX_CONTRIBUTORS}, or one has more than {MAX_PRINCIPAL} characters"
        )
    ours = [each for each in message.task_contributors if Principal.parse(each).swarm == swarm.name]
    if back and not ours:
        raise BadRequest("no contributor belongs to this swarm; send a new task to /interswarm/forward")
    instances = dict.fromkeys(ours if back else (*ours, runner_of(caller_id, swarm)))
    return [TaskKey(instance, message.payload.task_id) for instance in instances]


def runner_of(caller_id: str, swarm: SwarmCore) -> str:
    """Return the instance under which tasks of another swarm are stored. Raises BadRequest for an invalid id."""
    return str(Principal.parse(f"swarm:{caller_id}@{swarm.name}"))


def may_reach(
    task: Task, swarm: SwarmCore, message: MAILInterswarmMessage, *, caller_id: str, is_known: bool
) -> bool:
    """Return whether a message may access a task: its swarm is the task's parent, or takes part in it.

    `caller_id` is the id of the message's token; `is_known` is whether that token belongs to the message's source
    swarm.
    """
    if task.instance == runner_of(caller_id, swarm) and message.source_swarm == task.parent_swarm:
        return True
    return is_known and message.source_swarm in task.peers


def receive(
    draft: Draft, message: MAILInterswarmMessage, *, entrypoints_only: bool = False
) -> TaskChange | None:
    """Decide the effect of a message on its task; None for a duplicate. Raises BadRequest, Forbidden.

    With `entrypoints_only`, other swarms reach only agents that people may write to, and those that wait for their
    answer.
    """
    task = draft.before
    if task.owner != message.task_owner:
        raise BadRequest(f"task {task.task_id!r} belongs to {task.owner}, not to {message.task_owner}")
    if _fingerprint(message) in task.received:
        return None
    return _Reception(draft, message, entrypoints_only=entrypoints_only).decide()


def add_answer(draft: Draft, message: MAILInterswarmMessage) -> None:
    """Add an answer that a peer has given when it was asked for it."""
    _Reception(draft, message, entrypoints_only=False).apply()


def begin(
    swarm: SwarmCore,
    key: TaskKey,
    message: MAILInterswarmMessage,
    clock: Clock,
    *,
    hop_limit: int,
    entrypoints_only: bool = False,
) -> TaskChange:
    """Decide the effect of a message that begins a task.

    Raises BadRequest, Forbidden as `receive`, or TaskNotFound if the message reports an end.
    """
    if is_end(message):
        raise TaskNotFound(f"there is no task {key.task_id!r}")
    hops = _number(message.payload, HOPS) or 1
    if hops > hop_limit:
        raise BadRequest(f"the task has passed through {hops} swarms, and the limit is {hop_limit}")
    task = Task(
        instance=key.instance,
        task_id=key.task_id,
        status=TaskStatus.RUNNING,
        owner=message.task_owner,
        contributors=(),
        entrypoint=swarm.entrypoint,
        title=title_of(message.payload.subject, message.payload.body),
        started=clock.now().isoformat(),
        limits=swarm_limits(swarm),
        generation=Generation(output_schema=swarm.output_schema, versions=(swarm.digest,)),
        parent_swarm=message.source_swarm,
        hops=hops,
    )
    draft = Draft(task, swarm, clock)
    return _Reception(draft, message, is_new=True, entrypoints_only=entrypoints_only).decide()


class _Reception:
    """The reception of one message from another swarm."""

    def __init__(
        self,
        draft: Draft,
        message: MAILInterswarmMessage,
        *,
        is_new: bool = False,
        entrypoints_only: bool,
    ) -> None:
        self.draft = draft
        self.task = draft.before
        self.swarm = draft.swarm
        self.wrapper = message
        self.payload = message.payload
        self.source = message.source_swarm
        self.is_new = is_new
        self.entrypoints_only = entrypoints_only

    def decide(self) -> TaskChange:
        self.apply()
        return self.draft.seal()

    def apply(self) -> None:
        draft, task = self.draft, self.task
        draft.received = (*draft.received, _fingerprint(self.wrapper))[-REMEMBERED:]
        contributors = dict.fromkeys((*draft.contributors, *self.wrapper.task_contributors))
        if task.parent_swarm is not None:
            contributors[task.instance] = None
        if len(contributors) > 2 * MAX_CONTRIBUTORS:
            raise BadRequest(
                f"task {task.task_id!r} would have more than {2 * MAX_CONTRIBUTORS} contributors"
            )
        draft.contributors = tuple(contributors)
        linked = {file.id: file.size for file in files_in(self.payload.routing_info) if file.link}
        fetched = [size for size in linked.values() if size <= MAX_FILE_BYTES]  # by a turn, later
        draft.stored_bytes += sum(fetched)
        sender = self._sender()
        is_system = sender.address_type == "system"
        draft.add_peer(
            self.source, EVERYONE if is_system else parse_agent_address(sender.address)[0], has_task=True
        )
        is_answer = self.wrapper.msg_type in ("response", "broadcast_complete")
        is_over = self.source == self.task.parent_swarm and not self.is_new and is_end(self.wrapper)
        is_echo = is_answer and not is_over and self._answers_the_end(draft.peers[self.source])
        is_known = not draft.is_running and (is_over or is_echo)
        if not is_known:  # else the end is in the record already, and stays its last event
            what = "interswarm message" if member_of(self.source) is None else "mail"
            draft.emit(
                EventKind.INTERSWARM_MESSAGE_RECEIVED, f"received {what} from {show_peer(self.source)}"
            )
        if is_over:
            self._close()
        elif is_answer and not is_echo:
            self._answer()
        elif not is_answer:
            self._deliver(self.wrapper.msg_type, self._recipients())

    def _close(self) -> None:
        """End the task here, unless it has ended, and notify the swarms that it has involved."""
        draft = self.draft
        ending = self._message("broadcast_complete", (create_agent_address(EVERYONE),))
        if draft.status is TaskStatus.RUNNING:
            draft.unread_questions = ()
            draft.move(Transition.COMPLETE)
            draft.end_with(ending)
        draft.drop_requests()
        draft.tell_peers(ending, but=self.source)

    def _answer(self) -> None:
        """Deliver an answer to its requester; in a stopped task, an answer that nobody awaits is a dead letter."""
        draft = self.draft
        peer = self.draft.peers[self.source]
        asked = self._request_answered()
        if asked is not None:
            draft.close_request(asked)
            if asked.sender:
                self._deliver("response", [asked.sender])
            elif draft.is_running:
                sender = self._sender()
                message = self._message("response", (draft.owner_address,))
                draft.answer_owner(sender, self.payload.body, message=message)
            else:
                self._dead_letter_answer()
            return
        if draft.is_running or self.source == self.task.parent_swarm:
            recipients = self._recipients() if self.wrapper.msg_type == "response" else [self.task.entrypoint]
            if not any(draft.mailboxes_of(name, "response") for name in recipients):
                self._dead_letter_answer()
            else:
                self._deliver("response", recipients)
        else:
            self._dead_letter_answer()
        if peer.unanswered:
            draft.peers = {**draft.peers, self.source: replace(peer, unanswered=peer.unanswered - 1)}

    def _answers_the_end(self, peer: Peer) -> bool:
        """Return whether a message only answers the notice that the task has ended.

        It does if it reports an end, too, or if it comes from the agent that was notified, and all requests to the peer
        have their answers.
        """
        if is_end(self.wrapper) and peer.end_delivered:
            return True
        if self.draft.is_running or peer.unanswered or not (peer.end_message or peer.end_delivered):
            return False
        sender = self._sender()
        is_told = sender.address_type == "system" or parse_agent_address(sender.address)[0] == peer.agent
        return is_told or is_end(self.wrapper)

    def _dead_letter_answer(self) -> None:
        """Make an answer that nobody awaits a dead letter of the agent addressed."""
        names = (parse_agent_address(recipient.address)[0] for recipient in self.payload.recipients)
        reader = next((name for name in names if name in self.swarm.agents), self.task.entrypoint)
        message = self._message("response", [create_agent_address(reader)])
        reason = "it came after the task had stopped"
        self.draft.dead_letter(reader, reason, 1, message=message, message_seq=None)

    def _request_answered(self) -> OpenRequest | None:
        """Return the request that the message answers: found by its id, else by sender and recipient.

        An answer of a whole swarm, from its system or by completing its task, answers any request to the swarm.
        """
        open_requests = [request for request in self.draft.requests if request.recipient_swarm == self.source]
        payload, sender = self.payload, self._sender().address
        by_id = payload.request_id if isinstance(payload, MAILResponse) else None
        if member_of(self.source) is not None:  # whose other mail answers nothing
            return next((request for request in open_requests if request.request_id == by_id), None)
        readers = {parse_agent_address(recipient.address)[0] for recipient in payload.recipients}
        of_reader = [each for each in open_requests if not each.sender or agent_of(each.sender) in readers]
        whole = not isinstance(payload, MAILResponse) or payload.sender.address_type == "system"
        choices = [
            *(request for request in open_requests if request.request_id == by_id),
            *(request for request in of_reader if request.recipient == sender),
            *of_reader,
            *(open_requests if whole else ()),
        ]
        return choices[0] if choices else None

    def _deliver(self, kind: MessageType, readers: Sequence[str]) -> None:
        draft, task = self.draft, self.task
        joins = self.source == task.parent_swarm and draft.is_running and not self.is_new
        if self.is_new:
            draft.entrypoint = readers[0] if len(readers) == 1 else task.entrypoint
        elif self.source == task.parent_swarm and not draft.is_running:
            abandon_breakpoint(draft)
            draft.move(Transition.RESUME)
            draft.generation = draft.generation.next(
                version=self.swarm.digest, output_schema=self.swarm.output_schema
            )
            draft.limits = swarm_limits(self.swarm)
        if self.source == task.parent_swarm:
            self._limit_steps()
            self._limit_budget()
        message = self._message(kind, [create_agent_address(agent_of(name)) for name in readers])
        mailboxes = draft.send(message, readers)
        by_person = message.sender.is_person
        if mailboxes and (isinstance(message.message, MAILRequest) or by_person):
            seq = draft.last_seq if joins else 0
            request_id, sender = self.payload.own_id, message.sender.address
            draft.open_request(
                OpenRequest(
                    request_id=request_id,
                    sender=sender,
                    recipient=mailboxes[0],
                    seq=seq,
                    subject=self.payload.subject[:SUBJECT_LENGTH],
                )
            )
            if joins:
                draft.add_unread_question(mailboxes[0], seq)

    def _limit_steps(self) -> None:
        """Limit the steps to those that the parent swarm has left."""
        left = _number(self.payload, STEPS_LEFT)
        if left is None:
            return
        own, draft = swarm_limits(self.swarm), self.draft
        steps = min(own.steps, draft.generation.steps + left)
        draft.limits = replace(draft.limits, steps=steps, turns=min(own.turns, steps * TURNS_PER_STEP))

    def _limit_budget(self) -> None:
        """Limit the budget to what the parent swarm has left, plus what was used here."""
        left = _budget(self.payload)
        if left is None:
            return
        draft = self.draft
        spent, turns = draft.generation.spent, draft.generation.turns
        budget = Budget(
            turns=None if left.turns is None else turns + left.turns,
            tokens=None if left.tokens is None else spent.tokens + left.tokens,
            cost=None if left.cost is None else spent.cost + left.cost,
            seconds=left.seconds,
        )
        draft.limits = draft.limits.within(budget, draft.clock.now().timestamp())

    def _recipients(self) -> list[str]:
        """Return the agents of this swarm that the message addresses.

        Raises BadRequest for none, or an unknown one; Forbidden for one that other swarms can't reach.
        """
        found: dict[str, None] = {}
        reachable = self._reachable()
        for recipient in self.payload.recipients:
            name, where = parse_agent_address(recipient.address)
            if where not in (None, self.swarm.name):
                continue
            if name == EVERYONE:
                found |= dict.fromkeys(reachable)
            elif name in reachable:
                found[name] = None
            elif name in self.swarm.agents:
                raise Forbidden(
                    f"agent {name!r} of swarm {self.swarm.name!r} takes no messages of other swarms; write to one of: "
                    f"{', '.join(reachable)}"
                )
            else:
                raise BadRequest(
                    f"swarm {self.swarm.name!r} has no agent {name!r}{did_you_mean(name, self.swarm.agents)}"
                )
        if not found:
            raise BadRequest(f"no recipient of the message is in swarm {self.swarm.name!r}")
        return list(found)

    def _reachable(self) -> list[str]:
        """Return the agents that the other swarm may write to."""
        if not self.entrypoints_only:
            return list(self.swarm.agents)
        asked = self.draft.requests
        waiting = {agent_of(each.sender) for each in asked if each.recipient_swarm == self.source}
        return [
            name for name, agent in self.swarm.agents.items() if agent.enable_entrypoint or name in waiting
        ]

    def _sender(self) -> MAILAddress:
        """Return the sender as `name@swarm`, with the swarm that sent the message. Raises BadRequest."""
        sender = self.payload.sender
        if member_of(self.source) is not None:
            return sender
        name, _ = parse_agent_address(sender.address)
        address = self.source if sender.address_type == "system" else join_agent_address(name, self.source)
        try:
            return MAILAddress(address_type=sender.address_type, address=address if name else "")
        except ValidationError as error:
            raise BadRequest(
                f"the sender {sender.address!r} must be the address of an agent or a person"
            ) from error

    def _message(self, kind: MessageType, recipients: Sequence[MAILAddress]) -> MAILMessage:
        """Return the message as mail of this swarm; `kind` differs where a completion is an answer here."""
        payload = self.payload
        return compose_message(
            kind,
            task_id=self.task.task_id,
            sender=self._sender(),
            recipients=recipients,
            subject=payload.subject,
            body=payload.body,
            clock=self.draft.clock,
            request_id=payload.own_id,
            sender_swarm=self.source if member_of(self.source) is None else None,
            routing_info=payload.routing_info,
        )


def is_end(message: MAILInterswarmMessage) -> bool:
    """Return whether a message reports a completion; on the wire, its type or its subject shows it."""
    labelled = message.payload.subject == Subject.TASK_COMPLETE
    return message.msg_type == "broadcast_complete" or (message.msg_type == "response" and labelled)


def _fingerprint(message: MAILInterswarmMessage) -> str:
    """Return a digest of the message's source swarm and id, to detect duplicates."""
    text = f"{message.source_swarm}\n{message.message_id}"
    return sha256(text.encode()).hexdigest()[:FINGERPRINT]


def _budget(payload: MAILPayload) -> Budget | None:
    """Return the budget in `routing_info`; None without a valid one."""
    try:
        return Budget.model_validate((payload.routing_info or {}).get(BUDGET_LEFT))
    except ValidationError:
        return None


def _number(payload: MAILPayload, name: str) -> int | None:
    """Return a positive number from `routing_info`; None without a valid one."""
    value = (payload.routing_info or {}).get(name)
    return value if type(value) is int and 0 < value <= MAX_NUMBER else None
