"""Parsing messages: leniently, so that no text raises, or strictly, with all errors reported together."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from mail.agentmail.body import Body
from mail.agentmail.envelope import (
    AgentMailMessage,
    Envelope,
    bead_of,
    bead_replied_to,
    exact_type_of,
    read_envelope,
    type_of,
)
from mail.agentmail.messages import ACK_REQUIRED, CLASSES, MessageType, TypedMessage, Unknown, layout
from mail.agentmail.notation import BEAD, FILES, Line, Place, Section, unquoted
from mail.errors import BadRequest


class MalformedMessage(BadRequest):
    """The message does not have the form of its type.

    `missing` maps each missing field to its position, `invalid` each invalid one to the problem. Fields are those of
    the envelope or of the typed message.
    """

    def __init__(self, kind: MessageType, missing: Mapping[str, str], invalid: Mapping[str, str]) -> None:
        self.kind = kind
        self.missing = dict(missing)
        self.invalid = dict(invalid)
        faults = [f"{name} is missing ({place})" for name, place in self.missing.items()]
        faults += [f"{name} is not valid ({why})" for name, why in self.invalid.items()]
        super().__init__(f"{kind}: {'; '.join(faults)}")

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all missing and invalid fields."""
        return (*self.missing, *self.invalid)


class UnknownMessage(BadRequest):
    """No message with this id has been read."""


type Raw = Envelope | Mapping[str, Any] | str | bytes
"""An envelope, its JSON, or plain text: `Subject: …`, perhaps after other headers, an optional `Body:`, then the
body.
"""

_OTHER_NAMES = {"from": "sender", "to": "recipient", "body_md": "body", "created_ts": "timestamp"}
"""Other names of the envelope's fields, used by mail servers for agents."""

_HEADERS = {"from", "to", "cc", "date", "subject"}
"""The headers of plain text; the subject is the last one."""

_TEXTS = {name for name, field in Envelope.model_fields.items() if field.annotation is str} - {"timestamp"}

_SHOWN = 40
"""Characters of an invalid value that an error quotes."""


@dataclass
class _Faults:
    """The problems of a message, by field."""

    missing: dict[str, str] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.missing or self.invalid)


class Parser:
    """Parses messages of any type.

    A lenient parser leaves missing and invalid fields empty. A `strict` one raises MalformedMessage, which names them
    all. With `exact_subjects` a lenient parser, too, recognizes a type only if the subject contains nothing but the
    type and a bead: for mailboxes with much other mail. Then a message of no type names a bead only by its subject, if
    that is a reply (`Re: [ol-1] DONE`).
    """

    def __init__(self, *, strict: bool = False, exact_subjects: bool = False) -> None:
        self.strict = strict
        self.exact_subjects = exact_subjects

    def parse(self, raw: Raw) -> AgentMailMessage:
        """Parse one message. Raises BadRequest for a value of another type."""
        faults = _Faults()
        envelope = _open(raw, faults)
        exact = self.strict or self.exact_subjects
        kind = exact_type_of(envelope.subject) if exact else type_of(envelope.subject)
        if kind is MessageType.UNKNOWN and not faults.invalid.get("subject"):
            if envelope.subject:
                faults.invalid["subject"] = (
                    f"{_quote(envelope.subject)} must be a type, with an optional bead before it"
                )
            else:
                faults.missing["subject"] = "'Subject:'"
        if kind in ACK_REQUIRED and envelope.ack_required is False:
            faults.invalid["ack_required"] = "messages of this type have to be acknowledged"
        parsed: TypedMessage
        # neither "[URGENT] lunch" nor "Bead:" in prose names a bead
        if exact and kind is MessageType.UNKNOWN:
            bead_id = bead_replied_to(envelope.subject)
            parsed = Unknown(bead_id=bead_id if BEAD.accepts(bead_id) else "")
        else:
            parsed = _read(kind, envelope, faults)
        if self.strict and faults:
            raise MalformedMessage(kind, faults.missing, faults.invalid)
        return read_envelope(envelope, parsed)


def _quote(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _open(raw: Raw, faults: _Faults) -> Envelope:
    if isinstance(raw, Envelope):
        return raw
    if isinstance(raw, Mapping):
        return _from_fields(raw, faults)
    if isinstance(raw, str | bytes):
        return _from_fields(_fields_of(_decode(raw, faults) if isinstance(raw, bytes) else raw), faults)
    raise BadRequest(f"a message is an Envelope, a mapping, or text, not {type(raw).__name__}")


def _decode(raw: bytes, faults: _Faults) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        faults.invalid["body"] = "not UTF-8"
        return raw.decode(errors="replace")


def _fields_of(text: str) -> Mapping[str, Any]:
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            pass  # a body that begins with a brace
        else:
            return found if isinstance(found, dict) else {}
    headers, body = _split_headers(text.lstrip())
    if "subject" not in headers:
        return {"body": text}
    first, _, after = body.lstrip().partition("\n")
    return {**headers, "body": after if first.strip().lower() == "body:" else body}


def _split_headers(text: str) -> tuple[dict[str, str], str]:
    """Return the header lines up to the subject, by name, and the text after them."""
    headers: dict[str, str] = {}
    rest = text
    while "subject" not in headers:
        line, _, rest = rest.partition("\n")
        label, colon, value = line.partition(":")
        if not colon or label.strip().lower() not in _HEADERS:
            break
        headers[label.strip().lower()] = value.strip()
    return headers, rest


def _from_fields(fields: Mapping[str, Any], faults: _Faults) -> Envelope:
    known = {own: fields[name] for name, own in _OTHER_NAMES.items() if fields.get(name) is not None}
    known |= {name: fields[name] for name in Envelope.model_fields if fields.get(name) is not None}
    if type(number := known.get("id")) is int and abs(number) < 10**18:
        known["id"] = str(number)
    try:
        return Envelope.model_validate(known)
    except ValidationError as error:
        wrong = {str(fault["loc"][0]): fault["msg"] for fault in error.errors(include_url=False)}
    faults.invalid |= wrong
    whole = {name: value for name, value in known.items() if name not in wrong}
    mended = {name: _mend(known[name]) for name in _TEXTS.intersection(wrong) if isinstance(known[name], str)}
    return Envelope.model_validate(whole | mended)


def _mend(text: str) -> str:
    """Return the text in a form that UTF-8 can encode: lone surrogates become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read(kind: MessageType, envelope: Envelope, faults: _Faults) -> TypedMessage:
    shape = CLASSES[kind]
    body = Body(envelope.body, kind)
    layouts = layout(shape)
    texts = {name: _text_at(place, body) for name, place in layouts.items()}
    named = [unquoted(body.value(label)) for label in shape.bead_labels] + [bead_of(envelope.subject)]
    beads = [bead for bead in dict.fromkeys(named) if bead]
    bead_id = next(filter(BEAD.accepts, beads), "")
    values: dict[str, Any] = {name: place.notation.read(texts[name]) for name, place in layouts.items()}
    message = shape.model_validate({"bead_id": bead_id, **values})
    if (invalid := next(itertools.filterfalse(BEAD.accepts, beads), None)) is not None:
        faults.invalid["bead_id"] = f"{_quote(invalid)} must be {BEAD.expected}"
    elif len(beads) > 1:
        faults.invalid["bead_id"] = f"the message names several beads: {', '.join(map(_quote, beads))}"
    elif shape.names_bead and not bead_id:
        faults.missing["bead_id"] = f"'{shape.bead_labels[0]}:'"
    for name, place in layouts.items():
        if texts[name] and not place.notation.accepts(texts[name]):
            faults.invalid[name] = (
                f"{place.place} is {_quote(texts[name])}, must be {place.notation.expected}"
            )
        elif not texts[name] and place.needed(message):
            faults.missing[name] = place.place
    return message


def _text_at(place: Place, body: Body) -> str:
    match place:
        case Line(label=label, notation=notation) if notation is FILES:
            return body.value_or_list(label)
        case Line(label=label, under=header, bound=bound):
            return unquoted(body.value(label, header if bound else ""))
        case Section(header=header):
            return body.section(header)
        case _:
            return body.free_text(body.text)
