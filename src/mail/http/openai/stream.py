"""A response as a stream of OpenAI's events.

The text that models write for the answer is sent as they write it. Text is numbered by its characters, and what comes
before and after it has fixed numbers, so that every stream of one response has the same events under the same numbers,
and one that breaks off can be resumed in the midst of the text. Only the stream of the request itself has text before
the answer is complete.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import aclosing
from typing import Any

from fastapi import Request

from mail.core.protocol.values import value
from mail.core.task.events import Event
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.task import TaskKey
from mail.http.openai.output import UNANSWERED, Echo, JSONObject, Work, describe, message_item
from mail.http.openai.submission import ResponseId
from mail.http.sse import encode, read_batches

TEXT = 4
"""The number of the event with the first character."""

CLOSING = 1_000_000_000
"""The number of the first event after the text."""

PARAGRAPH = "\n\n"
"""Stands between texts that don't continue each other."""

PING = b": ping\r\n\r\n"


@value
class Sought:
    """A response, and where to find it in its task's timeline.

    Attributes:
        after: the seq of an event before it.
        generation: its generation, counted from that event.
    """

    key: TaskKey
    id: ResponseId
    echo: Echo
    after: int = 0
    generation: int = 1


async def follow(
    request: Request, sought: Sought, *, live: bool = False, starting_after: int = -1
) -> AsyncGenerator[JSONObject | None]:
    """Yield the events of a response whose numbers are higher than `starting_after`, and None after each silence.

    With `live`, text is among them as models write it. The events end early when the request's time is up, the server
    stops or the key is refused.
    """
    writer = _Writer(sought, starting_after)
    batches = read_batches(request, sought.key, sought.after, live=live, deltas=True)
    async with aclosing(batches):
        async for batch in batches:
            if not batch:
                yield None
            for event in batch:
                for each in writer.add(event) if isinstance(event, LiveEvent) else writer.read(event):
                    yield each
                if writer.work.end is not None:
                    return


async def frames(events: AsyncIterable[JSONObject | None]) -> AsyncGenerator[bytes]:
    """Yield the frames of a stream of these events."""
    async for event in events:
        yield PING if event is None else encode(event["type"], event)


class _Writer:
    """Writes the events of a response that a client has not seen.

    Attributes:
        work: what has been read of its generation.
    """

    def __init__(self, sought: Sought, starting_after: int) -> None:
        self.work = Work(sought.generation)
        self._sought = sought
        self._starting_after = starting_after
        self._seen = max(0, min(starting_after, CLOSING) - TEXT + 1)
        self._sent = self._current = ""  # all of the text, and that of the last call of a model
        self._source: tuple[str, object] | None = None
        self._has_begun = self._has_text = False
        self._closing = CLOSING

    def read(self, event: Event) -> Iterator[JSONObject]:
        """Yield the events that follow from one of the timeline."""
        self.work.read(event)
        if self.work.has_begun:
            yield from self._begin(self.work.began)
        if self.work.end is not None:
            yield from self._end()

    def add(self, event: LiveEvent) -> Iterator[JSONObject]:
        """Yield the events that follow from a live one: the text that it adds to the answer."""
        source = (event.turn, event.extra.get("call"))
        if event.kind is LiveKind.MODEL_CALL_RETRIED and source == self._source:
            self._source = None
        if not event.is_answer:
            return
        yield from self._begin(event.timestamp)
        yield from self._open()
        if source != self._source:
            yield from self._add(PARAGRAPH if self._sent else "")
            self._source, self._current = source, ""
        self._current += event.delta
        yield from self._add(event.delta)

    def _begin(self, timestamp: str) -> Iterator[JSONObject]:
        if self._has_begun:
            return
        self._has_begun, begun = True, Work()
        begun.began = timestamp
        response = describe(self._sought.id, self._sought.echo, begun)
        for number, kind in enumerate(("response.created", "response.in_progress")):
            yield from self._event(kind, number, response=response)

    def _open(self) -> Iterator[JSONObject]:
        """Begin the item with the text."""
        if self._has_text:
            return
        self._has_text = True
        item = message_item(self._sought.id, "", "in_progress")
        [part] = item["content"]
        yield from self._event(
            "response.output_item.added", TEXT - 2, item={**item, "content": []}, output_index=0
        )
        yield from self._event(
            "response.content_part.added", TEXT - 1, part=part, **_at(item), content_index=0
        )

    def _add(self, text: str) -> Iterator[JSONObject]:
        if not text:
            return
        self._sent += text
        at = _at(message_item(self._sought.id, "", "in_progress"))
        number = TEXT - 1 + self._seen + len(self._sent)
        yield from self._event(
            "response.output_text.delta", number, delta=text, logprobs=[], **at, content_index=0
        )

    def _end(self) -> Iterator[JSONObject]:
        end, said = self.work.end, self._sent
        response = describe(self._sought.id, self._sought.echo, self.work, said)
        for index, item in enumerate(response["output"]):
            if item["type"] == "message":
                yield from self._open()
                [part] = item["content"]
                if end is not None and not end.is_pause and self._starting_after < CLOSING:
                    yield from self._add(self._rest(part["text"]))
                at = {**_at(item), "content_index": 0}
                yield from self._close("response.output_text.done", text=part["text"], logprobs=[], **at)
                yield from self._close("response.content_part.done", part=part, **at)
            else:
                at, arguments = _at(item, index), item["arguments"]
                begun = {**item, "status": "in_progress", "arguments": ""}
                yield from self._close("response.output_item.added", item=begun, output_index=index)
                yield from self._close("response.function_call_arguments.delta", delta=arguments, **at)
                done = {"arguments": arguments, "name": item["name"]}
                yield from self._close("response.function_call_arguments.done", **done, **at)
            yield from self._close("response.output_item.done", item=item, output_index=index)
        status = (
            "failed" if response["status"] in UNANSWERED else response["status"]
        )  # there is none for cancelled
        yield from self._close(f"response.{status}", response=response)

    def _rest(self, text: str) -> str:
        """Return the text to send, so that all of it ends with the answer, whatever a model has written before."""
        known = self._seen or len(self._current)
        if text.startswith(self._current) and known <= len(text):
            return text[known:]
        return PARAGRAPH + text

    def _close(self, kind: str, **fields: Any) -> Iterator[JSONObject]:
        yield from self._event(kind, self._closing, **fields)
        self._closing += 1

    def _event(self, kind: str, number: int, **fields: Any) -> Iterator[JSONObject]:
        if number > self._starting_after:
            yield {"type": kind, **fields, "sequence_number": number}


def _at(item: JSONObject, index: int = 0) -> JSONObject:
    return {"item_id": item["id"], "output_index": index}
