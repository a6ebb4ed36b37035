"""Accounts of a host and their sessions.

A login begins a *session*, a row beside the boxes of the account. Its access and refresh tokens are opaque texts that
name the row; the row has their digests. A session has ended when its row is gone, or when the account is gone or has
another epoch.
"""

import asyncio
import secrets
from dataclasses import field, replace
from itertools import batched
from uuid import uuid4

from mail.auth.keys import Caller, digest
from mail.auth.tokens import find_valid_token
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.errors import Conflict, NotFound, Unauthenticated
from mail.mail2 import WORK
from mail.mail2.addresses import PEOPLE, AccountKind, Address, is_slug
from mail.mail2.notices import POSTMASTER
from mail.mail2.passwords import Passwords
from mail.mail2.records import ACCOUNTS, Account, Purge, Row, Stamps, sessions

FOUND_AT_ONCE = 500
"""Accounts that are read at once."""

ACCESS_SECONDS = 1_800
FAMILY_SECONDS = 30 * 86_400
"""Seconds after a login during which its tokens can be refreshed."""

KEPT_TOKENS = 4
"""Access tokens of a session that stay valid after later refreshes, until they expire."""

REVIEWED = 20
"""Sessions of an account that a login looks at, to delete those that have ended."""

ACCESS, REFRESH = "at_", "rt_"

WRONG_PASSWORD = "incorrect username or password"  # noqa: S105 - a message
WRONG_REFRESH = "could not validate refresh token"
NOT_VALID = "could not validate credentials"


@value
class Session(Row):
    """A login.

    Attributes:
        epoch: the account's at the login.
        access: the digests of access tokens, each with the time at which it expires, in seconds since the epoch.
        refresh: the digest of the refresh token; empty if there is none.
        until: when the session ends.
        api_key: the digest of the API key that was the password; the session ends with it.
    """

    epoch: str
    until: float
    access: tuple[tuple[str, float], ...] = ()
    refresh: str = ""
    api_key: str = ""


@value
class Tokens:
    """What a login or a refresh gives; agents and daemons get no refresh token."""

    access: str
    refresh: str | None


@value
class _Token:
    """A token: the account and box that it names, the session, and the digest of the whole."""

    key: str
    box: str
    session: str
    digest: str

    @classmethod
    def parse(cls, text: str, prefix: str) -> "_Token | None":
        fields = text.removeprefix(prefix).split(".")
        if not text.startswith(prefix) or len(fields) != 4:
            return None
        return cls(fields[0].replace("~", "@"), fields[1], fields[2], digest(text))


def _new_token(prefix: str, account: Account, session: str) -> str:
    """Return a new token, all of whose characters may stand in a cookie."""
    return f"{prefix}{account.key.replace('@', '~')}.{account.box}.{session}.{secrets.token_urlsafe(32)}"


def account_row(key: str) -> tuple[str, str]:
    """Return the row of an account: its local address, with a prefix for agents, too."""
    return ACCOUNTS, key if ":" in key else f"agent:{key}"


@value
class Accounts:
    """The accounts of a host; the documents have the API keys of this server."""

    _rows: Rows
    _documents: ServerDocuments
    _clock: Clock
    _stamps: Stamps
    _host: str
    _passwords: Passwords = field(default_factory=Passwords)

    async def find(self, *keys: str) -> dict[str, Account]:
        """Return those of the accounts that exist, by their local addresses."""
        accounts = dict[str, Account]()
        for some in batched(keys, FOUND_AT_ONCE):
            found = await self._rows.read(*map(account_row, some))
            accounts |= {account.key: account for account in map(Account.read, found.values())}
            if len(keys) > FOUND_AT_ONCE:
                await asyncio.sleep(0)  # others run between the members of a long list
        return accounts

    async def get(self, key: str) -> Account:
        """Return an account by its local address. Raises NotFound."""
        account = (await self.find(key)).get(key)
        if account is None:
            raise NotFound(f"there is no {key}")
        return account

    async def all(self, kind: AccountKind) -> list[Account]:
        """Return all accounts of a kind, ordered by address."""
        return [Account.read(text) for _, text in await self._rows.find(ACCOUNTS, f"{kind}:")]

    async def create(self, kind: AccountKind, name: str, swarm: str, password: str) -> Account:
        """Make an account. Raises Conflict."""
        key = Address(kind, name, swarm).key
        taken = f"{key} is taken"
        if key == POSTMASTER or await self.find(key):
            raise Conflict(taken)
        account = self._new(kind, name, swarm, await self._passwords.hash(password))
        if not await self._rows.write([Write(account_row(key), account.text, PutIf.ABSENT)]):
            raise Conflict(taken)
        return account

    async def ensure(self, *callers: Caller) -> list[Account]:
        """Return the accounts of users and admins with API keys, and make those that don't exist yet.

        Raises Unauthenticated for other callers, and for an id that can't be in an address.
        """
        found = []
        for caller in callers:
            kind, name = caller.role, caller.id
            if kind == "agent" or not is_slug(name):
                raise Unauthenticated(NOT_VALID)
            account = (await self.find(f"{kind}:{name}")).get(f"{kind}:{name}")
            if account is None:
                account = self._new(kind, name, "", "")
                if not await self._rows.write([Write(account_row(account.key), account.text, PutIf.ABSENT)]):
                    account = await self.get(account.key)
            found.append(account)
        return found

    async def delete(self, key: str) -> Account:
        """Delete an account, which ends its sessions, and note that its boxes have to be emptied. Raises NotFound."""
        while True:
            account = await self.get(key)
            purge = Write((WORK, account.purge), Purge(self._now(), account.box).text, PutIf.ABSENT)
            if await self._rows.write([Write(account_row(key), None, account.text), purge]):
                return account

    # -------------------------------------------------------------------------------------------------- sessions

    async def log_in(self, username: str, password: str, origin: str) -> Tokens:
        """Begin a session. Raises Unauthenticated, and RateLimited after too many wrong passwords from one origin."""
        try:
            address = Address.parse(username)
        except ValueError:
            raise Unauthenticated(WRONG_PASSWORD) from None
        key = address.key
        account, api_key = await self._check_password(key, password, f"{key} {origin}")
        if account is None and api_key and address.kind in PEOPLE:
            (account,) = await self.ensure(Caller(address.kind, address.name))  # type: ignore[arg-type]
        if account is None or address.host != self._host:
            raise Unauthenticated(WRONG_PASSWORD)
        name, now = uuid4().hex, self._now()
        has_refresh = account.kind in PEOPLE
        until = now + (FAMILY_SECONDS if has_refresh else ACCESS_SECONDS)
        empty = Session(account.epoch, until, api_key=api_key)
        tokens, session = self._issue(account, name, empty, has_refresh=has_refresh)
        place = sessions(account.box)
        ended = [
            Write((place, other), None)
            for other, text in await self._rows.find(place, "", limit=REVIEWED)
            if self._has_ended(Session.read(text), account)
        ]
        begun = Write((place, name), session.text, PutIf.ABSENT)
        unchanged = Write(account_row(key), account.text, account.text)
        if not await self._rows.write([unchanged, begun, *ended]):
            raise Unauthenticated(WRONG_PASSWORD)  # the account was deleted, or has another password
        return tokens

    async def refresh(self, text: str) -> Tokens:
        """Exchange a refresh token for new tokens, once; one that was used ends its session. Raises Unauthenticated."""
        token = _Token.parse(text, REFRESH)
        found = None if token is None else await self._session(token)
        if token is None or found is None:
            raise Unauthenticated(WRONG_REFRESH)
        account, session, stored = found
        row = (sessions(account.box), token.session)
        if session.refresh != token.digest:
            await self._rows.write([Write(row, None)])
            raise Unauthenticated(WRONG_REFRESH)
        tokens, renewed = self._issue(account, token.session, session, has_refresh=True)
        if not await self._rows.write([Write(row, renewed.text, stored)]):
            raise Unauthenticated(WRONG_REFRESH)  # another request has used it
        return tokens

    async def authenticate(self, bearer: str) -> Account | None:
        """Return the account of an access token; None for a text that isn't one. Raises Unauthenticated."""
        token = _Token.parse(bearer, ACCESS)
        if token is None:
            return None
        found = await self._session(token)
        if found is not None:
            account, session, _ = found
            if any(each == token.digest and expires > self._now() for each, expires in session.access):
                return account
        raise Unauthenticated(NOT_VALID)

    async def log_out(self, *texts: str) -> None:
        """End the sessions of tokens of either kind; others are ignored."""
        for text in texts:
            token = _Token.parse(text, REFRESH) or _Token.parse(text, ACCESS)
            if token is None or (found := await self._session(token)) is None:
                continue
            account, session, _ = found
            if token.digest in (session.refresh, *(each for each, _ in session.access)):
                await self._rows.write([Write((sessions(account.box), token.session), None)])

    async def reset(self, account: Account, current: str, new: str, origin: str) -> None:
        """Change a password, which ends all sessions of the account. Raises Unauthenticated and RateLimited."""
        known, api_key = await self._check_password(account.key, current, f"{account.key} {origin}")
        if known is None and not api_key:
            raise Unauthenticated(WRONG_PASSWORD)
        changed = replace(account, password=await self._passwords.hash(new), epoch=uuid4().hex)
        if not await self._rows.write([Write(account_row(account.key), changed.text, account.text)]):
            raise Conflict("the account was changed meanwhile; log in again")

    async def _check_password(self, key: str, password: str, who: str) -> tuple[Account | None, str]:
        """Return the account whose password this is, and the digest of the password if it is an API key.

        The token of a browser's session is none: it may begin nothing that outlives it.
        """
        self._passwords.check_attempt(who)
        account = (await self.find(key)).get(key)
        token = await find_valid_token(self._documents, digest(password), self._clock)
        if token is not None and token.session_of is None and f"{token.role}:{token.id}" == key:
            return account, digest(password)
        is_right = await self._passwords.verify(password, "" if account is None else account.password)
        self._passwords.note_attempt(who, is_right=is_right)
        return account if is_right else None, ""

    async def _session(self, token: _Token) -> tuple[Account, Session, str] | None:
        """Return the account and the session that a token names, and the text of the session's row."""
        row, of_session = account_row(token.key), (sessions(token.box), token.session)
        found = await self._rows.read(row, of_session)
        if row not in found or of_session not in found:
            return None
        account, session = Account.read(found[row]), Session.read(found[of_session])
        if account.box != token.box or self._has_ended(session, account):
            return None
        if session.api_key and not await find_valid_token(self._documents, session.api_key, self._clock):
            return None
        return account, session, found[of_session]

    def _issue(
        self, account: Account, name: str, session: Session, *, has_refresh: bool
    ) -> tuple[Tokens, Session]:
        """Return new tokens of a session, and the session with their digests."""
        now = self._now()
        access = _new_token(ACCESS, account, name)
        refresh = _new_token(REFRESH, account, name) if has_refresh else None
        valid = [each for each in session.access if each[1] > now][-KEPT_TOKENS:]
        valid.append((digest(access), min(now + ACCESS_SECONDS, session.until)))
        renewed = replace(session, access=tuple(valid), refresh=digest(refresh) if refresh else "")
        return Tokens(access, refresh), renewed

    def _has_ended(self, session: Session, account: Account) -> bool:
        return session.until <= self._now() or session.epoch != account.epoch

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _new(self, kind: AccountKind, name: str, swarm: str, password: str) -> Account:
        return Account(kind, name, swarm, uuid4().hex, uuid4().hex, password, self._stamps.now())
