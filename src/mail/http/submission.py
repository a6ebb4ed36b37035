"""Performing a request as its headers demand: idempotent (`Idempotency-Key`) or conditional (`If-Match`)."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, Protocol

from fastapi import Request

from mail.core.decisions.submit import Submission
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal
from mail.core.protocol.traceparent import TRACEPARENT, read_traceparent
from mail.core.protocol.values import value
from mail.core.task.documents import ClaimedKey
from mail.core.task.idempotency import REMEMBERED_SECONDS, IdempotencyKey, check
from mail.core.task.limits import Budget
from mail.core.task.task import TaskKey
from mail.core.turns.context import CURRENT_TRACE
from mail.errors import BadRequest, MAILError, TaskDeleted
from mail.http.service import Service, header, service_of

_IDEMPOTENCY_KEY = b"idempotency-key"
_TRACEPARENT = TRACEPARENT.encode()
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_GENERATION = re.compile(r'"(0|[1-9][0-9]{0,8})"')

IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": f"^{_KEY.pattern}$"},
    "description": "A unique text for each request, the same on every retry: within a day the request is accepted "
    "only once, and every retry gets the same answer.",
}
IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The `ETag` of the task, which is its generation: the message is refused if the task has moved to "
    "another generation. `*` matches any generation of an existing task.",
    "example": '"1"',
}
TRACE_CONTEXT: dict[str, Any] = {
    "name": TRACEPARENT,
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The caller's trace (W3C Trace Context), which the task continues.",
}
PARAMETERS = [IDEMPOTENCY_KEY, IF_MATCH, TRACE_CONTEXT]
"""Documentation of these headers."""


@value(kw_only=True)
class Terms:
    """Terms of a submission that are not in its body.

    Attributes:
        swarm: name of the swarm that receives it.
        ceiling: upper limit for tasks of the caller.
        task_id: id of the task; None to let the server choose one.
        expects: generation that the task must be in, `*` for any; None to allow a new task.
        idempotency: the idempotency key, if one was sent.
    """

    swarm: str
    ceiling: Budget
    task_id: str | None
    expects: int | Literal["*"] | None = None
    idempotency: IdempotencyKey | None = None


class Body(Protocol):
    """A request body."""

    def model_dump_json(self) -> str:
        """Return the body as JSON."""


class MessageBody(Body, Protocol):
    """A request body that can be submitted."""

    @property
    def task_id(self) -> str | None:
        """Id of the task, if the caller names one."""

    def submission(self, terms: Terms) -> Submission:
        """Return the submission for the runtime."""


@value
class Claimed:
    """An idempotency key, claimed for a request, and the id of the task that the first request with it is about."""

    key: IdempotencyKey
    task_id: str


def etag(generation: int) -> str:
    """Return the `ETag` of a task at a generation."""
    return f'"{generation}"'


def follow_trace(request: Request) -> None:
    """Continue the trace that the request's caller may have begun."""
    CURRENT_TRACE.set(read_traceparent(header(request, _TRACEPARENT)))


async def submit(request: Request, caller: Principal, body: MessageBody) -> Submitted:
    """Submit the message of a body.

    Raises IdempotencyConflict, PreconditionFailed, and what `Runtime.submit` raises.
    """
    service = service_of(request)
    follow_trace(request)
    match = header(request, b"if-match")
    terms = Terms(
        swarm=caller.swarm,
        ceiling=service.runtime.ceiling(caller),
        task_id=body.task_id,
        expects=None if match is None else _read_generation(match.strip()),
    )
    if header(request, _IDEMPOTENCY_KEY) is None:
        return await service.runtime.submit(caller, body.submission(terms))
    async with claimed(request, caller, body, terms.task_id) as claim:
        assert claim is not None
        terms = replace(terms, idempotency=claim.key, task_id=claim.task_id)
        return await service.runtime.submit(caller, body.submission(terms))


@asynccontextmanager
async def claimed(
    request: Request, caller: Principal, body: Body, task_id: str | None = None
) -> AsyncIterator[Claimed | None]:
    """Claim the request's idempotency key; yield it with the task for which it was claimed first, or None.

    `task_id` is the task that the request is about; without one, a new id is chosen. A refused request frees its key,
    so that the caller can correct the request and send it under the same key. Raises BadRequest, IdempotencyConflict.
    """
    given = header(request, _IDEMPOTENCY_KEY)
    if given is None:
        yield None
        return
    content = f"{request.url.path}\n{request.headers.get('if-match', '')}\n{body.model_dump_json()}"
    async with claimed_key(service_of(request), caller, _read_key(given), content.encode(), task_id) as claim:
        yield claim


@asynccontextmanager
async def claimed_key(
    service: Service, caller: Principal, key: str, content: bytes, task_id: str | None = None
) -> AsyncIterator[Claimed]:
    """Claim a key for a request with this content; see `claimed`."""
    clock = service.runtime.clock
    task_id = task_id or clock.new_id()
    now = clock.now().timestamp()
    claim = ClaimedKey(sha256(content).hexdigest(), task_id, now + REMEMBERED_SECONDS)
    known = await service.documents.claim_key(str(caller), key, claim, now=now)
    idempotency = IdempotencyKey(key=key, digest=claim.digest, until=known.until)
    check(known.digest, idempotency)
    if known != claim:
        await _check_not_deleted(service, TaskKey(str(caller), known.task_id), idempotency)
    try:
        yield Claimed(idempotency, known.task_id)
    except MAILError as error:
        if error.http_status < 500 and known == claim:
            await service.documents.forget_key(str(caller), key, task_id)
        raise


async def _check_not_deleted(service: Service, key: TaskKey, given: IdempotencyKey) -> None:
    """Raise TaskDeleted if the task that was begun with a key has been deleted since, so that nothing revives it."""
    deleted, claimed = await service.documents.deleted_at(key), given.until - REMEMBERED_SECONDS
    if deleted is None or deleted < claimed:
        return
    task = await service.runtime.store.load(key)
    if (
        task is None or datetime.fromisoformat(task.started).timestamp() > deleted
    ):  # else its deletion broke off
        raise TaskDeleted(
            f"the task of Idempotency-Key {given.key!r} has been deleted; take a new key for another task"
        )


def _read_key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise BadRequest("Idempotency-Key must have 1 to 255 printable ASCII characters and no spaces")
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
