"""Forking: a new task from a snapshot of another one, to try another message or another version of the swarm.

Pure functions. A fork takes the agents' histories and mail, but nothing that involves other swarms or the first task's
callers: mail for other swarms, requests to or from them, pending answers. Agents that wait for any of it are notified.
A fork of a running task is paused unless `run` is given; its mail is processed when it is resumed. Its actions run as
`actions` says, from the first turn to the last.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter

from mail.core.decisions.reviewers import new_id
from mail.core.decisions.stalls import prevent_stall
from mail.core.decisions.submit import title_of
from mail.core.protocol.address import Principal, parse_agent_address
from mail.core.protocol.calls import tool_result
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import DEFAULT_SUBJECT
from mail.core.task.change import InboxEntry, Inheritance, Snapshot, TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import ForkExtra, HistoryExtra
from mail.core.task.interswarm import OpenRequest, UnreadQuestion
from mail.core.task.limits import NO_BUDGET, Budget
from mail.core.task.mailboxes import peer_of
from mail.core.task.members import show_address
from mail.core.task.size import message_size
from mail.core.task.swarm import History, SwarmCore
from mail.core.task.task import UNKNOWN_SEQ, ForkActions, Generation, Task, TaskStatus
from mail.core.task.turn_state import Breakpoint
from mail.errors import BadRequest, Subject

_ACTIONS = {
    ForkActions.RUN: "",
    ForkActions.ASK: "; actions that are not read-only wait for approval",
    ForkActions.REFUSE: "; actions that are not read-only are refused",
}

FORK_OF = "Fork of "
"""Begins the title of a fork."""


def fork(
    snapshot: Snapshot,
    mail: Iterable[InboxEntry],
    inherited: Inheritance,
    swarm: SwarmCore,
    caller: Principal,
    task_id: str,
    clock: Clock,
    *,
    run: bool = False,
    actions: ForkActions | None = None,
    ceiling: Budget = NO_BUDGET,
) -> TaskChange:
    """Make a task for the caller from a snapshot and its mail; the agents' histories at that time are `inherited`.

    The mail may come without its texts (`InboxEntry.without_texts`): the store copies it.

    With `run` it runs immediately, within the caller's `ceiling`. `actions` defaults to what the first task has.
    Raises BadRequest if the task was not running then, and BadClientTools if its client tools clash with the swarm's.
    """
    task = snapshot.task
    if run and not _could_run(task):
        raise BadRequest(
            f"task {task.task_id!r} was {task.status.value} at {task.seq}, so its fork can't run by itself; "
            "fork it without run, and send it a message"
        )
    if task.generation.client_tools is not None:
        task.generation.client_tools.check({*swarm.actions, *swarm.breakpoint_tools})
    new = _begin(snapshot, swarm, caller, task_id, clock, run=run)
    if actions is not None:
        new = replace(new, actions=actions)
    if run:
        budget = new.limits.budget.tightened(ceiling)
        new = replace(new, limits=new.limits.within(budget, clock.now().timestamp()))
    return _Fork(task, mail, swarm, new, clock).seal(inherited)


def _could_run(task: Task) -> bool:
    """Return whether the task needs no message to run: it was running, or is a paused fork of a running one."""
    return task.is_running or (task.status is TaskStatus.PAUSED and task.generation.breakpoint is None)


def _begin(
    snapshot: Snapshot, swarm: SwarmCore, caller: Principal, task_id: str, clock: Clock, *, run: bool
) -> Task:
    """Return the new task before its first commit; without `run` its generation has number 0."""
    task = snapshot.task
    owner, now = str(caller), clock.now()
    paused_at = task.generation.breakpoint
    cancelled = task.cancellation if task.status is TaskStatus.CANCELLED else None
    if run:
        status = TaskStatus.RUNNING
    else:
        status = TaskStatus.PAUSED if task.is_running else task.status
    return Task(
        instance=owner,
        task_id=task_id,
        status=status,
        owner=owner,
        contributors=(owner,),
        entrypoint=task.entrypoint if task.entrypoint in swarm.agents else swarm.entrypoint,
        title=_title(task),
        started=now.isoformat(),
        limits=task.limits.without_time(),
        generation=Generation(
            number=1 if run else 0,
            faults={agent: count for agent, count in task.generation.faults.items() if swarm.has(agent)},
            breakpoint=_without_time(paused_at, clock) if paused_at and swarm.has(paused_at.agent) else None,
            client_tools=task.generation.client_tools,
            notes=task.generation.notes,
            output_schema=task.generation.output_schema,
            run=task.generation.run,
            versions=(swarm.digest,),
            began=UNKNOWN_SEQ,
            pins={agent: pins for agent, pins in task.generation.pins.items() if swarm.has(agent)},
        ),
        contexts={agent: each for agent, each in task.contexts.items() if swarm.has(agent)},
        switches={agent: switch for agent, switch in task.switches.items() if agent in swarm.agents},
        manual=task.manual,
        actions=task.actions,
        forked_from=task.task_id,
        cancellation=cancelled and replace(cancelled, seq=0),
    )


def _title(task: Task) -> str | None:
    """Return the title of a fork, which says that it is one; a fork of a fork has the same title."""
    if task.forked_from:
        return task.title
    return title_of(DEFAULT_SUBJECT, f"{FORK_OF}{task.title or task.task_id}")


def _without_time(waiting: Breakpoint, clock: Clock) -> Breakpoint:
    """Return the breakpoint without time limits for approvals, as nobody has been asked in the fork.

    Those who may decide are the same, and find the calls under new ids.
    """
    calls = tuple(replace(call, approve_by=None) for call in waiting.calls)
    return replace(waiting, calls=calls, id=new_id(clock) if waiting.id else "")


class _Fork:
    """Builder of one fork."""

    def __init__(
        self, old: Task, mail: Iterable[InboxEntry], swarm: SwarmCore, task: Task, clock: Clock
    ) -> None:
        self._from = old
        self._mail = sorted(mail, key=attrgetter("seq"))
        self._swarm = swarm
        self._draft = Draft(task, swarm, clock)
        self._left_behind: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """What each agent is notified of."""

    def seal(self, inherited: Inheritance) -> TaskChange:
        """Return the first commit of the new task, which contains everything."""
        draft, old = self._draft, self._from
        draft.emit(
            EventKind.TASK_FORKED,
            f"this task is a fork of task {old.task_id}, as it was at {old.seq}{_ACTIONS[draft.before.actions]}",
            ForkExtra(
                forked_from=old.task_id,
                at=old.seq,
                actions="" if draft.before.actions is ForkActions.RUN else draft.before.actions.value,
            ),
        )
        draft.inherit(inherited)
        for agent, portions in inherited.portions.items():
            draft.emit(
                EventKind.HISTORY_INHERITED,
                f"agent {agent} remembers what it has done in task {old.task_id}",
                HistoryExtra(agent=agent, portions=portions),
            )
            if not_run := self._not_run(agent):
                draft.remember(agent, not_run)
        paused_at = old.generation.breakpoint
        if paused_at is not None and draft.before.generation.breakpoint is None:
            self._leave(draft.before.entrypoint, f"agent {paused_at.agent!r}, which waited for the user")
        for agent in filter(self._swarm.has, {**old.waits.calls, **old.waits.reminders}):
            self._leave(agent, f"what was to come to you later ({old.waits.of(agent)})")
        seqs = self._send_mail()
        self._keep_requests(seqs)
        draft.unread_questions = tuple(
            UnreadQuestion(mailbox=question.mailbox, seq=seqs[question.seq])
            for question in old.unread_questions
            if question.seq in seqs and self._swarm.has(question.mailbox)
        )
        draft.resumptions = tuple(
            replace(each, seq=seqs[each.seq], portions=draft.portions(each.agent))
            for each in old.resumptions
            if each.seq in seqs and each.portions == old.histories.get(each.agent)
        )
        for agent, things in self._left_behind.items():
            draft.tell(
                agent,
                Subject.RUNTIME_ERROR,
                f"This task is a fork of task {old.task_id}. It was made without: {'; '.join(things)}. "
                "You will get no answer to that here; if it still matters, write again to somebody who can act on it.",
            )
        prevent_stall(draft)
        mail = {new: old for old, new in seqs.items()}
        return replace(draft.seal(), inherits=replace(inherited, mail=mail))

    def _not_run(self, agent: str) -> History:
        """Return the results of calls of the agent that were approved for the first task, and wait to be run there."""
        waiting = self._from.approved_calls_of(agent)
        if waiting is None:
            return []
        note = "ERROR: it was not run: this task is a fork, and the call was decided on in another task"
        return [tool_result(waiting.tool_format, call.call_id, note) for call in waiting.calls]

    def _send_mail(self) -> dict[int, int]:
        """Send the waiting mail again, in order; return the new seqs by the old ones."""
        waiting: dict[int, list[InboxEntry]] = {}
        for entry in self._mail:
            if self._is_taken(entry):
                waiting.setdefault(entry.seq, []).append(entry)
        seqs = {}
        for seq, entries in waiting.items():
            first, draft = entries[0], self._draft
            message = first.message.copied_to(draft.task_id, new_id=draft.clock.new_id())
            draft.put(message, [entry.mailbox for entry in entries])
            draft.stored_bytes += first.size - message_size(first.message)
            seqs[seq] = draft.last_seq
        return seqs

    def _is_taken(self, entry: InboxEntry) -> bool:
        message = entry.message
        sender = message.sender
        is_agents = sender.address_type == "agent"
        if peer_of(entry.mailbox) is not None or entry.seq == self._from.generation.limit_notice:
            return False
        if not self._swarm.has(entry.mailbox):
            local = is_agents and sender.address in self._swarm.agents
            notified = sender.address if local else self._draft.before.entrypoint
            self._leave(notified, f"mail for agent {entry.mailbox!r}, which this swarm no longer has")
            return False
        elsewhere = is_agents and parse_agent_address(sender.address)[1] is not None
        return not (elsewhere and message.msg_type == "request")

    def _keep_requests(self, seqs: Mapping[int, int]) -> None:
        """Keep requests among the remaining agents open; notify agents that wait for any other answer."""
        has = self._swarm.has
        for request in self._from.requests:
            if has(request.sender) and has(request.recipient):
                self._draft.open_request(replace(request, seq=seqs.get(request.seq, 0)))
            elif has(request.sender):
                self._leave(request.sender, _describe(request))

    def _leave(self, agent: str, what: str) -> None:
        self._left_behind[agent][what] = None


def _describe(request: OpenRequest) -> str:
    return f"your request to {show_address(request.recipient)!r}" + (
        "" if request.recipient_swarm else ", which this swarm no longer has"
    )
