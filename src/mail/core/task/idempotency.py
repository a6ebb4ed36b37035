"""Idempotency keys: a caller names a submission, so that sending it again has no further effect."""

from mail.core.protocol.values import value
from mail.errors import IdempotencyConflict

REMEMBERED_SECONDS = 86_400.0
"""How long a key is remembered."""

MAX_REMEMBERED = 64
"""The number of keys that one task stores; the oldest are dropped first, so that it stays small."""


@value(kw_only=True)
class IdempotencyKey:
    """The identity of a submission.

    Attributes:
        key: the caller's own name for it.
        digest: of the whole request; the same key with another digest is another request.
        until: when the key expires, in seconds since the epoch: a day after its first use.
    """

    key: str
    digest: str
    until: float


@value(kw_only=True)
class Remembered(IdempotencyKey):
    """A submission that was accepted under a key.

    Attributes:
        generation, after, seq: its outcome, as in `mail.core.engine.watch.Submitted`.
    """

    generation: int
    after: int
    seq: int


def find(remembered: tuple[Remembered, ...], given: IdempotencyKey, now: float) -> Remembered | None:
    """Return the earlier submission under the same key, if there was one.

    Raises IdempotencyConflict if that was a different request, or if the task may have dropped the key already.
    """
    earlier = next((each for each in remembered if each.key == given.key and each.until > now), None)
    if earlier is not None:
        check(earlier.digest, given)
    elif len(remembered) >= MAX_REMEMBERED and given.until < remembered[0].until:
        raise IdempotencyConflict(
            f"{MAX_REMEMBERED} other keys were used in this task since Idempotency-Key {given.key!r}; look at the task "
            "to see whether its message was accepted, and use a new key to send it again"
        )
    return earlier


def check(digest: str, given: IdempotencyKey) -> None:
    """Raise IdempotencyConflict if the earlier submission had a different digest."""
    if digest != given.digest:
        raise IdempotencyConflict(
            f"Idempotency-Key {given.key!r} was used for another request; take a new key for each request"
        )


def remember(remembered: tuple[Remembered, ...], new: Remembered, now: float) -> tuple[Remembered, ...]:
    """Return the submissions with the new one and without those whose keys have expired."""
    return (*(each for each in remembered if each.until > now), new)[-MAX_REMEMBERED:]
