"""An exchange in memory or in a database: called the same way, by those who take both."""

import inspect
from collections.abc import Awaitable
from uuid import UUID

from mail.exchange.durable import DurableExchange
from mail.exchange.exchange import Exchange

AnyExchange = Exchange | DurableExchange


async def settled[T](result: T | Awaitable[T]) -> T:
    """The result of a method that is a coroutine on one of them only."""
    return await result if inspect.isawaitable(result) else result


async def owners_of(exchange: AnyExchange) -> list[UUID]:
    """Who is registered."""
    return exchange.owner_ids if isinstance(exchange, Exchange) else await exchange.owner_ids()
