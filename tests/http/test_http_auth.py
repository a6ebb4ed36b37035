"""Who may call: built-in tokens, the external service, roles, and the documented helpers."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import Response
from support.processes.http_server import HTTPServer, QuickUvicorn

from mail.auth.keys import CachedAuthenticator, Caller, digest, find_bearer, read_bearer
from mail.auth.service import AuthService
from mail.auth.tokens import CACHE_SECONDS, TokenAuthenticator, issue_token
from mail.bootstrap import local
from mail.config import ServerConfig
from mail.errors import AuthServiceUnavailable, BadRequest, ConfigurationError, Unauthenticated
from mail.server.process import serving
from mail.testing.agents import build_swarm, complete
from mail.utils import auth

NO_KEYS = ["", "x", "Bearer", "Basic abc", "Bearer a b", "bearer unknown", "Token t", "Bearer,key"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/whoami"), ("POST", "/message"), ("GET", "/task/stream?task_id=t")]
)
async def test_no_key(server: HTTPServer, method: str, path: str) -> None:
    for header in NO_KEYS:
        response = await server.client.request(method, path, headers={"Authorization": header})
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json().keys() == {"detail"}


async def test_no_key_comes_before_all_else_that_is_wrong(server: HTTPServer) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    for request in (
        ("POST", "/message", {"content": b"{"}),
        ("GET", "/tasks?limit=0", {}),
        ("GET", "/task", {"json": []}),
        ("GET", "/task/stream", {}),
    ):
        response = await server.client.request(request[0], request[1], headers=wrong, **request[2])
        assert response.status_code == 401
        assert "mail token create" in response.json()["detail"]


def test_reading_the_header() -> None:
    for header in ("Bearer k/e=y", "bearer k/e=y", "bEARER   k/e=y  "):
        assert read_bearer(header) == "k/e=y"
    for header in (None, "Bearer ", "Bearer \x7f", "Bearer \xe9", "Bearer\tk", " Bearer k", "Bearer k\n"):
        with pytest.raises(Unauthenticated):
            read_bearer(header)


def test_finding_the_key_among_headers() -> None:
    signature = "AWS4-HMAC-SHA256 Credential=x"
    for given in (
        {"Authorization": "Bearer k"},
        {"Authorization": signature, "X-MAIL-Authorization": "Bearer k"},
        {"X-MAIL-Authorization": "bearer k"},
        {"Authorization": "Bearer k", "X-MAIL-Authorization": "Bearer other"},
    ):
        assert find_bearer(httpx2.Headers(given)) == "k"
    for given in ({}, {"Authorization": signature}, {"X-MAIL-Authorization": signature}):
        with pytest.raises(Unauthenticated):
            find_bearer(httpx2.Headers(given))


async def test_a_signed_request_has_its_key_in_another_header(server: HTTPServer) -> None:
    headers = {
        "Authorization": "AWS4-HMAC-SHA256 Credential=x",
        "X-MAIL-Authorization": f"Bearer {server.keys['admin']}",
    }
    response = await server.client.get("/whoami", headers=headers)
    assert response.json() == {"id": "root", "role": "admin"}


async def test_tokens_are_kept_only_as_digests(server: HTTPServer) -> None:
    key = server.keys["user"]
    assert key.startswith("mail_user_")
    assert len(key) > 40
    dump = "\n".join(server.rig.database.connection.iterdump())
    assert digest(key) in dump
    assert key not in dump


@pytest.mark.parametrize("name", ["", "a:b", "a@b", "a\nb", "x" * 257])
def test_ids_that_would_be_ambiguous(name: str) -> None:
    with pytest.raises(BadRequest, match="can't be used"):
        Caller("user", name)


@pytest.mark.parametrize(("role", "principal"), [("user", "user"), ("admin", "admin"), ("agent", "swarm")])
def test_principals(role: Any, principal: str) -> None:
    assert str(Caller(role, "x").principal("here")) == f"{principal}:x@here"


# ------------------------------------------------------------------------------------- the external service


class FakeService:
    """An authentication service: key `k` buys token `t-k`, whose info is `infos["k"]`."""

    def __init__(self) -> None:
        self.infos: dict[str, Any] = {
            "ann-key": {"role": "user", "id": "ann", "api_key": "ann-key"},
            "root-key": {"role": "admin", "id": "root", "api_key": "root-key"},
            "other-key": {"role": "agent", "id": "other", "api_key": "other-key"},
        }
        self.login_answer: Response | None = None
        self.calls: Counter[str] = Counter()
        self.app = FastAPI()
        self.app.post("/login")(self.login)
        self.app.get("/info")(self.info)

    async def login(self, request: Request) -> Response:
        self.calls["login"] += 1
        if self.login_answer is not None:
            return self.login_answer
        key = read_bearer(request.headers.get("authorization"))
        if key not in self.infos:
            return Response(status_code=401)
        return Response(f'{{"token": "t-{key}"}}', media_type="application/json")

    async def info(self, request: Request) -> Any:
        self.calls["info"] += 1
        info = self.infos[read_bearer(request.headers.get("authorization")).removeprefix("t-")]
        return info if not isinstance(info, bytes) else Response(info)


class Served:
    """The service on a port, and an authenticator that asks it."""

    def __init__(self, fake: FakeService, url: str, client: httpx2.AsyncClient) -> None:
        self.fake = fake
        self.url = url
        self.service = AuthService(client, f"{url}/login", f"{url}/info")


@pytest.fixture
async def external() -> AsyncIterator[Served]:
    fake = FakeService()
    async with QuickUvicorn(fake.app) as running, httpx2.AsyncClient() as client:
        yield Served(fake, running.url, client)


@pytest.fixture
async def guarded(external: Served) -> AsyncIterator[HTTPServer]:
    """A MAIL server that asks the service, with its default cache."""
    swarm = build_swarm({"supervisor": lambda _: [complete()]})
    async with HTTPServer(swarm, authenticator=CachedAuthenticator(external.service)) as server:
        server.client.headers["Authorization"] = "Bearer ann-key"
        yield server


@pytest.mark.parametrize(
    ("key", "status", "answer"),
    [
        ("ann-key", 200, {"id": "ann", "role": "user"}),
        ("root-key", 200, {"id": "root", "role": "admin"}),
        ("other-key", 403, None),
        ("bad-key", 401, None),
    ],
)
async def test_callers_of_the_service(guarded: HTTPServer, key: str, status: int, answer: object) -> None:
    response = await guarded.client.get("/whoami", headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == status
    assert answer is None or response.json() == answer


async def test_answers_are_remembered_and_refusals_are_not(guarded: HTTPServer, external: Served) -> None:
    for _ in range(3):
        assert (await guarded.client.get("/whoami")).status_code == 200
    assert external.fake.calls == {"login": 1, "info": 1}
    bad = {"Authorization": "Bearer new-key"}
    assert (await guarded.client.get("/whoami", headers=bad)).status_code == 401
    external.fake.infos["new-key"] = {"role": "user", "id": 7}
    assert (await guarded.client.get("/whoami", headers=bad)).json() == {"id": "7", "role": "user"}


@pytest.mark.parametrize(
    ("info", "status"),
    [
        ({"role": "guest", "id": "x"}, 403),
        ({"role": "user", "id": "ann@example.com"}, 503),
        ({"role": "user", "id": "a:b"}, 503),
        ({"role": "user", "id": ""}, 503),
        ({"role": "user"}, 503),
        ({"id": "x"}, 503),
        ([], 503),
        (b"<html>", 503),
        (b'{"role": "user", "id": "\xff"}', 503),
    ],
)
async def test_information_of_no_use(guarded: HTTPServer, external: Served, info: Any, status: int) -> None:
    external.fake.infos["ann-key"] = info
    response = await guarded.client.get("/whoami")
    assert response.status_code == status
    assert response.json().keys() == {"detail"}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Response(status_code=401), 401),
        (Response(status_code=403), 401),
        (Response(status_code=404), 503),
        (Response(status_code=500), 503),
        (Response(status_code=302, headers={"Location": "http://127.0.0.1:1/"}), 503),
        (Response(b"{}"), 503),
        (Response(b'{"token": ""}'), 503),
        (Response(b'{"token": "a\\nb"}'), 503),
        (Response(b'{"token": 5}'), 503),
    ],
)
async def test_logins_of_no_use(guarded: HTTPServer, external: Served, answer: Response, status: int) -> None:
    external.fake.login_answer = answer
    assert (await guarded.client.get("/whoami")).status_code == status


async def test_a_service_that_can_not_be_reached(server: HTTPServer) -> None:
    async with httpx2.AsyncClient() as client:
        for url in ("http://127.0.0.1:1/", "http://[broken", "nonsense://x", "http://" + "a" * 300):
            with pytest.raises(AuthServiceUnavailable):
                await AuthService(client, url, url).authenticate("key")


# ---------------------------------------------------------------------------------------------- the cache


class Counting:
    """Knows everybody but `nobody`, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def authenticate(self, bearer: str) -> Caller:
        self.asked += 1
        if bearer == "nobody":
            raise Unauthenticated
        return Caller("user", bearer)


async def test_the_cache_forgets_in_time_and_stays_small() -> None:
    now = 0.0
    inner = Counting()
    cached = CachedAuthenticator(inner, seconds=60, size=2, clock=lambda: now)
    await cached.authenticate("a")
    now = 59.9
    assert await cached.authenticate("a") == Caller("user", "a")
    assert inner.asked == 1
    now = 60.0
    await cached.authenticate("a")
    assert inner.asked == 2
    for key in "abc":
        await cached.authenticate(key)
    assert inner.asked == 4
    await cached.authenticate("a")
    assert inner.asked == 5, "the oldest of three was dropped"
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await cached.authenticate("nobody")
    assert inner.asked == 7


async def test_a_revoked_token_is_refused_at_once_here_and_soon_elsewhere(tmp_path: Path) -> None:
    now = 0.0
    database = f"sqlite:///{tmp_path / 'mail.db'}"
    system = local(ServerConfig().with_overrides(database=database), environ={})
    tokens = TokenAuthenticator(system.documents)
    elsewhere = CachedAuthenticator(tokens, seconds=CACHE_SECONDS, clock=lambda: now)
    admin, key = [
        await issue_token(system.documents, caller) for caller in (Caller("admin", "a"), Caller("user", "u"))
    ]
    async with serving(system) as url, httpx2.AsyncClient(base_url=url) as client:
        as_user, as_admin = ({"Authorization": f"Bearer {each}"} for each in (key, admin))
        assert (await client.get("/whoami", headers=as_user)).status_code == 200
        assert await elsewhere.authenticate(key) == Caller("user", "u")
        gone = await client.delete(f"/tokens/{digest(key)[:12]}", headers=as_admin)
        assert gone.status_code == 200
        assert (await client.get("/whoami", headers=as_user)).status_code == 401
        now = 5.0
        with pytest.raises(Unauthenticated):
            await elsewhere.authenticate(key)


async def test_a_check_under_way_while_a_token_is_revoked_is_not_remembered() -> None:
    class Slow(Counting):
        async def authenticate(self, bearer: str) -> Caller:
            cached.forget()
            return await super().authenticate(bearer)

    inner = Slow()
    cached = CachedAuthenticator(inner)
    for _ in range(2):
        await cached.authenticate("a")
    assert inner.asked == 2


# ------------------------------------------------------------------------------- the documented helpers


def own_app() -> FastAPI:
    """An application of somebody who knows only `mail.utils.auth`."""
    app = FastAPI()
    gates = {
        "admin": auth.caller_is_admin,
        "user": auth.caller_is_user,
        "agent": auth.caller_is_agent,
        "admin_or_user": auth.caller_is_admin_or_user,
    }
    for name, gate in gates.items():

        @app.get(f"/{name}")
        async def admitted(is_admitted: Annotated[bool, Depends(gate)]) -> bool:
            return is_admitted

    @app.get("/info")
    async def info(token_info: Annotated[dict[str, Any], Depends(auth.extract_token_info)]) -> dict[str, Any]:
        return token_info

    return app


@pytest.fixture
def environment(external: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setenv("AUTH_ENDPOINT", f"{external.url}/login")
    monkeypatch.setenv("TOKEN_INFO_ENDPOINT", f"{external.url}/info")
    return external


@pytest.mark.parametrize("inside", [False, True])
async def test_gates_in_an_application_of_ones_own(environment: Served, inside: bool) -> None:
    app = own_app()
    if inside:
        app.state.authenticator = environment.service
    admitted = {
        "/admin": {"root-key"},
        "/user": {"ann-key"},
        "/agent": {"other-key"},
        "/admin_or_user": {"root-key", "ann-key"},
    }
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        for path, keys in admitted.items():
            for key in environment.fake.infos:
                response = await client.get(path, headers={"Authorization": f"Bearer {key}"})
                assert response.status_code == (200 if key in keys else 403), (path, key)
            assert (await client.get(path)).status_code == 401
        info = await client.get("/info", headers={"Authorization": "Bearer ann-key"})
        assert info.json() == {"role": "user", "id": "ann", "api_key": "ann-key"}


async def test_login_and_token_info(environment: Served) -> None:
    token = await auth.login("ann-key")
    assert token == "t-ann-key"
    assert await auth.get_token_info(token) == {"role": "user", "id": "ann", "api_key": "ann-key"}
    with pytest.raises(Unauthenticated):
        await auth.login("bad-key")


async def test_helpers_without_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTH_ENDPOINT", raising=False)
    with pytest.raises(ConfigurationError, match="AUTH_ENDPOINT"):
        await auth.login("key")


async def test_gates_raise_http_exceptions(environment: Served) -> None:
    scope = {"type": "http", "headers": [(b"authorization", b"Bearer bad-key")], "app": own_app()}
    with pytest.raises(HTTPException) as refused:
        await auth.caller_is_admin(Request(scope))
    assert refused.value.status_code == 401


def test_generated_ids() -> None:
    info = {"role": "user", "id": "ann", "api_key": "k"}
    assert auth.generate_user_id(info) == "user_ann"
    assert auth.generate_agent_id({"role": "agent", "id": "remote"}) == "swarm_remote"
