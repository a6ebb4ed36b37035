"""What must hold of what the dead have left: the invariants of `chaos.invariants`, and those of this scenario."""

import json
import os
import pickle
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from crash_points import read_lines
from crash_scenario import IDEMPOTENT, PONGS, RESULTS, UNKNOWN, expected_answers

from chaos.invariants import Attempt, Found, Run, at_rest, read
from mail.core.task.change import TaskChange
from mail.core.task.events import TERMINAL, EventKind
from mail.core.task.extras import CallExtra
from mail.core.task.ports import Store
from mail.core.task.task import TaskKey


@dataclass(frozen=True)
class Logs:
    """What is written down outside of the database, by the actions, the agents and the people."""

    folder: Path

    @property
    def actions(self) -> Path:
        """One line for each time an action took effect: the call and the action."""
        return self.folder / "actions"

    @property
    def later(self) -> Path:
        """One line for each action that has said once that it can't be done now."""
        return self.folder / "later"

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


class Journal:
    """Every change that a process of the run has sent to the store, kept outside of the database.

    A change is a file, named after the process and its number; once the commit is acknowledged, it is renamed to
    `….kept`.
    """

    def __init__(self, logs: Logs) -> None:
        self._folder = logs.folder / "journal"
        self._folder.mkdir(exist_ok=True)
        self._numbers = count()

    def commit_to(self, store: Store) -> Callable[[TaskChange], Awaitable[None]]:
        """Return the `commit` of a store that writes each attempt down."""

        async def noted(change: TaskChange) -> None:
            path = self._folder / f"{os.getpid()}-{next(self._numbers)}"
            path.with_suffix(".new").write_bytes(pickle.dumps(change))
            path.with_suffix(".new").rename(path)
            await store.commit(change)
            path.rename(path.with_suffix(".kept"))

        return noted

    def attempts(self, key: TaskKey) -> list[Attempt]:
        """Return those of a task."""
        files = [path for path in self._folder.iterdir() if path.suffix != ".new"]
        attempts = [Attempt(pickle.loads(path.read_bytes()), path.suffix == ".kept") for path in files]
        return [attempt for attempt in attempts if attempt.change.key == key]


async def find(store: Store, key: TaskKey, logs: Logs) -> Found | None:
    """Return all there is to know of a task, if it exists."""
    if await store.load(key) is None:
        return None
    task, stored = await read(store, key, now=0.0)
    ran = [Run(*line.split()) for line in read_lines(logs.actions)]
    attempts = Journal(logs).attempts(key)
    return Found(task, **stored, attempts=attempts, ran=ran, idempotent=IDEMPOTENT)  # type: ignore[arg-type]


def what_was_left(found: Found, logs: Logs, owner: str) -> Iterator[str]:
    """Yield what is wrong with a task while no process runs."""
    yield from map(str, at_rest(found))
    reported = {event.extra.tool_call_id for event in found.events if isinstance(event.extra, CallExtra)}
    dropped = sum(event.kind is EventKind.BROADCAST_IGNORED for event in found.events)
    made = {
        call["id"]
        for history in found.histories.values()
        for entry in history
        for call in entry.get("tool_calls") or ()  # type: ignore[attr-defined]
    }
    if not made <= reported or len(reported - made) != dropped:
        yield f"2. calls in histories: {sorted(made)}, calls reported: {sorted(reported)}"
    if owner == "ann":
        seen = read_lines(logs.seen)
        happened = [f"{event.seq} {event.kind} {event.text.splitlines()[:1]}" for event in found.events]
        if seen != happened[: len(seen)]:
            yield f"3. seen:\n{seen}\nhappened:\n{happened}"


def asked_again(logs: Logs) -> Iterator[str]:
    """Yield what is wrong if no process has resumed that was taken for dead."""
    kept: set[str] = set()
    for line in read_lines(logs.thoughts):
        what, _, thought = line.partition(" ")
        if what == "kept":
            kept.add(thought)
        elif thought in kept:
            yield f"the model was asked again although its output was kept: {thought}"


def in_the_end(found: Found, logs: Logs, owner: str, deaths: int) -> Iterator[str]:
    """What must hold of a task when it has come to its end."""
    answers = [response.message.body for response in found.responses if response is not None]
    if owner == "bob":
        if answers != PONGS or found.inbox or found.task.is_running:
            yield f"bob's answers are {answers}, he has {found.inbox}"
        return
    if len(answers) != 3:
        yield f"the answers are {answers}"
        return
    ran = Counter(run.action for run in found.ran)
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
    if not any(event.kind is EventKind.CONTEXT_CUT for event in found.events):
        yield "no history has become a summary"
    last = max(event.seq for event in found.events if event.kind in TERMINAL)
    if len(read_lines(logs.seen)) < last:
        yield "3. ann has not seen the end"
