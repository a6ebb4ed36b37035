"""A task whose past is deleted (`keep = "latest"`): everything that shows it says so."""

import json
from typing import Any

from support.processes.http_server import HTTPServer

from mail.core.decisions.delete import drop_past
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.draft import Draft
from mail.core.task.task import TaskKey
from mail.http.runs import Runs
from mail.testing.agents import build_swarm, complete

SWARM = build_swarm({"supervisor": lambda view: [complete(f"{view.mail.body}!")]})


async def asked(server: HTTPServer) -> TaskKey:
    """A task of three runs, whose past is deleted after the second one."""
    for body in ("one", "two"):
        await server.ask(body=body, task_id="t")
    ((task,)) = (await server.rig.store.list_tasks(None)).tasks
    await server.rig.store.commit(drop_past(Draft(task, SWARM, SYSTEM_CLOCK)))
    return task.key


async def get(server: HTTPServer, path: str, **query: Any) -> tuple[int, Any]:
    answer = await server.client.get(path, params={"task_id": "t", **query})
    return answer.status_code, answer.json()


async def test_what_is_left_is_shown_and_the_rest_is_refused() -> None:
    async with HTTPServer(SWARM) as server:
        await asked(server)
        status, task = await get(server, "/task", items=True)
        first = int(task["events"][0]["id"])
        assert (status, task["status"], first > 1) == (200, "completed", True)
        assert [item["text"] for item in task["items"] if item["kind"] == "answer"] == ["two!"]
        gone = "The task's state at that time is no longer stored; choose a later one."
        for path, query in (("/task", {"at": 2}), ("/task/turn", {"seq": 2})):
            assert await get(server, path, **query) == (409, {"detail": gone}), path
        refused = await server.client.post("/task/fork", json={"task_id": "t", "at": 2})
        assert (refused.status_code, refused.json()["detail"]) == (409, gone)
        fork = await server.client.post("/task/fork", json={"task_id": "t"})
        assert fork.status_code == 201, fork.text
        again = await server.ask(body="three", task_id=fork.json()["task_id"])
        assert again["response"] == "three!"
        lines = (await server.client.get("/task/export", params={"task_id": "t"})).text.splitlines()
        kinds = [json.loads(line)["type"] for line in lines]
        assert json.loads(lines[1]) == {"type": "deleted", "events": first - 1}
        assert kinds[0] == "task"
        assert kinds.count("deleted") == 1
        assert "history" in kinds


async def test_a_run_before_is_not_found_and_the_others_keep_their_numbers() -> None:
    async with HTTPServer(SWARM) as server:
        key = await asked(server)

        async def numbers() -> list[int]:
            task = await server.rig.task(key)
            events = await server.rig.store.read_events(key)
            found: list[int] = []
            for number in (1, 2, 3):
                progress = Runs.progress(task, number=number)
                for event in events:
                    if event.seq > progress.after:
                        progress.read(event)
                if progress.run is not None:
                    assert progress.run.number == number
                    assert progress.run.status == "completed"
                    found.append(number)
            return found

        assert await numbers() == [2]
        await server.ask(body="three", task_id="t")
        assert await numbers() == [3], "nobody knows where the second one began"
