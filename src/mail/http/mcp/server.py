"""The SDK's server, of MCP 2026-07-28 and the earlier versions with a handshake, for one request at a time.

Nothing is kept between requests, so that any process can answer the next one.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request
from fastapi.responses import Response
from mcp import MCPError
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from mail.core.protocol.error_text import explain
from mail.core.protocol.traceparent import TRACEPARENT, read_traceparent
from mail.core.task.swarm import SwarmCore
from mail.core.turns.context import CURRENT_TRACE
from mail.errors import MAILError
from mail.http.bodies import read_body, replayed, room_for_file
from mail.http.mcp import resources, tasks
from mail.http.mcp.calls import Call, Context, UnknownTool, request_of
from mail.http.mcp.content import text_block
from mail.http.mcp.tools import list_tools
from mail.http.runs import Progress, RunId
from mail.http.service import service_of
from mail.http.submission import follow_trace
from mail.mcp import TASKS

logger = logging.getLogger(__name__)

INSTRUCTIONS = """The agents of this swarm work on tasks for you. Each tool with the name of an agent sends it a \
message and waits for the answer; work that takes longer continues, and `task` has its answer. Every result names its \
`task_id`: send it with the next message to continue there. A task with the status `paused` asks the user something: \
ask them, then call `reply`."""


class Answer(Response):
    """The answer of the SDK's server to a request, whose body was read."""

    def __init__(self, server: Server, request: Request, body: bytes) -> None:
        super().__init__()
        self._server = server
        self._size = max(len(body), 1)
        self._receive = replayed(request, body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the server read the request, and send its answer: JSON, or a stream of events."""
        manager = StreamableHTTPSessionManager(self._server, stateless=True, max_request_body_size=self._size)
        async with manager.run():
            await manager.handle_request(scope, self._receive, send)


async def answer(request: Request) -> Response:
    """Answer a request of MCP. Raises PayloadTooLarge, and what else is an HTTP status."""
    service = service_of(request)
    body = await read_body(request, service.max_body_bytes + room_for_file(service))
    await service.refresh()
    return Answer(_server(service.runtime.swarm), request, body)


def _server(swarm: SwarmCore) -> Server:
    server = Server(
        swarm.name,
        version=swarm.version,
        description=swarm.description or None,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=lambda _name: None,  # else each call lists the tools; none wants headers
        on_list_tools=_list_tools,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
    )
    server.add_request_handler("tools/call", CallToolRequestParams, _call_tool)
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", tasks.TaskParams, _get_task)
    server.add_request_handler("tasks/update", tasks.UpdateParams, _update_task)
    server.add_request_handler("tasks/cancel", tasks.TaskParams, _cancel_task)
    server.middleware.clear()  # its traces: the app has its own
    return server


@contextmanager
def _translated(context: Context) -> Iterator[None]:
    """Continue the trace of a request; raise the errors of a block as those of MCP."""
    follow_trace(request_of(context))
    if (trace := read_traceparent((context.meta or {}).get(TRACEPARENT))) is not None:
        CURRENT_TRACE.set(trace)
    try:
        yield
    except MCPError:
        raise
    except ValidationError as error:
        raise MCPError(code=INVALID_PARAMS, message=explain(error)) from error
    except MAILError as error:
        if error.http_status == 500:
            logger.exception("a request of MCP has failed")
            raise MCPError(code=INTERNAL_ERROR, message="internal error") from error
        code = INVALID_PARAMS if error.http_status < 500 else INTERNAL_ERROR
        raise MCPError(code=code, message=error.detail) from error
    except Exception as error:  # the outermost one, as the SDK may show the texts of others to the caller
        logger.exception("a request of MCP has failed")
        raise MCPError(code=INTERNAL_ERROR, message="internal error") from error


async def _list_tools(context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
    with _translated(context):
        return ListToolsResult(tools=list_tools(service_of(request_of(context)).runtime.swarm))


async def _call_tool(context: Context, params: CallToolRequestParams) -> HandlerResult:
    """Call a tool. What the caller's model can correct is a result that says so, and not an error of the protocol."""
    with _translated(context):
        try:
            result = await Call(context).call(params)
            return tasks.create(result) if isinstance(result, Progress) else result
        except UnknownTool:
            raise
        except ValidationError as error:
            problem = explain(error)
        except MAILError as error:
            if error.http_status == 500:
                raise
            problem = error.detail
        return CallToolResult(content=[text_block(problem)], is_error=True)


async def _list_resources(context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    with _translated(context):
        return await resources.list_resources(Call(context), params.cursor if params else None)


async def _list_templates(
    _context: Context, _params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    return resources.TEMPLATES


async def _read_resource(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    with _translated(context):
        return await resources.read_resource(Call(context), str(params.uri))


async def _get_task(context: Context, params: tasks.TaskParams) -> HandlerResult:
    with _translated(context):
        return await tasks.get(Call(context), RunId.parse(params.task_id))


async def _update_task(context: Context, params: tasks.UpdateParams) -> HandlerResult:
    with _translated(context):
        return await tasks.update(Call(context), RunId.parse(params.task_id), params.input_responses)


async def _cancel_task(context: Context, params: tasks.TaskParams) -> HandlerResult:
    with _translated(context):
        return await tasks.cancel(Call(context), RunId.parse(params.task_id))
