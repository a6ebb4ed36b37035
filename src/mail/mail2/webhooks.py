"""Webhooks of a host: each is called for every agent that gets a message, perhaps for everybody, durably."""

import hmac
import logging
from dataclasses import asdict, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

from pydantic_core import to_json

from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.core.task.webhooks import Webhook
from mail.errors import BadRequest, NotFound
from mail.mail2 import WORK
from mail.mail2.addresses import Address
from mail.mail2.records import LEASE_SECONDS, MESSAGES, WEBHOOKS, Call, Message, Row, Stamps

if TYPE_CHECKING:
    from mail.net.webhooks import HTTPWebhooks

RETRY_SECONDS = (1.0, 30.0, 300.0, 3_600.0, 21_600.0)
"""Seconds before each attempt after the first."""

CALL_SECONDS = 10.0

EARLY_SECONDS = 0.5
"""Seconds before its time at which an attempt may begin: not all clocks agree."""

MAX_WEBHOOKS = 20

EVENT = "mail.delivered"

logger = logging.getLogger(__name__)


@value
class Hook(Row):
    """A webhook; `people` is whether it is called for mail to people and daemons, too, and not only to agents."""

    url: str
    events: tuple[str, ...]
    secret: str
    people: bool = False

    def is_for(self, owner: str) -> bool:
        """Return whether it is called for mail to an account, by the local address."""
        return EVENT in self.events and (self.people or Address.parse_local(owner).kind == "agent")


@value
class Webhooks:
    """The webhooks of a host, and their calls."""

    _rows: Rows
    _clock: Clock
    _stamps: Stamps
    _sender: "HTTPWebhooks"
    _host: str

    async def ids(self) -> list[str]:
        """Return the ids of all webhooks."""
        return [name for name, _ in await self._rows.find(WEBHOOKS, "")]

    async def get(self, webhook_id: str) -> dict[str, Any]:
        """Return a webhook. Raises NotFound."""
        return {"webhook_id": webhook_id, **asdict((await self._read(webhook_id))[0])}

    async def create(self, hook: Hook) -> dict[str, Any]:
        """Add a webhook, and return it; return the one with this URL if there is one. Raises BadRequest."""
        known = await self._rows.find(WEBHOOKS, "")
        for name, text in known:
            if (other := Hook.read(text)).url == hook.url:
                return {"webhook_id": name, **asdict(other)}
        if len(known) >= MAX_WEBHOOKS:
            raise BadRequest(f"a server has at most {MAX_WEBHOOKS} webhooks; delete one")
        await self._sender.check(Webhook(url=hook.url))
        name = f"wh_{uuid4()}"
        await self._rows.write([Write((WEBHOOKS, name), hook.text, PutIf.ABSENT)])
        return {"webhook_id": name, **asdict(hook)}

    async def change(
        self, webhook_id: str, url: str, secret: str, *, people: bool | None = None
    ) -> dict[str, Any]:
        """Change the URL and the secret of a webhook, and for whom it is called. Raises NotFound and BadRequest."""
        hook, text = await self._read(webhook_id)
        await self._sender.check(Webhook(url=url))
        changed = replace(hook, url=url, secret=secret, people=hook.people if people is None else people)
        await self._rows.write([Write((WEBHOOKS, webhook_id), changed.text, text)])
        return await self.get(webhook_id)

    async def delete(self, webhook_id: str) -> dict[str, Any]:
        """Delete a webhook; its calls end. Raises NotFound."""
        found = await self.get(webhook_id)
        await self._rows.write([Write((WEBHOOKS, webhook_id), None)])
        return found

    async def called_for(self, owners: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return those of the owners of inboxes for which a webhook is called; each has a list with it."""
        hooks = [Hook.read(text) for _, text in await self._rows.find(WEBHOOKS, "")] if owners else []
        return tuple(each for each in owners if any(hook.is_for(each[0]) for hook in hooks))

    async def calls(self, message_id: str, agent: str, by_list: str) -> list[Write]:
        """Return what notes the calls that are due when an agent has got a message."""
        due = self._clock.now().timestamp() + LEASE_SECONDS
        return [
            Write(
                (WORK, f"evt_{uuid5(UUID(message_id), f'{name} {agent}')}"),
                Call(due, name, message_id, agent, by_list).text,
                PutIf.ABSENT,
            )
            for name, text in await self._rows.find(WEBHOOKS, "")
            if Hook.read(text).is_for(agent)
        ]

    async def call(self, event_id: str) -> float | None:
        """Make a call that is due; return the seconds until the next attempt, None if there is none."""
        row = (WORK, event_id)
        if (found := await Call.find(self._rows, row)) is None:
            return None
        (call, text), now = found, self._clock.now().timestamp()
        if call.attempt and call.due > now + EARLY_SECONDS:
            return None  # another process makes it, or it waits
        taken = replace(call, attempt=call.attempt + 1, due=now + LEASE_SECONDS)
        if not await self._rows.write([Write(row, taken.text, text)]):
            return None  # another process makes it
        hook_row, message_row = (WEBHOOKS, call.webhook_id), (MESSAGES, call.message_id)
        both = await self._rows.read(hook_row, message_row)
        if len(both) < 2:  # the webhook is deleted, or everybody has deleted the message
            await self._rows.write([Write(row, None)])
            return None
        hook = Hook.read(both[hook_row])
        body = to_json(self._event(event_id, call, Message.read(both[message_row])))
        reply = await self._sender.post(
            hook.url, self._headers(hook, event_id, body), body, seconds=CALL_SECONDS
        )
        may_retry = reply.status is None or reply.status >= 500 or reply.status == 429
        if reply.is_success or not may_retry or call.attempt >= len(RETRY_SECONDS):
            if not reply.is_success:
                logger.warning("the webhook %s failed for %s: %s", call.webhook_id, event_id, reply.reason)
            await self._rows.write([Write(row, None, taken.text)])
            return None
        seconds = RETRY_SECONDS[call.attempt]
        later = replace(taken, due=self._clock.now().timestamp() + seconds)
        await self._rows.write([Write(row, later.text, taken.text)])
        return seconds

    def _event(self, event_id: str, call: Call, message: Message) -> dict[str, Any]:
        return {
            "event": EVENT,
            "event_id": event_id,
            "delivered_at": self._stamps.now(),
            "message": {
                "message_id": f"msg_{message.message_id}",
                "reply_to": message.reply_to and f"msg_{message.reply_to}",
                "sender": message.sender,
                "recipient": f"{call.agent}@{self._host}",
                "subject": message.subject,
                "body": message.body,
                "tags": message.tags,
                "sent_at": message.sent_at,
                "swarm": Address.parse_local(call.agent).swarm or None,
                "metadata": {"list_address": f"{call.by_list}@{self._host}"} if call.by_list else {},
            },
        }

    def _headers(self, hook: Hook, event_id: str, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._clock.now().timestamp()))
        signature = hmac.new(hook.secret.encode(), f"{timestamp}.".encode() + body, sha256).hexdigest()
        return {
            "Content-Type": "application/json",
            "X-MAIL-Event-Id": event_id,
            "X-MAIL-Timestamp": timestamp,
            "X-MAIL-Signature": f"sha256={signature}",
        }

    async def _read(self, webhook_id: str) -> tuple[Hook, str]:
        found = await Hook.find(self._rows, (WEBHOOKS, webhook_id))
        if found is None:
            raise NotFound(f"there is no webhook {webhook_id[:64]!r}")
        return found
