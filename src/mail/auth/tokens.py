"""Built-in tokens, for servers without an authentication service, and links that sign a browser in.

Of tokens and of the codes in links only digests are stored.
"""

import secrets
from datetime import UTC, datetime
from typing import Any

from mail.auth.keys import Caller, digest
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.values import value
from mail.core.task.documents import SignInLink, StoredToken
from mail.errors import SignInLinkInvalid, TokenNotFound, Unauthenticated

TOKEN_BYTES = 32

NUMBER_CHARACTERS = 12
"""The length of a token's number, the beginning of its digest."""

LINK_SECONDS = 600.0
"""Seconds for which a sign-in link can be used."""

SESSION_SECONDS = 24 * 3600.0
"""Seconds after which a token from a sign-in link expires."""

CACHE_SECONDS = 4.0
"""Seconds for which a process accepts a token without looking whether another one has revoked it."""

USER, ADMIN = Caller("user", "user"), Caller("admin", "admin")
"""The callers of the first tokens for people, and so of the person who runs the server."""


@value
class IssuedToken:
    """A new token: its text, which can't be shown again, and what is stored."""

    text: str
    stored: StoredToken


def new_token(kind: str) -> str:
    """Return a new token. Its prefix identifies it to readers and secret scanners."""
    return f"mail_{kind}_{secrets.token_urlsafe(TOKEN_BYTES)}"


async def issue_token(documents: ServerDocuments, caller: Caller, clock: Clock = SYSTEM_CLOCK) -> str:
    """Issue a token for a caller, and return its text."""
    return (await issue(documents, caller, clock)).text


async def issue(
    documents: ServerDocuments,
    caller: Caller,
    clock: Clock = SYSTEM_CLOCK,
    *,
    expires: float | None = None,
    session_of: str | None = None,
) -> IssuedToken:
    """Issue a token for a caller; the arguments are those of `StoredToken`."""
    text, now = new_token(caller.role if session_of is None else "session"), clock.now()
    token = StoredToken(digest(text), caller.role, caller.id, now.isoformat(), expires, session_of)
    await documents.add_token(token, now=now.timestamp())
    return IssuedToken(text, token)


def number_of(token: StoredToken) -> str:
    """Return the number by which people refer to a token."""
    return token.digest[:NUMBER_CHARACTERS]


def expiry_of(issued: "StoredToken | IssuedLink") -> str | None:
    """Return when a token or a link expires, in ISO 8601; None for never."""
    return None if issued.expires is None else datetime.fromtimestamp(issued.expires, UTC).isoformat()


def describe(token: StoredToken) -> dict[str, Any]:
    """Return a token for people, without its text."""
    return {
        "number": number_of(token),
        "role": token.role,
        "id": token.id,
        "created": token.created,
        "expires": expiry_of(token),
        "session": token.session_of is not None,
    }


async def valid_tokens(documents: ServerDocuments, clock: Clock = SYSTEM_CLOCK) -> list[StoredToken]:
    """Return all tokens that can be used, oldest first."""
    now = clock.now().timestamp()
    alive = {token.digest: token for token in await documents.tokens() if not _has_expired(token, now)}
    return [token for token in alive.values() if not token.session_of or token.session_of in alive]


async def has_first_callers(documents: ServerDocuments, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Return whether the operator works as USER and ADMIN: their tokens can be used, or there were never any tokens.

    Operators who have replaced the first tokens with some for callers of their own don't.
    """
    if not await documents.has_tokens():
        return True
    keys = [token for token in await valid_tokens(documents, clock) if token.session_of is None]
    return {USER, ADMIN} <= {Caller(token.role, token.id) for token in keys}


async def revoke_token(documents: ServerDocuments, number: str) -> StoredToken:
    """Delete a token, and with it the sessions of its sign-in links; return what was stored.

    Raises TokenNotFound unless exactly one has the number.
    """
    found = [token for token in await documents.tokens() if token.digest.startswith(number)]
    if len(found) != 1 or len(number) < NUMBER_CHARACTERS:
        raise TokenNotFound(f"no token has the number {number[:64]!r}; mail token list shows them")
    await documents.remove_token(found[0].digest)
    return found[0]


@value
class TokenAuthenticator:
    """An `Authenticator` over the tokens that this server has issued."""

    _documents: ServerDocuments
    _clock: Clock = SYSTEM_CLOCK

    async def authenticate(self, bearer: str) -> Caller:
        token = await find_valid_token(self._documents, digest(bearer), self._clock)
        if token is None:
            raise Unauthenticated(
                "the API key is not valid; create one where the server runs, with: mail token create"
            )
        return Caller(token.role, token.id, is_session=token.session_of is not None)


async def check_token(documents: ServerDocuments, bearer: str, clock: Clock) -> None:
    """Raise Unauthenticated if a token was revoked or has expired since its caller was authenticated."""
    if await find_valid_token(documents, digest(bearer), clock) is None:
        raise Unauthenticated


async def find_valid_token(documents: ServerDocuments, key: str, clock: Clock) -> StoredToken | None:
    """Return the token with this digest; None if there is none, or it or the token behind its session can't be used."""
    now = clock.now().timestamp()
    token = await documents.find_token(key)
    if token is None or _has_expired(token, now):
        return None
    if token.session_of:
        parent = await documents.find_token(token.session_of)
        if parent is None or _has_expired(parent, now):
            return None
    return token


def _has_expired(token: StoredToken, now: float) -> bool:
    return token.expires is not None and token.expires <= now


# ------------------------------------------------------------------------------------------------ sign-in links


@value
class IssuedLink:
    """A new sign-in link: the code that it carries, and when it expires, in seconds since the epoch."""

    code: str
    expires: float


def sign_in_url(server: str, code: str) -> str:
    """Return the address that signs a browser in. The code is in the fragment, which browsers send to no server."""
    return f"{server}/ui#sign-in={code}"


async def issue_link(
    documents: ServerDocuments,
    caller: Caller,
    clock: Clock = SYSTEM_CLOCK,
    *,
    bearer: str = "",
    admin: Caller | None = None,
) -> IssuedLink:
    """Make a link that signs a browser in as a caller, once; with `admin`, it brings a second session, of that caller.

    `bearer` is the token of the caller, with which the sessions of the link end; it is empty for an operator, who has
    access to the database. Raises Unauthenticated if it is not valid.
    """
    if bearer:
        await check_token(documents, bearer, clock)
    code, now = secrets.token_urlsafe(TOKEN_BYTES), clock.now().timestamp()
    made_with = digest(bearer) if bearer else ""
    link = SignInLink(digest(code), caller.role, caller.id, now + LINK_SECONDS, made_with)
    await documents.add_sign_in_link(link, now=now)
    if admin is not None:
        second = SignInLink(digest(_second(code)), admin.role, admin.id, link.expires, made_with)
        await documents.add_sign_in_link(second, now=now)
    return IssuedLink(code, link.expires)


async def issue_operator_link(documents: ServerDocuments, clock: Clock = SYSTEM_CLOCK) -> IssuedLink:
    """Make a link for the person who runs the server: to the tasks of their commands, and to what admins see."""
    if await has_first_callers(documents, clock):
        return await issue_link(documents, USER, clock, admin=ADMIN)
    return await issue_link(documents, ADMIN, clock)


def _second(code: str) -> str:
    """Return the code for the second session of a link."""
    return f"{code}.admin"


async def sign_in(
    documents: ServerDocuments, code: str, clock: Clock = SYSTEM_CLOCK
) -> tuple[IssuedToken, IssuedToken | None]:
    """Exchange the code of a link for a token that expires, and the second one if the link brings two.

    The second one ends with the first one. Raises SignInLinkInvalid, for whatever reason.

    The code is looked up by its digest, so that the time of the answer says nothing about other codes. It is deleted
    before the token is issued, and only one process can do that.
    """
    link, now = await documents.take_sign_in_link(digest(code)), clock.now().timestamp()
    if link is None or link.expires <= now:
        raise SignInLinkInvalid
    expires = now + SESSION_SECONDS
    if link.made_with:
        parent = await find_valid_token(documents, link.made_with, clock)
        if parent is None:
            raise SignInLinkInvalid
        expires = min(expires, parent.expires or expires)
    first = await issue(
        documents, Caller(link.role, link.id), clock, expires=expires, session_of=link.made_with
    )
    second = await documents.take_sign_in_link(digest(_second(code)))
    if second is None:
        return first, None
    caller = Caller(second.role, second.id)
    return first, await issue(documents, caller, clock, expires=expires, session_of=first.stored.digest)


async def issue_session(
    documents: ServerDocuments, caller: Caller, clock: Clock = SYSTEM_CLOCK
) -> IssuedToken:
    """Issue a token that expires, for the browser of a caller whom an identity provider has signed in."""
    expires = clock.now().timestamp() + SESSION_SECONDS
    return await issue(documents, caller, clock, expires=expires, session_of="")


async def sign_out(documents: ServerDocuments, bearer: str) -> bool:
    """Delete a token that is from a sign-in link; return whether it is. Other tokens stay."""
    token = await documents.find_token(digest(bearer))
    return token is not None and token.session_of is not None and await documents.remove_token(token.digest)
