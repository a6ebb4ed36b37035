"""What travels over HTTP about the swarms that a server knows."""

from typing import Any, Literal

from pydantic import Field

from mail.http.schemas import Answered, Given


class PostSwarms(Given):
    """Another swarm that agents may write to."""

    name: str = Field(description="Its name, as it says itself at its `/`.")
    base_url: str = Field(description="Its server: `https://host`, a port and a path may follow.")
    auth_token: str | None = Field(
        default=None,
        description="The token with which to call it, or a reference to a variable such as "
        "`${SWARM_AUTH_TOKEN_BETA}`. The default is the variable of its name.",
    )
    metadata: dict[str, Any] | None = Field(
        default=None, description="Anything. It is shown to everybody if the swarm is public."
    )
    volatile: bool | None = Field(
        default=None,
        description="Whether to forget it after a day and when the server is stopped. Only then a token is kept, else "
        "a reference to a variable. By default that is so if `auth_token` is a token.",
    )
    auth: Literal["bearer", "aws_iam"] | None = Field(
        default=None,
        description="`aws_iam` for a Lambda function URL whose callers sign with AWS Signature 4; the default is "
        "`bearer`.",
    )
    caller_id: str | None = Field(
        default=None,
        description="The id of the token with which it calls this server; the default is its name.",
    )


class SwarmEndpoint(Answered):
    """A swarm, and how it was when somebody looked last."""

    swarm_name: str
    base_url: str
    version: str
    last_seen: str | None = Field(description="When it answered last.")
    is_active: bool
    latency: float | None = Field(description="The seconds that its answer took.")
    swarm_description: str
    keywords: list[str]
    metadata: dict[str, Any]


class Swarms(Answered):
    """The public swarms."""

    swarms: list[SwarmEndpoint]


class SwarmRegistered(Answered):
    """Agents may write to the swarm from now on."""

    status: Literal["registered"]
    swarm_name: str
    notes: list[str] = Field(
        description="What its operator should know or do, such as which variable to set."
    )


class SwarmUnregistered(Answered):
    """The swarm is forgotten."""

    status: Literal["unregistered"]
    swarm_name: str
