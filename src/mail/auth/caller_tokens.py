"""Callers' own tokens of the identity provider, sealed, for servers to which turns pass them on.

What takes requests seals them with a public key; only turns have the private key that opens them (HPKE, RFC 9180).
"""

import binascii
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from mail.auth.claims import read_claims
from mail.auth.keys import SEALING_KEYS, Caller, digest
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.errors import ConfigurationError, MAILError, Unauthenticated

PRIVATE, PUBLIC = SEALING_KEYS
"""32 bytes in base64 each: the private key, from which the public one follows, or that alone, which only seals."""

MOST_KEPT = 10_000
"""Callers whose last token a process remembers by its digest, so that it stores each token once."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class Seal:
    """Seals texts. Each belongs to a context, without which it can't be opened."""

    def __init__(self, public: X25519PublicKey, private: X25519PrivateKey | None = None) -> None:
        self._public = public
        self._private = private

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self | None:
        """Return the seal with the keys of the environment, if it has any. Raises ConfigurationError."""
        name = PRIVATE if environ.get(PRIVATE) else PUBLIC
        text = environ.get(name, "")
        if not text:
            return None
        try:
            key = b64decode(text, validate=True)
            if name == PUBLIC:
                return cls(X25519PublicKey.from_public_bytes(key))
            private = X25519PrivateKey.from_private_bytes(key)
        except (binascii.Error, ValueError):
            raise ConfigurationError(
                f"{name} must be 32 bytes in base64, as of: openssl rand -base64 32"
            ) from None
        return cls(private.public_key(), private)

    def close(self, text: str, context: str) -> str:
        """Return the text, sealed."""
        return b64encode(_SUITE.encrypt(text.encode(), self._public, info=context.encode())).decode()

    def open(self, sealed: str, context: str) -> str | None:
        """Return a text that was sealed; None with another key, or in another context."""
        if self._private is None:
            raise ConfigurationError(f"{PRIVATE} is not set: only {PUBLIC}, which opens nothing")
        try:
            return _SUITE.decrypt(b64decode(sealed), self._private, info=context.encode()).decode()
        except InvalidTag:
            return None


@value
class CallerTokens:
    """The token that each caller has shown last, until it expires.

    Attributes:
        _caller_of: returns whom the claims of a token name. Raises a MAILError if they name nobody.
    """

    _documents: ServerDocuments
    _clock: Clock
    _seal: Seal
    _swarm: str
    _caller_of: Callable[[Mapping[str, Any]], Caller]
    _kept: OrderedDict[str, str] = field(default_factory=OrderedDict)

    async def keep(self, caller: Caller, token: str, expires: float) -> None:
        """Store a token that its caller has just shown and that was verified."""
        owner, shown = self._owner(caller), digest(token)
        if self._kept.get(owner) == shown:
            return
        sealed = self._seal.close(token, owner)
        await self._documents.set_caller_token(owner, sealed, expires, now=self._now())
        self._kept[owner] = shown
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    async def token(self, owner: str) -> str:
        """Return the token of a caller, `role:id@swarm`. Raises Unauthenticated, with what the caller has to do.

        It must name the caller: those who can only seal could otherwise store their own in its place.
        """
        who = owner.rpartition("@")[0]
        found = await self._documents.caller_token(owner)
        if found is None:
            raise Unauthenticated(f"{who} has shown no token of the identity provider here: {_AGAIN}")
        sealed, expires = found
        if expires <= self._now():
            raise Unauthenticated(f"the token of {who} has expired: {_AGAIN}")
        token = self._seal.open(sealed, owner)
        if token is None or not self._names(read_claims(token), owner):
            raise Unauthenticated(f"the stored token of {who} can't be used: {_AGAIN}")
        return token

    def _names(self, claims: Mapping[str, Any], owner: str) -> bool:
        try:
            return self._owner(self._caller_of(claims)) == owner
        except MAILError:
            return False

    def _owner(self, caller: Caller) -> str:
        return str(caller.principal(self._swarm))

    def _now(self) -> float:
        return self._clock.now().timestamp()


_AGAIN = "they have to sign in again, or to send a message with a new one"
