"""The server inside a program of one's own, on its event loop."""

from pathlib import Path

import httpx2
import pytest

from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import embedded, local
from mail.bootstrap.system import LocalSystem
from mail.config import ServerConfig
from mail.core.task.rows import Write
from mail.core.task.task import TaskKey
from mail.errors import ConfigurationError
from mail.mail2 import WORK
from mail.mail2.records import Purge
from mail.server.app import create_app
from mail.server.process import serving
from mail.testing.agents import build_swarm, complete


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerConfig:
    monkeypatch.chdir(tmp_path)
    defaults = ServerConfig.model_validate({})
    return defaults.with_overrides(database=str(tmp_path / "mail.db"))


def system_of(config: ServerConfig, **environ: str) -> LocalSystem:
    return local(config, environ=environ)


async def test_serving_answers_and_stops(config: ServerConfig) -> None:
    system = system_of(config)
    headers = {"Authorization": f"Bearer {await issue_token(system.documents, Caller('user', 'ann'))}"}
    async with serving(system) as url, httpx2.AsyncClient(base_url=url, headers=headers) as client:
        answer = await client.post("/message", json={"body": "6*7"})
        assert answer.json()["response"] == "6*7 = 42."
    async with httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(url)
    await system_of(config).stop()  # the database is free again


async def test_serving_after_a_failure_inside(config: ServerConfig) -> None:
    with pytest.raises(ZeroDivisionError):
        async with serving(system_of(config)):
            raise ZeroDivisionError
    await system_of(config).stop()


async def test_the_application_starts_and_stops_its_workers(
    config: ServerConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    app = create_app(config)
    async with app.router.lifespan_context(app):
        token = capsys.readouterr().out.partition("user   ")[2].split()[0]
        headers = {"Authorization": f"Bearer {token}"}
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://mail", headers=headers) as client:
            assert (await client.post("/message", json={"body": "6*7"})).json()["response"] == "6*7 = 42."
    await system_of(config).stop()


async def test_stopping_twice_is_fine(config: ServerConfig) -> None:
    system = system_of(config)
    await system.start()
    await system.stop()
    await system.stop()


async def test_agents_can_read_the_protocol(config: ServerConfig) -> None:
    system = system_of(config)
    specification = Path(__file__).parent.parent.parent / "spec" / "SPEC.md"
    assert system.swarm.protocol == specification.read_text(encoding="utf-8")
    await system.stop()


async def test_settings_reach_the_swarm(config: ServerConfig) -> None:
    settings = config.settings.model_copy(update={"task_message_limit": 7})
    system = system_of(config.model_copy(update={"settings": settings}))
    assert system.swarm.task_message_limit == 7
    await system.stop()


async def test_external_authentication_needs_both_endpoints(config: ServerConfig) -> None:
    with pytest.raises(ConfigurationError, match="TOKEN_INFO_ENDPOINT is not"):
        system_of(config, AUTH_ENDPOINT="http://auth/login")
    both = {"AUTH_ENDPOINT": "http://auth/login", "TOKEN_INFO_ENDPOINT": "http://auth/check"}
    system = system_of(config, **both)
    assert not system.issues_tokens
    await system.stop()


async def test_work_of_a_mail_host_that_has_no_name_yet_stops_no_sweep(config: ServerConfig) -> None:
    system = system_of(config)
    rows = system._rows
    assert rows is not None
    await rows.write([Write((WORK, "purge x"), Purge(0.0, "x").text)])
    await system.resume_mail()
    assert await rows.find(WORK, "")
    await system.stop()


async def test_a_program_has_no_mail_to_forget_of_its_tasks() -> None:
    system = embedded(build_swarm({"supervisor": lambda _: [complete("42")]}))
    await system.start()
    forget = system.runtime.forget
    assert forget is not None
    assert await forget(TaskKey("user:ann@example", "task"))
    await system.stop()
    system.close()
