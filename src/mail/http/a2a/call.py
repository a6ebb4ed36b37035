"""A call of an operation: the request, its caller, and the tasks that it reads, submits to and follows."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from hashlib import sha256
from typing import Any

from a2a.types import Message
from a2a.types import Task as A2ATask
from fastapi import Request

from mail.auth.keys import find_bearer
from mail.core.engine.watch import Submitted, read_timeline
from mail.core.task.events import Event
from mail.core.task.files import FileRef
from mail.core.task.live import LiveEvent
from mail.core.task.task import ENDED, Task, TaskKey
from mail.errors import BadRequest, TaskNotFound
from mail.http.a2a.progress import Drawing, Progress, RunId, Update
from mail.http.a2a.submission import Content, submission_of
from mail.http.account import CALLER
from mail.http.service import Service, base_url, service_of
from mail.http.sse import read_batches
from mail.http.submission import claimed_key, follow_trace
from mail.http.task_json import load_task, reading


class RunEnded(BadRequest):
    """The task has ended."""


class Call:
    """A request of a caller, and the tasks that it is about."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.service: Service = service_of(request)
        self.runtime = self.service.runtime
        self.caller = request.scope[CALLER]
        self.principal = self.caller.principal(self.runtime.swarm.name)
        self._links: dict[str, str] = {}

    async def load(self, context: str) -> Task:
        """Return the caller's task of a context. Raises TaskNotFound."""
        return await load_task(self.service, self.caller, context)

    def drawing(self, task: Task | None, *, is_last: bool = True) -> Drawing:
        """Return what draws the runs of a task: its last one, or an earlier one."""
        schema = self.runtime.swarm.output_schema
        if task is not None and is_last:
            schema = task.generation.output_schema
        return Drawing(self._link, is_typed=schema is not None)

    async def draw(self, task: Task, progress: Progress) -> A2ATask:
        """Return a run of a task, whose last one has the status of the task."""
        status = task.status if progress.is_last else None
        return await self.drawing(task, is_last=progress.is_last).task(progress, status)

    async def read(self, task: Task, *, number: int | None = None, of: int | None = None) -> Progress:
        """Read a run of a task, as `Progress` names it, as far as the task was when it was loaded.

        Raises TaskNotFound.
        """
        progress = Progress(task.task_id, number=number, of=of)
        pacer = reading(self.service, self.request, task)
        async for event in read_timeline(self.runtime.store, task.key, pacer, upto=task.seq):
            progress.read(event)
        _ = progress.found
        return progress

    async def _link(self, file: Mapping[str, Any]) -> str:
        """Return a URL that fetches a file of the caller for a week, without a key; else one that needs the key."""
        known, ref = self._links.get(file["id"]), FileRef.read(file)
        if known is None:
            base, files = base_url(self.request), self.runtime.caller_files
            [linked] = await files.link(str(self.principal), [ref], self.runtime.swarm.name)
            path = f"/files/shared/{linked.link}" if linked.link and not ref.link else f"/files/{ref.id}"
            known = self._links[ref.id] = base + path
        return known

    async def submit(self, message: Message) -> Submitted:
        """Submit a message, once for each `message_id` of a day."""
        if not message.message_id:
            raise BadRequest("message.messageId is missing: send a new one with each message")
        content = Content.read(message)
        await self.service.refresh()
        follow_trace(self.request)
        context, run_id = message.context_id, None
        if message.task_id:
            run_id = RunId.parse(message.task_id)
            if context not in ("", run_id.context):
                raise BadRequest(f"task {message.task_id!r} belongs to another context than {context!r}")
            context = run_id.context
        key = f"a2a-{sha256(message.message_id.encode()).hexdigest()}"
        what = message.SerializeToString(deterministic=True)
        async with claimed_key(self.service, self.principal, key, what, context or None) as claim:
            task_key = TaskKey(str(self.principal), claim.task_id)
            task = await self.runtime.store.load(task_key)
            was_sent = task is not None and any(each.key == key for each in task.submitted)
            if run_id is not None and not was_sent:
                await self._require_open(task, run_id)
            files = [await self.runtime.caller_files.put(str(self.principal), each) for each in content.files]
            submission = submission_of(
                message,
                content,
                None if was_sent else task,
                [each.id for each in files],
                self.runtime.swarm.task_message_limit,
            )
            submission = submission.evolve(
                ceiling=self.runtime.ceiling(self.principal), idempotency_key=claim.key
            )
            return await self.runtime.submit(self.principal, submission.as_new(claim.task_id))

    async def _require_open(self, task: Task | None, run_id: RunId) -> None:
        """Raise TaskNotFound or RunEnded unless a run can take another message."""
        if task is None:
            raise TaskNotFound(f"there is no task {run_id!s}")
        if not (await self.read(task, number=run_id.number)).is_last or task.status in ENDED:
            raise RunEnded(
                f"task {run_id!s} has ended and takes no further messages; send them with contextId "
                f"{run_id.context!r} and without taskId"
            )

    async def follow(
        self, key: TaskKey, progress: Progress, seconds: float | None = None
    ) -> AsyncGenerator[A2ATask | Update]:
        """Yield a run as a whole once it is reached, and its updates until it waits for its caller or has ended.

        It ends early after `seconds`, if the request's time is up, its key is refused or the server stops.
        """

        def watch(after: int) -> AsyncGenerator[list[Event] | list[LiveEvent]]:
            return self.runtime.watch(key, after=after, heartbeat=self.service.heartbeat)

        task = await self.runtime.store.load(key)
        upto = 0 if task is None else task.seq
        drawing = self.drawing(task)
        has_begun = False
        bearer, service = find_bearer(self.request.headers), self.service
        async with (
            service.open_streams.watched(service.authenticator, bearer) as refused,
            aclosing(read_batches(self.request, refused, watch, 0, seconds)) as batches,
        ):
            async for batch in batches:
                events = [event for event in batch if isinstance(event, Event)]
                for event in events:
                    before, changes = progress.run, progress.read(event)
                    if has_begun and before is not None:
                        for update in await drawing.updates(progress, changes, before):
                            yield update
                if not has_begun and events and progress.is_reached and events[-1].seq >= upto:
                    has_begun = True
                    yield await drawing.task(progress)
                if has_begun and (progress.is_settled or not progress.is_last):
                    return

    async def settle(self, submitted: Submitted, *, waits: bool) -> A2ATask:
        """Return the run of a submission: when it waits for its caller or has ended, or as it is now."""
        progress = Progress(submitted.key.task_id, of=submitted.seq)
        if waits:
            async with aclosing(self.follow(submitted.key, progress)) as updates:
                async for _ in updates:
                    pass
        task = await self.load(submitted.key.task_id)
        if progress.is_settled:  # as its events tell it: the task may have begun another run since
            return await self.drawing(task).task(progress)
        return await self.draw(task, await self.read(task, of=submitted.seq))
