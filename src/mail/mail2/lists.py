"""Lists of addresses: mail to one goes to all of its members."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Literal
from uuid import uuid4

from mail.core.protocol.values import value
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.errors import BadRequest, Conflict, NotFound, NotInstalled
from mail.mail2.addresses import Address
from mail.mail2.records import LISTS, Row, Stamps

MAX_MEMBERS = 5_000

TRIES = 20
"""Attempts at a change while others change the same list."""


@value
class Policy(Row):
    """Who sees, joins and posts to a list."""

    visibility: Literal["public", "private"] = "public"
    join_policy: Literal["open", "approval", "admin-only"] = "open"
    send_policy: Literal["open", "members-only", "admin-only"] = "open"

    def check(self) -> None:
        """Raise NotInstalled for what this server doesn't support."""
        for name, word in asdict(self).items():
            if word not in ("public", "open"):
                raise NotInstalled(f"this server does not support the {name} {word!r} of lists")


@value
class MailList(Row):
    """A list."""

    list_id: str
    owner: str
    members: tuple[str, ...]
    policy: Policy
    created_at: str
    updated_at: str


class Lists:
    """The lists of a host."""

    def __init__(self, rows: Rows, stamps: Stamps, host: str) -> None:
        self._rows = rows
        self._stamps = stamps
        self._host = host

    async def all(self) -> list[dict[str, Any]]:
        """Return all lists, ordered by address."""
        return [self._shown(key, MailList.read(text)) for key, text in await self._rows.find(LISTS, "list:")]

    async def get(self, key: str) -> dict[str, Any]:
        """Return a list by its local address. Raises NotFound."""
        return self._shown(key, (await self._read(key))[0])

    async def members(self, *keys: str) -> dict[str, tuple[str, ...]]:
        """Return the members of those lists that exist."""
        found = await self._rows.read(*((LISTS, key) for key in keys))
        return {key: MailList.read(text).members for (_, key), text in found.items()}

    async def create(self, key: str, owner: str, members: tuple[str, ...], policy: Policy) -> dict[str, Any]:
        """Make a list. Raises Conflict, BadRequest and NotInstalled."""
        policy.check()
        now = self._stamps.now()
        made = MailList(str(uuid4()), owner, _checked(members), policy, now, now)
        if not await self._rows.write([Write((LISTS, key), made.text, PutIf.ABSENT)]):
            raise Conflict(f"{key} is taken")
        return self._shown(key, made)

    async def delete(self, key: str) -> dict[str, Any]:
        """Delete a list. Raises NotFound."""
        found, _ = await self._read(key)
        await self._rows.write([Write((LISTS, key), None)])
        return self._shown(key, found)

    async def set_policy(self, key: str, policy: Policy | None) -> dict[str, Any]:
        """Change the policy of a list, unless it is None. Raises NotFound and NotInstalled."""
        if policy is None:
            return await self.get(key)
        policy.check()
        return await self._change(key, lambda before: replace(before, policy=policy))

    async def add(self, key: str, member: str) -> dict[str, Any]:
        """Make an address a member of a list. Raises NotFound and BadRequest."""
        return await self._change(
            key, lambda before: replace(before, members=_checked((*before.members, member)))
        )

    async def remove(self, key: str, member: str) -> dict[str, Any]:
        """Remove a member from a list; nothing happens if it is none. Raises NotFound."""
        return await self._change(
            key,
            lambda before: replace(before, members=tuple(each for each in before.members if each != member)),
        )

    async def _change(self, key: str, change: Callable[[MailList], MailList]) -> dict[str, Any]:
        for attempt in range(TRIES):
            before, text = await self._read(key)
            after = change(before)
            if after == before:
                return self._shown(key, before)
            after = replace(after, updated_at=self._stamps.now())
            if await self._rows.write([Write((LISTS, key), after.text, text)]):
                return self._shown(key, after)
            await asyncio.sleep(random.uniform(0.0, min(0.2, 0.01 * 2**attempt)))  # noqa: S311
        raise Conflict("the list is being changed by many others; try again")

    async def _read(self, key: str) -> tuple[MailList, str]:
        text = (await self._rows.read((LISTS, key))).get((LISTS, key))
        if text is None:
            raise NotFound(f"there is no {key}")
        return MailList.read(text), text

    def _shown(self, key: str, found: MailList) -> dict[str, Any]:
        address = Address.parse_local(key)
        shown: dict[str, Any] = {
            "list_type": "list",
            "name": address.name,
            "swarm": address.swarm,
            "host": self._host,
        }
        return {**shown, **asdict(found), "metadata": {}}


def _checked(members: tuple[str, ...]) -> tuple[str, ...]:
    """Return members without repetitions. Raises BadRequest for too many."""
    members = tuple(dict.fromkeys(members))
    if len(members) > MAX_MEMBERS:
        raise BadRequest(f"a list has at most {MAX_MEMBERS} members")
    return members
