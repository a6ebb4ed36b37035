"""What a paused task asks a person, in words: the same for the API, the command line and Python."""

import json
from collections.abc import Mapping
from typing import Any

MAX_QUESTION = 2_000
"""Characters of a call in words; its arguments are whole in `pending_tool_calls`."""


def describe_question(
    agent: str, name: str, arguments: Mapping[str, Any], *, needs_approval: bool = False
) -> str:
    """Return what an agent asks with a call: its question, or the call that a person must approve or answer, in one line."""
    who = agent or "the swarm"
    text = arguments.get("question")
    if text is None and len(arguments) == 1:
        (text,) = arguments.values()
    values = (
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in arguments.items()
    )
    if needs_approval:
        words = f"{who} wants to run {name}({', '.join(values)})"
    elif isinstance(text, str):
        words = f"{who} asks: {text}"
    else:
        words = f"{who} waits for the result of {name}({', '.join(values)})"
    line = " ".join(words.split())
    return line if len(line) <= MAX_QUESTION else f"{line[: MAX_QUESTION - 1]}…"
