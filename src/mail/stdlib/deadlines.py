"""How long an action may take."""

import asyncio
from typing import Annotated

from pydantic import Field

from mail.core.task.context import TURN_DEADLINE

RESERVE_SECONDS = 8.0
"""What is kept of a turn's time to hang up and tell the agent; a tenth of short turns.

A server that an action has started is given up to 7 seconds to end.
"""

Timeout = Annotated[float, Field(gt=0, le=300, description="Seconds to wait at most.")]


def seconds_left(wanted: float) -> float:
    """The seconds that an action may wait: `wanted`, or less where its turn ends earlier. For coroutines."""
    end = TURN_DEADLINE.get()
    if end is None:
        return wanted
    left = end - asyncio.get_running_loop().time()
    return max(0.0, min(wanted, left - min(RESERVE_SECONDS, left / 10)))
