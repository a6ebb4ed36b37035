"""How actions of the catalogue end: with a JSON text, or with an error that the agent is told."""

import asyncio
import json
from typing import Annotated, Any

from pydantic import Field

from mail.core.task.context import TURN_DEADLINE
from mail.errors import AgentFault, Subject


class ActionFailed(AgentFault):
    """The world outside did not do what the action asked of it.

    Arguments that can't be right are a ToolCallFault instead, settings that can't a ConfigurationError.
    """

    subject = Subject.ACTION_ERROR


def as_json(value: Any) -> str:
    """Return the value as JSON text that any store can keep: lone surrogates, which UTF-8 has no bytes for, become `?`."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def cut(text: str, limit: int) -> str:
    """Return the text, or its first `limit` characters and a word on how much was left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


RESERVE_SECONDS = 8.0
"""What is kept of a turn's time to hang up and tell the agent; a tenth of short turns.

A server that an action has started is given up to 7 seconds to end.
"""

Timeout = Annotated[float, Field(gt=0, le=300, description="Seconds to wait at most.")]


def seconds_left(wanted: float) -> float:
    """Return the seconds that an action may wait: `wanted`, or less where its turn ends earlier. For coroutines."""
    end = TURN_DEADLINE.get()
    if end is None:
        return wanted
    left = end - asyncio.get_running_loop().time()
    return max(0.0, min(wanted, left - min(RESERVE_SECONDS, left / 10)))
