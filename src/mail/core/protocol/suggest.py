"""Help for whoever mistyped a name."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message: `. Did you mean 'x'?`, or nothing where no known name is close."""
    close = get_close_matches(name, list(known), n=1)
    return f". Did you mean {close[0]!r}?" if close else ""
