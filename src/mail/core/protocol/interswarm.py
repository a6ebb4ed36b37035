"""The wrapper of messages between swarms over HTTP (SPEC, section 7)."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from mail.core.protocol.address import PRINCIPAL, Principal
from mail.core.protocol.message import (
    OPTIONAL,
    MessageId,
    MessageType,
    ShapedPayload,
    Text,
    Timestamp,
    bind_shape,
)
from mail.core.protocol.values import Value

BEARER_HEADER = "X-MAIL-Authorization"
"""Carries the key if `Authorization` holds something else, such as the signature for a Lambda function URL."""

PrincipalText = Annotated[
    str,
    AfterValidator(lambda text: str(Principal.parse(text))),
    Field(json_schema_extra={"pattern": f"^{PRINCIPAL.pattern}$"}),
]
"""A principal as written on the wire."""


class MAILInterswarmMessage(Value):
    """A payload on its way from one swarm to another.

    `task_owner` stays the same at every hop; each swarm adds itself to `task_contributors`. Over HTTP
    all ten fields are required, `auth_token` as a string and `metadata` as an object.
    """

    model_config = ConfigDict(json_schema_extra=bind_shape("payload"))

    message_id: MessageId
    source_swarm: str = Field(min_length=1)
    target_swarm: str = Field(min_length=1)
    timestamp: Timestamp
    task_owner: PrincipalText
    task_contributors: tuple[PrincipalText, ...] = Field(min_length=1)
    msg_type: MessageType
    payload: ShapedPayload
    auth_token: Text | None = OPTIONAL
    metadata: dict[str, Any] | None = OPTIONAL

    @model_validator(mode="after")
    def _owner_contributes(self) -> Self:
        if self.task_owner not in self.task_contributors:
            raise ValueError("task_owner must be among task_contributors")
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the message as JSON for other programs (SPEC, MSG-7), with all ten fields."""
        return {
            **self.model_dump(mode="json", exclude={"payload"}),
            "payload": self.payload.as_json(),
            "auth_token": self.auth_token or "",
            "metadata": self.metadata or {},
        }
