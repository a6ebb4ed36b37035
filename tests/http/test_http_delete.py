"""`DELETE /task`: what can be deleted, and what is left."""

import asyncio

from support.processes.http_server import HTTPServer

from mail.testing.agents import Call, View, build_swarm, complete, turns


async def test_a_task_is_deleted_and_its_fork_stays() -> None:
    async with HTTPServer(build_swarm({"supervisor": turns([complete("done")])})) as server:
        await server.ask(body="hello", task_id="t")
        stored = (await server.task("t"))["stored_bytes"]
        fork = (await server.client.post("/task/fork", json={"task_id": "t"})).json()["task_id"]
        answer = await server.client.delete("/task", params={"task_id": "t"})
        assert answer.status_code == 200
        assert answer.json() == {"task_id": "t", "status": "deleted", "stored_bytes": stored}
        for path in ("/task", "/task/stream", "/task/turns"):
            assert (await server.client.get(path, params={"task_id": "t"})).status_code == 404
        again = await server.client.delete("/task", params={"task_id": "t"})
        assert (again.status_code, again.json()["detail"]) == (404, "there is no task 't'")
        assert (await server.task(fork))["task_id"] == fork
        assert (await server.client.get("/tasks")).json().keys() == {fork}


async def test_a_task_that_runs_is_refused_and_those_of_others_are_for_admins() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def work(_view: View) -> list[Call]:
        begun.set()
        await gate.wait()
        return [complete("done")]

    async with HTTPServer(build_swarm({"supervisor": work})) as server:
        await server.post(body="hello", task_id="t", headers={"Prefer": "respond-async"})
        await begun.wait()
        refused = await server.client.delete("/task", params={"task_id": "t"})
        assert (refused.status_code, refused.json()["detail"]) == (
            409,
            "task 't' is running; cancel it, then delete it",
        )
        gate.set()
        await server.client.post("/task/cancel", json={"task_id": "t"})
        admin, whose = server.headers("admin"), {"task_id": "t", "caller": "user:ann"}
        forbidden = await server.client.delete("/task", params={**whose, "caller": "user:bob"})
        assert forbidden.status_code == 403
        own = await server.client.delete("/task", params={"task_id": "t"}, headers=admin)
        assert own.status_code == 404
        deleted = await server.client.delete("/task", params=whose, headers=admin)
        assert deleted.json()["status"] == "deleted"
