"""A swarm in a few lines: `Swarm`, of the agents that its lead can reach.

    lead = Agent("lead", "You lead a team.", model="openai/gpt-5-mini", team=[writer])
    print(Swarm(lead).ask("What is MAIL?"))

It fills in a template of `mail.api.swarms`, and asks the swarm that this makes.
"""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Self, TypedDict, Unpack, overload

from typing_extensions import TypeVar

from mail.actions.functions import as_text
from mail.api.agents import Agent, reachable, wire
from mail.api.answers import Answer, Piece, read_answer
from mail.api.loop_thread import LoopThread
from mail.api.runtime import ANSWER_SECONDS, UserRole
from mail.api.swarms import DEFAULT_USER, UNVERSIONED, MAILSwarm, MAILSwarmTemplate
from mail.api.tracebacks import without_frames
from mail.core.decisions.breakpoints import ways_to_answer
from mail.core.decisions.submit import Submission
from mail.core.engine.watch import Submitted
from mail.core.protocol.clock import read_time
from mail.core.protocol.output_schema import OutputSchema, read_object, schema_of
from mail.core.task.callbacks import CallResult
from mail.core.task.documents import IN_MEMORY
from mail.core.task.files import File, FileRef
from mail.core.task.idempotency import IdempotencyKey
from mail.core.task.ports import Store
from mail.core.task.task import ForkActions
from mail.errors import (
    BadApproval,
    BadRequest,
    ConfigurationError,
    FileNotFound,
    MAILError,
    QuestionOpen,
    Subject,
    TaskFailed,
)
from mail.swarms_json.specs import SwarmOptions

if TYPE_CHECKING:
    from mail.core.protocol.message import MAILMessage

Output = TypeVar("Output", default=Answer)


class TemplateOptions(SwarmOptions, total=False):
    """The settings of `MAILSwarmTemplate` that a `Swarm` takes as they are."""

    description: str
    keywords: Sequence[str]
    public: bool
    enable_interswarm: bool
    breakpoint_tools: Sequence[str]
    exclude_tools: Sequence[str]
    task_message_limit: int | None


class FacadeOptions(TemplateOptions, total=False):
    """The keyword arguments of `Swarm`, without `output_type`."""

    deps: Any
    database: Store | str
    name: str | None
    version: str
    user_id: str
    user_role: UserRole


class AskOptions(TypedDict, total=False):
    """The keyword arguments of `Swarm.ask`, without `output_type`."""

    task_id: str | None
    timeout: float | None
    drop_question: bool
    idempotency_key: str | None
    files: Sequence[File | str | Path]


def _blocking[**P, T](
    method: Callable[Concatenate["Swarm[Any]", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Swarm[Any]", P], T]:
    """Return the method without the `a` of its name, which waits for the result."""

    @wraps(method)
    def call(swarm: "Swarm[Any]", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return swarm._wait(method(swarm, *args, **kwargs), call.__name__, method.__name__)

    call.__name__ = method.__name__.removeprefix("a").removesuffix("_")
    return without_frames(call)


class Swarm(Generic[Output]):
    """A swarm: a lead with its team, the teams of its members, and so on.

        print(Swarm(lead).ask("What is MAIL?"))

    Args:
        lead: the agent that answers; it gives the swarm its name.
        deps: dependencies that actions get in their `ActionContext`.
        output_type: the type of answers, unless `ask` names another: a pydantic model, dataclass, `TypedDict`,
            `list[…]` or JSON Schema. `ask` then returns such an object, and `Swarm[Report]` is the type of the swarm.
        database: where tasks are kept: in memory by default, a file, or another value of `[server.storage] database`.
        user_id, user_role: the owner of the tasks.

    The other arguments are those of `MAILSwarmTemplate`. Used as an async context manager, the swarm works until the
    end of the block; with `ask` it works until `close`, and with `aask` only while a call waits for an answer.

    Raises ConfigurationError for invalid settings.
    """

    @overload
    def __init__(
        self: "Swarm[Answer]", lead: Agent, *, output_type: None = None, **options: Unpack[FacadeOptions]
    ) -> None: ...
    @overload
    def __init__[Model](
        self: "Swarm[Model]", lead: Agent, *, output_type: type[Model], **options: Unpack[FacadeOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: "Swarm[Any]", lead: Agent, *, output_type: Any, **options: Unpack[FacadeOptions]
    ) -> None: ...

    @without_frames
    def __init__(
        self,
        lead: Agent,
        *,
        deps: Any = None,
        database: Store | str = IN_MEMORY,
        name: str | None = None,
        version: str = UNVERSIONED,
        user_id: str = DEFAULT_USER,
        user_role: UserRole = "user",
        output_type: Any = None,
        **settings: Unpack[TemplateOptions],
    ) -> None:
        if not isinstance(lead, Agent):
            raise ConfigurationError(
                f"a swarm takes its lead, which is one Agent, not {lead!r}; give the others as team of their leads"
            )
        self.lead = lead
        self.deps = deps
        self.database = database
        self._user_id = user_id
        self._user_role: UserRole = user_role
        agents = reachable(lead)
        teams = wire(lead)
        shared = {id(action): action.with_deps(deps) for agent in agents for action in agent.actions}
        self.template = MAILSwarmTemplate(
            name=name or lead.name,
            version=version,
            agents=[
                agent.template(
                    teams[agent.name],
                    leads=agent is lead,
                    actions=[shared[id(action)] for action in agent.actions],
                )
                for agent in agents
            ],
            entrypoint=lead.name,
            output_type=output_type,
            **settings,
        )
        self._running: MAILSwarm | None = None
        self._home: LoopThread | None = None
        self._lock = threading.Lock()

    def with_template(self, template: MAILSwarmTemplate) -> "Swarm[Output]":
        """Return this swarm with another template, which nothing runs yet."""
        found = copy(self)
        found.template, found._running, found._home = template, None, None
        found._lock = threading.Lock()
        return found

    @property
    def name(self) -> str:
        """The name of the swarm."""
        return self.template.name

    @property
    def running(self) -> MAILSwarm:
        """The swarm that runs, with all its documented methods."""
        if self._running is None:
            self._running = self.template.instantiate(
                {},
                self._user_id,
                self._user_role,
                print_llm_streams=False,
                database=self.database,
            )
        return self._running

    # ------------------------------------------------------------------------------------------- asking

    @overload
    def ask(
        self, text: str, *, output_type: None = None, **options: Unpack[AskOptions]
    ) -> Output | Answer: ...
    @overload
    def ask[Model](
        self, text: str, *, output_type: type[Model], **options: Unpack[AskOptions]
    ) -> Model | Answer: ...
    @overload
    def ask(self, text: str, *, output_type: Any, **options: Unpack[AskOptions]) -> Any: ...

    @without_frames
    def ask(self, text: str, *, output_type: Any = None, **options: Unpack[AskOptions]) -> Any:
        """Ask the swarm something, and wait for the answer.

        Args:
            task_id: the id of a task to continue, or of a new one; by default a new task is created.
            timeout: seconds to wait.
            output_type: the type of the answer: a pydantic model, dataclass, `TypedDict`, `list[…]` or JSON
                Schema. By default that of the swarm; if it has none, an `Answer`.
            drop_question: whether a question to a paused task drops the calls that wait; otherwise it is refused.
            idempotency_key: your name for the question. A program that runs again, as after it was killed, asks it
                only once and gets the same answer, if `database` is a file or a server. Of the questions with a key
                in one `task_id`, the last 64 are known.
            files: files that go with the question, as `File`s or paths: images, PDF files, texts. A model gets those of
                the types that it takes.

        If the task pauses, this returns an `Answer` whatever the type, with the pending calls in `pending`; continue
        with `approve` or `reject` if they need approval, with `reply` if they are of breakpoint tools, or with `answer`
        if these ask reviewers.

        Raises TaskFailed if the task ends without an answer, QuestionOpen if it is paused, IdempotencyConflict for
        another question under the same key, BadRequest, or TimeoutError.
        Raises MAILError in a running event loop, where `aask` has to be awaited.
        """
        return self._wait(self.aask(text, output_type=output_type, **options), "ask", "aask")

    @overload
    async def aask(
        self, text: str, *, output_type: None = None, **options: Unpack[AskOptions]
    ) -> Output | Answer: ...
    @overload
    async def aask[Model](
        self, text: str, *, output_type: type[Model], **options: Unpack[AskOptions]
    ) -> Model | Answer: ...
    @overload
    async def aask(self, text: str, *, output_type: Any, **options: Unpack[AskOptions]) -> Any: ...

    @without_frames
    async def aask(
        self,
        text: str,
        *,
        task_id: str | None = None,
        timeout: float | None = ANSWER_SECONDS,
        output_type: Any = None,
        drop_question: bool = False,
        idempotency_key: str | None = None,
        files: Sequence[File | str | Path] = (),
    ) -> Any:
        """Ask the swarm something, and wait for the answer; see `ask`."""
        fields = {"body": text, "task_id": task_id, "drop_question": drop_question, "files": files}
        return await self._ask(timeout, output_type, **fields, idempotency_key=idempotency_key)

    @without_frames
    async def await_(
        self, task: Answer | str, *, timeout: float | None = ANSWER_SECONDS, output_type: Any = None
    ) -> Any:
        """Wait until a task that exists has stopped, and return its last answer; at once if it has stopped.

        Args:
            task: its id, or an answer of it. A program that was killed can wait for a task of its earlier run.
            timeout: seconds to wait.
            output_type: the type of the answer, as in `ask`.

        Raises TaskNotFound, BadRequest for a task without an answer, such as a fork that has not run, and what `ask`
        does.
        """
        runtime = self.running.runtime
        async with runtime.at_work():
            stopped, message = await runtime.wait_until_stopped(_id_of(task), timeout)
        return self._read(read_answer(stopped, message), output_type)

    wait = _blocking(await_)

    @without_frames
    async def afork(
        self,
        task: Answer | str,
        *,
        at: int | None = None,
        run: bool = False,
        actions: Literal["run", "ask", "refuse"] | None = None,
    ) -> str:
        """Create a task from the state of another one, and return its id, for `ask(…, task_id=…)` or `wait`.

        Args:
            task: the id of the other task, or an answer of it.
            at: the seq of the event to continue from; None for its present state.
            run: whether it continues at once if the other task was running then; otherwise it waits for a message.
            actions: what happens to calls of actions that are not read-only: they `run`, each waits for `approve` or
                `reject` (`ask`), or the agent reads that it was not run (`refuse`). By default as in the other task.

        Raises TaskNotFound, or BadRequest for an event or a setting that there isn't.
        """
        if actions not in (None, *ForkActions):
            raise BadRequest(f"actions must be 'run', 'ask' or 'refuse', not {actions!r}")
        runtime = self.running.runtime
        mode = None if actions is None else ForkActions(actions)
        forked = await runtime.engine.fork(runtime.principal, _id_of(task), at=at, run=run, actions=mode)
        return forked.task.task_id

    fork = _blocking(afork)

    @without_frames
    async def aread_file(self, file: FileRef | str) -> File:
        """Return a file of a task: of an answer (`Answer.files`), of an event's message, or by its id.

        Raises FileNotFound.
        """
        runtime = self.running.runtime
        files, instance = runtime.engine.caller_files, str(runtime.principal)
        ref = file if isinstance(file, FileRef) else await files.find(instance, file)
        data = await files.read(instance, ref.id)
        if data is None:
            raise FileNotFound
        return File(data, ref.name, ref.type)

    read_file = _blocking(aread_file)

    @without_frames
    async def afinish(self, token: str, result: Any = None, *, error: str | None = None) -> None:
        """Finish a call of an action that has returned `LATER`; its agent reads the result as a message.

        Any process that uses the same database can, as long as it is the only one that has it open where that is a
        file. The same result again changes nothing.

        Args:
            token: that of the call (`ActionContext.callback`).
            result: text, or what JSON can express.
            error: why the work failed, in place of a result.

        Raises CallbackNotFound for an unknown token, and CallbackClosed for a call that has ended, with another result
        or too late.
        """
        if error is not None and result is not None:
            raise BadRequest("give a result or an error, not both")
        text = as_text("finish", result) if error is None else error
        ended = CallResult(str(text), has_failed=error is not None)
        await self.running.runtime.engine.callbacks.finish(token, ended)

    finish = _blocking(afinish)

    @without_frames
    async def apost_later(
        self, text: str, not_before: datetime | float | str, *, task_id: str | None = None
    ) -> str:
        """Have a message posted later, and return the id of its task, which sleeps until then.

        It is posted while the swarm works, as a server or in `async with`, also in another process with the database.

        Args:
            not_before: when: a time with its zone, ISO 8601 text, or seconds since the epoch.
            task_id: the task to continue then, or the id of a new one.

        Raises BadRequest, and ValueError for a time without a zone.
        """
        time = read_time(not_before.isoformat() if isinstance(not_before, datetime) else not_before)
        runtime = self.running.runtime
        submission = Submission(body=text, task_id=task_id, not_before=time)
        return (await runtime.engine.submit(runtime.principal, submission)).key.task_id

    post_later = _blocking(apost_later)

    @without_frames
    async def areport(self, token: str, progress: str | None = None) -> None:
        """Send a heartbeat of a call that finishes later, and how far its work has come; raises as `finish`."""
        await self.running.runtime.engine.callbacks.report(token, progress)

    report = _blocking(areport)

    @without_frames
    async def areply(
        self,
        answer: Answer | str,
        result: str | Mapping[str, str],
        *,
        timeout: float | None = ANSWER_SECONDS,
        output_type: Any = None,
    ) -> Any:
        """Give a paused task the result of its pending call, and wait for the answer.

        Args:
            answer: the answer with the pending calls, or the id of its task.
            result: the result; for several calls a mapping from their `call_id` to their results.
            output_type: the type of the answer; by default that of the question that led to `answer`.

        Raises what `ask` does.
        """
        given: Any = {"content": result}
        if isinstance(result, Mapping):
            given = [{"call_id": call_id, "content": content} for call_id, content in result.items()]
        return await self._resume(answer, timeout, output_type, breakpoint_tool_call_result=given)

    reply = _blocking(areply)

    @without_frames
    async def aapprove(
        self,
        answer: Answer | str,
        *,
        call_id: str | None = None,
        all: bool = False,  # noqa: A002  # as `--all`
        arguments: Mapping[str, Any] | None = None,
        reason: str = "",
        timeout: float | None = ANSWER_SECONDS,
        output_type: Any = None,
    ) -> Any:
        """Approve a call that waits for approval, so that it runs, and wait for the answer.

        Args:
            answer: the answer with the pending calls, or the id of its task. With an answer, only calls with the
                arguments that are in it are decided.
            call_id: the call; by default, the calls that wait in `answer`, or the only one that waits in the task.
            all: whether to decide all calls of the task that wait for a decision when this one arrives,
                including those that you have not seen.
            arguments: arguments for the call, in place of the model's.
            reason: a note for the task's timeline.
            output_type: the type of the answer; by default that of the question that led to `answer`.

        Returns an `Answer` with the other calls in `pending` if some still wait. Raises BadApproval or
        DecisionTooLate for a decision that can't be applied, and what `ask` does.
        """
        given = {
            "decision": "approve" if arguments is None else "edit",
            "arguments": None if arguments is None else dict(arguments),
            "reason": reason,
        }
        return await self._decide(answer, call_id, given, timeout, output_type, is_for_all=all)

    approve = _blocking(aapprove)

    @without_frames
    async def areject(
        self,
        answer: Answer | str,
        *,
        reason: str = "",
        call_id: str | None = None,
        all: bool = False,  # noqa: A002  # as `--all`
        timeout: float | None = ANSWER_SECONDS,
        output_type: Any = None,
    ) -> Any:
        """Reject a call that waits for approval, so that it does not run, and wait for the answer.

        The agent reads the reason. `answer`, `call_id` and `all` are those of `approve`. Returns and raises as
        `approve`.
        """
        given = {"decision": "reject", "reason": reason}
        return await self._decide(answer, call_id, given, timeout, output_type, is_for_all=all)

    reject = _blocking(areject)

    @without_frames
    async def aanswer(
        self,
        answer: Answer | str,
        text: str,
        *,
        call_id: str | None = None,
        timeout: float | None = ANSWER_SECONDS,
        output_type: Any = None,
    ) -> Any:
        """Answer a question to reviewers, which is a call of a breakpoint tool with an `Approval`, as one of them.

        The agent reads the text. `answer` and `call_id` are those of `approve`. Returns and raises as `approve`.
        Questions to the task's owner are answered by `reply`.
        """
        given = {"decision": "answer", "answer": text}
        return await self._decide(answer, call_id, given, timeout, output_type)

    answer = _blocking(aanswer)

    @overload
    def stream(
        self, text: str, *, output_type: None = None, **options: Unpack[AskOptions]
    ) -> AsyncGenerator[Piece | Output]: ...
    @overload
    def stream[Model](
        self, text: str, *, output_type: type[Model], **options: Unpack[AskOptions]
    ) -> AsyncGenerator[Piece | Model]: ...
    @overload
    def stream(
        self, text: str, *, output_type: Any, **options: Unpack[AskOptions]
    ) -> AsyncGenerator[Any]: ...

    @without_frames
    async def stream(
        self,
        text: str,
        *,
        task_id: str | None = None,
        timeout: float | None = ANSWER_SECONDS,
        output_type: Any = None,
        drop_question: bool = False,
        idempotency_key: str | None = None,
        files: Sequence[File | str | Path] = (),
    ) -> AsyncGenerator[Any]:
        """Ask the swarm something, and iterate over what happens; the last item is what `ask` returns.

        The other items are events of the task (`Event`), which are stored at the end of each turn, and live events
        (`LiveEvent`): what agents do, when they do it, and in `delta` what their models write, piece by piece,
        the answer in a call of `task_complete` included.

        The arguments are those of `ask`, and it raises what `ask` does.
        """
        runtime = self.running.runtime
        submitted = await self._post(
            body=text,
            task_id=task_id,
            live=True,
            deltas=True,
            drop_question=drop_question,
            output_schema=_schema(output_type),
            idempotency_key=idempotency_key,
            files=files,
        )
        async with runtime.at_work(), aclosing(runtime.watch(submitted, timeout, live=True)) as events:
            async for event in events:
                if event is not None:
                    yield event
            yield self._read(await self._answer(submitted, timeout), output_type)

    @without_frames
    def serve(self, port: int = 8000, host: str = "127.0.0.1", *, open_browser: bool = False) -> None:
        """Serve the swarm over HTTP until the process is stopped, like `mail server`; its page is at `/ui`.

        All other settings come from `mail.toml`, also the database if the swarm has none of its own. Raises MAILError
        if it can't start.
        """
        if not isinstance(self.database, str):
            raise ConfigurationError(
                f"swarm {self.name!r}: to serve it, give its database as text, not as a store"
            )
        database = None if self.database == IN_MEMORY else self.database
        self.template.start_server(port, host, open_browser=open_browser, database=database)

    # ------------------------------------------------------------------------------------------ running

    @without_frames
    async def __aenter__(self) -> Self:
        await self.running.runtime.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def aclose(self) -> None:
        """Stop working and close the database; the next question opens it again."""
        running, self._running = self._running, None
        if running is not None:
            await running.shutdown()

    def close(self) -> None:
        """Stop working and close the database; see `aclose`."""
        home, self._home = self._home, None
        if home is not None:
            home.run(self.aclose())
            home.stop()

    def __repr__(self) -> str:
        return f"Swarm({self.name!r})"

    async def _ask(self, timeout: float | None, output_type: Any, **fields: Any) -> Any:
        runtime = self.running.runtime
        submitted = await self._post(output_schema=_schema(output_type), **fields)
        async with runtime.at_work():
            answer = await self._answer(submitted, timeout)
        return self._read(answer, output_type)

    def _read(self, answer: Answer, output_type: Any) -> Any:
        """Return the object of an answer, or the answer itself if the task is paused or no type is wanted."""
        kind = self.template.output_type if output_type is None else output_type
        if answer.is_paused:
            return replace(answer, output_type=output_type)
        if kind is None:
            return answer
        try:
            return read_object(kind, answer.text)
        except ValueError as error:
            raise TaskFailed(
                f"task {answer.task_id!r}: the answer fits the JSON Schema of output_type, but not its validators: "
                f"{error}",
                task_id=answer.task_id,
                status="completed",
            ) from error

    async def _post(
        self, *, idempotency_key: str | None = None, files: Sequence[File | str | Path] = (), **fields: Any
    ) -> Submitted:
        if files:
            given = [each if isinstance(each, File) else File.from_path(each) for each in files]
            runtime = self.running.runtime
            put, instance = runtime.engine.caller_files.put, str(runtime.principal)
            fields["files"] = tuple([(await put(instance, file)).id for file in given])
        if idempotency_key is not None:
            fields |= _once(idempotency_key, fields)
        try:
            return await self.running.runtime.post(**fields)
        except QuestionOpen as error:
            waiting = [call for call in error.calls if call.approval is None]
            decided = ["approve" if call.needs_approval else "answer" for call in waiting if call.is_held]
            decisions = " or ".join(f"swarm.{name}" for name in dict.fromkeys([*decided, "reject"]))
            ways = ways_to_answer(waiting, decisions=decisions, results="swarm.reply")
            calls = ", ".join(f"{call.name} (call_id {call.call_id!r})" for call in waiting)
            raise QuestionOpen(
                f"task {fields['task_id']!r} takes no other message while calls wait for you: {calls}; use {ways}, "
                "or drop_question=True",
                error.calls,
            ) from None

    async def _decide(
        self,
        answer: Answer | str,
        call_id: str | None,
        given: Mapping[str, Any],
        timeout: float | None,
        output_type: Any,
        *,
        is_for_all: bool = False,
    ) -> Any:
        """Decide on one call, on the pending calls of `answer`, or on all calls of the task."""
        calls: list[str | None] = [call_id]
        if call_id is None and not is_for_all and isinstance(answer, Answer):
            is_answer, is_rejection = given["decision"] == "answer", given["decision"] == "reject"
            calls = [
                call.call_id
                for call in answer.pending
                if call.is_undecided and (is_rejection or call.needs_approval is not is_answer)
            ]
            if not calls:
                what = "asks reviewers" if is_answer else "needs approval"
                raise BadApproval(f"task {answer.task_id!r}: no call in this answer {what}")
            if len(calls) > 1 and given.get("arguments") is not None:
                raise BadApproval("several calls wait; name the call_id of the one with these arguments")
        if given.get("arguments") is not None:  # of a tool whose server has not been asked in this process
            await self.running.runtime.swarm.warm_up()
        seen = {call.call_id: call.digest for call in answer.pending} if isinstance(answer, Answer) else {}
        approvals = [
            {**given, "call_id": each, "all": is_for_all, "arguments_sha256": seen.get(each or "")}
            for each in calls
        ]
        return await self._resume(answer, timeout, output_type, approvals=approvals)

    async def _resume(
        self, answer: Answer | str, timeout: float | None, output_type: Any, **decided: Any
    ) -> Any:
        if isinstance(answer, Answer):
            output_type = answer.output_type if output_type is None else output_type
        return await self._ask(
            timeout, output_type, task_id=_id_of(answer), resume_from="breakpoint_tool_call", **decided
        )

    async def _answer(self, submitted: Submitted, timeout: float | None) -> Answer:
        """Return the answer to a question; to one that was asked before, and led to a pause, what has come after it."""
        runtime, task_id = self.running.runtime, submitted.key.task_id
        message: MAILMessage | None = await runtime.wait(submitted, timeout)
        task = await runtime.load_task(task_id)
        assert task is not None
        is_question = message is not None and message.message.subject == Subject.BREAKPOINT_TOOL_CALL
        if is_question and task.generation.breakpoint is None:
            task, message = await runtime.wait_until_stopped(task_id, timeout)
        return read_answer(task, message)

    def _wait[T](self, work: Coroutine[Any, Any, T], name: str, twin: str) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise MAILError(f"{name} would block the running event loop; use: await swarm.{twin}(...)")
        try:
            with self._lock:
                if self._home is None:
                    runtime = self.running.runtime
                    self._home = LoopThread()
                    self._home.run(runtime.start())
        except BaseException:
            work.close()
            raise
        return self._home.run(work)


NEVER = 253_402_300_799.0
"""The end of the year 9999, when the keys of questions expire."""


def _once(key: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of a question as the engine takes it, and its task, which is that of the key by default."""
    if not key:
        raise BadRequest("idempotency_key must not be empty")
    content = [fields["body"], fields["task_id"], fields["output_schema"], *fields.get("files", ())]
    asked = json.dumps(content, sort_keys=True)
    named = IdempotencyKey(key=key, digest=sha256(asked.encode()).hexdigest(), until=NEVER)
    task_id = fields["task_id"] or f"key-{sha256(key.encode()).hexdigest()[:32]}"
    return {"task_id": task_id, "idempotency_key": named}


def _id_of(task: Answer | str) -> str:
    return task.task_id if isinstance(task, Answer) else task


def _schema(output_type: Any) -> OutputSchema | None:
    return None if output_type is None else schema_of(output_type)
