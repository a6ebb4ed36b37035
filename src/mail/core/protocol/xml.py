"""Messages as XML for language models, with every value escaped.

Escaping prevents a body from closing its element and forging a sender. A parser reads back exactly what was written,
except that characters not allowed in XML 1.0 become U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mail.core.protocol.address import EVERYONE, MAILAddress
from mail.core.protocol.compose import read_message

if TYPE_CHECKING:
    from mail.core.protocol.message import MAILMessage

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
"""XML parsers read a bare carriage return as a line feed."""

_SPECIAL = re.compile("[&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_START = (
    "A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = f"[{_START}][{_START}.0-9\xb7\u0300-\u036f\u203f\u2040-]*"
"""A name in XML 1.0 (section 2.3), without the colon of namespaces."""


def _escape(text: str) -> str:
    if _SPECIAL.search(text) is None:
        return text
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], "\ufffd"), text)


def _address(address: MAILAddress, tag: str) -> str:
    kind = address.address_type
    return f'<{tag} type="{kind}">{_escape(address.address)}</{tag}>'


def _utc(timestamp: str) -> str:
    if timestamp.endswith("+00:00"):
        return timestamp
    return datetime.fromisoformat(timestamp).astimezone(UTC).isoformat()


def render_message(message: MAILMessage) -> str:
    """Return the `<incoming_message>` element of a message; its timestamp is in UTC."""
    payload = message.message
    recipients = "\n".join([_address(recipient, "address") for recipient in payload.recipients])
    return (
        "<incoming_message>\n"
        f"<timestamp>{_utc(message.timestamp)}</timestamp>\n"
        f"{_address(payload.sender, 'from')}\n"
        f"<to>\n{recipients}\n</to>\n"
        f"<subject>{_escape(payload.subject)}</subject>\n"
        f"<body>{_escape(payload.body)}</body>\n"
        "</incoming_message>"
    )


def render_by_audience(messages: Iterable[MAILMessage]) -> Iterator[str]:
    """Yield the elements of consecutive messages to everyone as `<public>`, and those of others as `<private>`."""
    for is_public, group in groupby(messages, key=_is_public):
        tag = "public" if is_public else "private"
        yield f"<{tag}>\n{'\n'.join(map(render_message, group))}\n</{tag}>"


def _is_public(message: MAILMessage) -> bool:
    return any(recipient.address == EVERYONE for recipient in message.message.recipients)


def build_mail_xml(message: MAILMessage | Mapping[str, Any], is_manual: bool = False) -> dict[str, str]:
    """Return the user turn that shows a message to a model: `{"role": "user", "content": <xml>}`.

    With `is_manual` it says whether the message is public, as in manual mode. Raises BadRequest for an invalid mapping.
    """
    read = read_message(message)
    xml = "\n".join(render_by_audience([read])) if is_manual else render_message(read)
    return {"role": "user", "content": xml}


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
