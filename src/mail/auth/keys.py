"""Who is calling: what a bearer key proves, whoever checks it."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from mail.core.protocol.address import Principal, Role
from mail.core.task.documents import CallerRole
from mail.errors import BadRequest, Unauthenticated

_ID = re.compile(r"[^:@\x00-\x1f\x7f]{1,256}")
_BEARER = re.compile(r"bearer +([\x21-\x7e]+) *", re.IGNORECASE)

_PRINCIPAL_ROLE: dict[CallerRole, Role] = {"admin": "admin", "user": "user", "agent": "swarm"}


@dataclass(frozen=True, slots=True)
class Caller:
    """The bearer of a key: a person (`admin`, `user`) or another swarm (`agent`).

    Raises BadRequest for an id that could not be told apart inside `role:id@swarm`.
    """

    role: CallerRole
    id: str

    def __post_init__(self) -> None:
        if _ID.fullmatch(self.id) is None:
            raise BadRequest(
                f"the id {self.id[:256]!r} can't be used: it must have 1 to 256 characters, "
                "none of them ':', '@' or a control character"
            )

    def principal(self, swarm: str) -> Principal:
        """The caller as an owner of tasks on a swarm: its instance."""
        return Principal(role=_PRINCIPAL_ROLE[self.role], id=self.id, swarm=swarm)


BEARER_HEADER = "X-MAIL-Authorization"
"""Where the key is when `Authorization` holds something else, such as the signature that a function URL wants."""


class Authenticator(Protocol):
    """Knows whose key a key is."""

    async def authenticate(self, bearer: str) -> Caller:
        """The bearer of this key.

        Raises Unauthenticated for a key that is not valid, AuthServiceUnavailable when nobody can tell.
        """
        ...


def read_bearer(authorization: str | None) -> str:
    """The key inside an `Authorization` header. Raises Unauthenticated where there is none."""
    found = _BEARER.fullmatch(authorization or "")
    if found is None:
        raise Unauthenticated
    return found[1]


def find_bearer(headers: Mapping[str, str]) -> str:
    """The key in a request's headers, which are found whatever the case of their names.

    It is in `Authorization` or, where that is no bearer, in `BEARER_HEADER`. Raises Unauthenticated where there is none.
    """
    authorization = headers.get("Authorization")
    if BEARER_HEADER in headers and _BEARER.fullmatch(authorization or "") is None:
        authorization = headers[BEARER_HEADER]
    return read_bearer(authorization)


def digest(bearer: str) -> str:
    """What is kept of a key: its SHA-256, in hex."""
    return sha256(bearer.encode("utf-8", "surrogatepass")).hexdigest()


class CachedAuthenticator:
    """Remembers, for some seconds, whose key a key was; refusals and failures are never remembered.

    Holds at most `size` callers, by the digests of their keys. `clock` counts seconds.
    """

    def __init__(
        self,
        inner: Authenticator,
        *,
        seconds: float = 60.0,
        size: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._seconds = seconds
        self._size = size
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    async def authenticate(self, bearer: str) -> Caller:
        key = digest(bearer)
        known = self._known.get(key)
        if known is not None and self._clock() < known[0]:
            return known[1]
        self._known.pop(key, None)
        caller = await self._inner.authenticate(bearer)
        self._known[key] = (self._clock() + self._seconds, caller)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return caller
