"""A request of AG-UI: what it says to its thread, and the stream of what becomes of that."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import sha256
from typing import TYPE_CHECKING

from ag_ui.core import BaseEvent, Message, MessagesSnapshotEvent, RunAgentInput
from ag_ui.encoder import EventEncoder
from fastapi import Request
from pydantic import ValidationError

from mail.core.decisions.items import Message as SentMessage
from mail.core.decisions.items import Question
from mail.core.decisions.submit import Submission
from mail.core.engine.watch import Submitted
from mail.core.protocol.error_text import explain
from mail.core.task.live import LiveEvent
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import BadRequest, MAILError, QuestionOpen
from mail.http.account import PIECE_FACTOR, READ_BYTES
from mail.http.agui.input import (
    client_tools_of,
    content_of,
    context_of,
    entries_of,
    has_user_message,
    key_of,
    read_answers,
    unread,
)
from mail.http.agui.stream import ITEM_BYTES, Writer
from mail.http.bodies import JSONBody
from mail.http.inputs import compose, files_of, lend
from mail.http.runs import Progress, Runs
from mail.http.sse import HEADERS, SHUTDOWN_GRACE
from mail.http.submission import claimed_key, follow_trace
from mail.http.task_json import reading

if TYPE_CHECKING:  # as in `mail.http.sse`
    from sse_starlette import EventSourceResponse

CONTEXT = "ag_ui_context"
"""The note of a generation with the digest of the context that its agents have read."""

RESTATED_BYTES = 2 * READ_BYTES
"""What a thread takes at most that is written again: its messages are objects of the SDK until they are sent."""

_ENCODER = EventEncoder()

_input = JSONBody(RunAgentInput, has_files=True)


async def answer(request: Request, entrypoint: str | None) -> "EventSourceResponse":
    """Read an input, submit what is new in it, and stream what becomes of it."""
    from sse_starlette import EventSourceResponse

    call = Call(request, await _input(request))
    frames = await call.begin(entrypoint)
    return EventSourceResponse(
        frames,
        headers=HEADERS,
        ping=call.service.heartbeat,
        sep="\n",  # as AG-UI prescribes
        shutdown_grace_period=SHUTDOWN_GRACE,
    )


class Call(Runs):
    """An input of a caller, and its thread."""

    def __init__(self, request: Request, given: RunAgentInput) -> None:
        super().__init__(request)
        self._given = given
        self._key = TaskKey(str(self.principal), given.thread_id)
        self._holding = self.service.holding(request)

    async def begin(self, entrypoint: str | None) -> AsyncGenerator[bytes]:
        """Submit what is new in the input, and return the frames of its stream. Raises what the input has wrong."""
        self._holding.open_stream()
        await self.service.refresh()
        follow_trace(self.request)
        await self._holding.share_stream()
        try:
            submitted = await self._submit(entrypoint)
            return self._frames(await self.load(self._given.thread_id), submitted)
        except BaseException as error:
            await self._holding.close_stream()
            if isinstance(error, ValidationError):
                raise BadRequest(f"the input is not valid: {explain(error)}") from error
            raise

    async def _submit(self, entrypoint: str | None) -> Submitted | None:
        """Submit what is new in the input; return None if nothing is, as of a run that is followed again."""
        given, task = self._given, await self.runtime.store.load(self._key)
        if task is not None:
            reading(self.service, self.request, task)
            self._holding.hold_to_read(min(RESTATED_BYTES, task.stored_bytes * PIECE_FACTOR))
        new, answers = unread(given, task), None
        if task is not None and task.status is TaskStatus.PAUSED and task.generation.waiting_calls:
            asked = (await self.read(task)).items
            waiting = [each for each in asked if isinstance(each, Question) and each.is_open]
            questions = [each for each in waiting if not each.reviewers]
            if waiting and not questions and (new or given.resume):
                raise QuestionOpen(waiting[0].words)
            tools = task.generation.client_tools
            answers = read_answers(given, questions, tools, has_text=bool(new))
        if not new and answers is None and task is not None:
            return None
        context = context_of(given)
        digest = sha256(context.encode()).hexdigest()
        notes = {} if task is None else task.generation.notes
        is_told = answers is None and notes.get(CONTEXT) != digest
        entries = entries_of(new, context if is_told else "")
        if answers is None and not has_user_message(entries):
            raise BadRequest("messages must end with a message of the user, or begin a thread with one")
        text = compose(None, entries, await self.store(files_of(entries)))
        base = Submission() if answers is None else answers.reply.submission(text.body)
        submission = Submission(
            **{
                **vars(base),
                "body": "" if answers is not None and answers.takes_text else text.body,
                "subject": text.subject,
                "entrypoint": entrypoint if answers is None else None,
                "files": text.files,
                "client_tools": lend(client_tools_of(given.tools), self.runtime.swarm),
                "notes": {CONTEXT: digest} if is_told else notes,
                "drop_question": answers is None and task is not None and task.status is TaskStatus.PAUSED,
                "ceiling": self.runtime.ceiling(self.principal),
                "live": True,
                "deltas": True,
            }
        )
        if not new:
            return await self.runtime.submit(self.principal, submission.evolve(task_id=given.thread_id))
        key, content = key_of(given.thread_id, new[-1]), content_of(new[-1])
        async with claimed_key(self.service, self.principal, key, content, given.thread_id) as claim:
            submission = submission.evolve(task_id=given.thread_id, idempotency_key=claim.key)
            return await self.runtime.submit(self.principal, submission)

    async def _frames(self, task: Task, submitted: Submitted | None) -> AsyncGenerator[bytes]:
        """Yield the events of the run: of what was submitted, or of the last run of the thread as a whole."""
        tools = task.generation.client_tools
        lent = frozenset(each.name for each in tools.tools) if tools is not None else frozenset()
        writer = Writer(self._given, task, lent, self.link)
        writer.begin()
        try:
            async with aclosing(self._follow_run(writer, task, submitted)) as changes:
                async for _ in changes:
                    if writer.events:
                        yield "".join([await self._encode(event) for event in writer.events]).encode()
                        writer.events.clear()
        except MAILError as error:
            writer.fail(error.detail, type(error).__name__)
            yield "".join([await self._encode(event) for event in writer.events]).encode()
        finally:
            await self._holding.close_stream()

    async def _encode(self, event: BaseEvent) -> str:
        """Return an event as a frame; a snapshot, which may have all messages of a long thread, piece by piece."""
        if not isinstance(event, MessagesSnapshotEvent):
            return _ENCODER.encode(event)
        texts = []
        for message in event.messages:
            await self._holding.pause(ITEM_BYTES)
            texts.append(message.model_dump_json(by_alias=True))
        frame = _ENCODER.encode(event.model_copy(update={"messages": []}))
        return frame.replace('"messages":[]', f'"messages":[{",".join(texts)}]', 1)

    async def _follow_run(
        self, writer: Writer, task: Task, submitted: Submitted | None
    ) -> AsyncGenerator[None]:
        """Let a run be written; yield whenever there may be something to send."""
        yield
        is_typed = task.generation.output_schema is not None
        progress, has_begun = Progress(task.task_id, present=task.generation), False  # with its earlier runs
        if submitted is not None:
            progress = self.progress(task, of=submitted.seq)
        following = self.follow(self._key, progress, upto=task.seq, live=True, deltas=not is_typed)
        async with aclosing(following) as steps:
            async for step in steps:
                has_begun = True
                if isinstance(step, LiveEvent):
                    writer.live(step)
                elif step is not None:
                    await writer.add(step.changes)
                elif submitted is None:
                    told = [item for each in (*progress.earlier, progress) for item in each.items]
                    await writer.restate(told, self._known(task), self._holding)
                else:
                    await writer.add(
                        item
                        for item in progress.items
                        if item.version > submitted.after
                        and not (isinstance(item, SentMessage) and item.seq <= submitted.seq)
                    )
                yield
        status = progress.found.status if has_begun else TaskStatus.RUNNING
        writer.end(progress.items, status, is_typed=is_typed)
        yield

    def _known(self, task: Task) -> dict[int, Message]:
        """Return the client's own messages by the seq under which they were accepted."""
        by_key = {key_of(self._given.thread_id, each): each for each in self._given.messages}
        return {each.seq: by_key[each.key] for each in task.submitted if each.key in by_key}
