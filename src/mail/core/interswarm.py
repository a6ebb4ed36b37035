"""The wrapper in which messages travel between swarms over HTTP (SPEC, section 7)."""

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from mail.core.address import Principal
from mail.core.message import MessageId, MessageType, ShapedPayload, Timestamp
from mail.core.record import Record


class MAILInterswarmMessage(Record):
    """A payload on its way from one swarm to another.

    `task_owner` stays the same at every hop; each swarm adds itself to `task_contributors`. Over HTTP
    all ten fields are required, `auth_token` as a string and `metadata` as an object (WIRE, Interswarm).
    """

    message_id: MessageId
    source_swarm: str = Field(min_length=1)
    target_swarm: str = Field(min_length=1)
    timestamp: Timestamp
    task_owner: str
    task_contributors: tuple[str, ...] = Field(min_length=1)
    msg_type: MessageType
    payload: ShapedPayload
    auth_token: str | None = None
    metadata: dict[str, Any] | None = None

    @field_validator("task_owner")
    @classmethod
    def _owner_is_principal(cls, owner: str) -> str:
        return str(Principal.parse(owner))

    @field_validator("task_contributors")
    @classmethod
    def _contributors_are_principals(cls, contributors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(Principal.parse(contributor)) for contributor in contributors)

    @model_validator(mode="after")
    def _owner_contributes(self) -> Self:
        if self.task_owner not in self.task_contributors:
            raise ValueError("task_owner must be among task_contributors")
        return self
