"""Suggestions for mistyped names."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message, `. Did you mean 'x'?`, or nothing if no known name is similar."""
    close = get_close_matches(name, list(known), n=1)
    return f". Did you mean {close[0]!r}?" if close else ""
