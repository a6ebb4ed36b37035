"""The effects of MAIL tools.

`ToolExecutor.perform` runs the method for a tool; it returns the text of the tool result, or raises an AgentFault
with the error for the agent.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from mail.core.decisions.help import write_guide
from mail.core.decisions.timers import drop
from mail.core.protocol.address import (
    EVERYONE,
    create_agent_address,
    is_swarm_name,
    join_agent_address,
    parse_agent_address,
)
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.clock import format_time, read_duration, read_time
from mail.core.protocol.mail_tools import (
    AcknowledgeBroadcast,
    AwaitMessage,
    DiscoverSwarms,
    Help,
    IgnoreBroadcast,
    MAILTool,
    ReadMore,
    RemindMe,
    SendBroadcast,
    SendInterrupt,
    SendInterswarmBroadcast,
    SendRequest,
    SendResponse,
    TaskComplete,
    write_message,
)
from mail.core.protocol.message import MAILMessage, MAILRequest
from mail.core.protocol.output_schema import fit
from mail.core.task.callbacks import LONGEST_IN_WORDS, LONGEST_WAIT
from mail.core.task.change import Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import AwaitExtra, Extra, TimerExtra
from mail.core.task.interswarm import SUBJECT_LENGTH, OpenRequest
from mail.core.task.mailboxes import ALL_PEERS, agent_of, peer_mailbox
from mail.core.task.members import member_address, show_address
from mail.core.task.swarm import AgentCore, FormResult
from mail.core.task.task import ENDED, TaskStatus, Transition
from mail.core.task.timers import MAX_TIMERS, MAX_TIMERS_IN_A_TURN, Timer
from mail.errors import (
    ImproperResponseToUser,
    InvalidRecipient,
    Subject,
    ToolCallFault,
    UnknownRecipient,
    UnknownTool,
    UnreachableSwarm,
)

MOST_LISTED = 20
"""How many of its reminders an agent reads at once."""


def reminders_asked(calls: Iterable[AgentToolCall]) -> set[str] | None:
    """Return the ids of the reminders that an agent cancels, if it asks for its reminders; None if it doesn't."""
    asks = [call.tool_args for call in calls if call.tool_name == RemindMe.tool_name]
    asks = [args for args in asks if not args.keys() & {"in", "at"}]
    return {str(args.get("cancel")) for args in asks} if asks else None


class ToolExecutor:
    """Performs the MAIL tools for one agent during one turn.

    Attributes:
        name: its mailbox.
        forgets: whether the agent's last call ignored the broadcast it has read.
        acts: whether the turn ran actions; their results will wake the agent.
        reminders: the first of the agent, and those that it cancels, if it asks for them.
    """

    forgets = False
    acts = False
    _set = 0

    _result: FormResult

    def __init__(self, draft: Draft, turn: Turn, agent: AgentCore, reminders: Sequence[Timer] = ()) -> None:
        self.draft = draft
        self.turn = turn
        self.name = turn.mailbox
        self.agent = agent
        self.incoming = turn.entry.message
        self.reminders = reminders

    @property
    def is_late(self) -> bool:
        """Whether the task has been resumed since the turn began."""
        return self.turn.task.generation.number != self.draft.before.generation.number

    @property
    def is_finished(self) -> bool:
        """Whether the task has ended, so that messages of agents are dropped."""
        return self.draft.status in ENDED

    def perform(self, result: FormResult) -> str:
        """Perform a tool and return its result. Raises AgentFault."""
        self.forgets = False
        tool, self._result = result.tool, result
        if tool.tool_name in self.agent.exclude_tools:
            raise UnknownTool(f"there is no tool {tool.tool_name!r}")
        return self._TOOLS[type(tool)](self, tool)

    def _send_request(self, tool: SendRequest) -> str:
        target = self._recipient(tool.target)
        if self.is_finished:
            return _DROPPED
        if self._result.settles and (answered := self._request_answered(target)) is not None:
            self.draft.close_request(answered)
        message = self._write(tool)
        assert isinstance(message.message, MAILRequest)
        [recipient] = self._send(message, target)
        self.draft.open_request(
            OpenRequest(
                request_id=message.message.request_id,
                sender=self.name,
                recipient=target if "@" in target else recipient,
                answer_deadline=self.draft.answer_deadline(target),
                routing_info=message.message.routing_info,
                subject=tool.subject[:SUBJECT_LENGTH],
            )
        )
        return f"request sent to {show_address(target)}"

    def _send_response(self, tool: SendResponse) -> str:
        asked = self._request_of_owner(tool.target)
        if asked is not None:
            body = self._fit(tool.body)
            self.draft.close_request(asked)
            self.draft.answer_owner(create_agent_address(agent_of(self.name)), body)
            return "response sent to the user"
        target = self._recipient(tool.target, answers=True)
        answered = self._request_answered(target)
        if answered is not None and self._result.settles is not False:
            self.draft.close_request(answered)
        if self.is_finished:
            return _DROPPED
        if answered is None and not self.draft.mailboxes_of(target, "response"):
            return f"nobody gets it: no copy of {target!r} waits for a response of yours"
        request_id = answered.request_id if answered else self._request_read_from(target)
        if "@" in target and tool.subject in Subject:  # on the wire, the runtime's subjects mean something
            tool = SendResponse(target=tool.target, subject=tool.subject.strip(":"), body=tool.body)
        reader = answered.sender if answered else target
        self._send(self._write(tool, request_id), reader)
        return f"response sent to {show_address(target)}"

    def _send_interrupt(self, tool: SendInterrupt) -> str:
        target = self._recipient(tool.target)
        if self.is_finished:
            return _DROPPED
        if not self.draft.mailboxes_of(target, "interrupt"):
            raise ToolCallFault(f"no copy of {target!r} is at work: send a request, and one begins it")
        self._send(self._write(tool), target)
        return f"interrupt sent to {show_address(target)}"

    def _send_broadcast(self, tool: SendBroadcast) -> str:
        if self.is_finished:
            return _DROPPED
        recipients = [name for name in self.draft.swarm.agents if name != agent_of(self.name)]
        if not recipients:
            raise UnknownRecipient("there is no other agent in this swarm to hear a broadcast")
        self.draft.send(self._write(tool), recipients)
        return f"broadcast sent to {', '.join(recipients)}"

    def _send_interswarm_broadcast(self, tool: SendInterswarmBroadcast) -> str:
        self._require_reach(tool)
        local = self.draft.swarm.name
        if local in tool.target_swarms:
            raise UnknownRecipient(f"{local!r} is this swarm; send_broadcast writes to its agents")
        swarms = dict.fromkeys(tool.target_swarms)
        for swarm in swarms:
            self._check_swarm(swarm)
        if self.is_finished:
            return _DROPPED
        message = self._write(tool)
        for swarm in swarms:
            self.draft.add_peer(swarm, EVERYONE)
            self.draft.open_broadcast(message, swarm)
        self.draft.send(message, [peer_mailbox(swarm) for swarm in swarms] or [ALL_PEERS])
        return f"broadcast sent to {', '.join(swarms) or 'all known swarms'}"

    def _discover_swarms(self, tool: DiscoverSwarms) -> str:
        self._require_reach(tool)
        self._emit(EventKind.INTERSWARM_MESSAGE_ERROR, "can't discover swarms")
        raise UnreachableSwarm("this server has no connection to other swarms")

    def _acknowledge_broadcast(self, tool: AcknowledgeBroadcast) -> str:
        self._require_broadcast(tool)
        return "broadcast acknowledged" + (f"; noted: {tool.note}" if tool.note else "")

    def _ignore_broadcast(self, tool: IgnoreBroadcast) -> str:
        self._require_broadcast(tool)
        self.forgets = True
        reason = f": {tool.reason}" if tool.reason else ""
        self._emit(EventKind.BROADCAST_IGNORED, f"ignored a broadcast{reason}")
        return "broadcast ignored"

    def _await_message(self, tool: AwaitMessage) -> str:
        draft = self.draft
        comes = self.acts or draft.has_mail or self.is_finished or draft.waits.includes(self.name)
        if not comes and all(request.sender != self.name for request in self.draft.requests):
            raise ToolCallFault(
                "there is nothing to await: you have no unanswered request and no mail is on its way; "
                "write to an agent or call task_complete"
            )
        reason = tool.reason or "no reason given"
        self.draft.emit(
            EventKind.AWAIT_MESSAGE,
            f"agent '{self.name}' is awaiting a new message: {reason}",
            AwaitExtra(agent=self.name, reason=tool.reason),
        )
        return "waiting for mail"

    def _remind_me(self, tool: RemindMe) -> str:
        if tool.cancel is not None:
            return self._cancel_reminder(tool.cancel)
        if tool.delay is None and tool.at is None:
            first = self.reminders[:MOST_LISTED]
            shown = [f"{each.id} at {format_time(each.due)}: {each.text[:80]}" for each in first]
            left = self.draft.waits.reminders.get(self.name, 0) - len(shown)
            more = [f"and {left} more"] if left > 0 else []
            return "\n".join(["your reminders:", *shown, *more]) if shown else "you have no reminders"
        draft = self.draft
        timer = Timer(id="", due=self._due(tool), mailbox=self.name, text=tool.note)
        if self.is_finished:
            return "the task is finished; there will be no reminder"
        if self._set >= MAX_TIMERS_IN_A_TURN or draft.waits.timers >= MAX_TIMERS:
            raise ToolCallFault(
                f"one turn can set {MAX_TIMERS_IN_A_TURN} reminders, and a task can have {MAX_TIMERS} timers"
            )
        self._set += 1
        timer = draft.set_timer(timer)
        draft.emit(
            EventKind.TIMER_SET,
            f"agent {self.name} will be reminded at {format_time(timer.due)}: {timer.text}",
            TimerExtra(agent=self.name, timer_id=timer.id, due=timer.due),
        )
        return f"your note comes back as a message at {format_time(timer.due)}; its id is {timer.id}"

    def _due(self, tool: RemindMe) -> float:
        """Return when a reminder is due. Raises ToolCallFault."""
        if not tool.note:
            raise ToolCallFault("note is empty: write what you want to read then")
        if tool.delay is not None and tool.at is not None:
            raise ToolCallFault("give in or at, not both")
        given, name = (tool.at, "at") if tool.delay is None else (tool.delay, "in")
        try:
            due = (
                read_time(tool.at or "")
                if tool.delay is None
                else self.draft.time_in(read_duration(tool.delay))
            )
        except ValueError as error:
            raise ToolCallFault(f"{name} must be {error}") from error
        if not due <= self.draft.time_in(LONGEST_WAIT):
            raise ToolCallFault(f"{name} may be {LONGEST_IN_WORDS} ahead at most, not {given}")
        return max(due, self.draft.time_in(0.0))

    def _cancel_reminder(self, timer_id: str) -> str:
        timer = next((each for each in self.reminders if each.id == timer_id), None)
        if timer is None:
            raise ToolCallFault(f"you have no reminder {timer_id!r}; it may have come already")
        self.reminders = [each for each in self.reminders if each is not timer]
        drop(self.draft, timer, f"agent {self.name} has cancelled")
        return f"reminder {timer_id} is cancelled"

    def _help(self, tool: Help) -> str:
        self._emit(EventKind.HELP_CALLED, "called help")
        if not self.is_finished:
            guide = write_guide(tool, agent_of(self.name), self.agent, self.draft.swarm)
            self.draft.announce(self.name, Subject.HELP, guide)
        return "help is on its way, as a message"

    def _read(self, tool: ReadMore) -> str:
        """Refuse to read: the engine runs it as an action, if the agent's context is kept within a window."""
        raise UnknownTool(f"there is no text {tool.ref!r}: you see all texts as a whole")

    def _task_complete(self, tool: TaskComplete) -> str:
        if not self.agent.can_complete_tasks:
            raise ToolCallFault("only a supervisor can complete the task; answer the agent that wrote to you")
        draft = self.draft
        if self.is_finished:
            self._emit(EventKind.TASK_COMPLETE_CALL_DUPLICATE, "called task_complete on a finished task")
            return "the task is finished already"
        if draft.status is TaskStatus.PAUSED:
            raise ToolCallFault("the task is paused until the user answers; call task_complete again then")
        if self.is_late:
            raise ToolCallFault(
                "the user has written meanwhile; read that first, then call task_complete again"
            )
        if draft.generation.output_schema is not None:
            tool = TaskComplete(finish_message=self._fit(tool.finish_message))
        waits = draft.waits
        if waits.end_with_task and not waits.warned and draft.generation.limit_notice is None:
            draft.waits = replace(waits, warned=True)
            raise ToolCallFault(
                f"this is still to come: {waits.in_words()}. Await it; or call task_complete again, and it is cancelled"
            )
        self._emit(EventKind.TASK_COMPLETE_CALL, "called task_complete, full response to follow")
        message = self._write(tool)
        draft.move(Transition.COMPLETE)
        draft.finish(message.sender, Subject.TASK_COMPLETE, tool.finish_message, message)
        return "task completed"

    def _emit(self, kind: EventKind, did: str) -> None:
        """Add an event about what the agent did."""
        self.draft.emit(kind, f"agent {self.name} {did}", Extra(agent=self.name))

    def _fit(self, answer: str) -> str:
        """Return the task's answer as its output schema demands. Raises ToolCallFault."""
        schema, swarm = self.draft.generation.output_schema, self.draft.swarm
        if schema is None:
            return answer
        answer = fit(schema, answer)
        if swarm.output_check is not None and schema == swarm.output_schema:
            swarm.output_check(answer)
        return answer

    def _write(self, tool: MAILTool, request_id: str | None = None) -> MAILMessage:
        draft = self.draft
        return write_message(
            tool,
            agent_of(self.name),
            draft.before.task_id,
            draft.clock,
            draft.timestamp,
            request_id,
            self._result.routing_info,
        )

    def _send(self, message: MAILMessage, target: str) -> Sequence[str]:
        """Put a message into the mailbox of an agent, or of its swarm."""
        if "@" not in target:
            return self.draft.send(message, (target,))
        name, swarm = parse_agent_address(target)
        assert swarm is not None
        self.draft.add_peer(swarm, name)
        return self.draft.send(message, (peer_mailbox(swarm),))

    def _recipient(self, target: str, *, answers: bool = False) -> str:
        """Return the agent that `target` names: a local one by its name, a remote one as `agent@swarm`.

        With `answers`, it may be a remote agent that has written to the sender. Raises the AgentFault that says why the
        sender can't write to it.
        """
        draft = self.draft
        name, swarm = parse_agent_address(target)
        if swarm is not None and swarm != draft.swarm.name:
            return self._remote_recipient(name, swarm, answers=answers)
        if target in draft.swarm.members and (target in self.agent.comm_targets or self._read_from(target)):
            return member_address(target)
        if name not in draft.swarm.agents:
            if not self._user_names().isdisjoint((name, target)):
                raise ImproperResponseToUser(
                    f"{name!r} is the user; users get their answer only when a supervisor calls task_complete"
                )
            known = ", ".join(draft.swarm.agents)
            raise UnknownRecipient(f"there is no agent {name!r} in this swarm; its agents are {known}")
        targets = self.agent.comm_targets
        if name not in targets and f"{name}@{draft.swarm.name}" not in targets:
            known = ", ".join(targets) or "nobody"
            raise InvalidRecipient(f"you can't write to {name!r}; you can write to {known}")
        return name

    def _request_of_owner(self, target: str) -> OpenRequest | None:
        """Return the owner's open request to this agent itself, if `target` means the owner."""
        if target in self.draft.swarm.agents:
            return None
        name, swarm = parse_agent_address(target)
        is_elsewhere = swarm not in (None, self.draft.swarm.name)
        if is_elsewhere or name in self.draft.swarm.agents or self._user_names().isdisjoint((name, target)):
            return None
        mine = (each for each in self.draft.requests if not each.sender and each.recipient == self.name)
        return next(mine, None)

    def _user_names(self) -> set[str]:
        """Return the names by which an agent could mean the user."""
        owner = self.draft.before.owner
        names = {"user", owner, owner.partition(":")[2].partition("@")[0]}
        if self.incoming.sender.is_person:
            names.add(self.incoming.sender.address)
        return names

    def _remote_recipient(self, name: str, swarm: str, *, answers: bool) -> str:
        target = join_agent_address(name, swarm)
        self._check_swarm(swarm)
        if not name:
            raise UnknownRecipient(f"{target!r} names no agent; write agent@{swarm}")
        if answers and (self.incoming.sender.address == target or self._owes(target)):
            return target
        if not self.agent.enable_interswarm:
            raise InvalidRecipient(f"you can't write to {target!r}: you may not write to other swarms")
        if target not in self.agent.comm_targets:
            known = ", ".join(self.agent.comm_targets) or "nobody"
            raise InvalidRecipient(f"you can't write to {target!r}; you can write to {known}")
        return target

    def _read_from(self, member: str) -> bool:
        """Return whether the agent has just read mail of a member, which it may answer."""
        sender = self.incoming.sender
        return sender.address_type == "agent" and sender.address == member

    def _owes(self, target: str) -> bool:
        """Return whether a request of that agent to this one is still open."""
        return any(
            request.sender == target and request.recipient == self.name for request in self.draft.requests
        )

    def _check_swarm(self, swarm: str) -> None:
        if not is_swarm_name(swarm):
            raise UnknownRecipient(f"{swarm!r} can't be the name of a swarm")

    def _require_reach(self, tool: MAILTool) -> None:
        if not self.agent.discovers:
            raise ToolCallFault(f"{tool.tool_name} is only for supervisors that may write to other swarms")

    def _require_broadcast(self, tool: MAILTool) -> None:
        is_from_system = self.incoming.sender.address_type == "system"
        if not is_from_system and self.incoming.msg_type not in ("broadcast", "broadcast_complete"):
            raise ToolCallFault(
                f"{tool.tool_name} is only for broadcasts; this message is of type {self.incoming.msg_type}"
            )

    def _request_answered(self, target: str) -> OpenRequest | None:
        """Return the request from `target` that a response answers: the one just read, else the oldest.

        A response with `routing_info` prefers requests with the same.
        """
        mine = [
            request
            for request in self.draft.requests
            if request.recipient == self.name and agent_of(request.sender) == target
        ]
        if routing_info := self._result.routing_info:
            mine = [request for request in mine if request.routing_info == routing_info] or mine
        if len(mine) < 2:
            return mine[0] if mine else None
        read = self._request_read_from(target)
        return next((request for request in mine if request.request_id == read), mine[0])

    def _request_read_from(self, target: str) -> str | None:
        payload = self.incoming.message
        sender = payload.sender
        if isinstance(payload, MAILRequest) and sender.address_type != "system" and sender.address == target:
            return payload.request_id
        return None

    _TOOLS: ClassVar[dict[type[MAILTool], Callable[..., str]]] = {
        SendRequest: _send_request,
        SendResponse: _send_response,
        SendInterrupt: _send_interrupt,
        SendBroadcast: _send_broadcast,
        SendInterswarmBroadcast: _send_interswarm_broadcast,
        DiscoverSwarms: _discover_swarms,
        AcknowledgeBroadcast: _acknowledge_broadcast,
        IgnoreBroadcast: _ignore_broadcast,
        AwaitMessage: _await_message,
        Help: _help,
        ReadMore: _read,
        RemindMe: _remind_me,
        TaskComplete: _task_complete,
    }


_DROPPED = "the task is finished; the message was dropped"
