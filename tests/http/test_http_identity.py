"""Callers with tokens of an identity provider."""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import jwt
import pytest
from mcp.shared.auth import ProtectedResourceMetadata
from support.processes.http_server import HTTPServer
from support.services.identity_provider import AUDIENCE, CLIENT, IdentityProvider, identity_provider, make_key

from mail.auth import oidc
from mail.auth.claims import JWTSettings
from mail.auth.keys import Caller
from mail.auth.oidc import JWTAuthenticator, Provider
from mail.auth.tokens import SESSION_SECONDS, TokenAuthenticator
from mail.core.engine.documents import ServerDocuments
from mail.testing.agents import build_swarm, complete
from mail.testing.clock import FakeClock

REDIRECT = "http://127.0.0.1/ui"
VERIFIER = "v" * 43
CHALLENGE = "7w_YNF9DSfIdPf_pRjSq646_kPr-2-o9NAl16JGghdM"


class Known:
    """The keys of a server that starts after what it authenticates with was made."""

    documents: ServerDocuments

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    async def authenticate(self, bearer: str) -> Caller:
        return await TokenAuthenticator(self.documents, self._clock).authenticate(bearer)


@pytest.fixture
def issuer() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
async def server(issuer: IdentityProvider, clock: FakeClock) -> AsyncIterator[HTTPServer]:
    settings = JWTSettings(
        issuer=issuer.issuer, audience=AUDIENCE, role_claim="groups", admins=["ops"], client_id=CLIENT
    )
    known = Known(clock)
    async with httpx2.AsyncClient() as client:
        identity = JWTAuthenticator(settings, Provider(issuer.issuer, client), known)
        swarm = build_swarm({"supervisor": lambda _: [complete("hi")]})
        async with HTTPServer(swarm, clock=clock, authenticator=identity, identity=identity) as server:
            known.documents = server.records
            yield server


async def ask(server: HTTPServer, token: str) -> tuple[int, dict[str, Any]]:
    answer = await server.client.get("/whoami", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code, answer.json()


async def test_they_are_callers_like_others(server: HTTPServer, issuer: IdentityProvider) -> None:
    assert await ask(server, issuer.token()) == (200, {"role": "user", "id": "ann"})
    assert await ask(server, issuer.token(sub="eve", groups=["ops"])) == (200, {"role": "admin", "id": "eve"})
    assert await ask(server, server.keys["user"]) == (200, {"role": "user", "id": "ann"})
    assert (await ask(server, "mail_user_wrong"))[0] == 401
    answer = await server.client.post(
        "/message", json={"body": "hello"}, headers={"Authorization": f"Bearer {issuer.token()}"}
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"exp": None}, "exp"),
        ({"nbf": int(time.time()) + 3600}, "not yet valid"),
        ({"iat": int(time.time()) + 3600}, "not yet valid"),
        ({"aud": "billing"}, "get a token for 'mail'"),
        ({"aud": None}, "get a token for 'mail'"),
    ],
)
async def test_a_token_that_is_not_valid_now_and_here_is_refused(
    server: HTTPServer, issuer: IdentityProvider, claims: dict[str, Any], said: str
) -> None:
    status, answer = await ask(server, issuer.token(**claims))
    assert status == 401
    assert said in answer["detail"]


async def test_a_forged_one_is_refused(server: HTTPServer, issuer: IdentityProvider) -> None:
    assert (await ask(server, issuer.token(key=make_key(2))))[0] == 401
    claims = jwt.decode(issuer.token(), options={"verify_signature": False})
    ((kid, key),) = issuer.keys.items()
    unsigned = jwt.encode(claims, None, "none", {"kid": kid})
    shared = jwt.encode(claims, b"secret" * 8, "HS256", {"kid": "shared"})
    other_algorithm = jwt.encode(claims, key, "PS256", {"kid": kid})
    changed = issuer.token().replace(".", ".eyJzdWIiOiJyb290In0", 1)
    for token in (unsigned, shared, other_algorithm, changed, issuer.token(iss="https://evil.example")):
        assert (await ask(server, token))[0] == 401


async def test_a_new_key_is_found(
    server: HTTPServer, issuer: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = issuer.token()
    assert (await ask(server, old))[0] == 200
    issuer.rotate()
    new = issuer.token()
    assert (await ask(server, new))[0] == 401  # the keys were read just now
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", -1.0)
    assert (await ask(server, new))[0] == 200
    assert (await ask(server, old))[0] == 401


async def test_unknown_keys_are_no_flood(server: HTTPServer, issuer: IdentityProvider) -> None:
    for _ in range(20):
        assert (await ask(server, jwt.encode({"iss": issuer.issuer}, b"k" * 32, "HS256", {"kid": "x"})))[
            0
        ] == 401
    assert issuer.requests.count("/jwks") == 1


async def test_known_keys_are_enough_while_the_provider_is_down(
    server: HTTPServer, issuer: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.is_down = True
    status, answer = await ask(server, issuer.token())
    assert (status, answer["detail"][:30]) == (503, "the identity provider answered")
    assert (await ask(server, server.keys["user"]))[0] == 200
    issuer.is_down = False
    assert (await ask(server, issuer.token()))[0] == 200
    monkeypatch.setattr(oidc, "FRESH_SECONDS", -1.0)
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", -1.0)
    issuer.is_down = True
    assert (await ask(server, issuer.token()))[0] == 200


async def test_another_issuer_than_the_one_that_is_set(issuer: IdentityProvider) -> None:
    async with httpx2.AsyncClient() as client:
        provider = Provider(issuer.issuer + "/", client)
        with pytest.raises(oidc.AuthServiceUnavailable, match="set exactly"):
            await provider.metadata()


async def sign_in(server: HTTPServer, issuer: IdentityProvider, **changes: str) -> httpx2.Response:
    """Sign in as the page does."""
    provider = (await server.client.get("/sign-in", headers={"Authorization": ""})).json()["provider"]
    assert provider == {
        "authorization_endpoint": f"{issuer.issuer}/authorize",
        "client_id": CLIENT,
        "scope": "openid",
    }
    query = {"redirect_uri": REDIRECT, "client_id": CLIENT, "code_challenge": CHALLENGE, "state": "s"}
    back = httpx2.URL(issuer.agree(query))
    given = {"code": back.params["code"], "verifier": VERIFIER, "redirect_uri": REDIRECT, **changes}
    return await server.client.post("/sign-in", json=given, headers={"Authorization": ""})


@pytest.mark.parametrize("is_opaque", [False, True])
async def test_a_code_of_the_provider_is_a_session(
    server: HTTPServer, issuer: IdentityProvider, clock: FakeClock, is_opaque: bool
) -> None:
    issuer.is_opaque = is_opaque
    issuer.person = {"sub": "eve", "groups": ["ops"]}
    answer = await sign_in(server, issuer)
    assert answer.status_code == 200, answer.text
    session = answer.json()
    assert (session["role"], session["id"], session["admin_token"]) == ("admin", "eve", None)
    assert await ask(server, session["token"]) == (200, {"role": "admin", "id": "eve"})
    headers = {"Authorization": f"Bearer {session['token']}"}
    made = await server.client.post("/tokens", json={"role": "user", "id": "bob"}, headers=headers)
    assert made.status_code == 403  # it would outlive the session
    clock.advance(SESSION_SECONDS)
    assert (await ask(server, session["token"]))[0] == 401


@pytest.mark.parametrize(
    "changes", [{"code": "wrong"}, {"verifier": "w" * 43}, {"redirect_uri": "https://evil.example"}]
)
async def test_one_that_the_provider_refuses_is_none(
    server: HTTPServer, issuer: IdentityProvider, changes: dict[str, str]
) -> None:
    answer = await sign_in(server, issuer, **changes)
    assert answer.status_code == 401
    assert "sign in again" in answer.json()["detail"]


@pytest.mark.parametrize("takes", ["", "client_secret_post"])
async def test_a_secret_is_sent_as_the_provider_takes_it(
    server: HTTPServer, issuer: IdentityProvider, takes: str, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.secret, issuer.takes = "a:b/c=d%e f", takes
    assert (await sign_in(server, issuer)).status_code == 401  # the server has no secret
    assert "invalid_client" in caplog.text
    query = {"redirect_uri": REDIRECT, "client_id": CLIENT, "code_challenge": CHALLENGE, "state": "s"}
    settings = JWTSettings(issuer=issuer.issuer, audience=AUDIENCE, client_id=CLIENT)
    async with httpx2.AsyncClient() as client:
        others = Known(FakeClock())
        identity = JWTAuthenticator(settings, Provider(issuer.issuer, client), others, issuer.secret)
        assert issuer.secret not in repr(identity)
        code = httpx2.URL(issuer.agree(query)).params["code"]
        assert (await identity.sign_in(code, VERIFIER, REDIRECT)).id == "ann"


async def test_a_server_without_a_provider_says_so() -> None:
    async with HTTPServer(build_swarm({"supervisor": lambda _: [complete()]})) as server:
        assert (await server.client.get("/.well-known/oauth-protected-resource/mcp")).status_code == 404
        assert (await server.client.get("/sign-in")).json() == {"provider": None}
        given = {"code": "c", "verifier": VERIFIER}
        answer = await server.client.post("/sign-in", json=given)
        assert (answer.status_code, "server.auth.jwt" in answer.json()["detail"]) == (400, True)


async def test_foreign_clients_learn_where_to_get_tokens(
    server: HTTPServer, issuer: IdentityProvider
) -> None:
    card = (await server.client.get("/.well-known/agent-card.json")).json()
    url = f"{issuer.issuer}/.well-known/openid-configuration"
    assert card["securitySchemes"]["oidc"]["openIdConnectSecurityScheme"]["openIdConnectUrl"] == url
    assert [list(way["schemes"]) for way in card["securityRequirements"]] == [["bearer"], ["oidc"]]
    resource = (await server.client.get("/.well-known/oauth-protected-resource/mcp")).json()
    (found,) = ProtectedResourceMetadata.model_validate(resource).authorization_servers
    assert str(found) == issuer.issuer
    assert resource["resource"] == f"{server.uvicorn.url}/mcp"
