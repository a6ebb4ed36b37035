"""What MAIL servers say of themselves, as far as agents are told: the bodies of `/`, `/health` and `/swarms`.

Servers may say more, which is left out, and some say less.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from mail.stdlib.outcomes import cut

MAX_SHOWN = 2000
"""Characters of a text of a foreign server that an agent is shown."""


def _shortened(value: Any) -> Any:
    return cut(value, MAX_SHOWN) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_shortened)]
Name = Annotated[str, StringConstraints(max_length=256)]
Keywords = Annotated[list[Name], Field(max_length=100)]


class SwarmOfServer(BaseModel):
    """The swarm that a server runs."""

    name: Name
    version: Name = ""
    description: Text = ""
    entrypoint: Name = ""
    keywords: Keywords = []
    public: bool = False


class Root(BaseModel):
    """GET /."""

    name: Literal["mail"]
    status: Name = ""
    protocol_version: Name
    swarm: SwarmOfServer
    uptime: float | None = None


class Health(BaseModel):
    """GET /health."""

    status: Text
    swarm_name: Name
    timestamp: Name = ""


class KnownSwarm(BaseModel):
    """A swarm that a server knows of."""

    swarm_name: Name
    base_url: Text
    version: Name | None = None
    last_seen: Name | None = None
    is_active: bool | None = None
    latency: float | None = None
    swarm_description: Text | None = None
    keywords: Keywords | None = None


class Swarms(BaseModel):
    """GET /swarms."""

    swarms: list[KnownSwarm]
