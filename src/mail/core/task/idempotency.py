"""Submitting once: a caller's key by which a submission is known when it is sent again."""

from mail.core.protocol.values import Value
from mail.errors import IdempotencyConflict

REMEMBERED_SECONDS = 86_400.0
"""How long a key is remembered."""

MAX_REMEMBERED = 64
"""Keys that one task remembers, so that its record stays small; the oldest go first."""


class Once(Value):
    """What makes a submission the same as an earlier one.

    Attributes:
        key: the caller's own, which names one submission.
        digest: of all that was asked for; another digest under the same key is another request.
        until: when the key is forgotten, in seconds since the epoch: a day after it was used first.
    """

    key: str
    digest: str
    until: float


class Remembered(Once):
    """A submission that was accepted under a key.

    Attributes:
        generation, after, seq: what became of it, as in `mail.core.engine.watch.Submitted`.
    """

    generation: int
    after: int
    seq: int


def find(remembered: tuple[Remembered, ...], once: Once, now: float) -> Remembered | None:
    """The earlier submission under the same key, if there was one.

    Raises IdempotencyConflict if it was another, or if the key is so old that the task may have forgotten it.
    """
    earlier = next((each for each in remembered if each.key == once.key and each.until > now), None)
    if earlier is not None:
        check(earlier.digest, once)
    elif len(remembered) >= MAX_REMEMBERED and once.until < remembered[0].until:
        raise IdempotencyConflict(
            f"{MAX_REMEMBERED} other keys were used in this task since Idempotency-Key {once.key!r} was: whether its "
            "message was accepted, only the task can tell; take a new key to send it again"
        )
    return earlier


def check(digest: str, once: Once) -> None:
    """Raise IdempotencyConflict unless the digest of the earlier submission is this one's."""
    if digest != once.digest:
        raise IdempotencyConflict(
            f"Idempotency-Key {once.key!r} was used for another request; take a new key for each request"
        )


def remember(remembered: tuple[Remembered, ...], new: Remembered, now: float) -> tuple[Remembered, ...]:
    """With the new one, and without those that are to be forgotten."""
    return (*(each for each in remembered if each.until > now), new)[-MAX_REMEMBERED:]
