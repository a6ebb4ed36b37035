"""What a language model sees of a message: XML in which every value is escaped.

Escaping is what keeps a body from closing its own tag and forging a sender.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from mail.core.address import MAILAddress
    from mail.core.message import MAILMessage


def _address(address: MAILAddress, tag: str) -> str:
    kind = address.address_type
    return f'<{tag} type="{kind}">{escape(address.address)}</{tag}>'


def _utc(timestamp: str) -> str:
    return datetime.fromisoformat(timestamp).astimezone(UTC).isoformat()


def render_message(message: MAILMessage) -> str:
    """The `<incoming_message>` element of a message; its timestamp is in UTC."""
    payload = message.message
    recipients = "\n".join(_address(recipient, "address") for recipient in payload.recipients)
    return (
        "<incoming_message>\n"
        f"<timestamp>{_utc(message.timestamp)}</timestamp>\n"
        f"{_address(payload.sender, 'from')}\n"
        f"<to>\n{recipients}\n</to>\n"
        f"<subject>{escape(payload.subject)}</subject>\n"
        f"<body>{escape(payload.body)}</body>\n"
        "</incoming_message>"
    )


def build_mail_xml(message: MAILMessage) -> dict[str, str]:
    """The user turn that brings a message to a model: `{"role": "user", "content": <xml>}`."""
    return {"role": "user", "content": render_message(message)}


def build_body_xml(content: dict[str, Any]) -> str:
    """Render a mapping as XML elements, for a message body: nested mappings nest, lists repeat their tag.

    Raises ValueError for a key that is no XML name.
    """
    return "\n".join(_element(tag, value) for tag, value in content.items())


def _element(tag: str, value: Any) -> str:
    if not tag.replace("_", "a").replace("-", "a").replace(".", "a").isalnum() or not (
        tag[0].isalpha() or tag[0] == "_"
    ):
        raise ValueError(f"{quoteattr(tag)} can't be the name of an XML element")
    match value:
        case dict():
            return f"<{tag}>\n{build_body_xml(value)}\n</{tag}>"
        case list() | tuple():
            return "\n".join(_element(tag, item) for item in value)
        case _:
            return f"<{tag}>{escape('' if value is None else str(value))}</{tag}>"
