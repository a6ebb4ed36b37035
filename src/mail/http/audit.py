"""The audit: an entry, and a line in the log, for each act with rights, whether it was done or refused.

An act that changes something is stored before it begins, and how it ended after that; one that only reads is stored
before its answer. If the store refuses the entry, the act isn't done, or its answer isn't sent. A request that its
caller may not make, or not for the caller that it names, is an act, too. Malformed ones are none.

The lines are at INFO, whatever level the log has otherwise. A line of JSON has `act`, `by`, `on`, `owner`, `address`,
`reason` and `outcome` as fields.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from fastapi import Request

from mail.auth.keys import Caller
from mail.core.task.approvals import LinkHolder, ShareHolder
from mail.core.task.audit import MAX_TEXT, Act, AuditEntry
from mail.errors import Forbidden, MAILError
from mail.http.account import CALLER
from mail.http.service import Service, address_of, service_of

logger = logging.getLogger("mail.audit")
logger.setLevel(logging.INFO)

Actor = Caller | LinkHolder | ShareHolder
"""Who acts: a caller, or who has the link of a call that waits for approval, or of a task."""

_OF_OTHERS = frozenset(
    {
        Act.DECIDE,
        Act.READ_TURNS,
        Act.LIST_TASKS,
        Act.LIST_DEAD_LETTERS,
        Act.REDRIVE,
        Act.DISCARD,
        Act.DISABLE_WEBHOOK,
    }
)
"""Acts that need rights only on what other callers have: those on one's own things are not logged."""


_READS = frozenset(
    {
        *(Act.DUMP_SWARM, Act.READ_TURNS, Act.LIST_TASKS, Act.LIST_DEAD_LETTERS, Act.READ_AUDIT),
        *(Act.OPEN_TASK, Act.READ_SHARE, Act.REQUEST, Act.LOG_IN),
    }
)
"""Acts that change nothing: one entry is enough, and the same one again within `SAME_SECONDS` needs none.

Of logins, only those that fail are audited.
"""

SAME_SECONDS = 3600.0

MAX_READS = 1000
"""The number of reads that are remembered."""

AUDITED = "mail.audited"
"""Marks the scope of a request whose act is logged."""


class Entry:
    """An entry that is completed when its act ends.

    Attributes:
        on: what the act is about.
        is_again: whether it is a read that needs no further entry.
    """

    def __init__(self, on: str, *, is_again: bool = False) -> None:
        self.on = on
        self.is_again = is_again


@asynccontextmanager
async def audited(
    request: Request, caller: Actor, act: Act, on: str = "", *, owner: str | None = None, reason: str = ""
) -> AsyncGenerator[Entry]:
    """Audit the act that the block performs, with its outcome.

    `owner` is the principal whose task or webhook it is about; None for all callers', or an act that is about neither.
    Raises StoreUnavailable.
    """
    service = service_of(request)
    entry, outcome = _entry(request, caller, act, on, owner, reason), "failed"
    is_read = act in _READS
    line = Entry(on, is_again=is_read and _is_known(service, replace(entry, outcome="done")))
    request.scope[AUDITED] = True
    if owner == entry.by and act in _OF_OTHERS:
        yield line
        return
    if not is_read:
        await _add(service, entry)
    try:
        yield line
        outcome = "done"
    except MAILError as error:
        outcome = "refused" if error.http_status < 500 else "failed"
        raise
    finally:
        entry = replace(entry, on=line.on[:MAX_TEXT], outcome=outcome)
        _log(entry)
        if not is_read:
            try:
                await service.documents.end_act(entry)
            except MAILError as error:
                logger.error("the outcome of %s could not be stored: %s", entry.id, error)
        elif not _is_known(service, entry):
            await _add(service, entry)
            _remember(service, entry)


def _entry(request: Request, caller: Actor, act: Act, on: str, owner: str | None, reason: str) -> AuditEntry:
    runtime = service_of(request).runtime
    by = str(caller.principal(runtime.swarm.name) if isinstance(caller, Caller) else caller)
    return AuditEntry.begin(
        runtime.clock, act, by, on, owner=owner, address=address_of(request)[:MAX_TEXT], reason=reason
    )


async def _add(service: Service, entry: AuditEntry) -> None:
    now, seconds = service.runtime.clock.now().timestamp(), service.audit_seconds
    await service.documents.add_act(entry, now=now, until=None if seconds is None else now + seconds)


def _is_known(service: Service, read: AuditEntry) -> bool:
    """Return whether this process has stored the same read within the last `SAME_SECONDS`: pages poll."""
    return service.audited_reads.get(_name_of(read), 0.0) > service.runtime.clock.now().timestamp()


def _remember(service: Service, read: AuditEntry) -> None:
    if len(service.audited_reads) >= MAX_READS:
        service.audited_reads.clear()
    service.audited_reads[_name_of(read)] = service.runtime.clock.now().timestamp() + SAME_SECONDS


def _name_of(read: AuditEntry) -> AuditEntry:
    return replace(read, id="", time="")


def _log(entry: AuditEntry) -> None:
    about = f" {entry.on!r}" if entry.on else ""
    whose = f" of {entry.owner or 'all callers'}" if entry.owner or entry.act in _OF_OTHERS else ""
    why = f" ({entry.reason!r})" if entry.reason else ""
    place = entry.address or "an unknown address"
    facts = {
        name: getattr(entry, name) for name in ("act", "by", "on", "owner", "address", "reason", "outcome")
    }
    text = f"{entry.by}: {entry.act}{about}{whose}{why}, from {place}: {entry.outcome}"
    logger.info("%s", text, extra=facts)


async def audit_refusal(request: Request, error: MAILError) -> None:
    """Audit a request that is refused for want of rights, unless its act is audited."""
    caller = request.scope.get(CALLER)
    if isinstance(error, Forbidden) and caller is not None and AUDITED not in request.scope:
        try:
            async with audited(request, caller, Act.REQUEST, f"{request.method} {request.url.path}"):
                raise error
        except MAILError as problem:
            if problem is not error:
                logger.error("a refused request could not be stored: %s", problem)


def refuse_session(caller: Caller, command: str) -> None:
    """Raise Forbidden for a browser's session: what this makes would outlive it, even one that was stolen."""
    if caller.is_session:
        raise Forbidden(
            "a browser's session can't do this, as the result would outlive the session; use an API key, or run: "
            f"{command}"
        )
