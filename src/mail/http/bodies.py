"""JSON bodies: how they are read and written, and the shapes that several routes share.

Bodies are read here rather than by FastAPI, so that only authenticated callers can make the server read one, an
oversized body is refused while it arrives, and text that can't be stored (lone surrogates, invalid UTF-8) is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from fastapi import Request
from fastapi.responses import Response
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import PydanticCustomError, from_json, to_json
from starlette.types import Message, Receive, Scope, Send

from mail.core.decisions.cancel import MAX_REASON
from mail.core.engine.pacing import LARGE, PIECE_BYTES
from mail.core.protocol.error_text import did_you_mean, explain
from mail.core.protocol.values import is_none, value
from mail.core.task.approvals import DecisionName
from mail.core.task.events import EventKind
from mail.core.task.webhooks import DEFAULT_EVENTS, NEVER_SENT, Webhook
from mail.errors import BadRequest, PayloadTooLarge
from mail.http.account import BODY_FACTOR, SMALL_BYTES, WIDE_FACTOR
from mail.http.service import Service, header, service_of

MAX_WARNINGS = 20
"""Unknown fields of one object that are named."""

MAX_FIELD_NAME = 60
"""Characters of a field's name in a warning."""


class Given(BaseModel):
    """Base class of request bodies.

    Unknown fields are ignored, and optional fields may be `null`: existing clients send both.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class CallDecision(Given):
    """A person's decision on a call."""

    decision: DecisionName = Field(
        description="`approve` to run the call, `edit` to run it with other arguments, or `reject`; `answer` for a "
        "question to reviewers."
    )
    arguments: dict[str, Any] | None = Field(
        default=None, description="The arguments to run the call with, instead of the model's."
    )
    reason: str = Field(
        default="", max_length=MAX_REASON, description="The agent reads why a call is rejected."
    )
    answer: str = Field(default="", description="The answer to the question, for the decision `answer`.")
    arguments_sha256: str | None = Field(
        default=None,
        exclude_if=is_none,
        pattern="^[0-9a-f]{64}$",
        description="The SHA-256 of the call's `arguments_text`, in hexadecimal: the decision is refused with 409 if "
        "the call has other arguments.",
    )


def ignored_fields(
    given: Mapping[str, Any], model: type[Given], path: str, others: Mapping[str, type[Given]]
) -> list[str]:
    """Return a warning for each field that was ignored when an object at a path in the body was read as a model.

    `others` are the other objects of the body, by their paths, to which a field may belong.
    """
    unknown = given.keys() - model.__pydantic_fields__.keys()
    return [_warning(name, model, path, others) for name in sorted(unknown)[:MAX_WARNINGS]] if unknown else []


def _warning(name: str, model: type[Given], path: str, others: Mapping[str, type[Given]]) -> str:
    shown = f"{path}.{name}".removeprefix(".")[:MAX_FIELD_NAME]
    ignored = f"the unknown field {shown!r} was ignored"
    for place, other in others.items():
        if name in other.model_fields:
            return f"{ignored}; {name} belongs {f'into {place}' if place else 'outside of ' + path}"
    known = [*model.model_fields, *(each for other in others.values() for each in other.model_fields)]
    return f"{ignored}{did_you_mean(name, known)}"


class Answered(BaseModel):
    """Base class of response bodies."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class Problem(Answered):
    """An error: what is wrong, and what to change."""

    detail: str


def chunks(data: bytes) -> Iterator[bytes]:
    """Yield data in chunks to send one after the other, each when the client has read about all of the one before."""
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


class InChunks(Response):
    """A response that is sent in chunks; the request holds it until the client has read it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for chunk in chunks(bytes(self.body)):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class JSON(InChunks):
    """A response whose content is any JSON-serializable value."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the content as JSON; bytes are taken as JSON already."""
        return content if isinstance(content, bytes) else to_json(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, a small one at once."""
        if len(self.body) <= SMALL_BYTES:
            await Response.__call__(self, scope, receive, send)
            return
        request = Request(scope)
        service_of(request).holding(request).keep(len(self.body))
        await super().__call__(scope, receive, send)


SCHEMAS = "#/components/schemas/"


@value
class JSONBody[Model: BaseModel]:
    """FastAPI dependency that reads the request's body as a model.

    Put it behind the caller in a route's signature, so that the caller is checked first. With
    `optional=True` a request without a body is read as `{}`. `max_bytes` is below the limit of the server for a body
    that strangers may send; with `has_files`, a body may be larger by a file in base64.
    """

    model: type[Model]
    optional: bool = False
    max_bytes: int | None = None
    has_files: bool = False

    async def __call__(self, request: Request) -> Model:
        return (await self.read(request))[0]

    async def read(self, request: Request) -> tuple[Model, dict[str, Any]]:
        """Return the body as a model, and the object that was given."""
        service = service_of(request)
        limit = self.max_bytes or service.max_body_bytes
        body = await read_body(request, limit + (room_for_file(service) if self.has_files else 0))
        if len(body) > LARGE:
            await service.runtime.pacer.pause(len(body))
        if not body and self.optional:
            return self.model(), {}
        try:
            value = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise BadRequest(f"the request body must be JSON in UTF-8: {error}") from error
        try:
            return self.model.model_validate(value), value
        except ValidationError as error:
            raise BadRequest(f"the request body is not valid: {explain(error)}") from error

    def docs(self) -> dict[str, Any]:
        """Return the body's place in the OpenAPI document, the `requestBody` of an operation."""
        content = {"application/json": {"schema": {"$ref": f"{SCHEMAS}{self.model.__name__}"}}}
        return {"required": not self.optional, "content": content}


def room_for_file(service: Service) -> int:
    """Return the bytes of a file of the largest size in base64; 0 if the database stores no files."""
    files = service.runtime.caller_files
    return files.max_bytes * 4 // 3 if files.are_stored else 0


def replayed(request: Request, body: bytes) -> Receive:
    """Return a `receive` for an application that reads the request's body itself, after it was read here."""
    unread: bytes | None = body

    async def receive() -> Message:
        nonlocal unread
        if unread is None:
            return await request.receive()
        content, unread = unread, None
        return {"type": "http.request", "body": content, "more_body": False}

    return receive


async def read_body(request: Request, limit: int, *, factor: int = BODY_FACTOR) -> bytes:
    """Read a body, of which `factor` times its size is held: before it is read or, without a length, as it arrives.

    A long one whose text may be wide holds more, once that is known.

    Raises PayloadTooLarge, RateLimited and Overloaded.
    """
    length = header(request, b"content-length") or ""
    expected = int(length) if length.isdecimal() else 0
    body, held = bytearray(), SMALL_BYTES
    while expected <= limit:
        if expected > held:
            service_of(request).holding(request).hold((expected - held) * factor)
            held = expected
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the connection was closed before the request body ended")
        body += message.get("body", b"")
        expected = max(expected, len(body))
        if expected <= limit and not message.get("more_body"):
            if (
                len(body) > SMALL_BYTES
                and factor == BODY_FACTOR
                and not (body.isascii() and b"\\u" not in body)
            ):
                service_of(request).holding(request).hold(len(body) * (WIDE_FACTOR - factor))
            return bytes(body)
    raise PayloadTooLarge(f"the request body is larger than {limit} bytes")


EVERY = "*"
"""Selects all kinds of events."""

_SENDABLE = tuple(kind.value for kind in EventKind if kind not in NEVER_SENT)


def _check_sendable(events: Any) -> Any:
    """Refuse the first kind that can't be sent, in one error; the union of the field's types would give two each."""
    if not isinstance(events, list):
        return events
    wrong = [event for event in events if event not in (EVERY, *_SENDABLE)]
    if not wrong:
        return events
    if wrong[0] in tuple(NEVER_SENT):
        raise PydanticCustomError(
            "never_sent", "{kind} is about webhooks, and is never sent", {"kind": wrong[0]}
        )
    name = str(wrong[0])[:40]
    raise PydanticCustomError(
        "no_event_kind",
        "there is no kind of event {name}; there are {known}, and * for all{hint}",
        {"name": repr(name), "known": ", ".join(_SENDABLE), "hint": did_you_mean(name, _SENDABLE)},
    )


class GivenWebhook(Given):
    """A URL to send events to; part of a message, or a body of its own."""

    url: str = Field(description="URL to POST the events to: `https://…`.")
    secret_ref: str | None = Field(
        default=None,
        description="Reference to the secret for signing requests, on the server: `${WEBHOOK_SECRET_…}`. By default, "
        "requests are not signed.",
    )
    events: (
        Annotated[list[Literal["*"] | EventKind], Field(min_length=1), BeforeValidator(_check_sendable)]
        | None
    ) = Field(
        default=None,
        description="Kinds of events to send, `*` for all. By default, those that end or pause a task: "
        f"{', '.join(kind.value for kind in DEFAULT_EVENTS)}.",
    )

    def webhook(self) -> Webhook:
        """Return the webhook for the runtime."""
        events = DEFAULT_EVENTS if self.events is None else _kinds(self.events)
        return Webhook(url=self.url, secret_ref=self.secret_ref or "", events=events)


def _kinds(events: list[Literal["*"] | EventKind]) -> tuple[EventKind, ...]:
    kinds = {event for event in events if isinstance(event, EventKind)}
    return () if EVERY in events else tuple(kind for kind in EventKind if kind in kinds)
