"""The invariants of DESIGN.md, checked on what the dead left behind. Each returns what is wrong, as text."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crash_scenario import IDEMPOTENT, PONGS, RESULTS, UNKNOWN, expected_answers

from mail.core.protocol.message import MAILMessage
from mail.core.protocol.xml import build_mail_xml
from mail.core.task.change import InboxEntry
from mail.core.task.events import TERMINAL, Event, EventKind
from mail.core.task.ports import Store
from mail.core.task.task import NO_MAIL, Task, TaskKey, TaskStatus
from mail.testing.agents import read_message
from mail.testing.faults import read_lines

RUN_BY_PROVIDER = {"web_search_call"}
"""The tools that get no result of ours."""


@dataclass(frozen=True)
class Logs:
    """What is written down outside of the database, by the actions, the agents and the people."""

    folder: Path

    @property
    def actions(self) -> Path:
        """One line for each time an action took effect: its name."""
        return self.folder / "actions"

    @property
    def thoughts(self) -> Path:
        """One line for each call of an agent (`call`), and for each checkpoint of its output (`kept`)."""
        return self.folder / "thoughts"

    @property
    def accepted(self) -> Path:
        """One line for each message that was accepted: whose, and which."""
        return self.folder / "accepted"

    @property
    def seen(self) -> Path:
        """One line for each event that ann saw: its seq and kind."""
        return self.folder / "seen"

    @property
    def served(self) -> Path:
        """One line for each of the people who has got every answer."""
        return self.folder / "served"

    @property
    def deaths(self) -> Path:
        """Where each process died."""
        return self.folder / "deaths"


@dataclass(frozen=True)
class Snapshot:
    """All that the database says of a task."""

    task: Task
    inbox: list[InboxEntry]
    events: list[Event]
    histories: dict[str, list[dict[str, object]]]
    responses: list[MAILMessage | None]


async def read(store: Store, key: TaskKey, agents: list[str]) -> Snapshot | None:
    task = await store.load(key)
    if task is None:
        return None
    return Snapshot(
        task=task,
        inbox=await store.read_inbox(key),
        events=await store.read_events(key),
        histories={name: await store.read_history(key, name) for name in agents},
        responses=[await store.read_response(key, n) for n in range(1, task.generation.number + 1)],
    )


def at_rest(found: Snapshot, logs: Logs, owner: str) -> Iterator[str]:
    """What must hold whenever no process runs."""
    task = found.task
    seqs = [event.seq for event in found.events]
    if seqs != list(range(1, task.seq + 1)):
        yield f"3. event seqs are not gapless: {seqs}, the task is at {task.seq}"
    counts: dict[str, list[int]] = {}
    for entry in found.inbox:
        counts.setdefault(entry.mailbox, list(NO_MAIL))[entry.tier - 1] += 1
    if task.pending != {mailbox: tuple(tiers) for mailbox, tiers in counts.items()}:
        yield f"pending says {task.pending}, the inboxes hold {counts}"
    if task.is_running and not found.inbox:
        yield "5. the task runs and has no mail"
    if (task.generation.breakpoint is not None) != (task.status is TaskStatus.PAUSED):
        yield f"the task is {task.status} and its breakpoint is {task.generation.breakpoint}"
    yield from _endings(found)
    yield from _deliveries(found)
    yield from _dead(found)
    yield from _turns(found)
    yield from _isolation(found, owner)
    yield from _actions(logs)
    if owner == "ann":
        yield from _watched(found, logs)


def _endings(found: Snapshot) -> Iterator[str]:
    terminal = [event for event in found.events if event.kind in TERMINAL]
    ended = found.task.generation.number - found.task.is_running
    if [response is not None for response in found.responses] != [
        n < ended for n in range(found.task.generation.number)
    ]:
        yield f"generation {found.task.generation.number}, {found.task.status}: responses {found.responses}"
    if [event.text for event in terminal] != [
        response.message.body for response in found.responses if response is not None
    ]:
        yield "the terminal events are not those of the responses"


def _deliveries(found: Snapshot) -> Iterator[str]:
    """1. Every message that was sent is in each mailbox once: read, or waiting, or dropped on purpose."""
    ignored = Counter(
        event.text.split()[1] for event in found.events if event.kind is EventKind.BROADCAST_IGNORED
    )
    missing: Counter[str] = Counter()
    resuming = {
        after.seq
        for before, after in pairwise(found.events)
        if before.kind is EventKind.BREAKPOINT_ACTION_COMPLETE
    }
    finishing = [response for response in found.responses if response is not None]
    for event in found.events:
        message = event.message
        if message is None or message in finishing:
            continue
        recipients = [address.address for address in message.message.recipients]
        if recipients == ["all"]:
            recipients = [name for name in found.histories if name != message.sender.address]
        for mailbox in recipients:
            prompt = build_mail_xml(message)
            read = found.histories[mailbox].count(prompt)  # type: ignore[arg-type]
            waits = sum(entry.mailbox == mailbox and entry.message == message for entry in found.inbox)
            if read + waits > 1:
                yield f"1. {mailbox} has read a message {read} times, and it waits {waits} times: {message}"
            if read + waits == 0 and event.seq not in resuming:  # the results are in the history instead
                missing[mailbox] += 1
    if missing != ignored:
        yield f"1. messages are lost: {missing}, and ignored: {ignored}"


def _dead(found: Snapshot) -> Iterator[str]:
    """1. What could not be processed is on the list, until somebody has dealt with it."""
    dead = {event.seq for event in found.events if event.kind is EventKind.DEAD_LETTER}
    for event in found.events:
        if event.kind is EventKind.DEAD_LETTER_REDRIVEN:
            dead.remove(event.extra["dead_letter"])
        elif event.kind is EventKind.DEAD_LETTER_DISCARDED:
            dead -= set(event.extra["dead_letters"])
    if tuple(sorted(dead)) != found.task.dead_letters:
        yield f"1. the dead letters are {sorted(dead)}, and the task lists {found.task.dead_letters}"


def _turns(found: Snapshot) -> Iterator[str]:
    """2. What a turn said, was answered and caused is there as a whole."""
    reported: Counter[str] = Counter(
        event.extra["tool_call_id"] for event in found.events if event.kind is EventKind.TOOL_CALL
    )
    if max(reported.values(), default=0) > 1:
        yield f"2. a call was reported twice: {reported}"
    paused_at = found.task.generation.breakpoint
    waits = found.task.approved_calls if paused_at is None else (paused_at, *found.task.approved_calls)
    waiting = {call.call_id for each in waits for call in each.calls}
    made: set[str] = set()
    for name, history in found.histories.items():
        text = [json.dumps(entry) for entry in history]
        if len(text) != len(set(text)):
            yield f"2. the history of {name} repeats itself"
        calls = {
            item["id"]: item["function"]["name"]
            for entry in history
            for item in entry.get("tool_calls") or ()  # type: ignore[attr-defined]
        }
        results = [str(entry["tool_call_id"]) for entry in history if entry.get("role") == "tool"]
        due = {call_id for call_id, tool in calls.items() if tool not in RUN_BY_PROVIDER} - waiting
        if sorted(results) != sorted(due):
            yield f"2. results of {name} are for {sorted(results)}, not {sorted(due)}"
        made |= calls.keys()
        letters = [letter for entry in history if (letter := read_message(entry)) is not None]
        first_words = [
            letter.subject for letter in letters if letter.subject in ("Form", "Band", "News", "Room")
        ]
        if name in ("scout", "clerk") and first_words != [
            subject for subject in ("Form", "News", "Room", "Band") if subject in first_words
        ]:
            yield f"4. {name} has read its first mail in the order {first_words}"
    ignored = {call_id for call_id in reported if call_id not in made}
    dropped = sum(event.kind is EventKind.BROADCAST_IGNORED for event in found.events)
    if not made <= reported.keys() or len(ignored) != dropped:
        yield f"2. calls in histories: {sorted(made)}, calls reported: {sorted(reported)}"


def _isolation(found: Snapshot, owner: str) -> Iterator[str]:
    people = {
        event.message.sender.address
        for event in found.events
        if event.message is not None and event.message.sender.address_type == "user"
    }
    if not people <= {owner} or f"user:{owner}@" not in found.task.owner:
        yield f"6. {owner}'s task holds mail of {people}"


def _actions(logs: Logs) -> Iterator[str]:
    ran = Counter(read_lines(logs.actions))
    for action, times in ran.items():
        if times > 1 and action not in IDEMPOTENT:
            yield f"2. {action} ran {times} times"


def asked_again(logs: Logs) -> Iterator[str]:
    """What must hold where no process goes on that was taken for dead."""
    kept: set[str] = set()
    for line in read_lines(logs.thoughts):
        what, _, thought = line.partition(" ")
        if what == "kept":
            kept.add(thought)
        elif thought in kept:
            yield f"the model was asked again although its output was kept: {thought}"


def _watched(found: Snapshot, logs: Logs) -> Iterator[str]:
    """3. What ann saw, over all her connections, is what happened, and each of it once."""
    seen = read_lines(logs.seen)
    happened = [f"{event.seq} {event.kind} {event.text.splitlines()[:1]}" for event in found.events]
    if seen != happened[: len(seen)]:
        yield f"3. seen:\n{seen}\nhappened:\n{happened}"


def in_the_end(found: Snapshot, logs: Logs, owner: str, deaths: int) -> Iterator[str]:
    """What must hold of a task when it has come to its end."""
    answers = [response.message.body for response in found.responses if response is not None]
    if owner == "bob":
        if answers != PONGS or found.inbox or found.task.is_running:
            yield f"bob's answers are {answers}, he has {found.inbox}"
        return
    if len(answers) != 3:
        yield f"the answers are {answers}"
        return
    ran = Counter(read_lines(logs.actions))
    known = {action: f"{action}: {UNKNOWN}" not in answers[2] for action in RESULTS}
    texts = {action: RESULTS[action] if known[action] else UNKNOWN for action in RESULTS}
    expected = expected_answers(texts["hold"], texts["book"], texts["file"], texts["pay"])
    if answers[1:] != expected:
        yield f"the answers are {answers[1:]}, not {expected}"
    if [json.loads(item["arguments"]) for item in json.loads(answers[0])] != [
        {"room": f"look: room 7, hold: {texts['hold']}", "band": f"book: {texts['book']}"},
        {},
    ]:
        yield f"the user was asked {answers[0]}"
    for action in RESULTS:
        repeated = action in IDEMPOTENT and ran[action] > 1
        if known[action] and ran[action] != 1 and not repeated:
            yield f"{action} ran {ran[action]} times, but the answer says {answers[2]}"
        if not known[action] and (action in IDEMPOTENT or not deaths):
            yield f"the outcome of {action} is said to be unknown"
    last = max(event.seq for event in found.events if event.kind in TERMINAL)
    if len(read_lines(logs.seen)) < last:
        yield "3. ann has not seen the end"
