"""Guards in Python: functions that judge what agents say and do."""

from collections.abc import Callable, Collection
from typing import Any

from mail.actions.functions import as_async
from mail.api.tracebacks import without_frames
from mail.core.task.guards import GUARD_SECONDS, Guard, Stage
from mail.errors import ConfigurationError

Judge = Callable[..., Any]
"""Takes an `Act` and returns `ALLOW`, `Replace`, `Refuse` or `AskPerson`; it may be a coroutine function."""


@without_frames
def guard(
    *,
    on: Stage | Collection[Stage],
    name: str | None = None,
    timeout: float = GUARD_SECONDS,
    fails_open: bool = False,
    checkpointed: bool = False,
) -> Callable[[Judge], Guard]:
    """Make a guard of a function, which takes an `Act` and returns `ALLOW`, `Replace`, `Refuse` or `AskPerson`.

        @guard(on="call")
        async def small_refunds(act: Act) -> Ruling:
            is_large = act.tool == "refund" and act.arguments["amount"] > 100
            return AskPerson("Is this refund right?") if is_large else ALLOW

    A plain function runs in a thread, as a plain action does.

    Args:
        on: what it judges: one or more of `message`, `call`, `result` and `answer`.
        name: by default that of the function; no two guards of an agent may have the same.
        timeout: seconds that it may take.
        fails_open: whether what it judges is allowed if it raises an exception or takes too long; otherwise refused.
        checkpointed: whether its verdict is stored at once, so that a crash doesn't repeat it; for guards that cost
            something.

    Raises ConfigurationError for invalid settings.
    """
    stages: frozenset[Stage] = frozenset([on] if isinstance(on, str) else on)

    def make(function: Judge) -> Guard:
        if not callable(function):
            raise ConfigurationError(f"a guard is made of a function, not of {function!r}")
        return Guard(
            name=name or str(getattr(function, "__name__", "")),
            function=as_async(function),
            on=stages,
            timeout=timeout,
            fails_open=fails_open,
            checkpointed=checkpointed,
        )

    return make
