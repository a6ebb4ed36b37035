"""The runs of a caller's tasks, for protocols that show each of them: they are read, followed and answered here."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

from fastapi import Request

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Cancelled, Failed, Item, Question, Work
from mail.core.decisions.runs import Run, after
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.engine.pacing import PIECE_BYTES
from mail.core.engine.watch import read_timeline
from mail.core.protocol.values import Value, value
from mail.core.task.audit import Act
from mail.core.task.events import Event, EventKind
from mail.core.task.files import FileRef
from mail.core.task.live import LiveEvent
from mail.core.task.size import event_size
from mail.core.task.task import ENDED, Generation, Task, TaskKey, TaskStatus
from mail.errors import TaskNotFound
from mail.http.account import CALLER, PIECE_FACTOR
from mail.http.audit import audited
from mail.http.inputs import GivenFile, Uploaded
from mail.http.service import Service, base_url, service_of
from mail.http.sse import read_batches
from mail.http.task_json import load_task, reading

OF_STATUS = frozenset(
    {
        *(EventKind.NEW_MESSAGE, EventKind.INTERSWARM_MESSAGE_RECEIVED, EventKind.BREAKPOINT_TOOL_CALL),
        *(EventKind.BREAKPOINT_ACTION_COMPLETE, EventKind.TASK_COMPLETE, EventKind.TASK_ERROR),
        EventKind.TASK_CANCELLED,
    }
)
"""The kinds of events that open questions and ends consist of."""

TAIL = 200
"""The last events of a task, among which its end most often is."""

ENDS = 1_000
"""The first and the last events of a long run, from which it is shown: the middle of it is not read."""

RUN_BYTES = 4 * 1024 * 1024
"""The size of the events of which a run keeps items: the last ones, if it has more. Open questions are always kept."""

ROOMY_BYTES = 3 * 1024 * 1024
"""The size to which they are then dropped, so that not each event has to look at all of them."""


class RunId(NamedTuple):
    """The id of a run, which A2A and MCP know as a task: the id of its own task, and its number there."""

    task_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.task_id}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> "RunId":
        """Read an id. Raises TaskNotFound for any other text."""
        task_id, _, number = text.rpartition(".")
        if not task_id or not number.isascii() or not number.isdecimal() or len(number) > 9:
            raise TaskNotFound(f"there is no task {text[:80]!r}")
        return cls(task_id, int(number))


class Progress:
    """A run of a task, read from the task's events in their order.

    It is the run with a `number`, or the one that the event with the seq `of` belongs to, or else the last one. With
    `status_only`, it has only the items that its status shows: open questions, and why it has ended. If events from
    the beginning of the task are deleted, nobody can tell which of the others belong to which earlier run, so only
    the `present` one is found.

    Attributes:
        run: the run as it is after the last event of it that was read; None before its first.
        began, last: the times of its first event and of the last that was read, in ISO 8601.
        earlier: of the last run, those before it.
        after: the seq after which its events are read next: if it `begins` there, first that of the `present` run.
        size: the bytes of the events of which it has items.
    """

    def __init__(
        self,
        task_id: str,
        *,
        number: int | None = None,
        of: int | None = None,
        present: Generation | None = None,
        begins: bool = False,
        status_only: bool = False,
    ) -> None:
        self.run: Run | None = None
        self.after = self.size = 0
        self.began = self.last = ""
        self.earlier: list[Progress] = []
        self._task_id = task_id
        self._number, self._of = number, of
        self._kinds = OF_STATUS if status_only else None
        self._reader = Conversation()
        self._latest: Run | None = None
        self._items: dict[str, Item] = {}
        self._sizes: dict[str, int] = {}
        self._present = present
        if begins and present is not None and present.run_began:
            self.after = present.run_began
            self._latest = Run(number=present.run - 1, first=0, status=TaskStatus.COMPLETED, since="")

    def skip(self, run: Generation, seq: int) -> None:
        """Read on after the event `seq` of a run, which still works then; forget what it has asked before."""
        self.after, self._reader = seq, Conversation()
        self._latest = Run(number=run.run, first=run.began + 1, status=TaskStatus.RUNNING, since=self.began)
        self._items = {
            key: item
            for key, item in self._items.items()
            if not (isinstance(item, Question) and item.is_open)
        }

    def count(self, turns: int) -> None:
        """Take the `turns` of the run for those of its work, if it was not read as a whole."""
        for key, item in self._items.items():
            if isinstance(item, Work) and item.ended is None:
                self._items[key] = replace(item, turns=max(item.turns, turns))

    def read(self, event: Event) -> tuple[Item, ...]:
        """Read an event; return the items that it adds to the run or changes in it."""
        if event.seq > self.after + 1 and self._present is not None:  # those between them are deleted
            began = self._present.run_began or 0
            if event.seq <= began:
                return ()
            number, is_first = self._present.run, event.seq == began + 1
            status = TaskStatus.COMPLETED if is_first else TaskStatus.RUNNING
            self._latest = Run(number=number - is_first, first=event.seq, status=status, since="")
        self.after, run = event.seq, after(self._latest, event)
        self._latest = run
        changes = self._reader.read(event) if self._kinds is None or event.kind in self._kinds else ()
        if self._number is None and self._of is not None and event.seq >= self._of:
            self._number = run.number
        if self._number not in (None, run.number):
            return ()
        if self.run is None or self.run.number != run.number:
            if self.run is not None and self._number is self._of is None:
                self.earlier.append(copy(self))
            self._items, self._sizes, self.size, self.began = {}, {}, 0, event.timestamp
        self.run, self.last = run, event.timestamp
        shown = Item if self._kinds is None else Question | Failed | Cancelled
        changes = tuple(item for item in changes if item.seq >= run.first and isinstance(item, shown))
        self._items |= {item.id: item for item in changes}
        if changes:
            size = event_size(event)
            self._sizes[changes[0].id] = self._sizes.get(changes[0].id, 0) + size
            self.size += size
            if self.size > RUN_BYTES:
                self._drop(changes)
        return changes

    def _drop(self, changes: tuple[Item, ...]) -> None:
        """Drop the first items, but no open questions and no `changes`, until the others are small enough."""
        for key, item in [*self._items.items()]:
            if item not in changes and not (isinstance(item, Question) and item.is_open):
                del self._items[key]
                self.size -= self._sizes.pop(key, 0)
                if self.size <= ROOMY_BYTES:
                    return

    @property
    def found(self) -> Run:
        """The run. Raises TaskNotFound if no event belongs to it."""
        if self.run is None:
            raise TaskNotFound(f"there is no task {RunId(self._task_id, self._number or 0)!s}")
        return self.run

    @property
    def is_reached(self) -> bool:
        """Whether the events up to the run that is looked for were read."""
        return self.run is not None and (self._of is None or self._number is not None)

    @property
    def is_settled(self) -> bool:
        """Whether the run waits for its caller or has ended."""
        return self.run is not None and self.run.status is not TaskStatus.RUNNING

    @property
    def is_last(self) -> bool:
        """Whether no later run was read."""
        return self.run is not None and self.run is self._latest

    @property
    def is_over(self) -> bool:
        """Whether it is the run that is looked for, and a later one was read."""
        return self._number is not None and self.run is not None and not self.is_last

    @property
    def id(self) -> RunId:
        """Its id. Raises TaskNotFound."""
        return RunId(self._task_id, self.found.number)

    @property
    def items(self) -> tuple[Item, ...]:
        """What people wrote and agents did in the run."""
        return tuple(self._items.values())


@value
class Step:
    """An event of a run that is followed: what the run was `before` it, and the items that it adds or changes."""

    before: Run
    changes: tuple[Item, ...]


class Reply(Value):
    """An answer to what a paused task asks: decisions on calls, as in `POST /message`, and the results of others."""

    approvals: tuple[GivenApproval, ...] = ()
    results: tuple[dict[str, Any], ...] = ()

    def submission(self, text: str = "") -> Submission:
        """Return the submission; without decisions and results, `text` is the result of the only call that waits."""
        results: object = list(self.results) or None
        return Submission(
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            approvals=self.approvals,
            breakpoint_tool_call_result=results if results or self.approvals else {"content": text},
        )


class Runs:
    """The runs of the tasks of a request's caller."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.service: Service = service_of(request)
        self.runtime = self.service.runtime
        self.caller = request.scope[CALLER]
        self.principal = self.caller.principal(self.runtime.swarm.name)
        self._links: dict[str, str] = {}

    async def link(self, file: Mapping[str, Any]) -> str:
        """Return a URL that fetches a file of the caller for a week, without a key; else one that needs the key."""
        known, ref = self._links.get(file["id"]), FileRef.read(file)
        if known is None:
            base, files = base_url(self.request), self.runtime.caller_files
            [linked] = await files.link(str(self.principal), [ref], self.runtime.swarm.name)
            path = f"/files/shared/{linked.link}" if linked.link and not ref.link else f"/files/{ref.id}"
            known = self._links[ref.id] = base + path
        return known

    async def store(self, given: Iterable[GivenFile]) -> dict[GivenFile, FileRef]:
        """Return the references of files of the caller, after storing those of which the bytes are given."""
        files, instance = self.runtime.caller_files, str(self.principal)
        return {
            each: await (
                files.find(instance, each.id) if isinstance(each, Uploaded) else files.put(instance, each)
            )
            for each in dict.fromkeys(given)
        }

    async def load(self, task_id: str) -> Task:
        """Return a task of the caller, and hold what reading a run takes. Raises TaskNotFound and RateLimited."""
        task = await load_task(self.service, self.caller, task_id)
        self.hold(task)
        return task

    def hold(self, task: Task) -> None:
        """Hold what reading a run of a task takes. Raises RateLimited and Overloaded."""
        reading(self.service, self.request, task, events=2 * ENDS)

    async def cancel(self, task_id: str, reason: str = "") -> Task:
        """Cancel a task of the caller, and return it. Raises NotCancellable and TaskNotFound."""
        instance = str(self.principal)
        async with audited(self.request, self.caller, Act.CANCEL_TASK, task_id, owner=instance):
            return await self.runtime.cancel(self.principal, task_id, reason, instance=instance)

    @staticmethod
    def progress(task: Task, *, number: int | None = None, of: int | None = None) -> Progress:
        """Return what reads a run of a task, as `Progress` names it: the last one is read from where it began."""
        begins = _is_at(task, number, of)
        return Progress(task.task_id, number=number, of=of, present=task.generation, begins=begins)

    async def read(self, task: Task, *, number: int | None = None, of: int | None = None) -> Progress:
        """Read a run of a task, as `Progress` names it, as far as the task was when it was loaded.

        Of a long one that the task is at, the middle is not read (`ENDS`). Raises TaskNotFound.
        """
        progress, run = self.progress(task, number=number, of=of), task.generation
        if _is_at(task, number, of) and task.seq - progress.after > 2 * ENDS:
            await self._read(task, progress, progress.after + ENDS)
            progress.skip(run, task.seq - ENDS)
            await self._read(task, progress)
            progress.count(run.turns)
            if progress.found.status is task.status:  # else it has reached this before these events
                return progress
            progress = self.progress(task, number=number, of=of)
        return await self._read(task, progress)

    async def newest_first(self, task: Task, *, status_only: bool) -> AsyncGenerator[Progress]:
        """Yield the runs of a task, the last one first, and read no more of it than for those that are taken.

        Of the last one's events, only some at its end are read for the status of a task that has ended.
        """
        run, name = task.generation, task.task_id
        last = Progress(name, present=run, begins=True, status_only=status_only)
        if status_only and task.status in ENDED and run.run_began is not None:
            last.skip(run, max(last.after, task.seq - TAIL))
        await self._read(task, last)
        if last.found.status is not task.status:  # it has reached this before these events
            last = await self._read(task, Progress(name, present=run, begins=True, status_only=status_only))
        yield last
        earlier = last.earlier
        if run.run > 1 and run.run_began:
            first = run.run_began + 1  # with which those before it are no longer the last
            before = Progress(name, present=run, status_only=status_only)
            earlier = (await self._read(task, before, upto=first)).earlier
        for each in reversed(earlier):
            yield each

    async def _read(self, task: Task, progress: Progress, upto: int | None = None) -> Progress:
        upto, store = task.seq if upto is None else upto, self.runtime.store
        pacer = reading(self.service, self.request, task, events=upto - progress.after)
        async for event in read_timeline(store, task.key, pacer, after=progress.after, upto=upto):
            progress.read(event)
            if progress.size > PIECE_BYTES:
                pacer.hold_to_read(progress.size * PIECE_FACTOR)
            if progress.is_over:
                break
        _ = progress.found
        return progress

    async def follow(
        self,
        key: TaskKey,
        progress: Progress,
        *,
        upto: int = 0,
        live: bool = False,
        deltas: bool = False,
        seconds: float | None = None,
    ) -> AsyncGenerator[Step | LiveEvent | None]:
        """Yield None once a run is reached, and the events up to `upto` are read, some perhaps before; then each event.

        With `live`, live events are among them then; with `deltas`, text, too. It ends when the run waits for its
        caller or has ended; early after `seconds`, if the request's time is up, its key is refused or the server stops.
        """
        has_begun, early = progress.is_reached and progress.after >= upto, list[LiveEvent]()
        if has_begun:
            yield None
            if progress.is_settled or not progress.is_last:
                return
        batches = read_batches(self.request, key, progress.after, live=live, deltas=deltas, seconds=seconds)
        async with aclosing(batches):
            async for batch in batches:
                last = None
                for event in batch:
                    if isinstance(event, LiveEvent):
                        if has_begun:
                            yield event
                        else:
                            early.append(event)
                        continue
                    last, before, changes = event.seq, progress.run, progress.read(event)
                    if has_begun and before is not None:
                        yield Step(before, changes)
                if not has_begun and last is not None and progress.is_reached and last >= upto:
                    has_begun = True
                    yield None
                    for each in early:
                        yield each
                if has_begun and (progress.is_settled or not progress.is_last):
                    return

    async def settle(
        self,
        key: TaskKey,
        *,
        number: int | None = None,
        of: int | None = None,
        waits: bool = True,
        seconds: float | None = None,
        on_step: Callable[[Step | LiveEvent | None], Awaitable[None]] | None = None,
    ) -> tuple[Task, Progress, TaskStatus]:
        """Return a task, and a run of it with its status: when `follow` ends or, without `waits`, as it is now.

        Raises TaskNotFound.
        """
        task = await self.load(key.task_id)
        progress = await self.read(task, number=number, of=of)
        if waits:
            async with aclosing(self.follow(key, progress, upto=task.seq, seconds=seconds)) as steps:
                async for step in steps:
                    if on_step is not None:
                        await on_step(step)
            task = await self.load(key.task_id)
            if progress.is_settled:  # as its events tell it: the task may have begun another run since
                return task, progress, progress.found.status
            await self._read(task, progress)
        return task, progress, task.status if progress.is_last else progress.found.status


def _is_at(task: Task, number: int | None, of: int | None) -> bool:
    """Return whether a run, as `Progress` names it, is the one that a task is at, and it is known where that began."""
    run = task.generation
    return run.run_began is not None and number in (None, run.run) and (of is None or of > run.run_began)
