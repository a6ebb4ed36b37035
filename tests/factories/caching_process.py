"""A program that the test of caching kills: an agent with a system prompt of 20,000 tokens, in a task of many turns."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from mail import Agent, Swarm, action
from mail.adapters.aws.client import Aws
from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.store import PostgresStore
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.task.ports import Store
from mail.core.task.task import TaskKey
from mail.testing.clock import EPOCH, FakeClock
from mail.testing.rig import Rig

SYSTEM = "You look up the weather of cities. " + "Say it briefly. " * 5000
"""80 kB."""


@action
async def look_up(city: str) -> str:
    """Look up the weather of a city."""
    return f"It is sunny in {city}. " * 4


def swarm_of(model: str, **options: Any) -> Swarm:
    """A swarm of one agent, which calls the model until its task is complete."""
    lead = Agent("lead", SYSTEM, model=model, actions=[look_up], **options)
    return Swarm(lead, task_message_limit=None)


@asynccontextmanager
async def opened(place: str) -> AsyncGenerator[Store]:
    """Open the store in a file, at the URL of a PostgreSQL, or in a table of DynamoDB."""
    if place.startswith("postgresql:"):
        postgres = Postgres(place)
        notifier = Notifier(postgres)
        await notifier.start()
        yield PostgresStore(postgres, notifier, clock=EPOCH.timestamp)
        await notifier.stop()
        await postgres.close()
    elif place.startswith("/"):
        with SQLiteDatabase(place) as database:
            yield SQLiteStore(database)
    else:
        yield DynamoDBStore(Aws().client("dynamodb"), place)


async def main(place: str, run: int) -> None:
    """Run the task `t` to its end, from wherever an earlier process has left it, whose lease has expired."""
    core = swarm_of("anthropic/claude-sonnet-4-5", thinking_budget=2048).template.to_core()
    clock = FakeClock(run, EPOCH + timedelta(hours=run))
    async with opened(place) as store, Rig(core, store=store, clock=clock) as rig:
        key = TaskKey(str(rig.user), "t")
        if not run:
            await rig.submit("Work", task_id="t")
        while (await rig.task(key)).is_running:  # noqa: ASYNC110 - begun by another process
            await asyncio.sleep(0.01)
        spent = (await rig.task(key)).usage["lead"]
    print(spent.calls, spent.input_tokens, spent.cached_tokens, spent.cache_write_tokens, spent.cost)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
