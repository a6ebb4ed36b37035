"""Calls of actions that finish later: what a task stores of them, and the tokens that finish them.

A call that finishes later is a record of its own, under the digest of its token, so that a heartbeat writes nothing
else. The task knows how many wait (`mail.core.task.waits`).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum, StrEnum
from hashlib import sha256
from typing import Any, Final

from mail.core.protocol.clock import format_time
from mail.core.protocol.values import value
from mail.core.task.files import NO_FILES, FileRef

MAX_OPEN_CALLS = 1_000
"""How many calls of a task may wait at the same time."""

MAX_CALLS_IN_A_TURN = 32
"""How many of them one turn may begin, so that its commit stays small."""

MAX_JUDGED = 262_144
"""Bytes of a result that guards judge, as it is stored with the call until then."""

LONGEST_WAIT = 366 * 86_400.0
"""Seconds that a result may take, or a timer may be ahead, at most."""

LONGEST_IN_WORDS = f"{LONGEST_WAIT / 86_400:g} days"

MAX_PROGRESS = 1_000
"""Characters of a report on the progress of a call."""

MAX_ARGUMENTS = 65_536
"""Bytes of the arguments of a call whose action has `on_cancel`, as they are stored with the call."""


class Later(Enum):
    """The type of `LATER`."""

    LATER = "later"

    def __repr__(self) -> str:
        return "LATER"


LATER: Final = Later.LATER
"""What an action with `finishes="later"` returns when its work has begun: the result comes to its callback."""


@value(kw_only=True)
class Polled:
    """Work that a server does for a call, which must be asked for its result: what a tool returns in place of one.

    Attributes:
        work: what names it to `ToolSource.poll`.
        lasts: seconds after which it counts as lost.
        pause: seconds between two questions, at least.
        progress: what the server says of its progress.
        at: when it is asked about next, in seconds since the epoch.
        polls, failures: how often it was asked about, and how often in a row that has failed.
    """

    work: str
    lasts: float
    pause: float = 0.0
    progress: str = ""
    at: float = 0.0
    polls: int = 0
    failures: int = 0


@value(kw_only=True)
class Callback:
    """The right to finish a call, as it stands in the call's receipt.

    Attributes:
        digest: the digest of the token (`digest_of`).
        finish_by: when the call fails without a result, in seconds since the epoch.
        heartbeat: seconds without a heartbeat after which it fails; None if it needs none.
        seq, message: the seq of the task when the turn of the call was opened, and that of the message of the turn.
        token: the token itself, until a call has begun that may be repeated: it is repeated with the same one.
        key: the idempotency key of the call, if its action has `on_cancel` or is `polled`; else empty.
        polled: what is asked for the result, if nobody else brings it.
        is_judged: whether guards judge the result before anybody sees it.
    """

    digest: str
    finish_by: float
    heartbeat: float | None = None
    seq: int = 0
    message: int = 0
    token: str = ""
    key: str = ""
    polled: Polled | None = None
    is_judged: bool = False


class CallState(StrEnum):
    """How far a call has come.

    STARTED: its turn is not committed; WAITING: it waits for its result, or, under an earlier epoch, is cancelled;
    EXPIRED: that did not come in time, nor did a heartbeat; DROPPED: its action need not learn any more that it is
    cancelled.
    """

    STARTED = "started"
    WAITING = "waiting"
    FINISHED = "finished"
    FAILED = "failed"
    EXPIRED = "expired"
    DROPPED = "dropped"


@value(kw_only=True)
class LaterCall:
    """A call that finishes later.

    Attributes:
        agent, name, call_id: who called which action, and the id of the tool call.
        seq, message: as in `Callback`.
        epoch: that of the task's waits when it began to wait.
        finish_by, heartbeat: as in `Callback`.
        since: when it began to wait, in seconds since the epoch.
        heard: when it began or sent its last heartbeat.
        progress: what it has reported last.
        result: the digest of the result that it has ended with.
        key: as in `Callback`, and then the `arguments` of the call.
        attempts: how often `on_cancel` has failed, the last time when it was `heard` of.
        polled, is_judged: as in `Callback`.
        received: the result that guards have yet to judge.
    """

    digest: str
    agent: str
    name: str
    call_id: str
    state: CallState
    seq: int
    message: int = 0
    finish_by: float
    heartbeat: float | None = None
    since: float = 0.0
    heard: float = 0.0
    epoch: int = 0
    progress: str = ""
    result: str = ""
    key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 0
    polled: Polled | None = None
    is_judged: bool = False
    received: "CallResult | None" = None

    @property
    def id(self) -> str:
        """What identifies its record: the digest of its token."""
        return self.digest

    @property
    def waits_until(self) -> float | None:
        """When it is due; None unless it waits."""
        return self.due if self.state is CallState.WAITING else None

    @property
    def due(self) -> float:
        """When it fails unless it finishes, or sends a heartbeat, before; in seconds since the epoch."""
        return self.finish_by if self.heartbeat is None else min(self.finish_by, self.heard + self.heartbeat)

    def as_json(self) -> dict[str, Any]:
        """Return a call that waits as clients read it."""
        return {
            "id": self.digest,
            "agent": self.agent,
            "name": self.name,
            "call_id": self.call_id,
            "since": format_time(self.since),
            "heard": format_time(self.heard),
            "due": format_time(self.due),
            "progress": self.progress,
        }

    def heard_of(self, now: float, progress: str | None) -> "LaterCall":
        """Return the call after a heartbeat, with what it reports, if anything: not if its results are judged."""
        shown = None if self.is_judged else progress
        return replace(self, heard=now, progress=self.progress if shown is None else shown)

    def ended(self, state: CallState, result: str = "") -> "LaterCall":
        """Return it as it has ended, without what only its cancelling needs."""
        return replace(self, state=state, result=result, key="", arguments={}, polled=None, received=None)

    @property
    def has_ended(self) -> bool:
        """Whether it neither runs nor waits."""
        return self.state not in (CallState.STARTED, CallState.WAITING)


@value
class CallResult:
    """How a call has ended: its result, or why it failed.

    Attributes:
        files: the files of the task that the text mentions, if it was read by a turn of the task.
        stored_bytes: the bytes of those that were added to the task.
    """

    text: str
    has_failed: bool = False
    files: Mapping[str, FileRef] = field(default_factory=lambda: NO_FILES)
    stored_bytes: int = 0

    @property
    def digest(self) -> str:
        """What tells this result from any other."""
        return digest_of(f"{'failed' if self.has_failed else 'finished'}\n{self.text}")


def new_token(instance: str, task_id: str, secret: str) -> str:
    """Return the token of a call: where its task is, which is no secret, and a random part, which is."""
    place = urlsafe_b64encode(f"{instance}\n{task_id}".encode(errors="surrogatepass")).decode().rstrip("=")
    return f"{place}.{secret}"


def task_of(token: str) -> tuple[str, str] | None:
    """Return the instance and the id of the task that a token names; None for text that is no token."""
    place, _, secret = token.partition(".")
    try:
        instance, _, task_id = urlsafe_b64decode(place + "=" * (-len(place) % 4)).decode().partition("\n")
    except (Error, ValueError):
        return None
    return (instance, task_id) if secret and instance and task_id else None


def digest_of(text: str) -> str:
    """Return the SHA-256 of a token or a result, in hexadecimal."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()
