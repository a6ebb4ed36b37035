"""Messages as language models read them: elements around texts that stand there as they were written.

Only what would open or close an element of the envelope is escaped in a text: `<` before the name of such an element
becomes `&lt;`, and an `&lt;` that stands there already becomes `&amp;lt;`, so that `read_mail_xml` returns every text
exactly. Addresses are escaped as XML is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mail.core.protocol.address import (
    EVERYONE,
    MAILAddress,
    create_agent_address,
    create_user_address,
    join_agent_address,
)
from mail.core.protocol.compose import read_message
from mail.core.protocol.values import value

if TYPE_CHECKING:
    from mail.core.protocol.message import MAILMessage

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
"""XML parsers read a bare carriage return as a line feed."""

_CHARACTERS = {entity: character for character, entity in _ENTITIES.items()}

_SPECIAL = re.compile("[&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ENTITY = re.compile("|".join(_CHARACTERS))

_START = (
    "A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = f"[{_START}][{_START}.0-9\xb7\u0300-\u036f\u203f\u2040-]*"
"""A name in XML 1.0 (section 2.3), without the colon of namespaces."""


class Markup:
    """The elements around texts for models. No text can open or close one of them, in upper or lower case."""

    def __init__(self, *elements: str) -> None:
        self.elements = elements
        self._tag = re.compile(
            rf"(?P<bracket><|&(?:amp;)*lt;)(?=(?P<name>/?(?:{'|'.join(elements)}))(?:[\s/>]|\Z))",
            re.IGNORECASE,
        )

    def escape(self, text: str) -> str:
        """Return a text as it stands between the elements."""
        if "<" not in text and "&" not in text:
            return text
        return self._tag.sub(_deeper, text)

    def unescape(self, text: str) -> str:
        """Return the text that `escape` has written."""
        return text if "&" not in text else self._tag.sub(_shallower, text)

    def unquote(self, text: str, shown: Iterable[str]) -> str:
        """Return what an agent has written as it was before `escape`, if it has quoted from what it was `shown`.

        Models quote a text as they read it. A function that takes turns apart writes tags that it was not shown like
        that.
        """
        if "&" not in text:
            return text
        tags = {tag["bracket"] + tag["name"] for tag in self._tag.finditer(text)}
        if not tags or any(tag[0] == "<" for tag in tags):
            return text
        turns = list(shown)
        is_quoted = all(any(tag in turn for turn in turns) for tag in tags)
        return self._tag.sub(_shallower, text) if is_quoted else text


def _deeper(tag: re.Match[str]) -> str:
    bracket = tag["bracket"]
    return "&lt;" if bracket == "<" else f"&amp;{bracket[1:]}"


def _shallower(tag: re.Match[str]) -> str:
    bracket = tag["bracket"]
    return "<" if len(bracket) <= len("&lt;") else f"&{bracket[len('&amp;') :]}"


MAIL = Markup("incoming_message", "timestamp", "from", "to", "address", "subject", "body")
"""The elements of an envelope."""

STEP = Markup(*MAIL.elements, "public", "private", "manual_step", "instructions", "how_to_answer")
"""The elements of what an agent reads in a step of manual mode."""

ENVELOPE = re.compile(
    "<incoming_message>\n"
    "<timestamp>(?P<timestamp>[^<]*)</timestamp>\n"
    '<from type="(?P<type>[a-z]+)">(?P<sender>[^<]*)</from>\n'
    "<to>\n(?P<to>.*?)\n</to>\n"
    "<subject>(?P<subject>.*?)</subject>\n"
    "<body>(?P<body>[^<]*(?=</body>)|.*?)</body>\n"
    "</incoming_message>",
    re.DOTALL,
)
"""Finds the envelopes of messages in what a model reads; `read_envelope` reads one. A body without `<` is found
fast.
"""

_RECIPIENT = re.compile('<address type="([a-z]+)">([^<]*)</address>')


@value
class IncomingMail:
    """A message as its reader sees it. `timestamp` is in ISO 8601, UTC."""

    timestamp: str
    sender: MAILAddress
    recipients: tuple[MAILAddress, ...]
    subject: str
    body: str


def _escape(text: str) -> str:
    if _SPECIAL.search(text) is None:
        return text
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], "\ufffd"), text)


@lru_cache(maxsize=4096)
def _address(kind: str, address: str, tag: str) -> str:
    return f'<{tag} type="{kind}">{_escape(address)}</{tag}>'


def _utc(timestamp: str) -> str:
    if timestamp.endswith("+00:00"):
        return timestamp
    return datetime.fromisoformat(timestamp).astimezone(UTC).isoformat()


def render_message(message: MAILMessage, markup: Markup = MAIL) -> str:
    """Return the `<incoming_message>` element of a message; its timestamp is in UTC."""
    payload = message.message
    swarm = payload.sender_swarm
    sender = payload.sender if swarm is None else _shown(payload.sender, swarm)
    recipients = "\n".join(
        [_address(each.address_type, each.address, "address") for each in payload.recipients]
    )
    return (
        "<incoming_message>\n"
        f"<timestamp>{_utc(message.timestamp)}</timestamp>\n"
        f"{_address(sender.address_type, sender.address, 'from')}\n"
        f"<to>\n{recipients}\n</to>\n"
        f"<subject>{markup.escape(payload.subject)}</subject>\n"
        f"<body>{markup.escape(payload.body)}</body>\n"
        "</incoming_message>"
    )


def _shown(sender: MAILAddress, swarm: str) -> MAILAddress:
    """Return a sender as its reader sees it: the system and admins of another swarm are not those of this one."""
    if sender.address_type == "system":
        return create_agent_address(join_agent_address("system", swarm))
    if sender.address_type == "admin":
        return create_user_address(sender.address)
    return sender


def render_by_audience(messages: Iterable[MAILMessage]) -> Iterator[str]:
    """Yield the elements of consecutive messages to everyone as `<public>`, and those of others as `<private>`."""
    for is_public, group in groupby(messages, key=_is_public):
        tag = "public" if is_public else "private"
        yield f"<{tag}>\n{'\n'.join(render_message(message, STEP) for message in group)}\n</{tag}>"


def _is_public(message: MAILMessage) -> bool:
    return any(recipient.address == EVERYONE for recipient in message.message.recipients)


def build_mail_xml(message: MAILMessage | Mapping[str, Any], is_manual: bool = False) -> dict[str, str]:
    """Return the user turn that shows a message to a model: `{"role": "user", "content": <xml>}`.

    With `is_manual` it says whether the message is public, as in manual mode. Raises BadRequest for an invalid mapping.
    """
    read = read_message(message)
    xml = "\n".join(render_by_audience([read])) if is_manual else render_message(read)
    return {"role": "user", "content": xml}


def read_mail_xml(turn: Mapping[str, Any] | str) -> IncomingMail:
    """Return the message in a user turn, or in its content, exactly as it was written.

    Raises ValueError if that is no message written by `build_mail_xml`, such as the turn of a step in manual mode.
    """
    content = turn if isinstance(turn, str) else turn.get("content")
    found = ENVELOPE.fullmatch(content) if isinstance(content, str) else None
    if found is None:
        raise ValueError("this turn is not a message that build_mail_xml has written")
    return read_envelope(found)


def read_envelope(found: re.Match[str], markup: Markup = MAIL) -> IncomingMail:
    """Return the message in an envelope that `ENVELOPE` has found. Raises ValueError for impossible addresses."""
    return IncomingMail(
        timestamp=found["timestamp"],
        sender=_read_address(found["type"], found["sender"]),
        recipients=tuple(_read_address(*each) for each in _RECIPIENT.findall(found["to"])),
        subject=markup.unescape(found["subject"]),
        body=markup.unescape(found["body"]),
    )


def _read_address(kind: str, text: str) -> MAILAddress:
    address = _ENTITY.sub(lambda entity: _CHARACTERS[entity[0]], text)
    return MAILAddress.model_validate({"address_type": kind, "address": address})


def build_body_xml(content: Mapping[str, Any]) -> str:
    """Render a mapping as the `<body>` of a message; see `render_elements`."""
    return f"<body>\n{render_elements(content)}\n</body>"


def render_elements(content: Mapping[str, Any]) -> str:
    """Render a mapping as XML elements: nested mappings nest, lists repeat their tag.

    Raises ValueError for a key that is not an XML name.
    """
    return "\n".join(_element(tag, value) for tag, value in content.items())


def _element(tag: str, value: Any) -> str:
    if re.fullmatch(_NAME, tag) is None:
        raise ValueError(f"{tag!r} can't be the name of an XML element")
    match value:
        case dict():
            return f"<{tag}>\n{render_elements(value)}\n</{tag}>"
        case list() | tuple():
            return "\n".join(_element(tag, item) for item in value)
        case _:
            return f"<{tag}>{_escape('' if value is None else str(value))}</{tag}>"
