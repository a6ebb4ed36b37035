"""What a paused task asks a person, in words: the same for the API, the command line and Python."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_QUESTION = 2_000
"""Characters of a call in words; its arguments are whole in `pending_tool_calls`."""

MAX_READ = 8 * MAX_QUESTION
"""Characters of each text of a call that are looked at, white space included."""

QUESTIONS = ("question", "prompt", "message", "text", "body", "query", "ask")
"""Names of an argument that holds a question."""


def question_argument(arguments: Mapping[str, Any]) -> str | None:
    """Return the name of the argument that holds the question which a call asks; None if it asks none."""
    texts = [name for name, text in arguments.items() if isinstance(text, str) and text.strip()]
    alone = texts[0] if texts and len(arguments) == 1 else None
    return next((name for name in texts if name in QUESTIONS), alone)


def describe_question(
    agent: str,
    name: str,
    arguments: Mapping[str, Any],
    *,
    needs_approval: bool = False,
    reviewers: Sequence[str] = (),
) -> str:
    """Return what an agent asks with a call, in one line: its question, or the call to approve or answer.

    `reviewers` are those who decide in place of the task's owner, if others do.
    """
    who = agent or "the swarm"
    question = question_argument(arguments)
    if reviewers:
        does = "approve" if needs_approval else "answer"
        words = f"{who} waits for {' or '.join(reviewers)} to {does} {_call(name, arguments)}"
    elif needs_approval:
        words = f"{who} wants to run {_call(name, arguments)}"
    elif question is not None:
        words = f"{who} asks: {arguments[question][:MAX_READ]}"
    else:
        words = f"{who} waits for the result of {_call(name, arguments)}"
    return _in_a_line(words)


def describe_call(agent: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call of an agent in one line, as a list shows it."""
    return _in_a_line(f"{agent}: {_call(name, arguments)}")


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    values = (
        f"{key}: {value[:MAX_READ] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in arguments.items()
    )
    return f"{name}({', '.join(values)})"


def _in_a_line(words: str) -> str:
    return shortened(" ".join(words.split()), MAX_QUESTION)


def shortened(text: str, limit: int) -> str:
    """Return a text, cut to so many characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
