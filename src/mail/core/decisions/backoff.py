"""The delay before another attempt, for calls of models and of actions, or before another poll."""

POLL_SECONDS = (1, 1, 2, 2, 3, 5, 5, 10, 15, 20, 30, 60)
"""Pauses between polls of work elsewhere; the last one repeats."""


def delay_after(attempt: int, chance: float, *, first: float = 1.0, longest: float = 30.0) -> float:
    """Return the seconds to wait after the failed attempt with this number, from 1.

    Delays double from `first` to `longest` seconds, minus up to a half by `chance`, a number in [0, 1), so that calls
    which failed together aren't repeated together.
    """
    return min(first * 2.0 ** (attempt - 1), longest) * (1 - 0.5 * chance)
