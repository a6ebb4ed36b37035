"""Calls of tools: what they do to the caller's tasks, and the runs that are their results."""

from typing import Any

from fastapi import Request
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, ClientCapabilities, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.submit import Submission
from mail.core.task.live import LiveEvent
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import BadRequest, QuestionOpen
from mail.http.mcp.content import Files, draw, forms, open_questions, read_file, read_forms, words_of
from mail.http.mcp.tools import WAIT_SECONDS, Answer, Ask, AskAny, Cancel, Look, entrypoint_tools
from mail.http.runs import Progress, Reply, RunId, Runs, Step
from mail.mcp import TASKS

Context = ServerRequestContext[Any, Request]

Result = CallToolResult | InputRequiredResult | Progress
"""The result of a call; a run that has begun, for a client with `TASKS`."""


def request_of(context: Context) -> Request:
    """Return the HTTP request that a request of MCP came with."""
    assert context.request is not None
    return context.request


class UnknownTool(BadRequest):
    """The swarm has no tool of this name."""


class Call(Runs):
    """A request of MCP, and the tasks that it is about."""

    def __init__(self, context: Context) -> None:
        super().__init__(request_of(context))
        self._context = context
        self._reports = 0
        self.files = Files(self.runtime.caller_files, str(self.principal))

    async def call(self, params: CallToolRequestParams) -> Result:
        """Perform a call of a tool, and return its result: at the latest after `WAIT_SECONDS`, with the task as it is.

        A client with `TASKS` gets the run that a message to an entrypoint begins or joins, at once.
        A client that can gets the questions of a paused task as forms, and calls again with what its user has filled
        in. `request_state` names the run; it can be anything, as the caller can name its own runs only.

        Raises UnknownTool, and what else a caller can do wrong.
        """
        if params.request_state is not None:
            return await self._resume(RunId.parse(params.request_state), params.input_responses or {})
        given = params.arguments or {}
        match params.name:
            case "ask":
                arguments = AskAny.model_validate(given)
                return await self._ask(arguments, arguments.entrypoint, seconds=0)
            case "reply":
                answer = Answer.model_validate(given)
                approvals = tuple(GivenApproval(**dict(each)) for each in answer.approvals)
                reply = Reply(approvals=approvals, results=answer.results)
                return await self._settle(*await self.reply(answer.task_id, reply, answer.text))
            case "task":
                look = Look.model_validate(given)
                task = await self.load(look.task_id)
                number = (await self.read(task)).found.number
                return await self._settle(task.key, number=number, seconds=look.wait_seconds)
            case "cancel":
                end = Cancel.model_validate(given)
                task = await self.cancel(end.task_id, end.reason)
                result = await self.result(task, await self.read(task), task.status)
                return result.model_copy(update={"is_error": False})
        entrypoints = entrypoint_tools(self.runtime.swarm)
        if params.name not in entrypoints:
            raise UnknownTool(f"there is no tool {params.name!r}; list the tools again")
        return await self._ask(Ask.model_validate(given), entrypoints[params.name], seconds=WAIT_SECONDS)

    async def _ask(self, given: Ask, entrypoint: str | None, *, seconds: float) -> Result:
        if given.task_id is not None:
            await self.load(given.task_id)
        files = await self.store(read_file(number, each) for number, each in enumerate(given.files))
        submission = Submission(
            body=given.message,
            entrypoint=entrypoint,
            task_id=given.task_id,
            files=tuple(each.id for each in files.values()),
            ceiling=self.runtime.ceiling(self.principal),
        )
        try:
            submitted = await self.runtime.submit(self.principal, submission)
        except QuestionOpen as error:
            raise BadRequest(
                f"task {given.task_id!r} waits for an answer: call `task` for it, and `reply`"
            ) from error
        if seconds and self.has_tasks:
            return (await self.settle(submitted.key, of=submitted.seq, waits=False))[1]
        return await self._settle(submitted.key, of=submitted.seq, seconds=seconds)

    async def reply(self, task_id: str, reply: Reply, text: str = "") -> tuple[TaskKey, int]:
        """Give a paused task an answer; return it with the seq of the answer."""
        await self.load(task_id)
        submission = reply.submission(text).evolve(
            task_id=task_id, ceiling=self.runtime.ceiling(self.principal)
        )
        submitted = await self.runtime.submit(self.principal, submission)
        return submitted.key, submitted.seq

    async def _resume(self, run_id: RunId, responses: dict[str, Any]) -> Result:
        """Give a run what its user has filled in; what was answered before is not given again."""
        task = await self.load(run_id.task_id)
        questions = open_questions(await self.read(task, number=run_id.number))
        reply = read_forms(responses, questions)
        if reply is None and questions:  # declined: the client's model reads how it can reply
            return await self.result(*await self.settle(task.key, number=run_id.number, waits=False))
        if reply is not None:
            await self.reply(run_id.task_id, reply)
        return await self._settle(task.key, number=run_id.number)

    async def _settle(
        self, key: TaskKey, of: int | None = None, *, number: int | None = None, seconds: float = WAIT_SECONDS
    ) -> Result:
        """Wait for a run, and return it; its questions, if the client can show them."""
        task, progress, status = await self.settle(
            key, of=of, number=number, waits=seconds > 0, seconds=seconds, on_step=self._report
        )
        questions = open_questions(progress) if status is TaskStatus.PAUSED else []
        if self.can_ask and (asked := forms(questions)):
            return InputRequiredResult(input_requests=asked, request_state=str(progress.id))
        return await self.result(task, progress, status)

    async def result(self, task: Task, progress: Progress, status: TaskStatus) -> CallToolResult:
        """Return a run of a task as the result of a tool."""
        schema = task.generation.output_schema if progress.is_last else self.runtime.swarm.output_schema
        return CallToolResult(**await draw(progress, status, self.files, is_typed=schema is not None))

    @property
    def can_ask(self) -> bool:
        """Whether the client can show forms: earlier versions of MCP would need a connection to ask it on."""
        asks = None if self._capabilities is None else self._capabilities.elicitation
        return asks is not None and (asks.form is not None or asks.url is None)

    @property
    def has_tasks(self) -> bool:
        """Whether the client has declared `TASKS` with this request."""
        return self._capabilities is not None and TASKS in (self._capabilities.extensions or {})

    @property
    def _capabilities(self) -> ClientCapabilities | None:
        """What the client can do, which it says with each request since 2026-07-28."""
        is_modern = self._context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return self._context.session.client_capabilities if is_modern else None

    async def _report(self, step: Step | LiveEvent | None) -> None:
        """Report the progress of agents, to a client that wants that."""
        told = list(map(words_of, step.changes)) if isinstance(step, Step) else ["agents work"]
        for message in filter(None, told):
            self._reports += 1
            await self._context.session.report_progress(self._reports, message=message)
