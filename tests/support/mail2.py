"""A server of MAIL 2.0 on a store, and people who use it."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

import httpx2
from fastapi import Request

from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.documents import CallerRole
from mail.core.task.ports import Store
from mail.core.task.rows import Rows
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey
from mail.core.task.webhooks import Reply, Webhook
from mail.errors import BadRequest
from mail.mail2.host import MailHost
from mail.mail2.remotes import Peers, Remotes
from mail.mail2.tasks import Tasks
from mail.net.secrets import EnvironmentTokens
from mail.net.webhooks import HTTPWebhooks
from mail.testing.agents import build_swarm, complete
from mail.testing.clock import FakeClock
from support.processes.http_server import HTTPServer

HOST = "mail.test"

NEW_LIST: dict[str, Any] = {"name": "tea", "swarm_name": "team", "owner": f"user:ann@{HOST}"}


class Receiver:
    """Receives what webhooks send, and answers with the statuses that it was given, then with 200."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Mapping[str, str], bytes]] = []
        self.answers: list[int | None] = []

    async def check(self, webhook: Webhook) -> None:
        """Refuse one address, as a private one is refused."""
        if "private" in webhook.url:
            raise BadRequest("its address is not public")

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float) -> Reply:
        """Note a request."""
        self.got.append((url, headers, body))
        return Reply(self.answers.pop(0) if self.answers else 200)


class Stage:
    """A server, on the rows of a store; with a swarm, its agents have addresses."""

    host: MailHost

    def __init__(
        self,
        rows: Rows,
        swarm: SwarmCore | None = None,
        store: Store | None = None,
        *,
        max_answer_bytes: int | None = None,
    ) -> None:
        self.rows = rows
        self._swarm = swarm
        self._store = store
        self._max_answer_bytes = max_answer_bytes
        self.receiver = Receiver()
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        swarm = self._swarm or build_swarm({"supervisor": lambda _: [complete("42")]})
        clock = SYSTEM_CLOCK if self._swarm is None else FakeClock()
        self.server = HTTPServer(
            swarm,
            store=self._store,
            clock=clock,
            mail_host=self._host,
            max_answer_bytes=self._max_answer_bytes,
        )
        await self._open.enter_async_context(self.server)
        self.host = self.another()
        if self.host.tasks is not None:
            self.connect(self.host.tasks)
        return self

    def connect(self, tasks: Tasks) -> None:
        """Let tasks send their mail by a host."""
        runtime, records = self.server.rig.runtime, self.server.records
        webhooks = HTTPWebhooks(records, EnvironmentTokens({}), runtime.clock, allow_private=False)
        webhooks.own["mail2"] = tasks.answer
        runtime.webhooks, runtime.members = webhooks, tasks

        async def forget(key: TaskKey) -> bool:
            await tasks.forget(key)
            return True

        runtime.forget = forget

    async def __aexit__(self, *_error: object) -> None:
        await self.host.stop()
        await self._open.aclose()

    async def _host(self, _request: Request) -> MailHost:
        return self.host

    def another(
        self,
        rows: Rows | None = None,
        *,
        in_background: bool = False,
        retention: float | None = None,
        caller_bytes: int | None = None,
        peers: Peers | None = None,
    ) -> MailHost:
        """The host in another process, which has its work done before it answers."""
        server, clock = self.server, self.server.rig.clock
        runtime = None if self._swarm is None else server.rig.runtime
        given = (rows or self.rows, server.records, clock, self.receiver, HOST)
        remotes = None if peers is None else Remotes(peers)
        options = {"retention": retention, "caller_bytes": caller_bytes}
        return MailHost(*given, runtime=runtime, in_background=in_background, remotes=remotes, **options)

    async def person(self, name: str, role: CallerRole = "user") -> "Person":
        """Somebody with an API key, whose account exists."""
        person = Person(self, await self.server.key(role, name), f"{role}:{name}@{HOST}")
        assert (await person.get("/auth/whoami")).status_code == 200
        return person

    async def log_in(self, address: str, password: str) -> "Person":
        """Somebody with a password."""
        return Person(self, (await self.token(address, password)).json()["access_token"], address)

    async def token(self, address: str, password: str, **fields: str) -> httpx2.Response:
        """The answer to a login."""
        form = {"username": address, "password": password, **fields}
        return await self.anonymous("POST", "/auth/token", data=form)

    async def anonymous(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """The answer to a request without a token, and without cookies of earlier ones."""
        self.server.client.cookies.clear()
        headers = {"Authorization": "", **request.pop("headers", {})}
        return await self.server.client.request(method, f"/v2{path}", headers=headers, **request)


class Person:
    """A client of the server."""

    def __init__(self, stage: Stage, token: str, address: str) -> None:
        self.stage = stage
        self.token = token
        self.address = address

    async def ask(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """The answer to a request."""
        headers = {"Authorization": f"Bearer {self.token}", **request.pop("headers", {})}
        return await self.stage.anonymous(method, path, headers=headers, **request)

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        return await self.ask("GET", path, params=query)

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return await self.ask("POST", path, json=body, headers=headers)

    async def box(self, name: str, **query: Any) -> list[dict[str, Any]]:
        """The entries of a box."""
        answer = await self.get(f"/{name}", **query)
        assert answer.status_code == 200, answer.text
        entries: list[dict[str, Any]] = answer.json()["entries"]
        return entries

    async def subjects(self, name: str = "inbox", **query: Any) -> list[str]:
        return [entry["subject"] for entry in await self.box(name, **query)]

    async def draft(self, subject: str = "Tea", body: str = "At four?", **fields: Any) -> str:
        """The id of a new draft."""
        answer = await self.post("/drafts", {"subject": subject, "body": body, **fields})
        assert answer.status_code == 200, answer.text
        draft_id: str = answer.json()["entry"]["draft"]["draft_id"]
        return draft_id

    async def send(
        self, *recipients: str, subject: str = "Tea", body: str = "At four?", **fields: Any
    ) -> dict[str, Any]:
        """A message that was sent."""
        draft = await self.draft(subject, body, **fields)
        answer = await self.post(f"/drafts/{draft}/send", {"recipients": list(recipients)})
        assert answer.status_code == 200, answer.text
        message: dict[str, Any] = answer.json()["message"]
        return message
