"""The addresses of MAIL 2.0.

    admin:ID@HOST   daemon:ID@HOST   user:ID@HOST       of a host
    NAME@SWARM@HOST                  list:NAME@SWARM@HOST  of a swarm of a host

Without `@HOST`, an address is *local*: the key under which a host stores what has it.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, StringConstraints

from mail.core.protocol.values import value

AccountKind = Literal["admin", "agent", "daemon", "user"]
Kind = Literal["admin", "agent", "daemon", "list", "user"]

PEOPLE: tuple[AccountKind, ...] = ("user", "admin")
"""The kinds of people, who get refresh tokens, and who may have API keys of this server as well."""

SLUG = r"[a-z0-9]+(?:-[a-z0-9]+)*"
"""An id or a name: of at most `SLUG_LENGTH` characters."""

SLUG_LENGTH = 32

_SLUG = re.compile(SLUG)
_LABEL = re.compile(r"[^\W_](?:[\w-]*[^\W_])?")
_OF_HOST: dict[str, AccountKind] = {"admin": "admin", "daemon": "daemon", "user": "user"}


def is_slug(text: str) -> bool:
    """Return whether a text may be an id or a name."""
    return len(text) <= SLUG_LENGTH and _SLUG.fullmatch(text) is not None


def is_host(text: str) -> bool:
    """Return whether a text is the name of a host, of several labels or one, or its IP address, perhaps with a port."""
    try:
        return bool(IPv6Address(text))
    except AddressValueError:
        pass
    name, _, port = text.partition(":")
    try:
        is_name = bool(IPv4Address(name))
    except AddressValueError:
        is_name = len(name) <= 253 and all(map(_LABEL.fullmatch, name.split(".")))
    return is_name and (port.isdecimal() if ":" in text else True)


@value
class Address:
    """An address.

    Attributes:
        name: the name of an agent or a list; the id of others.
        swarm: of an agent or a list; empty for others.
        host: empty for a local address.
    """

    kind: Kind
    name: str
    swarm: str
    host: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address that a text is. Raises ValueError, which says what is wrong."""
        local, _, host = text.rpartition("@")
        if not is_host(host):
            raise ValueError(f"the part behind the last @ of {text[:200]!r} must be a host")
        return cls.parse_local(local, host)

    @classmethod
    def parse_local(cls, text: str, host: str = "") -> Self:
        """Return the address that a text is without its host. Raises ValueError, which says what is wrong."""
        prefix, colon, rest = text.rpartition(":")
        name, at, swarm = rest.partition("@")
        kind: Kind = "agent"
        if prefix in _OF_HOST and not at:
            kind = _OF_HOST[prefix]
        elif prefix == "list" and at:
            kind = "list"
        elif colon or not at:
            raise ValueError(
                f"{text[:200]!r} must be user:ID, admin:ID, daemon:ID, NAME@SWARM or list:NAME@SWARM, then @HOST"
            )
        if not is_slug(name) or (at and not is_slug(swarm)):
            raise ValueError(
                f"ids, names and swarms have 1 to {SLUG_LENGTH} lower-case letters and digits, with single hyphens in "
                f"between; {text[:200]!r} has others"
            )
        return cls(kind, name, swarm, host)

    @property
    def key(self) -> str:
        """The local address."""
        if self.kind in _OF_HOST:
            return f"{self.kind}:{self.name}"
        return f"{'list:' if self.kind == 'list' else ''}{self.name}@{self.swarm}"

    def __str__(self) -> str:
        return f"{self.key}@{self.host}"


def _checked(text: str) -> str:
    Address.parse(text)
    return text


AddressText = Annotated[str, AfterValidator(_checked)]
"""A field that is an address."""

Slug = Annotated[str, StringConstraints(pattern=rf"\A{SLUG}\z", max_length=SLUG_LENGTH)]
"""A field that is an id or a name."""
