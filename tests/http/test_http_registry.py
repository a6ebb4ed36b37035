"""The other swarms that a server knows, over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from support.processes.http_server import HTTPServer
from support.services.peer_server import PeerServer

from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.bootstrap.system import LocalSystem
from mail.config import ServerConfig
from mail.errors import ConfigurationError
from mail.net import SwarmRegistry
from mail.net.types import SwarmEndpointCleaned
from mail.server.process import serving
from mail.swarms_json.utils import PACKAGED_SOURCE
from mail.testing.agents import build_swarm, complete

FIELDS = set(SwarmEndpointCleaned.model_fields)


@pytest.fixture
async def beta() -> AsyncIterator[PeerServer]:
    async with PeerServer("beta") as peer:
        yield peer


@pytest.fixture
async def knowing() -> AsyncIterator[HTTPServer]:
    registry = SwarmRegistry("local", "", allow_private=True)
    swarm = build_swarm(
        {"supervisor": lambda _: [complete()]}, description="It echoes.", keywords=("echo",), public=True
    )
    async with HTTPServer(swarm, registry=registry) as server:
        yield server
    await registry.stop()


async def register(server: HTTPServer, role: str = "admin", **fields: Any) -> httpx2.Response:
    return await server.client.post("/swarms", json=fields, headers=server.headers(role))


async def swarms(server: HTTPServer) -> dict[str, Any]:
    response = await server.client.get("/swarms", headers={"Authorization": ""})
    assert response.status_code == 200
    assert response.json().keys() == {"swarms"}
    found = {entry["swarm_name"]: entry for entry in response.json()["swarms"]}
    assert all(entry.keys() == FIELDS for entry in found.values())
    return found


async def test_register_list_and_forget(knowing: HTTPServer, beta: PeerServer) -> None:
    response = await register(
        knowing, name="beta", base_url=beta.url, auth_token="t0ken", metadata={"team": "b"}
    )
    assert response.status_code == 200
    note = (
        "its token for this server must have the id 'beta' or 'agent'; "
        "to accept only one id, register it with a caller_id"
    )
    ends = (
        "as it contains a token, this entry expires after a day, and when this server stops; to keep it, set "
        "SWARM_AUTH_TOKEN_BETA where this server runs, and register the swarm without auth_token"
    )
    assert response.json() == {"status": "registered", "swarm_name": "beta", "notes": [note, ends]}
    kept = await register(knowing, name="beta", base_url=beta.url, auth_token="t0ken", volatile=True)
    assert kept.json()["notes"] == [note], "it was asked for"
    await register(knowing, name="beta", base_url=beta.url, auth_token="t0ken", metadata={"team": "b"})
    entry = (await swarms(knowing))["beta"]
    assert (entry["base_url"], entry["version"], entry["is_active"]) == (beta.url, "7", True)
    assert (entry["swarm_description"], entry["keywords"]) == ("it plays", ["play"])
    assert entry["metadata"] == {"team": "b"}
    assert "t0ken" not in json.dumps(await swarms(knowing))
    delete = knowing.client.delete
    response = await delete("/swarms/beta", headers=knowing.headers("admin"))
    assert (response.status_code, response.json()["status"]) == (200, "unregistered")
    assert "beta" not in await swarms(knowing)
    response = await delete("/swarms/beta", headers=knowing.headers("admin"))
    assert response.status_code == 404
    assert "no swarm 'beta'" in response.json()["detail"]


async def test_any_name_can_be_forgotten(knowing: HTTPServer) -> None:
    for name in ("a/b", "Bêta 2", "dump", "100%"):
        assert (await register(knowing, name=name, base_url="http://127.0.0.1:1")).status_code == 200
        path = f"/swarms/{quote(name, safe='')}"
        response = await knowing.client.delete(path, headers=knowing.headers("admin"))
        assert (response.status_code, response.json()["swarm_name"]) == (200, name)


async def test_only_public_swarms_are_listed(knowing: HTTPServer, beta: PeerServer) -> None:
    beta.info = {"public": False}
    await register(knowing, name="beta", base_url=beta.url)
    found = await swarms(knowing)
    name = knowing.service.runtime.swarm.name
    assert list(found) == [name]
    own = found[name]
    assert own["base_url"] == knowing.uvicorn.url
    assert (own["is_active"], own["swarm_description"], own["keywords"]) == (True, "It echoes.", ["echo"])
    registry = knowing.service.registry
    assert isinstance(registry, SwarmRegistry)
    registry.register_local_swarm("https://alpha.example")
    assert (await swarms(knowing))[name]["base_url"] == "https://alpha.example"


async def test_admins_list_all_of_them_without_tokens(knowing: HTTPServer, beta: PeerServer) -> None:
    beta.info = {"public": False}
    await register(knowing, name="beta", base_url=beta.url, auth_token="t0ken", caller_id="b")
    answer = await knowing.client.get("/swarms?all=true", headers=knowing.headers("admin"))
    (entry,) = answer.json()["swarms"]
    assert entry.keys() >= FIELDS | {"expires", "auth_token_ref"}
    assert (entry["swarm_name"], entry["is_active"], entry["public"]) == ("beta", True, False)
    assert (entry["volatile"], entry["auth"], entry["caller_id"]) == (True, "bearer", "b")
    assert "t0ken" not in answer.text


async def test_what_must_be_set_is_told(knowing: HTTPServer, beta: PeerServer) -> None:
    response = await register(
        knowing, name="beta", base_url=beta.url, auth_token="t0ken", volatile=False, caller_id="b", auth=None
    )
    note, known_as = response.json()["notes"]
    assert known_as == "its token for this server must have the id 'b'"
    assert note.startswith("set SWARM_AUTH_TOKEN_BETA where this server runs")
    assert "t0ken" not in note


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "name"),
        ({"name": "beta"}, "base_url"),
        ({"name": "beta", "base_url": 7}, "base_url"),
        ({"name": "be@ta", "base_url": "http://127.0.0.1:1"}, "name of a swarm"),
        ({"name": "beta", "base_url": "gopher://x"}, "base_url must be"),
        ({"name": "beta", "base_url": "http://127.0.0.1:1", "auth": "magic"}, "auth"),
        ({"name": "beta", "base_url": "http://127.0.0.1:1", "metadata": []}, "metadata"),
        ({"name": "beta", "base_url": "http://127.0.0.1:1", "auth_token": "${HOME}"}, "SWARM_AUTH_TOKEN_"),
        ({"name": "gamma", "base_url": ""}, "base_url must be"),
    ],
)
async def test_bad_requests(knowing: HTTPServer, fields: dict[str, Any], problem: str) -> None:
    response = await register(knowing, **fields)
    assert response.status_code == 400
    assert problem in response.json()["detail"]


async def test_a_server_without_a_registry() -> None:
    async with HTTPServer(build_swarm({"supervisor": lambda _: [complete()]})) as server:
        assert await swarms(server) == {}
        response = await register(server, name="beta", base_url="http://127.0.0.1:1")
        assert (response.status_code, response.json()["detail"]) == (404, "this server knows no other swarms")


class TestEmbeddedServer:
    """The whole server, as `mail server` wires it."""

    @staticmethod
    def system(folder: Path, **interswarm: Any) -> LocalSystem:
        config = ServerConfig().with_overrides(
            host="0.0.0.0",
            swarm_name="example-no-proxy",
            swarm_source=str(PACKAGED_SOURCE),
            swarm_registry=str(folder / "registry.json"),
            database=str(folder / "mail.db"),
        )
        settings = config.interswarm.model_copy(update=interswarm)
        return local(config.model_copy(update={"interswarm": settings}), environ={})

    async def test_what_is_registered_outlives_it(self, tmp_path: Path, beta: PeerServer) -> None:
        first = self.system(tmp_path)
        async with serving(first) as url, httpx2.AsyncClient(base_url=url) as client:
            key = await issue_token(first.documents, Caller("admin", "root"))
            headers = {"Authorization": f"Bearer {key}"}
            for name, fields in (("beta", {}), ("gamma", {"auth_token": "t0ken"})):
                base_url = beta.url if name == "beta" else "http://127.0.0.1:1"
                body = {"name": name, "base_url": base_url, **fields}
                assert (await client.post("/swarms", json=body, headers=headers)).status_code == 200
            assert first.registry.local_base_url == url
        again = self.system(tmp_path)
        async with serving(again) as url, httpx2.AsyncClient(base_url=url) as client:
            listed = (await client.get("/swarms")).json()["swarms"]
            assert [entry["swarm_name"] for entry in listed] == ["beta"]
            assert await again.router.known() == ["beta"]
            assert again.runtime.peers is again.router
        (tmp_path / "mail.db").unlink()
        fresh = self.system(tmp_path)
        async with serving(fresh):
            assert await fresh.router.known() == ["beta"]

    async def test_a_server_for_everybody_calls_nobody_on_this_machine(
        self, tmp_path: Path, beta: PeerServer
    ) -> None:
        system = self.system(tmp_path, base_url="https://alpha.example/")
        assert not system.registry.http.allow_private
        system.listens("0.0.0.0", "http://localhost:8000")
        assert not system.registry.http.allow_private
        assert system.registry.local_base_url == "https://alpha.example"
        system.listens("127.0.0.1", "http://127.0.0.1:8000")
        assert system.registry.http.allow_private
        await system.stop()

    @pytest.mark.parametrize("allowed", [True, False])
    async def test_the_setting_decides(self, tmp_path: Path, allowed: bool) -> None:
        system = self.system(tmp_path, allow_private_addresses=allowed)
        for host in ("0.0.0.0", "127.0.0.1"):
            system.listens(host, "http://localhost:8000")
            assert system.registry.http.allow_private is allowed
        await system.stop()

    async def test_a_base_url_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"\[server.interswarm\] base_url"):
            self.system(tmp_path, base_url="nonsense")
        await self.system(tmp_path).stop()

    async def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "registry.json").write_text("{")
        with pytest.raises(ConfigurationError, match=r"registry.json: is not valid JSON"):
            self.system(tmp_path)
        assert not (tmp_path / "mail.db").exists()
