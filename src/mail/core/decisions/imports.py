"""Imports: a task of MAIL 1.3.6 becomes a task that can be read and resumed. Pure functions.

| the old task | the new task |
| --- | --- |
| waits for the result of a breakpoint | paused, with the same question |
| was running, or has neither ended nor answered | failed; the next message resumes it |
| has ended | completed, or failed if it ended with an error |

Mail that agents had not read and open requests are lost, as MAIL 1.3.6 doesn't store them.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from mail.core.decisions.submit import title_of
from mail.core.protocol.address import (
    EVERYONE,
    MAILAddress,
    Principal,
    create_agent_address,
    create_system_address,
    parse_agent_address,
)
from mail.core.protocol.calls import ToolFormat, is_tool_result
from mail.core.protocol.clock import Clock
from mail.core.protocol.compose import compose_message, read_message
from mail.core.protocol.message import MAILMessage, TaskId
from mail.core.protocol.values import Value
from mail.core.task.change import HistoryRecord, TaskChange
from mail.core.task.draft import SENDING
from mail.core.task.events import TERMINAL, Event, EventKind, encode_events, read_extra
from mail.core.task.extras import EndExtra, HistoryExtra
from mail.core.task.interswarm import Peer
from mail.core.task.limits import TURNS_PER_STEP, Limits
from mail.core.task.size import message_size
from mail.core.task.swarm import History
from mail.core.task.task import UNKNOWN_SEQ, Generation, Task, TaskStatus
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.errors import BadRequest, Subject

STEPS, ENTRYPOINT = 15, "supervisor"
"""Defaults of MAIL 1.3.6. A task that resumes gets the limits of its swarm."""

INTERRUPTED = (
    "MAIL 1.3.6 had not finished this task when it was imported. Send it a message to resume it: the agents remember "
    "what they have done, but mail that they had not read is lost."
)


def _parse(value: object) -> object:
    return from_json(value) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...] | None, BeforeValidator(_parse)]


class OldHistory(Value):
    """An agent's history in a task."""

    agent_name: str
    tool_format: ToolFormat
    history: Annotated[list[dict[str, Any]], BeforeValidator(_parse)]


class OldEvent(Value):
    """An event; its data is an object, JSON text or other text."""

    event_type: str | None
    event_data: Any
    created_at: datetime


class OldTask(Value):
    """A task of MAIL 1.3.6 with everything in its tables. Values of JSON columns may be JSON text.

    Attributes:
        task_owner: None if there are only histories of the task.
        histories: the last of each agent, in the order in which they began.
        response: the last answer, or the calls that wait for results; None without any.
    """

    swarm_name: str
    caller_role: Literal["admin", "user", "agent", "swarm"]
    caller_id: str
    task_id: TaskId
    task_owner: str | None
    task_contributors: Names
    remote_swarms: Names
    is_running: bool
    completed: bool
    start_time: datetime
    histories: tuple[OldHistory, ...]
    events: tuple[OldEvent, ...]
    response: Annotated[dict[str, Any] | None, BeforeValidator(_parse)]


class _OldCall(BaseModel):
    name: str
    arguments: Annotated[dict[str, Any], BeforeValidator(_parse)]
    id: str = ""
    call_id: str = ""


_CALLS = TypeAdapter(list[_OldCall])


def import_task(old: OldTask, entrypoint: str, clock: Clock) -> TaskChange:
    """Return the commit that creates the task; `entrypoint` is that of its swarm, empty if that is not known.

    Raises BadRequest for a task that can't be imported.
    """
    timeline = _timeline(old.events)
    messages = [event.message for event in timeline if event.message is not None]
    histories = {each.agent_name: each.history for each in old.histories if each.history}
    first = next((each for each in messages if each.sender.is_person), None)
    entrypoint = _recipient(first) or entrypoint or next(iter(histories), ENTRYPOINT)
    status, answer, waiting = _outcome(old, timeline, entrypoint, clock)
    if waiting is not None:
        histories[waiting.agent] = _with_calls(histories.get(waiting.agent, []), waiting)
    started, now = _in_utc(old.start_time).isoformat(), clock.now().isoformat()
    end = next((event for event in reversed(timeline) if event.is_terminal), None)
    if end is None or end.text != answer.message.body:
        kind = EventKind.TASK_ERROR if status is TaskStatus.FAILED else EventKind.TASK_COMPLETE
        timeline.append(Event(0, kind, timeline[-1].timestamp if timeline else started, answer.message.body))
    notes = [Event(0, EventKind.IMPORTED, started, f"this task was imported from MAIL 1.3.6 at {now}")]
    for agent, history in histories.items():
        text = f"agent {agent} remembers what it has done in MAIL 1.3.6"
        extra = HistoryExtra(agent=agent, entries=len(history))
        notes.append(Event(0, EventKind.HISTORY_INHERITED, started, text, extra))
    events = tuple(event._replace(seq=seq) for seq, event in enumerate([*notes, *_mark_pauses(timeline)], 1))
    encoded = encode_events(events)
    records = tuple(HistoryRecord(agent, 1, history) for agent, history in histories.items())
    history_bytes = sum(len(each.encoded) for each in records)
    ended = sum(event.is_terminal for event in events)
    instance, owner, contributors, parent = _people(old)
    task = Task(
        instance=instance,
        task_id=old.task_id,
        status=status,
        owner=owner,
        contributors=contributors,
        entrypoint=entrypoint,
        title=None if first is None else title_of(first.message.subject, first.message.body),
        started=started,
        updated=now,
        seq=len(events),
        version=1,
        limits=Limits(steps=STEPS, turns=STEPS * TURNS_PER_STEP),
        generation=Generation(number=ended, breakpoint=waiting, began=UNKNOWN_SEQ),
        histories=dict.fromkeys(histories, 1),
        peers=_peers(old, messages, parent),
        parent_swarm=parent,
        hops=0 if parent is None else 1,
        stored_bytes=len(encoded) + history_bytes + message_size(answer),
        history_bytes=history_bytes,
    )
    return TaskChange(
        task=task,
        expected_version=0,
        histories=records,
        events=events,
        encoded_events=encoded,
        response=answer,
        ended=ended,
    )


def _people(old: OldTask) -> tuple[str, str, tuple[str, ...], str | None]:
    """Return the task's instance, its owner, its contributors, and the swarm that sent it here."""
    instance = _principal(f"{old.caller_role}:{old.caller_id}@{old.swarm_name}")
    owner = instance if old.task_owner is None else _principal(old.task_owner)
    people = dict.fromkeys((owner, *map(_principal, old.task_contributors or ()), instance))
    names, parent = tuple(map(str, people)), None
    if instance.role == "swarm":  # a swarm adds itself behind the one that sent the task
        before = [each.swarm for each in people][: names.index(str(instance))]
        parent = next((swarm for swarm in reversed(before) if swarm != old.swarm_name), None)
    return str(instance), str(owner), names, parent


def _principal(text: str) -> Principal:
    role, colon, rest = text.partition(":")
    return Principal.parse(f"{'swarm' if role == 'agent' else role}{colon}{rest}")


def _peers(old: OldTask, messages: list[MAILMessage], parent: str | None) -> dict[str, Peer]:
    agents: dict[str | None, str] = {}
    for message in messages:
        for address in (message.sender, *message.message.recipients):
            name, swarm = parse_agent_address(address.address)
            agents.setdefault(swarm, name)
    swarms = {*(old.remote_swarms or ()), parent or old.swarm_name} - {old.swarm_name}
    return {swarm: Peer(agent=agents.get(swarm, EVERYONE), has_task=True) for swarm in sorted(swarms)}


def _recipient(first: MAILMessage | None) -> str:
    """Return the agent that a person's first message went to; empty if it went to several, or there is none."""
    name = EVERYONE if first is None else first.message.recipients[0].address
    return "" if name == EVERYONE else name


def _timeline(old: tuple[OldEvent, ...]) -> list[Event]:
    """Return the events in order, with seqs that are still to come.

    Pings are left out, and so are repetitions, as MAIL 1.3.6 stores all events whenever the task completes.
    """
    once: dict[bytes, OldEvent] = {}
    for each in old:
        if each.event_type != "ping":
            once.setdefault(to_json((each.event_type, each.event_data)), each)
    return sorted(map(_event, once.values()), key=lambda event: event.timestamp)


def _event(old: OldEvent) -> Event:
    data, time = old.event_data, old.created_at
    with suppress(ValueError):
        data = _parse(data)
    data = data if isinstance(data, dict) else {"description": data}
    with suppress(ValueError):
        time = datetime.fromisoformat(str(data.get("timestamp")))
    name = old.event_type or ""
    kind = EventKind(name) if name in EventKind else EventKind.IMPORTED
    text = data.get("response" if kind in TERMINAL else "description", "")
    text = text if isinstance(text, str) else json.dumps(text)
    extra = data["extra_data"] if isinstance(data.get("extra_data"), dict) else {}
    message = _message(extra.get("full_message"))
    if message is not None:
        text, extra = SENDING, {key: fact for key, fact in extra.items() if key != "full_message"}
    if kind is EventKind.IMPORTED:
        extra = {**extra, "event": name}
    return Event(0, kind, _in_utc(time).isoformat(), text, read_extra(kind, extra), message)


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _message(given: object) -> MAILMessage | None:
    with suppress(BadRequest):
        return read_message(given) if isinstance(given, dict) else None
    return None


def _outcome(
    old: OldTask, timeline: list[Event], entrypoint: str, clock: Clock
) -> tuple[TaskStatus, MAILMessage, Breakpoint | None]:
    """Return how the task ended, its answer, and what it waits for."""

    def compose(sender: MAILAddress, subject: Subject, body: str) -> MAILMessage:
        return compose_message(
            "broadcast_complete",
            task_id=old.task_id,
            sender=sender,
            recipients=[create_agent_address(EVERYONE)],
            subject=subject.value,
            body=body,
            clock=clock,
        )

    last = {event.kind: n for n, event in enumerate(timeline)}
    asked = last.get(EventKind.BREAKPOINT_TOOL_CALL, -1)
    end = timeline[max(last[kind] for kind in TERMINAL & last.keys())] if TERMINAL & last.keys() else None
    answer = _message(old.response)
    if answer is None and end is not None:
        subject = Subject.TASK_COMPLETE if asked < 0 else Subject.BREAKPOINT_TOOL_CALL
        answer = compose(create_agent_address(entrypoint), subject, end.text)
    elif answer is None and old.response is not None:
        raise BadRequest("its response is not a message, and no event has the answer")
    if answer is not None and asked >= last.get(EventKind.BREAKPOINT_ACTION_COMPLETE, -1):
        waiting = _breakpoint(old, answer)
        if waiting is not None:
            return TaskStatus.PAUSED, answer, waiting
    if old.is_running or (answer is None and not old.completed):
        return (
            TaskStatus.FAILED,
            compose(create_system_address(old.swarm_name), Subject.TASK_ERROR, INTERRUPTED),
            None,
        )
    status = (
        TaskStatus.FAILED if end is not None and end.kind is EventKind.TASK_ERROR else TaskStatus.COMPLETED
    )
    return status, answer or compose(create_agent_address(entrypoint), Subject.TASK_COMPLETE, ""), None


def _mark_pauses(timeline: Iterable[Event]) -> Iterator[Event]:
    """Add the question to answers that are pauses: those after calls of breakpoint tools."""
    question = ""
    for event in timeline:
        if event.kind is EventKind.BREAKPOINT_TOOL_CALL:
            question = event.text
        if event.is_terminal and question:
            yield event._replace(extra=EndExtra(question=question))
            question = ""
        else:
            yield event


def _breakpoint(old: OldTask, answer: MAILMessage) -> Breakpoint | None:
    """Return the calls in an answer, unless a history has their results."""
    if answer.message.subject != Subject.BREAKPOINT_TOOL_CALL:
        return None
    try:
        asked = _CALLS.validate_json(answer.message.body)
    except ValidationError:
        return None
    calls = tuple(
        PausedCall(call_id=call.call_id or call.id, name=call.name, arguments=call.arguments)
        for call in asked
    )
    entries = [entry for each in old.histories for entry in each.history if is_tool_result(entry)]
    results = {entry.get("call_id", entry.get("tool_call_id")) for entry in entries}
    if results.issuperset(call.call_id for call in calls):
        return None
    agent, tool_format = (
        answer.sender.address,
        old.histories[0].tool_format if old.histories else "completions",
    )
    for each in old.histories:  # ids of calls are unique
        if _mentions(each.history, calls[0]):
            agent, tool_format = each.agent_name, each.tool_format
    return Breakpoint(agent=agent, tool_format=tool_format, calls=calls)


def _mentions(history: History, call: PausedCall) -> bool:
    return to_json(call.call_id) in to_json(history)


def _with_calls(history: History, waiting: Breakpoint) -> History:
    """Return the history with the calls, which are missing if it was stored before the agent called.

    Agents read those of either API.
    """
    if _mentions(history, waiting.calls[0]):
        return history
    called = {
        each.call_id: {"name": each.name, "arguments": json.dumps(each.arguments)} for each in waiting.calls
    }
    calls = [{"id": call_id, "type": "function", "function": call} for call_id, call in called.items()]
    return [*history, {"role": "assistant", "content": None, "tool_calls": calls}]
