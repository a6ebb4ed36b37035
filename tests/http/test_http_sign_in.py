"""Sign-in links: `POST /sign-in-links`, `/sign-in`, `/sign-out`, and what a thief of a code or of a session
can't do.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.processes.http_server import HTTPServer

from mail.auth.keys import Caller, digest
from mail.auth.local_keys import LocalAuthenticator, LocalKeys
from mail.auth.tokens import (
    LINK_SECONDS,
    SESSION_SECONDS,
    has_first_callers,
    issue_link,
    issue_operator_link,
    valid_tokens,
)
from mail.core.task.documents import Kind
from mail.core.task.swarm import SwarmCore
from mail.errors import RateLimited
from mail.http.rates import RateLimiter
from mail.testing.agents import build_swarm, complete
from mail.testing.clock import FakeClock


def swarm() -> SwarmCore:
    return build_swarm({"supervisor": lambda _: [complete()]})


@pytest.fixture
async def timed(clock: FakeClock) -> AsyncIterator[HTTPServer]:
    async with HTTPServer(swarm(), clock=clock) as server:
        yield server


async def link(server: HTTPServer, role: str = "user") -> str:
    answer = await server.client.post("/sign-in-links", headers=server.headers(role))
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    code: str = answer.json()["code"]
    return code


async def exchange(server: HTTPServer, code: str) -> tuple[int, str]:
    answer = await server.client.post("/sign-in", json={"code": code}, headers={"Authorization": ""})
    return answer.status_code, answer.json().get("token", "")


async def whoami(server: HTTPServer, token: str) -> object:
    answer = await server.client.get("/whoami", headers={"Authorization": f"Bearer {token}"})
    return answer.json() if answer.status_code == 200 else answer.status_code


@pytest.mark.parametrize(("role", "name"), [("user", "ann"), ("admin", "root")])
async def test_a_link_signs_in_its_own_caller(server: HTTPServer, role: str, name: str) -> None:
    answer = await server.client.post("/sign-in", json={"code": await link(server, role)})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    session = answer.json()
    assert (session["role"], session["id"]) == (role, name)
    assert await whoami(server, session["token"]) == {"role": role, "id": name}


async def test_a_code_works_once(server: HTTPServer) -> None:
    code = await link(server)
    assert (await exchange(server, code))[0] == 200
    answer = await server.client.post("/sign-in", json={"code": code})
    assert answer.status_code == 401
    assert "mail ui" in answer.json()["detail"]


async def test_only_one_of_many_gets_a_session(server: HTTPServer) -> None:
    code = await link(server)
    statuses = sorted(
        status for status, _ in await asyncio.gather(*(exchange(server, code) for _ in range(8)))
    )
    assert statuses == [200] + [401] * 7


async def test_a_link_expires(timed: HTTPServer, clock: FakeClock) -> None:
    code, late = await link(timed), await link(timed)
    clock.advance(LINK_SECONDS - 1)
    assert (await exchange(timed, code))[0] == 200
    clock.advance(1)
    assert (await exchange(timed, late))[0] == 401


async def test_a_session_expires(timed: HTTPServer, clock: FakeClock) -> None:
    _, token = await exchange(timed, await link(timed))
    clock.advance(SESSION_SECONDS - 1)
    assert await whoami(timed, token) == {"role": "user", "id": "ann"}
    clock.advance(1)
    assert await whoami(timed, token) == 401


async def test_a_session_ends_with_the_key_that_made_its_link(server: HTTPServer) -> None:
    _, token = await exchange(server, await link(server))
    unused = await link(server)
    assert await server.records.remove_token(digest(server.keys["user"]))
    assert await whoami(server, token) == 401
    assert (await exchange(server, unused))[0] == 401


async def test_a_session_lasts_no_longer_than_the_key_that_made_its_link(
    timed: HTTPServer, clock: FakeClock
) -> None:
    body = {"role": "user", "id": "ann", "expires_in": 60}
    made = await timed.client.post("/tokens", json=body, headers=timed.headers("admin"))
    key = {"Authorization": f"Bearer {made.json()['token']}"}
    code = (await timed.client.post("/sign-in-links", headers=key)).json()["code"]
    session = (await timed.client.post("/sign-in", json={"code": code})).json()
    assert session["expires"] == made.json()["expires"]
    clock.advance(60)
    assert await whoami(timed, session["token"]) == 401


async def test_a_session_can_not_renew_itself(server: HTTPServer) -> None:
    _, token = await exchange(server, await link(server))
    answer = await server.client.post("/sign-in-links", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 403
    assert "mail ui" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "command"),
    [
        ("/tokens", {"role": "admin", "id": "x"}, "mail token create --role admin --id ID"),
        ("/tokens", {"role": "user", "id": "root"}, "mail token create --role user --id ID"),
        ("/webhooks", {"url": "https://hooks.example"}, "mail webhook register URL"),
        ("/message", {"body": "x", "webhook": {"url": "https://hooks.example"}}, "mail webhook register URL"),
        ("/swarms", {"name": "beta", "base_url": "https://beta.example"}, "swarm-register NAME URL"),
        ("/swarms/load", {"json": "{}"}, "swarm-load-from-json @FILE"),
        ("/health", {"status": "draining"}, "health-update STATUS"),
    ],
)
async def test_a_session_makes_nothing_that_outlives_it(
    server: HTTPServer, path: str, body: dict[str, object], command: str
) -> None:
    _, token = await exchange(server, await link(server, "admin"))
    refused = await server.client.post(path, json=body, headers={"Authorization": f"Bearer {token}"})
    assert refused.status_code == 403
    assert command in refused.json()["detail"]
    assert (await server.client.post(path, json=body, headers=server.headers("admin"))).status_code != 403


async def test_signing_out_revokes_a_session_and_no_other_key(server: HTTPServer) -> None:
    _, token = await exchange(server, await link(server))
    for key, revoked in ((token, True), (server.keys["user"], False)):
        answer = await server.client.post("/sign-out", headers={"Authorization": f"Bearer {key}"})
        assert answer.json() == {"status": "signed out", "revoked": revoked}
    assert await whoami(server, token) == 401
    assert await whoami(server, server.keys["user"]) == {"role": "user", "id": "ann"}


async def test_an_operator_makes_links_from_the_database(server: HTTPServer) -> None:
    made = await issue_link(server.records, Caller("admin", "admin"))
    _, token = await exchange(server, made.code)
    assert await whoami(server, token) == {"role": "admin", "id": "admin"}


async def both(server: HTTPServer, code: str) -> tuple[str, str | None]:
    answer = await server.client.post("/sign-in", json={"code": code}, headers={"Authorization": ""})
    assert answer.status_code == 200, answer.text
    return answer.json()["token"], answer.json()["admin_token"]


async def operator_s(server: HTTPServer) -> HTTPServer:
    """The server, with the callers of first tokens."""
    for role in ("user", "admin"):
        server.keys[role] = await server.key(role, role)
    return server


async def test_an_operator_s_link_brings_a_second_session_that_ends_with_the_first(
    server: HTTPServer,
) -> None:
    await operator_s(server)
    user, admin = await both(server, (await issue_operator_link(server.records)).code)
    assert admin is not None
    assert await whoami(server, user) == {"role": "user", "id": "user"}
    assert await whoami(server, admin) == {"role": "admin", "id": "admin"}
    assert {token.digest for token in await valid_tokens(server.records)} >= {digest(user), digest(admin)}

    await server.client.post("/sign-out", headers={"Authorization": f"Bearer {user}"})
    assert await whoami(server, user) == await whoami(server, admin) == 401


async def test_the_second_session_is_no_more_than_a_session(server: HTTPServer) -> None:
    await operator_s(server)
    user, admin = await both(server, (await issue_operator_link(server.records)).code)
    as_user, as_admin = ({"Authorization": f"Bearer {token}"} for token in (user, admin))
    assert (await server.client.get("/tokens", headers=as_admin)).status_code == 200
    assert (await server.client.get("/tokens", headers=as_user)).status_code == 403, (
        "the user's stays a user's"
    )
    assert (await server.client.post("/sign-in-links", headers=as_admin)).status_code == 403
    wanted = {"role": "admin", "id": "x"}
    assert (await server.client.post("/tokens", json=wanted, headers=as_admin)).status_code == 403


async def test_the_second_session_expires_with_the_first(timed: HTTPServer, clock: FakeClock) -> None:
    await operator_s(timed)
    unused = (await issue_operator_link(timed.records, clock)).code
    user, admin = await both(timed, (await issue_operator_link(timed.records, clock)).code)
    assert admin is not None
    clock.advance(LINK_SECONDS)
    assert (await exchange(timed, unused))[0] == (await exchange(timed, f"{unused}.admin"))[0] == 401
    clock.advance(SESSION_SECONDS - LINK_SECONDS)
    assert await whoami(timed, user) == await whoami(timed, admin) == 401


async def test_a_link_of_a_key_brings_one_session(server: HTTPServer) -> None:
    await operator_s(server)
    for role in ("user", "admin"):
        assert (await both(server, await link(server, role)))[1] is None


async def test_operators_with_tokens_of_their_own_get_an_admin_s_session_as_before(
    server: HTTPServer,
) -> None:
    assert not await has_first_callers(server.records), "user:ann and admin:root"
    token, admin = await both(server, (await issue_operator_link(server.records)).code)
    assert (await whoami(server, token), admin) == ({"role": "admin", "id": "admin"}, None)
    assert not await has_first_callers(server.records), "a session is no key"


async def test_local_keys_are_an_operator_s() -> None:
    keys = LocalKeys("http://127.0.0.1:1", "mail_local_user", "mail_local_admin")
    async with HTTPServer(swarm()) as server:
        await operator_s(server)
        server.app.state.authenticator = LocalAuthenticator(keys, server.app.state.authenticator)
        assert await whoami(server, keys.user) == {"role": "user", "id": "user"}
        assert await whoami(server, keys.admin) == {"role": "admin", "id": "admin"}
        assert await whoami(server, server.keys["user"]) == {"role": "user", "id": "user"}
        as_user, as_admin = ({"Authorization": f"Bearer {key}"} for key in (keys.user, keys.admin))
        made = await server.client.post("/sign-in-links", headers=as_user)
        user, admin = await both(server, made.json()["code"])
        assert admin is not None
        assert await whoami(server, user) == {"role": "user", "id": "user"}
        wanted = {"role": "admin", "id": "x"}
        assert (await server.client.post("/tokens", json=wanted, headers=as_admin)).status_code == 201
        assert (await server.client.post("/tokens", json=wanted, headers=as_user)).status_code == 403
        assert len(await valid_tokens(server.records)) == 8, "three keys, two first ones, two sessions, and x"


async def test_a_code_is_no_key_and_a_key_is_no_code(server: HTTPServer) -> None:
    code = await link(server)
    assert await whoami(server, code) == 401
    assert (await exchange(server, server.keys["user"]))[0] == 401
    assert (await exchange(server, digest(code)))[0] == 401
    assert (await exchange(server, code))[0] == 200


async def test_guesses_are_all_refused_alike_and_spoil_nothing(server: HTTPServer) -> None:
    code = await link(server)
    assert len(code) >= 43, "256 bits"
    answers = [
        await server.client.post("/sign-in", json={"code": guess})
        for guess in ("x", code[:-1], code + "A", code.swapcase(), "%", "ü" * 43)
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    assert (await exchange(server, code))[0] == 200


async def test_strangers_may_not_ask_too_often_nor_too_much() -> None:
    rates = RateLimiter(0.001, 2)
    for _ in range(2):
        rates.admit_stranger("203.0.113.7")
        rates.admit_stranger("2001:db8:1:2::a")
    for address in ("203.0.113.7", "::ffff:203.0.113.7", "2001:db8:1:2:ffff::b"):
        with pytest.raises(RateLimited):
            rates.admit_stranger(address)
    rates.admit_stranger("::ffff:203.0.113.8")
    async with HTTPServer(swarm(), rates=rates) as server:
        large = await server.client.post("/sign-in", json={"code": "x" * 9000})
        statuses = [(await exchange(server, "x"))[0] for _ in range(2)]
        answer = await server.client.post("/sign-in", json={"code": "x"})
        assert large.status_code == 413
        assert statuses == [401, 429]
        assert int(answer.headers["retry-after"]) >= 1
        assert await whoami(server, server.keys["user"]) == {"role": "user", "id": "ann"}, "not a stranger"


async def test_a_page_of_another_origin_gains_nothing(server: HTTPServer) -> None:
    """There is no cookie that its requests would carry, and it can't read the answer."""
    code = await link(server)
    answer = await server.client.post(
        "/sign-in",
        content=f'{{"code": "{code}"}}',
        headers={"Origin": "https://evil.example", "Content-Type": "text/plain", "Authorization": ""},
    )
    assert "access-control-allow-origin" not in answer.headers
    assert "set-cookie" not in answer.headers
    without_key = await server.client.post(
        "/sign-in-links", headers={"Origin": "https://evil.example", "Authorization": ""}
    )
    assert without_key.status_code == 401


async def test_only_digests_are_stored(server: HTTPServer) -> None:
    code = await link(server)
    _, token = await exchange(server, await link(server))
    dump = "\n".join(server.rig.database.connection.iterdump())
    assert digest(code) in dump
    assert digest(token) in dump
    assert code not in dump
    assert token not in dump


async def test_expired_links_and_sessions_are_deleted(timed: HTTPServer, clock: FakeClock) -> None:
    await exchange(timed, await link(timed))
    await link(timed)
    clock.advance(SESSION_SECONDS)
    await exchange(timed, await link(timed))
    counts = [
        timed.rig.database.connection.execute(
            f"SELECT count(*) FROM documents WHERE kind = '{kind}'"
        ).fetchone()[0]
        for kind in (Kind.SIGN_IN_LINK, Kind.TOKEN)
    ]
    assert counts == [0, 4], "three keys and a session"


async def test_with_an_external_service_there_are_no_links() -> None:
    async with HTTPServer(swarm(), issues_tokens=False) as server:
        for method, path, body in (
            ("POST", "/sign-in-links", None),
            ("POST", "/sign-in", {"code": "x"}),
            ("GET", "/tokens", None),
            ("POST", "/tokens", {"role": "user", "id": "x"}),
            ("DELETE", "/tokens/0123456789ab", None),
        ):
            answer = await server.client.request(method, path, json=body, headers=server.headers("admin"))
            assert answer.status_code == 404
            assert "external authentication service" in answer.json()["detail"]
        answer = await server.client.post("/sign-out")
        assert answer.json() == {"status": "signed out", "revoked": False}
