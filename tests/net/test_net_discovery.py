"""Finding swarms by the URLs of others."""

import pytest
from support.services.peer_server import PeerServer

from mail.net import InterswarmRouter, SwarmRegistry

HOME = "http://127.0.0.1:8000"


def listed(peer: PeerServer, name: str | None = None) -> dict[str, object]:
    return {"swarm_name": name or peer.name, "base_url": peer.url, "version": "7", "is_active": True}


async def test_a_server_and_those_that_it_lists(registry: SwarmRegistry, beta: PeerServer) -> None:
    async with PeerServer("gamma") as gamma, PeerServer("delta") as delta:
        beta.swarms = [listed(beta), listed(gamma), listed(delta), {"swarm_name": 7}, "nonsense"]
        await registry.register_swarm("delta", delta.url, "t0ken")
        delta.requests.clear()
        outcome = await registry.discover_swarms([f"{beta.url}/"])
        assert (outcome.registered, outcome.known, outcome.problems) == (("beta", "gamma"), ("delta",), {})
        assert delta.requests == []
        found = registry.get_all_endpoints()
        assert found.keys() == {"beta", "gamma", "delta"}
        assert (found["gamma"].base_url, found["gamma"].version) == (gamma.url, "7")
        assert found["gamma"].is_active
        again = await registry.discover_swarms([beta.url])
        assert (again.registered, again.known) == ((), ("beta", "delta", "gamma"))


async def test_who_is_found_gets_no_token(
    registry: SwarmRegistry, beta: PeerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWARM_AUTH_TOKEN_BETA", "of the real one")
    await registry.discover_swarms([beta.url])
    found = registry.get_swarm_endpoint("beta")
    assert found is not None
    assert (found.volatile, found.auth_token_ref) == (True, None)
    assert found.expires is not None
    assert registry.get_resolved_auth_token("beta") is None
    await registry.register_swarm("beta", beta.url)
    assert registry.get_resolved_auth_token("beta") == "of the real one"


async def test_what_is_not_registered(registry: SwarmRegistry, beta: PeerServer) -> None:
    async with PeerServer("gamma", info={"public": False}) as gamma, PeerServer("alpha") as own:
        beta.info = {"public": False}
        beta.swarms = [
            listed(gamma),
            listed(gamma, "epsilon"),
            {"swarm_name": "zeta", "base_url": "http://127.0.0.1:1"},
            {"swarm_name": "eta", "base_url": "file:///etc/passwd"},
            listed(own),
        ]
        outcome = await registry.discover_swarms([beta.url, own.url, "nonsense"])
        assert outcome.registered == outcome.known == ()
        assert registry.get_all_endpoints() == {}
        problems = outcome.problems
        assert problems[beta.url] == "swarm 'beta' is not public"
        assert problems[gamma.url] == "is swarm 'gamma', not 'epsilon'"
        assert problems["http://127.0.0.1:1"].startswith("no answer")
        assert "base_url must" in problems["file:///etc/passwd"]
        assert "base_url must" in problems["nonsense"]
        assert own.url not in problems


async def test_servers_that_list_nothing(registry: SwarmRegistry, beta: PeerServer) -> None:
    beta.answers["/swarms"] = 404, {"detail": "no such page"}
    outcome = await registry.discover_swarms([beta.url, "http://127.0.0.1:1"])
    assert outcome.registered == ("beta",)
    assert outcome.problems[beta.url] == "lists no swarms: 404 Not Found"
    assert set(outcome.problems) == {beta.url, "http://127.0.0.1:1"}


async def test_a_name_that_cannot_be_one(registry: SwarmRegistry, beta: PeerServer) -> None:
    beta.info = {"name": "be@ta"}
    outcome = await registry.discover_swarms([beta.url])
    assert "can't be the name of a swarm" in outcome.problems[beta.url]


async def test_no_more_than_some_at_a_time(registry: SwarmRegistry, beta: PeerServer) -> None:
    urls = [f"nonsense:{n}" for n in range(25)]
    outcome = await registry.discover_swarms([beta.url, *urls, beta.url])
    assert outcome.registered == ("beta",)
    assert outcome.problems["nonsense:24"].startswith("was not asked")


async def test_in_words(registry: SwarmRegistry, beta: PeerServer) -> None:
    router = InterswarmRouter(registry, "alpha")
    assert await router.discover([]) == "no swarms were found"
    text = await router.discover([beta.url, "nonsense"])
    assert text.startswith("registered: beta\nnonsense: base_url must")
    assert await router.discover([beta.url]) == "known already: beta"
