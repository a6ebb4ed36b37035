"""Writing messages: `build` turns a typed message into an envelope that a strict parser reads back as an equal message.

`build` verifies this by parsing its output. A value that can't be written without loss, such as a title of two lines,
is refused; free text may contain anything.
"""

from typing import Any

from mail.agentmail.body import Grammar, grammar_of
from mail.agentmail.envelope import Envelope, write_subject
from mail.agentmail.messages import ACK_REQUIRED, MessageType, TypedMessage, layout
from mail.agentmail.notation import BEAD, FILES, TIMESTAMP, Line, Section, Whole, quoted, write_list
from mail.agentmail.parser import MalformedMessage, Parser


def build(
    message: TypedMessage,
    *,
    id: str = "",  # noqa: A002
    sender: str = "",
    recipient: str = "",
    timestamp: str = "",
    thread_id: str = "",
    reply_to: str = "",
) -> Envelope:
    """Return the envelope of a typed message; the default thread is that of its bead.

    Raises MalformedMessage, which names every field that is missing or can't be written.
    """
    _refuse_unwritable(message, timestamp)
    envelope = Envelope(
        id=id,
        thread_id=thread_id or message.bead_id,
        sender=sender,
        recipient=recipient,
        subject=write_subject(message.type, message.bead_id),
        body=write_body(message),
        timestamp=timestamp,
        reply_to=reply_to,
        ack_required=message.type in ACK_REQUIRED,
    )
    read = Parser(strict=True).parse(envelope).parsed
    if read != message:
        lost = {name for name in type(message).model_fields if getattr(read, name) != getattr(message, name)}
        raise MalformedMessage(message.type, {}, dict.fromkeys(sorted(lost), "can't be written without loss"))
    return envelope


def _refuse_unwritable(message: TypedMessage, timestamp: str) -> None:
    invalid = {
        name: f"must be {place.notation.expected}"
        for name, place in layout(type(message)).items()
        if not place.notation.fits(getattr(message, name))
    }
    if message.bead_id and not BEAD.fits(message.bead_id):
        invalid["bead_id"] = f"must be {BEAD.expected}"
    if not TIMESTAMP.fits(timestamp):
        invalid["timestamp"] = f"must be {TIMESTAMP.expected}"
    if message.type is MessageType.UNKNOWN:
        invalid["type"] = "a message of no type can't be built"
    if invalid:
        raise MalformedMessage(message.type, {}, invalid)


def write_body(message: TypedMessage) -> str:
    """Return the body of a typed message; empty fields are left out."""
    grammar = grammar_of(message.type)
    sections: dict[str, list[str]] = {"": []}
    if message.names_bead and message.bead_id:
        sections[""].append(f"{message.bead_labels[0]}: {quoted(message.bead_id)}")
    for name, place in layout(type(message)).items():
        value = getattr(message, name)
        match place:
            case Whole():
                sections[""].append(grammar.escape(value))
            case Section(header=header) if value:
                text = write_list(value) if place.notation is FILES else place.notation.write(value)
                sections.setdefault(header, []).append(grammar.escape(text))
            case Line(under=header) if text := _write_line(place, value, grammar):
                sections.setdefault(header, []).append(text)
    texts = [f"## {header}\n" + "\n".join(lines) for header, lines in sections.items() if header]
    return "\n\n".join(["\n".join(sections[""]), *texts] if sections[""] else texts)


def _write_line(place: Line, value: Any, grammar: Grammar) -> str:
    text = place.notation.write(value)
    if not text:
        return ""
    if place.notation is not FILES:
        text = quoted(text)
    bullet = "- " if place.bullet else ""
    if text.startswith("\n"):  # a list in the lines below
        items = "\n".join(grammar.escape(("  " if bullet else "") + line) for line in text[1:].split("\n"))
        return f"{bullet}{place.label}:\n{items}"
    return f"{bullet}{place.label}: {text}"
