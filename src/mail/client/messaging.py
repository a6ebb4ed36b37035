"""Sending messages, and following the tasks that they begin."""

import json
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import unquote
from uuid import uuid4

import httpx

from mail.client.connection import Connection, read_json
from mail.client.errors import BadAnswer, ConnectionLost
from mail.client.stream import PING, TERMINAL, EventStream

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
            kwargs: further settings, such as `breakpoint_tool_call_result`, `max_steps` and `timeout`.

        Raises MAILClientError.
        """
        body, is_new = _message(
            message, entrypoint, subject, msg_type, task_id, resume_from, kwargs, show_events=show_events
        )
        async with self._deadline(f"POST {MESSAGE}"):
            try:
                response = await self._send("POST", MESSAGE, body=body)
            except ConnectionLost as trouble:
                if not is_new:
                    raise
                stream = self._watch(body["task_id"], is_new=True)
                await stream.connect(trouble)
            else:
                answer = read_json(response)
                if response.status_code != httpx.codes.ACCEPTED:
                    return dict(answer)
                stream = self._stream_of(response, answer, is_new=is_new)
            return await _follow(stream, show_events=show_events)

    async def post_message_stream(
        self,
        message: str,
        entrypoint: str | None = None,
        *,
        subject: str | None = None,
        msg_type: MessageKind = "request",
        task_id: str | None = None,
        resume_from: ResumePoint | None = None,
        **kwargs: Any,
    ) -> EventStream:
        """Send a message and watch what happens, up to `task_complete` or `task_error`.

        The arguments are those of `post_message`. Raises MAILClientError, also while it is read.
        """
        body, is_new = _message(
            message, entrypoint, subject, msg_type, task_id, resume_from, kwargs, stream=True
        )
        try:
            response = await self._open("POST", MESSAGE, body=body)
        except ConnectionLost as trouble:
            if not is_new:
                raise
            stream = self._watch(body["task_id"], is_new=True)
            await stream.connect(trouble)
            return stream
        headers = httpx.Headers() if response is None else response.headers
        task_id = body.get("task_id") or unquote(headers.get("x-task-id", ""))
        after = headers.get(PLACE_HEADER)
        stream = self._watch(task_id, after=after, is_placed=is_new or after is not None, is_new=is_new)
        stream.attach(response)
        return stream

    async def watch_task(self, task_id: str, after: int | str | None = None) -> EventStream:
        """The events of a task past the one with the id `after` (default: all), until it has stopped.

        Raises BadAnswer for a task that isn't the caller's.
        """
        stream = self._watch(task_id, after=None if after is None else str(after))
        stream.attach(await self._reopen(TASK_STREAM, {"task_id": task_id}, stream.last_event_id))
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
    **flags: bool,
) -> tuple[dict[str, Any], bool]:
    """The body of `POST /message`, and whether the task is one that nobody has used before.

    A new task gets its id here and not by the server, so that it can be found again when the connection breaks
    before the server has said anything.
    """
    is_new = task_id is None and resume_from is None
    given = {
        "body": message,
        "subject": subject,
        "msg_type": msg_type,
        "entrypoint": entrypoint,
        "task_id": str(uuid4()) if is_new else task_id,
        "resume_from": resume_from,
        "kwargs": kwargs or None,
        **flags,
    }
    return {name: value for name, value in given.items() if value is not None}, is_new


async def _follow(stream: EventStream, *, show_events: bool) -> dict[str, Any]:
    """What `POST /message` would have answered, had it waited."""
    answer: str | None = None
    events = []
    async with stream:
        async for event in stream:
            if event.event == PING:
                continue
            data = json.loads(event.data or "{}")
            events.append(
                {"event": event.event, "id": event.id, "data": data, "retry": event.retry, "comment": None}
            )
            if event.event in TERMINAL:
                answer = data["response"]
    if answer is None:
        raise ConnectionLost(f"the task {stream.task_id!r} has stopped without an answer to this message")
    return {"response": answer, "events": events if show_events else None}
