"""A host of MAIL 2.0: what it is made of, and its work behind the requests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import Clock
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.errors import MAILError, NotFound
from mail.mail2 import WORK
from mail.mail2.accounts import Accounts
from mail.mail2.agents import Agents
from mail.mail2.arrivals import Cursor, Reader
from mail.mail2.boxes import Boxes
from mail.mail2.delivery import Deliveries, no_agents
from mail.mail2.lists import Lists
from mail.mail2.records import Account, Purge, Stamps, Work, purges_of
from mail.mail2.swarms import Swarms
from mail.mail2.tasks import SUBMISSIONS_PER_HOUR, Tasks
from mail.mail2.webhooks import Sender, Webhooks

SWEEP_SECONDS = 10.0
"""Seconds between two looks for work that another process has left, or that is due by now."""

SOON_SECONDS = 60.0
"""Work that is due within so many seconds is waited for; a sweep finds the rest."""

NAME = ("mail2:host", "name")
"""The row with the name of the host, for functions that no request names it to."""

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
        per_hour: the number of submissions to a task in an hour from a sender that is no person; 0 for no limit.
        wake: has another process call `work`, in so many seconds; None if this one does it.
        in_background: whether this process lives on after a request; if not, the request waits for the work that it
            makes, and somebody has to call `resume` for the rest.
    """

    def __init__(
        self,
        rows: Rows,
        documents: ServerDocuments,
        clock: Clock,
        sender: Sender,
        host: str,
        *,
        runtime: Runtime | None = None,
        per_hour: int = SUBMISSIONS_PER_HOUR,
        wake: Wake | None = None,
        in_background: bool = True,
    ) -> None:
        stamps = Stamps(clock)
        self.host = host
        self._rows = rows
        self.accounts = Accounts(rows, documents, clock, stamps, host)
        self.boxes = Boxes(rows, stamps)
        self.lists = Lists(rows, stamps, host)
        self.agents = Agents(lambda: None if runtime is None else runtime.swarm)
        self.swarms = Swarms(rows, self.accounts, self.agents)
        self.webhooks = Webhooks(rows, clock, stamps, sender, host)
        self.deliveries = Deliveries(
            rows, clock, stamps, self.accounts, self.lists, self.webhooks, host, self.agents
        )
        self.tasks = None if runtime is None else self._make_tasks(runtime, per_hour)
        self._stamps = stamps
        self._clock = clock
        self._wake = wake
        self._in_background = in_background and wake is None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    async def forget(self, key: str) -> bool:
        """Delete an account, if there is one, with its boxes and memberships of lists; return whether all is gone."""
        for account in (await self.accounts.find(key)).values():
            await self.accounts.delete(key)
            await self.begin(account.purge)
        address = f"{key}@{self.host}"
        for each in await self.lists.all():
            if address in each["members"]:
                await self.lists.remove(f"list:{each['name']}@{each['swarm']}", address)
        return not await self._rows.find(WORK, purges_of(key), limit=1)

    async def follow(self, account: Account, cursor: str | None) -> Reader:
        """Return a reader of what comes to an inbox after a cursor, or from now on. Raises BadRequest."""
        if cursor is not None:
            return Reader(self._rows, account.box, Cursor.parse(cursor))
        reader = Reader(self._rows, account.box, Cursor(self._stamps.now()))
        while await reader.next():
            pass  # that was there before
        return reader

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
        for name, text in await self._rows.find(WORK, ""):
            if Work.read(text).due <= now:
                await self._try(name)

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
                for event_id in await self.deliveries.finish(
                    name, no_agents if self.tasks is None else self.tasks.take
                ):
                    await self.begin(event_id)
            case "purge":
                await self.boxes.purge(name, Purge.read(text))
            case "call":
                seconds = await self.webhooks.call(name)
                if seconds is None or seconds > SOON_SECONDS:
                    return
                if self._in_background:
                    self._spawn(self._try_later(name, seconds))
                elif self._wake is not None:
                    await self._try(name, seconds)

    def _make_tasks(self, runtime: Runtime, per_hour: int) -> Tasks:
        posted = (self.agents, self.lists, self.deliveries, self.host, self.begin)
        return Tasks(self._rows, runtime, *posted, per_hour)

    async def _try_later(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._try(name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
