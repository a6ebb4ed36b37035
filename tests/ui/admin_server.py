"""A server for tests of the admin view: the example swarm, with tasks, tokens, swarms and webhooks of a busy week."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
from page_server import PageServer
from support.processes.http_server import TIMEOUT

from mail.auth.keys import Caller
from mail.auth.tokens import issue, issue_link, issue_token
from mail.bootstrap import local
from mail.bootstrap.system import LocalSystem
from mail.config.models import ServerConfig
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.core.task.schedules import Schedule
from mail.core.task.usage import Usage, report_usage
from mail.core.task.webhooks import WebhookRecord
from mail.server.process import serving
from mail.swarms_json.load import PACKAGED_SOURCE
from mail.testing.agents import Call, View, build_swarm, complete
from mail.testing.clock import FakeClock

DAYS = 6
UNPRICED = Usage(calls=2, input_tokens=3000, output_tokens=400, unpriced_calls=2)

PEERS = (
    (
        PeerRecord(
            name="beta",
            base_url="https://beta.example",
            version="1.4",
            auth_token="${SWARM_AUTH_TOKEN_BETA}",
            public=True,
        ),
        PeerHealth(is_active=True, last_seen=datetime.now(UTC).isoformat(), latency=0.042),
    ),
    (
        PeerRecord(
            name="gamma", base_url="https://gamma.example/mail", caller_id="gamma-prod", volatile=True
        ),
        PeerHealth(is_active=False, last_seen=(datetime.now(UTC) - timedelta(hours=3)).isoformat()),
    ),
    (PeerRecord(name="delta", base_url="https://delta.example", auth="aws_iam"), None),
)


def work(view: View) -> list[Call]:
    """Report what a message says that it costs, in cents, or fail."""
    word, _, rest = view.mail.body.partition(" ")
    if word == "fail":
        raise RuntimeError("the model's provider refused the key")
    if word == "free":
        report_usage(UNPRICED, "local/llama")
    else:
        cents = int(word)
        report_usage(
            Usage(calls=3, input_tokens=cents * 900, output_tokens=cents * 70, cost=cents / 100),
            "openai/gpt-5-mini",
        )
    return [complete(f"done: {rest}")]


class AdminServer(PageServer):
    """Serves it; `tokens` are those of user `ann` and admin `root`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self._clock = FakeClock(start=datetime.now(UTC) - timedelta(days=DAYS))
        config = ServerConfig.model_validate({"auth": {"break_glass": True}}).with_overrides(
            database=str(self.folder / "mail.db"),
            swarm_source=str(PACKAGED_SOURCE),
            swarm_registry=str(self.folder / "registry.json"),
        )
        self._system = system = local(config, clock=self._clock, environ={})
        self.tokens = {
            "user": await issue_token(system.documents, Caller("user", "ann"), self._clock),
            "admin": await issue_token(system.documents, Caller("admin", "root"), self._clock),
        }
        async with serving(system) as self.url:
            await self._fill(system)
            yield

    async def _fill(self, system: LocalSystem) -> None:
        """Let scripted agents work on tasks, a few each day, before the example swarm takes over."""
        example = system.runtime.swarm
        system.runtime.swarm = build_swarm({"supervisor": work}, name=example.name)
        async with httpx2.AsyncClient(base_url=self.url, timeout=TIMEOUT) as client:

            async def ask(body: str, role: str, task_id: str) -> None:
                headers = {"Authorization": f"Bearer {self.tokens[role]}"}
                answer = await client.post(
                    "/message", json={"body": body, "task_id": task_id}, headers=headers
                )
                assert answer.status_code == 200, answer.text

            for day in range(DAYS):
                await ask(f"{7 * day % 11 + 1} Write the report of day {day}", "user", f"report-{day}")
                await ask(f"{day + 2} Answer the letters", "admin", f"letters-{day}")
                self._clock.advance(24 * 3600)
            await ask("free Summarise the news", "user", "news")
            await ask("fail Pay the invoice", "user", "invoice")
        system.runtime.swarm = example
        for peer, health in PEERS:
            await system.documents.set_peer(peer)
            if health is not None:
                await system.documents.set_peer_health(peer.name, health)
        hook = WebhookRecord(
            url="https://hooks.example/mail",
            secret_ref="${WEBHOOK_SECRET_OPS}",
            created=self._clock.now().isoformat(),
        )
        await system.documents.set_webhook(f"admin:root@{example.name}", hook, limit=10)
        for name, enabled in (("morning", True), ("evening", False)):
            await system.runtime.schedules.save(
                Schedule(
                    name=name,
                    cron="30 8 * * mon-fri",
                    timezone="Europe/Berlin",
                    body="What is new?",
                    caller="user:ann",
                    enabled=enabled,
                ),
                "admin:root",
                is_new=True,
            )
        expires = self._clock.now().timestamp() + 30 * 24 * 3600
        await issue(system.documents, Caller("agent", "beta"), self._clock, expires=expires)

    def link(self, role: str = "admin", name: str = "root") -> str:
        """The address that signs a browser in once."""
        caller = Caller("admin" if role == "admin" else "user", name)
        made = self.run(issue_link(self._system.documents, caller, self._clock))
        return f"{self.url}/ui#sign-in={made.code}"
