"""A message between entities."""

from collections.abc import Mapping
from typing import Any, Self
from uuid import UUID

from pydantic import ConfigDict, ValidationError

from mail.exchange.elements import Element, unreadable


class Mail(Element):
    """A message from one entity to another, or to all others.

    Attributes:
        recipient: None for all others.
        content: anything; what it means is between those who send and those who read.
        channel: a name by which readers tell conversations apart, if there is one.
    """

    model_config = ConfigDict(validate_assignment=True)

    sender: UUID
    recipient: UUID | None = None
    content: Any = None
    channel: str | None = None

    @classmethod
    def of(
        cls,
        sender: UUID,
        recipient: UUID | None,
        content: Any,
        channel: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Self:
        """The mail that `send` of an exchange puts into an outbox. Raises BadRequest for ids that are none."""
        try:
            return cls(
                sender=sender,
                recipient=recipient,
                content=content,
                channel=channel,
                metadata=dict(metadata or {}),
            )
        except ValidationError as error:
            raise unreadable(cls, error) from error

    @property
    def is_broadcast(self) -> bool:
        """Whether it is for all but its sender."""
        return self.recipient is None

    @property
    def is_direct(self) -> bool:
        """Whether it is for one entity."""
        return self.recipient is not None

    def __repr__(self) -> str:
        recipient = "broadcast" if self.recipient is None else str(self.recipient)[:8]
        channel = "" if self.channel is None else f", channel={self.channel!r}"
        return f"Mail({str(self.sender)[:8]} -> {recipient}{channel})"

    __str__ = __repr__
