"""Boxes: reading, writing and sending mail."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from mail.core.task.rows import Order
from mail.errors import BadRequest, Unauthenticated
from mail.http.answers import answer, array_pieces, each, encoded, line_pieces, object_pieces
from mail.http.bodies import JSON
from mail.http.mail2.access import Host, Own, find_account, make_routers
from mail.http.service import service_of
from mail.http.sse import encode, respond
from mail.mail2.addresses import AddressText, Slug
from mail.mail2.arrivals import Reader
from mail.mail2.boxes import ENTRY_BYTES, PAGE
from mail.mail2.boxes import Query as BoxQuery
from mail.mail2.host import MailHost
from mail.mail2.records import MAX_RECIPIENTS, Account, Body, BoxName, MessageId, Subject, Tags

_public, own, _admin, _daemon = make_routers()
routers = (own,)

LINES = "application/x-ndjson"


class GivenQuery(BaseModel):
    """A part of a box."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=20, ge=1, le=100)
    offset: int = Field(default=0, ge=0, le=10**9)
    sort_by: Literal["entered_at", "sent_at"] = "entered_at"
    order: Literal["asc", "desc"] = "desc"


class DraftsQuery(GivenQuery):
    """A part of the drafts: of those with a tag."""

    tag: Slug | None = None


class SentQuery(DraftsQuery):
    """A part of the outbox: of the messages with a tag, or of a thread."""

    thread: MessageId | None = None


class ReceivedQuery(SentQuery):
    """A part of the inbox or the trash: of the messages with a tag, of a thread, or that are unread."""

    unread: bool | None = None


Received = Annotated[ReceivedQuery, Query()]


class NewDraft(BaseModel):
    """A draft."""

    subject: Subject
    body: Body
    reply_to: MessageId | None = None
    tags: Tags | None = None


class DraftChanges(BaseModel):
    """What to change of a draft; null or absent stays as it is, and no tags are `[]`."""

    subject: Subject | None = None
    body: Body | None = None
    reply_to: MessageId | None = None
    tags: Tags | None = None


class Sending(BaseModel):
    """To whom a draft is sent, with tags besides its own."""

    recipients: Annotated[list[AddressText], Field(min_length=1, max_length=MAX_RECIPIENTS)]
    tags: Tags | None = None


async def _page(
    request: Request, host: MailHost, account: Account, name: BoxName, part: GivenQuery
) -> Response:
    service = service_of(request)
    given = part.model_dump(exclude_none=True)
    filters = {key: each for key, each in given.items() if key in ("unread", "tag", "thread")}
    order: Order = "sent" if part.sort_by == "sent_at" else "entered"
    query = BoxQuery(part.limit, part.offset, order, part.order == "desc", **filters)
    await service.holding(request).wait(query.at_once * ENTRY_BYTES)
    entries, total, after = await host.boxes.page(account, name, query)
    metadata = {"total": total, "returned": len(entries), **given}
    metadata |= {"next_offset": after} if filters else {}
    shown = array_pieces(encoded(entries, service.runtime.pacer))
    pieces = object_pieces(each({"entries": shown, "metadata": metadata}.items()))
    return await answer(request, pieces, advice="read fewer entries with limit")


def _entries(entries: list[dict[str, Any]], **metadata: Any) -> JSON:
    return JSON({"entries": entries, "metadata": metadata})


def _entry(entry: dict[str, Any]) -> JSON:
    return JSON({"entry": entry, "metadata": {}})


@own.get("/inbox", tags=["inbox"])
async def get_inbox(request: Request, host: Host, account: Own, part: Received) -> Response:
    """Return a part of the inbox.

    With filters, it looks at 1,000 entries at most: `next_offset` says where to continue, and is null at the end.
    """
    return await _page(request, host, account, "inbox", part)


@own.get(
    "/inbox/stream",
    tags=["inbox"],
    response_class=Response,
    responses={200: {"description": "Server-Sent Events.", "content": {"text/event-stream": {}}}},
)
async def stream_inbox(
    request: Request,
    host: Host,
    account: Own,
    last_event_id: Annotated[str | None, Header(max_length=2_000)] = None,
) -> Response:
    """Stream what comes to the inbox, from now on or after an event.

    The first event is `ready`, then there is a `message` for each, with its summary. The id of each is for
    `Last-Event-ID`. A `ping` comes when nothing else does. The stream ends with the token.
    """
    reader = await host.follow(account, last_event_id)
    service_of(request).holding(request).open_stream()
    return respond(request, _arrivals(request, reader))


async def _arrivals(request: Request, reader: Reader) -> AsyncGenerator[bytes]:
    service = service_of(request)
    limits = [each for each in (service.stream_seconds, service.wait_limit(request)) if each is not None]
    end = asyncio.get_running_loop().time() + min(limits) if limits else None
    with reader.watched() as wait, suppress(TimeoutError, Unauthenticated):
        yield encode("ready", {}, str(reader.cursor))
        while True:
            async with service.stopping.cuts_short(), asyncio.timeout_at(end):
                found = await reader.next()
                if not found:
                    await wait(service.heartbeat)
                    await find_account(request)
                    found = await reader.next()
            frames = [encode("message", entry, str(cursor)) for entry, cursor in found]
            now = service.runtime.clock.now().isoformat()
            yield b"".join(frames) or encode("ping", {"timestamp": now})


@own.get(
    "/export",
    tags=["auth"],
    response_class=Response,
    responses={200: {"description": "The lines.", "content": {LINES: {}}}},
)
async def export_boxes(request: Request, host: Host, account: Own) -> Response:
    """Export all boxes as lines of JSON, each with a `box` and an `entry` of it, as it is when opened.

    Nothing becomes read. The oldest entry of each box comes first.
    """
    service = service_of(request)
    await service.holding(request).wait(PAGE * ENTRY_BYTES)
    pieces = line_pieces(host.boxes.export(account))
    advice = "export it from the address that streams, or read the boxes in pages"
    return await answer(request, pieces, {"Content-Type": LINES}, advice=advice)


@own.get("/inbox/{message_id}", tags=["inbox"])
async def open_inbox(host: Host, account: Own, message_id: str) -> JSON:
    """Return a message of the inbox, which is read from now on."""
    return _entry(await host.open(account, "inbox", message_id))


@own.delete("/inbox/{message_id}", tags=["inbox"])
async def delete_inbox(host: Host, account: Own, message_id: str) -> JSON:
    """Move a message of the inbox to the trash."""
    return _entry(await host.boxes.move(account, message_id, "inbox", "trash"))


@own.get("/outbox", tags=["outbox"])
async def get_outbox(
    request: Request, host: Host, account: Own, part: Annotated[SentQuery, Query()]
) -> Response:
    """Return a part of the outbox; `undelivered` says whom a message does not reach, and why."""
    return await _page(request, host, account, "outbox", part)


@own.get("/outbox/{message_id}", tags=["outbox"])
async def open_outbox(host: Host, account: Own, message_id: str) -> JSON:
    """Return a message that was sent."""
    return _entry(await host.open(account, "outbox", message_id))


@own.delete("/outbox/{message_id}", tags=["outbox"])
async def delete_outbox(host: Host, account: Own, message_id: str) -> JSON:
    """Delete a message that was sent from the outbox, for good; its recipients have it still."""
    await host.check_holds(account)
    return _entry(await host.boxes.delete(account, "outbox", message_id))


@own.get("/drafts", tags=["drafts"])
async def get_drafts(
    request: Request, host: Host, account: Own, part: Annotated[DraftsQuery, Query()]
) -> Response:
    """Return a part of the drafts."""
    if part.sort_by == "sent_at":
        raise BadRequest("drafts have no sent_at to sort by")
    return await _page(request, host, account, "drafts", part)


@own.post("/drafts", tags=["drafts"])
async def post_drafts(host: Host, account: Own, body: NewDraft) -> JSON:
    """Store a draft."""
    return _entry(
        await host.boxes.add_draft(account, body.subject, body.body, body.reply_to, body.tags or ())
    )


@own.get("/drafts/{draft_id}", tags=["drafts"])
async def open_draft(host: Host, account: Own, draft_id: str) -> JSON:
    """Return a draft."""
    return _entry(await host.boxes.open(account, "drafts", draft_id))


@own.patch("/drafts/{draft_id}", tags=["drafts"])
async def patch_draft(host: Host, account: Own, draft_id: str, body: DraftChanges) -> JSON:
    """Change a draft."""
    changes = {"subject": body.subject, "body": body.body, "reply_to": body.reply_to}
    return _entry(await host.boxes.change_draft(account, draft_id, **changes, tags=body.tags))


@own.delete("/drafts/{draft_id}", tags=["drafts"])
async def delete_draft(host: Host, account: Own, draft_id: str) -> JSON:
    """Delete a draft."""
    await host.check_holds(account)
    return _entry(await host.boxes.delete(account, "drafts", draft_id))


@own.post("/drafts/{draft_id}/send", tags=["drafts"])
async def send_draft(
    host: Host,
    account: Own,
    draft_id: str,
    body: Sending,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=256)] = None,
) -> JSON:
    """Send a draft, which stays. With an `Idempotency-Key`, a repeated request sends nothing more."""
    draft = await host.boxes.draft(account, draft_id)
    message = await host.send(account, draft, tuple(body.recipients), body.tags or (), idempotency_key)
    return JSON({"message": message, "metadata": {}})


@own.get("/trash", tags=["trash"])
async def get_trash(request: Request, host: Host, account: Own, part: Received) -> Response:
    """Return a part of the trash."""
    return await _page(request, host, account, "trash", part)


@own.post("/trash/clear", tags=["trash"])
async def clear_trash(host: Host, account: Own) -> JSON:
    """Empty the trash for good."""
    await host.check_holds(account)
    return _entries(await host.boxes.clear(account, "trash"))


@own.get("/trash/{message_id}", tags=["trash"])
async def open_trash(host: Host, account: Own, message_id: str) -> JSON:
    """Return a message of the trash."""
    return _entry(await host.open(account, "trash", message_id))


@own.post("/trash/{message_id}/restore", tags=["trash"])
async def restore_trash(host: Host, account: Own, message_id: str) -> JSON:
    """Move a message of the trash back to the inbox."""
    return _entry(await host.boxes.move(account, message_id, "trash", "inbox"))


@own.delete("/trash/{message_id}", tags=["trash"])
async def delete_trash(host: Host, account: Own, message_id: str) -> JSON:
    """Delete a message of the trash for good."""
    await host.check_holds(account)
    return _entry(await host.boxes.delete(account, "trash", message_id))
