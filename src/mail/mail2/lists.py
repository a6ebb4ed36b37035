"""Lists of addresses: mail to one goes to all of its members."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import batched
from typing import Any, Literal
from uuid import uuid4

from mail.core.engine.pacing import Paced
from mail.core.protocol.values import value
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.errors import BadRequest, Conflict, Forbidden, NotFound
from mail.mail2.accounts import Accounts
from mail.mail2.addresses import Address
from mail.mail2.notices import Notices
from mail.mail2.records import LISTS, REFERENCES, Row, Stamps

MAX_MEMBERS = 5_000

MAX_NAMED = 100
"""The members of lists that are named among those whom a message does not reach."""

MAX_BYTES = 300_000
"""The bytes of all addresses of a list, as it is one row: 60 for each of the most members."""

READ_AT_ONCE = 4
"""Lists that are read at once."""

TRIES = 20
"""Attempts at a change while others change the same list."""


@value
class Policy(Row):
    """Who sees, joins and posts to a list."""

    visibility: Literal["public", "private"] = "public"
    join_policy: Literal["open", "approval", "admin-only"] = "open"
    send_policy: Literal["open", "members-only", "admin-only"] = "open"


@value
class MailList(Row):
    """A list; `pending` are the addresses that ask to become members."""

    list_id: str
    owner: str
    members: tuple[str, ...]
    policy: Policy
    created_at: str
    updated_at: str
    pending: tuple[str, ...] = ()


@value
class By:
    """Who asks for something of a list: an address, perhaps of an admin of this host."""

    address: str
    is_admin: bool = False

    def manages(self, found: MailList) -> bool:
        """Return whether that is an admin, or the owner of the list."""
        return self.is_admin or self.address == found.owner

    def sees(self, found: MailList) -> bool:
        """Return whether the list is there for the address."""
        is_public = found.policy.visibility == "public"
        return is_public or self.manages(found) or self.address in found.members

    def may_post(self, found: MailList) -> bool:
        """Return whether the address may write to the list."""
        policy, is_member = found.policy.send_policy, self.address in found.members
        return policy == "open" or self.manages(found) or (policy == "members-only" and is_member)


HOST_ITSELF = By("", is_admin=True)


@value
class Lists:
    """The lists of a host.

    Attributes:
        pacer: spaces out work on long ones, and on mail to them.
    """

    _rows: Rows
    _stamps: Stamps
    _accounts: Accounts
    _notices: Notices
    _host: str
    pacer: Paced

    async def all(self, by: By) -> AsyncGenerator[dict[str, Any]]:
        """Yield all lists that somebody sees, ordered by address; a few are read at once, as each may be long."""
        key, count = "", READ_AT_ONCE
        while count == READ_AT_ONCE:
            found = await self._rows.find(LISTS, "list:", after=key, limit=READ_AT_ONCE)
            count = len(found)
            for key, text in found:
                await self.pacer.pause(len(text))
                if by.sees(each := MailList.read(text)):
                    yield self._shown(key, each, by)

    async def get(self, key: str, by: By) -> dict[str, Any]:
        """Return a list by its local address. Raises NotFound."""
        return self._shown(key, (await self._read(key, by))[0], by)

    async def find(self, *keys: str) -> dict[str, MailList]:
        """Return those lists that exist."""
        found = await self._rows.read(*((LISTS, key) for key in keys))
        await self.pacer.pause(sum(map(len, found.values())))
        return {key: MailList.read(text) for (_, key), text in found.items()}

    async def each(self, keys: Iterable[str]) -> AsyncGenerator[tuple[str, MailList | None]]:
        """Yield the addresses of lists with those that exist; a few are read at once."""
        for some in batched(keys, READ_AT_ONCE):
            found = await self.find(*some)
            for key in some:
                known = found.get(key)
                await self.pacer.pause(0 if known is None else len(known.members) * MAX_BYTES // MAX_MEMBERS)
                yield key, known

    async def members(self, *keys: str) -> dict[str, tuple[str, ...]]:
        """Return the members of those lists that exist."""
        return {key: each.members for key, each in (await self.find(*keys)).items()}

    async def create(self, key: str, owner: str, members: tuple[str, ...], policy: Policy) -> dict[str, Any]:
        """Make a list. Raises Conflict and BadRequest."""
        now = self._stamps.now()
        made = _checked(MailList(str(uuid4()), owner, tuple(dict.fromkeys(members)), policy, now, now))
        if not await self._rows.write([Write((LISTS, key), made.text, PutIf.ABSENT)]):
            raise Conflict(f"{key} is taken")
        return self._shown(key, made, HOST_ITSELF)

    async def delete(self, key: str, by: By) -> dict[str, Any]:
        """Delete a list. Raises NotFound and Forbidden."""
        found, _ = await self._read(key, by)
        _check_manages(found, by)
        await self._rows.write([Write((LISTS, key), None)])
        return self._shown(key, found, by)

    async def set_policy(self, key: str, policy: Policy | None, by: By) -> dict[str, Any]:
        """Change the policy of a list, unless it is None. Raises NotFound and Forbidden."""

        def change(before: MailList) -> MailList:
            _check_manages(before, by)
            return replace(before, policy=policy or before.policy)

        return await self._change(key, by, change)

    async def add(self, key: str, member: str, by: By) -> dict[str, Any]:
        """Make an address a member of a list; its policy says who may. Raises NotFound, Forbidden and BadRequest.

        Who may join with approval only waits for it then, and the owner gets a notice.
        """

        def change(before: MailList) -> MailList:
            policy = before.policy.join_policy
            if member == by.address and policy == "approval" and not by.manages(before):
                is_known = member in (*before.members, *before.pending)
                return before if is_known else _checked(replace(before, pending=(*before.pending, member)))
            if member != by.address or policy == "admin-only":
                _check_manages(before, by)
            members = tuple(dict.fromkeys((*before.members, member)))
            return _checked(replace(before, members=members, pending=_without(before.pending, member)))

        return await self._change(key, by, change)

    async def remove(self, key: str, member: str, by: By) -> dict[str, Any]:
        """Remove a member, or who would become one; nothing happens if it is neither. Raises NotFound and Forbidden."""

        def change(before: MailList) -> MailList:
            if member != by.address:
                _check_manages(before, by)
            members, pending = _without(before.members, member), _without(before.pending, member)
            return replace(before, members=members, pending=pending)

        return await self._change(key, by, change)

    async def forget(self, address: str) -> None:
        """Take all rights from an address, before its account is deleted; a list that it owns is the host's then."""

        def change(before: MailList) -> MailList:
            owner = self._notices.sender if before.owner == address else before.owner
            members, pending = _without(before.members, address), _without(before.pending, address)
            return replace(before, owner=owner, members=members, pending=pending)

        for key, text in await self._rows.find(LISTS, "list:"):
            if change(found := MailList.read(text)) != found:
                with suppress(NotFound):
                    await self._change(key, HOST_ITSELF, change)

    async def _change(self, key: str, by: By, change: Callable[[MailList], MailList]) -> dict[str, Any]:
        for attempt in range(TRIES):
            before, text = await self._read(key, by)
            after = change(before)
            if after == before:
                return self._shown(key, before, by)
            after = replace(after, updated_at=self._stamps.now())
            told = await self._tell_owner(key, before, after)
            if await self._rows.write([Write((LISTS, key), after.text, text), *told]):
                return self._shown(key, after, by)
            await asyncio.sleep(random.uniform(0.0, min(0.2, 0.01 * 2**attempt)))  # noqa: S311
        raise Conflict("the list is being changed by many others; try again")

    async def _tell_owner(self, key: str, before: MailList, after: MailList) -> list[Write]:
        """Return what tells the owner of a list, if that has an account here, who asks to join it: each once a day."""
        asks, owner = after.pending[len(before.pending) :], Address.parse(after.owner)
        if not asks or owner.host != self._host:
            return []
        account = (await self._accounts.find(owner.key)).get(owner.key)
        if account is None:
            return []
        [member], name = asks, f"{key}@{self._host}"
        body = f"{member} asks to become a member of {name}.\n\nAdd this address to the list, or remove it to refuse."
        seed, subject = (
            f"asks:{after.list_id}:{member}:{after.updated_at[:10]}",
            f"{member} asks to join {name}",
        )
        writes = self._notices.writes(seed, after.owner, account.box, subject, body)
        (count,) = (each.key for each in writes if each.key[0] == REFERENCES)
        return [] if count in await self._rows.read(count) else writes

    async def _read(self, key: str, by: By) -> tuple[MailList, str]:
        found = await MailList.find(self._rows, (LISTS, key))
        if found is None or not by.sees(found[0]):
            raise NotFound(f"there is no {key}")
        return found

    def _shown(self, key: str, found: MailList, by: By) -> dict[str, Any]:
        address = Address.parse_local(key)
        shown: dict[str, Any] = {
            "list_type": "list",
            "name": address.name,
            "swarm": address.swarm,
            "host": self._host,
        }
        shown |= {**asdict(found), "metadata": {}}
        return (
            shown
            if by.manages(found)
            else {**shown, "pending": [by.address] if by.address in found.pending else []}
        )


def _check_manages(found: MailList, by: By) -> None:
    if not by.manages(found):
        raise Forbidden(
            "only the owner of a list and admins may do this, and admins not with a browser's session"
        )


def _without(addresses: tuple[str, ...], gone: str) -> tuple[str, ...]:
    return tuple(each for each in addresses if each != gone)


def _checked(found: MailList) -> MailList:
    """Return a list. Raises BadRequest for too many members, with those who ask to become some."""
    addresses = (*found.members, *found.pending)
    if len(addresses) > MAX_MEMBERS:
        raise BadRequest(f"a list has at most {MAX_MEMBERS} members, with those who wait for approval")
    if (size := sum(len(each.encode()) for each in addresses)) > MAX_BYTES:
        raise BadRequest(
            f"the addresses of a list have at most {MAX_BYTES} bytes together; these have {size}"
        )
    return found
