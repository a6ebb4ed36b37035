"""The audit log: one line for each act with rights, whether it was done or refused.

A request that its caller may not make, or not for the caller that it names, is a line about the request. Malformed ones
are none.

The lines are at INFO, whatever level the log has otherwise. A line of JSON has `act`, `by`, `on`, `owner`, `address`
and `outcome` as fields.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from fastapi import Request

from mail.auth.keys import Caller
from mail.errors import Forbidden, MAILError
from mail.http.account import CALLER
from mail.http.service import address_of, service_of

logger = logging.getLogger("mail.audit")
logger.setLevel(logging.INFO)

MAX_TEXT = 200
"""Characters of what a caller has named, in a line."""


class Act(StrEnum):
    """An act with rights."""

    CREATE_TOKEN = "create token"  # noqa: S105
    REVOKE_TOKEN = "revoke token"  # noqa: S105
    MAKE_LINK = "make sign-in link"
    SIGN_IN = "sign in"
    SIGN_OUT = "sign out"
    LOAD_SWARM = "load swarm"
    DUMP_SWARM = "dump swarm"
    SET_HEALTH = "set health"
    REGISTER_SWARM = "register swarm"
    REMOVE_SWARM = "remove swarm"
    CANCEL_TASK = "cancel task"
    DELETE_TASK = "delete task"
    DELETE_CALLER = "delete caller"
    SET_HOLD = "set hold"
    LIFT_HOLD = "lift hold"
    READ_TURNS = "read turns of task"
    LIST_TASKS = "list tasks"
    LIST_DEAD_LETTERS = "list dead letters"
    REDRIVE = "redrive dead letters"
    DISCARD = "discard dead letters"
    DISABLE_WEBHOOK = "disable webhook"
    CREATE_SCHEDULE = "create schedule"
    CHANGE_SCHEDULE = "change schedule"
    DELETE_SCHEDULE = "delete schedule"
    RUN_SCHEDULE = "run schedule"
    REQUEST = "request"


_OF_OTHERS = frozenset(
    {
        Act.READ_TURNS,
        Act.LIST_TASKS,
        Act.LIST_DEAD_LETTERS,
        Act.REDRIVE,
        Act.DISCARD,
        Act.DISABLE_WEBHOOK,
    }
)
"""Acts that need rights only on what other callers have: those on one's own things are not logged."""


AUDITED = "mail.audited"
"""Marks the scope of a request whose act is logged."""


class Entry:
    """A line that is logged when its act ends; `on` names what it is about."""

    def __init__(self, on: str) -> None:
        self.on = on


@contextmanager
def audited(
    request: Request, caller: Caller, act: Act, on: str = "", *, owner: str | None = None
) -> Iterator[Entry]:
    """Log the act that the block performs, with its outcome; see `log`."""
    entry, outcome = Entry(on), "failed"
    request.scope[AUDITED] = True
    try:
        yield entry
        outcome = "done"
    except MAILError as error:
        outcome = "refused" if error.http_status < 500 else "failed"
        raise
    finally:
        log(request, caller, act, entry.on, owner=owner, outcome=outcome)


def log(
    request: Request,
    caller: Caller,
    act: Act,
    on: str = "",
    *,
    owner: str | None = None,
    outcome: str = "done",
) -> None:
    """Log an act: who, what, on what, from which address, and the outcome.

    `owner` is the principal whose task or webhook it is about; None for all callers', or an act that is about neither.
    """
    by = str(caller.principal(service_of(request).runtime.swarm.name))
    of_others = act in _OF_OTHERS
    if of_others and owner == by:
        return
    address, on = address_of(request)[:MAX_TEXT], on[:MAX_TEXT]
    about = f" {on!r}" if on else ""
    whose = f" of {owner or 'all callers'}" if owner or of_others else ""
    text = f"{by}: {act.value}{about}{whose}, from {address or 'an unknown address'}: {outcome}"
    facts = {"act": act.value, "by": by, "on": on, "owner": owner, "address": address, "outcome": outcome}
    logger.info("%s", text, extra=facts)


def log_refusal(request: Request, error: MAILError) -> None:
    """Log a request that is refused for want of rights, unless its act is logged."""
    caller = request.scope.get(CALLER)
    if isinstance(error, Forbidden) and caller is not None and AUDITED not in request.scope:
        log(request, caller, Act.REQUEST, f"{request.method} {request.url.path}", outcome="refused")


def refuse_session(caller: Caller, command: str) -> None:
    """Raise Forbidden for a browser's session: what this makes would outlive it, even one that was stolen."""
    if caller.is_session:
        raise Forbidden(
            "a browser's session can't do this, as the result would outlive the session; use an API key, or run: "
            f"{command}"
        )
