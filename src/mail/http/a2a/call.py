"""A call of an operation: the request, its caller, and the tasks that it reads, submits to and follows."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import sha256

from a2a.types import Message
from a2a.types import Task as A2ATask

from mail.core.engine.watch import Submitted
from mail.core.task.task import ENDED, Task, TaskKey
from mail.errors import BadRequest, TaskNotFound
from mail.http.a2a.progress import Drawing, Update
from mail.http.a2a.submission import Content, submission_of
from mail.http.runs import Progress, RunId, Runs, Step
from mail.http.submission import claimed_key, follow_trace


class RunEnded(BadRequest):
    """The task has ended."""


class Call(Runs):
    """A request of a caller, and the tasks that it is about."""

    def drawing(self, task: Task, *, is_last: bool = True) -> Drawing:
        """Return what draws the runs of a task: its last one, or an earlier one."""
        schema = task.generation.output_schema if is_last else self.runtime.swarm.output_schema
        return Drawing(self.link, is_typed=schema is not None)

    async def draw(self, task: Task, progress: Progress) -> A2ATask:
        """Return a run of a task, whose last one has the status of the task."""
        status = task.status if progress.is_last else None
        return await self.drawing(task, is_last=progress.is_last).task(progress, status)

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
            if context not in ("", run_id.task_id):
                raise BadRequest(f"task {message.task_id!r} belongs to another context than {context!r}")
            context = run_id.task_id
        key = f"a2a-{sha256(message.message_id.encode()).hexdigest()}"
        what = message.SerializeToString(deterministic=True)
        async with claimed_key(self.service, self.principal, key, what, context or None) as claim:
            task_key = TaskKey(str(self.principal), claim.task_id)
            task = await self.runtime.store.load(task_key)
            if task is not None:
                self.hold(task)
            was_sent = task is not None and any(each.key == key for each in task.submitted)
            if run_id is not None and not was_sent:
                await self._require_open(task, run_id)
            files = await self.store(content.files)
            submission = submission_of(
                message,
                content,
                None if was_sent else task,
                [each.id for each in files.values()],
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
                f"{run_id.task_id!r} and without taskId"
            )

    async def updates(
        self, task: Task, progress: Progress, seconds: float | None = None
    ) -> AsyncGenerator[A2ATask | Update]:
        """Yield a run as a whole once it is reached, and then its updates, as long as `follow` has some."""
        drawing = self.drawing(task)
        async with aclosing(self.follow(task.key, progress, upto=task.seq, seconds=seconds)) as steps:
            async for step in steps:
                if step is None:
                    yield await drawing.task(progress)
                elif isinstance(step, Step):
                    for update in await drawing.updates(progress, step.changes, step.before):
                        yield update
