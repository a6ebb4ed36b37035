"""Servers on real sockets of this process, and a client that reads MAIL's streams.

async with HTTPServer(build_swarm({"supervisor": turns([complete("hi")])})) as server:
    answer = await server.post(body="hello")
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import Any, Self

import httpx2
import uvicorn
from starlette.types import ASGIApp

from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.auth.keys import Authenticator, Caller
from mail.auth.tokens import TokenAuthenticator, issue_token
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.documents import IN_MEMORY, CallerRole
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.http.app import create_app
from mail.http.routes import load_routers
from mail.http.service import Service, StopSignal
from mail.net.secrets import EnvironmentTokens
from mail.net.webhooks import HTTPWebhooks
from mail.public_urls import tls
from mail.testing.rig import Rig

TIMEOUT = 60.0
"""Seconds after which a request counts as hung."""


@dataclass(frozen=True)
class Frame:
    """One Server-Sent Event."""

    event: str
    data: dict[str, Any]
    id: str | None


class QuickUvicorn(uvicorn.Server):
    """Uvicorn on a free port, or the given one, of this event loop, without its fixed sleeps.

    `stopping` is set before it waits for open connections, as `mail server` does.
    """

    def __init__(self, app: ASGIApp, stopping: StopSignal | None = None, port: int = 0) -> None:
        super().__init__(uvicorn.Config(app, port=port, lifespan="off", log_config=None, access_log=False))
        self._stopping = stopping or StopSignal()
        self._ready = asyncio.Event()
        self._exit = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self.serve())
        await self._ready.wait()
        self.port: int = self.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Shut down as a signal would make it."""
        self._exit.set()
        await self._serving

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self._ready.set()
        await self._exit.wait()

    async def shutdown(self, sockets: Any = None) -> None:
        self._stopping.set()
        for _ in range(10):  # let it notice what clients have closed
            await asyncio.sleep(0)
        if self.server_state.connections:
            await super().shutdown(sockets)
        for server in self.servers:
            server.close()


async def eventually(check: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until the check holds. Fails when it never does."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            holds = check()
            if await holds if isawaitable(holds) else holds:
                return
            await asyncio.sleep(0.005)


class HTTPServer:
    """Serves a swarm on a port of its own, with a built-in token for each role.

    Settings are those of `Service`. The callers of `keys` are user `ann`, admin `root` and agent `other`.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        *,
        path: str | Path = IN_MEMORY,
        store: Store | None = None,
        clock: Clock = SYSTEM_CLOCK,
        authenticator: Authenticator | None = None,
        cors_origins: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.rig = Rig(swarm, path=path, store=store, clock=clock)
        self.keys: dict[str, str] = {}
        self._open = AsyncExitStack()
        self._authenticator = authenticator
        self._cors_origins = cors_origins
        self._settings = settings

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self.rig)
        self.records = ServerDocuments(SQLiteDocuments(self.rig.database))
        self.keys = {
            "user": await self.key("user", "ann"),
            "admin": await self.key("admin", "root"),
            "agent": await self.key("agent", "other"),
        }
        self.service = Service(
            self.rig.runtime,
            self.records,
            self._authenticator or TokenAuthenticator(self.records, self.rig.clock),
            started=self.rig.clock.now().timestamp(),
            **self._settings,
        )
        self.app = create_app(self.service, load_routers(), cors_origins=self._cors_origins)
        self.uvicorn = await self._open.enter_async_context(QuickUvicorn(self.app, self.service.stopping))
        self.port = self.uvicorn.port
        self.client = await self._open.enter_async_context(
            httpx2.AsyncClient(
                base_url=self.uvicorn.url, headers=self.headers("user"), timeout=TIMEOUT, verify=tls()
            )
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._open.aclose()

    def send_webhooks(
        self, environ: Mapping[str, str] | None = None, *, allow_private: bool = True, **settings: Any
    ) -> HTTPWebhooks:
        """Let the server send webhooks, with the secrets of an environment."""
        secrets, clock = EnvironmentTokens(environ or {}), self.rig.clock
        made = HTTPWebhooks(self.records, secrets, clock, allow_private=allow_private, **settings)
        self.rig.runtime.webhooks = made
        return made

    async def key(self, role: CallerRole, name: str) -> str:
        """A fresh key."""
        return await issue_token(self.records, Caller(role, name))

    def headers(self, role: str) -> dict[str, str]:
        """The headers of the role's caller."""
        return {"Authorization": f"Bearer {self.keys[role]}"}

    async def post(self, *, headers: dict[str, str] | None = None, **fields: Any) -> httpx2.Response:
        """`POST /message` with these fields, `hello` as the body if none is given."""
        return await self.client.post("/message", json={"body": "hello", **fields}, headers=headers)

    async def ask(self, **fields: Any) -> dict[str, Any]:
        """The answer to `POST /message`, which must be 200."""
        response = await self.post(**fields)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def get(self, path: str, role: str = "user", **query: Any) -> Any:
        """What is there for the role's caller, which must be 200."""
        response = await self.client.get(path, params=query or None, headers=self.headers(role))
        assert response.status_code == 200, response.text
        return response.json()

    async def task(self, task_id: str) -> dict[str, Any]:
        """The record of a task, which must exist."""
        record: dict[str, Any] = await self.get("/task", task_id=task_id)
        return record

    async def until(self, is_so: Callable[[dict[str, Any]], object], task_id: str = "t") -> None:
        """Wait until the record of a task is so."""

        async def holds() -> bool:
            return bool(is_so(await self.task(task_id)))

        await eventually(holds)

    @asynccontextmanager
    async def frames(self, method: str, url: str, **request: Any) -> AsyncIterator[AsyncIterator[Frame]]:
        """The events of a stream, which must be 200."""
        async with self.client.stream(method, url, **request) as response:
            assert response.status_code == 200, await response.aread()
            yield read_frames(response)

    async def stream(self, **fields: Any) -> list[Frame]:
        """All events of `POST /message` with `stream: true`."""
        body = {"body": "hello", "stream": True, **fields}
        async with self.frames("POST", "/message", json=body) as frames:
            return [frame async for frame in frames]


async def read_frames(response: httpx2.Response) -> AsyncIterator[Frame]:
    """The events of a response, as they arrive."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            assert name not in fields, f"{name} twice in one frame"
            fields[name] = value
        elif fields:
            yield Frame(fields["event"], json.loads(fields["data"]), fields.get("id"))
            fields = {}
    assert not fields, f"the stream ends inside a frame: {fields}"
