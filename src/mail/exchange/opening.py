"""Opening an exchange that is kept in a database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mail.exchange.durable import DurableExchange


@asynccontextmanager
async def open_exchange(url: str) -> AsyncIterator[DurableExchange]:
    """The exchange in a database, which several processes may open at once.

    Args:
        url: `sqlite:///path.db`, or `dynamodb://table` with `?region=…&endpoint_url=…` where these are not those of
            the environment. `exchange=name` besides tells several exchanges in one database apart.

    Raises ConfigurationError for another URL, and for a database that can't be used.
    """
    from mail.bootstrap.backends import open_mailboxes

    store = await open_mailboxes(url)
    try:
        yield DurableExchange(store)
    finally:
        await store.close()
