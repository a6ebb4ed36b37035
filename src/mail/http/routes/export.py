"""Export a task: everything that the server stores of it, as lines of JSON, or its conversation as Markdown."""

import re
from base64 import b64encode
from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic_core import to_json

from mail.core.engine.pacing import PIECE_BYTES, Paced
from mail.core.engine.watch import SLICE_BYTES, read_timeline
from mail.core.task.size import event_size
from mail.core.task.task import Task
from mail.http.access import AdminOrUser, GivenTask
from mail.http.answers import answer, line_pieces
from mail.http.openapi import make_router, problems
from mail.http.service import Service, service_of
from mail.http.task_json import event_entry, load_task, reading
from mail.http.task_records import queued_message, read_mail, task_summary

LINES, MARKDOWN = "application/x-ndjson", "text/markdown"

_REFERENCE = re.compile(rb"read_more\(ref='([0-9a-f]{32})'")
"""How the reference of a long text stands in a history (`mail.core.task.context.shorten`)."""

Line = tuple[str, dict[str, object]]

router = make_router("tasks")


@router.get(
    "/task/export",
    summary="Export a task",
    response_class=Response,
    responses={
        200: {"description": "The lines, or the text.", "content": {LINES: {}, MARKDOWN: {}}},
        **problems(400, 404, 413),
    },
)
async def export_task(
    request: Request,
    caller: AdminOrUser,
    task_id: GivenTask,
    files: Annotated[bool, Query(description="Whether lines of files have their bytes, in base64.")] = False,
    form: Annotated[
        Literal["lines", "markdown"],
        Query(
            description="`markdown`: the conversation as a text for people, without what the models were given."
        ),
    ] = "lines",
) -> Response:
    """Return all that is stored of one of the caller's tasks, as lines of JSON, or its conversation as Markdown.

    Each line has a `type`: the `task`, as `GET /task?fields=summary` shows it, its `event`s, waiting `mail`, portions
    of the agents' `history`, the `text`s to which these refer, and `file`s. If its first events have been deleted by
    their age, a line `deleted` says so, with the number of the last one.
    """
    service = service_of(request)
    task = await load_task(service, caller, task_id)
    pacer = reading(service, request, task)
    if form == "markdown":
        advice = "export it from the address that streams"
        return await answer(
            request,
            _markdown(service, task, pacer),
            {"Content-Type": f"{MARKDOWN}; charset=utf-8"},
            advice=advice,
        )
    lines = _lines(service, task, pacer, embeds=files)
    pieces = line_pieces({"type": kind, **fields} async for kind, fields in lines)
    advice = "export it from the address that streams, or without its files"
    return await answer(request, pieces, {"Content-Type": LINES}, advice=advice)


async def _markdown(service: Service, task: Task, pacer: Paced) -> AsyncGenerator[bytes]:
    from mail.core.decisions.conversation import Conversation
    from mail.core.decisions.markdown import Transcript, heading

    reader, transcript, text = Conversation(), Transcript(), heading(task)
    async for event in read_timeline(service.runtime.store, task.key, pacer, upto=task.seq):
        size = event_size(event)
        await pacer.pause(size)
        text += transcript.add(reader.read(event), size)
        if len(text) > PIECE_BYTES:
            yield text.encode()
            text = ""
    yield (text + transcript.end()).encode()


async def _lines(service: Service, task: Task, pacer: Paced, *, embeds: bool) -> AsyncGenerator[Line]:
    store, files = service.runtime.store, service.runtime.caller_files
    yield "task", task_summary(task)
    last = 0
    async for event in read_timeline(store, task.key, pacer, upto=task.seq):
        await pacer.pause(event_size(event))
        if last == 0 < event.seq - 1:
            yield "deleted", {"events": event.seq - 1}
        last = event.seq
        yield "event", event_entry(event, task.task_id)
    async for entry in read_mail(store, task, pacer):
        await pacer.pause(entry.size)
        yield "mail", queued_message(entry)
    refs: dict[bytes, None] = {}
    async for fields in _histories(service, task, pacer):
        refs |= dict.fromkeys(_REFERENCE.findall(to_json(fields)))
        yield "history", fields
    for ref in map(bytes.decode, refs):
        pieces, found = [], await store.read_content(task.key, ref, offset=0, length=SLICE_BYTES)
        while found is not None and found[0]:
            pieces.append(found[0])
            offset = sum(map(len, pieces))
            await pacer.pause(SLICE_BYTES)
            found = await store.read_content(task.key, ref, offset=offset, length=SLICE_BYTES)
        if pieces:
            yield "text", {"ref": ref, "text": "".join(pieces)}
    for file in (await files.of_task(task.key)).values():
        fields = file.as_json()
        fields["media_type"] = fields.pop("type")
        if embeds:
            await pacer.pause(file.size)
            data = await files.read(task.instance, file.id)
            fields["data"] = None if data is None else b64encode(data).decode()
        yield "file", fields


async def _histories(service: Service, task: Task, pacer: Paced) -> AsyncGenerator[dict[str, object]]:
    """Yield the histories of a task by portions, of which about as many are read at once as make a slice."""
    at_once = max(1, SLICE_BYTES * sum(task.histories.values()) // (task.history_bytes + 1))
    for agent, count in task.histories.items():
        for after in range(0, count, at_once):
            upto = min(after + at_once, count)
            await pacer.pause(SLICE_BYTES)
            for portion in await service.runtime.store.read_portions(task.key, agent, after=after, upto=upto):
                yield {"agent": agent, "n": portion.n, "entries": portion.entries}
