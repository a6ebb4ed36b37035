"""How actions of the catalogue end: with a JSON text, or with an error that the agent is told."""

import json
from typing import Any

from mail.errors import AgentFault, Subject


class ActionFailed(AgentFault):
    """The world outside did not do what the action asked of it.

    Arguments that can't be right are a ToolCallFault instead, settings that can't a ConfigurationError.
    """

    subject = Subject.ACTION_ERROR


def as_json(value: Any) -> str:
    """The value as JSON text that any store can keep: lone surrogates, which UTF-8 has no bytes for, become `?`."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def cut(text: str, limit: int) -> str:
    """The text, or its first `limit` characters and a word on how much was left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
