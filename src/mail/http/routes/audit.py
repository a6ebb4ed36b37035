"""The audit: who did what with rights, read by admins."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import Field
from pydantic_core import to_json

from mail.core.protocol.values import fill
from mail.core.task.audit import OPERATOR, Act, AuditEntry
from mail.http.access import Admin, Since, Until, read_time
from mail.http.audit import audited
from mail.http.bodies import JSON, Answered
from mail.http.openapi import PAGE_HEADERS, make_router, problems
from mail.http.service import service_of
from mail.http.task_json import page_headers

PAGE = 100

MAX_PAGE = 1000

SCANNED = 1000
"""Entries that a request with a filter reads."""

LINES = "application/jsonl"


class AuditLine(Answered):
    """An act with rights."""

    id: str
    time: str = Field(description="When it began, in ISO 8601.")
    act: Act
    by: str = Field(description="Who acted: `role:id@swarm`, or `operator` by a command on the database.")
    on: str = Field(
        description="What it was about: a task, a webhook, the caller of a token; empty for nothing."
    )
    owner: str | None = Field(
        description="Whose task, webhook or schedule it was about; null for none, or all."
    )
    address: str = Field(description="From where the request came; empty if that is unknown.")
    reason: str = Field(description="The reason that was given; empty for none.")
    outcome: Literal["done", "refused", "failed", "started"] = Field(
        description="`started` until the act has ended; it stays so if its server ends first."
    )


class AuditPage(Answered):
    """A page of the audit, the newest entry first."""

    entries: list[AuditLine]
    cursor: str | None = Field(description="The `cursor` of the next page; null on the last.")


router = make_router("tokens")


@router.get(
    "/audit",
    summary="Read the audit",
    response_model=AuditPage,
    responses={
        200: {
            "description": "Entries, the newest first.",
            "headers": PAGE_HEADERS,
            "content": {LINES: {"schema": {"type": "string"}}},
        },
        **problems(400),
    },
)
async def get_audit(
    request: Request,
    caller: Admin,
    of: Annotated[
        str | None,
        Query(
            alias="caller",
            description="Only what this caller did: `role:id`, or `role:id@swarm`, or `operator`.",
        ),
    ] = None,
    act: Annotated[Act | None, Query(description="Only this act.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Entries on a page.")] = PAGE,
    cursor: Annotated[
        str | None, Query(pattern=r"^[!-~]{1,64}$", description="The previous page's next cursor.")
    ] = None,
    lines: Annotated[bool, Query(description="Whether to answer in JSON lines, an entry on each.")] = False,
) -> JSON:
    """Return acts with rights: who did what, when, on what and how it ended. Only for admins.

    With a filter, a page may be shorter than `limit`, or empty, and not be the last.
    """
    service = service_of(request)
    by = of if of in (None, OPERATOR) or "@" in of else f"{of}@{service.runtime.swarm.name}"
    first, end = (_moment(read_time(text, name)) for text, name in ((since, "since"), (until, "until")))
    is_filtered = act is not None or by is not None
    size = SCANNED if is_filtered else limit
    before = min(filter(None, (cursor, end)), default="")
    async with audited(request, caller, Act.READ_AUDIT):
        read = await service.documents.acts(limit=size, before=before)
    in_time = [entry for entry in read if entry.id >= first]
    found = [entry for entry in in_time if by in (None, entry.by) and act in (None, entry.act)]
    rest = in_time[-1].id if len(in_time) == size else None
    if len(found) > limit:
        found, rest = found[:limit], found[limit - 1].id
    query = {"limit": str(limit), "caller": of, "act": act, "since": since, "until": until}
    query |= {"lines": "true" if lines else None}
    headers = page_headers(request, "/audit", {name: text for name, text in query.items() if text}, rest)
    if lines:
        text = b"".join(to_json(asdict(entry)) + b"\n" for entry in found)
        return JSON(text, headers=headers, media_type=LINES)
    return JSON({"entries": [fill(AuditLine, entry) for entry in found], "cursor": rest}, headers=headers)


def _moment(time: datetime | None) -> str:
    return "" if time is None else AuditEntry.moment(time)
