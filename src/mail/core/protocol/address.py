"""Who sends and who receives: message addresses, and the principals that own and share tasks."""

import re
from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import StringConstraints

from mail.core.protocol.values import Value
from mail.errors import BadRequest

AddressType = Literal["admin", "agent", "user", "system"]
MAX_ADDRESS = 512
AddressText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ADDRESS)]

EVERYONE = "all"
"""The address of every local agent; hence no agent may be called so."""


class MAILAddress(Value):
    """One end of a message.

    An agent's address is its name, with `@swarm` behind it when it lives elsewhere; a system address
    is the name of a swarm; a user's or admin's is the caller's id.
    """

    address_type: AddressType
    address: AddressText

    @property
    def swarm(self) -> str | None:
        """The swarm after the `@` of an agent's address; None for a local one."""
        return parse_agent_address(self.address)[1]


@lru_cache(maxsize=4096)
def create_agent_address(address: str) -> MAILAddress:
    """The address of an agent: `weather`, `weather@other-swarm`, or `all`."""
    return MAILAddress(address_type="agent", address=address)


def create_user_address(address: str) -> MAILAddress:
    """The address of a user, by the caller's id."""
    return MAILAddress(address_type="user", address=address)


def create_admin_address(address: str) -> MAILAddress:
    """The address of an admin, by the caller's id."""
    return MAILAddress(address_type="admin", address=address)


@lru_cache(maxsize=64)
def create_system_address(address: str) -> MAILAddress:
    """The address of a runtime, by its swarm's name."""
    return MAILAddress(address_type="system", address=address)


def parse_agent_address(address: str) -> tuple[str, str | None]:
    """Split `agent@swarm` into its parts; the swarm is None for a local agent."""
    agent, at, swarm = address.partition("@")
    return agent, (swarm if at else None)


def format_agent_address(agent: str, swarm: str | None = None) -> str:
    """The inverse of `parse_agent_address`."""
    return f"{agent}@{swarm}" if swarm else agent


def is_swarm_name(name: str) -> bool:
    """Whether a swarm may have this name: it stands in addresses, in principals and in storage keys."""
    return 0 < len(name) <= 128 and {*":@#"}.isdisjoint(name) and name.isprintable()


Role = Literal["admin", "user", "swarm"]
PRINCIPAL = re.compile(r"(admin|user|swarm):([^:@]+)@([^:@]+)")

MAX_PRINCIPAL = 512
"""Characters of a principal that another swarm may name."""


class Principal(Value):
    """An owner of, or a contributor to, a task: written `role:id@swarm` (SPEC, section 2).

    A caller's principal is also its *instance*: every task is kept under exactly one.
    """

    role: Role
    id: str
    swarm: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `role:id@swarm`. Raises BadRequest where it is anything else."""
        found = PRINCIPAL.fullmatch(text)
        if found is None:
            raise BadRequest(f"{text!r} is not of the form 'admin|user|swarm:<id>@<swarm>'")
        role, principal_id, swarm = found.groups()
        return cls.model_validate({"role": role, "id": principal_id, "swarm": swarm})

    def __str__(self) -> str:
        return f"{self.role}:{self.id}@{self.swarm}"

    @property
    def address(self) -> MAILAddress:
        """The address that this principal's own messages carry."""
        if self.role == "swarm":
            return create_system_address(self.id)
        return MAILAddress(address_type=self.role, address=self.id)
