"""What a model says, in no provider's words, and what can go wrong."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Thinking:
    """Reasoning that may be read."""

    text: str


@dataclass(frozen=True)
class Redacted:
    """Reasoning that only the provider can read."""

    data: str = "secret"


@dataclass(frozen=True)
class Text:
    """Text for the reader."""

    text: str


@dataclass(frozen=True)
class Call:
    """A call of a tool that the caller runs; `arguments` is what the model wrote, so that it may be no JSON."""

    name: str
    arguments: dict[str, Any] | str


@dataclass(frozen=True)
class Search:
    """A web search that the provider has run."""

    query: str


@dataclass(frozen=True)
class Code:
    """Code that the provider has run."""

    code: str
    output: str = ""


Part = Thinking | Redacted | Text | Call | Search | Code


@dataclass(frozen=True)
class Tokens:
    """What a reply is billed as; `cached` and `written` are parts of `input`, `reasoning` of `output`."""

    input: int = 100
    output: int = 20
    cached: int = 0
    reasoning: int = 0
    written: int = 0


@dataclass(frozen=True)
class Reply:
    """A reply.

    Attributes:
        delay: seconds before its first byte.
        pause: seconds before each event of its stream.
        cut_after: after how many events the connection breaks; not streamed, it breaks in the body.
        ends_early: whether the stream ends in good order where it is cut, as behind some proxies.
        fails_after: after how many events the provider's error event follows.
        is_truncated: whether it stops at the limit of tokens.
        leaves_out_reasoning: whether the last event of a Responses stream lacks the reasoning items.
        headers: those of the response, such as `x-ratelimit-remaining-requests`.
    """

    parts: tuple[Part, ...]
    tokens: Tokens = Tokens()
    delay: float = 0.0
    pause: float = 0.0
    cut_after: int | None = None
    ends_early: bool = False
    fails_after: int | None = None
    is_truncated: bool = False
    leaves_out_reasoning: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    def but(self, **changes: Any) -> "Reply":
        """The same reply, other circumstances."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Failure:
    """An error answer; `kind` and `code` are the provider's names for it, each in its own format."""

    status: int
    message: str
    openai_type: str
    anthropic_type: str
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class HangUp:
    """The connection breaks before anything was said."""


@dataclass(frozen=True)
class Recorded:
    """The body of a response as a provider has sent it, from `tests/fixtures/replies`."""

    body: bytes
    media_type: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Turn = Reply | Failure | HangUp | Recorded

thinking, redacted, text, search, code, hang_up = Thinking, Redacted, Text, Search, Code, HangUp


def reply(*parts: Part, **circumstances: Any) -> Reply:
    """A reply of these parts; circumstances are the fields of `Reply`."""
    return Reply(parts, **circumstances)


def call(name: str, raw: str | None = None, /, **arguments: Any) -> Call:
    """A tool call with these arguments, or with this text in their place."""
    return Call(name, arguments if raw is None else raw)


def rate_limited(retry_after: float | str | None = None, *, header: str = "retry-after") -> Failure:
    headers = () if retry_after is None else ((header, str(retry_after)),)
    return Failure(
        429, "Rate limit reached for requests", "requests", "rate_limit_error", "rate_limit_exceeded", headers
    )


def quota_used_up() -> Failure:
    """OpenAI's 429 that no waiting helps against."""
    message = "You exceeded your current quota, please check your plan and billing details."
    return Failure(429, message, "insufficient_quota", "rate_limit_error", "insufficient_quota")


def server_error(status: int = 500) -> Failure:
    return Failure(status, "The server had an error", "server_error", "api_error")


def overloaded() -> Failure:
    """Anthropic's 529."""
    return Failure(529, "Overloaded", "server_error", "overloaded_error")


def bad_key() -> Failure:
    message = "Incorrect API key provided: sk-very-secret."
    return Failure(401, message, "invalid_request_error", "authentication_error", "invalid_api_key")


def unknown_model() -> Failure:
    return Failure(
        404, "The model does not exist", "invalid_request_error", "not_found_error", "model_not_found"
    )


def bad_request(message: str = "Invalid value") -> Failure:
    return Failure(400, message, "invalid_request_error", "invalid_request_error")


def context_exceeded() -> Failure:
    """Both providers' wording, as it is the wording that tells it from other bad requests."""
    message = (
        "prompt is too long: 250000 tokens > 200000 maximum. "
        "This model's maximum context length is 200000 tokens."
    )
    return Failure(400, message, "invalid_request_error", "invalid_request_error", "context_length_exceeded")


REPLIES = Path(__file__).parents[3] / "fixtures" / "replies"

_MEDIA_TYPES = {
    ".json": "application/json",
    ".sse": "text/event-stream",
    ".eventstream": "application/vnd.amazon.eventstream",
}


def recorded(name: str, status: int = 200, **headers: str) -> Recorded:
    """The response in the file `name`; `x_amzn_errortype` is the header `x-amzn-errortype`."""
    path = REPLIES / name
    named = tuple((each.replace("_", "-"), value) for each, value in headers.items())
    return Recorded(path.read_bytes(), _MEDIA_TYPES[path.suffix], status, named)
