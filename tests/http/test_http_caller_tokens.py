"""Callers' own tokens of the identity provider, passed on to MCP servers: from a request over HTTP to a tool's call."""

import asyncio
import base64
import json
import logging
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from starlette.requests import Request
from support.processes.http_server import TIMEOUT, QuickUvicorn
from support.services import mcp_desk
from support.services.identity_provider import AUDIENCE, IdentityProvider, identity_provider

from mail import bootstrap
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.auth.caller_tokens import CallerTokens, Seal
from mail.auth.claims import JWTSettings
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.config.models import ServerConfig
from mail.core.engine.documents import ServerDocuments
from mail.core.turns.context import TURN, ActionContext
from mail.errors import ConfigurationError, Unauthenticated
from mail.mcp.servers import loaded_servers, read_servers, tool_servers
from mail.mcp.tools import tool_sources
from mail.server.app import build_app
from mail.testing.agents import View, build_agent, build_swarm, call, complete
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def issuer() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@dataclass
class Place:
    """A server on a file, whose agent calls the tool of an MCP server that gets its callers' tokens."""

    url: str
    file: Path
    seen: list[str]
    documents: ServerDocuments
    swarm: str

    async def ask(self, token: str, body: str = "show") -> str:
        """Send a message as the bearer of a token; returns the answer."""
        async with httpx2.AsyncClient(timeout=TIMEOUT) as client:
            headers = {"Authorization": f"Bearer {token}"}
            answer = await client.post(f"{self.url}/message", json={"body": body}, headers=headers)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["response"]
        return text


def echo(seen: list[str]) -> MCPServer:
    """A server that notes and repeats the token of each call, also in an error."""
    server = MCPServer("desk", log_level="ERROR")

    @server.tool(structured_output=False)
    def show(context: Context, fails: bool = False) -> str:
        """Show who calls."""
        request = context.request_context.request
        assert isinstance(request, Request)
        token = request.headers["Authorization"].removeprefix("Bearer ")
        seen.append(token)
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        if fails:
            raise ToolError(f"not with {token}")
        return f"{claims['sub']} by {token}"

    return server


def decide(view: View) -> list[Any]:
    if view.mail.body == "problems":
        return [complete("".join(TURN.get().provided.problems))]
    return [complete(view.results[-1])] if view.results else [call("show", fails="fail" in view.mail.body)]


@pytest.fixture
async def place(issuer: IdentityProvider, tmp_path: Path) -> AsyncIterator[Place]:
    seen: list[str] = []
    jwt = {"issuer": issuer.issuer, "audience": AUDIENCE}
    file = tmp_path / "mail.db"
    config = ServerConfig.model_validate({"auth": {"jwt": jwt}, "storage": {"database": str(file)}})
    async with mcp_desk.serving(echo(seen)) as url:
        source = tool_sources()(
            tool_servers(read_servers("lead", {"desk": {"url": url, "auth": "caller"}})), (), False
        )
        swarm = build_swarm({"lead": build_agent(decide, supervises=True, tool_source=source)})
        system = bootstrap.local(config, swarm=swarm, environ={"MAIL_SEALING_KEY": KEY})
        async with system, QuickUvicorn(build_app(system)) as http:
            system.listens("127.0.0.1", http.url)
            yield Place(http.url, file, seen, system.documents, swarm.name)


async def test_each_caller_acts_with_their_own_token(
    place: Place, issuer: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mail")
    tokens = {f"person-{number}": issuer.token(sub=f"person-{number}") for number in range(3)}
    answers = await asyncio.gather(*map(place.ask, tokens.values()))
    assert answers == [f"SUCCESS: {who} by [token of the caller]" for who in tokens]
    assert sorted(place.seen) == sorted(tokens.values())
    assert "not with [token of the caller]" in await place.ask(tokens["person-1"], "fail")
    kept = b"".join(path.read_bytes() for path in place.file.parent.iterdir())
    for token in tokens.values():
        for part in token.split(".")[1:]:
            assert part.encode() not in kept
            assert part not in caplog.text


async def test_a_newer_token_replaces_the_last_one(place: Place, issuer: IdentityProvider) -> None:
    old, new = issuer.token(jti="old"), issuer.token(jti="new")
    for token in (old, old, new):
        assert await place.ask(token) == "SUCCESS: ann by [token of the caller]"
    assert place.seen == [old, old, new]


async def test_an_agent_reads_why_it_can_not_call(place: Place, issuer: IdentityProvider) -> None:
    own = await issue_token(place.documents, Caller("user", "ann"))
    assert "user:ann has shown no token of the identity provider here" in await place.ask(own, "problems")
    assert await place.ask(issuer.token()) == await place.ask(own)
    await place.documents.set_caller_token(f"user:ann@{place.swarm}", "", expires=1.0, now=0.0)
    answer = await place.ask(own)
    assert answer.startswith(
        "ERROR: MCP server desk: the token of user:ann has expired: they have to sign in again"
    )
    assert len(place.seen) == 2


async def test_one_that_has_expired_or_was_exchanged_is_not_used(issuer: IdentityProvider) -> None:
    clock = FakeClock()
    settings = JWTSettings(issuer=issuer.issuer, audience=AUDIENCE)
    ann, eve = Caller("user", "ann"), Caller("user", "eve")
    seal = Seal.read({"MAIL_SEALING_KEY": KEY})
    assert seal is not None
    async with Rig(build_swarm({"lead": lambda _: [complete()]}), clock=clock) as rig:
        documents = ServerDocuments(SQLiteDocuments(rig.database))
        tokens = CallerTokens(documents, clock, seal, "swarm", settings.caller_of)
        expires = clock.now().timestamp() + 60
        await tokens.keep(ann, issuer.token(), expires)
        assert await tokens.token("user:ann@swarm")
        for owner in ("user:eve@swarm", "admin:ann@swarm", "user:ann@other"):
            with pytest.raises(Unauthenticated, match="no token"):
                await tokens.token(owner)
        await documents.set_caller_token(
            "user:eve@swarm", seal.close(issuer.token(), "user:eve@swarm"), expires, now=0.0
        )
        with pytest.raises(Unauthenticated, match="can't be used"):  # it is ann's
            await tokens.token("user:eve@swarm")
        found = await documents.caller_token("user:ann@swarm")
        assert found is not None
        await documents.set_caller_token("user:eve@swarm", found[0], expires, now=0.0)
        with pytest.raises(Unauthenticated, match="can't be used"):  # it was sealed for ann
            await tokens.token("user:eve@swarm")
        clock.advance(60)
        with pytest.raises(Unauthenticated, match="expired"):
            await tokens.token("user:ann@swarm")
        await tokens.keep(eve, issuer.token(sub="eve"), clock.now().timestamp() + 60)
        assert await documents.caller_token("user:ann@swarm") is None  # deleted
        assert await tokens.token("user:eve@swarm")


def test_only_the_private_key_opens() -> None:
    private = Seal.read({"MAIL_SEALING_KEY": KEY})
    key = X25519PrivateKey.from_private_bytes(base64.b64decode(KEY)).public_key().public_bytes_raw()
    public = Seal.read({"MAIL_SEALING_PUBLIC_KEY": base64.b64encode(key).decode()})
    assert private is not None
    assert public is not None
    sealed = public.close("secret", "context")
    assert (private.open(sealed, "context"), private.open(sealed, "other")) == ("secret", None)
    assert private.close("secret", "context") != sealed
    with pytest.raises(ConfigurationError, match="opens nothing"):
        public.open(sealed, "context")
    other = Seal.read({"MAIL_SEALING_KEY": base64.b64encode(os.urandom(32)).decode()})
    assert other is not None
    assert other.open(sealed, "context") is None
    for wrong in ("short", "*" * 44, base64.b64encode(bytes(31)).decode()):
        with pytest.raises(ConfigurationError, match="32 bytes in base64"):
            Seal.read({"MAIL_SEALING_KEY": wrong})


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"command": "x", "auth": "caller"}, "it is a program"),
        ({"url": "http://desk.example/mcp", "auth": "caller"}, "https url"),
        ({"url": "https://desk.example/mcp", "auth": "caller", "headers": {"authorization": "x"}}, "both"),
        ({"url": "https://desk.example/mcp", "auth": "me"}, "auth"),
    ],
)
def test_servers_that_may_not_get_tokens(server: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_servers("lead", {"desk": server})


def test_a_loaded_swarm_sends_nobody_tokens() -> None:
    servers = read_servers("lead", {"desk": {"url": "https://desk.example/mcp", "auth": "caller"}})
    with pytest.raises(ConfigurationError, match="may not pass on tokens"):
        loaded_servers("lead", servers)


async def test_an_action_outside_of_a_turn_has_no_token() -> None:
    with pytest.raises(Unauthenticated, match="MAIL_SEALING_KEY"):
        await ActionContext().caller_token()
