"""What the wire formats share: ids, pieces of text, and the memory of what was handed out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.services.llm_stub.script import Call, Failure, Reply


class Refusal(Exception):
    """The provider would answer 400, with this text."""


@dataclass
class Issued:
    """What was handed out, and must come back as it was.

    Attributes:
        thinking: Anthropic's thinking blocks, by signature; of redacted ones, by their data.
        reasoning: the reasoning items of Responses, by encrypted content.
        requires: per item of a response, the id of the reasoning item that it must come back with.
    """

    thinking: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasoning: dict[str, dict[str, Any]] = field(default_factory=dict)
    requires: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    def id(self, prefix: str) -> str:
        """An id that was not used yet."""
        self._count += 1
        return f"{prefix}{self._count:08d}"


def require(holds: object, message: str) -> None:
    """Refuse the request where this does not hold."""
    if not holds:
        raise Refusal(message)


def require_known(request: Mapping[str, Any], known: str) -> None:
    """Refuse parameters that the provider doesn't have: they are litellm's own, or misspelt."""
    unknown = sorted(request.keys() - set(known.split()))
    require(not unknown, f"Unrecognized request argument supplied: {', '.join(unknown)}")


def pieces(text: str, size: int = 7) -> Iterator[str]:
    """The text as it comes in a stream."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def arguments_of(part: Call) -> str:
    """The arguments as the model wrote them."""
    return part.arguments if isinstance(part.arguments, str) else json.dumps(part.arguments)


def openai_error(failure: Failure) -> dict[str, Any]:
    """The body of an error of either of OpenAI's APIs."""
    return {
        "error": {
            "message": failure.message,
            "type": failure.openai_type,
            "param": None,
            "code": failure.code,
        }
    }


def sse(data: dict[str, Any], event: str | None = None) -> bytes:
    """One Server-Sent Event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def has_calls(reply: Reply) -> bool:
    """Whether the caller has tools to run."""
    return any(isinstance(part, Call) for part in reply.parts)
