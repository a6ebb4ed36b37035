"""Sending messages, and following the tasks that they begin."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal
from urllib.parse import unquote
from uuid import uuid4

import httpx

from mail.client.connection import Connection, is_stream, read_json
from mail.client.errors import BadAnswer, ConnectionLost, MAILClientError, RequestTimedOut
from mail.client.following import Followed, Sent, follow
from mail.client.stream import BROKEN, EventStream, attempts, may_pass

MessageKind = Literal["request", "response", "broadcast", "interrupt"]
ResumePoint = Literal["user_response", "breakpoint_tool_call"]

MESSAGE = "/message"
TASK_STREAM = "/task/stream"

PLACE_HEADER = "X-Last-Event-ID"
"""On a stream that answers a message: the last event of the task before that message."""


class Messaging(Connection):
    """The part of the client that is about messages and their answers."""

    async def post_message(
        self,
        message: str,
        entrypoint: str | None = None,
        show_events: bool = False,
        *,
        subject: str | None = None,
        msg_type: MessageKind = "request",
        task_id: str | None = None,
        resume_from: ResumePoint | None = None,
        idempotency_key: str | None = None,
        generation: int | None = None,
        webhook: str | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Send a message and wait for the answer: `{"response": …, "events": … or None}`.

        Waits for as long as the configuration allows, also where the server doesn't: where it answers 202, or the
        connection breaks, the task is followed to its end.

        Args:
            message: the text; it may only be empty when resuming from a breakpoint.
            entrypoint: the agent to write to, instead of the swarm's entrypoint.
            show_events: whether the answer holds the task's events.
            task_id: the task to go on with, or a new one's id; else the task is new.
            resume_from: from where to go on with a task that has stopped.
            idempotency_key: within a day, a message with this key is accepted once and always answered with the same
                answer; so it is sent again by itself where the connection breaks.
            generation: the `generation` of the task's record as it was looked at; refused where it has gone on since.
            webhook: a URL that the task's end is sent to, or an object with its `url`, `secret_ref` and `events`.
            kwargs: further settings, such as `breakpoint_tool_call_result`, `max_steps` and `timeout`.

        Raises MAILClientError.
        """
        sent = _message(
            message,
            entrypoint,
            subject,
            msg_type,
            task_id,
            resume_from,
            kwargs,
            show_events=show_events,
            webhook=_webhook(webhook),
        ).under(idempotency_key, generation)
        answer = await self._wait_for_answer(sent)
        if isinstance(answer, Followed):
            return {"response": answer.response, "events": answer.events if show_events else None}
        return answer

    async def post_message_stream(
        self,
        message: str,
        entrypoint: str | None = None,
        *,
        subject: str | None = None,
        msg_type: MessageKind = "request",
        task_id: str | None = None,
        resume_from: ResumePoint | None = None,
        idempotency_key: str | None = None,
        generation: int | None = None,
        webhook: str | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> EventStream:
        """Send a message and watch what happens, up to `task_complete` or `task_error`.

        The arguments are those of `post_message`. Raises MAILClientError, also while it is read.
        """
        sent = _message(
            message,
            entrypoint,
            subject,
            msg_type,
            task_id,
            resume_from,
            kwargs,
            stream=True,
            webhook=_webhook(webhook),
        ).under(idempotency_key, generation)
        try:
            response = await self._repeated(sent, self._open)
        except ConnectionLost as trouble:
            return await self._find(sent, trouble)
        return self._stream_in(response, sent)

    async def watch_task(self, task_id: str, after: int | str | None = None) -> EventStream:
        """The events of a task past the one with the id `after` (default: all), until it has stopped.

        Raises BadAnswer for a task that isn't the caller's.
        """
        stream = self._watch(task_id, after=None if after is None else str(after))
        stream.attach(await self._reopen(TASK_STREAM, {"task_id": task_id}, stream.last_event_id))
        return stream

    async def _wait_for_answer(self, sent: Sent) -> dict[str, Any] | Followed:
        """Send a message, and wait for its answer for as long as the configuration allows.

        What the server answers is returned as it is. Where it answers 202 or with a stream, or the connection breaks,
        the task is followed to its end.
        """
        try:
            async with self._deadline(f"POST {sent.path}"):
                answer = await self._exchange(sent)
                return await follow(answer) if isinstance(answer, EventStream) else answer
        except RequestTimedOut as late:
            raise RequestTimedOut(f"{late.detail}; {sent.how_to_look}") from late.__cause__

    async def _exchange(self, sent: Sent) -> dict[str, Any] | EventStream:
        """The server's answer, or the stream that the answer will come in."""
        try:
            response = await self._repeated(sent, self._send)
        except ConnectionLost as trouble:
            return await self._find(sent, trouble)
        if is_stream(response):
            return self._stream_in(response, sent)
        answer = dict(read_json(response))
        if response.status_code == httpx.codes.ACCEPTED:
            return self._stream_of(response, answer, is_new=sent.is_new)
        return answer

    async def _repeated[Answer](self, sent: Sent, send: Callable[..., Awaitable[Answer]]) -> Answer:
        """What `send` brings; a message that may be repeated is sent again where the connection breaks."""
        try:
            return await send("POST", sent.path, body=sent.body, headers=sent.headers)
        except ConnectionLost:
            if not sent.may_be_repeated:
                raise
        why: ConnectionLost | None = None
        async for _ in attempts():
            try:
                return await send("POST", sent.path, body=sent.body, headers=sent.headers)
            except ConnectionLost as trouble:
                why = trouble
        assert why is not None
        raise why

    async def _find(self, sent: Sent, trouble: ConnectionLost) -> EventStream:
        """The events since a message of which nobody knows whether it has arrived: only its task can tell.

        Raises ConnectionLost where it can't be seen there, as often as one looks; BadAnswer.
        """
        task_id = sent.task_id
        if task_id is None:
            raise ConnectionLost(f"{trouble.detail}; {sent.how_to_look}") from trouble.__cause__
        if sent.is_new:
            stream = self._watch(task_id, is_new=True)
            await stream.connect(trouble)
            return stream
        why: MAILClientError = trouble
        async for _ in attempts():
            try:
                named = {"task_id": task_id}
                response = await self._send("GET", "/task", query=named, body=named)
                record = read_json(response)
            except BROKEN as failure:
                why = failure
                continue
            except BadAnswer as refusal:
                if refusal.status != httpx.codes.NOT_FOUND and not may_pass(refusal):
                    raise
                why = refusal
                continue
            place = sent.find(record, sent.sent_by_clock_of(response.headers.get("date")))
            if place is not None:
                return self._watch(task_id, after=record["events"][place - 1]["id"] if place else None)
        raise ConnectionLost(
            f"{trouble.detail}; whether task {task_id!r} will have this message is not known "
            f"({why}): {sent.how_to_look}"
        ) from trouble.__cause__

    def _stream_in(self, response: httpx.Response | None, sent: Sent) -> EventStream:
        """The stream that is the answer to a message."""
        headers = httpx.Headers() if response is None else response.headers
        task_id = sent.task_id or unquote(headers.get("x-task-id", ""))
        after = headers.get(PLACE_HEADER)
        is_placed = sent.is_new or after is not None
        stream = self._watch(task_id, after=after, is_placed=is_placed, is_new=sent.is_new)
        stream.attach(response)
        return stream

    def _watch(
        self, task_id: str, *, after: str | None = None, is_placed: bool = True, is_new: bool = False
    ) -> EventStream:
        async def reopen(last: str | None) -> httpx.Response | None:
            return await self._reopen(TASK_STREAM, {"task_id": task_id}, last)

        return EventStream(task_id, reopen, after=after, is_placed=is_placed, is_new=is_new)

    def _stream_of(self, accepted: httpx.Response, answer: dict[str, Any], *, is_new: bool) -> EventStream:
        """The stream that a 202 names. It may be on a better server for that, which gets the key too."""
        url = accepted.url.join(answer["links"]["stream"])
        if accepted.url.scheme == "https" and url.scheme != "https":
            raise BadAnswer(
                f"POST {MESSAGE}", accepted.status_code, "it names a stream that is not encrypted"
            )

        async def reopen(last: str | None) -> httpx.Response | None:
            return await self._reopen(str(url), None, last)

        return EventStream(answer["task_id"], reopen, is_new=is_new)

    async def _reopen(
        self, url: str, query: Mapping[str, str] | None, last: str | None
    ) -> httpx.Response | None:
        return await self._open("GET", url, query=query, headers={"Last-Event-ID": last} if last else None)


def _message(
    message: str,
    entrypoint: str | None,
    subject: str | None,
    msg_type: MessageKind,
    task_id: str | None,
    resume_from: ResumePoint | None,
    kwargs: Mapping[str, Any],
    **others: Any,
) -> Sent:
    """A message for `POST /message`."""
    given = {
        "body": message,
        "subject": subject,
        "msg_type": msg_type,
        "entrypoint": entrypoint,
        "task_id": task_id,
        "resume_from": resume_from,
        "kwargs": kwargs or None,
        **others,
    }
    return outgoing(MESSAGE, given)


def _webhook(given: str | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return {"url": given} if isinstance(given, str) else given


def outgoing(path: str, given: Mapping[str, Any]) -> Sent:
    """A message with the fields that are given.

    A new task gets its id here and not by the server, so that it can be found again when the connection breaks
    before the server has said anything.
    """
    body = {name: value for name, value in given.items() if value is not None}
    is_new = "task_id" not in body and "resume_from" not in body
    if is_new:
        body["task_id"] = str(uuid4())
    return Sent(path, body, is_new)
