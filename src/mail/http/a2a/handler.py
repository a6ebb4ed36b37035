"""The operations of A2A on the runtime. The SDK calls them, whatever the binding or version of a request."""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

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
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.types import Task as A2ATask
from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length, validate_history_length
from fastapi import Request
from pydantic import ValidationError

from mail.core.engine.watch import Submitted
from mail.core.protocol.error_text import explain
from mail.core.task.task import ENDED
from mail.errors import MAILError, NotCancellable, TaskNotFound
from mail.http.a2a import push
from mail.http.a2a.call import Call, RunEnded
from mail.http.a2a.card import make_card
from mail.http.a2a.listing import list_tasks
from mail.http.a2a.progress import Update
from mail.http.runs import RunId
from mail.http.service import service_of

logger = logging.getLogger(__name__)

REQUEST = "request"
"""The key of the HTTP request in the state of a call."""

REFUSED = "mail.a2a.refused"
"""In the scope of a request: the error that is its answer, as an HTTP status that clients and proxies know."""

_BY_STATUS = frozenset({401, 403, 429})


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
    except Exception as error:  # the outermost one, as the SDK shows the texts of others to the caller
        logger.exception("a request of A2A has failed")
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


def _call(context: ServerCallContext) -> Call:
    return Call(context.state[REQUEST])


class SwarmHandler(RequestHandler):
    """The operations of the swarm's agents as A2A knows them. It keeps nothing."""

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> A2ATask:
        """Send a message, and return its task: when it has ended or waits for its caller, or at once if asked for."""
        with translated(context.state[REQUEST]):
            call, options = _call(context), params.configuration
            validate_history_length(options)
            waits, holding = not options.return_immediately, call.service.holding(call.request)
            if waits:
                await holding.share_stream()
            try:
                submitted = await self._submit(call, params)
                task, progress, status = await call.settle(submitted.key, of=submitted.seq, waits=waits)
            finally:
                await holding.close_stream()
            drawing = call.drawing(task, is_last=progress.is_last)
            return apply_history_length(await drawing.task(progress, status), options)

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2ATask | Update]:
        """Send a message, and yield its task and what becomes of it."""
        with translated(context.state[REQUEST]):
            call, options = _call(context), params.configuration
            validate_history_length(options)
            holding = call.service.holding(call.request)
            holding.open_stream()
            await holding.share_stream()
            try:
                submitted = await self._submit(call, params)
                task = await call.load(submitted.key.task_id)
                progress = await call.read(task, of=submitted.seq)
                async with aclosing(call.updates(task, progress)) as updates:
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
            task = await call.load(run_id.task_id)
            progress = await call.read(task, number=run_id.number)
            if not progress.is_last or task.status in ENDED:
                raise RunEnded(f"task {params.id!r} has ended; get it instead")
            call.service.holding(call.request).open_stream()
            seconds = call.service.stream_seconds
            async with aclosing(call.updates(task, progress, seconds)) as updates:
                async for update in updates:
                    yield update

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> A2ATask:
        """Return a task as it is now."""
        with translated(context.state[REQUEST]):
            validate_history_length(params)
            call, run_id = _call(context), RunId.parse(params.id)
            task = await call.load(run_id.task_id)
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
            task = await call.load(run_id.task_id)
            progress = await call.read(task, number=run_id.number)
            if not progress.is_last or task.status in ENDED:
                raise NotCancellable(f"task {params.id!r} has ended")
            task = await call.cancel(run_id.task_id)
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
        """Let a task push its status to a URL."""
        with translated(context.state[REQUEST]):
            return await push.create(_call(context), params)

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Return a config of a task."""
        with translated(context.state[REQUEST]):
            return await push.find(_call(context), params.task_id, params.id)

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Return the configs of a task: all, as there are few."""
        with translated(context.state[REQUEST]):
            found = await push.list_all(_call(context), params.task_id)
            return ListTaskPushNotificationConfigsResponse(configs=found)

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Delete a config of a task."""
        with translated(context.state[REQUEST]):
            await push.delete(_call(context), params.task_id, params.id)

    @staticmethod
    async def _submit(call: Call, params: SendMessageRequest) -> Submitted:
        """Submit a message, and add its push notification config to its run."""
        options = params.configuration
        has_push = options.HasField("task_push_notification_config")
        if has_push:
            await push.check(call, options.task_push_notification_config)
        submitted = await call.submit(params.message)
        if has_push:
            task = await call.load(submitted.key.task_id)
            config = TaskPushNotificationConfig()
            config.CopyFrom(options.task_push_notification_config)
            config.task_id = str((await call.read(task, of=submitted.seq)).id)
            await push.create(call, config)
        return submitted
