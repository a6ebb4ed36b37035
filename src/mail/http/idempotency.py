"""Handing a submission to the runtime as its headers ask for it: once (`Idempotency-Key`), or only if (`If-Match`)."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Literal

from fastapi import Request
from pydantic import BaseModel

from mail.core.decisions.submit import Submission
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal
from mail.core.protocol.traceparent import TRACEPARENT, read_traceparent
from mail.core.task.context import CURRENT_TRACE
from mail.core.task.documents import ClaimedKey
from mail.core.task.idempotency import REMEMBERED_SECONDS, Once, check
from mail.errors import BadRequest, MAILError
from mail.http.service import service_of

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_GENERATION = re.compile(r'"(0|[1-9][0-9]{0,8})"')

IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": f"^{_KEY.pattern}$"},
    "description": "A new text for each message, the same when it is sent again: within a day it is accepted once, "
    "and each time answered with the same answer.",
}
IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The `ETag` of the task, which is its generation: the message is refused where the task has gone "
    "on since. `*` stands for any generation of a task that is there.",
    "example": '"1"',
}
PARAMETERS = [IDEMPOTENCY_KEY, IF_MATCH]
"""What OpenAPI says of these headers."""


def etag(generation: int) -> str:
    """The `ETag` of a task: which generation it is at."""
    return f'"{generation}"'


def follow_trace(request: Request) -> None:
    """Let what the request brings be part of the trace that its caller may have begun."""
    CURRENT_TRACE.set(read_traceparent(request.headers.get(TRACEPARENT)))


async def submit(request: Request, caller: Principal, body: BaseModel, submission: Submission) -> Submitted:
    """Submit what a body asks for.

    Raises IdempotencyConflict, PreconditionFailed, and what `Runtime.submit` raises.
    """
    service = service_of(request)
    follow_trace(request)
    submission = submission.model_copy(update={"ceiling": service.ceiling(caller)})
    if (match := request.headers.get("if-match")) is not None:
        submission = submission.model_copy(update={"expects": _read_generation(match.strip())})
    if (key := request.headers.get("idempotency-key")) is None:
        return await service.runtime.submit(caller, submission)
    async with _claimed(request, caller, _read_key(key), body, submission) as submission:
        return await service.runtime.submit(caller, submission)


@asynccontextmanager
async def _claimed(
    request: Request, caller: Principal, key: str, body: BaseModel, submission: Submission
) -> AsyncIterator[Submission]:
    """The submission under its key, for the task that it was for when the key was used first.

    A request that is refused has used no key: the caller may mend it, and send it under the same.
    """
    service = service_of(request)
    clock = service.runtime.clock
    content = f"{request.url.path}\n{request.headers.get('if-match', '')}\n{body.model_dump_json()}"
    task_id = submission.task_id or clock.new_id()
    now = clock.now().timestamp()
    record = ClaimedKey(sha256(content.encode()).hexdigest(), task_id, now + REMEMBERED_SECONDS)
    known = await service.records.claim_key(str(caller), key, record, now=now)
    once = Once(key=key, digest=record.digest, until=known.until)
    check(known.digest, once)
    try:
        yield submission.model_copy(update={"once": once, "task_id": known.task_id})
    except MAILError as error:
        if error.http_status < 500 and known == record:
            await service.records.forget_key(str(caller), key, task_id)
        raise


def _read_key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise BadRequest("Idempotency-Key must have 1 to 255 printable ASCII characters, and no blanks")
    return text


def _read_generation(text: str) -> int | Literal["*"]:
    if text == "*":
        return "*"
    found = _GENERATION.fullmatch(text)
    if found is None:
        raise BadRequest(
            f'If-Match must be the ETag of the task, such as "1", with its quotes; it is {text[:40]!r}'
        )
    return int(found[1])
