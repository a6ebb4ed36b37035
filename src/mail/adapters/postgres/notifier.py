"""News over LISTEN/NOTIFY: whoever waits for a topic, in whatever process, is told that there is something to look at.

A notification is a hint: it may be lost, as those of the moments in which the connection is down are. So whoever waits looks
again now and then. They are sent by themselves and not in the transaction that they tell of, several at once: a
commit that notifies holds a lock of the whole database until it is on the disk.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import psycopg

from mail.adapters.postgres.pool import Connection, Postgres, one_line
from mail.errors import StoreUnavailable

CHANNEL = "mail"

POLL_SECONDS = 3.0
"""How long one who waits goes on without a look, for want of news."""

PAYLOAD_BYTES = 7_000
"""PostgreSQL takes 8,000."""

RECONNECT_SECONDS = 1.0

SERVER_KEEPALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""So that PostgreSQL notices within half a minute that the machine of a session is gone; with its process, it does at once."""

logger = logging.getLogger(__name__)

AtConnect = Callable[[Connection], Awaitable[None]]


class Subscription:
    """What one who waits for a topic holds."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Return when there has been news since this was called last, when it is time for a look, or time is up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), min(seconds, POLL_SECONDS))
        self._rung.clear()

    def ring(self) -> None:
        """There is news."""
        self._rung.set()


class Notifier:
    """The news of one database, between `start` and `stop`. Without them, only those of this process.

    Attributes:
        at_connect: what is to be done on the connection that listens, each time that it is made; it stays open for as
            long as the process lives.
    """

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._name = uuid4().hex
        self._waiting: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._to_send: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self.at_connect: list[AtConnect] = []

    async def start(self) -> None:
        """Listen. Returns as soon as the connection is there; until that is possible, it tries."""
        self._listening = asyncio.create_task(self._listen())
        await self._connected.wait()

    async def stop(self) -> None:
        """Listen no more; what was rung is sent."""
        if self._sending is not None:
            await self._sending
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None

    @contextmanager
    def subscribe(self, topic: str) -> Iterator[Subscription]:
        """Hear of a topic from now on: subscribe first, then look whether you have to wait."""
        news = Subscription()
        self._waiting[topic].add(news)
        try:
            yield news
        finally:
            self._waiting[topic].discard(news)
            if not self._waiting[topic]:
                del self._waiting[topic]

    def ring(self, *topics: str) -> None:
        """Tell all who wait for these topics: here at once, elsewhere soon."""
        self._tell(topics)
        self._to_send |= dict.fromkeys(topics)
        if self._sending is None and self._listening is not None:
            self._sending = asyncio.create_task(self._send())

    def _tell(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for news in self._waiting.get(topic, ()):
                news.ring()

    async def _send(self) -> None:
        try:
            while self._to_send:
                topics, self._to_send = self._to_send, {}
                for payload in _payloads(self._name, topics):
                    await self._postgres.fetch("SELECT pg_notify(%s, %s)", (CHANNEL, payload))
        except StoreUnavailable:
            logger.warning("others are not told what has happened; they will look by themselves")
        finally:
            self._sending = None

    async def _listen(self) -> None:
        is_told = False
        while True:
            try:
                connection = await self._postgres.connect()
                async with connection:
                    for name, value in SERVER_KEEPALIVE.items():
                        await connection.execute("SELECT set_config(%s, %s, false)", (name, value))
                    await connection.execute(f"LISTEN {CHANNEL}")
                    for act in self.at_connect:
                        await act(connection)
                    self._connected.set()
                    is_told = False
                    self._tell([*self._waiting])  # who knows what was missed
                    async for notification in connection.notifies():
                        sender, *topics = notification.payload.split(",")
                        if sender != self._name:
                            self._tell(topics)
            except psycopg.Error as error:
                if not is_told:
                    logger.warning("%s: nobody listens for news: %s", self._postgres.name, one_line(error))
                is_told = True
            await asyncio.sleep(RECONNECT_SECONDS)


def _payloads(sender: str, topics: Iterable[str]) -> Iterator[str]:
    """The topics, after the name of their sender, in as few payloads as they fit into."""
    payload = sender
    for topic in topics:
        if len(payload) + len(topic) >= PAYLOAD_BYTES:
            yield payload
            payload = sender
        payload += f",{topic}"
    yield payload
