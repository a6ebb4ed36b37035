"""Sending messages, and following the tasks that they begin."""

import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import wraps
from types import MappingProxyType
from typing import Any, Literal, cast
from urllib.parse import unquote
from uuid import uuid4

import httpx2

from mail.client.connection import Connection, is_stream, read_json
from mail.client.errors import (
    BadAnswer,
    ConnectionLost,
    InvalidRequest,
    MAILClientError,
    RequestTimedOut,
    SeveralCalls,
)
from mail.client.operations import OPERATIONS, Request
from mail.client.stream import (
    CONNECTION_ERRORS,
    TERMINAL,
    UNNUMBERED,
    EventStream,
    attempts,
    is_transient,
    status_of,
)

JSONObject = dict[str, Any]
MessageKind = Literal["request", "response", "broadcast", "interrupt"]
ResumePoint = Literal["user_response", "breakpoint_tool_call"]

OUTSIDE = frozenset({"user", "admin"})
"""The address types of senders outside the swarm."""

CLOCK_TOLERANCE = timedelta(seconds=1)
"""How far the clocks of one server's machines may differ."""

LIVE_OPTIONS = ("live", "deltas", "items")
"""Options of a stream, for what it has besides events."""

IDEMPOTENCY_KEY = "Idempotency-Key"

POSITION_HEADER = "X-Last-Event-ID"
"""On a stream that answers a message: the id of the task's last event before that message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """The options of a message; `MAILClient.post_message` and `post_message_stream` describe them.

    `settings` are its `kwargs`.
    """

    entrypoint: str | None = None
    subject: str | None = None
    msg_type: MessageKind | None = None
    task_id: str | None = None
    resume_from: ResumePoint | None = None
    idempotency_key: str | None = None
    generation: int | None = None
    webhook: str | Mapping[str, Any] | None = None
    live: bool = False
    deltas: bool = False
    items: bool = False
    drop_question: bool = False
    output_schema: Mapping[str, Any] | None = None
    approvals: Sequence[Mapping[str, Any]] | None = None
    files: Sequence[str] = ()
    not_before: float | str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def message(self, operation: str, **fields: Any) -> "SentMessage":
        """Build the message with these options and the further fields of its body.

        A new task gets its id here and not from the server, so that it can be found if the connection breaks before the
        server answers. With an idempotency key the server chooses the id: the same one each time.
        """
        body = {
            **fields,
            "entrypoint": self.entrypoint,
            "subject": self.subject,
            "msg_type": self.msg_type,
            "task_id": self.task_id,
            "resume_from": self.resume_from,
            "webhook": {"url": self.webhook} if isinstance(self.webhook, str) else self.webhook,
            "drop_question": self.drop_question or None,
            "output_schema": self.output_schema,
            "approvals": self.approvals,
            "files": list(self.files) or None,
            "not_before": self.not_before,
            "kwargs": self.settings or None,
        }
        headers = {} if self.idempotency_key is None else {IDEMPOTENCY_KEY: self.idempotency_key}
        if self.generation is not None:
            headers["If-Match"] = f'"{self.generation}"'
        is_new = self.task_id is None and self.resume_from is None and self.idempotency_key is None
        if is_new:
            body["task_id"] = str(uuid4())
        given = {name: value for name, value in body.items() if value is not None}
        return SentMessage(OPERATIONS[operation].path, given, is_new, headers)


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message on its way.

    Attributes:
        path: the endpoint.
        body: the body of the request.
        is_new: whether it begins a task, which no other client uses.
        headers: further headers of the request.
        at: when it was sent, by `time.monotonic`.
    """

    path: str
    body: Mapping[str, Any]
    is_new: bool
    headers: Mapping[str, str]
    at: float = field(default_factory=time.monotonic)

    @property
    def task_id(self) -> str | None:
        """The task; None if only the server knows it."""
        return self.body.get("task_id")

    @property
    def live_options(self) -> Mapping[str, bool]:
        """What was asked for besides events."""
        return {name: True for name in LIVE_OPTIONS if self.body.get(name)}

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be sent again: the server drops duplicates."""
        return IDEMPOTENCY_KEY in self.headers

    @property
    def advice(self) -> str:
        """How to find out whether the message has arrived."""
        if self.task_id is None:
            return "get_tasks shows whether it has arrived"
        return (
            f"get_task({self.task_id!r}) and watch_task({self.task_id!r}) show whether it has arrived, "
            "as do mail task show and mail task watch"
        )

    def sent_by_clock_of(self, date: str | None) -> datetime:
        """Return the latest time at which it was sent, by the clock of the server that has just sent this `Date`."""
        try:
            now = _aware(parsedate_to_datetime(date or ""))
        except ValueError:
            now = datetime.now(UTC)
        return now - timedelta(seconds=time.monotonic() - self.at) - CLOCK_TOLERANCE

    def find(self, task: Mapping[str, Any], since: datetime) -> int | None:
        """Return the message's index among the events of its task; None if it isn't there.

        The protocol marks messages with nothing that the sender knows, so it is the first message from outside with the
        same text since `since`.
        """
        for index, event in enumerate(task["events"]):
            data = json.loads(event["data"])
            if self._is_about(event["event"], data):
                happened = _aware(datetime.fromisoformat(data["timestamp"]))
                if happened >= since:
                    return index
        return None

    def _is_about(self, kind: str, data: Mapping[str, Any]) -> bool:
        if self.body.get("resume_from") == "breakpoint_tool_call" or "approvals" in self.body:
            return kind == "breakpoint_action_complete"
        message = (data.get("extra_data") or {}).get("full_message", {}).get("message")
        return (
            message is not None
            and message["sender"]["address_type"] in OUTSIDE
            and message["body"] == self.body["body"]
        )


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The end of a task that was followed.

    Attributes:
        response: the answer.
        events: the events as answers to messages contain them; the last one has the answer.
    """

    response: str
    events: list[JSONObject]

    @property
    def task_id(self) -> str:
        """The task."""
        return str(self.events[-1]["data"]["task_id"])

    @property
    def status(self) -> str:
        """The status of the task at its end."""
        end = self.events[-1]
        return str(status_of(end["event"], end["data"]))

    def message(self, swarm: str) -> JSONObject:
        """Return the answer as the message that it came in.

        No event contains the message by which a swarm says that a task has failed or is paused, so it is rebuilt.
        """
        *before, end = self.events
        data = end["data"]
        last = before[-1]["data"].get("extra_data", {}).get("full_message") if before else None
        if last is not None and last["message"]["body"] == self.response:
            return dict(last)
        has_failed = end["event"] == "task_error"
        payload = {
            "task_id": data["task_id"],
            "broadcast_id": str(uuid4()),
            "sender": {"address_type": "system", "address": swarm},
            "recipients": [{"address_type": "agent", "address": "all"}],
            "subject": "::task_error::" if has_failed else "::breakpoint_tool_call::",
            "body": self.response,
            "routing_info": {},
        }
        return {
            "id": str(uuid4()),
            "timestamp": data["timestamp"],
            "msg_type": "broadcast_complete",
            "message": payload,
        }


def subject_may_be_second[Send: Callable[..., Coroutine[Any, Any, Any]]](send: Send) -> Send:
    """Accept the subject as the second argument by position, too, as clients of MAIL 1.3.6 do.

    A text in that place that names an agent of the server's swarm is the entrypoint, any other one the subject.
    """

    @wraps(send)
    async def call(client: "Messaging", *given: Any, **named: Any) -> Any:
        match given:
            case (message, str() as subject, *more) if not await client._may_be_agent(subject):
                given, named = (message, None, *more), {**named, "subject": subject}
        return await send(client, *given, **named)

    return cast(Send, call)


async def repeat[Answer](send: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return the answer to a request of which the server drops duplicates; send it again when the connection breaks."""
    try:
        return await send()
    except ConnectionLost as error:
        last = error
    async for _ in attempts():
        try:
            return await send()
        except ConnectionLost as error:
            last = error
    raise last


class Messaging(Connection):
    """The client's methods for messages and their answers."""

    async def _may_be_agent(self, name: str) -> bool:
        """Return whether the server's swarm has an agent of this name, or doesn't say which agents it has."""
        try:
            agents = (await self._ask("get_swarm"))["agents"]
        except BadAnswer:  # a server of MAIL 1.3.6 has no such endpoint
            return True
        return name in {agent["name"] for agent in agents}

    @subject_may_be_second
    async def post_message(
        self,
        message: str = "",
        entrypoint: str | None = None,
        show_events: bool = False,
        *,
        body: str | None = None,
        subject: str | None = None,
        msg_type: MessageKind = "request",
        task_id: str | None = None,
        resume_from: ResumePoint | None = None,
        idempotency_key: str | None = None,
        generation: int | None = None,
        webhook: str | Mapping[str, Any] | None = None,
        drop_question: bool = False,
        output_schema: Mapping[str, Any] | None = None,
        approvals: Sequence[Mapping[str, Any]] | None = None,
        files: Sequence[str] = (),
        not_before: float | str | None = None,
        **kwargs: Any,
    ) -> JSONObject:
        """Send a message and wait for the answer.

        Returns `{"response": …, "events": … or None, "task_id": …, "status": …, "pending_tool_calls": […],
        "question": … or None}`, the last being what a paused task asks, in words; also `warnings` if the server has
        ignored something.

        Waits as long as the configuration allows, even if the server doesn't: after 202, or when the connection breaks,
        it follows the task to its end.

        Args:
            message: the text; it may be empty only when resuming from a breakpoint. `body` is an alias.
            entrypoint: the agent to write to, instead of the swarm's entrypoint. A text in this place that is not the
                name of an agent is the subject.
            show_events: whether the answer contains the task's events.
            task_id: the task to continue, or the id for a new one; without it the task is new.
            resume_from: where to resume a task that has stopped.
            idempotency_key: within a day, messages with the same key count as one and get the same answer; so the
                client retries when the connection breaks.
            generation: the expected `generation` of the task; if it has changed, the message is refused.
            webhook: a URL to notify when the task ends, or an object with its `url`, `secret_ref` and `events`.
            drop_question: whether a message to a task that waits for an answer drops the question; otherwise it is
                refused with QuestionOpen.
            output_schema: the JSON Schema that the answer must fit; its value is `output` in the answer then.
            approvals: decisions on calls that wait for approval, each with a `decision` (approve, edit, reject) and, if
                several wait, a `call_id`; `approve` and `reject` build one.
            files: the ids of files that go with the message (`upload_file`).
            not_before: when the server posts the message: ISO 8601 with its zone, or seconds since the epoch. The
                answer then comes at once, and has `task_id` and `links`; `cancel_timer` takes the message back.
            kwargs: further settings, such as `breakpoint_tool_call_result`, `max_steps` and `timeout`.

        Raises MAILClientError.
        """
        options = MessageOptions(
            entrypoint=entrypoint,
            subject=subject,
            msg_type=msg_type,
            task_id=task_id,
            resume_from=resume_from,
            idempotency_key=idempotency_key,
            generation=generation,
            webhook=webhook,
            drop_question=drop_question,
            output_schema=output_schema,
            approvals=approvals,
            files=files,
            not_before=not_before,
            settings=kwargs,
        )
        return await self._post(message if body is None else body, options, show_events=show_events)

    @subject_may_be_second
    async def post_message_stream(
        self,
        message: str = "",
        entrypoint: str | None = None,
        *,
        body: str | None = None,
        subject: str | None = None,
        msg_type: MessageKind = "request",
        task_id: str | None = None,
        resume_from: ResumePoint | None = None,
        idempotency_key: str | None = None,
        generation: int | None = None,
        webhook: str | Mapping[str, Any] | None = None,
        live: bool = False,
        deltas: bool = False,
        items: bool = False,
        drop_question: bool = False,
        output_schema: Mapping[str, Any] | None = None,
        approvals: Sequence[Mapping[str, Any]] | None = None,
        files: Sequence[str] = (),
        not_before: float | str | None = None,
        **kwargs: Any,
    ) -> EventStream:
        """Send a message and stream the task's events, up to `task_complete` or `task_error`.

        The arguments are those of `post_message`, and those of `watch_task`. Raises MAILClientError, also while the
        stream is read.
        """
        options = MessageOptions(
            entrypoint=entrypoint,
            subject=subject,
            msg_type=msg_type,
            task_id=task_id,
            resume_from=resume_from,
            idempotency_key=idempotency_key,
            generation=generation,
            webhook=webhook,
            live=live,
            deltas=deltas,
            items=items,
            drop_question=drop_question,
            output_schema=output_schema,
            approvals=approvals,
            files=files,
            not_before=not_before,
            settings=kwargs,
        )
        return await self._post_stream(message if body is None else body, options)

    async def approve(
        self,
        task_id: str,
        *,
        call_id: str | None = None,
        all: bool = False,  # noqa: A002  # as `--all`
        arguments: Mapping[str, Any] | None = None,
        reason: str = "",
        arguments_sha256: str | None = None,
        show_events: bool = False,
    ) -> JSONObject:
        """Approve a call that waits for approval, so that the server runs it, and wait for the task's answer.

        Args:
            call_id: the call; not needed if only one waits.
            all: whether to decide all calls of the task that wait for a decision when this one arrives,
                including those that you have not seen.
            arguments: arguments for the call, instead of the model's.
            reason: a note for the task's timeline.
            arguments_sha256: the SHA-256 of the call's `arguments_text`, as you have shown it to a person, in
                hexadecimal; with it the decision is refused if the call has other arguments.

        Returns what `post_message` returns: `pending_tool_calls` if other calls still wait. Raises MAILClientError;
        SeveralCalls, which has the calls, if several wait and neither `call_id` nor `all` is given.
        """
        edited = None if arguments is None else dict(arguments)
        decision = "approve" if edited is None else "edit"
        given = {
            "decision": decision,
            "arguments": edited,
            "reason": reason,
            "arguments_sha256": arguments_sha256,
        }
        return await self._decide(task_id, given, call_id, show_events, is_for_all=all)

    async def reject(
        self,
        task_id: str,
        *,
        reason: str = "",
        call_id: str | None = None,
        all: bool = False,  # noqa: A002  # as `--all`
        arguments_sha256: str | None = None,
        show_events: bool = False,
    ) -> JSONObject:
        """Reject a call that waits for approval, so that it does not run, and wait for the task's answer.

        The agent reads the reason. The other arguments are those of `approve`. Returns and raises as it does.
        """
        given = {"decision": "reject", "reason": reason, "arguments_sha256": arguments_sha256}
        return await self._decide(task_id, given, call_id, show_events, is_for_all=all)

    async def _decide(
        self,
        task_id: str,
        given: JSONObject,
        call_id: str | None,
        show_events: bool,
        *,
        is_for_all: bool,
    ) -> JSONObject:
        if call_id is None and not is_for_all:
            call_id = await self._only_call(task_id)
        given = {**given, "call_id": call_id, "all": is_for_all or None}
        approval = {name: value for name, value in given.items() if value not in (None, "")}
        return await self.post_message(
            "",
            task_id=task_id,
            show_events=show_events,
            approvals=[approval],
        )

    async def _only_call(self, task_id: str) -> str:
        """Return the id of the call that waits for approval. Raises SeveralCalls, and InvalidRequest if none waits.

        Another call could wait by the time that a decision without an id arrives.
        """
        task = await self._ask("get_task", task_id=task_id, fields="summary")
        waiting = [
            each
            for each in task.get("pending_tool_calls", ())
            if each.get("needs_approval") and not each.get("decision")
        ]
        if len(waiting) > 1:
            raise SeveralCalls(task_id, waiting)
        if not waiting:
            raise InvalidRequest(f"no call of task {task_id!r} waits for approval")
        call_id: str = waiting[0]["call_id"]
        return call_id

    async def watch_task(
        self,
        task_id: str,
        after: int | str | None = None,
        *,
        live: bool = False,
        deltas: bool = False,
        items: bool = False,
    ) -> EventStream:
        """Stream the events of a task after the one with the id `after` (default: all), until the task has stopped.

        Args:
            live: whether to get live events, too: what agents do, when they do it.
            deltas: whether to get live events and the text that models write, piece by piece.
            items: whether to get events called `item`: what the events mean, as a conversation.

        Raises BadAnswer for a task that isn't the caller's.
        """
        wanted = _live_options(live, deltas, items)
        stream = self._watch(task_id, after=None if after is None else str(after), wanted=wanted)
        stream.attach(await self._reopen_task(task_id, stream.last_event_id, wanted))
        return stream

    async def _post(self, text: str, options: MessageOptions, *, show_events: bool) -> JSONObject:
        if options.not_before is not None:
            sent = options.message("post_message", body=text, show_events=show_events)
            async with self._deadline(f"POST {sent.path}"):
                return dict(read_json(await self._retried(sent, self._send)))
        answer = await self._wait_for_answer(
            options.message("post_message", body=text, show_events=show_events)
        )
        if isinstance(answer, TaskOutcome):
            more = await self._output(answer) if options.output_schema is not None else {}
            return {
                "response": answer.response,
                "events": answer.events if show_events else None,
                "task_id": answer.task_id,
                "status": answer.status,
                **await self._asked(answer),
                **more,
            }
        return answer

    async def _asked(self, outcome: TaskOutcome) -> JSONObject:
        """Return what a task asks: the calls that it waits for, which no event lists, and in words."""
        paused = outcome.status == "paused"
        task = await self._ask("get_task", task_id=outcome.task_id, fields="summary") if paused else {}
        return {"pending_tool_calls": task.get("pending_tool_calls", []), "question": task.get("question")}

    async def _output(self, outcome: TaskOutcome) -> JSONObject:
        """Return the field `output` of the answer of a task that was followed."""
        task = await self._ask("get_task", task_id=outcome.task_id, fields="summary")
        return {"output": task["output"]} if "output" in task else {}

    async def _post_stream(self, text: str, options: MessageOptions) -> EventStream:
        wanted = _live_options(options.live, options.deltas, options.items)
        sent = options.message("post_message", body=text, stream=True, **wanted)
        try:
            response = await self._retried(sent, self._open)
        except ConnectionLost as error:
            return await self._find(sent, error)
        return self._stream_in(response, sent)

    async def _send_interswarm(
        self, text: str, targets: Sequence[str], token: str | None, options: MessageOptions, **fields: Any
    ) -> JSONObject:
        sent = options.message(
            "send_interswarm_message",
            user_token=token or self.api_key or "",
            body=text,
            targets=list(targets),
            **fields,
        )
        answer = await self._wait_for_answer(sent)
        if isinstance(answer, TaskOutcome):
            swarm = (await self._ask("get_health"))["swarm_name"]
            return {"response": answer.message(swarm), "events": answer.events}
        return answer

    async def _wait_for_answer(self, sent: SentMessage) -> JSONObject | TaskOutcome:
        """Send a message, and wait for its answer as long as the configuration allows.

        Returns the server's answer; after 202, a stream or a broken connection, the outcome of the task.
        """
        try:
            async with self._deadline(f"POST {sent.path}"):
                answer = await self._exchange(sent)
                return await follow(answer) if isinstance(answer, EventStream) else answer
        except RequestTimedOut as late:
            raise RequestTimedOut(f"{late.detail}; {sent.advice}") from late.__cause__

    async def _exchange(self, sent: SentMessage) -> JSONObject | EventStream:
        """Return the server's answer, or the stream that will bring the answer."""
        try:
            response = await self._retried(sent, self._send)
        except ConnectionLost as error:
            return await self._find(sent, error)
        if is_stream(response):
            return self._stream_in(response, sent)
        answer = dict(read_json(response))
        if response.status_code == httpx2.codes.ACCEPTED:
            return self._stream_of(response, answer, is_new=sent.is_new)
        return answer

    async def _retried[Answer](
        self, sent: SentMessage, send: Callable[[Request], Awaitable[Answer]]
    ) -> Answer:
        """Return the result of `send`; retry a repeatable message when the connection breaks."""
        request = Request("POST", sent.path, body=sent.body, headers=sent.headers)
        return await (repeat(lambda: send(request)) if sent.is_repeatable else send(request))

    async def _find(self, sent: SentMessage, error: ConnectionLost) -> EventStream:
        """Return the events since a message that may or may not have arrived; its task is the only evidence.

        Raises ConnectionLost if the message doesn't appear there after all attempts; BadAnswer.
        """
        task_id = sent.task_id
        if task_id is None:
            raise ConnectionLost(f"{error.detail}; {sent.advice}") from error.__cause__
        if sent.is_new:
            stream = self._watch(task_id, is_new=True, wanted=sent.live_options)
            await stream.connect(error)
            return stream
        why: MAILClientError = error
        async for _ in attempts():
            try:
                response = await self._request("get_task", {"task_id": task_id})
                task = read_json(response)
            except CONNECTION_ERRORS as failure:
                why = failure
                continue
            except BadAnswer as refusal:
                if refusal.status != httpx2.codes.NOT_FOUND and not is_transient(refusal):
                    raise
                why = refusal
                continue
            index = sent.find(task, sent.sent_by_clock_of(response.headers.get("date")))
            if index is not None:
                after = task["events"][index - 1]["id"] if index else None
                return self._watch(task_id, after=after, wanted=sent.live_options)
        raise ConnectionLost(
            f"{error.detail}; whether task {task_id!r} has received this message is unknown "
            f"({why}): {sent.advice}"
        ) from error.__cause__

    def _stream_in(self, response: httpx2.Response | None, sent: SentMessage) -> EventStream:
        """Return the stream that is the answer to a message."""
        headers = httpx2.Headers() if response is None else response.headers
        task_id = sent.task_id or unquote(headers.get("x-task-id", ""))
        after = headers.get(POSITION_HEADER)
        is_resumable = sent.is_new or after is not None
        stream = self._watch(
            task_id, after=after, is_resumable=is_resumable, is_new=sent.is_new, wanted=sent.live_options
        )
        stream.attach(response)
        stream.warnings = unquote(headers.get("x-warnings", ""))
        return stream

    def _watch(
        self,
        task_id: str,
        *,
        after: str | None = None,
        is_resumable: bool = True,
        is_new: bool = False,
        wanted: Mapping[str, bool] = MappingProxyType({}),
    ) -> EventStream:
        async def reopen(last: str | None) -> httpx2.Response | None:
            return await self._reopen_task(task_id, last, wanted)

        return EventStream(task_id, reopen, after=after, is_resumable=is_resumable, is_new=is_new)

    def _stream_of(self, accepted: httpx2.Response, answer: JSONObject, *, is_new: bool) -> EventStream:
        """Return the stream that a 202 links to. It may be on another server, which gets the key too."""
        url = accepted.url.join(answer["links"]["stream"])
        if accepted.url.scheme == "https" and url.scheme != "https":
            raise BadAnswer(
                f"POST {accepted.request.url.path}", accepted.status_code, "it links to an unencrypted stream"
            )

        async def reopen(last: str | None) -> httpx2.Response | None:
            return await self._open(Request("GET", str(url), headers=_after(last)))

        return EventStream(answer["task_id"], reopen, is_new=is_new)

    async def _reopen_task(
        self, task_id: str, last: str | None, wanted: Mapping[str, bool]
    ) -> httpx2.Response | None:
        asked = {"task_id": task_id, **wanted}
        return await self._open(OPERATIONS["watch_task"].request(asked, _after(last)))


def _after(last: str | None) -> dict[str, str]:
    """Return the header that asks for the events after one."""
    return {"Last-Event-ID": last} if last else {}


def _live_options(*given: bool) -> dict[str, bool]:
    """Return those of `LIVE_OPTIONS` that are given."""
    return {name: True for name, is_given in zip(LIVE_OPTIONS, given, strict=True) if is_given}


async def follow(stream: EventStream) -> TaskOutcome:
    """Read a stream to its end. Raises ConnectionLost if it has no answer, or BadAnswer."""
    answer: str | None = None
    events: list[JSONObject] = []
    end = 0
    async with stream:
        async for event in stream:
            if event.event in UNNUMBERED:
                continue
            data = json.loads(event.data or "{}")
            events.append(
                {"event": event.event, "id": event.id, "data": data, "retry": event.retry, "comment": None}
            )
            if event.event in TERMINAL:
                answer, end = data["response"], len(events)
                outcome = "task completed" if event.event == "task_complete" else "task failed"
                events[-1]["data"] = {**data, "description": outcome, "extra_data": {}}
    if answer is None:
        raise ConnectionLost(f"the task {stream.task_id!r} has stopped without an answer to this message")
    return TaskOutcome(answer, events[:end])


def _aware(time: datetime) -> datetime:
    """Return a time with its offset; without one it is UTC."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)
