"""Addresses of messages, and the principals that own and share tasks."""

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
"""The address of all local agents; no agent may have this name."""


class MAILAddress(Value):
    """One end of a message.

    An agent's address is its name, followed by `@swarm` for a remote one; a system address is the name of
    a swarm; a user's or admin's is the caller's id.
    """

    address_type: AddressType
    address: AddressText

    @property
    def swarm(self) -> str | None:
        """The swarm after the `@` of an agent's address; None for a local one."""
        return parse_agent_address(self.address)[1]

    @property
    def is_person(self) -> bool:
        """Whether it is that of a user or an admin."""
        return self.address_type in ("user", "admin")


@lru_cache(maxsize=4096)
def create_agent_address(address: str) -> MAILAddress:
    """Return the address of an agent: `analyst`, `analyst@other-swarm`, or `all`."""
    return MAILAddress(address_type="agent", address=address)


@lru_cache(maxsize=4096)
def create_user_address(address: str) -> MAILAddress:
    """Return the address of a user with this caller id."""
    return MAILAddress(address_type="user", address=address)


@lru_cache(maxsize=64)
def create_admin_address(address: str) -> MAILAddress:
    """Return the address of an admin with this caller id."""
    return MAILAddress(address_type="admin", address=address)


@lru_cache(maxsize=64)
def create_system_address(address: str) -> MAILAddress:
    """Return the system address of a swarm."""
    return MAILAddress(address_type="system", address=address)


def parse_agent_address(address: str) -> tuple[str, str | None]:
    """Split `agent@swarm`; the swarm is None for a local agent."""
    agent, at, swarm = address.partition("@")
    return agent, (swarm if at else None)


def join_agent_address(agent: str, swarm: str | None = None) -> str:
    """Join what `parse_agent_address` splits."""
    return f"{agent}@{swarm}" if swarm else agent


def format_agent_address(agent_name: str, swarm_name: str | None = None) -> MAILAddress:
    """Return the address of an agent, with a swarm that of an agent of another swarm."""
    return create_agent_address(join_agent_address(agent_name, swarm_name))


def is_swarm_name(name: str) -> bool:
    """Return whether a swarm may have this name, which is part of addresses, principals and storage keys."""
    return 0 < len(name) <= 128 and {*":@#"}.isdisjoint(name) and name.isprintable()


Role = Literal["admin", "user", "swarm"]
PRINCIPAL = re.compile(r"(admin|user|swarm):([^:@]+)@([^:@]+)")

MAX_PRINCIPAL = 512
"""The maximal length of a principal from another swarm, in characters."""


class Principal(Value):
    """An owner of, or a contributor to, a task: written `role:id@swarm` (SPEC, section 2).

    A caller's principal is also its *instance*: every task belongs to exactly one.
    """

    role: Role
    id: str
    swarm: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `role:id@swarm`. Raises BadRequest for anything else."""
        found = PRINCIPAL.fullmatch(text)
        if found is None:
            raise BadRequest(
                f"{text!r} is not a caller: write role:id@swarm, such as user:alice@my-swarm; the role is admin, "
                "user or swarm"
            )
        role, principal_id, swarm = found.groups()
        return cls.model_validate({"role": role, "id": principal_id, "swarm": swarm})

    def __str__(self) -> str:
        return f"{self.role}:{self.id}@{self.swarm}"

    @property
    def address(self) -> MAILAddress:
        """The sender address of this principal's messages."""
        if self.role == "swarm":
            return create_system_address(self.id)
        return create_admin_address(self.id) if self.role == "admin" else create_user_address(self.id)
