"""Dumping and replacing the swarm that a server runs."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer
from support.processes.projects import entry, supervisor

from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.bootstrap.system import LocalSystem
from mail.config import ServerConfig
from mail.core.task.documents import CallerRole
from mail.server.process import serving
from mail.swarms_json import load_swarm
from mail.swarms_json.current import CurrentSwarm
from mail.swarms_json.load import PACKAGED_SOURCE
from mail.swarms_json.secrets import without_secrets

NAME = "example-no-proxy"


SMALL = entry(
    NAME,
    supervisor("supervisor", "mail.examples.rule_based:Supervisor", actions=["ask_human"]),
    actions=[{"name": "ask_human", "description": "Ask."}],
    breakpoint_tools=["ask_human"],
)


def config(path: Path, **flags: Any) -> ServerConfig:
    return ServerConfig().with_overrides(
        swarm_name=NAME, swarm_source=str(PACKAGED_SOURCE), database=str(path), **flags
    )


def changed(**changes: Any) -> str:
    """The configured swarm with changes, as JSON."""
    return json.dumps({**load_swarm(NAME, PACKAGED_SOURCE).model_dump(mode="json"), **changes})


def asking(parameters: Any) -> str:
    """The configured swarm with these parameters of its breakpoint tool."""
    *others, ask = json.loads(changed())["actions"]
    return changed(actions=[*others, {**ask, "parameters": parameters}])


class Client:
    def __init__(self, url: str, system: LocalSystem) -> None:
        self.system = system
        self._http = httpx2.AsyncClient(base_url=url)
        self._keys: dict[str, str] = {}

    async def call(
        self, method: str, path: str, body: Any = None, role: CallerRole = "admin"
    ) -> httpx2.Response:
        if role not in self._keys:
            self._keys[role] = await issue_token(self.system.documents, Caller(role, role))
        headers = {"Authorization": f"Bearer {self._keys[role]}"}
        return await self._http.request(method, path, json=body, headers=headers)

    async def load(self, text: Any, role: CallerRole = "admin") -> httpx2.Response:
        return await self.call("POST", "/swarms/load", {"json": text}, role)

    async def version(self) -> str:
        return str((await self.call("GET", "/")).json()["swarm"]["version"])

    async def close(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def running(path: Path, **flags: Any) -> AsyncIterator[Client]:
    system = local(config(path, **flags))
    async with serving(system) as url:
        client = Client(url, system)
        try:
            yield client
        finally:
            await client.close()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with running(tmp_path / "mail.db") as client:
        yield client


async def test_a_turn_shows_what_its_agent_was_given_then(client: Client) -> None:
    await client.call("POST", "/message", {"body": "2 + 3", "task_id": "t"})

    async def setup(seq: int) -> dict[str, Any]:
        turn = await client.call("GET", f"/task/turn?task_id=t&seq={seq}")
        found: dict[str, Any] = turn.json()["setup"]
        return found

    then = await setup(2)
    assert then["is_present"]
    assert then["options"] == {}
    swarm = json.loads(changed(version="2.0", code="abc"))
    swarm["agents"][0]["agent_params"] = {"note": "be brief", "db_pass": "s3cret"}
    swarm["actions"][-1]["description"] = "Ask a person."
    assert (await client.load(json.dumps(swarm))).status_code == 200
    await client.call("POST", "/message", {"body": "2 + 3", "task_id": "t"})
    last = int((await client.call("GET", "/task?task_id=t")).json()["seq"])
    now = await setup(last)
    assert (now["name"], now["code"], now["is_present"]) == ("2.0", "abc", True)
    assert now["options"] == {"note": "be brief", "db_pass": "(hidden)"}
    assert await setup(2) == {**then, "is_present": False}
    assert [tool["description"] for tool in now["tools"]] == ["Ask a person."] != then["tools"]
    versions = client.system.runtime.versions
    assert versions is not None
    kept = await versions.read(now["version"])
    assert kept is not None
    assert "s3cret" not in str(kept)


class TestDump:
    async def test_dump(self, client: Client, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "mail"):
            answer = (await client.call("GET", "/swarms/dump")).json()
        assert (answer["status"], answer["swarm_name"]) == ("dumped", NAME)
        assert answer["swarm"]["entrypoint"] == "supervisor"
        assert f"swarm {NAME}: {{" in caplog.text

    async def test_secrets_are_hidden(self, client: Client) -> None:
        agents = json.loads(changed())["agents"]
        agents[0]["agent_params"] = {"user_token": "s3cret", "deep": [{"API_KEY": "s3cret", "llm": "x/y"}]}
        assert (await client.load(changed(agents=agents))).status_code == 200
        answer = await client.call("GET", "/swarms/dump")
        assert "s3cret" not in answer.text
        assert "x/y" in answer.text

    @pytest.mark.parametrize(
        "params",
        [
            {"auth": {"user": "ann", "word": "s3cret"}},
            {"Authorization": ["s3cret"]},
            {"passwd": "s3cret"},
            {"db_password": 4711},
            {"tokens": ["s3cret"]},
            {"headers": {"X-Whatever": "s3cret"}},
            {"extra_headers": {"X-Whatever": "s3cret"}},
            {"db_pass": "s3cret"},
            {"access_key": {"id": "s3cret"}},
            {"sessionToken": "s3cret"},
            {"deep": [{"cookies": {"a": ["s3cret"]}}]},
            {"headers_to_send": [{"name": "X-Api-Key", "value": "s3cret"}]},
            {"url": "https://ann:s3cret@example.com/?page=1"},
            {"url": "https://example.com/?page=1&api_key=s3cret"},
            {"note": "send Bearer s3cret-and-more"},
            {"note": "sk-s3cret-and-more"},
            {"env": {"DATABASE": "s3cret"}},
        ],
    )
    def test_what_is_a_secret(self, params: Any) -> None:
        shown = json.dumps(without_secrets({"agent_params": params}))
        assert "s3cret" not in shown
        assert "4711" not in shown

    def test_what_is_none(self) -> None:
        entry = load_swarm(NAME, PACKAGED_SOURCE).model_dump(mode="json")
        assert without_secrets(entry) == entry
        fine = {
            "llm": "openai/gpt-5-mini",
            "max_tokens": 4096,
            "stream_tokens": True,
            "user_token": None,
            "author": "ann",
            "keywords": ["weather"],
            "system": "You are the bearer of a basic authority. See https://example.com/a?page=2&size=3.",
        }
        assert without_secrets(fine) == fine

    async def test_a_server_whose_swarm_is_fixed(self, server: HTTPServer) -> None:
        admin = server.headers("admin")
        for response in (
            await server.client.get("/swarms/dump", headers=admin),
            await server.client.post("/swarms/load", json={"json": "{}"}, headers=admin),
        ):
            assert response.status_code == 404
            assert "neither dumped nor replaced" in response.json()["detail"]


class TestLoad:
    async def test_tasks_go_on_with_the_new_swarm(self, client: Client) -> None:
        response = await client.load(
            changed(version="2.0.0", breakpoint_tools=["ask_human", "calculate_expression"])
        )
        assert response.json() == {"status": "success", "swarm_name": NAME}
        assert await client.version() == "2.0.0"
        answer = await client.call("POST", "/message", {"body": "2*(3+4)"}, "user")
        assert "calculate_expression" in answer.json()["response"]

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("{", "is not valid JSON"),
            ("[]", "must be one swarm"),
            (changed(name="other"), "load one of that name"),
            (changed(entrypoint="supervisr"), "Did you mean 'supervisor'"),
            (changed(entrypont="x"), "unknown key"),
            (changed(action_imports=["python::os:system"]), "may not be imported"),
            (changed(description="half \ud83d"), "is not valid JSON"),
            (changed(**{"\ud83d": 1}), "is not valid JSON"),
            (changed(agents=json.loads("[" * 300 + "]" * 300)), "is not valid JSON"),
            (asking({"type": "array"}), "of type 'object'"),
            (
                asking({"properties": []}),
                "properties must be an object",
            ),
            (changed(action_imports=["python::mail.server:serve"]), "may not be imported"),
            (changed(mcp={"desk": {"command": "sh"}}), "may not start programs"),
            (
                changed(mcp={"desk": {"url": "https://x", "headers": {"A": "${HOME}"}}}),
                "may not read environment",
            ),
            (changed(mcp={"desk": {"comand": "sh"}}), "Did you mean 'command'"),
        ],
    )
    async def test_what_is_refused(self, client: Client, text: str, complaint: str) -> None:
        response = await client.load(text)
        assert response.status_code == 400
        assert complaint in response.json()["detail"]
        assert await client.version() == "1.3.0"
        assert await client.system.documents.loaded_swarm() is None

    async def test_private_urls_are_not_asked(self, client: Client) -> None:
        agents = json.loads(changed())["agents"]
        agents[0]["agent_params"] = {"system": "url::http://169.254.169.254/latest/meta-data"}
        response = await client.load(changed(agents=agents))
        assert response.status_code == 400
        assert "not a public address" in response.json()["detail"]

    @pytest.mark.parametrize("body", [{}, {"json": None}, {"json": {}}, []])
    async def test_no_text(self, client: Client, body: Any) -> None:
        assert (await client.call("POST", "/swarms/load", body)).status_code == 400


class TestPersistence:
    async def test_a_restart_keeps_it(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        async with running(tmp_path / "mail.db") as client:
            await client.load(changed(version="2.0.0"))
        with caplog.at_level(logging.INFO, "mail"):
            async with running(tmp_path / "mail.db") as client:
                assert await client.version() == "2.0.0"
        assert "is the one that was loaded on" in caplog.text

    async def test_settings_that_are_left_out_while_unset_are_kept(self, client: Client) -> None:
        given = {
            "strict_tools": True,
            "output_schema": {"type": "object"},
            "agents": [{**SMALL["agents"][0], "strict_tools": False}],
            "actions": [{"name": "ask_human", "needs_approval": {"by": ["admin"]}, "approval_timeout": 60.0}],
        }
        response = await client.load(json.dumps({**SMALL, **given}))
        assert response.status_code == 200, response.text
        loaded = await client.system.documents.loaded_swarm()
        assert loaded is not None
        stored = json.loads(loaded.text)
        assert (stored["strict_tools"], stored["output_schema"]) == (True, {"type": "object"})
        assert stored["agents"][0]["strict_tools"] is False
        assert stored["actions"][0]["approval_timeout"] == 60.0

    async def test_a_changed_configuration_goes_first(self, tmp_path: Path) -> None:
        async with running(tmp_path / "mail.db") as client:
            await client.load(changed(version="2.0.0"))
        source = tmp_path / "swarms.json"
        source.write_text(f"[{changed(version='3.0.0')}]", encoding="utf-8")
        changed_config = config(tmp_path / "mail.db").with_overrides(swarm_source=str(source))
        async with serving(local(changed_config)) as url:
            answer = await asyncio.to_thread(httpx2.get, url)
            assert answer.json()["swarm"]["version"] == "3.0.0"

    async def test_what_can_not_be_built_any_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with running(tmp_path / "mail.db") as client:
            await client.load(changed(version="2.0.0"))
        strict = config(tmp_path / "mail.db")
        settings = strict.settings.model_copy(update={"allowed_imports": ["mail.stdlib"]})
        system = local(strict.model_copy(update={"settings": settings}))
        async with serving(system) as url:
            assert (await asyncio.to_thread(httpx2.get, url)).json()["swarm"]["version"] == "1.3.0"
        assert "can't be built here" in caplog.text

    async def test_other_processes_come_to_it(self, tmp_path: Path) -> None:
        async with running(tmp_path / "mail.db") as client:
            system = client.system
            built: list[str] = []

            def build(entry: Any, _again: bool) -> Any:
                built.append(entry.version)
                return system.runtime.swarm

            class Clock:
                seconds = 0.0

                def now(self) -> Any:
                    moment = system.clock.now()
                    return moment.fromtimestamp(moment.timestamp() + self.seconds, moment.tzinfo)

            class OtherRuntime:
                swarm = system.runtime.swarm
                clock = Clock()
                versions = None

            other = CurrentSwarm(OtherRuntime(), system.documents, load_swarm(NAME, PACKAGED_SOURCE), build)  # type: ignore[arg-type]
            await other.refresh()
            await client.load(changed(version="2.0.0"))
            await other.refresh()
            assert (built, other.entry.version) == ([], "1.3.0")
            OtherRuntime.clock.seconds += 60
            await other.refresh()
            await other.refresh()
            assert (built, other.entry.version) == (["2.0.0"], "2.0.0")
            OtherRuntime.clock.seconds += 60
            await other.refresh()
            assert built == ["2.0.0"]


class TestCheck:
    async def check(self, client: Client, text: str) -> dict[str, Any]:
        answer = await client.call("POST", "/swarms/check", {"json": text})
        assert answer.status_code == 200
        checked: dict[str, Any] = answer.json()
        return checked

    async def test_a_good_one_is_not_loaded(self, client: Client) -> None:
        before = await client.version()
        checked = await self.check(client, changed(version="99"))
        assert checked == {"valid": True, "problems": [], "agents": checked["agents"]}
        assert "supervisor" in checked["agents"]
        assert await client.version() == before

    async def test_problems_have_their_path(self, client: Client) -> None:
        agents = json.loads(changed())["agents"]
        agents[0]["comm_targets"] = "all"
        agents[1]["aktions"] = []
        checked = await self.check(client, changed(agents=agents))
        assert not checked["valid"]
        problems = {each["path"]: each["problem"] for each in checked["problems"]}
        assert problems.keys() == {"agents.0.comm_targets", "agents.1.aktions"}
        assert "actions" in problems["agents.1.aktions"]

    @pytest.mark.parametrize("text", ["{", "[]", '"x"', changed(entrypoint="nobody"), changed(name="other")])
    async def test_what_load_refuses_is_no_valid_swarm(self, client: Client, text: str) -> None:
        checked = await self.check(client, text)
        assert not checked["valid"]
        refused = await client.load(text)
        assert refused.status_code == 400
        assert checked["problems"][0]["problem"] in refused.json()["detail"]

    async def test_what_a_dump_hides_is_neither_valid_nor_loaded(self, client: Client) -> None:
        agents = json.loads(changed())["agents"]
        agents[0]["agent_params"] = {"deep": [{"session": "s3cret"}]}
        assert (await client.load(changed(agents=agents))).status_code == 200
        dumped = (await client.call("GET", "/swarms/dump")).json()["swarm"]
        checked = await self.check(client, json.dumps(dumped))
        assert [each["path"] for each in checked["problems"]] == ["agents.0.agent_params.deep.0.session"]
        assert (await client.load(json.dumps(dumped))).status_code == 400
