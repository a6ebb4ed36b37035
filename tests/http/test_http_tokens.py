"""`/tokens`: list, create and revoke API tokens."""

import asyncio

import pytest
from support.faults.gates import waiting_swarm
from support.processes.http_server import HTTPServer

from mail.auth.keys import digest
from mail.auth.tokens import revoke_token
from mail.errors import NotFound
from mail.mail2.host import MailHost
from mail.testing.agents import build_swarm, complete


async def test_tokens_are_listed_without_their_texts(server: HTTPServer) -> None:
    answer = await server.client.get("/tokens", headers=server.headers("admin"))
    tokens = answer.json()["tokens"]
    assert [(token["role"], token["id"], token["current"]) for token in tokens] == [
        ("user", "ann", False),
        ("admin", "root", True),
        ("agent", "other", False),
    ]
    assert {token["expires"] for token in tokens} == {None}
    for key in server.keys.values():
        assert key not in answer.text
        assert digest(key) not in answer.text


async def test_a_new_token_works_until_it_is_revoked(server: HTTPServer) -> None:
    admin = server.headers("admin")
    made = await server.client.post("/tokens", json={"role": "user", "id": "eve"}, headers=admin)
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    key = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await server.client.get("/whoami", headers=key)).json() == {"role": "user", "id": "eve"}
    number = made.json()["number"]
    gone = await server.client.delete(f"/tokens/{number}", headers=admin)
    assert gone.json() == {"status": "revoked", "number": number}
    assert (await server.client.get("/whoami", headers=key)).status_code == 401
    again = await server.client.delete(f"/tokens/{number}", headers=admin)
    assert again.status_code == 404
    assert number in again.json()["detail"]


async def test_a_token_is_created_while_mail_has_no_host() -> None:
    async def find(_: object) -> MailHost:
        raise NotFound("MAIL 2.0 has no name for this host yet")

    async with HTTPServer(build_swarm({"supervisor": lambda _: [complete("")]}), mail_host=find) as server:
        made = await server.client.post(
            "/tokens", json={"role": "user", "id": "eve"}, headers=server.headers("admin")
        )
    assert made.status_code == 201


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_the_streams_of_a_revoked_key_end(is_elsewhere: bool) -> None:
    gate = asyncio.Event()

    async with HTTPServer(waiting_swarm(gate), debug=True) as server:
        await server.post(task_id="t", headers={"Prefer": "respond-async"})
        async with (
            server.frames("GET", "/task/stream?task_id=t") as events,
            server.frames("GET", "/responses/resp_t_1?stream=true") as response,
        ):
            await anext(events)
            number = digest(server.keys["user"])[:12]
            if is_elsewhere:
                await revoke_token(server.service.documents, number)
            else:
                await server.client.delete(f"/tokens/{number}", headers=server.headers("admin"))
            assert "task_complete" not in [frame.event async for frame in events]
            assert "response.completed" not in [frame.event async for frame in response]
        gate.set()


async def test_a_revoked_key_takes_its_sessions_off_the_list(server: HTTPServer) -> None:
    admin = server.headers("admin")
    code = (await server.client.post("/sign-in-links")).json()["code"]
    await server.client.post("/sign-in", json={"code": code})

    async def users() -> list[bool]:
        tokens = (await server.client.get("/tokens", headers=admin)).json()["tokens"]
        return [token["session"] for token in tokens if token["role"] == "user"]

    assert await users() == [False, True]
    number = digest(server.keys["user"])[:12]
    assert (await server.client.delete(f"/tokens/{number}", headers=admin)).status_code == 200
    assert await users() == []


async def test_what_can_not_be_a_token(server: HTTPServer) -> None:
    for body in (
        {},
        {"role": "root", "id": "x"},
        {"role": "user", "id": ""},
        {"role": "user", "id": "a:b"},
        {"role": "user", "id": "x", "expires_in": 0},
        {"role": "user", "id": "x", "expires_in": "1 day"},
    ):
        answer = await server.client.post("/tokens", json=body, headers=server.headers("admin"))
        assert answer.status_code == 400, body
    for number in ("0", "%25", "0" * 11, digest(server.keys["user"])[:11]):
        answer = await server.client.delete(f"/tokens/{number}", headers=server.headers("admin"))
        assert answer.status_code == 404, number
    assert len((await server.client.get("/tokens", headers=server.headers("admin"))).json()["tokens"]) == 3
