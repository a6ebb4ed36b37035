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
from mail.core.task.approvals import LinkHolder
from mail.core.task.audit import MAX_TEXT, Act, AuditEntry
from mail.errors import Forbidden, MAILError
from mail.http.account import CALLER
from mail.http.service import Service, address_of, service_of

logger = logging.getLogger("mail.audit")
logger.setLevel(logging.INFO)

Actor = Caller | LinkHolder
"""Who acts: a caller, or who has the link of a call that waits for approval."""

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
    {Act.DUMP_SWARM, Act.READ_TURNS, Act.LIST_TASKS, Act.LIST_DEAD_LETTERS, Act.READ_AUDIT, Act.REQUEST}
)
"""Acts that change nothing: one entry is enough, and the same one again within `SAME_SECONDS` needs none."""

SAME_SECONDS = 3600.0

MAX_READS = 1000
"""The number of reads that are remembered."""

AUDITED = "mail.audited"
"""Marks the scope of a request whose act is logged."""


class Entry:
    """An entry that is completed when its act ends; `on` names what it is about."""

    def __init__(self, on: str) -> None:
        self.on = on


@asynccontextmanager
async def audited(
    request: Request, caller: Actor, act: Act, on: str = "", *, owner: str | None = None, reason: str = ""
) -> AsyncGenerator[Entry]:
    """Audit the act that the block performs, with its outcome; see `record`. Raises StoreUnavailable."""
    line, outcome = Entry(on), "failed"
    request.scope[AUDITED] = True
    entry = _entry(request, caller, act, on, owner, reason)
    if _is_own(entry):
        yield line
        return
    service = service_of(request)
    is_read = act in _READS
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
        if is_read:
            await _add_read(service, entry)
        else:
            try:
                await service.documents.end_act(entry)
            except MAILError as error:
                logger.error("the outcome of %s could not be stored: %s", entry.id, error)


async def record(
    request: Request,
    caller: Actor,
    act: Act,
    on: str = "",
    *,
    owner: str | None = None,
    reason: str = "",
    outcome: str = "done",
) -> bool:
    """Audit an act that is over, but not answered yet; return whether it is a new one, and no read once more.

    `owner` is the principal whose task or webhook it is about; None for all callers', or an act that is about neither.
    Raises StoreUnavailable.
    """
    entry = replace(_entry(request, caller, act, on, owner, reason), outcome=outcome)
    if _is_own(entry):
        return False
    _log(entry)
    service = service_of(request)
    if act in _READS:
        return await _add_read(service, entry)
    await _add(service, entry)
    return True


def _entry(request: Request, caller: Actor, act: Act, on: str, owner: str | None, reason: str) -> AuditEntry:
    runtime = service_of(request).runtime
    by = str(caller.principal(runtime.swarm.name) if isinstance(caller, Caller) else caller)
    return AuditEntry.begin(
        runtime.clock, act, by, on, owner=owner, address=address_of(request)[:MAX_TEXT], reason=reason
    )


def _is_own(entry: AuditEntry) -> bool:
    """Return whether an act needs rights only on what others have, and is about what the caller has."""
    return entry.owner == entry.by and entry.act in _OF_OTHERS


async def _add(service: Service, entry: AuditEntry) -> None:
    now, seconds = service.runtime.clock.now().timestamp(), service.audit_seconds
    await service.documents.add_act(entry, now=now, until=None if seconds is None else now + seconds)


async def _add_read(service: Service, entry: AuditEntry) -> bool:
    """Store a read, unless this process has stored the same one within the last `SAME_SECONDS`: pages poll."""
    read, known = replace(entry, id="", time=""), service.audited_reads
    now = service.runtime.clock.now().timestamp()
    if known.get(read, 0.0) > now:
        return False
    await _add(service, entry)
    if len(known) >= MAX_READS:
        known.clear()
    known[read] = now + SAME_SECONDS
    return True


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
        what = f"{request.method} {request.url.path}"
        try:
            await record(request, caller, Act.REQUEST, what, outcome="refused")
        except MAILError as problem:
            logger.error("a refused request could not be stored: %s", problem)


def refuse_session(caller: Caller, command: str) -> None:
    """Raise Forbidden for a browser's session: what this makes would outlive it, even one that was stolen."""
    if caller.is_session:
        raise Forbidden(
            "a browser's session can't do this, as the result would outlive the session; use an API key, or run: "
            f"{command}"
        )
