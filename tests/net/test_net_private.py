"""Addresses that are not public are called only where that is allowed."""

import asyncio
import socket
import threading
from typing import Any

import httpx2
import pytest
from support.services.peer_server import PeerServer

from mail.errors import BadRequest, PeerRefused, PeerUnavailable
from mail.net import SwarmRegistry
from mail.net.http import PeerHTTP, Target
from mail.public_urls import AsyncPublicTransport

PUBLIC_HOME = "https://alpha.example"


@pytest.mark.parametrize(
    ("home", "allowed"),
    [
        ("http://localhost:8000", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        (PUBLIC_HOME, False),
        ("http://10.0.0.1", False),
        ("", False),
    ],
)
def test_a_swarm_on_this_machine_only_may_call_others_there(home: str, allowed: bool) -> None:
    assert SwarmRegistry("alpha", home).http.allow_private is allowed
    assert SwarmRegistry("alpha", home, allow_private=not allowed).http.allow_private is not allowed


async def test_registration_and_discovery_refuse(beta: PeerServer) -> None:
    registry = SwarmRegistry("alpha", PUBLIC_HOME)
    for url in (beta.url, beta.url.replace("127.0.0.1", "localhost"), "http://169.254.169.254/latest"):
        with pytest.raises(BadRequest, match=r"not a public address; .* allow_private_addresses"):
            await registry.register_swarm("beta", url)
    outcome = await registry.discover_swarms([beta.url])
    assert "not a public address" in outcome.problems[beta.url]
    assert beta.requests == []
    await registry.stop()


async def test_each_call_is_checked(beta: PeerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that has become private is not called, whatever it was when it was registered."""
    registry = SwarmRegistry("alpha", PUBLIC_HOME, allow_private=True)
    await registry.register_swarm("beta", beta.url)
    registry.http.allow_private = False
    beta.requests.clear()
    assert not (await registry.check_health())["beta"].is_active
    with pytest.raises(PeerRefused, match="not a public address"):
        await registry.http.get(Target(beta.url), "/")
    assert beta.requests == []
    await registry.stop()


async def test_the_address_that_was_checked_is_called(
    beta: PeerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.public_urls.public_address", lambda host, port: "127.0.0.1")
    http = PeerHTTP(allow_private=False)
    port = beta.url.rsplit(":", 1)[1]
    for host in ("one.example", "two.example", "one.example"):
        assert (await http.get(Target(f"http://{host}:{port}"), "/health")).status == 200
    assert [request.headers["host"] for request in beta.requests] == [
        f"{host}.example:{port}" for host in ("one", "two", "one")
    ]
    await http.aclose()


async def test_hosts_do_not_share_connections(beta: PeerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mail.public_urls.public_address", lambda host, port: "127.0.0.1")
    transport = AsyncPublicTransport(httpx2.Limits())
    port = beta.url.rsplit(":", 1)[1]
    async with httpx2.AsyncClient(transport=transport) as client:
        for host in ("one.example", "two.example", "one.example"):
            await client.get(f"http://{host}:{port}/health")
    assert list(transport._inner) == ["one.example", "two.example"]


async def test_looking_a_name_up_does_not_hold_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        asked.set()
        assert goes_on.wait(60)
        raise socket.gaierror("no such name")

    monkeypatch.setattr("socket.getaddrinfo", slow)
    http = PeerHTTP(allow_private=False)
    asking = asyncio.create_task(http.get(Target("http://nowhere.example"), "/"))
    async with asyncio.timeout(60):
        await asyncio.to_thread(asked.wait, 10)
    goes_on.set()
    with pytest.raises(PeerUnavailable, match=r"nowhere.example has no address"):
        await asking
    await http.aclose()
