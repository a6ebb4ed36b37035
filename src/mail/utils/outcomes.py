"""Results, errors, deadlines and permissions of the actions that this package provides."""

import asyncio
import json
import os
from typing import Annotated, Any

from pydantic import Field

from mail.core.turns.context import TURN
from mail.errors import AgentFault, ConfigurationError, Subject


class ActionFailed(AgentFault):
    """An external system failed to do what the action requested.

    Invalid arguments raise ToolCallFault instead, invalid settings ConfigurationError.
    """

    subject = Subject.ACTION_ERROR


def as_json(value: Any) -> str:
    """Return the value as JSON text; lone surrogates, which UTF-8 can't encode, become `?`."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def cut(text: str, limit: int) -> str:
    """Return the text, cut to `limit` characters with a note on the number of the rest."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


RESERVE_SECONDS = 8.0
"""Seconds reserved at the end of a turn to close connections and report to the agent; a tenth of short turns.

A server process started by an action has up to 7 seconds to end.
"""

Timeout = Annotated[float, Field(gt=0, le=300, description="Seconds to wait at most.")]


def seconds_left(wanted: float) -> float:
    """Return the seconds that an action may wait: `wanted`, or less if its turn ends earlier. For coroutines."""
    end = TURN.get().deadline
    if end is None:
        return wanted
    left = end - asyncio.get_running_loop().time()
    return max(0.0, min(wanted, left - min(RESERVE_SECONDS, left / 10)))


ALLOW_PRIVATE = "MAIL_STDLIB_HTTP_ALLOW_PRIVATE"
"""The environment variable that allows private addresses: `true` or `false`."""

_SWITCH = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


def private_allowed() -> bool:
    """Return whether agents may call private addresses. Raises ConfigurationError for an invalid setting."""
    setting = os.environ.get(ALLOW_PRIVATE, "").strip().lower()
    if setting not in _SWITCH:
        raise ConfigurationError(f"{ALLOW_PRIVATE} must be true or false")
    return _SWITCH[setting]
