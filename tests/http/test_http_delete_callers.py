"""`/callers` and `/holds`: everything of a caller is deleted, unless it is on hold."""

from support.processes.http_server import HTTPServer

from mail.testing.agents import build_swarm, complete, turns


def make_server() -> HTTPServer:
    return HTTPServer(build_swarm({"supervisor": turns([complete("done")], [complete("done")])}))


async def test_admins_delete_others() -> None:
    async with make_server() as server:
        admin = server.headers("admin")
        me = (await server.client.get("/whoami", headers=admin)).json()
        refused = await server.client.delete(f"/callers/admin:{me['id']}", headers=admin)
        assert (refused.status_code, refused.json()["detail"]) == (
            400,
            "you can't delete yourself; another admin can",
        )
        unknown = await server.client.delete("/callers/ann", headers=admin)
        assert unknown.status_code == 400
        assert "write role:id@swarm" in unknown.json()["detail"]
        none = await server.client.get("/callers/user:bob", headers=admin)
        assert none.json()["deletion"] is None


async def test_what_is_on_hold_stays() -> None:
    async with make_server() as server:
        admin, task = server.headers("admin"), {"caller": "user:ann", "task_id": "t"}
        await server.ask(body="hello", task_id="t")
        empty = await server.client.post("/holds", json={**task, "reason": " "}, headers=admin)
        assert empty.status_code == 400
        gone = await server.client.post("/holds", json={**task, "task_id": "u", "reason": "x"}, headers=admin)
        assert gone.status_code == 404
        made = await server.client.post("/holds", json={**task, "reason": "case 4711"}, headers=admin)
        assert made.status_code == 201, made.text
        listed = (await server.client.get("/holds", headers=admin)).json()["holds"]
        assert listed == [made.json()]
        own = await server.client.delete("/task", params={"task_id": "t"})
        assert (own.status_code, "case" in own.text) == (409, False)
        refused = await server.client.delete("/callers/user:ann", headers=admin)
        assert (refused.status_code, "lift them first" in refused.text) == (409, True)
        lifted = await server.client.delete("/holds", params=task, headers=admin)
        assert lifted.json()["status"] == "lifted"
        again = await server.client.delete("/holds", params=task, headers=admin)
        assert again.status_code == 404
        assert (await server.client.delete("/task", params={"task_id": "t"})).status_code == 200


async def test_a_key_revives_no_deleted_task() -> None:
    async with make_server() as server:
        key = {"Idempotency-Key": "once"}
        first = await server.client.post("/message", json={"body": "hello"}, headers=key)
        task_id = first.json()["task_id"]
        assert (await server.client.delete("/task", params={"task_id": task_id})).status_code == 200
        again = await server.client.post("/message", json={"body": "hello"}, headers=key)
        assert (again.status_code, again.json()["detail"]) == (
            410,
            "the task of Idempotency-Key 'once' has been deleted; take a new key for another task",
        )
        assert (await server.client.get("/tasks")).json() == {}
        named = await server.client.post("/message", json={"body": "hello", "task_id": task_id})
        assert named.status_code == 200
        revived = await server.client.post("/message", json={"body": "hello"}, headers=key)
        assert revived.status_code == 410
