"""Results that a caller may await or not, as MAIL 1.3.6 has a coroutine where this package has none, or vice versa."""

from collections.abc import Generator
from typing import Any


class Done[Result]:
    """A result that is there; awaiting it returns it."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, Any, Result]:
        yield from ()
        return self._result


class Flag(int):
    """A truth value; awaiting it returns a bool."""

    def __await__(self) -> Generator[Any, Any, bool]:
        return Done(bool(self)).__await__()

    def __repr__(self) -> str:
        return repr(bool(self))

    __str__ = __repr__
