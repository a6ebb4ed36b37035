"""The operations of A2A on the runtime. The SDK calls them, whatever the binding or version of a request."""

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from hashlib import sha256
from typing import Any, NoReturn

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.types import Task as A2ATask
from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length, validate_history_length
from fastapi import Request
from pydantic import ValidationError

from mail.auth.keys import find_bearer
from mail.core.engine.watch import Submitted, read_timeline
from mail.core.protocol.error_text import explain
from mail.core.task.events import Event
from mail.core.task.files import FileRef
from mail.core.task.live import LiveEvent
from mail.core.task.task import ENDED, Task, TaskKey
from mail.errors import BadRequest, MAILError, NotCancellable, TaskNotFound
from mail.http.a2a.card import make_card
from mail.http.a2a.listing import list_tasks
from mail.http.a2a.progress import Drawing, Progress, RunId, Update
from mail.http.a2a.submission import Content, submission_of
from mail.http.account import CALLER
from mail.http.service import Service, base_url, service_of
from mail.http.sse import read_batches
from mail.http.submission import claimed_key, follow_trace
from mail.http.task_json import load_task, reading

logger = logging.getLogger(__name__)

REQUEST = "request"
"""The key of the HTTP request in the state of a call."""

REFUSED = "mail.a2a.refused"
"""In the scope of a request: the error that is its answer, as an HTTP status that clients and proxies know."""

_BY_STATUS = frozenset({401, 403, 429})

NO_PUSH = "this server sends no push notifications over A2A; it has webhooks of its own, at POST /webhooks"


class RunEnded(BadRequest):
    """The task has ended."""


@contextmanager
def translated(request: Request) -> Iterator[None]:
    """Raise the errors of a block as those of A2A, or let `REFUSED` have them."""
    try:
        yield
    except A2AError:
        raise
    except ValidationError as error:
        raise InvalidParamsError(explain(error)) from error
    except MAILError as error:
        if error.http_status in _BY_STATUS or error.http_status >= 500:
            request.scope[REFUSED] = error
        raise _as_a2a(error) from error
    except Exception as error:  # the SDK would show its text to the caller
        request.scope[REFUSED] = error
        raise InternalError from error


def _as_a2a(error: MAILError) -> A2AError:
    match error:
        case TaskNotFound():
            return TaskNotFoundError(error.detail)
        case NotCancellable():
            return TaskNotCancelableError(error.detail)
        case RunEnded():
            return UnsupportedOperationError(error.detail)
    return InvalidParamsError(error.detail)


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
                message, content, None if was_sent else task, [each.id for each in files]
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
        if waits:
            progress = Progress(submitted.key.task_id, of=submitted.seq)
            async with aclosing(self.follow(submitted.key, progress)) as updates:
                async for _ in updates:
                    pass
        task = await self.load(submitted.key.task_id)
        return await self.draw(task, await self.read(task, of=submitted.seq))


def _call(context: ServerCallContext) -> Call:
    return Call(context.state[REQUEST])


class SwarmHandler(RequestHandler):
    """The operations of the swarm's agents as A2A knows them. It keeps nothing."""

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> A2ATask:
        """Send a message, and return its task: when it has ended or waits for its caller, or at once if asked for."""
        with translated(context.state[REQUEST]):
            call, options = _call(context), params.configuration
            validate_history_length(options)
            if options.HasField("task_push_notification_config"):
                raise PushNotificationNotSupportedError(NO_PUSH)
            submitted = await call.submit(params.message)
            task = await call.settle(submitted, waits=not options.return_immediately)
            return apply_history_length(task, options)

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2ATask | Update]:
        """Send a message, and yield its task and what becomes of it."""
        with translated(context.state[REQUEST]):
            call, options = _call(context), params.configuration
            validate_history_length(options)
            if options.HasField("task_push_notification_config"):
                raise PushNotificationNotSupportedError(NO_PUSH)
            holding = call.service.holding(call.request)
            holding.open_stream()
            if call.service.stream_permits is not None:
                await holding.share_stream(call.service.stream_permits)
            try:
                submitted = await call.submit(params.message)
                progress = Progress(submitted.key.task_id, of=submitted.seq)
                async with aclosing(call.follow(submitted.key, progress)) as updates:
                    async for update in updates:
                        yield apply_history_length(update, options) if isinstance(update, A2ATask) else update
            finally:
                await holding.close_stream()

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2ATask | Update]:
        """Yield a task that hasn't ended, and what becomes of it."""
        with translated(context.state[REQUEST]):
            call, run_id = _call(context), RunId.parse(params.id)
            task = await call.load(run_id.context)
            progress = await call.read(task, number=run_id.number)
            if not progress.is_last or task.status in ENDED:
                raise RunEnded(f"task {params.id!r} has ended; get it instead")
            call.service.holding(call.request).open_stream()
            progress = Progress(run_id.context, number=run_id.number)
            seconds = call.service.stream_seconds
            async with aclosing(call.follow(task.key, progress, seconds)) as updates:
                async for update in updates:
                    yield update

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> A2ATask:
        """Return a task as it is now."""
        with translated(context.state[REQUEST]):
            validate_history_length(params)
            call, run_id = _call(context), RunId.parse(params.id)
            task = await call.load(run_id.context)
            drawn = await call.draw(task, await call.read(task, number=run_id.number))
            return apply_history_length(drawn, params)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the caller's tasks."""
        with translated(context.state[REQUEST]):
            return await list_tasks(_call(context), params)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> A2ATask:
        """Cancel a task, and return it."""
        with translated(context.state[REQUEST]):
            call, run_id = _call(context), RunId.parse(params.id)
            await call.service.refresh()
            task = await call.load(run_id.context)
            progress = await call.read(task, number=run_id.number)
            if not progress.is_last or task.status in ENDED:
                raise NotCancellable(f"task {params.id!r} has ended")
            task = await call.runtime.cancel(call.principal, run_id.context, "", instance=task.instance)
            return await call.draw(task, await call.read(task, number=run_id.number))

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """Return the card with all that callers may know."""
        with translated(context.state[REQUEST]):
            request = context.state[REQUEST]
            await service_of(request).refresh()
            return make_card(request, is_extended=True)

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Refuse."""
        _refuse_push()

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Refuse."""
        _refuse_push()

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Refuse."""
        _refuse_push()

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Refuse."""
        _refuse_push()


def _refuse_push() -> NoReturn:
    raise PushNotificationNotSupportedError(NO_PUSH)
