"""The servers that `bench.http` calls: `python -m bench.servers mail|large|floor <database>`, each a process of its
own.

Prints one JSON line, `{"url", "token"}`, once it answers. Then answers every line on stdin with the CPU
seconds that the process has used so far, and ends when stdin does.

    mail    MAIL itself, as `mail server` runs it, with a swarm whose only turn completes the task
    large   MAIL with the example swarm of `swarms.json` and the default limits
    floor   an empty FastAPI route that commits one floor transaction, under the same uvicorn settings
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from bench.floor import Floor
from bench.swarms import ANSWER, single
from mail import startup
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.config import LimitsConfig, ServerConfig
from mail.server.malloc import return_freed_memory
from mail.server.process import LOOPBACK, base_url, listen, serving


@asynccontextmanager
async def mail(database: Path) -> AsyncIterator[tuple[str, str]]:
    """MAIL on a new database; gives its URL and a user's token."""
    limits = LimitsConfig(requests_per_second=0)  # as fast as it goes
    config = ServerConfig(limits=limits).with_overrides(database=str(database))
    system = local(config, swarm=single(), environ={})
    token = await issue_token(system.documents, Caller("user", "ann"))
    async with serving(system) as url:
        startup.end()  # as `mail server` does
        yield url, token


@asynccontextmanager
async def large(database: Path) -> AsyncIterator[tuple[str, str]]:
    """MAIL as it is by default, on a new database; gives its URL and a user's token."""
    return_freed_memory()  # as `mail server` does
    system = local(ServerConfig().with_overrides(database=str(database)), environ={})
    token = await issue_token(system.documents, Caller("user", "ann"))
    async with serving(system) as url:
        startup.end()
        yield url, token


@asynccontextmanager
async def floor(database: Path) -> AsyncIterator[tuple[str, str]]:
    """The floor's route on a new database."""
    app = FastAPI()
    with Floor(database) as task, listen(LOOPBACK, 0) as listener:

        @app.post("/message")
        async def message() -> dict[str, str | None]:
            task.turn()
            return {"response": ANSWER, "events": None}

        server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None, access_log=False))
        running = asyncio.create_task(server.serve([listener]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield base_url(LOOPBACK, listener), ""
        server.should_exit = True
        await running


async def main(kind: str, database: Path) -> None:
    """Serve until stdin ends."""
    async with {"mail": mail, "large": large, "floor": floor}[kind](database) as (url, token):
        print(json.dumps({"url": url, "token": token}), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(time.process_time(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
