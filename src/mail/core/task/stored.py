"""Tasks and checkpoints as stores keep them, in JSON.

Fields are stored under their own names. Two versions may run at once, during an update, so each ignores the fields that
only a later one knows: the validators get `extra="ignore"`, as some classes forbid them, for the API. What must
not be read without them has another form (`FORM`), which an earlier version refuses. A task's `Generation` is flat in
there, among the task's own fields.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field, fields
from operator import itemgetter
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.values import fill, value
from mail.core.task.context import Preparation
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.fallback import Switch
from mail.core.task.guards import Judgement
from mail.core.task.interswarm import OpenRequest
from mail.core.task.leases import Lease
from mail.core.task.permits import Permits
from mail.core.task.task import Generation, Task
from mail.core.task.turn_state import Checkpoint, Receipt, TurnTiming
from mail.core.task.waits import Wait
from mail.errors import WrittenLater

FORM = 1
"""The newest form of tasks that this version reads; stored as `form`, unless it is 1. No release writes a form that the
one before it can't read (docs/contributing.md).
"""

_CONFIG = ConfigDict(defer_build=True)

# A dataclass takes no configuration from outside; an alias of one does.
type _StoredTask = Task
type _StoredGeneration = Generation
type _StoredRequest = OpenRequest

_TASK: TypeAdapter[Task] = TypeAdapter(_StoredTask, config=_CONFIG)
_GENERATION: TypeAdapter[Generation] = TypeAdapter(_StoredGeneration, config=_CONFIG)

_REQUEST: TypeAdapter[OpenRequest] = TypeAdapter(_StoredRequest, config=_CONFIG)


def write_task(task: Task, exclude: Set[str] = frozenset()) -> str:
    """Return the stored JSON of a task, without fields that have their defaults and those to `exclude`."""
    text = _TASK.serializer.to_json(task, exclude_defaults=True, exclude={"generation", *exclude})
    generation = _GENERATION.serializer.to_json(task.generation, exclude_defaults=True)
    return (text if generation == b"{}" else text[:-1] + b"," + generation[1:]).decode()


_CHANGING = ("updated", "seq", "version", "pending", "histories", "stored_bytes", "history_bytes")
_CHANGING_GENERATION = ("steps", "turns")
"""The fields that most turns change, besides the requests."""


def _lasting(
    cls: type[Task] | type[Generation], *changing: str
) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    return itemgetter(*(each.name for each in fields(cls) if each.init and each.name not in changing))


_NAMES_CHANGING = (*_CHANGING, *_CHANGING_GENERATION)
_changing_of_task, _changing_of_generation = itemgetter(*_CHANGING), itemgetter(*_CHANGING_GENERATION)

_lasting_of_task = _lasting(Task, *_CHANGING, "requests", "generation")
_lasting_of_generation = _lasting(Generation, *_CHANGING_GENERATION)


class TaskEncoder:
    """Encodes the states of one task, one after the other, and what stays the same only once: 3 % of a turn.

    It returns what `write_task` does, in UTF-8, with the fields in another order.
    """

    def __init__(self) -> None:
        self._lasting: tuple[Any, ...] = ()
        self._head = b""

    def encode(self, task: Task) -> bytes:
        """Return the stored JSON of a state, in UTF-8."""
        facts, counts = vars(task), vars(task.generation)
        lasting = (_lasting_of_task(facts), _lasting_of_generation(counts))
        if lasting != self._lasting:  # most of them are the same objects, so that this takes little time
            self._head, self._lasting = _encode_lasting(task), lasting
        changed = (*_changing_of_task(facts), *_changing_of_generation(counts))
        changing = to_json(dict(zip(_NAMES_CHANGING, changed, strict=True)))
        if not task.requests:
            return b"%b%b}" % (self._head, changing[1:-1])
        requests = b",".join(map(_encode_request, task.requests))
        return b'%b%b,"requests":[%b]}' % (self._head, changing[1:-1], requests)


def _encode_lasting(task: Task) -> bytes:
    """Return the beginning of a task's stored JSON: the fields that few turns change."""
    own = _TASK.serializer.to_json(
        task, exclude_defaults=True, exclude={"generation", "requests", *_CHANGING}
    )
    generation = _GENERATION.serializer.to_json(
        task.generation, exclude_defaults=True, exclude=set(_CHANGING_GENERATION)
    )
    return own[:-1] + b"," + (b"" if generation == b"{}" else generation[1:-1] + b",")


def _encode_request(request: OpenRequest) -> bytes:
    return _REQUEST.serializer.to_json(request, exclude_defaults=True)


def read_task(text: str | bytes) -> Task:
    """Return the task that stored JSON describes. Raises WrittenLater if this version can't read it."""
    return task_from(from_json(text))


def task_from(stored: Mapping[str, Any]) -> Task:
    """Return the task that parsed stored JSON describes. Raises WrittenLater if this version can't read it."""
    if stored.get("form", 1) > FORM:
        raise WrittenLater
    try:
        generation = _GENERATION.validate_python(stored, extra="ignore")
        return _TASK.validate_python({**stored, "generation": generation}, extra="ignore")
    except ValidationError as error:
        raise WrittenLater from error


def read[Stored](adapter: TypeAdapter[Stored], stored: str | bytes | Sequence[Any]) -> Stored:
    """Return the value that stored JSON, or a parsed part of it, describes.

    Raises WrittenLater if this version can't read it.
    """
    try:
        if isinstance(stored, str | bytes):
            return adapter.validate_json(stored, extra="ignore")
        return adapter.validate_python(stored, extra="ignore")
    except ValidationError as error:
        raise WrittenLater from error


def read_message(text: str | bytes) -> MAILMessage:
    """Return the message that stored JSON describes. Raises WrittenLater if this version can't read it."""
    try:
        return MAILMessage.model_validate_json(text)
    except ValidationError as error:
        raise WrittenLater from error


# ------------------------------------------------------------------------------------------------ checkpoints


_IF_ANY = Field(exclude_if=lambda given: not given)
"""Of a field that is absent without a value."""


@value(kw_only=True)
class _StoredCheckpoint:
    """A checkpoint in which calls refer to the model's replies by index, as calls of one reply share it."""

    text: str | None
    calls: list[dict[str, Any]]
    replies: list[Any]
    receipts: tuple[Receipt | None, ...]
    usage: Usage = NO_USAGE
    models: dict[str, Usage] = field(default_factory=dict)
    timing: Annotated[TurnTiming | None, _IF_ANY] = None
    switch: Annotated[Switch | None, _IF_ANY] = None
    approved: Annotated[bool, _IF_ANY] = False
    attempt: Annotated[int, Field(exclude_if=lambda attempt: attempt == 1)] = 1
    preparation: Annotated[Preparation | None, _IF_ANY] = None
    judgement: Annotated[Judgement | None, _IF_ANY] = None


type _Checkpoint = _StoredCheckpoint

_CHECKPOINT: TypeAdapter[_StoredCheckpoint] = TypeAdapter(_Checkpoint, config=ConfigDict(defer_build=True))

type _StoredLease = Lease

_LEASE: TypeAdapter[Lease] = TypeAdapter(_StoredLease, config=_CONFIG)

STORED_TYPES: tuple[TypeAdapter[Any], ...] = (_TASK, _GENERATION, _REQUEST, _CHECKPOINT, _LEASE)
"""All types that are stored here, built on first use: most functions never store one."""

_REPLY = {"completion", "responses"}


def write_checkpoint(checkpoint: Checkpoint) -> str:
    """Return the stored JSON of a checkpoint."""
    replies: list[Any] = []
    calls = []
    for call in checkpoint.calls:
        reply = call.completion or call.responses
        if not replies or replies[-1] != reply:
            replies.append(reply)
        calls.append({**call.model_dump(exclude=_REPLY), "reply": len(replies) - 1})
    stored = _StoredCheckpoint(**fill(_StoredCheckpoint, checkpoint, calls=calls, replies=replies))
    absent = {index: _absent_of(receipt) for index, receipt in enumerate(checkpoint.receipts) if receipt}
    return _CHECKPOINT.dump_json(stored, exclude={"receipts": absent}).decode()


def _absent_of(receipt: Receipt) -> set[str]:
    absent = {"after", "seconds"} if receipt.after is None else set[str]()
    if receipt.attempts == 1:
        absent.add("attempts")
    if not receipt.apart:
        absent.add("apart")
    if receipt.callback is None:
        absent.add("callback")
    return absent


def read_checkpoint(text: str | bytes) -> Checkpoint:
    """Return the checkpoint that stored JSON describes. Raises WrittenLater if this version can't read it."""
    stored = read(_CHECKPOINT, text)
    calls = tuple(_call(call, stored.replies) for call in stored.calls)
    return Checkpoint(**fill(Checkpoint, stored, calls=calls))


def _call(stored: dict[str, Any], replies: list[Any]) -> AgentToolCall:
    reply = replies[stored.pop("reply")]
    return AgentToolCall.model_validate(
        {**stored, "completion" if isinstance(reply, dict) else "responses": reply}, extra="ignore"
    )


# ----------------------------------------------------------------------- parks, waits, permits


def _in_json[Stored](
    adapter: TypeAdapter[Stored],
) -> tuple[Callable[[Stored], str], Callable[[str | bytes], Stored]]:
    """Return what writes values as JSON, without defaults, and what reads them, which raises WrittenLater."""

    def write(given: Stored) -> str:
        return adapter.dump_json(given, exclude_defaults=True).decode()

    def read_back(text: str | bytes) -> Stored:
        return read(adapter, text)

    return write, read_back


type _StoredWait = Wait
type _StoredPermits = Permits

_WAIT: TypeAdapter[Wait] = TypeAdapter(_StoredWait, config=_CONFIG)  # most processes have none of these
_PERMITS: TypeAdapter[Permits] = TypeAdapter(_StoredPermits, config=_CONFIG)

write_park, read_park = _in_json(_LEASE)
"""Leases with a park; other leases are stored by their attributes."""

write_wait, read_wait = _in_json(_WAIT)
write_permits, read_permits = _in_json(_PERMITS)
