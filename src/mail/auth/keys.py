"""API keys: reading them from requests, and the callers that they authenticate."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from hashlib import sha256
from typing import Protocol

from mail.core.protocol.address import Principal, Role
from mail.core.protocol.interswarm import BEARER_HEADER
from mail.core.protocol.values import value
from mail.core.task.documents import CallerRole
from mail.errors import BadRequest, Unauthenticated

_ID = re.compile(r"[^:@\x00-\x1f\x7f]{1,256}")
_ADDRESS = re.compile(r"[^/]+/[^/]+/[^/]+")
"""The form of ids that callers have by MAIL 2.0 only (`mail.mail2.agents.caller_of`)."""

_BEARER = re.compile(r"bearer +([\x21-\x7e]+) *", re.IGNORECASE)

SEALING_KEYS = ("MAIL_SEALING_KEY", "MAIL_SEALING_PUBLIC_KEY")
"""Name the keys of `mail.auth.caller_tokens`."""

_PRINCIPAL_ROLE: dict[CallerRole, Role] = {"admin": "admin", "user": "user", "agent": "swarm"}


@value
class Caller:
    """The authenticated caller: a user, an admin, or another swarm (`agent`).

    Raises BadRequest for an id that would be ambiguous in `role:id@swarm`.

    Attributes:
        is_local: whether the key is from `mail.auth.local_keys`: the operator's, who could change the database as well.
        is_session: whether a browser got the key for a sign-in link.
        is_address: whether the id is that of a MAIL 2.0 address, which only MAIL 2.0 may give.
    """

    role: CallerRole
    id: str
    is_local: bool = field(default=False, compare=False)
    is_session: bool = field(default=False, compare=False)
    is_address: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if _ID.fullmatch(self.id) is None:
            raise BadRequest(
                f"the id {self.id[:256]!r} can't be used: it must have 1 to 256 characters, "
                "none of them ':', '@' or a control character"
            )
        if not self.is_address and _ADDRESS.fullmatch(self.id) is not None:
            raise BadRequest(
                f"the id {self.id!r} can't be used: with two '/', it would be that of a MAIL 2.0 address"
            )

    def principal(self, swarm: str) -> Principal:
        """Return the caller as an owner of tasks on a swarm."""
        return Principal(role=_PRINCIPAL_ROLE[self.role], id=self.id, swarm=swarm)


class Authenticator(Protocol):
    """Authenticates API keys."""

    async def authenticate(self, bearer: str) -> Caller:
        """Return the caller with this key.

        Raises Unauthenticated for an invalid key, AuthServiceUnavailable if it can't be checked now.
        """


def read_bearer(authorization: str | None) -> str:
    """Return the key in an `Authorization` header. Raises Unauthenticated if there is none."""
    found = _BEARER.fullmatch(authorization or "")
    if found is None:
        raise Unauthenticated
    return found[1]


def find_bearer(headers: Mapping[str, str]) -> str:
    """Return the key in the headers of a request, a case-insensitive mapping.

    Reads `Authorization` or, if that isn't a bearer, `BEARER_HEADER`. Raises Unauthenticated if there is no key.
    """
    found = _BEARER.fullmatch(headers.get("Authorization") or "")
    return read_bearer(headers.get(BEARER_HEADER)) if found is None else found[1]


def digest(bearer: str) -> str:
    """Return the SHA-256 of a key in hex, which is stored instead of the key."""
    return sha256(bearer.encode("utf-8", "surrogatepass")).hexdigest()


class CachedAuthenticator:
    """Caches the callers of valid keys for some seconds; refusals and failures are not cached.

    Caches at most `size` callers, by the digests of their keys. `clock` counts seconds.
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
        key, known = digest(bearer), self._known
        found = known.get(key)
        if found is not None and self._clock() < found[0]:
            return found[1]
        known.pop(key, None)
        caller = await self._inner.authenticate(bearer)
        known[key] = (self._clock() + self._seconds, caller)
        while len(known) > self._size:
            known.popitem(last=False)
        return caller

    def forget(self) -> None:
        """Check every key again at its next request, as one was revoked; checks under way are not remembered."""
        self._known = OrderedDict()
