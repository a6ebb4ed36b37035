"""A host of MAIL 2.0: what it is made of, and its work behind the requests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from itertools import batched
from typing import TYPE_CHECKING, Any

from mail.auth.keys import Caller
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.pacing import Pacer
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import Clock
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.core.task.task import TaskKey
from mail.errors import CallerHeld, MAILError, NotFound
from mail.mail2 import HOST, WORK
from mail.mail2.accounts import Accounts
from mail.mail2.addresses import Address
from mail.mail2.agents import Agents, caller_of, keys_of
from mail.mail2.arrivals import Cursor, Reader
from mail.mail2.boxes import Boxes, Quota
from mail.mail2.delivery import Deliveries
from mail.mail2.lists import Lists
from mail.mail2.notices import Notices
from mail.mail2.records import (
    ACCOUNTS,
    HELD,
    LEASE_SECONDS,
    Account,
    BoxName,
    Delivery,
    DraftRow,
    Forget,
    Message,
    Purge,
    Stamps,
    Tidy,
    Work,
    claimed,
    format_utc,
    purges_of,
)
from mail.mail2.swarms import Swarms
from mail.mail2.tasks import SUBMISSIONS_PER_HOUR, Tasks
from mail.mail2.webhooks import Webhooks

if TYPE_CHECKING:
    from mail.mail2.remotes import Remotes
    from mail.net.webhooks import HTTPWebhooks

SWEEP_SECONDS = 10.0
"""Seconds between two looks for work that another process has left, or that is due by now."""

SOON_SECONDS = 60.0
"""Work that is due within so many seconds is waited for; a sweep finds the rest."""

SWEPT = 500
"""Pieces of work that a sweep looks at; the next one continues."""

AT_ONCE = 8
"""Pieces of work that a sweep has done at once, so that a host which doesn't answer holds up few others."""

TIDY_SECONDS = 86_400.0
"""Seconds between two searches for old mail, and for mail of tasks that are gone."""

PORTION, PORTIONS = 50, 40
"""Rows that are looked through before it is noted where to continue, and how often in one go."""

NAME, TIDY_AT = (HOST, "name"), (HOST, "tidy at")
"""The row with the name of the host, for functions that no request names it to, and that with the next search."""

Wake = Callable[[str, float], Awaitable[None]]

logger = logging.getLogger(__name__)


async def settle_name(rows: Rows, configured: str, domain: str) -> str:
    """Return the name of the host: the configured or else the stored one, or `domain` from now on. Raises NotFound."""
    stored = (await rows.read(NAME)).get(NAME, "")
    name = configured or stored or domain
    if not name:
        raise NotFound("MAIL 2.0 has no name for this host yet; send a request to /v2 of the HTTP API first")
    if name != stored and not await rows.write([Write(NAME, name, stored or PutIf.ABSENT)]):
        return await settle_name(rows, configured, domain)
    return name


class MailHost:
    """The accounts, boxes, lists, swarms and webhooks of a host, and what delivers its mail.

    Args:
        runtime: runs the swarm whose agents have addresses; None if there is none.
        per_hour: the number of submissions to a task in an hour from a sender that isn't a person; 0 for no limit.
        retention: seconds after which mail is deleted; None for never.
        caller_bytes: the size limit of what a caller stores, by which boxes are limited; None for no limit.
        wake: has another process call `work`, in so many seconds; None if this one does it.
        in_background: whether this process lives on after a request; if not, the request waits for the work that it
            makes, and somebody has to call `resume` for the rest.
        remotes: hands mail to other hosts; None if there is no way to any.
    """

    def __init__(
        self,
        rows: Rows,
        documents: ServerDocuments,
        clock: Clock,
        sender: "HTTPWebhooks",
        host: str,
        *,
        runtime: Runtime | None = None,
        per_hour: int = SUBMISSIONS_PER_HOUR,
        retention: float | None = None,
        caller_bytes: int | None = None,
        wake: Wake | None = None,
        in_background: bool = True,
        remotes: "Remotes | None" = None,
    ) -> None:
        stamps = Stamps(clock)
        self.host = host
        self._rows = rows
        self._documents = documents
        self._retention = retention
        self.accounts = Accounts(rows, documents, clock, stamps, host)
        self._pacer = pacer = Pacer() if runtime is None else runtime.pacer
        quota = Quota(rows, caller_bytes)
        self.boxes = Boxes(rows, stamps, quota, pacer)
        notices = Notices(stamps, host)
        self.lists = Lists(rows, stamps, self.accounts, notices, host, pacer)
        self.agents = Agents(lambda: None if runtime is None else runtime.swarm)
        self.swarms = Swarms(rows, self.accounts, self.agents)
        self.webhooks = Webhooks(rows, clock, stamps, sender, host)
        told = (self.accounts, self.lists, self.webhooks, host, self.agents, notices, quota, remotes)
        self.deliveries = Deliveries(rows, clock, stamps, *told)
        self.remotes = remotes
        posted = (self.agents, self.lists, self.deliveries, host, self.begin, per_hour)
        self.tasks = None if runtime is None else Tasks(rows, runtime, *posted)
        self._stamps = stamps
        self._clock = clock
        self._wake = wake
        self._in_background = in_background and wake is None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self._after = ""
        self._tidy_at = 0.0

    def caller_of(self, account: Account) -> Caller:
        """Return the caller that an account is to the rest of the server."""
        return caller_of(Address(account.kind, account.name, account.swarm, self.host), self.host)

    async def open(self, account: Account, name: BoxName, entry: str) -> dict[str, Any]:
        """Return an entry with its message as `Boxes.open` does, and the account's tasks that have sent or got it."""
        shown = await self.boxes.open(account, name, entry)
        if self.tasks is not None:
            shown["tasks"] = await self.tasks.behind(shown["message"], f"{account.key}@{self.host}")
        return shown

    async def check_holds(self, account: Account) -> None:
        """Raise CallerHeld if what an account has may not be deleted."""
        if (caller := self._name_of(account)) in await self._held():
            raise CallerHeld(f"everything of {caller} is on hold; lift the hold first")

    async def delete(self, key: str) -> Account:
        """Delete an account with its rights on lists, and begin to empty its boxes. Raises NotFound and Conflict."""
        await self.lists.forget(f"{key}@{self.host}")
        account = await self.accounts.delete(key)
        await self.begin(account.purge)
        return account

    async def forget(self, caller: str) -> bool:
        """Delete the account of a caller, if there is one, with all that it has; return whether all is gone."""
        left = False
        for key in keys_of(caller, self.host):
            if await self.accounts.find(key):
                await self.delete(key)
            else:
                await self.lists.forget(f"{key}@{self.host}")
            left = left or bool(await self._rows.find(WORK, purges_of(key), limit=1))
        return not left

    async def follow(self, account: Account, cursor: str | None) -> Reader:
        """Return a reader of what comes to an inbox after a cursor, or from now on. Raises BadRequest."""
        if cursor is not None:
            return Reader(self._rows, account.box, Cursor.parse(cursor), self._pacer)
        reader = Reader(self._rows, account.box, Cursor(self._stamps.now()), self._pacer)
        while await reader.next():
            pass  # that was there before
        return reader

    async def send(
        self,
        account: Account,
        draft: DraftRow,
        recipients: tuple[str, ...],
        tags: Sequence[str],
        key: str | None,
    ) -> Message:
        """Send a draft, and begin what is left of its delivery; see `Deliveries.send`."""
        message, is_open = await self.deliveries.send(account, draft, recipients, tags, key)
        if is_open:
            await self.begin(message.message_id)
        elif self._in_background:
            self.start()
        return message

    async def begin(self, name: str) -> None:
        """Take up work that this process has just noted, if it is there: now, behind the request, or elsewhere."""
        if self._in_background:
            self.start()
            self._spawn(self._try(name))
        elif self._wake is None or (WORK, name) in await self._rows.read((WORK, name)):
            await self._try(name)

    def start(self) -> None:
        """Look for work from now on, until `stop`."""
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Stop working; what remains stays noted."""
        sweeping, self._sweeping = self._sweeping, None
        tasks = self._tasks if sweeping is None else {*self._tasks, sweeping}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def resume(self) -> None:
        """Have all work done that is due."""
        if self._in_background:
            self.start()
        else:
            await self._resume()

    async def _resume(self) -> None:
        now = self._clock.now().timestamp()
        await self._note_tidying(now)
        found = await self._rows.find(WORK, "", after=self._after, limit=SWEPT)
        self._after = found[-1][0] if len(found) == SWEPT else ""
        due = [(name, text) for name, text in found if self._is_due(text, now)]
        for portion in batched(due, AT_ONCE):
            tried = await asyncio.gather(
                *(self._take_up(*each, now) for each in portion), return_exceptions=True
            )
            for error in filter(None, tried):
                raise error

    def _is_due(self, text: str, now: float) -> bool:
        """Return whether this process may take up a piece of work now."""
        work = Work.read(text)
        is_ours = work.work != "deliver" or self.deliveries.can_finish(Delivery.read(text))
        return work.due <= now and is_ours

    async def _take_up(self, name: str, text: str, now: float) -> None:
        """Have a piece of work done, unless another process has taken it up."""
        taken = Write((WORK, name), claimed(text, now), text)
        is_call = Work.read(text).work == "call"  # which has attempts of its own
        if is_call or await self._rows.write([taken]):
            await self._try(name)

    async def _note_tidying(self, now: float) -> None:
        """Note once a day that this host has to be tidied."""
        if now < self._tidy_at:
            return
        at = (await self._rows.read(TIDY_AT)).get(TIDY_AT)
        if at is not None and float(at) > now:
            self._tidy_at = float(at)
            return
        noted = [] if at is None else [Write((WORK, "tidy"), Tidy(now).text)]
        await self._rows.write([Write(TIDY_AT, repr(now + TIDY_SECONDS), at or PutIf.ABSENT), *noted])

    async def _tidy(self, name: str, text: str) -> None:
        """Continue to delete mail that is older than the retention, and to forget tasks that are gone."""
        work, row, seconds = Tidy.read(text), (WORK, name), self._retention
        before = format_utc(self._clock.now() - timedelta(seconds=seconds or 0.0))
        held = await self._held() if seconds else ()
        awaited = None if self.tasks is None else self.tasks.awaited
        for _ in range(PORTIONS):
            if work.place == ACCOUNTS:
                found = (
                    await self._rows.find(ACCOUNTS, "", after=work.after, limit=PORTION) if seconds else []
                )
                for account in (Account.read(each) for _, each in found):
                    if self._name_of(account) not in held:
                        await self.boxes.expire(account.box, before, awaited)
                work = replace(work, after=found[-1][0]) if found else replace(work, place=HELD, after="")
            else:
                after = await self.tasks.forget_gone(work.after, PORTION) if self.tasks else ""
                if not after:
                    await self._rows.write([Write(row, None, text)])
                    return
                work = replace(work, after=after)
            work = replace(work, due=self._clock.now().timestamp() + LEASE_SECONDS)
            if not await self._rows.write([Write(row, work.text, text)]):
                return  # another process has taken it up
            text = work.text

    async def _held(self) -> set[str]:
        """Return the callers, of any swarm, of whom nothing may be deleted."""
        return {hold.caller.rpartition("@")[0] for hold in await self._documents.holds() if not hold.task_id}

    def _name_of(self, account: Account) -> str:
        caller = self.caller_of(account)
        return f"{caller.role}:{caller.id}"

    async def _sweep(self) -> None:
        while True:
            try:
                await self._resume()
            except MAILError as error:
                logger.warning("mail can't be delivered now: %s", error)
            except Exception:  # the outermost loop
                logger.exception("mail can't be delivered")
            await asyncio.sleep(SWEEP_SECONDS)

    async def _try(self, name: str, seconds: float = 0.0) -> None:
        """Have a piece of work done; log what keeps it from being done, after which it is tried again."""
        try:
            await (self.work(name) if self._wake is None else self._wake(name, seconds))
        except MAILError as error:
            logger.warning("work on %s failed, and is tried again: %s", name, error)
        except Exception:  # the outermost loop
            logger.exception("work on %s failed, and is tried again", name)

    async def work(self, name: str) -> None:
        """Do a piece of work, if it is still there. Raises StoreUnavailable."""
        text = (await self._rows.read((WORK, name))).get((WORK, name))
        if text is None:
            return
        match Work.read(text).work:
            case "deliver":
                take = None if self.tasks is None else self.tasks.take
                async with aclosing(self.deliveries.finish(name, take)) as calls:
                    async for event_id in calls:
                        await self.begin(event_id)
            case "purge":
                await self.boxes.purge(name, Purge.read(text))
            case "forget":
                gone = Forget.read(text)
                if self.tasks is not None:
                    await self.tasks.forget(TaskKey(gone.instance, gone.task_id))
                await self._rows.write([Write((WORK, name), None)])
            case "tidy":
                await self._tidy(name, text)
            case "call":
                seconds = await self.webhooks.call(name)
                if seconds is None or seconds > SOON_SECONDS:
                    return
                if self._in_background:
                    self._spawn(self._try_later(name, seconds))
                elif self._wake is not None:
                    await self._try(name, seconds)

    async def _try_later(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._try(name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
